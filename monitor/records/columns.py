"""Builders of string and id columns from decoded values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.core.record_columns import Texts
from monitor.records.vectors import Booleans, Indices

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
            return None


def shortest(number: np.floating[Any]) -> float:
    """Return a float of lower precision by its shortest representation: 2.1, not 2.0999999046325684."""
    return float(str(number))


def is_segment(text: str) -> bool:
    """Return whether a string is a valid segment value."""
    return _SEGMENT.fullmatch(text) is not None


@dataclass(slots=True)
class TextColumn:
    """Builds a dictionary-encoded string column."""

    _places: dict[object, int] = field(default_factory=dict)
    _texts: list[str] = field(default_factory=list)
    _codes: list[NDArray[np.int64]] = field(default_factory=list)
    _wrong: list[int] = field(default_factory=list)
    """Codes of invalid values."""

    def add(self, values: Values | None, count: int) -> None:
        """Add the values of `count` records; None if the column is absent."""
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
    """Builds an id column; empty string for a record without an id."""

    ids: list[str] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    """Rows with an invalid id."""

    def add(self, values: Values | None, count: int) -> None:
        """Add the values of `count` records; None if the column is absent."""
        if values is None:
            self.ids.extend(repeat("", count))
            return
        types = set(map(type, values))
        if types == {str}:
            self.ids.extend(values)  # type: ignore[arg-type]
            return
        if types == {type(None)}:
            self.ids.extend(repeat("", count))
            return
        before = len(self.ids)
        texts = [text_of(value, floats=False) for value in values]
        self.wrong.extend(before + place for place, text in enumerate(texts) if text is None)
        self.ids.extend(text or "" for text in texts)


def compact(column: Texts, rows: Indices) -> Texts:
    """Return the column of some rows, without unused values."""
    used, codes = np.unique(column.codes[rows], return_inverse=True)
    return Texts(tuple(column.values[place] for place in used.tolist()), codes.reshape(-1))
