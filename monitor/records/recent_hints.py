"""What the latest records of a model look like, so that hints come when something is wrong and go when it is put right."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.records.hints import IN_A_FILE_OF_SETTINGS, Tally, Wording
from monitor.records.layout import OutputKind
from monitor.records.times import TimeRules
from monitor.records.vectors import ACCEPTED, Codes, Floats, Singles

RECENT = 500
"""Records over which hints are drawn."""

_FEWEST_TIMES = 20
_FEW = 20


@dataclass(slots=True)
class Recent:
    """The latest records of one model."""

    kind: OutputKind
    times: TimeRules
    wording: Wording = IN_A_FILE_OF_SETTINGS
    _vectors: deque[tuple[Floats, Codes, Singles]] = field(default_factory=deque)
    _held_vectors: int = 0
    _refused_times: deque[tuple[int, list[object]]] = field(default_factory=deque)
    _held_times: int = 0
    _hints: tuple[str, ...] = ()
    _since: int = 0
    """Records that came since the hints were drawn."""

    def add(
        self, count: int, rows: Floats, codes: Codes, probabilities: Singles, refused_times: Sequence[object]
    ) -> None:
        """Take the last few of some records: vectors as they were given, what the rules said on them and made of them.

        Times that were refused are taken too.
        """
        # Copies, so that a few rows do not keep the memory of all of them.
        self._vectors.append((rows, codes.copy(), probabilities.copy()))
        self._held_vectors += len(rows)
        while self._held_vectors - len(self._vectors[0][0]) >= RECENT:
            self._held_vectors -= len(self._vectors.popleft()[0])
        self._refused_times.append((count, list(refused_times[-RECENT:])))
        self._held_times += count
        while self._held_times - self._refused_times[0][0] >= RECENT:
            self._held_times -= self._refused_times.popleft()[0]
        self._since += count

    def hints(self) -> tuple[str, ...]:
        """Return what to tell the operator; drawn anew every few records, since a file may hold a single one."""
        if self._since >= _FEW:
            self._hints = (*self._hints_on_vectors(), *self._hints_on_times())
            self._since = 0
        return self._hints

    def _hints_on_vectors(self) -> tuple[str, ...]:
        rows, codes, probabilities = (np.concatenate(parts)[-RECENT:] for parts in zip(*self._vectors, strict=True))
        tally = Tally(self.kind)
        tally.add(rows, codes)
        return tally.hints(probabilities[codes == ACCEPTED], self.wording)

    def _hints_on_times(self) -> tuple[str, ...]:
        refused = [value for _, values in self._refused_times for value in values]
        if len(refused) < _FEWEST_TIMES or (unit := self.times.unit_like(refused)) is None:
            return ()
        names = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
        option = self.wording.time_unit.format(unit)
        return (f"times look like {names.get(unit, unit)}: {self.wording.verb} {option}",)
