"""Sources of labels: the same labels in every format give the same columns and the same rejections."""

import io
import json
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from monitor.core.decisions import DecidedBy, Decision
from monitor.errors import UsageError
from monitor.records.decoder import RecordDecoder
from monitor.records.messages import Messages
from monitor.records.offline_files import offline_schema
from monitor.records.record_batch import Format, RecordBatch
from monitor.records.record_schema import Carries, ModelFormat, OutputKind, RecordFields, TimeUnit
from tests.records.streams import (
    CLASSES,
    KEY,
    decode_file,
    decode_offline,
    decode_text,
    npy,
    npz,
    reasons_of,
    rejection_reason,
    table,
    write,
)

DECIDES = ModelFormat("density", CLASSES, OutputKind.PROBS, ("site",), Decision(DecidedBy.FIELD), "exam")
"""Everything that predictions must have and labels have not."""
FORMATS = tuple(one for one in Format if one is not Format.NPY)


def labels(*models: ModelFormat, fields: RecordFields | None = None) -> RecordDecoder:
    """Return a decoder of labels of the default model, or of others."""
    return RecordDecoder(models or (DECIDES,), fields, hash_key=KEY, carries=Carries.LABELS)


def receive(*values: bytes, decoder: RecordDecoder | None = None) -> RecordBatch:
    """Decode messages of one time."""
    return (decoder or labels()).messages("t/0", Messages(values, range(len(values)), np.full(len(values), 1.6e9)))


def columns(batches: list[RecordBatch], model: str = "density") -> tuple[list[Any], ...]:
    """Return ids, labels and times of all accepted labels."""
    some = [batch.models[model] for batch in batches if model in batch.models]
    for one in some:
        assert one.vectors.shape == (len(one), 0)
        assert one.vectors.dtype == np.float32
        assert one.ids is not None
        assert one.labels is not None
        assert (one.versions, one.decided, one.groups, one.fields) == (None, None, None, {})
    parts = [(one.ids, one.labels, one.at) for one in some]
    return tuple(
        [value for part in column for value in np.asarray(part).tolist()] for column in zip(*parts, strict=True)
    )


_LABELS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["density", "density", "density", "other"]),
        "id": st.text("aé0,\"' ", max_size=6).map(str.strip),
        "label": st.sampled_from([*CLASSES, "0", "2", "3", "emu", ""]),
        "time": st.floats(-1.0, 2e11, allow_subnormal=False),
        "probs": st.just("ignored"),
    }
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_LABELS, min_size=1, max_size=12))
def test_all_formats_and_messages_decode_labels_alike(records: list[dict[str, Any]]) -> None:
    """Ids, classes and times of the accepted ones, and the reasons of the others."""
    lines = [json.dumps(record).encode() for record in records]
    expected = [decode_text(b"\n".join(lines) + b"\n", decoder=labels())]
    others = {str(one): decode_file(write(records, one), one, labels()) for one in FORMATS}
    others["messages"] = [receive(*lines)]
    others["array"] = [receive(b"[" + b",".join(lines) + b"]")]
    others["records"] = [receive(b'{"records": [' + b",".join(lines) + b"]}")]
    for name, found in others.items():
        assert (columns(found), reasons_of(found)) == (columns(expected), reasons_of(expected)), name


LINES = [
    pytest.param({"id": "a", "label": "owl", "time": 1.7e9}, None, id="good"),
    pytest.param({"id": 7, "label": 2}, None, id="an index, and an integer as id"),
    pytest.param({"id": "a", "label": "emu"}, "unknown_label", id="unknown class"),
    pytest.param({"id": "a", "label": 3}, "unknown_label", id="index beyond the last"),
    pytest.param({"id": "a", "label": -1}, "unknown_label", id="negative index"),
    pytest.param({"id": "a", "label": 1.5}, "unknown_label", id="fraction"),
    pytest.param({"id": "a", "label": 10**30}, "out_of_range", id="huge integer"),
    pytest.param({"id": "a"}, "missing_field", id="no label"),
    pytest.param({"id": "a", "label": ""}, "missing_field", id="empty label"),
    pytest.param({"id": "a", "label": None}, "wrong_type", id="null"),
    pytest.param({"id": "a", "label": True}, "wrong_type", id="boolean"),
    pytest.param({"id": "a", "label": ["owl"]}, "wrong_type", id="list"),
    pytest.param({"label": "owl"}, "no_id", id="no id"),
    pytest.param({"id": "", "label": "owl"}, "no_id", id="empty id"),
    pytest.param({"id": None, "label": "owl"}, "no_id", id="null id"),
    pytest.param({"id": 1.5, "label": "owl"}, "wrong_type", id="fraction as id"),
    pytest.param({"id": {}, "label": "owl"}, "wrong_type", id="object as id"),
    pytest.param({"id": "a", "label": "owl", "time": -1}, "bad_timestamp", id="negative time"),
    pytest.param({"id": "a", "label": "owl", "time": 1.7e12}, "bad_timestamp", id="milliseconds"),
    pytest.param({"id": "a", "label": "owl", "time": []}, "bad_timestamp", id="list as time"),
    pytest.param({"model": "other", "id": "a", "label": "owl"}, "unknown_model", id="unknown model"),
    pytest.param(["a", "owl"], "wrong_type", id="array"),
]


