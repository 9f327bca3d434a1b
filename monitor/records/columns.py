"""Columns from decoded values: strings, ids, times, labels."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import reduce
from math import isfinite
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from monitor.core.labels.audit import audited
from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.record_columns import Texts
from monitor.records.id_hash import LONGEST, hash_ids, hash_texts
from monitor.records.record_schema import TimeUnit, numbered
from monitor.records.rejections import Reason, RejectionProblem, listed, preview
from monitor.records.vectors import ACCEPTED, Booleans, Codes, Floats, Indices, code_of, floats_of, numbers_at

Values = Sequence[object]
"""A decoded column: strings, numbers, and None for a missing value."""

_SEGMENT = re.compile(r"[A-Za-z0-9_.:/ -]{0,64}")
_LONGEST_INTEGER_BITS = 256


def text_of(value: object, *, floats: bool = True) -> str | None:
    """Return a value as a string: empty for None; None for anything but strings and finite numbers."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return None
        case int():
            # Python does not convert integers of more than 4,300 digits.
            return str(value) if value.bit_length() <= _LONGEST_INTEGER_BITS else None
        case float() if floats:
            return repr(value) if isfinite(value) else None
        case _:
            return "" if value is UNSET else None


def shortest(number: np.floating[Any]) -> float:
    """Return a float of lower precision by its shortest representation: 2.1, not 2.0999999046325684."""
    return float(str(number))


def is_segment(text: str) -> bool:
    """Return whether a string is a valid segment value."""
    return _SEGMENT.fullmatch(text) is not None


_LONGEST_TEXT = 64

SPARE_BYTES = _LONGEST_TEXT + 8

_FEW_TEXTS = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)

# Keeps the first 0 to 8 bytes of a little-endian word.
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class TextSlices:
    """A column of strings that are parts of a buffer, in UTF-8; empty for a missing value."""

    data: bytearray
    """With SPARE_BYTES more at its end."""
    starts: Indices
    lengths: Indices

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self.starts)

    def taken(self, rows: Indices) -> "TextSlices":
        """Return the column of some rows."""
        return TextSlices(self.data, self.starts[rows], self.lengths[rows])

    def text(self, row: int) -> str:
        """Return one string."""
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].decode("utf-8", "surrogatepass")

    def texts(self) -> Texts | None:
        """Return the column, dictionary-encoded in order of appearance; None if it must be done by Python."""
        longest = int(self.lengths.max(initial=0))
        if longest > _LONGEST_TEXT:
            return None
        if longest <= 8:
            parts = [numbers_at(self.data, self.starts, "<u8") & _FIRST_BYTES[self.lengths]]
        else:
            parts = [
                numbers_at(self.data, self.starts + place, "<u8") & _FIRST_BYTES[np.clip(self.lengths - place, 0, 8)]
                for place in range(0, longest, 8)
            ]
        if all((part == part[0]).all() for part in (self.lengths, *parts)):
            return Texts((self._text(0),), np.zeros(len(self), dtype=np.int64))
        mixed = reduce(lambda numbers, part: numbers * _MIX + part, parts)
        codes, firsts = _grouped(mixed)
        # Different strings may be mixed to the same number, though hardly by chance.
        compared = [self.lengths, *parts] if len(parts) > 1 else [self.lengths]
        if any((part != part[firsts][codes]).any() for part in compared):
            return None
        return Texts(tuple(self._text(first) for first in firsts.tolist()), codes)

    def _text(self, row: int) -> str:
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].decode()


def _grouped(numbers: Hashes) -> tuple[Indices, Indices]:
    """Return the group of each number, and the first row of each group; groups in order of appearance."""
    codes, seen = np.zeros(len(numbers), dtype=np.int64), np.zeros(len(numbers), dtype=np.bool_)
    firsts: list[int] = []
    while len(firsts) <= _FEW_TEXTS:
        first = int(seen.argmin())
        if seen[first]:
            return codes, np.array(firsts)
        same = numbers == numbers[first]
        np.copyto(codes, len(firsts), where=same)
        seen |= same
        firsts.append(first)
    _, first_rows, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    return np.argsort(order)[inverse.reshape(-1)], first_rows[order]


