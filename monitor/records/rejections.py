"""Rejections of records and files: the closed list of reasons, counts, and the location of some."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np

from monitor.errors import InvalidInput, Problem

DETAILS = 5
"""Rejections explained in full; the others are only counted."""

MOST_POINTERS = 2_000
"""Locations kept of each piece."""

_SHOWN_CHARACTERS = 40


class Reason(StrEnum):
    """Reasons for a rejection. The names are public: messages and label values."""

    NOT_FINITE = "not_finite"
    """A number is NaN or infinite."""
    NEGATIVE = "negative"
    """A probability is below 0."""
    ABOVE_ONE = "above_one"
    """A probability is above 1."""
    BAD_SUM = "bad_sum"
    """The probabilities do not sum to 1."""
    WRONG_K = "wrong_k"
    """The vector has the wrong number of classes."""
    NOT_A_VECTOR = "not_a_vector"
    """A single number, or nested numbers, instead of a vector."""
    EMPTY = "empty"
    """The vector or message is empty."""
    WRONG_TYPE = "wrong_type"
    """A value is not a number."""
    MISSING_FIELD = "missing_field"
    """A required field or column is missing."""
    UNKNOWN_CLASS = "unknown_class"
    """The class names of a record or file are not those of the reference."""
    OUT_OF_RANGE = "out_of_range"
    """A number, or the number of classes, is too large."""
    LABEL_OUT_OF_RANGE = "label_out_of_range"
    """The label is neither the name nor the index of a class."""
    UNKNOWN_LABEL = "unknown_label"
    """The label is not a class of the reference."""
    NO_ID = "no_id"
    """A label without the id of its prediction."""
    BAD_ENCODING = "bad_encoding"
    """The text is not UTF-8."""
    NUL_BYTES = "nul_bytes"
    """The line contains NUL bytes, from a partial write or padding."""
    BAD_JSON = "bad_json"
    """The text is not JSON."""
    LINE_TOO_LONG = "line_too_long"
    """The line is too long to be a record."""
    TOO_DEEP = "too_deep"
    """The JSON is nested too deep."""
    BAD_CSV = "bad_csv"
    """The row has more or fewer cells than the header, or broken quotes."""
    NOT_JSONL = "not_jsonl"
    """The file is not JSON Lines: not one object per line."""
    BAD_HEADER = "bad_header"
    """The header lacks required columns, or contradicts the file."""
    BAD_FILE = "bad_file"
    """The file is damaged, truncated, or not of the format of its name."""
    PICKLE = "pickle"
    """The array contains Python objects; unpickling them may run code."""
    TOO_LARGE = "too_large"
    """The file or message would need too much memory."""
    UNKNOWN_MODEL = "unknown_model"
    """The record names a model that is not configured."""
    BAD_SEGMENT = "bad_segment"
    """A segment value is not a string, is too long, or has invalid characters."""
    BAD_TIMESTAMP = "bad_timestamp"
    """The time is negative, not a number, in another unit, or without a time zone."""
    DUPLICATE_ID = "duplicate_id"
    """A record with this id was counted before."""
    PARTIAL_TAIL = "partial_tail"
    """The last line of a file has had no newline for a long time."""
    BAD_BASE64 = "bad_base64"
    """Packed numbers are not base64."""
    BAD_BATCH = "bad_batch"
    """A column of a packed batch has the wrong length."""

    # Enum's own is slow, and reasons are keys for each rejected record.
    __hash__ = str.__hash__


EXPECTED: dict[Reason, str] = dict.fromkeys(Reason, "a valid record") | {
    Reason.EMPTY: "a record",
    Reason.WRONG_TYPE: "a string or an integer as id, and a string or a number as version",
    Reason.MISSING_FIELD: "the name of the record's model",
    Reason.NO_ID: "the id of the prediction",
    Reason.LINE_TOO_LONG: "a shorter line",
    Reason.TOO_LARGE: "a smaller message, or fewer records in it",
    Reason.UNKNOWN_MODEL: "the name of a configured model",
    Reason.BAD_SEGMENT: "segments of at most 64 ASCII letters, digits, spaces or _ . : / -",
    Reason.BAD_BATCH: "one value for all records of the batch, or one per record",
}
"""What is expected of a record that is rejected with a reason only."""


class RejectionProblem(NamedTuple):
    """A problem with a value."""

    reason: Reason
    expected: str
    found: str

    def at(self, place: str) -> "Rejection":
        """Return this problem as the rejection of a record."""
        return Rejection(place, self.reason, self.expected, self.found)

    def of_file(self, path: Path | str) -> "RejectedFile":
        """Return this problem as the error of a whole file."""
        return RejectedFile(self.reason, Problem(str(path), self.expected, self.found))


class RejectedFile(InvalidInput):
    """A file that cannot be used at all."""

    def __init__(self, reason: Reason, problem: Problem) -> None:
        super().__init__(f"{problem} ({reason})")
        self.reason = reason
        self.problem: Problem = problem


@dataclass(frozen=True, slots=True)
class Rejection:
    """One rejected record."""

    place: str
    """The line or row, from 1."""
    reason: Reason
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the message."""
        return f"{self.place}: expected {self.expected}, found {self.found} ({self.reason})"


