"""Group C of the design's scenarios, as far as they are the decoder's: each malformed kind, bombs, damage, hints.

C1 has a case for each row of the design's table of 61 malformed kinds, named `row 17 jsonl`. Rows that other layers
answer are tested there: 31 (no newline yet) and the reading half of 35 with the directory source, 50 (segment flood) with
the windows of segments, 53 (future) and 54 (late) with the windows, 58 (repeated ids) with the state, 61 with Kafka. Row 47
is about labels, which a stream has none of: tests/records/test_malformed.py. C4 is the directory source's, C12 to C15 and C17
the pipeline's.
"""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.records.offline import offline_schema
from monitor.records.record_batch import Format
from monitor.records.record_schema import ModelFormat, OutputKind, RecordFields, TimeUnit
from monitor.records.rejections import RejectedFile
from tests.effort import calls_of
from tests.records.streams import (
    ALL_FORMATS,
    CLASSES,
    GOOD,
    LINE,
    MODEL,
    RECORD,
    decode_file,
    decode_offline,
    decode_text,
    explained,
    npy,
    npz,
    reasons_of,
    rejection_reason,
    stream,
    table,
    vectors_of,
    write,
)

GOOD_SINGLES = np.array(GOOD, dtype=np.float32)
FORMATS = (Format.JSONL, Format.CSV, Format.NPZ, Format.PARQUET)
RAGGED = (Format.JSONL, Format.CSV, Format.PARQUET)
TEXTS = (Format.JSONL, Format.CSV)

