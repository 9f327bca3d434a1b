"""What a piece of a stream lost, and to what: all of it counted, and the places of the last few thousand kept."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason

MOST_POINTERS = 2_000
"""Places of refused records that are kept of each piece."""


class RejectedRecord(NamedTuple):
    """A refused record."""

    number: int
    """Its line or row in the whole file, counting from 1."""
    reason: Reason
    start: int = -1
    """Where its line starts and ends in the piece; negative where records are no lines."""
    end: int = -1


@dataclass(slots=True)
class StreamRejections:
    """The refused records of one piece."""

    counts: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    _last: list[RejectedRecord] = field(default_factory=list)

    def add(self, model: str, refused: RejectedRecord) -> None:
        """Count one refused record; the name of the model is empty where it could not be told."""
        self.counts[model, refused.reason] += 1
        self._last.append(refused)
        if len(self._last) > 4 * MOST_POINTERS:
            self._last = self._sorted()

    def count(self, model: str, reason: Reason, records: int) -> None:
        """Count refused records whose places are not kept, if there are any, since as many come after them."""
        if records > 0:
            self.counts[model, reason] += records

    def pointers(self, pointer: Callable[[RejectedRecord], Pointer]) -> tuple[Pointer, ...]:
        """Return where the last refused records stand, in the order of the file."""
        return tuple(map(pointer, self._sorted()))

    def _sorted(self) -> list[RejectedRecord]:
        # Not in order by themselves: some rules are applied line by line and others to many lines at once.
        return sorted(self._last)[-MOST_POINTERS:]


def bare_pointer(refused: RejectedRecord) -> Pointer:
    """Return the place of a record that is no line."""
    return Pointer(refused.reason, refused.number)
