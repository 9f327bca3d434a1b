"""No result or exception of the stream decoder quotes a record: a record may name a patient."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monitor.errors import CpcmonError
from monitor.records.decoder import RecordDecoder
from monitor.records.record_batch import TAILED, Format, RecordBatch, TextPiece
from monitor.records.record_schema import RecordFields
from tests.records.streams import GOOD, MODEL, RECORD, decode_file, npy, npz, stream, table, write

CANARY = "ZZPATIENT"
VALUES: list[Any] = [
    CANARY,
    [CANARY],
    {CANARY: 1},
    {"a": CANARY},
    f"{CANARY} \ud800",
    f"{CANARY}\n",
    f"{CANARY}!",
    [0.5, CANARY],
    [[CANARY]],
    {"cat": CANARY, "dog": 1, "owl": 0},
    f"2026-01-01 {CANARY}",
]
BROKEN = [
    f"{CANARY}",
    f"{CANARY},0.5",
    f"{{{CANARY}: 1}}",
    f'{{"probs": [0.7, 0.2, 0.1], "x": {CANARY}}}',
    f'{{"probs": [0.7, 0.2, 0.1], "x": "{CANARY}',
    f'{{"probs": [0.7, 0.2, 0.1]}} {CANARY}',
    f'{{"probs": [0.7, 0.2, 0.1], "x": "{CANARY}\0"}}',
    f'{{"probs": [0.7, 0.2, 0.1], "x": "{CANARY}\t"}}',
    "[" * 5_000 + CANARY,
    f'"{CANARY}',
    f'"{CANARY}"x',
]
CSV_HEADERS = [
    f"{CANARY}",
    f"{CANARY},probs,probs",
    f"prob_{CANARY},prob_cat",
    f"{CANARY};probs",
    f'"{CANARY}',
    f"probs\0{CANARY}",
]


def _everything(decoded: RecordBatch) -> str:
    """Return all text of a batch: its repr, and the values of its columns."""
    assert all(pointer.expected for pointer in decoded.pointers)
    words = [repr(decoded)]
    for one in decoded.models.values():
        columns = [*one.fields.values(), *([one.versions] if one.versions else [])]
        words += [repr(column.values) for column in columns]
    return "\n".join(words)


def _chain(error: BaseException | None) -> str:
    # A logged traceback includes the causes.
    return "" if error is None else f"{error}\n{error!r}\n{_chain(error.__cause__)}{_chain(error.__context__)}"


def _output(decoder: RecordDecoder, content: bytes, format_: Format) -> str:
    try:
        if format_ in TAILED:
            return _everything(decoder.text(TextPiece("file#1", format_, content)))
        return "\n".join(map(_everything, decode_file(content, format_, decoder)))
    except CpcmonError as error:
        return _chain(error)


GROUPED = replace(MODEL, group_by="exam")


@pytest.mark.parametrize("name", ["model", "id", "time", "site", "probs", "exam", "other", "top", CANARY])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_no_field_value_is_quoted(name: str, value: Any) -> None:
    """Accepted or rejected; alone, among others, and often enough for hints. Valid segments are kept."""
    if name == "site" and isinstance(value, str):
        value += "?"
    line = json.dumps(RECORD | {name: value}).encode() + b"\n"
    for lines in (line, json.dumps(RECORD).encode() + b"\n" + line, line * 150):
        assert CANARY not in _output(stream(GROUPED, fields=RecordFields(predicted="top")), lines, Format.JSONL)
        assert CANARY.encode() in lines


def test_the_version_of_a_rejected_record_is_not_kept() -> None:
    line = json.dumps(RECORD | {"version": CANARY, "probs": [2, 2, 2]}).encode() + b"\n"
    for lines in (line, json.dumps(RECORD).encode() + b"\n" + line):
        assert CANARY not in _output(stream(), lines, Format.JSONL)


@pytest.mark.parametrize("line", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_line_is_not_quoted(line: str) -> None:
    """In JSON Lines and CSV; alone, and often enough for the file to fail."""
    for times in (1, 150):
        lines = f"{line}\n".encode() * times
        assert CANARY not in _output(stream(), lines, Format.JSONL)
        assert CANARY not in _output(stream(), b"probs,id\n" + lines, Format.CSV)
        assert CANARY not in _output(stream(), b"probs\n" + lines, Format.CSV)


@pytest.mark.parametrize("header", CSV_HEADERS, ids=range(len(CSV_HEADERS)))
def test_a_first_line_that_is_no_header_is_not_quoted_by_the_stream(header: str) -> None:
    """Without a header, the first line may name a patient."""
    for fields in (RecordFields(), RecordFields(class_columns=("prob_*",))):
        assert CANARY not in _output(stream(fields=fields), header.encode() + b"\n1,2\n", Format.CSV)


ROWS = np.array([GOOD, GOOD])


@pytest.mark.parametrize(
    ("content", "format_"),
    [
        pytest.param(write([RECORD | {"id": CANARY}], Format.NPZ), Format.NPZ, id="npz id"),
        pytest.param(write([RECORD | {"exam": CANARY}], Format.NPZ), Format.NPZ, id="npz exam"),
        pytest.param(write([RECORD | {"exam": CANARY}], Format.CSV), Format.CSV, id="csv exam"),
        pytest.param(write([RECORD | {"exam": CANARY}], Format.PARQUET), Format.PARQUET, id="parquet exam"),
        pytest.param(write([RECORD | {"exam": {CANARY: 1}}], Format.PARQUET), Format.PARQUET, id="parquet exams"),
        pytest.param(write([RECORD | {"site": f"{CANARY}!"}], Format.NPZ), Format.NPZ, id="npz site"),
        pytest.param(write([RECORD | {"model": CANARY}], Format.NPZ), Format.NPZ, id="npz model"),
        pytest.param(npz(**{CANARY: ROWS}), Format.NPZ, id="npz array"),
        pytest.param(npz(probs=ROWS, classes=np.array(["cat", "dog", CANARY])), Format.NPZ, id="npz classes"),
        pytest.param(npz(probs=np.zeros(2, dtype=[(CANARY, "f8")])), Format.NPZ, id="npz type"),
        pytest.param(npz(**{CANARY: ROWS}).replace(b"\x93NUMPY", b"\x93NUMPI"), Format.NPZ, id="npz damaged"),
        pytest.param(npy(np.zeros(2, dtype=[(CANARY, "f8")])), Format.NPY, id="npy type"),
        pytest.param(npy(ROWS).replace(b"'descr'", CANARY.encode()[:7]), Format.NPY, id="npy header"),
        pytest.param(npy(ROWS).replace(b"False, ", b"ZZPATIENT"[:7]), Format.NPY, id="npy header value"),
        pytest.param(write([RECORD | {"id": CANARY}], Format.PARQUET), Format.PARQUET, id="parquet id"),
        pytest.param(write([RECORD | {"time": CANARY}], Format.PARQUET), Format.PARQUET, id="parquet time"),
        pytest.param(write([RECORD | {"model": CANARY}], Format.PARQUET), Format.PARQUET, id="parquet model"),
        pytest.param(write([RECORD | {"site": {CANARY: 1}}], Format.PARQUET), Format.PARQUET, id="parquet struct"),
        pytest.param(table({CANARY: [1]}), Format.PARQUET, id="parquet column"),
        pytest.param(table({"probs": [{CANARY: 1.0}]}), Format.PARQUET, id="parquet classes"),
        pytest.param(
            table({"probs": [GOOD], CANARY: ["x"]}).replace(CANARY.encode(), b"ZZPATI\xffNT"), Format.PARQUET, id="name"
        ),
        pytest.param(table({"probs": pa.array([GOOD]), CANARY: [1]}, Format.ARROW)[:-20], Format.ARROW, id="arrow cut"),
    ],
)
def test_columns_and_their_names_are_not_quoted(content: bytes, format_: Format) -> None:
    """Column names of a file may have content; those of the configuration are shown."""
    assert CANARY[:6] not in _output(stream(GROUPED), content, format_)


def test_the_time_zone_of_a_parquet_column_is_not_shown() -> None:
    """It may be any text."""
    zoned = pa.array([0], pa.timestamp("us", tz=CANARY))
    with pytest.raises(CpcmonError) as rejected:
        decode_file(table({"probs": [GOOD], "site": zoned}), Format.PARQUET)
    assert "found timestamp (bad_segment)" in str(rejected.value)
