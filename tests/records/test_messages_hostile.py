"""Hostile messages: each gets its diagnosis, without an exception or much memory."""

import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitor.records.messages import MOST_ITEMS
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.records.record_schema import RecordFields
from tests.records.messages import message, receive, receiver
from tests.records.streams import GOOD, MODEL, RECORD, reasons_of, stream

DEEP = 100_000
CANARY = "ZZPATIENT"

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["density", "A", "1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
OUTPUTS = st.sampled_from([GOOD, [1, 0, 0], [0.5, 0.5], [2, 2, 2], {"cat": 1, "dog": 0, "owl": 0}, None, "x"])
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "probs": OUTPUTS | VALUES,
        "model": st.sampled_from(["density", "other"]) | VALUES,
        "version": st.sampled_from(["1", "2", 3, 4.5]) | VALUES,
        "id": st.text(max_size=9) | st.integers() | VALUES,
        "time": st.floats(0, 2e9) | st.sampled_from(["2026-01-31T08:00:00Z", -1, 1e15]) | VALUES,
        "site": st.sampled_from(["A", "B", "Jane Doe!"]) | VALUES,
        "other": VALUES,
    },
)
PACKED = st.fixed_dictionaries(
    {"probs_f32": st.sampled_from(["AACAPwAAAAAAAAAA", "AACAPwAAAAAAAAAA" * 3, "AAAA", "", "?", None]) | VALUES},
    optional={name: VALUES | st.lists(VALUES, min_size=3, max_size=3) for name in ("id", "time", "site", "version")},
)
ANY_RECORD = RECORDS | PACKED
ANY_MESSAGE = ANY_RECORD | st.lists(ANY_RECORD | VALUES, max_size=4)
ANY_MESSAGE |= st.builds(
    dict.__or__, RECORDS, st.fixed_dictionaries({"records": st.lists(ANY_RECORD, max_size=4) | VALUES})
)


def _equal(one: RecordBatch, other: RecordBatch) -> None:
    """Compare two batches, except for locations."""
    assert (one.rejected, one.rows, one.ignored, one.hints) == (other.rejected, other.rows, other.ignored, other.hints)
    assert one.models.keys() == other.models.keys()
    for name, mine in one.models.items():
        yours = other.models[name]
        np.testing.assert_array_equal(mine.vectors, yours.vectors)
        np.testing.assert_array_equal(mine.at, yours.at)
        np.testing.assert_array_equal(mine.ids, yours.ids)
        assert (mine.normalised, mine.argmax_mismatches) == (yours.normalised, yours.argmax_mismatches)
        columns = [*mine.fields.values(), mine.versions]
        others = [*yours.fields.values(), yours.versions]
        assert [one and one.texts() for one in columns] == [one and one.texts() for one in others]


def _reasons(decoded: RecordBatch) -> list[str]:
    return [str(pointer.reason) for pointer in decoded.pointers]


def _as_lines(lines: Sequence[bytes]) -> RecordBatch:
    # Only files have a start, and only files are given up as non-JSON.
    block = TextPiece("file#1", Format.JSONL, b"".join(line + b"\n" for line in lines), offset=1, non_json_lines=None)
    return stream(fields=FIELDS).text(block)


FIELDS = RecordFields(predicted="other")
GARBAGE = st.sampled_from([b"oops", b"{", b"5", b'"x"', b"null", b"{}", b'{"probs"', b"\x00", b"\xff", b"}{"])