@dataclass(slots=True)
class TextColumn:
    """Builds a dictionary-encoded string column."""

    _places: dict[object, int] = field(default_factory=dict)
    _texts: list[str] = field(default_factory=list)
    _codes: list[NDArray[np.int64]] = field(default_factory=list)
    _wrong: list[int] = field(default_factory=list)
    """Codes of invalid values."""

    def add(self, values: Values | Texts | None, count: int) -> None:
        """Add the values of `count` records; None if the column is absent."""
        if isinstance(values, Texts):
            places = np.array([self._place(text) for text in values.values], dtype=np.int64)
            self._codes.append(places[values.codes])
            return
        first = None if values is None else values[0]
        if values is None or (type(first) in {str, type(None)} and _are_all(first, values, count)):
            self._codes.append(np.full(count, self._place(first)))
            return
        try:
            codes = np.fromiter(map(self._places.__getitem__, values), np.int64, count)
        except (KeyError, TypeError):
            codes = self._add_new(values, count)
        self._codes.append(codes)

    def _add_new(self, values: Values, count: int) -> NDArray[np.int64]:
        if set(map(type, values)) - {str, type(None)}:
            # 1 == 1.0 as a key, but not as a string; other values may not be hashable.
            texts = [text_of(value) for value in values]
            return np.fromiter(map(self._place, (_WRONG if text is None else text for text in texts)), np.int64, count)
        for value in dict.fromkeys(values):
            self._place(value)
        return np.fromiter(map(self._places.__getitem__, values), np.int64, count)

    def _place(self, value: object) -> int:
        place = self._places.get(value)
        if place is None:
            text = "" if value is None or value is _WRONG else str(value)
            if value is None:
                place = self._place("")
            else:
                place = len(self._texts)
                self._texts.append(text)
                if value is _WRONG:
                    self._wrong.append(place)
            self._places[value] = place
        return place

    def texts(self) -> Texts:
        """Return the column."""
        return Texts(tuple(self._texts), np.concatenate(self._codes))

    def invalid_texts(self) -> Booleans | None:
        """Return which values are neither strings nor numbers; None if there are none."""
        return self._among(self._wrong)

    def invalid_segments(self) -> Booleans | None:
        """Return which values are not valid segments; None if there are none."""
        bad = [place for place, text in enumerate(self._texts) if not is_segment(text)]
        return self._among([*self._wrong, *bad])

    def _among(self, places: list[int]) -> Booleans | None:
        return np.isin(np.concatenate(self._codes), places) if places else None


_WRONG = object()


