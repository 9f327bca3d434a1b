"""Records decoded many at a time, as columns of MessagePack, equal the same records one at a time."""

import json
import random
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from monitor.core.decisions import DecidedBy, Decision
from monitor.records.columns import TextSlices
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields
from tests.records.messages import message, receive
from tests.records.streams import CLASSES, GOOD, MODEL, RECORD, decode_text, stream

MANY = 120
# The bytes before a vector, as a number: a seeming start of another record.
LIKE_A_START = struct.unpack(">d", b"\x87\xa5probs\x93")[0]
FIELDS = RecordFields(predicted="predicted")
ALIKE = (MODEL, ModelFormat("chest", CLASSES))
DECIDE = (replace(MODEL, decision=Decision(DecidedBy.FIELD)), ModelFormat("chest", CLASSES))
"""The records of one decide, those of the other do not."""

ODD: dict[str, dict[str, Any]] = {
    "no field": {},
    "null": dict.fromkeys(RECORD),
    "numbers as texts": {"id": 7, "version": 2.5, "site": -1, "predicted": 1},
    "huge numbers": {"id": 10**30, "version": 2**64, "predicted": 10**19},
    "a time of text": {"time": "2026-01-01T00:00:00Z"},
    "a time of another unit": {"time": 1.7e12},
    "a bad segment": {"site": "é"},
    "other texts": {"id": "漢字", "version": "2.1\0", "site": "Ulm 2"},
    "texts of two words": {"version": "2.1-2026-01", "site": "abcdefghi"},
    "long texts": {"id": "x" * 200, "version": "v" * 65, "site": "s" * 64},
    "longer texts": {"id": "x" * 256, "version": "v" * 70_000},
    "a nested value": {"predicted": {"class": [1]}},
    "a predicted class": {"predicted": "dog"},
    "another model": {"model": "chest"},
    "an unknown model": {"model": "x"},
    "no model": {"model": ""},
    "names": {"probs": dict(zip(CLASSES, GOOD, strict=True))},
    "a number like a start": {"probs": [1.0, LIKE_A_START, 0.0]},
    "too many classes": {"probs": [0.25] * 4},
    "a bad sum": {"probs": [0.7, 0.7, 0.7]},
    "no numbers": {"probs": ["x", 0, 1]},
    "integers": {"probs": [0, 1, 0]},
}


def _columns(batches: Sequence[RecordBatch]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for batch in batches:
        for name, one in batch.models.items():
            versions = [""] * len(one) if one.versions is None else one.versions.texts()
            ids = [0] * len(one) if one.ids is None else one.ids.tolist()
            texts = [column.texts() for column in one.fields.values()]
            decided = [-2] * len(one) if one.decided is None else one.decided.tolist()
            at = np.nan_to_num(one.at, nan=-1.0).tolist()
            rows = zip(one.vectors.tolist(), at, versions, ids, decided, *texts, strict=True)
            found.setdefault(name, []).extend(rows)
    mismatches = sum(one.argmax_mismatches for batch in batches for one in batch.models.values())
    return found | {"mismatches": [mismatches]}


def _check(records: Sequence[dict[str, Any]], models: Sequence[ModelFormat]) -> None:
    lines = [json.dumps(record).encode() for record in records]
    alone = [decode_text(line + b"\n", decoder=stream(*models, fields=FIELDS), offset=1) for line in lines]
    wanted = _columns(alone), sum((one.rejected for one in alone), Counter())
    together = decode_text(b"\n".join(lines) + b"\n", decoder=stream(*models, fields=FIELDS))
    assert (_columns([together]), together.rejected) == wanted
    places = [place for place, one in enumerate(alone, start=1) if one.rejected]
    assert [pointer.number for pointer in together.pointers] == places
    times = [np.nan] * len(lines)
    for values in (lines, [message(records[: MANY // 2]), message(records[MANY // 2 :])]):
        received = receive(*values, decoder=stream(*models, fields=FIELDS), times=times[: len(values)])
        assert (_columns([received]), received.rejected) == wanted


def _regular(number: int) -> dict[str, Any]:
    return RECORD | {"id": f"study-{number}", "time": 1.76e9 + number, "site": "AB"[number % 2]}


@pytest.mark.parametrize("models", [(MODEL,), ALIKE, DECIDE], ids=["one model", "two models", "one of two decides"])
@pytest.mark.parametrize("odd", ODD)
def test_one_odd_record_among_many(odd: str, models: Sequence[ModelFormat]) -> None:
    records = [_regular(number) | ({"predicted": "owl"} if models == DECIDE else {}) for number in range(MANY)]
    records[70] |= ODD[odd]
    _check(records, models)


@pytest.mark.parametrize("odd", ODD)
def test_only_odd_records(odd: str) -> None:
    _check([_regular(number) | ODD[odd] for number in range(MANY)], (MODEL,))
    _check([_regular(number) | ODD[odd] for number in range(MANY)], DECIDE)


@pytest.mark.parametrize("seed", range(10))
def test_several_odd_records_among_many(seed: int) -> None:
    """Among them a start too few and one too many, so that their number is right."""
    draw = random.Random(seed)  # noqa: S311 - a test
    records = [_regular(number) for number in range(MANY)]
    for odd in [*draw.sample(sorted(ODD), seed), "names", "a number like a start"]:
        records[draw.randrange(MANY)] |= ODD[odd]
    _check(records, ALIKE)


def test_a_column_that_only_some_records_have() -> None:
    """Those around a bad line are decoded apart from the others."""
    records = [{"probs": GOOD, "id": f"{number}" + "-" * 2_000} for number in range(MANY)]
    for odd in ({"predicted": "dog"}, {"version": "2"}, {"time": 5.0}, {"site": "A"}):
        _check([*records[:60], records[60] | odd, {"probs": 1}, records[60] | odd, *records[61:]], (MODEL,))


def test_records_with_other_fields_only() -> None:
    """Without any field but the vector, and with many segments."""
    _check([{"probs": GOOD}] * MANY, (MODEL,))
    _check([RECORD | {"site": f"site {number}"} for number in range(MANY)], (MODEL,))


def test_texts_that_are_mixed_to_the_same_number_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(b"abcdefgh1ABCDEFGH2" + bytes(72))
    column = TextSlices(data, np.array([0, 9]), np.array([9, 9]))
    texts = column.texts()
    assert texts is not None
    assert texts.texts() == ["abcdefgh1", "ABCDEFGH2"]
    monkeypatch.setattr("monitor.records.columns._grouped", lambda _: (np.zeros(2, dtype=np.int64), np.array([0])))
    assert column.texts() is None