# The change of each row to a good record, the result, and the formats that can express it.
RECORDS: list[tuple[str, dict[str, Any], str | None, tuple[Format, ...]]] = [
    ("1", {"probs": [float("nan"), 0.5, 0.5]}, "not_finite", FORMATS),
    ("2", {"probs": [float("inf"), 0.0, 0.0]}, "not_finite", FORMATS),
    ("2 minus", {"probs": [float("-inf"), 0.5, 0.5]}, "not_finite", FORMATS),
    ("3", {"probs": [-0.1, 0.6, 0.5]}, "negative", FORMATS),
    ("3 by rounding", {"probs": [-1e-7, 0.5, 0.5]}, None, FORMATS),
    ("4", {"probs": [1.01, 0.0, 0.0]}, "above_one", FORMATS),
    ("4 by rounding", {"probs": [1.0000001, 0.0, 0.0]}, None, FORMATS),
    ("5", {"probs": [0.333, 0.333, 0.333]}, None, FORMATS),
    ("6", {"probs": [0.7, 0.5, 0.5]}, "bad_sum", FORMATS),
    ("7", {"probs": [0.0, 0.0, 0.0]}, "bad_sum", FORMATS),
    ("8", {"probs": [0.5, 0.5]}, "wrong_k", RAGGED),
    ("8 longer", {"probs": [0.25, 0.25, 0.25, 0.25]}, "wrong_k", RAGGED),
    ("8 absurd", {"probs": [0.0] * 20_001}, "out_of_range", RAGGED),
    ("9", {"probs": [-3.2, 5.0, 1.0]}, "negative", FORMATS),
    ("10", {"probs": [70.0, 20.0, 10.0]}, "above_one", FORMATS),
    ("11", {"probs": [-0.3, -2.0, -3.0]}, "negative", FORMATS),
    ("12", {"probs": 0.9}, "not_a_vector", TEXTS),
    ("13", {"probs": [1.0, 0.0, 0.0]}, None, FORMATS),
    ("14", {"probs": [1 / 3] * 3}, None, FORMATS),
    ("15", {"probs": []}, "empty", RAGGED),
    ("16", {"probs": [[0.7, 0.2, 0.1]]}, "not_a_vector", TEXTS),
    ("17", {"probs": ["0.9", 0.1, 0.0]}, "wrong_type", TEXTS),
    ("17 decimal comma", {"probs": ["0,9", 0.1, 0.0]}, "wrong_type", TEXTS),
    ("18", {"probs": [True, 0.0, 0.0]}, "wrong_type", TEXTS),
    ("19", {"probs": [0.9, None, 0.1]}, "wrong_type", RAGGED),
    ("19 all of it", {"probs": None}, "wrong_type", RAGGED),
    ("21", {"probs": {"owl": 0.1, "cat": 0.7, "dog": 0.2}}, None, TEXTS),
    ("21 unknown", {"probs": {"emu": 0.1, "cat": 0.7, "dog": 0.2}}, "unknown_class", TEXTS),
    ("21 missing", {"probs": {"cat": 0.7, "dog": 0.3}}, "unknown_class", TEXTS),
    ("21 nothing", {"probs": {}}, "unknown_class", TEXTS),
    ("22", {"probs": [1e20, 0.0, 0.0]}, "out_of_range", FORMATS),
    ("22 in digits", {"probs": [10**20, 0, 0]}, "out_of_range", TEXTS),
    ("22 5,000 digits", {"probs": [0.5, 0.5, "DIGITS"]}, "out_of_range", TEXTS),
    ("23", {"probs": [-0.0, 5e-324, 1.0]}, None, FORMATS),
    ("49", {"model": "other"}, "unknown_model", FORMATS),
    ("51", {"site": "x" * 65}, "bad_segment", FORMATS),
    ("51 as long as may be", {"site": "x" * 64}, None, FORMATS),
    ("51 quotes", {"site": 'a"b'}, "bad_segment", FORMATS),
    ("51 backslash", {"site": "a\\b"}, "bad_segment", FORMATS),
    ("51 newline", {"site": "a\nb"}, "bad_segment", (Format.JSONL, Format.NPZ, Format.PARQUET)),
    ("51 newline at the end", {"site": "ab\n"}, "bad_segment", (Format.JSONL, Format.NPZ, Format.PARQUET)),
    ("51 other letters", {"site": "Tromsø"}, "bad_segment", FORMATS),
    ("51 10 kB", {"site": "x" * 10_000}, "bad_segment", RAGGED),
    ("51 allowed signs", {"site": "a_B.9:/ -"}, None, FORMATS),
    ("52", {"time": 1760000000500.0}, "bad_timestamp", FORMATS),
    ("52 microseconds", {"time": 1760000000500000.0}, "bad_timestamp", FORMATS),
    ("55 text", {"time": "yesterday"}, "bad_timestamp", TEXTS),
    ("55 NaN", {"time": float("nan")}, "bad_timestamp", FORMATS),
    ("55 infinite", {"time": float("inf")}, "bad_timestamp", FORMATS),
    ("55 negative", {"time": -1.0}, "bad_timestamp", FORMATS),
    ("55 boolean", {"time": True}, "bad_timestamp", TEXTS),
    ("55 list", {"time": [1760000000]}, "bad_timestamp", TEXTS),
    ("55 object", {"time": {"s": 1760000000}}, "bad_timestamp", TEXTS),
    ("55 huge", {"time": 10**400}, "bad_timestamp", TEXTS),
    ("56", {"time": "2025-10-09T10:53:20+02:00"}, None, TEXTS),
    ("56 Z", {"time": "2025-10-09T08:53:20.500Z"}, None, TEXTS),
    ("56 without a zone", {"time": "2025-10-09T08:53:20"}, "bad_timestamp", TEXTS),
    ("56 no such day", {"time": "2025-02-30T08:53:20Z"}, "bad_timestamp", TEXTS),
    ("56 before 1970", {"time": "1969-10-09T08:53:20Z"}, "bad_timestamp", TEXTS),
    ("57", {"time": None}, None, (Format.JSONL, Format.CSV, Format.PARQUET)),
    ("59", {"id": "Doe, Jane 1961-02-03"}, None, FORMATS),
    ("60", {"extra": "anything \u00e9"}, None, FORMATS),
    # The kinds of rows 16 to 22 in the other fields.
    ("16 id", {"id": ["a"]}, "wrong_type", (Format.JSONL,)),
    ("18 id", {"id": True}, "wrong_type", (Format.JSONL,)),
    ("22 id", {"id": 10**100}, "wrong_type", (Format.JSONL,)),
    ("22 id that fits", {"id": 10**38}, None, TEXTS),
    ("id fraction", {"id": 1.5}, "wrong_type", (Format.JSONL,)),
    ("19 id", {"id": None}, None, (Format.JSONL, Format.CSV, Format.PARQUET)),
    ("empty id", {"id": ""}, None, FORMATS),
    ("16 model", {"model": ["density"]}, "unknown_model", TEXTS),
    ("18 model", {"model": True}, "unknown_model", TEXTS),
    ("19 model", {"model": None}, None, (Format.JSONL, Format.CSV, Format.PARQUET)),
    ("model number", {"model": 7}, "unknown_model", TEXTS),
    ("16 site", {"site": ["A"]}, "bad_segment", TEXTS),
    ("18 site", {"site": True}, "bad_segment", (Format.JSONL,)),
    ("19 site", {"site": None}, None, (Format.JSONL, Format.CSV, Format.PARQUET)),
    ("22 site", {"site": 10**100}, "bad_segment", TEXTS),
    ("site number", {"site": 7}, None, TEXTS),
    ("16 version", {"version": ["2.1"]}, "wrong_type", (Format.JSONL,)),
    ("18 version", {"version": True}, "wrong_type", (Format.JSONL,)),
    ("19 version", {"version": None}, None, (Format.JSONL, Format.CSV, Format.PARQUET)),
    ("version number", {"version": 2.1}, None, TEXTS),
]


@pytest.mark.parametrize(
    ("changes", "reason", "format_"),
    [
        pytest.param(changes, reason, format_, id=f"row {row} {format_}")
        for row, changes, reason, formats in RECORDS
        for format_ in formats
    ],
)
def test_c1_a_record_is_accepted_or_rejected_for_its_reason(
    changes: dict[str, Any], reason: str | None, format_: Format
) -> None:
    """In every format, in a stream and offline, without an effect on other records."""
    good = RECORD | {"extra": "x"}
    records = [good, good | changes, good]
    content = write(records, format_).replace(b'""DIGITS""', b"9" * 5_000).replace(b'"DIGITS"', b"9" * 5_000)
    blocks = decode_file(content, format_)
    model = "" if reason == "unknown_model" else "density"
    assert reasons_of(blocks) == ({} if reason is None else {(model, reason): 1})
    vectors = vectors_of(blocks)
    assert len(vectors) == (2 if reason else 3)
    np.testing.assert_array_equal(vectors[[0, -1]], [GOOD_SINGLES, GOOD_SINGLES])
    place = 3 if format_ is Format.CSV else 2
    assert [pointer.number for block in blocks for pointer in block.pointers] == ([] if reason is None else [place])
    # The offline commands read no other field.
    if "probs" in changes or reason is None:
        offline = decode_offline(content, format_)
        assert explained(offline) == ([] if reason is None else [(place, reason)])
        np.testing.assert_array_equal(vectors_of(offline, "model"), vectors)