def _are_all(first: object, values: Values, count: int) -> bool:
    # Three values are compared first: most columns are constant or always change.
    return first == values[-1] == values[count // 2] and values.count(first) == count


@dataclass(slots=True)
class IdColumn:
    """Builds a column of hashed ids; NO_ID for a record without an id."""

    key: bytes
    share: float | None = None
    """Keep the ids of audited records, which are this share of all; None to keep none."""
    kept: dict[int, str] = field(default_factory=dict)
    """By hash, the kept ids."""
    wrong: list[int] = field(default_factory=list)
    """Rows with an invalid id."""
    _rows: int = 0
    _waiting: list[str] = field(default_factory=list)
    """Hashed many at a time."""
    _hashes: list[Hashes] = field(default_factory=list)

    def add(self, values: Values | TextSlices | None, count: int) -> None:
        """Add the values of `count` records; None if the column is absent."""
        if values is None or (not isinstance(values, TextSlices) and _are_all_none(values, count)):
            self._hash_waiting()
            self._hashes.append(np.full(count, NO_ID, dtype=np.uint64))
        elif isinstance(values, TextSlices):
            self._hash_waiting()
            hashes = _hashed(values, self.key)
            self._hashes.append(hashes)
            self._keep(hashes, values)
        elif set(map(type, values)) == {str}:
            self._waiting.extend(values)  # type: ignore[arg-type]
        else:
            texts = [text_of(value, floats=False) for value in values]
            self.wrong.extend(self._rows + place for place, text in enumerate(texts) if text is None)
            self._waiting.extend(text or "" for text in texts)
        self._rows += count

    def hashes(self) -> Hashes:
        """Return the column."""
        self._hash_waiting()
        return np.concatenate(self._hashes)

    def _hash_waiting(self) -> None:
        if self._waiting:
            hashes = hash_ids(self._waiting, self.key)
            if not all(self._waiting):
                hashes[[not one for one in self._waiting]] = NO_ID
            self._hashes.append(hashes)
            self._keep(hashes, self._waiting)
            self._waiting = []

    def _keep(self, hashes: Hashes, ids: TextSlices | Sequence[str]) -> None:
        """Keep the ids of audited records. Overlong ones are no ids that a person could look up."""
        if self.share is None:
            return
        for row in np.flatnonzero(audited(hashes, self.share)).tolist():
            text = ids.text(row) if isinstance(ids, TextSlices) else ids[row]
            if len(text) <= LONGEST:
                self.kept[int(hashes[row])] = text


def _hashed(ids: TextSlices, key: bytes) -> Hashes:
    hashes = hash_texts(ids.data, ids.starts, ids.lengths, key)
    hashes[ids.lengths == 0] = NO_ID
    return hashes


def _are_all_none(values: Values, count: int) -> bool:
    return values[0] is None and values.count(None) == count


def compact(column: Texts, rows: Indices) -> Texts:
    """Return the column of some rows, without unused values."""
    used, codes = np.unique(column.codes[rows], return_inverse=True)
    return Texts(tuple(column.values[place] for place in used.tolist()), codes.reshape(-1))


LATEST = 1e11
"""The year 5138, in Unix seconds. Later times are in another unit."""

# The years 2001 to 5138 in each unit.
_LIKELY = {unit: (1e9 * unit.per_second, LATEST * unit.per_second) for unit in TimeUnit}


@dataclass(frozen=True, slots=True)
class TimeRules:
    """The format of record times."""

    unit: TimeUnit = TimeUnit.SECONDS
    zone: tzinfo | None = None
    """The time zone of strings without one; None to reject them."""

    @property
    def expected(self) -> str:
        """What the rules expect."""
        return f"a time in {self.unit} since 1970, or in ISO 8601{' with a time zone' if self.zone is None else ''}"

    def read(self, values: Values | Floats | None, count: int) -> tuple[Floats, Booleans]:
        """Return the times in Unix seconds, NaN where missing, and which values are invalid; NaN in an array is missing."""
        if isinstance(values, np.ndarray):
            return self._seconds(values, np.isnan(values))
        if values is None or _are_all_none(values, count):
            return np.full(count, np.nan), np.zeros(count, dtype=np.bool_)
        if type(values[0]) is float and (floats := floats_of(values)) is not None:
            return self._seconds(floats, np.False_)
        absent = np.array([value is None for value in values], dtype=np.bool_)
        texts = {place: self._of_text(value) for place, value in enumerate(values) if isinstance(value, str)}
        numbers = _floats([value if type(value) in {int, float} else np.nan for value in values])
        seconds, wrong = self._seconds(numbers, absent)
        for place, found in texts.items():
            seconds[place] = found
            wrong[place] = not 0.0 <= found <= LATEST
        return seconds, wrong

    def unit_like(self, values: Sequence[object]) -> TimeUnit | None:
        """Return the unit that most of the rejected times seem to have, if any."""
        numbers = np.array([value for value in values if type(value) in {int, float}], dtype=np.float64)
        for unit in TimeUnit:
            low, high = _LIKELY[unit]
            if unit is not self.unit and 2 * np.count_nonzero((numbers >= low) & (numbers < high)) > len(values):
                return unit
        return None

    def _seconds(self, numbers: Floats, absent: Booleans | np.bool_) -> tuple[Floats, Booleans]:
        seconds = numbers if self.unit is TimeUnit.SECONDS else numbers / self.unit.per_second
        # NaN is wrong too.
        wrong: Booleans = ~((seconds >= 0.0) & (seconds <= LATEST)) & ~absent
        return seconds, wrong

    def _of_text(self, text: str) -> float:
        """Return the time of a string, or NaN."""
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                if self.zone is None:
                    return np.nan
                moment = moment.replace(tzinfo=self.zone)
            return moment.timestamp()
        except (ValueError, OverflowError):
            return np.nan


def _floats(values: Sequence[object]) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # an integer of hundreds of digits
        return np.array([_float(value) for value in values], dtype=np.float64)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return np.inf


Labels = NDArray[Any] | Sequence[object]

NO_CLASS = -1
"""The index of an invalid label."""

_INTEGER = re.compile(r"-?[0-9]+")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_SPELT = 20
# Some tools write an integer column with missing values as floats: 3 becomes "3.0".
_WHOLE = re.compile(r"(-?[0-9]{1,18})\.0+")


class LabelRules:
    """Converts labels into class indices."""

    def __init__(self, classes: tuple[str, ...], unknown: Reason = Reason.LABEL_OUT_OF_RANGE) -> None:
        self.classes = classes
        self._unknown = unknown
        self._unnamed = classes == numbered(len(classes))
        self._index = {name: index for index, name in enumerate(classes)}
        # With class names that are numbers, a label is always a name.
        self._may_be_index = not any(_INTEGER.fullmatch(name) for name in classes)
        self.one_past_the_last = False
        """Whether a label was K, where indices run from 0 to K - 1: a sign of labels that count from 1."""

    def index(self, label: object) -> int | RejectionProblem:
        """Return the class index of a label."""
        text = _text(label)
        if isinstance(text, RejectionProblem):
            return text
        whole = _WHOLE.fullmatch(text)
        for name in (text, whole.group(1)) if whole else (text,):
            if name in self._index:
                return self._index[name]
            if self._may_be_index and _INDEX.fullmatch(name) and int(name) < len(self.classes):
                return int(name)
            if (self._may_be_index or self._unnamed) and name == str(len(self.classes)):
                self.one_past_the_last = True
        expected = f"one of the classes {listed(self.classes)}"
        if self._unnamed and not _INTEGER.fullmatch(text):
            expected += " (set their names in vector order with --classes)"
        return RejectionProblem(self._unknown, expected, preview(label))

    def indices(self, labels: Labels) -> tuple[Indices, Codes]:
        """Return the index of each label, and the code of each rejected one."""
        if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
            distinct, inverse = np.unique(labels, return_inverse=True)
            values, positions = distinct.tolist(), inverse.reshape(-1)
        else:
            values, positions = list(labels), np.arange(len(labels))
        answers = self._answers(values)
        indices = np.array([NO_CLASS if isinstance(a, RejectionProblem) else a for a in answers], dtype=np.int64)
        codes = [code_of(a.reason) if isinstance(a, RejectionProblem) else ACCEPTED for a in answers]
        return indices[positions], np.array(codes, dtype=np.uint8)[positions]

    def counted_from_one(self) -> str:
        """Return the message that labels seem to count from 1."""
        most = len(self.classes)
        numbers = ",".join(map(str, range(1, most + 1))) if most <= _MOST_SPELT else f'"$(seq -s, 1 {most})"'
        named = f"name the classes by these numbers: --classes {numbers}" if self._unnamed else "write the class names"
        return (
            f"expected labels that count from 0 to {most - 1}, found labels from 1 to {most} and no 0:"
            f" subtract 1 from each, or {named}"
        )

    def _answers(self, values: list[object]) -> list[int | RejectionProblem]:
        known: dict[tuple[type, object], int | RejectionProblem] = {}
        answers: list[int | RejectionProblem] = []
        for value in values:
            if not isinstance(value, str | int | float):
                answers.append(self.index(value))
                continue
            # True == 1, so the key includes the type.
            key = (type(value), value)
            if key not in known:
                known[key] = self.index(value)
            answers.append(known[key])
        return answers


def _text(label: object) -> str | RejectionProblem:
    """Return a label as a string."""
    expected = "a class name or index"
    if isinstance(label, np.generic):
        label = label.item()
    match label:
        case str() | bytes() if not label:
            return RejectionProblem(Reason.MISSING_FIELD, "a label", "none")
        case str():
            return label
        case bytes():
            return label.decode("utf-8", errors="replace")
        case None | bool():
            return RejectionProblem(Reason.WRONG_TYPE, expected, {None: "null", True: "true", False: "false"}[label])
        case int() | float():
            return _text_of_number(label)
        case _:
            return RejectionProblem(Reason.WRONG_TYPE, expected, f"a value of type {type(label).__name__}")


def _text_of_number(label: float) -> str | RejectionProblem:
    if isinstance(label, int):
        # Python does not convert integers of more than 4,300 digits.
        huge = label.bit_length() > 64
        return RejectionProblem(Reason.OUT_OF_RANGE, "a class index", "a huge integer") if huge else str(label)
    if not isfinite(label):
        return RejectionProblem(Reason.WRONG_TYPE, "a class name or index", preview(label))
    return str(int(label)) if label.is_integer() and abs(label) < 2**53 else str(label)
