"""A pointer to a rejected record has what was expected, as the offline commands say it, and nothing of the record."""

import base64
import json
from typing import Any

import pytest

from monitor.records.messages import PACKED
from monitor.records.offline_files import offline_schema
from monitor.records.record_batch import Format, RecordBatch
from monitor.records.record_schema import ModelFormat, OutputKind, RecordFields, TimeUnit
from monitor.records.rejections import MOST_POINTERS, Reason
from tests.records.messages import message, receive, receiver
from tests.records.streams import CLASSES, GOOD, LINE, MODEL, RECORD, decode_file, decode_offline, decode_text, stream
from tests.records.streams import table as arrow_table

KINDS = [
    (OutputKind.PROBS, [0.9, 0.9, 0.9], "probabilities that sum to 1"),
    (OutputKind.PROBS, [1.5, 0, 0], "probabilities of at most 1"),
    (OutputKind.PROBS, [-0.5, 1, 0.5], "probabilities of at least 0"),
    (OutputKind.PROBS, [1e30, 0, 0], "probabilities of at most 1"),
    (OutputKind.PROBS, [float("nan"), 0, 1], "finite numbers"),
    (OutputKind.PROBS, [1, 0], "a vector of 3"),
    (OutputKind.PROBS, [0.5, 0.5], "a vector of 3"),
    (OutputKind.PROBS, [0.5, 10**30], "a number"),
    (OutputKind.PROBS, [], "one number per class"),
    (OutputKind.PROBS, None, "a vector of numbers"),
    (OutputKind.PROBS, [0] * 20_001, "at most 20,000 classes"),
    (OutputKind.PROBS, 0.5, "a vector of numbers"),
    (OutputKind.PROBS, "ZZPATIENT", "a vector of numbers"),
    (OutputKind.PROBS, [[1], 0, 0], "a vector of numbers"),
    (OutputKind.PROBS, [1, 0, "ZZPATIENT"], "a number"),
    (OutputKind.PROBS, [10**30, 0, 0], "probabilities of at most 1"),
    (OutputKind.PROBS, {"cat": 1, "dog": 0, "ZZPATIENT": 0}, "one number for each of the 3 classes"),
    (OutputKind.PERCENT, [50, 20, 10], "percentages that sum to 100"),
    (OutputKind.PERCENT, [150, 0, 0], "percentages of at most 100"),
    (OutputKind.LOGPROB, [0.5, 0, 0], "log-probabilities of at most 0"),
    (OutputKind.LOGPROB, [-1, -9, -9], "probabilities that sum to 1"),
    (OutputKind.LOGITS, [float("inf"), 0, 0], "finite numbers"),
    (OutputKind.SCORE, 1.5, "a score of at most 1"),
    (OutputKind.SCORE, [1.5], "a number"),
    (OutputKind.SCORE, [0.5, 0.5], "a number"),
    (OutputKind.SCORE, None, "a number"),
]
LINES = [
    (b"ZZPATIENT", "a JSON object"),
    (b"[1]", "a JSON object"),
    (b'{"a": "ZZPATIENT"}', "a field 'probs'"),
    (b'{"probs": [1, 0, 0], "a": "\xff"}', "text in UTF-8"),
    (b'{"probs": [1, 0, 0], "a": "\\ud800"}', "text in UTF-8"),
    (b'{"probs": [1, 0, 0]}\0', "text"),
    (b'{"a": ' + b"[" * 9_000, "a flat record"),
    (b'{"probs": [1, 0, 0], "a": NaN}', "a JSON object"),
]


def _agree(content: bytes, format_: Format, expected: str, kind: OutputKind = OutputKind.PROBS, **fields: Any) -> None:
    classes = CLASSES[:2] if kind is OutputKind.SCORE else CLASSES
    schema = offline_schema(kind, classes=classes, **fields)
    ((_, rejection),) = (one for batch in decode_offline(content, format_, schema) for one in batch.explained)
    decoder = stream(ModelFormat("density", classes, kind), fields=RecordFields(**fields))
    (pointer,) = (one for batch in decode_file(content, format_, decoder) for one in batch.pointers)
    assert (pointer.reason, pointer.expected) == (rejection.reason, rejection.expected)
    assert pointer.expected == expected


@pytest.mark.parametrize(("kind", "value", "expected"), KINDS)
def test_the_stream_expects_the_same_outputs_as_offline_commands(kind: OutputKind, value: Any, expected: str) -> None:
    field = str(kind) if kind in {OutputKind.LOGITS, OutputKind.SCORE} else "probs"
    line = json.dumps({field: value}).encode() + b"\n"
    _agree(line, Format.JSONL, expected, kind)
    good = json.dumps({field: 0.5 if kind is OutputKind.SCORE else [0, 0, 0]}).encode() + b"\n"
    if kind in {OutputKind.LOGITS, OutputKind.SCORE}:
        _agree(good * 3 + line + good, Format.JSONL, expected, kind)


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_the_stream_expects_the_same_lines_as_offline_commands(line: bytes, expected: str) -> None:
    _agree(LINE + line + b"\n" + LINE, Format.JSONL, expected)