LINES = [
    ("2 1e999", b'{"probs": [1e999, 0, 0]}', "density", "not_finite"),
    ("17 all of it", b'{"probs": "[0.7, 0.2, 0.1]"}', "density", "wrong_type"),
    ("20", b'{"p": [0.7, 0.2, 0.1]}', "density", "missing_field"),
    ("20 nothing", b"{}", "density", "missing_field"),
    ("25", b'{"probs": [1, 0, 0], "name": "\xff"}', "", "bad_encoding"),
    ("25 in a name", b'{"probs": [1, 0, 0], "\xff": 1}', "", "bad_encoding"),
    ("25 overlong", b'{"probs": [1, 0, 0], "name": "\xc0\xaf"}', "", "bad_encoding"),
    ("25 surrogate", b'{"probs": [1, 0, 0], "name": "\\ud800"}', "", "bad_encoding"),
    ("25 surrogate in an id", b'{"probs": [1, 0, 0], "id": "\\ud800 and more text"}', "", "bad_encoding"),
    ("30", b'{"probs": [0.7, 0.2', "", "bad_json"),
    ("30 half a number", b'{"probs": [0.7, 0.2, 0.', "", "bad_json"),
    ("32", b'{"probs": [1, 0, 0]} {"probs": [1, 0, 0]}', "", "bad_json"),
    ("32 without a space", b'{"probs": [1, 0, 0]}{"probs": [1, 0, 0]}', "", "bad_json"),
    ("33 an array", b'[{"probs": [1, 0, 0]}]', "", "wrong_type"),
    ("33 a number", b"17", "", "wrong_type"),
    ("34", b"\0\0\0\0\0\0", "", "nul_bytes"),
    ("34 behind a record", b'{"probs": [1, 0, 0]}\0\0', "", "nul_bytes"),
    ("36", b"[" * 100_000, "", "too_deep"),
    ("36 skipped", b'{"probs": [1, 0, 0], "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "", "too_deep"),
    ("NaN elsewhere", b'{"probs": [1, 0, 0], "a": NaN}', "density", "bad_json"),
    ("1e999 elsewhere", b'{"probs": [1, 0, 0], "time": 1e999}', "density", "bad_timestamp"),
    ("a tab in a text", b'{"probs": [1, 0, 0], "a": "\t"}', "", "bad_json"),
    ("22 id of 5,000 digits", b'{"probs": [1, 0, 0], "id": ' + b"9" * 5_000 + b"}", "density", "out_of_range"),
    ("22 site of 5,000 digits", b'{"probs": [1, 0, 0], "site": ' + b"9" * 5_000 + b"}", "density", "bad_segment"),
]


@pytest.mark.parametrize(
    ("line", "model", "reason"), [pytest.param(*row[1:], id=f"row {row[0]} jsonl") for row in LINES]
)
@pytest.mark.parametrize("around", [LINE, b"\r\n" + LINE, b'{"probs": [0.7, 0.2, 0.1], "x": "\xc3\xa9"}\n'])
def test_c1_a_bad_line_affects_no_other_line(line: bytes, model: str, reason: str, around: bytes) -> None:
    """Also between lines that cannot be decoded together."""
    decoded = decode_text(around * 3 + line + b"\n" + around * 3)
    assert reasons_of([decoded]) == {(model, reason): 1}
    np.testing.assert_array_equal(vectors_of([decoded]), [GOOD_SINGLES] * 6)
    (pointer,) = decoded.pointers
    assert (pointer.offset, pointer.length) == (3 * len(around), len(line))
    assert pointer.number == 3 * around.count(b"\n") + 1
    if not any(field in line for field in (b'"id"', b'"site"', b'"time"')):
        offline = decode_offline(around * 3 + line + b"\n" + around * 3, Format.JSONL)
        assert explained(offline) == [(pointer.number, reason)]
        np.testing.assert_array_equal(vectors_of(offline, "model"), [GOOD_SINGLES] * 6)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"probs": [0, 0, 1], "probs": [0.7, 0.2, 0.1]}\n', id="row 24"),
        pytest.param(LINE[:-1] + b"\r\n", id="row 28"),
        pytest.param(b"\n  \t\n" + LINE + b"\n\r\n", id="row 29"),
        pytest.param(b"  " + LINE[:-1] + b" \t\n", id="spaces"),
        pytest.param(b'{"probs": [0.7, 0.2, 0.1], "a": {"deep": [1e999]}, "n": "\xc3\xa9"}\n', id="row 60"),
        pytest.param(b'{"a": {}, "probs": [0.7, 0.2, 0.1]}\n', id="row 60 an object"),
        pytest.param(LINE[:-1], id="no newline"),
    ],
)
def test_c1_an_unusual_but_valid_line_is_accepted(line: bytes) -> None:
    """Line ends, blank lines, repeated keys and extra fields."""
    decoded = decode_text(line)
    assert (decoded.accepted, decoded.ignored) == (1, line.count(b"\n") - 1 if line.endswith(b"\n") else 0)
    np.testing.assert_array_equal(vectors_of([decoded]), [GOOD_SINGLES])
    np.testing.assert_array_equal(vectors_of(decode_offline(line, Format.JSONL), "model"), [GOOD_SINGLES])