class RejectedRecord(NamedTuple):
    """The location of a rejected record."""

    number: int
    """Its line or row in the file, from 1."""
    reason: Reason
    start: int = -1
    """Start and end of its line in the piece; negative if records are not lines."""
    end: int = -1
    expected: str = ""
    """See `Pointer.expected`."""


@dataclass(slots=True)
class Rejections:
    """Rejected records: counts by model and reason, and the location of the last ones or the explanation of the first."""

    unit: str | None = None
    """What the records are in explanations, `line` or `row`; None to keep locations instead."""
    counts: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """By model, which is empty if it is unknown."""
    _first: list[tuple[int, Rejection]] = field(default_factory=list)
    _last: list[RejectedRecord] = field(default_factory=list)

    def add(self, model: str, rejected: RejectedRecord, problem: RejectionProblem | Reason) -> None:
        """Count a rejected record."""
        self.counts[model, rejected.reason] += 1
        if self.unit is not None:
            if isinstance(problem, RejectionProblem):
                self._explain(rejected.number, problem.at(f"{self.unit} {rejected.number}"))
            return
        self._last.append(rejected)
        if len(self._last) > 4 * MOST_POINTERS:
            self._last = self.last()

    def count(self, model: str, reason: Reason, records: int) -> None:
        """Count rejected records without keeping their locations."""
        if records > 0:
            self.counts[model, reason] += records

    def update(self, counts: Counter[tuple[str, Reason]], first: Iterable[tuple[int, Rejection]]) -> None:
        """Add the rejections of another piece of the file."""
        self.counts.update(counts)
        for number, rejection in first:
            self._explain(number, rejection)

    def _explain(self, number: int, rejection: Rejection) -> None:
        if len(self._first) < DETAILS or number < self._first[-1][0]:
            insort(self._first, (number, rejection), key=lambda ranked: ranked[0])
            del self._first[DETAILS:]

    def last(self) -> list[RejectedRecord]:
        """Return the locations of the last rejected records, in file order."""
        # Unsorted: some rules apply line by line, others to many lines at once.
        return sorted(self._last)[-MOST_POINTERS:]

    @property
    def numbered_first(self) -> tuple[tuple[int, Rejection], ...]:
        """The first rejected records with their line or row, in file order."""
        return tuple(self._first)

    @property
    def first(self) -> tuple[Rejection, ...]:
        """The first rejected records, in file order."""
        return tuple(rejection for _, rejection in self._first)

    @property
    def total(self) -> int:
        """Number of rejected records."""
        return self.counts.total()

    def __str__(self) -> str:
        """Return the message: the first few in full, and the number of the others."""
        more = self.total - len(self._first)
        lines = [
            f"{self.total:,} bad record{'' if self.total == 1 else 's'}",
            *(f"  {rejection}" for rejection in self.first),
        ]
        return "\n".join([*lines, f"  and {more:,} more: {self.by_reason()} in all"] if more else lines)

    @property
    def reasons(self) -> Counter[Reason]:
        """The counts by reason."""
        counts: Counter[Reason] = Counter()
        for (_, reason), count in self.counts.items():
            counts[reason] += count
        return counts

    def by_reason(self) -> str:
        """Return the counts by reason, the most frequent first."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.most_common())


def preview(value: object) -> str:
    """Return a value for a message, truncated."""
    if isinstance(value, np.generic):
        value = value.item()
    # Python does not convert integers of more than 4,300 digits, and long lists are slow to format.
    if isinstance(value, list | tuple | dict):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a huge integer"
    text = repr(value[: _SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def library_message(error: Exception) -> str:
    """Return the message of a library's error, truncated: some quote the file."""
    text = str(error).partition("\n")[0]
    return text if len(text) <= 2 * _SHOWN_CHARACTERS else f"{text[: 2 * _SHOWN_CHARACTERS]}…"


def listed(names: "list[str] | tuple[str, ...]", most: int = 5) -> str:
    """Return names for a message: the first few, and the number of the others."""
    some = ", ".join(
        name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…" for name in names[:most]
    )
    return f"{some} and {len(names) - most} more" if len(names) > most else some
