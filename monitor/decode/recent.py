"""What the latest records of a model look like, so that hints come when something is wrong and go when it is put right."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.decode.hints import IN_A_FILE_OF_SETTINGS, Tally
from monitor.decode.layout import Kind
from monitor.decode.times import TimeRules
from monitor.decode.vectors import ACCEPTED, Codes, Floats, Singles

RECENT = 500
"""Records over which hints are drawn."""

_FEWEST_TIMES = 20


@dataclass(slots=True)
class Recent:
    """The latest records of one model."""

    kind: Kind
    times: TimeRules
    _vectors: deque[tuple[Floats, Codes, Singles]] = field(default_factory=deque)
    _refused_times: deque[tuple[int, list[object]]] = field(default_factory=deque)
    _hints: tuple[str, ...] | None = ()

    def add(self, rows: Floats, codes: Codes, probabilities: Singles, refused_times: Sequence[object]) -> None:
        """Take vectors as they were given, what the rules said on them and made of them, and times that were refused."""
        # Copies, so that a few rows do not keep the memory of all of them.
        last = slice(max(0, len(rows) - RECENT), None)
        self._vectors.append((rows[last].copy(), codes[last].copy(), probabilities[last].copy()))
        while (
            len(self._vectors) > 1 and sum(len(one) for one, _, _ in self._vectors) - len(self._vectors[0][0]) >= RECENT
        ):
            self._vectors.popleft()
        self._refused_times.append((len(rows), list(refused_times[-RECENT:])))
        while (
            len(self._refused_times) > 1
            and sum(count for count, _ in self._refused_times) - self._refused_times[0][0] >= RECENT
        ):
            self._refused_times.popleft()
        self._hints = None

    def hints(self) -> tuple[str, ...]:
        """Return what to tell the operator."""
        if self._hints is None:
            self._hints = (*self._hints_on_vectors(), *self._hints_on_times())
        return self._hints

    def _hints_on_vectors(self) -> tuple[str, ...]:
        rows, codes, probabilities = (np.concatenate(parts)[-RECENT:] for parts in zip(*self._vectors, strict=True))
        tally = Tally(self.kind)
        tally.add(rows, codes)
        return tally.hints(probabilities[codes == ACCEPTED], IN_A_FILE_OF_SETTINGS)

    def _hints_on_times(self) -> tuple[str, ...]:
        refused = [value for _, values in self._refused_times for value in values]
        if len(refused) < _FEWEST_TIMES or (unit := self.times.unit_like(refused)) is None:
            return ()
        names = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
        return (f"times look like {names.get(unit, unit)}: set time_unit: {unit}",)