CSV_ROWS = [
    ("20", ",A,1\n", "density", "wrong_type"),
    ("25", '"[1, 0, 0]",\udcff,1\n', "", "bad_encoding"),
    ("30 as numpy prints", "[0.7 0.2 0.1],A,1\n", "density", "bad_json"),
    ("34", '"[1, 0, 0]",\0,1\n', "", "nul_bytes"),
    ("36", f'"{"[" * 100_000}",A,1\n', "density", "too_deep"),
    ("44 ragged", '"[1, 0, 0]",A\n', "", "bad_csv"),
    ("44 one too many", '"[1, 0, 0]",A,1,1\n', "", "bad_csv"),
    ("44 open quote", '"[1, 0, 0],A,1\n', "", "bad_csv"),
    ("44 text behind a quote", '"[1, 0, 0]"x,A,1\n', "", "bad_csv"),
    ("44 carriage return", '"[1, 0, 0]",A\rB,1\n', "", "bad_csv"),
    ("44 decimal comma in a time", '"[1, 0, 0]",A,"1,5"\n', "density", "bad_timestamp"),
]


@pytest.mark.parametrize(
    ("line", "model", "reason"), [pytest.param(*row[1:], id=f"row {row[0]} csv") for row in CSV_ROWS]
)
def test_c1_a_bad_csv_row_affects_no_other_row(line: str, model: str, reason: str) -> None:
    """An unclosed quote ends with its line, also offline, where rows may have several lines."""
    good = '"[0.7, 0.2, 0.1]",A,1\n'
    text = f"probs,site,time\n{good * 3}{line}{good * 3}".encode("utf-8", "surrogateescape")
    decoded = decode_text(text, Format.CSV)
    assert reasons_of([decoded]) == {(model, reason): 1}
    assert (decoded.accepted, decoded.ignored) == (6, 1)
    assert [pointer.number for pointer in decoded.pointers] == [5]
    if reason != "bad_timestamp":
        offline = decode_offline(text, Format.CSV)
        assert explained(offline) == [(5, reason)]
        assert sum(block.accepted for block in offline) == 6


def test_c1_row_44_a_quoted_newline_is_rejected_in_both_halves() -> None:
    """In a tailed file, a record is one line."""
    text = b'probs,site\n"[0.7, 0.2, 0.1]","A\nB"\n"[0.7, 0.2, 0.1]",A\n'
    decoded = decode_text(text, Format.CSV)
    assert reasons_of([decoded]) == {("", "bad_csv"): 2}
    assert decoded.accepted == 1


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        pytest.param("nan,0.5,0.5", "not_finite", id="row 1"),
        pytest.param("True,0,0", "wrong_type", id="row 18"),
        pytest.param("0.9,,0.1", "wrong_type", id="row 19"),
        pytest.param('"0,9",0.1,0', "wrong_type", id="row 44 decimal comma"),
        pytest.param("9" * 500 + ",0,0", "not_finite", id="row 22"),
        pytest.param("0.7, 0.2 ,0.1", None, id="spaces"),
    ],
)
def test_c1_class_columns_of_csv_follow_the_same_rules(cells: str, reason: str | None) -> None:
    """One column per class, in any order."""
    decoder = stream(fields=RecordFields(class_columns=("p_*",)))
    text = f"id,p_cat,p_dog,p_owl\n1,0.7,0.2,0.1\n2,{cells}\n3,0.7,0.2,0.1\n".encode()
    decoded = decode_text(text, Format.CSV, decoder)
    assert reasons_of([decoded]) == ({} if reason is None else {("density", reason): 1})
    assert decoded.accepted == (2 if reason else 3)
    offline = decode_offline(text, Format.CSV, offline_schema(class_columns=("p_*",)))
    assert explained(offline) == ([] if reason is None else [(3, reason)])
    np.testing.assert_array_equal(vectors_of(offline, "model"), vectors_of([decoded]))


def test_c1_rows_26_and_46_a_bom_and_repeated_headers_are_ignored() -> None:
    """A byte order mark at the start, and the header of an appended export."""
    assert decode_text(b"\xef\xbb\xbf" + LINE).accepted == 1
    text = b'\xef\xbb\xbfprobs,site\n"[0.7, 0.2, 0.1]",A\n probs , site \r\n"[0.7, 0.2, 0.1]",A\n'
    decoded = decode_text(text, Format.CSV)
    assert (decoded.accepted, decoded.ignored) == (2, 2)
    assert reasons_of([decode_text(LINE + b"\xef\xbb\xbf" + LINE)]) == {("", "bad_json"): 1}


def test_c1_row_35_a_line_that_is_too_long_is_counted_once() -> None:
    """The source skips it; later lines keep their numbers."""
    for format_, data in ((Format.JSONL, LINE), (Format.CSV, b'"[0.7, 0.2, 0.1]"\n')):
        decoded = decode_text(b"0, 0]}\n" + data, format_, head=b"probs\n", offset=99, line=7, continues=True)
        assert reasons_of([decoded]) == {("", "line_too_long"): 1}
        assert [(pointer.number, pointer.offset) for pointer in decoded.pointers] == [(7, None)]
        assert decoded.accepted == 1
    assert reasons_of([decode_text(b"\n", continues=True)]) == {("", "line_too_long"): 1}


