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
BAD_LABELS: dict[str, bytes] = {
    "unknown_label": b'{"n": %d, "id": "record 4", "label": "fox"}\n',
    "no_id": b'{"n": %d, "label": "cat"}\n',
}
Label = tuple[str, str, float | None]
"""The id of a record, its class, and the time of the label."""


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


def label_line(label: Label, serial: int) -> bytes:
    """Return a label as a line."""
    name, of, at = label
    return json.dumps({"n": serial, "id": name, "label": of, **({} if at is None else {"time": at})}).encode() + b"\n"


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
    labels: list[Label] = field(default_factory=list)
    """In the order in which they were written."""

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

    def next_labels(self, count: int, seed: int, *, timed: bool) -> list[bytes]:
        """Return labels: of records that were written or not yet or never will be, first ones, repeated and corrected ones.

        Files are read in any order, so labels in several files must have times: different ones, in no order. Those without
        a time count as they arrive, and win over the others.
        """
        rng, lines = seeded(seed), list[bytes]()
        for _ in range(count):
            # Few records, so that many have several labels.
            number = 4 * rng.randrange(self.written // 12 + 3) * rng.choice([1, 2, 5])
            at = BASE + len(self.labels) * 7919 % 1_000_003 * 0.001 if timed else None
            label: Label = f"record {number}", rng.choice(CLASSES), at
            earlier = [one for one in self.labels[-20:] if one[2] is not None]
            if timed and earlier and rng.random() < 0.2:
                label = rng.choice(earlier)
            self.labels.append(label)
            lines.append(label_line(label, len(self.labels)))
        return lines

    def bad_label(self, which: int) -> bytes:
        """Return a label that must be rejected."""
        reason = sorted(BAD_LABELS)[which % len(BAD_LABELS)]
        self.rejected[reason] += 1
        return BAD_LABELS[reason] % self.rejected.total()

    def repeated_line(self, which: int) -> bytes:
        """Return an earlier record with an id; empty while there is none."""
        if self.written == 0:
            return b""
        self.rejected["duplicate_id"] += 1
        return b'{"n": %d, ' % self.rejected.total() + line_of(which % self.written // 4 * 4)[1:]