@pytest.mark.parametrize(("record", "reason"), LINES)
def test_a_label_is_accepted_or_rejected_for_its_reason(record: object, reason: str | None) -> None:
    """In a line, and in a message beside a good one; its content is not in the pointer."""
    line = json.dumps(record).encode()
    decoded = decode_text(line + b"\n", decoder=labels())
    good = b'{"id": "b", "label": "dog"}'
    received = receive(good, line) if isinstance(record, dict) else receive(good, b"[" + line + b"]")
    if reason is None:
        assert (decoded.accepted, received.accepted) == (1, 2)
        return
    assert [str(found) for _, found in decoded.rejected] == [str(found) for _, found in received.rejected] == [reason]
    assert received.accepted == 1
    for pointer in (*decoded.pointers, *received.pointers):
        assert pointer.expected
        assert "emu" not in repr(pointer)


def test_an_index_is_accepted_where_the_offline_commands_accept_one() -> None:
    """Where class names are numbers, a label is always a name."""
    numbers = ModelFormat("density", ("3", "1", "2"))
    data = b"".join(b'{"id": "a", "label": %s}\n' % one for one in (b"3", b"1.0", b'"2"', b"0"))
    decoded = decode_text(data, decoder=labels(numbers))
    assert columns([decoded])[1] == [0, 1, 2]
    assert reasons_of([decoded]) == {("density", "unknown_label"): 1}
    assert decoded.pointers[0].expected == "one of the classes 3, 1, 2"


def test_labels_of_several_models_name_them() -> None:
    """A file without the column of models is rejected."""
    decoder = labels(DECIDES, ModelFormat("risk", ("low", "high"), OutputKind.SCORE))
    records = [
        {"model": "risk", "id": "a", "label": "high"},
        {"model": "density", "id": "a", "label": "owl"},
        {"model": "risk", "id": "a", "label": "owl"},
    ]
    for one in FORMATS:
        batches = decode_file(write(records, one), one, decoder)
        assert (columns(batches, "risk")[1], columns(batches)[1]) == ([1], [2])
        assert reasons_of(batches) == {("risk", "unknown_label"): 1}
    assert rejection_reason(b"id,label\na,owl\n", Format.CSV, decoder) == "bad_header"
    assert rejection_reason(npz(id=["a"], label=["owl"]), Format.NPZ, decoder) == "missing_field"
    assert rejection_reason(table({"id": ["a"], "label": ["owl"]}), Format.PARQUET, decoder) == "missing_field"
    assert reasons_of([decode_text(b'{"id": "a", "label": "owl"}\n', decoder=decoder)]) == {("", "missing_field"): 1}


def test_fields_are_mapped_and_times_converted() -> None:
    """Also nested ones; what only predictions have is not read."""
    fields = RecordFields(
        id="study.uid", time="signed", label="report.class", time_unit=TimeUnit.MILLISECONDS, time_zone="Europe/Oslo"
    )
    line = b'{"study": {"uid": "a"}, "report": {"class": "owl"}, "signed": 1.7e12, "site": [], "predicted": {}, "version": {}}\n'
    ids, classes, at = columns([decode_text(line, decoder=labels(fields=fields))])
    plain = columns([decode_text(b'{"id": "a", "label": "owl"}\n', decoder=labels())])
    assert (ids, classes, at) == (plain[0], [2], [1.7e9])
    assert np.isnan(plain[2]).all()


@pytest.mark.parametrize("name", ["id", "time", "model"])
def test_the_label_has_a_field_of_its_own(name: str) -> None:
    with pytest.raises(UsageError, match=rf"fields.label: expected a field other than that of the {name}"):
        labels(fields=RecordFields(label=name))


def test_messages_share_the_model_and_the_time() -> None:
    """A record's own value wins; without any, the time is that of the message. An object with a label is a label."""
    shared = b'{"model": "density", "time": 5, "id": "x", "records": [{"id": "a", "label": 0}, {"id": "b", "label": 1, "time": 6}]}'
    single = b'{"id": "c", "label": 2, "records": [{"id": "d", "label": 0}]}'
    _, classes, at = columns([receive(shared, single, b'{"id": "e", "label": 0, "probs_f32": "AAAA"}')])
    assert (classes, at) == ([0, 1, 2, 0], [5.0, 6.0, 1.6e9, 1.6e9])