def test_c1_row_48_a_prediction_other_than_the_argmax_is_counted_and_accepted() -> None:
    """By name or index. Any of several equally probable classes is correct, and none is no mismatch."""
    predicted = ["cat", "dog", 0, 2, "emu", None, True, ["cat"], {"a": 1}]
    lines = b"".join(json.dumps({"probs": GOOD, "top": one}).encode() + b"\n" for one in predicted)
    tie = b'{"probs": [0.5, 0.5, 0], "top": "dog"}\n'
    decoded = decode_text(lines + tie, decoder=stream(fields=RecordFields(predicted="top")))
    assert (decoded.accepted, decoded.models["density"].argmax_mismatches) == (10, 6)
    content = write([{"probs": GOOD, "top": "cat"}, {"probs": GOOD, "top": "dog"}], Format.PARQUET)
    (block,) = decode_file(content, Format.PARQUET, stream(fields=RecordFields(predicted="top")))
    assert block.models["density"].argmax_mismatches == 1


LIES = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 5), }".ljust(127) + b"\n"
)


class _Payload:
    """An object whose unpickling would create a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self._path,)


ROWS = np.array([GOOD, GOOD])
FILES = [
    ("8 npy", npy(ROWS[:, :2]), Format.NPY, "not rejected"),
    ("12 npz", npz(probs=ROWS[0]), Format.NPZ, "not_a_vector"),
    ("12 npy", npy(ROWS[0]), Format.NPY, "not_a_vector"),
    ("12 parquet", table({"probs": [0.5]}), Format.PARQUET, "wrong_type"),
    ("16 npz", npz(probs=ROWS[np.newaxis]), Format.NPZ, "not_a_vector"),
    ("16 parquet", table({"probs": [[GOOD]]}), Format.PARQUET, "wrong_type"),
    ("17 npz", npz(probs=ROWS.astype(str)), Format.NPZ, "wrong_type"),
    ("17 parquet", table({"probs": [["0.5"]]}), Format.PARQUET, "wrong_type"),
    ("18 npz", npz(probs=ROWS > 0.5), Format.NPZ, "wrong_type"),
    ("18 parquet", table({"probs": [[True]]}), Format.PARQUET, "wrong_type"),
    ("18 parquet time", table({"probs": [GOOD], "time": [True]}), Format.PARQUET, "bad_timestamp"),
    ("18 npz time", npz(probs=ROWS, time=np.array([True, False])), Format.NPZ, "wrong_type"),
    ("16 parquet site", table({"probs": [GOOD], "site": [["A"]]}), Format.PARQUET, "bad_segment"),
    ("16 npz site", npz(probs=ROWS, site=np.array([["A"], ["B"]])), Format.NPZ, "bad_segment"),
    ("18 parquet id", table({"probs": [GOOD], "id": [True]}), Format.PARQUET, "wrong_type"),
    ("16 parquet model", table({"probs": [GOOD], "model": [["density"]]}), Format.PARQUET, "unknown_model"),
    ("20 csv", b"p,site\n1,2\n", Format.CSV, "bad_header"),
    ("20 npz", npz(p=ROWS), Format.NPZ, "missing_field"),
    ("20 parquet", table({"p": [GOOD]}), Format.PARQUET, "missing_field"),
    ("20 arrow", table({"p": [GOOD]}, Format.ARROW), Format.ARROW, "missing_field"),
    ("21 parquet", table({"probs": [{"cat": 0.5, "emu": 0.5}]}), Format.PARQUET, "unknown_class"),
    ("21 npz", npz(probs=ROWS, classes=np.array(["cat", "dog", "emu"])), Format.NPZ, "unknown_class"),
    ("24 csv", b"probs,probs\n1,2\n", Format.CSV, "bad_header"),
    ("24 csv time", b"probs,time,time\n1,2,3\n", Format.CSV, "bad_header"),
    ("27 jsonl", LINE.decode().encode("utf-16"), Format.JSONL, "bad_encoding"),
    ("27 jsonl little", LINE.decode().encode("utf-16-le"), Format.JSONL, "bad_encoding"),
    ("27 jsonl 32", LINE.decode().encode("utf-32"), Format.JSONL, "bad_encoding"),
    ("27 csv", "probs\n1\n".encode("utf-16-be"), Format.CSV, "bad_encoding"),
    ("27 jsonl.gz", gzip.compress(LINE.decode().encode("utf-16")), Format.JSONL_GZ, "bad_encoding"),
    ("33", json.dumps([{"probs": GOOD}] * 40, indent=1).encode(), Format.JSONL, "not_jsonl"),
    ("33 gz", gzip.compress(json.dumps([{"probs": GOOD}] * 40, indent=1).encode()), Format.JSONL_GZ, "not_jsonl"),
    ("39", LIES + bytes(80), Format.NPY, "bad_header"),
    ("39 npz", npz(probs=ROWS).replace(b"(2, 3)", b"(9, 3)"), Format.NPZ, "bad_file"),
    ("39 nothing wide", npy(np.zeros((5, 0))), Format.NPY, "empty"),
    ("39 cut short", npy(ROWS)[:-1], Format.NPY, "bad_header"),
    ("39 two arrays", npy(ROWS) * 2, Format.NPY, "bad_header"),
    ("39 empty", b"", Format.NPY, "bad_header"),
    ("41 texts", npy(np.array([["a"]])), Format.NPY, "wrong_type"),
    ("41 complex", npy(ROWS.astype(complex)), Format.NPY, "wrong_type"),
    ("41 structured", npy(np.zeros(2, dtype="f8,f8")), Format.NPY, "wrong_type"),
    ("41 big-endian", npy(ROWS.astype(">f8")), Format.NPY, "not rejected"),
    ("41 Fortran", npy(np.asfortranarray(ROWS)), Format.NPY, "not rejected"),
    ("44 semicolons", b"probs;site\n", Format.CSV, "bad_header"),
    ("44 quotes in the header", b'"probs\n', Format.CSV, "bad_csv"),
    ("45", b'"[0.7, 0.2, 0.1]",A\n', Format.CSV, "bad_header"),
    ("45 only blank lines", b"\n \n", Format.CSV, "not rejected"),
    ("45 NUL", b"probs\0\n", Format.CSV, "nul_bytes"),
    ("45 bytes", b"probs,\xff\n", Format.CSV, "bad_encoding"),
    ("times of another length", npz(probs=ROWS, time=np.zeros(3)), Format.NPZ, "bad_timestamp"),
]


OF_A_STREAM = ("time", "times of another length", "site", "id", "model", "only blank lines")
"""Rows on fields that the offline commands do not read, and of a file that may still get a header."""


@pytest.mark.parametrize(
    ("row", "content", "format_", "reason"), [pytest.param(*row, id=f"row {row[0]}") for row in FILES]
)
def test_c1_a_file_that_cannot_be_used_is_rejected_as_a_whole(
    row: str, content: bytes, format_: Format, reason: str
) -> None:
    """An error in a header or column affects every record, so it is reported once."""
    assert rejection_reason(content, format_) == reason
    if not row.endswith(OF_A_STREAM):
        assert rejection_reason(content, format_, offline=True) == reason


@pytest.mark.parametrize("format_", [Format.PARQUET, Format.ARROW])
def test_c1_row_43_nulls_and_lists_of_other_lengths_reject_their_own_row(format_: Format) -> None:
    """A null vector, a null in one, and vectors of other lengths."""
    column = pa.array([GOOD, None, [0.5, None, 0.5], [0.5, 0.5], [], GOOD])
    blocks = decode_file(table({"probs": column}, format_), format_)
    expected = {("density", "wrong_type"): 2, ("density", "wrong_k"): 1, ("density", "empty"): 1}
    assert reasons_of(blocks) == expected
    np.testing.assert_array_equal(vectors_of(blocks), [GOOD_SINGLES] * 2)
    assert [pointer.number for pointer in blocks[0].pointers] == [2, 3, 4, 5]
    offline = decode_offline(table({"probs": column}, format_), format_)
    assert explained(offline) == [(2, "wrong_type"), (3, "wrong_type"), (4, "wrong_k"), (5, "empty")]


def test_c1_row_12_a_declared_score_is_accepted_in_every_format() -> None:
    """A single number is the probability of the second class, if configured."""
    decoder = stream(ModelFormat("density", ("well", "ill"), OutputKind.SCORE))
    for format_ in ALL_FORMATS:
        records = [{"score": one, "probs": one} for one in (0.25, 0.75)]
        blocks = decode_file(write(records, format_), format_, decoder)
        assert vectors_of(blocks).tolist() == [[0.75, 0.25], [0.25, 0.75]], format_


GOOD_LINES = [json.dumps(RECORD).encode(), LINE[:-1], b'{"probs": {"cat": 1, "dog": 0, "owl": 0}, "id": 5}']
PARTS = st.sampled_from(
    [
        b'{"probs": ',
        b"[0.7,0.2,0.1]",
        b"}",
        b",",
        b'"',
        b"NaN",
        b"{",
        b"\xff",
        b"\0",
        b"1e999",
        b'"time": ',
        b"[",
        b"\r",
    ]
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a good line with some bytes replaced, removed or repeated."""
    line = bytearray(draw(st.sampled_from(GOOD_LINES)))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(line) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                line[place] = draw(st.integers(0, 255))
            case 1:
                del line[place : place + draw(st.integers(1, 8))]
            case 2:
                line[place:place] = draw(PARTS)
            case _:
                line[place:place] = line[: draw(st.integers(1, 30))]
        line = line or bytearray(b"x")
    return bytes(line).replace(b"\n", b" ")


