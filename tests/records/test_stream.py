"""The stream decoder: models, fields, times, ids, blocks and pointers."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor.core.recent_ids import NO_ID
from monitor.errors import UsageError
from monitor.records.id_hash import hash_ids
from monitor.records.record_batch import MAX_LINE_BYTES, Format, RecordBatch, TextPiece
from monitor.records.record_schema import ModelFormat, OutputKind, RecordFields, TimeUnit
from monitor.records.rejections import Reason, RejectedFile
from tests.records.streams import (
    ALL_FORMATS,
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
    vectors_of,
    write,
)

TWO = (MODEL, ModelFormat("chest", ("well", "ill"), OutputKind.LOGITS, ("scanner",)))
NESTED = RecordFields(
    probs="prediction.scores",
    model="meta.model",
    time="meta.created",
    id="meta.ids.study",
    version="meta\\.version",
    segments={"site": "meta.place.site"},
)


def _lines(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_only_the_vector_is_required() -> None:
    """Everything else may be absent or null."""
    for record in ({"probs": GOOD}, dict.fromkeys(RECORD) | {"probs": GOOD}):
        one = decode_text(_lines(record, record)).models["density"]
        assert (len(one), one.ids, one.versions) == (2, None, None)
        assert np.isnan(one.at).all()
        assert one.fields["site"].texts() == ["", ""]


def test_columns_are_in_line_order() -> None:
    """Texts and numbers may be mixed, and missing values are empty."""
    decoded = decode_text(
        _lines(
            {"probs": GOOD, "time": 5, "site": "A", "version": 2, "id": 7},
            {"probs": [0, 0, 1], "time": "1970-01-01T01:00:06+01:00", "site": 1.5, "version": "2"},
            {"probs": GOOD, "time": 7.5, "id": "7", "version": 2.5},
            {"probs": GOOD, "id": "", "site": 1},
        )
    )
    one = decoded.models["density"]
    assert one.at[:3].tolist() == [5, 6, 7.5]
    assert np.isnan(one.at[3])
    assert one.fields["site"].texts() == ["A", "1.5", "", "1"]
    assert one.versions is not None
    assert one.versions.texts() == ["2", "2", "2.5", ""]
    assert one.ids is not None
    assert one.ids.tolist() == [*hash_ids(["7"], KEY).tolist(), NO_ID, *hash_ids(["7"], KEY).tolist(), NO_ID]
    assert one.vectors.dtype == np.float32
    assert one.vectors.flags.c_contiguous


def test_values_of_rejected_records_are_not_in_the_columns() -> None:
    decoded = decode_text(_lines(RECORD, RECORD | {"site": "Jane Doe!", "version": "secret"}, RECORD))
    one = decoded.models["density"]
    assert (one.fields["site"].values, one.versions.values if one.versions else ()) == (("A",), ("2.1",))


@pytest.mark.parametrize("format_", [one for one in ALL_FORMATS if one is not Format.NPY])
def test_records_of_several_models_are_distinguished(format_: Format) -> None:
    """By name, each with its own classes, kind and segments; those without a name are rejected."""
    records = [
        {"model": "density", "probs": GOOD, "logits": [0.0], "site": "A", "scanner": "1"},
        {"model": "chest", "probs": [0.5], "logits": [3.0, 3.0], "site": "A", "scanner": "2"},
        {"model": "other", "probs": GOOD, "logits": [0.0], "site": "A", "scanner": "1"},
        {"model": "density", "probs": GOOD, "logits": [0.0], "site": "B", "scanner": "1"},
    ]
    if format_ is Format.NPZ:
        outputs = {"probs": np.array([GOOD] * 4), "logits": np.full((4, 2), 3.0)}
        others = {name: np.array([one[name] for one in records]) for name in ("model", "site", "scanner")}
        content = npz(**outputs, **others)
    else:
        content = write(records, format_)
    blocks = decode_file(content, format_, stream(*TWO))
    assert reasons_of(blocks) == {("", "unknown_model"): 1}
    assert vectors_of(blocks).tolist() == [np.array(GOOD, dtype=np.float32).tolist()] * 2
    assert vectors_of(blocks, "chest").tolist() == [[0.5, 0.5]]
    fields = {name: one.fields for name, one in blocks[0].models.items()}
    assert {name: list(one) for name, one in fields.items()} == {"density": ["site"], "chest": ["scanner"]}
    assert fields["density"]["site"].texts() == ["A", "B"]


def test_with_several_models_a_record_must_name_one() -> None:
    """Per line in text, and per file in columns."""
    assert reasons_of([decode_text(LINE, decoder=stream(*TWO))]) == {("", "missing_field"): 1}
    wrong = _lines({"model": "chest", "probs": GOOD}, {"model": "chest", "logits": GOOD})
    expected = {("chest", "missing_field"): 1, ("chest", "wrong_k"): 1}
    assert reasons_of([decode_text(wrong, decoder=stream(*TWO))]) == expected
    for format_, reason in (
        (Format.CSV, "bad_header"),
        (Format.NPY, "missing_field"),
        (Format.NPZ, "missing_field"),
        (Format.PARQUET, "missing_field"),
    ):
        assert rejection_reason(write([{"probs": GOOD}], format_), format_, stream(*TWO)) == reason


@pytest.mark.parametrize("format_", [Format.NPZ, Format.PARQUET, Format.CSV])
def test_a_file_may_lack_the_columns_of_one_model(format_: Format) -> None:
    """Records of other models are read."""
    records = [{"model": name, "probs": GOOD} for name in ("density", "chest")]
    blocks = decode_file(write(records, format_), format_, stream(*TWO))
    (rejected,) = reasons_of(blocks)
    assert rejected[1] == "missing_field"
    assert len(vectors_of(blocks)) == 1


def test_one_field_may_hold_the_vectors_of_one_model_and_the_scores_of_another() -> None:
    models = (MODEL, ModelFormat("chest", ("well", "ill"), OutputKind.SCORE))
    decoder = stream(*models, fields=RecordFields(probs="p"))
    pairs = [("density", GOOD), ("chest", 0.25), ("density", 0.25), ("chest", GOOD)]
    decoded = decode_text(_lines(*({"model": model, "p": one} for model, one in pairs)), decoder=decoder)
    assert reasons_of([decoded]) == {("density", "not_a_vector"): 1, ("chest", "wrong_type"): 1}
    assert vectors_of([decoded], "chest").tolist() == [[0.75, 0.25]]


NESTED_RECORD = {
    "prediction": {"scores": GOOD, "other": 1},
    "meta": {"model": "density", "created": 9, "ids": {"study": "s"}, "place": {"site": "A"}},
    "meta.version": "2",
}


def test_dotted_paths_name_nested_fields() -> None:
    """In JSON, and in struct columns of Parquet and Arrow; a dot in a name is escaped."""
    for format_ in (Format.JSONL, Format.PARQUET, Format.ARROW):
        (block,) = decode_file(write([NESTED_RECORD] * 2, format_), format_, stream(fields=NESTED))
        one = block.models["density"]
        assert one.at.tolist() == [9, 9]
        assert one.fields["site"].texts() == ["A", "A"]
        assert one.versions is not None
        assert one.versions.texts() == ["2", "2"]
        assert one.ids is not None
        assert one.ids.tolist() == hash_ids(["s", "s"], KEY).tolist()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"meta": None}, None, id="null"),
        pytest.param({"meta": {}}, None, id="empty"),
        pytest.param({"meta": {"ids": None, "place": None}}, None, id="null inside"),
        pytest.param({"meta": {"created": "x"}}, "bad_timestamp", id="no time"),
        pytest.param({"meta": {"created": []}}, "bad_timestamp", id="a list for a time"),
        pytest.param({"meta": {"place": {"site": {}}}}, "bad_segment", id="an object for a site"),
        pytest.param({"meta": {"ids": {"study": 1.5}}}, "wrong_type", id="a fraction for an id"),
        pytest.param({"meta": {"model": "x"}}, "unknown_model", id="another model"),
        pytest.param({"prediction": None}, "missing_field", id="no prediction"),
        pytest.param({"prediction": {"scores": None}}, "wrong_type", id="null vector"),
        pytest.param({"prediction": GOOD}, "missing_field", id="no object"),
    ],
)
def test_a_field_without_its_parent_is_absent(changes: dict[str, Any], reason: str | None) -> None:
    """Only an optional field may be."""
    decoded = decode_text(_lines(NESTED_RECORD, NESTED_RECORD | changes), decoder=stream(fields=NESTED))
    model = "" if reason == "unknown_model" else "density"
    assert reasons_of([decoded]) == ({} if reason is None else {(model, reason): 1})


def test_columns_of_csv_and_npz_are_named_by_the_whole_path() -> None:
    """They have no nesting, so a dot is part of the name."""
    fields = RecordFields(probs="prediction.scores", time="meta.time")
    for format_ in (Format.CSV, Format.NPZ):
        content = write([{"prediction.scores": GOOD, "meta.time": 5.0}], format_)
        (block,) = decode_file(content, format_, stream(fields=fields))
        assert block.models["density"].at.tolist() == [5]


@pytest.mark.parametrize("columns", [("p_*",), ("p_cat", "p_dog", "p_owl")], ids=["prefix", "names"])
@pytest.mark.parametrize("format_", [Format.JSONL, Format.CSV, Format.NPZ, Format.PARQUET])
def test_there_may_be_one_column_per_class(format_: Format, columns: tuple[str, ...]) -> None:
    """In any order; the names decide."""
    records = [{"p_owl": 0.1, "p_cat": 0.7, "id": "x", "p_dog": 0.2}] * 2
    decoder = stream(fields=RecordFields(class_columns=columns))
    blocks = decode_file(write(records, format_), format_, decoder)
    np.testing.assert_array_equal(vectors_of(blocks), [np.array(GOOD, dtype=np.float32)] * 2)


def test_missing_or_extra_class_columns_are_rejected() -> None:
    """A missing one in every format; an extra one in formats with a header."""
    decoder = stream(fields=RecordFields(class_columns=("p_*",)))
    short = [{"p_cat": 0.5, "p_dog": 0.5}]
    decoded = decode_text(_lines(*short, {"p_cat": 0.5, "p_dog": 0.5, "p_owl": "0"}), decoder=decoder)
    assert reasons_of([decoded]) == {("density", "missing_field"): 1, ("density", "wrong_type"): 1}
    for format_, reason in (
        (Format.CSV, "bad_header"),
        (Format.NPZ, "missing_field"),
        (Format.PARQUET, "missing_field"),
        (Format.NPY, "bad_header"),
    ):
        assert (
            rejection_reason(write([*short, *short], format_) if format_ is not Format.NPY else b"", format_, decoder)
            == reason
        )
    more = b"p_cat,p_dog,p_owl,p_emu\n0.7,0.2,0.1,0\n"
    assert rejection_reason(more, Format.CSV, decoder) == "unknown_class"


@pytest.mark.parametrize(
    ("time", "fields", "expected"),
    [
        pytest.param("2026-01-01T00:00:00", RecordFields(time_zone="Europe/Oslo"), 1767222000.0, id="zone in winter"),
        pytest.param("2026-07-01T02:00:00", RecordFields(time_zone="Europe/Oslo"), 1782864000.0, id="zone in summer"),
        pytest.param("2026-01-01T00:00:00Z", RecordFields(time_zone="Europe/Oslo"), 1767225600.0, id="its own zone"),
        pytest.param("2026-01-01 00:00:00.25+00:00", RecordFields(), 1767225600.25, id="a space"),
        pytest.param(1767225600250, RecordFields(time_unit=TimeUnit.MILLISECONDS), 1767225600.25, id="ms"),
        pytest.param(1767225600250000.0, RecordFields(time_unit=TimeUnit.MICROSECONDS), 1767225600.25, id="us"),
        pytest.param(
            "2026-01-01T00:00:00Z", RecordFields(time_unit=TimeUnit.NANOSECONDS), 1767225600.0, id="ISO all the same"
        ),
        pytest.param(0, RecordFields(), 0.0, id="zero"),
        pytest.param(1e11, RecordFields(), 1e11, id="the last"),
    ],
)
@pytest.mark.parametrize("format_", [Format.JSONL, Format.CSV, Format.PARQUET, Format.NPZ])
def test_times_are_read_as_declared(time: object, fields: RecordFields, expected: float, format_: Format) -> None:
    """A unit applies to numbers, a zone to texts without one."""
    (block,) = decode_file(write([RECORD | {"time": time}] * 2, format_), format_, stream(fields=fields))
    assert block.models["density"].at.tolist() == [expected] * 2


def test_parquet_timestamps_are_read() -> None:
    """With a zone they need no declaration; without one they need a zone, like texts."""
    moment = datetime(2026, 1, 1, 0, 0, 0, 250_000, UTC)
    for unit in ("ms", "us", "ns"):
        zoned = pa.array([moment, None], pa.timestamp(unit, "Europe/Oslo"))
        bare = pa.array([moment.replace(tzinfo=None), None], pa.timestamp(unit))
        for fields in (RecordFields(), RecordFields(time_unit=TimeUnit.MILLISECONDS)):
            (block,) = decode_file(table({"probs": [GOOD] * 2, "time": zoned}), Format.PARQUET, stream(fields=fields))
            assert block.models["density"].at[0] == pytest.approx(1767225600.25, abs=1e-6)
            assert np.isnan(block.models["density"].at[1])
        content = table({"probs": [GOOD] * 2, "time": bare})
        assert reasons_of(decode_file(content, Format.PARQUET)) == {("density", "bad_timestamp"): 2}
        (block,) = decode_file(content, Format.PARQUET, stream(fields=RecordFields(time_zone="UTC")))
        assert block.models["density"].at[0] == pytest.approx(1767225600.25, abs=1e-6)


def test_a_scalar_of_an_npz_file_applies_to_all_rows() -> None:
    """A batch job writes its model and version once."""
    content = npz(
        probs=np.array([GOOD] * 3), version="2.1", model="density", time=5, site=np.bytes_(b"A"), id=[1, 2, 3]
    )
    one = decode_file(content, Format.NPZ)[0].models["density"]
    assert one.at.tolist() == [5, 5, 5]
    assert one.fields["site"].texts() == ["A"] * 3
    assert one.ids is not None
    assert one.ids.tolist() == hash_ids(["1", "2", "3"], KEY).tolist()


@pytest.mark.parametrize("format_", ALL_FORMATS)
def test_committed_rows_are_skipped(format_: Format) -> None:
    """Rows of arrays, physical lines of text; the others keep their numbers."""
    vectors = np.random.default_rng(1).dirichlet(np.ones(3), 9_000)
    vectors[-1] = 5.0
    content = write([{"probs": one.tolist()} for one in vectors], format_)
    is_csv = format_ in {Format.CSV, Format.CSV_GZ}
    lines = 9_000 + is_csv
    for skip in (0, 1, 2, 8_999, 9_000, 9_001, 20_000):
        blocks = decode_file(content, format_, skip=skip)
        assert sum(block.rows for block in blocks) == max(0, lines - skip)
        numbers = [pointer.number for block in blocks for pointer in block.pointers]
        assert numbers == ([lines] if skip < lines else [])
        if skip == 2:
            np.testing.assert_allclose(vectors_of(blocks), vectors[2 - is_csv : -1], atol=1e-6)


@pytest.mark.parametrize("format_", ALL_FORMATS)
def test_blocks_have_a_bounded_size(format_: Format) -> None:
    """At most 8,192 rows, or a mebibyte of text; an empty file has none."""
    content = write([{"probs": GOOD}] * 30_000, format_)
    blocks = decode_file(content, format_)
    assert sum(block.accepted for block in blocks) == 30_000
    text = format_ in {Format.JSONL, Format.CSV, Format.JSONL_GZ, Format.CSV_GZ}
    assert max(block.rows for block in blocks) <= (2**20 / 18 if text else 8_192)
    assert decode_file(gzip.compress(b""), Format.JSONL_GZ) == []


def test_long_lines_of_compressed_text_are_skipped_in_little_memory() -> None:
    """Each is counted once, and later lines keep their numbers."""
    long = b"[" + b"0," * MAX_LINE_BYTES
    content = gzip.compress(LINE + long * 2 + b"\noops\n" + LINE + long)
    blocks = decode_file(content, Format.JSONL_GZ)
    assert reasons_of(blocks) == {("", "line_too_long"): 2, ("", "bad_json"): 1}
    pointers = [pointer for block in blocks for pointer in block.pointers]
    assert [(pointer.number, pointer.reason) for pointer in pointers] == [
        (2, Reason.LINE_TOO_LONG),
        (3, Reason.BAD_JSON),
        (5, Reason.LINE_TOO_LONG),
    ]
    assert sum(block.accepted for block in blocks) == 2


def test_a_text_may_be_split_between_any_lines() -> None:
    """With the same vectors, rejections, offsets and numbers."""
    random = np.random.default_rng(3)
    lines = [LINE if random.random() < 0.8 else b"oops\n" for _ in range(200)]
    whole = decode_text(b"".join(lines))
    blocks, offset, number = [], 0, 1
    non_json_lines: int | None = 0
    while lines:
        count = int(random.integers(1, 30))
        data = b"".join(lines[:count])
        block = decode_text(data, offset=offset, line=number, non_json_lines=non_json_lines)
        offset, number, non_json_lines = offset + len(data), number + len(lines[:count]), block.non_json_lines
        blocks.append(block)
        lines = lines[count:]
    assert reasons_of(blocks) == reasons_of([whole])
    assert tuple(pointer for block in blocks for pointer in block.pointers) == whole.pointers
    np.testing.assert_array_equal(vectors_of(blocks), vectors_of([whole]))


def test_a_file_without_objects_is_rejected_after_a_hundred_lines() -> None:
    """In any blocks. Blank lines do not count, and one object is enough."""
    non_json_lines: int | None = 0
    for expected in (40, 80):
        decoded = decode_text(b"[\n" * 40 + b"\n", non_json_lines=non_json_lines)
        non_json_lines = decoded.non_json_lines
        assert non_json_lines == expected
    with pytest.raises(RejectedFile, match=r"expected one JSON object per line, found none .* \(not_jsonl\)"):
        decode_text(b"[\n" * 40, non_json_lines=non_json_lines)
    assert decode_text(b"[\n" * 19, non_json_lines=non_json_lines).non_json_lines == 99
    for proof in (LINE, b"{}\n", b'{"probs": NaN}\n', b'{"model": 3}\n'):
        decoded = decode_text(b"[\n" * 99 + proof + b"[\n" * 200)
        assert (decoded.non_json_lines, decoded.rejected.total()) == (None, 299 + (proof != LINE))
    assert decode_text(LINE).non_json_lines is None
    assert decode_text(b"[\n" * 500, non_json_lines=None).non_json_lines is None
    assert decode_text(b"").non_json_lines == 0


def test_later_blocks_use_the_header_of_the_file() -> None:
    row = b'A,"[0.7, 0.2, 0.1]"\n'
    decoded = decode_text(row * 3, Format.CSV, head=b"\n site ,probs\r\nmore", offset=500, line=90)
    assert (decoded.accepted, decoded.ignored) == (3, 0)
    assert decoded.models["density"].fields["site"].texts() == ["A"] * 3
    with pytest.raises(RejectedFile, match="set class_columns"):
        decode_text(b"1,0,0\n", Format.CSV, head=b"prob_cat,prob_dog,prob_owl\n", offset=500)


def test_a_pointer_has_location_and_shape() -> None:
    """Offset, length, keyed hash, types and lengths of the configured fields; the line itself only if configured."""
    bad = json.dumps({"time": "x", "site": None, "model": "density", "id": 5, "other": "y", "probs": [1.5, 2]}).encode()
    data = LINE + bad + b"\n" + b"{" * 5000 + b"\n"
    decoded = decode_text(data, offset=1_000, line=10)
    first, second = decoded.pointers
    assert (first.reason, first.number, first.offset, first.length) == (Reason.WRONG_K, 11, 1_000 + len(LINE), len(bad))
    assert first.digest == blake2b(bad, digest_size=8, key=KEY).hexdigest()
    assert first.shape == "probs: list[2], model: str[7], id: int, time: str[1], site: null"
    assert (first.raw, second.raw, second.shape) == (None, None, None)
    raw = decode_text(data, decoder=stream(keep_raw=True)).pointers
    assert (raw[0].raw, raw[1].raw) == (bad, b"{" * 4096)
    nested = decode_text(_lines({"prediction": {"scores": []}}), decoder=stream(fields=NESTED)).pointers[0]
    assert nested.shape == "prediction.scores: list[0]"


def test_of_many_rejected_lines_the_last_two_thousand_are_kept() -> None:
    """All are counted."""
    decoded = decode_text(LINE + b"oops\n" * 30_000 + b'{"probs": [2, 2, 2]}\n' * 100)
    assert reasons_of([decoded]) == {("", "bad_json"): 30_000, ("density", "above_one"): 100}
    assert (decoded.pointers[0].number, decoded.pointers[-1].number) == (28_102, 30_101)


def test_lines_that_form_records_only_together_are_rejected() -> None:
    """Two records on one line and one over two lines are as many records as lines; each line is checked."""
    two = b'{"probs": [1, 0, 0]} {"probs": [1, 0, 0]}\n'
    halves = b'{"probs": [1, 0, 0],\n"id": 1}\n'
    tricky = b'{"a": {}\n}\n{"probs": [1, 0, 0]}\n'
    for lines, accepted in ((two + halves, 0), (two + b"\n", 0), (tricky, 1), (two + tricky, 1)):
        decoded = decode_text(LINE * 5 + lines + LINE * 5)
        assert decoded.accepted == 10 + accepted
        assert decoded.rejected.total() + decoded.ignored == lines.count(b"\n") - accepted


def test_lines_shorter_and_longer_than_a_block_are_read() -> None:
    wide = b'{"x": "' + b"a" * (3 << 20) + b'", "probs": [0.7, 0.2, 0.1]}\n'
    data = LINE * 50_000 + wide + b"oops\n" + LINE * 10
    decoded = decode_text(data)
    assert (decoded.accepted, [pointer.number for pointer in decoded.pointers]) == (50_011, [50_002])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(
            {"probs": ""}, "fields.probs: expected the name of a field, or a dotted path, found ''", id="empty"
        ),
        pytest.param({"time": "a..b"}, "fields.time: expected .* found 'a..b'", id="two dots"),
        pytest.param({"id": ".a"}, "fields.id: expected .* found '.a'", id="leading dot"),
        pytest.param({"model": "a\\"}, "fields.model: expected", id="open escape"),
        pytest.param(
            {"class_columns": (".p_*",)}, "fields.class_columns: expected .* found '.p_", id="leading dot of a prefix"
        ),
        pytest.param({"segments": {"site": ""}}, "fields.segments.site: expected", id="segment"),
        pytest.param(
            {"probs": "p", "class_columns": ("a", "b", "c")},
            "either class columns or a vector field, found both",
            id="both",
        ),
        pytest.param({"class_columns": ("a",)}, "class columns: expected two names or more", id="one column"),
        pytest.param({"time_zone": "Mars/Olympus"}, "fields.time_zone: expected the name of a time zone", id="zone"),
        pytest.param({"time_zone": "../etc/passwd"}, "fields.time_zone: expected", id="zone outside"),
        pytest.param(
            {"time_unit": "hours"}, "fields.time_unit: expected one of seconds, ms, us, ns, found 'hours'", id="unit"
        ),
        pytest.param({"class_columns": ("a", "b")}, "fields.class_columns: expected 3 for model density", id="too few"),
        pytest.param({"segments": {"ward": "w"}}, "fields.segments: expected segment fields", id="no such segment"),
        pytest.param({"time": "probs"}, "fields: expected a field other than that of the outputs", id="same field"),
        pytest.param(
            {"time": "probs.time"},
            "fields: expected fields that do not contain each other, found probs and probs.time",
            id="inside",
        ),
    ],
)
def test_invalid_fields_are_rejected(words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stream(fields=RecordFields(**words))


@pytest.mark.parametrize(
    ("models", "message"),
    [
        pytest.param([], "models: expected one or more, each name once, found none", id="none"),
        pytest.param([MODEL, MODEL], "each name once, found density, density", id="twice"),
    ],
)
def test_invalid_sets_of_models_are_rejected(models: list[ModelFormat], message: str) -> None:
    """Models are distinguished by name."""
    with pytest.raises(UsageError, match=message):
        stream(*models) if models else type(stream())([], hash_key=KEY)


@pytest.mark.parametrize(
    "words",
    [
        {"name": ""},
        {"classes": ("a",)},
        {"segment_fields": ("a", "a")},
        {"segment_fields": ("",)},
        {"kind": OutputKind.SCORE},
    ],
)
def test_an_invalid_model_is_rejected(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ModelFormat(**({"name": "density", "classes": CLASSES} | words))


@pytest.mark.parametrize("format_", [one for one in Format if one is not Format.NPY])
@pytest.mark.parametrize("many", [1, 40])
def test_groups_are_hashed_like_ids(format_: Format, many: int) -> None:
    """In every format, one at a time and many at once; a segment may be the group too."""
    exams, key = ["e1", "", "e2", "e1"], "site" if many > 1 else "exam"
    content = write([RECORD | {key: exam} for exam in exams * many], format_)
    blocks = decode_file(content, format_, stream(replace(MODEL, group_by=key)))
    first, second = hash_ids(["e1", "e2"], KEY).tolist()
    groups = [one for block in blocks for one in _groups(block)]
    assert groups == [first, 0, second, first] * many


def _groups(batch: RecordBatch) -> list[int]:
    groups = batch.models["density"].groups
    assert groups is not None
    return [int(one) for one in groups]


def test_a_group_may_be_nested_missing_or_a_number_but_not_a_fraction() -> None:
    decoder = stream(replace(MODEL, group_by="exam"), fields=RecordFields(segments={"exam": "meta.study"}))
    found = [{"study": "e1"}, {"study": 7}, {"study": None}, {}, None, {"study": 1.5}, {"study": ["e1"]}]
    lines = b"".join(json.dumps(RECORD | {"meta": one}).encode() + b"\n" for one in found)
    decoded = decode_text(lines, decoder=decoder)
    assert _groups(decoded) == [*hash_ids(["e1", "7"], KEY).tolist(), 0, 0, 0]
    assert reasons_of([decoded]) == {("density", "wrong_type"): 2}
    assert decode_text(LINE).models["density"].groups is None


def test_segments_may_share_a_field_with_others() -> None:
    """A model may be split by its version or id."""
    model = ModelFormat("density", CLASSES, segment_fields=("version", "time"))
    decoded = decode_text(_lines(RECORD, RECORD | {"time": 5, "version": 3}), decoder=stream(model))
    fields = decoded.models["density"].fields
    assert fields["version"].texts() == ["2.1", "3"]
    assert fields["time"].texts() == ["1760000000.5", "5"]


def test_a_complete_file_decodes_like_a_tailed_one() -> None:
    decoder = stream()
    by_piece = decoder.text(TextPiece("file#1", Format.JSONL, LINE * 10))
    (whole,) = decode_file(LINE * 10, Format.JSONL)
    np.testing.assert_array_equal(vectors_of([whole]), vectors_of([by_piece]))
