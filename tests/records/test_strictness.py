"""Values that resemble a record, a number, a text or a class are rejected in every format, and fast."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor.errors import UsageError
from monitor.records.decoder import RecordDecoder
from monitor.records.hints import COMMAND_LINE
from monitor.records.record_batch import Format, RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields
from monitor.records.rejections import RejectedFile
from tests.effort import calls_of
from tests.records.streams import (
    CLASSES,
    GOOD,
    KEY,
    LINE,
    MODEL,
    RECORD,
    decode_file,
    decode_text,
    npz,
    reasons_of,
    rejection_reason,
    stream,
    table,
)

COLUMNS = RecordFields(class_columns=("prob_*",))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        pytest.param(b"{}\n" * 60_000, "missing_field", id="nothing"),
        pytest.param(b'{"a":1}\n' * 30_000, "missing_field", id="another field"),
        pytest.param(b"".join(b'{"a":%d}\n' % n for n in range(20_000)), "missing_field", id="others all the time"),
        pytest.param(b'{"probs":[1,0]}\n' * 20_000, "wrong_k", id="too short"),
        pytest.param(b'{"probs":"x"}\n' * 20_000, "wrong_type", id="a text"),
    ],
)
def test_rejected_lines_are_cheap(lines: bytes, reason: str) -> None:
    """Pointers are only made for the last ones."""
    found = list[RecordBatch]()
    count = lines.count(b"\n")
    # 4 to 28 for each line; with a pointer it would be 52 to 76.
    assert calls_of(lambda: found.append(decode_text(LINE + lines))) < 40 * count
    (decoded,) = found
    assert reasons_of([decoded]) == {("density", reason): count}
    assert [pointer.number for pointer in decoded.pointers] == list(range(count - 1_998, count + 2))
    assert all(pointer.digest for pointer in decoded.pointers)


def test_a_repeated_line_is_rejected_for_the_same_reason() -> None:
    """Between other lines, and in the next block."""
    invalid = [
        b"{}",
        b"[1]",
        b'{"probs": [1, 0]}',
        b'{"probs": [1, 0, 0], "id": "\\ud800"}',
        b'{"model": "x"}',
        b"",
        b"{",
    ]
    decoder = stream()
    wanted = {
        ("density", "missing_field"): 40,
        ("", "wrong_type"): 40,
        ("density", "wrong_k"): 40,
        ("", "bad_encoding"): 40,
        ("", "unknown_model"): 40,
        ("", "bad_json"): 40,
    }
    for _ in range(2):
        decoded = decode_text(b"".join(line + b"\n" + LINE for line in invalid * 40), decoder=decoder)
        assert reasons_of([decoded]) == wanted
        assert (decoded.accepted, decoded.ignored) == (280, 40)


@pytest.mark.parametrize("format_", [Format.CSV, Format.NPZ, Format.PARQUET, Format.ARROW])
def test_an_unknown_class_column_rejects_the_file(format_: Format) -> None:
    """Without that class, the others are no complete distribution."""
    columns = {f"prob_{name}": [one] for name, one in zip(CLASSES, GOOD, strict=True)}
    decoder = stream(fields=COLUMNS)
    assert rejection_reason(_written(columns, format_), format_, decoder) == "not rejected"
    assert rejection_reason(_written(columns | {"prob_emu": [0.0]}, format_), format_, decoder) == "unknown_class"
    assert rejection_reason(_written(columns | {"other": [0.0]}, format_), format_, decoder) == "not rejected"
    named = stream(fields=RecordFields(class_columns=("prob_*",), time="prob_time"))
    assert rejection_reason(_written(columns | {"prob_time": [1.0]}, format_), format_, named) == "not rejected"


def test_an_unknown_nested_class_column_rejects_the_file() -> None:
    """Only names next to the class columns count."""
    decoder = stream(fields=RecordFields(class_columns=("out.p_*",)))
    inside = {f"p_{name}": one for name, one in zip(CLASSES, GOOD, strict=True)}
    assert rejection_reason(table({"out": [inside], "p_emu": [0.0]}), Format.PARQUET, decoder) == "not rejected"
    assert rejection_reason(table({"out": [inside | {"p_emu": 0.0}]}), Format.PARQUET, decoder) == "unknown_class"


def _written(columns: dict[str, list[float]], format_: Format) -> bytes:
    if format_ is Format.CSV:
        rows = [",".join(columns), ",".join(str(one) for (one,) in columns.values())]
        return "".join(f"{row}\n" for row in rows).encode()
    if format_ is Format.NPZ:
        return npz(**{name: np.array(values) for name, values in columns.items()})
    return table(dict(columns), format_)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_float32_version_has_its_shortest_text(kind: Any) -> None:
    """2.1, and not 2.0999999046325684; also as a scalar, and as a segment."""
    versions = np.array([2.1, 3.5], dtype=kind)
    outputs = np.tile(GOOD, (2, 1))
    lists = pa.array([GOOD, GOOD])
    for content, format_, texts in (
        (npz(probs=outputs, version=versions, site=versions), Format.NPZ, ("2.1", "3.5")),
        (npz(probs=outputs, version=versions[0], site=versions[0]), Format.NPZ, ("2.1",)),
        (table({"probs": lists, "version": versions, "site": versions}), Format.PARQUET, ("2.1", "3.5")),
        (table({"probs": lists, "version": versions, "site": versions}, Format.ARROW), Format.ARROW, ("2.1", "3.5")),
    ):
        (block,) = decode_file(content, format_)
        records = block.models["density"]
        assert records.versions is not None
        assert records.versions.values == texts
        assert records.fields["site"].values == texts


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("name", "reason"), [("site", "bad_segment"), ("version", "wrong_type"), ("id", "wrong_type")])
def test_a_number_that_is_not_finite_is_rejected_as_text(number: float, name: str, reason: str) -> None:
    """In every format."""
    record = {"probs": GOOD, name: number}
    assert reasons_of([decode_text(json.dumps(record).encode() + b"\n" + LINE)]) == {("density", reason): 1}
    for content, format_ in (
        (npz(probs=np.array([GOOD]), **{name: np.array([number])}), Format.NPZ),
        (npz(probs=np.array([GOOD]), **{name: np.array(number, dtype=np.float32)}), Format.NPZ),
        (table({"probs": [GOOD], name: pa.array([number])}), Format.PARQUET),
        (table({"probs": [GOOD], name: pa.array([number], pa.float32())}, Format.ARROW), Format.ARROW),
    ):
        assert reasons_of(decode_file(content, format_)) == {("density", reason): 1}


@pytest.mark.parametrize("name", ["id", "site", "version", "model"])
def test_invalid_utf_8_in_an_npz_file_rejects_it(name: str) -> None:
    outputs = np.tile(GOOD, (2, 1))
    bad: dict[str, Any] = {name: np.array([b"density", b"\xff"])}
    assert rejection_reason(npz(probs=outputs, **bad), Format.NPZ) == "bad_encoding"
    good: dict[str, Any] = {name: np.array([b"density", b"density"])}
    assert rejection_reason(npz(probs=outputs, **good), Format.NPZ) == "not rejected"


@pytest.mark.parametrize("cell", ["0.2_5", "0.٢٥", "２"])
def test_a_csv_cell_that_only_python_accepts_as_a_number_is_rejected(cell: str) -> None:
    header = ",".join(f"prob_{name}" for name in CLASSES)
    text = f"{header}\n0.7,0.2,0.1\n0.5,0.25,{cell}\n0.7,0.2,0.1\n".encode()
    decoded = decode_text(text, Format.CSV, stream(fields=COLUMNS))
    assert reasons_of([decoded]) == {("density", "wrong_type"): 1}
    assert decoded.accepted == 2


@pytest.mark.parametrize("cell", ["1_760_000_000", "١٧٦٠٠٠٠٠٠٠"])
def test_a_csv_cell_that_only_python_accepts_as_a_time_is_rejected(cell: str) -> None:
    text = f'probs,time\n"[0.7,0.2,0.1]",{cell}\n"[0.7,0.2,0.1]",1760000000\n'.encode()
    assert reasons_of([decode_text(text, Format.CSV)]) == {("density", "bad_timestamp"): 1}


def test_neither_half_of_a_csv_cell_with_a_newline_is_a_record() -> None:
    """Each half has an unclosed quote."""
    head = b"note,prob_cat,prob_dog,prob_owl\n"
    text = head + b'"one\ntwo",0.7,0.2,0.1\n' + b'"a ""b""",0.7,0.2,0.1\n' + b'5",0.7,0.2,0.1\n'
    decoded = decode_text(text, Format.CSV, stream(fields=COLUMNS))
    assert reasons_of([decoded]) == {("", "bad_csv"): 3}
    assert decoded.accepted == 1