SOME_LINES = st.lists(st.binary(max_size=12) | st.lists(PARTS, max_size=6).map(b"".join) | mutated(), max_size=60)

FUZZED = stream()


@pytest.mark.slow
@settings(max_examples=60)
@given(lines=SOME_LINES, seed=st.integers(0, 2**32 - 1))
def test_c2_any_bytes_are_accepted_rejected_or_blank(lines: list[bytes], seed: int) -> None:
    """Drawn lines, and two thousand mutations: none is lost, none raises, and others are not affected."""
    random = np.random.default_rng(seed)
    pool = [line.replace(b"\n", b" ") for line in lines] + GOOD_LINES
    # Drawing each line would take minutes; splicing drawn ones finds the same bugs.
    picked = [pool[place] for place in random.integers(0, len(pool), 2_000)]
    spliced = [
        one[: int(cut)] + other if splice else one
        for one, other, cut, splice in zip(
            picked, picked[::-1], random.integers(0, 40, 2_000), random.random(2_000) < 0.3, strict=True
        )
    ]
    data = b"\n".join([GOOD_LINES[0], *spliced]) + b"\n"
    decoded = decode_text(data, decoder=FUZZED)
    one_by_one = [decode_text(line + b"\n", decoder=FUZZED, offset=9, non_json_lines=None) for line in spliced[:50]]
    some = decode_text(b"\n".join(spliced[:50]) + b"\n", decoder=FUZZED, offset=9, non_json_lines=None)
    assert some.accepted == sum(one.accepted for one in one_by_one)
    assert reasons_of([some]) == reasons_of(one_by_one)
    assert decoded.rows == 2_001
    decode_text(data, Format.CSV, FUZZED, offset=14, head=b"probs,id,time\n")


