"""Why a record, or a whole file, was refused: a closed list of reasons, counted, with the first few told in full."""

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np

from monitor.errors import InvalidInput

DETAILS = 5
"""Rejections told in full; the others are only counted, so that a file of nothing else needs no more memory."""

_SHOWN_CHARACTERS = 40


class Reason(StrEnum):
    """Why something was refused. The names are public: they appear in messages and, later, as label values."""

    NOT_FINITE = "not_finite"
    """A number is NaN or infinite."""
    NEGATIVE = "negative"
    """A probability is below 0."""
    ABOVE_ONE = "above_one"
    """A probability is above 1."""
    BAD_SUM = "bad_sum"
    """The probabilities do not sum to 1, by more than rounding explains."""
    WRONG_K = "wrong_k"
    """The vector has another number of classes than it should have."""
    NOT_A_VECTOR = "not_a_vector"
    """There is a single number, or numbers nested too deep, where a vector belongs."""
    EMPTY = "empty"
    """The vector, or the message, holds nothing."""
    WRONG_TYPE = "wrong_type"
    """A value is a text, a truth value, null or something else that is no number."""
    MISSING_FIELD = "missing_field"
    """A field or column that is needed is not there."""
    UNKNOWN_CLASS = "unknown_class"
    """The class names of a record or file are not those that were expected."""
    OUT_OF_RANGE = "out_of_range"
    """A number, or a number of classes, is absurdly large."""
    LABEL_OUT_OF_RANGE = "label_out_of_range"
    """The label is neither the name nor the index of a class."""
    BAD_ENCODING = "bad_encoding"
    """The text is not UTF-8."""
    NUL_BYTES = "nul_bytes"
    """The line holds zero bytes: its writer stopped half way, or left padding."""
    BAD_JSON = "bad_json"
    """The text is not JSON."""
    LINE_TOO_LONG = "line_too_long"
    """The line is too long to be a record."""
    TOO_DEEP = "too_deep"
    """The JSON is nested too deep."""
    BAD_CSV = "bad_csv"
    """The row has more or fewer cells than the header, or broken quotes."""
    NOT_JSONL = "not_jsonl"
    """The file is JSON over several lines, or something else, instead of one object a line."""
    BAD_HEADER = "bad_header"
    """The file's header lacks what is needed, or contradicts the file."""
    BAD_FILE = "bad_file"
    """The file is damaged, cut short, or not of the format its name says."""
    PICKLE = "pickle"
    """The array holds Python objects, and reading those may run code."""
    TOO_LARGE = "too_large"
    """The file or message would need absurdly much memory."""
    UNKNOWN_MODEL = "unknown_model"
    """The record names a model that is not configured."""
    BAD_SEGMENT = "bad_segment"
    """The value of a field that splits records is no text, too long, or holds other characters than letters, digits and a few signs."""
    BAD_TIMESTAMP = "bad_timestamp"
    """The time is no time: negative, not a number, in another unit than seconds, or without a zone."""
    DUPLICATE_ID = "duplicate_id"
    """A record with this id was counted before."""
    PARTIAL_TAIL = "partial_tail"
    """The last line of a file has had no newline for a long time; it is read as soon as it gets one."""
    BAD_BASE64 = "bad_base64"
    """Packed numbers are no base64."""
    BAD_BATCH = "bad_batch"
    """A column of a batch of records has another length than the batch."""


@dataclass(frozen=True, slots=True)
class RejectionProblem:
    """What is wrong with a value, wherever it stands."""

    reason: Reason
    expected: str
    found: str

    def at(self, place: str) -> "Rejection":
        """Return this problem as the rejection of the record at a place."""
        return Rejection(place, self.reason, self.expected, self.found)

    def of_file(self, path: Path | str) -> "RefusedFile":
        """Return this problem as the failure of a whole file, to be raised."""
        return RefusedFile(self.reason, str(self.at(str(path))))


class RefusedFile(InvalidInput):
    """A file that as a whole cannot be used."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refused record."""

    place: str
    """The physical line of a text file, or the row of an array; both count from 1."""
    reason: Reason
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the sentence for the user."""
        return f"{self.place}: expected {self.expected}, found {self.found} ({self.reason})"


@dataclass(slots=True)
class Rejections:
    """All refused records: how many for which reason, and the first few in file order."""

    counts: Counter[Reason] = field(default_factory=Counter)
    _first: list[tuple[int, Rejection]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Number of refused records."""
        return self.counts.total()

    @property
    def first(self) -> tuple[Rejection, ...]:
        """The first refused records, in the order of the file."""
        return tuple(rejection for _, rejection in self._first)

    def __str__(self) -> str:
        """Return the sentences for the user: the first few in full, and how many more there are."""
        more = self.total - len(self._first)
        lines = [
            f"{self.total:,} bad record{'' if self.total == 1 else 's'}",
            *(f"  {rejection}" for rejection in self.first),
        ]
        return "\n".join([*lines, f"  and {more:,} more: {self.by_reason()} in all"] if more else lines)

    def by_reason(self) -> str:
        """Return how many there are for each reason, the most frequent first."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.counts.most_common())

    def wants(self, number: int) -> bool:
        """Tell whether a rejection at this line or row would be among the first."""
        return len(self._first) < DETAILS or number < self._first[-1][0]

    def add(self, number: int, rejection: Rejection) -> None:
        """Count one rejection, and keep it if it is among the first."""
        self.counts[rejection.reason] += 1
        if self.wants(number):
            insort(self._first, (number, rejection), key=lambda ranked: ranked[0])
            del self._first[DETAILS:]


def shown(value: object) -> str:
    """Return a value as messages show it: short, and never a whole record."""
    if isinstance(value, np.generic):
        value = value.item()
    # A huge integer has no text at all beyond 4,300 digits, and a long list takes long to write out.
    if isinstance(value, list | tuple | dict):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a huge integer"
    text = repr(value[: _SHOWN_CHARACTERS + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def said(error: Exception) -> str:
    """Return what another library says of a file, cut short: some quote the file at length."""
    text = str(error).partition("\n")[0]
    return text if len(text) <= 2 * _SHOWN_CHARACTERS else f"{text[: 2 * _SHOWN_CHARACTERS]}…"


def listed(names: "list[str] | tuple[str, ...]", most: int = 5) -> str:
    """Return names as messages list them: the first few, and how many more."""
    some = ", ".join(
        name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…" for name in names[:most]
    )
    return f"{some} and {len(names) - most} more" if len(names) > most else some