@pytest.mark.parametrize(
    ("header", "row", "expected"),
    [
        ("probs,a", '"[0.7, 0.2, 0.1]"', "2 cells, as in the header"),
        ("probs", '"[0.7"x, 0.2, 0.1]"', "quotes in pairs around whole cells"),
        ("probs,a", ",ZZPATIENT", "a JSON array of numbers"),
        ("probs", "ZZPATIENT", "a JSON array of numbers"),
        ("probs", '"[0.7, 0.7, 0.7]"', "probabilities that sum to 1"),
        ("p_cat,p_dog,p_owl", '"0,7",0.2,0.1', "a number with a decimal point"),
        ("p_cat,p_dog,p_owl", "ZZPATIENT,0.2,0.1", "a number"),
    ],
)
def test_the_stream_expects_the_same_rows_as_offline_commands(header: str, row: str, expected: str) -> None:
    fields: dict[str, Any] = {"class_columns": ("p_*",)} if header.startswith("p_") else {}
    _agree(f"{header}\n{row}\n".encode(), Format.CSV, expected, **fields)


def test_the_stream_expects_the_same_class_columns_as_offline_commands() -> None:
    for value in ("null", '"ZZPATIENT"', "true", "[0.5, 0.5]"):
        line = f'{{"p_cat": {value}, "p_dog": 0.3, "p_owl": 0.7}}\n'
        _agree(line.encode(), Format.JSONL, "a number", class_columns=("p_*",))


def test_the_last_records_are_located_whatever_their_reasons() -> None:
    lines = [b'{"probs": [0.9, 0.9, 0.9]}\n', b'{"probs": [1.5, 0, 0]}\n', b'{"probs": [1, 0, 0]}\n'] * 2_000
    decoded = decode_text(b"".join(lines))
    rejected = [number for number in range(1, 6_001) if number % 3]
    assert [pointer.number for pointer in decoded.pointers] == rejected[-MOST_POINTERS:]
    assert {pointer.number % 3: pointer.reason for pointer in decoded.pointers} == {
        1: Reason.BAD_SUM,
        2: Reason.ABOVE_ONE,
    }
    assert decoded.rejected == {("density", Reason.BAD_SUM): 2_000, ("density", Reason.ABOVE_ONE): 2_000}


def test_rows_of_column_files_are_explained_too() -> None:
    for rows, expected in (([GOOD, [2, 2, 2]], "probabilities of at most 1"), ([GOOD, [1]], "a vector of 3")):
        _agree(arrow_table({"probs": rows}), Format.PARQUET, expected)


def _expected(decoded: RecordBatch) -> list[str | None]:
    assert "ZZPATIENT" not in repr(decoded.pointers)
    return [pointer.expected for pointer in decoded.pointers]


TWO = (MODEL, ModelFormat("other", CLASSES))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"model": "ZZPATIENT"}, "the name of a configured model"),
        ({"model": None}, "the name of the record's model"),
        ({"time": -1}, "a time in seconds since 1970, or in ISO 8601 with a time zone"),
        ({"time": ["ZZPATIENT"]}, "a time in seconds since 1970, or in ISO 8601 with a time zone"),
        ({"site": "ZZPATIENT!"}, "segments of at most 64 ASCII letters, digits, spaces or _ . : / -"),
        ({"site": ["ZZPATIENT"]}, "segments of at most 64 ASCII letters, digits, spaces or _ . : / -"),
        ({"id": [1]}, "a string or an integer as id, and a string or a number as version"),
        ({"version": True}, "a string or an integer as id, and a string or a number as version"),
    ],
)
def test_fields_that_only_the_stream_reads(change: dict[str, Any], expected: str) -> None:
    """In lines and in messages."""
    record = json.dumps(RECORD | change).encode()
    assert _expected(decode_text(record + b"\n", decoder=stream(*TWO))) == [expected]
    assert _expected(receive(message(RECORD), record, decoder=receiver(*TWO))) == [expected]


def test_times_are_expected_as_configured() -> None:
    fields = RecordFields(time_unit=TimeUnit.MILLISECONDS, time_zone="Europe/Oslo")
    line = json.dumps(RECORD | {"time": "ZZPATIENT"}).encode() + b"\n"
    assert _expected(decode_text(line, decoder=stream(fields=fields))) == ["a time in ms since 1970, or in ISO 8601"]


def test_a_line_that_is_too_long() -> None:
    """The limit is that of the source, not that of the offline commands."""
    assert _expected(decode_text(b"ZZPATIENT\n", continues=True)) == ["a shorter line"]


def _packed(numbers: int, **others: Any) -> bytes:
    return message({"probs" + PACKED: base64.b64encode(bytes(4 * numbers)).decode(), **others})


@pytest.mark.parametrize(
    ("value", "reason", "expected"),
    [
        (b" ", Reason.EMPTY, "a record"),
        (b"[" + b"1," * 2_000 + b"1]", Reason.TOO_LARGE, "a smaller message, or fewer records in it"),
        (message([RECORD, RECORD | {"probs": [1]}]), Reason.WRONG_K, "a vector of 3"),
        (_packed(4), Reason.WRONG_K, "vectors of 3"),
        (_packed(0), Reason.EMPTY, "one number per class"),
        (_packed(3), Reason.BAD_SUM, "probabilities that sum to 1"),
        (_packed(3, id=["a", "b"]), Reason.BAD_BATCH, "one value for all records of the batch, or one per record"),
        (message({"probs" + PACKED: "ZZPATIENT!"}), Reason.BAD_BASE64, "float32 numbers in base64"),
        (message({"probs" + PACKED: 7}), Reason.WRONG_TYPE, "float32 numbers in base64"),
    ],
)
def test_messages(value: bytes, reason: Reason, expected: str) -> None:
    decoded = receive(value, decoder=receiver(max_message_bytes=1_000))
    assert (decoded.pointers[0].reason, _expected(decoded)) == (reason, [expected])