@pytest.mark.parametrize(("head", "level"), [(b"", b"["), (b"", b'{"a":'), (b'{"probs": [1, 0, 0], "a": ', b"[")])
def test_c3_a_million_brackets_are_cheap(head: bytes, level: bytes) -> None:
    """The number of calls depends on blocks, not on the nesting."""
    nested = LINE + head + level * 10**6 + b"\n" + LINE
    decoded = decode_text(nested)
    assert reasons_of([decoded]) == {("", "too_deep"): 1}
    assert decoded.accepted == 2
    assert calls_of(lambda: decode_text(nested)) < 10_000


def test_c6_no_memory_is_allocated_before_the_header_is_checked() -> None:
    """Shapes of terabytes, in a file of a few bytes."""
    for content, format_ in ((LIES, Format.NPY), (LIES + bytes(1000), Format.NPY)):
        assert rejection_reason(content, format_) == "bad_header"
    wide = LIES.replace(b"(1000000000000, 5)", b"(99999, 99999999) ")
    assert rejection_reason(wide, Format.NPY) == "bad_header"


@pytest.mark.parametrize("format_", [Format.NPY, Format.NPZ])
@pytest.mark.parametrize("field", ["probs", "time", "id", "site", "classes"])
def test_c7_row_40_nothing_is_unpickled(field: str, format_: Format, tmp_path: Path) -> None:
    """The file is rejected, and the payload did not run."""
    trace = tmp_path / "ran"
    payload = np.array([_Payload(trace), _Payload(trace)], dtype=object)
    if format_ is Format.NPY:
        file = io.BytesIO()
        np.save(file, payload, allow_pickle=True)
        content = file.getvalue()
    else:
        content = npz(**({"probs": ROWS} | {field: payload}))
    assert rejection_reason(content, format_) == "pickle"
    assert not trace.exists()


@pytest.mark.parametrize("classes", [2, 10, 100, 1000])
def test_c8_three_decimals_are_normalised(classes: int) -> None:
    """Rounded outputs are valid.

    The model is fairly confident. With probability spread over a thousand classes, rounding loses up to 9% of the sum,
    which the tolerance of 6.3% is not meant to cover.
    """
    weights = np.exp(4 * np.random.default_rng(8).normal(size=(300, classes)))
    vectors = np.round(weights / weights.sum(axis=1, keepdims=True), 3)
    model = ModelFormat("density", tuple(map(str, range(classes))))
    decoded = decode_text(write([{"probs": one.tolist()} for one in vectors], Format.JSONL), decoder=stream(model))
    assert (decoded.accepted, decoded.rejected.total()) == (300, 0)
    np.testing.assert_allclose(vectors_of([decoded]).sum(axis=1), 1, atol=1e-6)
    assert decoded.models["density"].normalised == np.count_nonzero(np.abs(vectors.sum(axis=1) - 1) > 1e-5)


def test_c9_half_precision_is_accepted() -> None:
    """Outputs rounded to float16 or bfloat16, as text and as arrays."""
    vectors = np.random.default_rng(9).dirichlet(np.ones(10), 300).astype(np.float32)
    model = ModelFormat("density", tuple(map(str, range(10))))
    half = vectors.astype(np.float16)
    # A bfloat16 is the first half of a float32.
    brain = (vectors.view(np.uint32) & 0xFFFF0000).view(np.float32)
    for some in (half, brain):
        for format_ in (Format.JSONL, Format.NPY, Format.PARQUET):
            records = [{"probs": one.tolist() if format_ is Format.JSONL else one} for one in some]
            assert len(vectors_of(decode_file(write(records, format_), format_, stream(model)))) == 300


RANDOM_VECTORS = np.random.default_rng(10).dirichlet(np.ones(3), 400)
HINTS = [
    pytest.param(OutputKind.PROBS, np.log(RANDOM_VECTORS) + 2, "looks like logits: set kind: logits", id="c10 logits"),
    pytest.param(OutputKind.PROBS, RANDOM_VECTORS * 100, "looks like percentages: set kind: percent", id="c11 percent"),
    pytest.param(
        OutputKind.PROBS, np.log(RANDOM_VECTORS), "looks like log-probabilities: set kind: logprob", id="row 11"
    ),
    pytest.param(
        OutputKind.LOGITS,
        RANDOM_VECTORS,
        "looks like probabilities: set kind: probs instead of kind: logits",
        id="probs for logits",
    ),
    pytest.param(
        OutputKind.PROBS,
        np.eye(3)[np.arange(400) % 3],
        "an argmax seems to have been logged: nearly every record gives one class all probability",
        id="row 13",
    ),
    pytest.param(
        OutputKind.PROBS,
        np.full((400, 3), 1 / 3),
        "constant output: every record holds the same probabilities",
        id="row 14",
    ),
]


