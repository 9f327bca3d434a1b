"""Hints: the probable cause when many records of a file or stream break the same rule. Nothing is converted on a guess."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from monitor.records.layout import OutputKind
from monitor.records.rejections import Reason
from monitor.records.times import TimeRules
from monitor.records.vectors import ACCEPTED, Codes, Floats, Singles, code_of, sum_tolerance

_FEWEST = 20
"""Records below which nothing is said: following a hint drawn from one bad record would spoil all others."""

_SHARE_OF_REJECTED = 0.5
_SHARE_OF_ALL = 0.1
_SHARE_ONE_HOT = 0.95


@dataclass(frozen=True, slots=True)
class Wording:
    """How a reader is told to declare what seems to be meant."""

    verb: str
    option: str
    time_unit: str
    class_columns: str

    def of(self, kind: str) -> str:
        """Return what declares a kind."""
        return self.option.format(kind)


ON_THE_COMMAND_LINE = Wording("add", "--kind {}", "--time-unit {}", "--class-columns 'prob_*'")
IN_A_FILE_OF_SETTINGS = Wording("set", "kind: {}", "time_unit: {}", "class_columns: ['prob_*']")


@dataclass(slots=True)
class Tally:
    """Counts what the vectors of a file look like, one piece at a time."""

    kind: OutputKind
    seen: int = 0
    refused: int = 0
    like_logits: int = 0
    like_percent: int = 0
    like_logprob: int = 0
    like_probs: int = 0

    def add(self, rows: Floats, codes: Codes) -> None:
        """Count some vectors of equal length, as they were given, with what the rules said."""
        self.seen += len(rows)
        refused = codes != 0
        self.refused += int(np.count_nonzero(refused))
        if self.kind is not OutputKind.PROBS:
            # Softmax takes probabilities for logits without complaint, so all rows must be looked at.
            looked_at = rows if self.kind is OutputKind.LOGITS else rows[refused]
            self.like_probs += _count_like_probs(looked_at) if rows.shape[1] > 1 else 0
            return
        if not refused.any():
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

    def hints(self, probabilities: Singles, wording: Wording = ON_THE_COMMAND_LINE) -> tuple[str, ...]:
        """Return what to tell the user on all vectors counted, given the accepted ones."""
        found = []
        counts = {"logits": self.like_logits, "percent": self.like_percent, "logprob": self.like_logprob}
        kind, count = max(counts.items(), key=lambda item: item[1])
        if count >= _FEWEST and count > _SHARE_OF_REJECTED * self.refused and count >= _SHARE_OF_ALL * self.seen:
            name = {"percent": "percentages", "logprob": "log-probabilities"}.get(kind, kind)
            found.append(f"looks like {name}: {wording.verb} {wording.of(kind)}")
        of = self.seen if self.kind is OutputKind.LOGITS else self.refused
        count = self.like_probs
        if count >= _FEWEST and count > _SHARE_OF_REJECTED * of and count >= _SHARE_OF_ALL * self.seen:
            option = f"{wording.of(OutputKind.PROBS)} instead of {wording.of(self.kind)}"
            found.append(f"looks like probabilities: {wording.verb} {option}")
        found.extend(self._hints_on_accepted(probabilities))
        return tuple(found)

    def _hints_on_accepted(self, probabilities: Singles) -> list[str]:
        if len(probabilities) < _FEWEST:
            return []
        found = []
        # Saturated logits are 1 in float32 without anybody having logged an argmax.
        one_hot = np.count_nonzero(probabilities.max(axis=1) == 1.0) if self.kind is not OutputKind.LOGITS else 0
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