@settings(max_examples=40)
@given(st.lists(RECORDS.map(message) | GARBAGE, min_size=1, max_size=40), st.integers(1, 300))
@example([message(RECORD)], 300)
@example([message(RECORD), b"oops"], 300)
def test_messages_have_the_same_results_as_lines(lines: list[bytes], times: int) -> None:
    """One per message, all in an array, and as lines of one message; many enough to be decoded together."""
    many = (lines * times)[: max(300, len(lines))]
    unstamped = [np.nan] * len(many)
    expected = _as_lines(many)
    one_by_one = receive(*many, decoder=receiver(fields=FIELDS), times=unstamped)
    _equal(one_by_one, expected)
    assert _reasons(one_by_one) == _reasons(expected)
    objects = [line for line in many if _is_json(line)]
    if objects:
        expected = _as_lines(objects)
        for value in (b"[" + b",".join(objects) + b"]", b'{"records": [' + b", ".join(objects) + b"]}"):
            _equal(receive(value, decoder=receiver(fields=FIELDS), times=[np.nan]), expected)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


@given(st.lists(ANY_MESSAGE.map(message), max_size=6), st.integers(0, 2**32), st.integers(0, 6))
def test_no_message_raises_or_is_lost(values: list[bytes], seed: int, changes: int) -> None:
    """Unchanged, or with some bytes changed, removed or doubled."""
    random = np.random.default_rng(seed)
    for _ in range(changes if values else 0):
        which = int(random.integers(len(values)))
        value = bytearray(values[which])
        at = int(random.integers(len(value) + 1))
        signs = b'{}[]",:\n\r \\u0-eN\x00\xff'
        match int(random.integers(3)):
            case 0:
                value[at : at + 1] = bytes([signs[int(random.integers(len(signs)))]])
            case 1:
                del value[at : at + int(random.integers(5))]
            case _:
                value[at:at] = value[at : at + int(random.integers(9))]
        values[which] = bytes(value)
    decoded = receive(*values, decoder=receiver(keep_raw=True))
    assert decoded.rows >= len(values)


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_no_bytes_raise_or_are_lost(values: list[bytes]) -> None:
    assert receive(*values).rows >= len(values)


@pytest.mark.parametrize(
    ("value", "reasons"),
    [
        pytest.param(b"[" * DEEP, {("", "too_deep"): 1}, id="deep arrays"),
        pytest.param(b"[" * DEEP + b"]" * DEEP, {("", "too_deep"): 1}, id="deep arrays that end"),
        pytest.param(b'{"records": [' * DEEP, {("", "too_deep"): 1}, id="deep records"),
        pytest.param(b'[{"probs": ' + b"[" * DEEP + b"]" * DEEP + b"}]", {("", "too_deep"): 1}, id="a deep vector"),
        pytest.param(b'{"records": ' * 3 + b"1" + b"}" * 3, {("density", "missing_field"): 1}, id="records in records"),
        pytest.param(b"[[0.7, 0.2, 0.1], [1, 0, 0]]", {("", "wrong_type"): 2}, id="an array of arrays"),
        pytest.param(
            b'[{"probs": [1, 0, 0], "time": ' + b"9" * 5_000 + b"}]", {("density", "bad_timestamp"): 1}, id="huge"
        ),
        pytest.param(b'{"probs": [1' + b"0" * 400 + b", 0, 0]}", {("density", "out_of_range"): 1}, id="a huge number"),
        pytest.param(b'{"probs": [NaN, 0, 1]}', {("density", "not_finite"): 1}, id="NaN"),
        pytest.param(b'[{"probs": [NaN, 0, 1]}', {("", "bad_json"): 1}, id="NaN in what breaks off"),
        pytest.param(b"\xff\xfe{\0}\0", {("", "nul_bytes"): 1}, id="UTF-16"),
        pytest.param(b'["\xff', {("", "bad_encoding"): 1}, id="no text"),
        pytest.param(b'{"id": "\0"}', {("", "nul_bytes"): 1}, id="a zero byte"),
        pytest.param(b'{"id": "a\nb", "probs": [1, 0, 0]}', {("", "bad_json"): 1}, id="a newline in a text"),
        pytest.param(
            b'[{"id": "a\nb", "probs": [1, 0, 0]}]', {("", "bad_json"): 1}, id="a newline in a text in an array"
        ),
        pytest.param(b'{"probs": [1, 0, 0]}{"probs": [1, 0, 0]}', {("", "bad_json"): 1}, id="two on a line"),
        pytest.param(b"[1,]", {("", "bad_json"): 1}, id="a comma too many"),
        pytest.param(b'{"records": [1] "x": 2}', {("", "bad_json"): 1}, id="a comma missing"),
        pytest.param(b'{"records": [NaN] 2: 2}', {("", "bad_json"): 1}, id="a name that is a number"),
        pytest.param(b"[" + b"{}," * MOST_ITEMS + b"{}]", {("", "too_large"): 1}, id="too many records"),
        pytest.param(b'{"records": [' + b"1," * MOST_ITEMS + b"1]}", {("", "too_large"): 1}, id="too many of anything"),
        pytest.param(b"{}\n" * MOST_ITEMS + b"{}", {("", "too_large"): 1}, id="too many lines"),
        pytest.param(
            b'{"site": "' + b"x" * (1 << 20) + b'", "records": [' + b"{}," * 100 + b"{}]}",
            {("", "too_large"): 1},
            id="a field that would be written out too often",
        ),
    ],
)
def test_a_hostile_message_has_one_reason(value: bytes, reasons: dict[tuple[str, str], int]) -> None:
    """Other messages are not affected."""
    assert reasons_of([receive(value)]) == reasons
    decoded = receive(message(RECORD), value, message(RECORD))
    assert (decoded.accepted, reasons_of([decoded])) == (2, reasons)