@pytest.mark.parametrize(("kind", "vectors", "hint"), HINTS)
def test_c10_c11_a_hint_appears_within_200_records_and_ends(kind: OutputKind, vectors: Any, hint: str) -> None:
    """In the words of the configuration. It ends when the stream is corrected."""
    decoder = stream(ModelFormat("density", CLASSES, kind), fields=RecordFields(probs="probs"))
    for start in range(0, 200, 50):
        lines = write([{"probs": one.tolist()} for one in vectors[start : start + 50]], Format.JSONL)
        decoded = decode_text(lines, decoder=decoder)
    assert decoded.hints == {"density": (hint,)}
    well = np.log(RANDOM_VECTORS) + 2 if kind is OutputKind.LOGITS else RANDOM_VECTORS
    for start in (0, 200):
        lines = write([{"probs": one.tolist()} for one in well[start : start + 200]], Format.JSONL)
        decode_text(lines, decoder=decoder)
    decoded = decode_text(write([{"probs": one.tolist()} for one in well], Format.JSONL), decoder=decoder)
    assert (decoded.hints, decoded.rejected.total()) == ({}, 0)


@pytest.mark.parametrize(
    ("factor", "hint"),
    [
        pytest.param(1e3, "times look like milliseconds: set time_unit: ms", id="ms"),
        pytest.param(1e6, "times look like microseconds: set time_unit: us", id="us"),
        pytest.param(1e9, "times look like nanoseconds: set time_unit: ns", id="ns"),
        pytest.param(-1.0, None, id="negative"),
    ],
)
@pytest.mark.parametrize("whole", [True, False], ids=["integers", "floats"])
def test_c16_times_in_another_unit_are_rejected_with_a_hint(factor: float, hint: str | None, whole: bool) -> None:  # noqa: FBT001
    """And accepted once the unit is declared."""
    times = [(1760000000 + second) * factor for second in range(40)]
    lines = write([RECORD | {"time": int(one) if whole else one} for one in times], Format.JSONL)
    decoder = stream()
    decoded = decode_text(lines, decoder=decoder)
    assert reasons_of([decoded]) == {("density", "bad_timestamp"): 40}
    reported = () if hint is None else (hint,)
    # All records are equal, which causes another hint.
    assert decoded.hints["density"][1:] == reported
    for _ in range(13):
        decoded = decode_text(write([RECORD] * 40, Format.JSONL), decoder=decoder)
    assert len(decoded.hints["density"]) == 1
    if hint is not None:
        declared = stream(fields=RecordFields(time_unit=TimeUnit(hint.rpartition(" ")[2])))
        at = decode_text(lines, decoder=declared).models["density"].at
        np.testing.assert_allclose(at, np.array(times) / factor, atol=1e-3)


@pytest.mark.parametrize("format_", [Format.JSONL, Format.CSV, Format.PARQUET])
def test_c18_named_vectors_are_ordered_by_class(format_: Format) -> None:
    """Each record may have its own order."""
    orders = [("cat", "dog", "owl"), ("owl", "cat", "dog"), ("dog", "owl", "cat")]
    probability = dict(zip(CLASSES, GOOD, strict=True))
    records = [{"probs": {name: probability[name] for name in order}} for order in orders]
    np.testing.assert_array_equal(vectors_of(decode_file(write(records, format_), format_)), [GOOD_SINGLES] * 3)


def test_c18_an_npz_file_may_name_its_classes_in_another_order() -> None:
    """They are put into the order of the reference."""
    content = npz(probs=ROWS[:, [2, 0, 1]], classes=np.array(["owl", "cat", "dog"]))
    np.testing.assert_array_equal(vectors_of(decode_file(content, Format.NPZ)), [GOOD_SINGLES] * 2)


def test_c19_the_same_records_are_the_same_vectors_in_every_format() -> None:
    """Bit for bit, with times, ids, versions and segments where the format has them."""
    random = np.random.default_rng(19)
    vectors = random.dirichlet(np.ones(3), 9_000)
    records = [
        {
            "model": "density",
            "version": f"2.{place // 5_000}",
            "id": f"study-{place}",
            "time": 1.76e9 + place / 8,
            "site": "ABC"[place % 3],
            "probs": vector,
        }
        for place, vector in enumerate(vectors.tolist())
    ]
    expected = decode_text(write(records, Format.JSONL)).models["density"]
    assert expected.versions is not None
    for format_ in ALL_FORMATS:
        blocks = decode_file(write(records, format_), format_)
        np.testing.assert_array_equal(vectors_of(blocks), expected.vectors)
        if format_ is Format.NPY:
            continue
        models = [block.models["density"] for block in blocks]
        np.testing.assert_array_equal(np.concatenate([one.ids for one in models if one.ids is not None]), expected.ids)
        np.testing.assert_array_equal(np.concatenate([one.at for one in models]), expected.at)
        versions = [text for one in models for text in (one.versions.texts() if one.versions else ())]
        assert versions == expected.versions.texts()
        sites = [text for one in models for text in one.fields["site"].texts()]
        assert sites == expected.fields["site"].texts()


def test_a_rejected_file_has_its_reason() -> None:
    """For the file checkpoint and for metrics."""
    with pytest.raises(
        RejectedFile, match=r"file#1: expected headers that match .* found other headers \(bad_header\)"
    ) as caught:
        decode_file(LIES, Format.NPY)
    assert caught.value.reason == "bad_header"
    assert MODEL.width == 3
