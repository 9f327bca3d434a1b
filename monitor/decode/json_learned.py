"""A decoder that learns the texts which come again and again: versions, sites, models.

A text that is known is not made anew for each record, and two of them are told apart without looking at their letters. That
saves about a tenth of all decoding. Nothing depends on it: what is not known is decoded by the general decoder.
"""

from collections.abc import Sequence
from typing import Any

from monitor.decode.columns import is_segment
from monitor.decode.field_paths import Path
from monitor.decode.json_struct import Columns, JsonStruct
from monitor.decode.record_format import ModelFormat, RecordFields

MOST_KNOWN = 32
"""Texts of one field that are learned; a field with more of them is not worth it."""

_MOST_LESSONS = 64
_CREDIT = 16.0
_EARNED = 0.25
"""What a success counts for, when a failure counts for one."""

# What a typed decoder may raise: its own errors and bad UTF-8, which are ValueErrors, nesting, and huge numbers.
# Not a shortage of memory, which says nothing of the record.
REFUSED = (ValueError, RecursionError, OverflowError)


class LearnedStruct:
    """The general decoder of a stream's records, and a faster one for the texts that have come so far."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        self._models = models
        self._fields = fields
        self._general = JsonStruct(models, fields)
        self._known: dict[Path, list[str]] = {path: [] for path in self._general.texts}
        self._fast: JsonStruct | None = None
        self._lessons = 0
        self._credit = _CREDIT
        self.decode = self._general.decode
        self.columns = self._general.columns

    def decode_lines(self, text: memoryview) -> list[Any]:
        """Return the records of some lines, or raise one of those that mean that a line is none."""
        if self._fast is not None:
            try:
                records: list[Any] = self._fast.decode_lines(text)
            except REFUSED:
                self._lose_credit()
            else:
                self._credit = min(_CREDIT, self._credit + _EARNED)
                return records
        records = self._general.decode_lines(text)
        if self._lessons < _MOST_LESSONS and records:
            self._learn(self._general.columns(records))
        return records

    def _lose_credit(self) -> None:
        # New texts all the time, or a bad line in every other piece: then trying twice costs more than it saves.
        self._credit -= 1.0
        if self._credit <= 0.0:
            self._fast = None
            self._lessons = _MOST_LESSONS

    def _learn(self, columns: Columns) -> None:
        changed = False
        for path, known in list(self._known.items()):
            new = set(columns[path]) - {None, *known}
            if len(known) + len(new) > MOST_KNOWN or not all(isinstance(one, str) and is_segment(one) for one in new):
                del self._known[path]
                changed = True
            elif new:
                known.extend(sorted(new))
                changed = True
        # Counted also when nothing was learned: where records hold nothing but a vector, looking for ever would be in vain.
        self._lessons += 1
        if changed:
            useful = {path: known for path, known in self._known.items() if known}
            self._fast = JsonStruct(self._models, self._fields, useful) if useful else None
