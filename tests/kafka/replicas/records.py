"""Payloads whose records can be identified in a window by their vectors.

A vector encodes the number of its record in binary fractions that single precision represents exactly. Nothing here
uses the code under test.
"""

import json
from dataclasses import dataclass

BASE = 1_760_000_000.0
PAYLOADS = "tests.kafka.replicas.records:payload"
NUMBERS = 1 << 24

_SIDE = 1 << 12
_PARTS = float(1 << 13)
_PER_MESSAGE = 4
"""Numbers reserved for each message."""
_LATE = 600
"""The maximum delay of a late record, in numbers."""


@dataclass(frozen=True)
class Record:
    """A record as expected in a window."""

    number: int
    at: float
    site: str


def payload(message: int) -> bytes:
    """Return the payload of a message: mostly one record, sometimes three, rarely invalid JSON."""
    if message % 101 == 7:
        return b'{"probs": [0.5, 0.5'
    numbers = [_PER_MESSAGE * message + place for place in range(3 if message % 13 == 5 else 1)]
    records = [_record(number) for number in numbers]
    return json.dumps(records if len(records) > 1 else records[0]).encode()


def records_in(content: bytes) -> list[Record]:
    """Return the records of a payload; none if it is invalid."""
    try:
        found = json.loads(content)
    except ValueError:
        return []
    records = found if isinstance(found, list) else [found]
    return [Record(number_of(one["probs"]), one["time"], one["site"]) for one in records]


def number_of(vector: list[float]) -> int:
    """Return the number that a vector encodes; raises ValueError if there is none."""
    high, low = vector[0] * _PARTS, vector[1] * _PARTS
    number = int(high) * _SIDE + int(low)
    if vector != _vector(number):
        raise ValueError(f"vector: expected one of a record, found {vector}")
    return number


def _record(number: int) -> dict[str, object]:
    record: dict[str, object] = {"probs": _vector(number), "time": _time(number), "site": _site(number)}
    if number % 3 == 0:
        record["id"] = f"exam-{number}"
    return record


def _vector(number: int) -> list[float]:
    if not 0 <= number < NUMBERS:
        raise ValueError(f"number: expected 0 to {NUMBERS - 1}, found {number}")
    high, low = divmod(number, _SIDE)
    return [high / _PARTS, low / _PARTS, 1.0 - (high + low) / _PARTS]


def _time(number: int) -> float:
    """Return the event time: mostly ascending, sometimes late, sometimes equal."""
    hashed = _hashed(number)
    late = hashed % _LATE if hashed % 7 == 0 else 0
    return BASE + (number - late) // 2 * 0.001


def _site(number: int) -> str:
    """Return the site: one is rarer, so that its window reaches further back."""
    share = _hashed(number) // 1000 % 100
    return "A" if share < 60 else "B" if share < 90 else "C"


def _hashed(number: int) -> int:
    return (number * 2_654_435_761 + 12_345) % (1 << 32)
