"""Numbered records, their serialised forms, and a log of those that were written.

All fields of a record follow from its number, so that it can be identified and verified in a window. Nothing here uses
the code under test.
"""

import gzip
import io
import json
import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

BASE = 1_760_000_000.0
CLASSES = ("cat", "dog", "owl")
SITES = ("A", "B", "C")

BAD_LINES: dict[str, bytes] = {
    "bad_json": b'{"n": %d, "probs": [0.1, 0.2\n',
    "wrong_k": b'{"n": %d, "probs": [0.5, 0.5]}\n',
    "negative": b'{"n": %d, "probs": [-0.5, 1.0, 0.5]}\n',
    "bad_sum": b'{"n": %d, "probs": [0.1, 0.1, 0.1]}\n',
    "missing_field": b'{"n": %d, "time": 1760000000.5, "site": "A"}\n',
    "bad_timestamp": b'{"n": %d, "probs": [0.2, 0.3, 0.5], "time": "yesterday"}\n',
    "unknown_model": b'{"n": %d, "model": "another", "probs": [0.2, 0.3, 0.5]}\n',
}
"""By reason, a line that must be rejected. Numbered, since files with equal heads count as copies."""


def seeded(seed: int) -> random.Random:
    """Return a random generator with a fixed seed."""
    return random.Random(seed)  # noqa: S311 - no secret


def time_of(number: int) -> float:
    """Return the event time of a record."""
    return BASE + number * 0.001


def number_at(at: float) -> int:
    """Return the number of the record with this time; verify it with `time_of`."""
    return round((at - BASE) * 1000)


def vector_of(number: int) -> tuple[float, float, float]:
    """Return a record's outputs; equal only for records 716,539 apart."""
    weights = 1 + number % 97, 1 + number % 89, 1 + number % 83
    total = sum(weights)
    return weights[0] / total, weights[1] / total, weights[2] / total


def site_of(number: int) -> str:
    """Return the site of a record."""
    return SITES[number * 7 // 3 % len(SITES)]


def id_of(number: int) -> str | None:
    """Return a record's id; one in four has one."""
    return f"record {number}" if number % 4 == 0 else None


def line_of(number: int) -> bytes:
    """Return a record as a line, in one of several equivalent forms."""
    record: dict[str, object] = {"probs": vector_of(number), "time": time_of(number), "site": site_of(number)}
    if (name := id_of(number)) is not None:
        record["id"] = name
    if number % 5 == 0:
        record = {"model": "density", "version": "2.1", "unknown": {"deep": [1, {"a": None}]}} | record
    end = b"\r\n" if number % 11 == 0 else b"\n\n" if number % 23 == 0 else b"\n"
    return json.dumps(record).encode() + end


def gzip_of(lines: list[bytes]) -> bytes:
    """Return lines as a compressed file."""
    return gzip.compress(b"".join(lines), compresslevel=1)


def npz_of(numbers: list[int]) -> bytes:
    """Return records as columns; missing ids are empty."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        probs=np.array([vector_of(number) for number in numbers]),
        time=np.array([time_of(number) for number in numbers]),
        site=np.array([site_of(number) for number in numbers]),
        id=np.array([id_of(number) or "" for number in numbers]),
    )
    return buffer.getvalue()


@dataclass
class WriteLog:
    """What was written: the base of the expected windows and counters."""

    written: int = 0
    """All records below this number were written."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Lines that must be rejected, by reason; repeated ids included."""

    def next_lines(self, count: int) -> bytes:
        """Return new records."""
        first, self.written = self.written, self.written + count
        return b"".join(line_of(number) for number in range(first, self.written))

    def next_long_line(self) -> bytes:
        """Return a new record with a long line."""
        return b'{"long": "%s", ' % (b"x" * 70_000) + self.next_lines(1)[1:]

    def next_numbers(self, count: int) -> list[int]:
        """Return the numbers of new records, which the caller writes."""
        first, self.written = self.written, self.written + count
        return list(range(first, self.written))

    def bad_line(self, which: int) -> bytes:
        """Return a line that must be rejected."""
        reason = sorted(BAD_LINES)[which % len(BAD_LINES)]
        self.rejected[reason] += 1
        return BAD_LINES[reason] % self.rejected.total()

    def repeated_line(self, which: int) -> bytes:
        """Return an earlier record with an id; empty while there is none."""
        if self.written == 0:
            return b""
        self.rejected["duplicate_id"] += 1
        return b'{"n": %d, ' % self.rejected.total() + line_of(which % self.written // 4 * 4)[1:]