def test_an_array_alone_cannot_carry_labels() -> None:
    decoder = labels()
    assert rejection_reason(npy(np.array([0, 1, 2])), Format.NPY, decoder) == "missing_field"


@pytest.mark.parametrize(
    ("content", "format_", "reason"),
    [
        pytest.param(b"id,truth\na,owl\n", Format.CSV, "bad_header", id="csv"),
        pytest.param(npz(id=["a"]), Format.NPZ, "missing_field", id="npz"),
        pytest.param(table({"id": ["a"]}), Format.PARQUET, "missing_field", id="parquet"),
        pytest.param(table({"id": ["a"]}, Format.ARROW), Format.ARROW, "missing_field", id="arrow"),
        pytest.param(
            table({"id": ["a"], "label": pa.array([b"owl"]).dictionary_encode()}, Format.ARROW),
            Format.ARROW,
            "wrong_type",
            id="a dictionary of bytes",
        ),
        pytest.param(table({"id": ["a"], "label": [["owl"]]}), Format.PARQUET, "wrong_type", id="lists"),
        pytest.param(npz(id=["a"], label=np.array("owl")), Format.NPZ, "not_a_vector", id="a single label"),
        pytest.param(npz(id=["a"], label=[["owl"]]), Format.NPZ, "not_a_vector", id="a matrix"),
        pytest.param(npz(id=["a", "b"], label=["owl"]), Format.NPZ, "wrong_type", id="more ids than labels"),
        pytest.param(npz(id=["a"], label=["o" * 2000]), Format.NPZ, "too_large", id="long labels"),
        pytest.param(npz(id=["a"], label=[b"\xff"]), Format.NPZ, "bad_encoding", id="bytes"),
    ],
)
def test_a_file_without_usable_labels_is_rejected(content: bytes, format_: Format, reason: str) -> None:
    assert rejection_reason(content, format_, labels()) == reason


def test_labels_that_take_no_bytes_are_no_rows() -> None:
    """A small file could declare any number of them."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<U0", "fortran_order": False, "shape": (10**15,)})
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("label.npy", header.getvalue())
        file.writestr("id.npy", header.getvalue())
    assert rejection_reason(archive.getvalue(), Format.NPZ, labels()) == "empty"


@pytest.mark.parametrize("one", [Format.PARQUET, Format.ARROW])
def test_columns_of_indices_dictionaries_and_nulls_are_labels(one: Format) -> None:
    """A null is rejected by itself."""
    indices = decode_file(table({"id": ["a", "b", "c"], "label": pa.array([2, None, 3])}, one), one, labels())
    assert (columns(indices)[1], reasons_of(indices)) == (
        [2],
        {("density", k): 1 for k in ("wrong_type", "unknown_label")},
    )
    names = pa.array(["owl", "cat", None]).dictionary_encode()
    named = decode_file(table({"id": pa.array([7, None, 8]), "label": names}, one), one, labels())
    assert (columns(named)[1], reasons_of(named)) == ([2], {("density", k): 1 for k in ("no_id", "wrong_type")})


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b'{"id": "a", "label": "owl"}', b"[]", b'{"records": [1]}'])))
@example([b"\x0b", b"{}\n\x0b\n{}"])
def test_no_bytes_raise_or_are_lost(values: list[bytes]) -> None:
    """Whatever they are, as messages and as lines."""
    batch = receive(*values)
    assert batch.accepted + batch.rejected.total() + batch.ignored == batch.rows
    decode_text(b"".join(value.replace(b"\n", b"") + b"\n" for value in values[:90]), decoder=labels())


def test_hints_are_on_times_only() -> None:
    """Labels are no constant outputs."""
    good = b"".join(b'{"id": %d, "label": "owl"}\n' % row for row in range(100))
    assert not decode_text(good, decoder=labels()).hints
    late = b"".join(b'{"id": %d, "label": "owl", "time": 17000000000%02d}\n' % (row, row) for row in range(100))
    assert decode_text(late, decoder=labels()).hints == {
        "density": ("times look like milliseconds: set time_unit: ms",)
    }


def test_the_offline_commands_keep_their_reason() -> None:
    content = b'{"probs": [0.7, 0.2, 0.1], "label": "emu"}\n'
    schema = offline_schema(classes=CLASSES, label_field="label")
    assert reasons_of(decode_offline(content, Format.JSONL, schema)) == {("model", "label_out_of_range"): 1}
