"""Payloads of which every record is known by a number, also when it is found in a window.

A vector is the number itself, in binary fractions that single precision holds exactly. Nothing here uses the code under
test.
"""

import json
from dataclasses import dataclass

BASE = 1_760_000_000.0
PAYLOADS = "tests.kafka.replicas.records:payload"
MOST_NUMBERS = 1 << 24

_SIDE = 1 << 12
_PARTS = float(1 << 13)
_IN_A_MESSAGE = 4
"""Numbers that each message has for itself, whether it uses them or not."""
_LATE = 600
"""So many numbers a late record's time may be behind."""


@dataclass(frozen=True)
class Record:
    """A record as it must be found in a window."""

    number: int
    at: float
    site: str


def payload(message: int) -> bytes:
    """Return the payload of a message: mostly one record, sometimes several, now and then none that can be read."""
    if message % 101 == 7:
        return b'{"probs": [0.5, 0.5'
    numbers = [_IN_A_MESSAGE * message + place for place in range(3 if message % 13 == 5 else 1)]
    records = [_written(number) for number in numbers]
    return json.dumps(records if len(records) > 1 else records[0]).encode()


def records_in(content: bytes) -> list[Record]:
    """Return the records of a payload; none when it cannot be read."""
    try:
        found = json.loads(content)
    except ValueError:
        return []
    records = found if isinstance(found, list) else [found]
    return [Record(number_of(one["probs"]), one["time"], one["site"]) for one in records]


def number_of(vector: list[float]) -> int:
    """Return which record a vector is of; raises ValueError when it is of none."""
    high, low = vector[0] * _PARTS, vector[1] * _PARTS
    number = int(high) * _SIDE + int(low)
    if vector != _vector(number):
        raise ValueError(f"vector: expected one of a record, found {vector}")
    return number


def _written(number: int) -> dict[str, object]:
    written: dict[str, object] = {"probs": _vector(number), "time": _time(number), "site": _site(number)}
    if number % 3 == 0:
        written["id"] = f"exam-{number}"
    return written


def _vector(number: int) -> list[float]:
    if not 0 <= number < MOST_NUMBERS:
        raise ValueError(f"number: expected 0 to {MOST_NUMBERS - 1}, found {number}")
    high, low = divmod(number, _SIDE)
    return [high / _PARTS, low / _PARTS, 1.0 - (high + low) / _PARTS]


def _time(number: int) -> float:
    """Return when a record happened: most in order, some late, and some at the same instant."""
    mixed = _mixed(number)
    late = mixed % _LATE if mixed % 7 == 0 else 0
    return BASE + (number - late) // 2 * 0.001


def _site(number: int) -> str:
    """Return where it was made: one site is rarer, so that its window reaches further back."""
    share = _mixed(number) // 1000 % 100
    return "A" if share < 60 else "B" if share < 90 else "C"


def _mixed(number: int) -> int:
    return (number * 2_654_435_761 + 12_345) % (1 << 32)