@pytest.mark.parametrize(
    ("segment", "fields"),
    [
        pytest.param("id", RecordFields(), id="by its name"),
        pytest.param("site", RecordFields(segments={"site": "id"}), id="mapped"),
        pytest.param("site", RecordFields(id="meta.study", segments={"site": "meta.study"}), id="nested"),
        pytest.param("a.b", RecordFields(id="a.b"), id="the same column of CSV"),
    ],
)
def test_records_cannot_be_split_by_id(segment: str, fields: RecordFields) -> None:
    """Ids are kept as keyed hashes only, and segments as they are."""
    with pytest.raises(UsageError, match="expected fields other than the id, found the id for"):
        stream(ModelFormat("density", CLASSES, segment_fields=(segment,)), fields=fields)


def test_hints_may_be_worded_for_the_command_line() -> None:
    """By default they name settings of the configuration."""
    records = [RECORD | {"probs": [-3.0, 5.0, float(place)], "time": 1.76e12} for place in range(40)]
    text = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    by_default = RecordDecoder((MODEL,), hash_key=KEY)
    hints = ("looks like logits: set kind: logits", "times look like milliseconds: set time_unit: ms")
    assert decode_text(text, decoder=by_default).hints == {"density": hints}
    decoder = RecordDecoder((MODEL,), hash_key=KEY, wording=COMMAND_LINE)
    hints = ("looks like logits: add --kind logits", "times look like milliseconds: add --time-unit ms")
    assert decode_text(text, decoder=decoder).hints == {"density": hints}
    columns = b"prob_cat,prob_dog,prob_owl\n0.7,0.2,0.1\n"
    with pytest.raises(RejectedFile, match=r"3 columns named prob_…: add --class-columns 'prob_\*' \(bad_header\)"):
        decode_text(columns, Format.CSV, decoder)
