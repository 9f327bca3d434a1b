"""Hints: the probable cause when many records of a file or stream break the same rule. Nothing is converted on a guess."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.records.columns import TimeRules
from monitor.records.record_schema import OutputKind
from monitor.records.rejections import Reason
from monitor.records.vectors import ACCEPTED, Codes, Floats, Singles, code_of, sum_tolerance

_FEWEST = 20
"""Fewer records give no hint: following a hint from one bad record would break all others."""

_SHARE_OF_REJECTED = 0.5
_SHARE_OF_ALL = 0.1
_SHARE_ONE_HOT = 0.95


@dataclass(frozen=True, slots=True)
class Wording:
    """How to write an option: on the command line, or in the configuration."""

    verb: str
    option: str
    time_unit: str
    class_columns: str

    def of(self, kind: str) -> str:
        """Return the option for an output kind."""
        return self.option.format(kind)


COMMAND_LINE = Wording("add", "--kind {}", "--time-unit {}", "--class-columns 'prob_*'")
CONFIG_FILE = Wording("set", "kind: {}", "time_unit: {}", "class_columns: ['prob_*']")


@dataclass(slots=True)
class Tally:
    """Counts vectors that look like another output kind."""

    kind: OutputKind
    seen: int = 0
    rejected: int = 0
    like_logits: int = 0
    like_percent: int = 0
    like_logprob: int = 0
    like_probs: int = 0

    def add(self, rows: Floats, codes: Codes) -> None:
        """Count vectors of equal length, as given, with the codes of the rules."""
        self.seen += len(rows)
        rejected = codes != 0
        self.rejected += int(np.count_nonzero(rejected))
        if self.kind is not OutputKind.PROBS:
            # Softmax accepts probabilities as logits, so accepted rows count too.
            inspected = rows if self.kind is OutputKind.LOGITS else rows[rejected]
            self.like_probs += _count_like_probs(inspected) if rows.shape[1] > 1 else 0
            return
        if not rejected.any():
            return
        outside = np.isin(codes, [code_of(Reason.NEGATIVE), code_of(Reason.ABOVE_ONE), code_of(Reason.NOT_FINITE)])
        odd = rows[outside]
        odd = odd[~(np.isnan(odd) | np.isposinf(odd)).any(axis=1)]
        with np.errstate(all="ignore"):
            tolerance = sum_tolerance(rows.shape[1])
            percent = (odd >= 0.0).all(axis=1) & (np.abs(odd.sum(axis=1) / 100.0 - 1.0) <= tolerance)
            logprob = (odd <= 0.0).all(axis=1) & (np.abs(np.exp(odd).sum(axis=1) - 1.0) <= tolerance)
        self.like_percent += int(np.count_nonzero(percent))
        self.like_logprob += int(np.count_nonzero(logprob))
        self.like_logits += int(np.count_nonzero(~percent & ~logprob & np.isfinite(odd).all(axis=1)))

    def hints(self, probabilities: Singles, wording: Wording = COMMAND_LINE) -> tuple[str, ...]:
        """Return the hints on all counted vectors; `probabilities` are the accepted ones."""
        found = []
        counts = {"logits": self.like_logits, "percent": self.like_percent, "logprob": self.like_logprob}
        kind, count = max(counts.items(), key=lambda item: item[1])
        if count >= _FEWEST and count > _SHARE_OF_REJECTED * self.rejected and count >= _SHARE_OF_ALL * self.seen:
            name = {"percent": "percentages", "logprob": "log-probabilities"}.get(kind, kind)
            found.append(f"looks like {name}: {wording.verb} {wording.of(kind)}")
        of = self.seen if self.kind is OutputKind.LOGITS else self.rejected
        count = self.like_probs
        if count >= _FEWEST and count > _SHARE_OF_REJECTED * of and count >= _SHARE_OF_ALL * self.seen:
            option = f"{wording.of(OutputKind.PROBS)} instead of {wording.of(self.kind)}"
            found.append(f"looks like probabilities: {wording.verb} {option}")
        found.extend(self._hints_on_accepted(probabilities))
        return tuple(found)

    def _hints_on_accepted(self, probabilities: Singles) -> list[str]:
        if len(probabilities) < _FEWEST or not probabilities.size:
            return []
        found = []
        # Saturated logits give exactly 1 in float32. No record has two such numbers.
        one_hot = np.count_nonzero(probabilities == 1.0) if self.kind is not OutputKind.LOGITS else 0
        if one_hot > _SHARE_ONE_HOT * len(probabilities):
            found.append("an argmax seems to have been logged: nearly every record gives one class all probability")
        if (probabilities == probabilities[0]).all():
            found.append("constant output: every record holds the same probabilities")
        return found


def _count_like_probs(rows: Floats) -> int:
    with np.errstate(all="ignore"):
        inside = (rows >= 0.0).all(axis=1) & (rows <= 1.0).all(axis=1)
        return int(np.count_nonzero(inside & (np.abs(rows.sum(axis=1) - 1.0) <= sum_tolerance(rows.shape[1]))))


RECENT = 500
"""Records from which hints are drawn."""

_FEWEST_TIMES = 20
_FEW = 20


@dataclass(slots=True)
class RecentRecords:
    """The latest records of one model."""

    kind: OutputKind
    times: TimeRules
    wording: Wording = CONFIG_FILE
    _vectors: deque[tuple[Floats, Codes, Singles]] = field(default_factory=deque)
    _held_vectors: int = 0
    _rejected_times: deque[tuple[int, list[object]]] = field(default_factory=deque)
    _held_times: int = 0
    _hints: tuple[str, ...] = ()
    _since: int = 0
    """Records since the hints were drawn."""

    def add(
        self, count: int, rows: Floats, codes: Codes, probabilities: Singles, rejected_times: Sequence[object]
    ) -> None:
        """Add the last records of a block: their vectors as given, the codes, the probabilities, and rejected times."""
        # Copies: a view would keep the whole block in memory.
        self._vectors.append((rows, codes.copy(), probabilities.copy()))
        self._held_vectors += len(rows)
        while self._held_vectors - len(self._vectors[0][0]) >= RECENT:
            self._held_vectors -= len(self._vectors.popleft()[0])
        self._rejected_times.append((count, list(rejected_times[-RECENT:])))
        self._held_times += count
        while self._held_times - self._rejected_times[0][0] >= RECENT:
            self._held_times -= self._rejected_times.popleft()[0]
        self._since += count

    def hints(self) -> tuple[str, ...]:
        """Return the hints, drawn again every few records."""
        if self._since >= _FEW:
            self._hints = (*self._hints_on_vectors(), *self._hints_on_times())
            self._since = 0
        return self._hints

    def _hints_on_vectors(self) -> tuple[str, ...]:
        rows, codes, probabilities = (np.concatenate(parts)[-RECENT:] for parts in zip(*self._vectors, strict=True))
        tally = Tally(self.kind)
        tally.add(rows, codes)
        return tally.hints(probabilities[codes == ACCEPTED] if tally.rejected else probabilities, self.wording)

    def _hints_on_times(self) -> tuple[str, ...]:
        rejected = [value for _, values in self._rejected_times for value in values]
        if len(rejected) < _FEWEST_TIMES or (unit := self.times.unit_like(rejected)) is None:
            return ()
        names = {"ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
        option = self.wording.time_unit.format(unit)
        return (f"times look like {names.get(unit, unit)}: {self.wording.verb} {option}",)