def test_of_a_key_that_occurs_twice_the_last_counts() -> None:
    twice = b'{"probs": [0, 0, 1], "probs": [1, 0, 0], "records": [], "site": "A", "site": "B"}'
    records = b'{"records": 5, "site": "A", "site": "B", "records": [{"probs": [0, 0, 1], "probs": [1, 0, 0]}]}'
    for value in (twice, b"[" + twice + b"]", records):
        assert receive(value).models["density"].fields["site"].texts() == ["B"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"[" + b"{}," * (6 * MOST_ITEMS) + b"{}]", id="empty objects"),
        pytest.param(b'{"records": [' + b'{"a":1},' * MOST_ITEMS + b"1]}", id="objects"),
        pytest.param(b"{" + b",".join(b'"%d":1' % number for number in range(1 << 16)) + b"}", id="names"),
        pytest.param(b"{}\n" * (MOST_ITEMS + 1), id="lines"),
        pytest.param(b"\n" * (1 << 20), id="nothing"),
    ],
)
def test_memory_is_proportional_to_the_message(value: bytes) -> None:
    """A large one with the most expensive content: less than twenty times its size."""
    decoder = receiver(max_message_bytes=16 << 20)
    receive(message(RECORD), decoder=decoder)
    tracemalloc.start()
    try:
        decoded = receive(value, decoder=decoder)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decoded.rejected.total() == 1
    assert peak < 20 * len(value)


@pytest.mark.parametrize("name", ["model", "id", "time", "site", "exam", "probs", "probs_f32", "records", CANARY])
@pytest.mark.parametrize("value", [CANARY, [CANARY], {CANARY: 1}, f"{CANARY}!", [[CANARY]], [0.5, CANARY]], ids=repr)
def test_messages_are_not_quoted(name: str, value: Any) -> None:
    """Accepted or rejected, in any form. Valid segments are kept."""
    if name == "site" and value == CANARY:
        value = f"{CANARY}?"
    record = RECORD | {name: value}
    without = {key: one for key, one in record.items() if key != "probs"}
    for sent in (record, [record], {"records": [record]}, without, without | {"records": [record]}, {"x": [record]}):
        for one in (message(sent), message(sent, indent=1), message(sent)[:-1]):
            decoded = receive(one, one, decoder=receiver(replace(MODEL, group_by="exam")))
            shown = [repr(decoded), *(repr(model.fields["site"].values) for model in decoded.models.values())]
            assert CANARY not in "".join(shown)
            assert all(pointer.expected for pointer in decoded.pointers)
