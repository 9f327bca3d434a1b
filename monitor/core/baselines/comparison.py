"""What a window is compared with, and what the comparison says of its estimate and of its outputs.

The whole model is compared with its reference. A segment differs from the whole for good reasons, so it is compared with its
own labelled records where the reference has them, otherwise with its own first records. Those may be bad from the start: an
own baseline is unverified until an operator confirms it, and meanwhile also compared with the reference, at a coarse limit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isnan
from operator import is_not
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.core.baselines.output_drift import MEASURES, BaselineOutputs, Measure, shares
from monitor.core.calibration import Calibration, WindowEstimates, or_none
from monitor.core.change import (
    FEWEST_BLOCKS,
    MEMBERS,
    UNKNOWN,
    Blocks,
    Detector,
    Expected,
    Sums,
    null_means,
    smallest_tolerance,
)
from monitor.core.estimators.ensemble import headline_in
from monitor.core.scores import Booleans, Floats, Integers
from monitor.core.segments import ALL, Segment
from monitor.core.totals import MeasuredWindows

LEAST_RECORDS = 500
"""The fewest records of an own baseline, unless the configuration says otherwise."""

DRIFT_MARGIN = 1.5
"""How many times the distance by chance no drift explains: overlapping windows stay beyond a single one for hours."""
DRIFT_LEAST = 0.12
"""A smaller distance is no drift, however many records show it: the mix of patients is never quite the same.

The limit is sqrt(least² + (margin · chance)²): in 50 segments and four weeks it gave no alarm with independent records, nor
while the class mix moved by two points; the larger of the two gave 20 with independent ones (benchmarks/segments.py). A
class of 18% that is no longer predicted is 0.31 away, and crosses the limit when three fifths of the window show it.
"""

FALL_LEAST = 0.02
"""A smaller fall of the estimate is none."""

Codes = NDArray[np.uint8]


class BaselineKind(StrEnum):
    """Where a baseline comes from. A closed list of label values."""

    REFERENCE = "reference"
    """The whole reference."""
    LABELLED = "labelled"
    """The segment's own records in the reference."""
    OWN = "own"
    """The segment's first records, without labels."""


KINDS = (None, *BaselineKind)
"""Columns hold kinds as indexes into it."""
_NONE, _REFERENCE, _LABELLED, _OWN = range(len(KINDS))


class BaselineMode(StrEnum):
    """Which baseline segments get."""

    AUTO = "auto"
    """Labelled where the reference has it, otherwise own; the reference for the whole model."""
    REFERENCE = "reference"
    OWN = "own"
    """Own, even for the whole model."""


class BaselineAction(StrEnum):
    """What an operator may do with an own baseline."""

    RESET = "reset"
    CONFIRM = "confirm"


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """The baselines of a model."""

    mode: BaselineMode = BaselineMode.AUTO
    records: int | None = None
    """The records of an own baseline; None for one full window, at least LEAST_RECORDS."""
    period: tuple[float, float] | None = None
    """The times that the records of an own baseline are from; None for the first."""
    gap: float = 0.10
    """How far below the reference accuracy an unverified baseline may be."""

    def needed(self, window_records: int | None) -> int:
        """Return the records of a complete own baseline, for windows of so many records."""
        whole = 0 if self.period is not None else window_records
        return self.records or max(LEAST_RECORDS, whole or 0)


class Verdict(StrEnum):
    """The comparison of a window with its baseline. A closed list of label values."""

    FELL = "fell"
    """The estimate fell."""
    DRIFTED = "drifted"
    """The estimate holds, but the outputs drifted: trust it less."""
    HOLDS = "holds"
    """Both hold."""


VERDICTS = (None, *Verdict)
"""Columns hold verdicts as indexes into it; None if it cannot be said."""


@dataclass(frozen=True, slots=True)
class OwnBaseline:
    """An own baseline, collected from a window in blocks that share no record. Immutable."""

    of: str
    """The fingerprint of the reference."""
    records: int = 0
    since: float | None = None
    """Only later records count: the time of the newest record of the last block, or at a reset. None if all count, infinity if
    the reset waits for the next evaluation."""
    began_at: float | None = None
    """The time of the oldest record when collecting began."""
    first_at: float | None = None
    last_at: float | None = None
    """The times of the oldest and newest record."""
    estimates: Mapping[str, float] = field(default_factory=dict)
    """By estimator, the mean over its records."""
    decided: tuple[int, ...] = ()
    confidence: tuple[int, ...] = ()
    """Records by decided class, and by cell of confidences."""
    complete: bool = False
    confirmed: bool = False
    """Whether an operator confirmed it."""
    blocks: Blocks = field(default_factory=Blocks)
    """The same for detectors of changes, from the records of single evaluations."""

    def restarted(self) -> "OwnBaseline":
        """Return a new one, of the records that come from the next evaluation on."""
        return OwnBaseline(self.of, since=np.inf)

    def with_block(self, block: "_Block") -> "OwnBaseline":
        """Return the baseline with the records of a window added."""
        records = self.records + block.records
        share = block.records / records
        # An estimator that fails in one block keeps what it said about the others.
        means = {**block.estimates, **self.estimates}
        for name in self.estimates.keys() & block.estimates.keys():
            means[name] = self.estimates[name] * (1.0 - share) + block.estimates[name] * share
        return replace(
            self,
            records=records,
            since=block.newest_at,
            first_at=block.oldest_at if self.first_at is None else self.first_at,
            last_at=block.newest_at,
            estimates=means,
            decided=_added(self.decided, block.decided),
            confidence=_added(self.confidence, block.confidence),
        )


def _added(before: tuple[int, ...], counts: Integers) -> tuple[int, ...]:
    return tuple((counts + np.array(before)).tolist() if before else counts.tolist())


class _Block(NamedTuple):
    """A window as a block of a baseline."""

    records: int
    oldest_at: float
    newest_at: float
    estimates: Mapping[str, float]
    decided: Integers
    confidence: Integers


class Baseline(NamedTuple):
    """The baseline of a window, for display."""

    kind: BaselineKind
    accuracy: float | None
    """That of the labels, or estimated; None while it is collected."""
    records: int
    needed: int
    """The records of a complete one."""
    first_at: float | None
    last_at: float | None
    """Times of the records of an own one, in Unix seconds."""
    verified: bool


class OutputDrift(NamedTuple):
    """The distance of a window's outputs from those of its baseline, for display."""

    measure: Measure
    distance: float
    chance: float
    """The distance by chance."""
    limit: float
    """Above it, the outputs have drifted."""

    @property
    def drifted(self) -> bool:
        """Whether the distance is more than chance, and large enough to matter."""
        return self.distance > self.limit


class ClassChange(NamedTuple):
    """The class whose share of the decisions changed most."""

    class_index: int
    before: float
    now: float


@dataclass(frozen=True, slots=True, eq=False)
class Comparisons:
    """The windows of a model and their baselines, as columns."""

    kinds: Codes
    """Indexes into KINDS."""
    accuracies: Floats
    """By estimator and window; NaN while a baseline is collected."""
    names: tuple[str, ...]
    records: Integers
    needed: int
    first_at: Floats
    last_at: Floats
    """NaN for others than own ones."""
    verified: Booleans
    widening: Floats
    """How much wider the interval of a change since an own baseline is than that of the estimate."""
    unknown: Floats
    """How far a labelled baseline may be off; 0 for others."""
    swing: Floats
    """The normal quantile times sqrt(1/n + 1/b) of window and baseline; without b for a labelled one, which is in `unknown`."""
    distance: Floats
    chance: Floats
    """Of outputs, by measure and window; NaN if unknown."""
    limit: Floats
    """The distance above which outputs have drifted."""
    shares: tuple[Floats, Floats]
    """The shares of the decided classes in the baselines and in the windows, a row for each."""
    verdicts: Codes
    """Indexes into VERDICTS."""

    def of(self, estimator: str) -> Floats:
        """Return the baselines of an estimator; NaN while they are collected."""
        return self.accuracies[self.names.index(estimator)] if estimator in self.names else self._unknown

    @property
    def accuracy(self) -> Floats:
        """The baselines of the headline."""
        return self.of(headline_in(self.names))

    @property
    def _unknown(self) -> Floats:
        return np.full(len(self.kinds), np.nan)

    @property
    def own(self) -> Booleans:
        """Which windows have an own baseline, complete or not."""
        found: Booleans = self.kinds == _OWN
        return found

    def furthest_drift(self, shown: Booleans) -> tuple[Floats, Floats]:
        """Return of each window the distance that is furthest above its limit, and the limit; NaN if unknown."""
        limit = self.limit
        measure = np.argmax(np.where(np.isnan(limit), 0.0, self.distance / limit), axis=0)
        at = measure, np.arange(len(self.kinds))
        return np.where(shown, self.distance[at], np.nan), limit[at]

    def baseline(self, index: int) -> Baseline | None:
        """Return the baseline of one window."""
        kind = KINDS[self.kinds[index]]
        if kind is None:
            return None
        times = or_none(self.first_at[index]), or_none(self.last_at[index])
        accuracy, records = or_none(self.accuracy[index]), int(self.records[index])
        return Baseline(kind, accuracy, records, self.needed, *times, bool(self.verified[index]))

    def drift(self, index: int) -> tuple[OutputDrift, ...]:
        """Return the drift of one window by measure; empty if unknown."""
        columns = (self.distance[:, index], self.chance[:, index], self.limit[:, index])
        found = zip(MEASURES, *(column.tolist() for column in columns), strict=True)
        return tuple(OutputDrift(*one) for one in found if not any(map(isnan, one[1:])))

    def changed_class(self, index: int) -> ClassChange | None:
        """Return the class that changed most in one window; None if unknown."""
        before, now = (side[index] for side in self.shares)
        if np.isnan(before).any() or np.isnan(now).any():
            return None
        most = int(np.argmax(np.abs(now - before)))
        return ClassChange(most, float(before[most]), float(now[most]))

    def padded(self, count: int) -> "Comparisons":
        """Return them with so many windows behind that have no baseline."""
        end = (0, count)

        def filled(column: Floats, *, last: bool) -> Floats:
            widths = [*[(0, 0)] * (column.ndim - 1), end] if last else [end, *[(0, 0)] * (column.ndim - 1)]
            return np.pad(column, widths, constant_values=np.nan)

        return Comparisons(
            np.pad(self.kinds, end),
            filled(self.accuracies, last=True),
            self.names,
            np.pad(self.records, end),
            self.needed,
            filled(self.first_at, last=True),
            filled(self.last_at, last=True),
            np.pad(self.verified, end),
            filled(self.widening, last=True),
            filled(self.unknown, last=True),
            filled(self.swing, last=True),
            filled(self.distance, last=True),
            filled(self.chance, last=True),
            filled(self.limit, last=True),
            (filled(self.shares[0], last=False), filled(self.shares[1], last=False)),
            np.pad(self.verdicts, end),
        )


@dataclass(frozen=True, slots=True, eq=False)
class WindowTimes:
    """What collecting needs of windows besides their records."""

    oldest_at: Floats
    newest_at: Floats
    """NaN without records."""


class _Known(NamedTuple):
    """The baselines of windows, as columns."""

    accuracies: Floats
    unknown: Floats
    records: Integers
    first_at: Floats
    last_at: Floats
    verified: Booleans
    decided: Integers
    confidence: Integers


class _Latest(NamedTuple):
    """What does not change from one evaluation to the next, unless windows, their sizes or baselines do."""

    segments: tuple[Segment, ...]
    own: Sequence[OwnBaseline | None]
    known: _Known
    outputs: BaselineOutputs
    records: bytes
    """The sizes of the windows."""
    widening: Floats
    swing: Floats
    chance: Floats
    limit: Floats


class Expectations(NamedTuple):
    """What detectors of changes compare windows with, as columns."""

    segments: tuple[Segment, ...]
    own: Sequence[OwnBaseline | None]
    means: Floats
    """Of the null hypothesis, shape (windows, detectors, members); NaN while a baseline is collected."""
    smallest_tolerance: Floats
    blocks: Integers
    """Evaluations that an own baseline has until now; FEWEST_BLOCKS for others."""
    is_own: Booleans


@dataclass(slots=True)
class Baselines:
    """The baselines of a model. Collects those of its own segments."""

    calibration: Calibration
    options: BaselineOptions
    of: str
    """The fingerprint of the reference."""
    window_records: int | None
    window_seconds: float | None
    """The size of a full window."""
    own: dict[Segment, OwnBaseline] = field(default_factory=dict)
    """By segment; of a segment without a window they are kept, because it may come back from another process."""
    seen_at: dict[Segment, float] = field(default_factory=dict)
    """When each of these segments last had a window, since the start."""
    changed: bool = False
    """Whether an own baseline changed since the caller last stored them."""
    completed: list[Segment] = field(default_factory=list)
    """Segments whose own baseline became complete since the caller last looked."""
    _kinds: tuple[tuple[Segment, ...], Codes] | None = None
    _latest: _Latest | None = None
    _expectations: "Expectations | None" = None

    @property
    def needed(self) -> int:
        """The records of a complete own baseline."""
        # A window that is bounded by age, too, may be full with fewer.
        return self.options.needed(self.window_records if self.window_seconds is None else None)

    def kind(self, segment: Segment) -> BaselineKind:
        """Return the kind of baseline of a segment."""
        return baseline_kind(self.calibration, self.options.mode, segment)

    def add_block(self, segment: Segment, block: Sums, newest_at: float) -> None:
        """Add the records between two evaluations to an own baseline, until it is complete for detectors of changes."""
        before, period = self.own.get(segment) or OwnBaseline(self.of), self.options.period
        if before.since == np.inf or (before.complete and before.blocks.complete):
            return
        if period is not None and not (self._is_of_period(before) or period[0] <= newest_at <= period[1]):
            return
        after = before.blocks.added(block)
        if after is not before.blocks:
            self.own[segment], self.changed = replace(before, blocks=after), True

    def expectations(self, segments: tuple[Segment, ...], detectors: Sequence[Detector]) -> "Expectations":
        """Return what detectors of changes compare windows with, as columns."""
        latest, own, count = self._expectations, [self.own.get(one) for one in segments], len(segments)
        if latest is None or latest.segments != segments:
            kinds = np.array([self.kind(one) is BaselineKind.OWN for one in segments])
            unknown = np.full((count, len(detectors), len(MEMBERS)), np.nan)
            latest = Expectations(
                segments, own, unknown, np.full(count, np.nan), np.where(kinds, 0, FEWEST_BLOCKS), kinds
            )
            changed = list(range(count))
        else:
            changed = [window for window, differs in enumerate(map(is_not, latest.own, own)) if differs]
        if changed:
            # Only what changed: thousands may be complete while one is collected.
            means, smallest = latest.means.copy(), latest.smallest_tolerance.copy()
            blocks = latest.blocks.copy()
            for window in changed:
                expected, collected = self._expected(segments[window]), own[window]
                means[window] = null_means(detectors, expected)
                smallest[window] = np.nan if expected is None else expected.smallest_tolerance
                if latest.is_own[window]:
                    blocks[window] = 0 if collected is None else collected.blocks.count
            latest = Expectations(segments, own, means, smallest, blocks, latest.is_own)
            self._expectations = latest
        return latest

    def _expected(self, segment: Segment) -> Expected | None:
        """Return what detectors of changes compare a segment with; None while it is collected."""
        found, own = expected_means(self.calibration, self.options.mode, segment), self.own.get(segment)
        if found is not None or own is None or not (own.complete and own.blocks.complete):
            return found
        return Expected(own.blocks.means, own.blocks.smallest_tolerance)

    def compare(
        self,
        segments: Sequence[Segment],
        measured: MeasuredWindows,
        estimates: WindowEstimates,
        valid: Booleans,
        times: WindowTimes,
        now: float,
    ) -> Comparisons:
        """Collect own baselines, and compare every window with its baseline; `valid` are those with an estimate."""
        segments = tuple(segments)
        if self._kinds is None or self._kinds[0] != segments:
            self._kinds = segments, np.array([KINDS.index(self.kind(one)) for one in segments], dtype=np.uint8)
        kinds = self._kinds[1]
        self.seen_at.update(dict.fromkeys(self.own.keys() - self.seen_at.keys(), now))
        for window in np.flatnonzero(kinds == _OWN).tolist():
            before = self.own.get(segments[window])
            if before is None or not before.complete:
                self._begin(segments[window], float(times.newest_at[window]))
                if valid[window]:
                    self._collect(segments[window], window, measured, estimates, times)
        own = [self.own.get(one) if kind == _OWN else None for one, kind in zip(segments, kinds.tolist(), strict=True)]
        self.seen_at.update((segment, now) for segment, one in zip(segments, own, strict=True) if one is not None)
        found = self._columns(segments, kinds, own, measured)
        return replace(found, verdicts=_verdicts(found, estimates, valid))

    def _begin(self, segment: Segment, newest: float) -> None:
        """Let a reset take effect, at the newest record of the segment."""
        found = self.own.get(segment)
        if found is not None and found.since == np.inf and not np.isnan(newest):
            self.own[segment] = replace(found, since=newest)
            self.changed = True

    def _collect(
        self,
        segment: Segment,
        window: int,
        measured: MeasuredWindows,
        estimates: WindowEstimates,
        times: WindowTimes,
    ) -> None:
        """Add a window to the own baseline of its segment, which is not complete, if the window is a new block."""
        before = self.own.get(segment) or OwnBaseline(self.of)
        oldest, newest = float(times.oldest_at[window]), float(times.newest_at[window])
        after = replace(before, began_at=oldest if before.began_at is None else before.began_at)
        records = int(measured.records[window])
        # By time, not by the number of records that came since: late ones enter before older ones leave.
        is_new = before.since is None or oldest > before.since
        if is_new and self._is_block(after, records, oldest, newest):
            known = estimates.why[:, window] == 0
            values = zip(estimates.names, estimates.accuracy[:, window].tolist(), known.tolist(), strict=True)
            answers = {name: value for name, value, one in values if one}
            counts = measured.predicted[window], measured.confidence[window]
            after = after.with_block(_Block(records, oldest, newest, answers, *counts))
        after = replace(after, complete=self._is_complete(after, newest))
        if after == before:
            return
        self.own[segment], self.changed = after, True
        if after.complete:
            self.completed.append(segment)

    def _is_block(self, own: OwnBaseline, records: int, oldest: float, newest: float) -> bool:
        """Return whether a window is large enough, and in the period if there is one."""
        period, began = self.options.period, own.began_at
        outside = period is not None and not period[0] <= oldest <= newest <= period[1]
        # A segment that had no full window in the period takes those after it.
        if outside and (self._is_of_period(own) or (period is not None and oldest <= period[1])):
            return False
        if self.window_records is not None and records >= self.window_records:
            return True
        if self.window_seconds is not None and began is not None and newest - began >= self.window_seconds:
            return True
        return (self.options.records or period) is not None and own.records + records >= self.needed

    def _is_complete(self, own: OwnBaseline, newest: float) -> bool:
        if self.options.period is not None and self._is_of_period(own):
            return newest > self.options.period[1]
        return own.records >= self.needed

    def _is_of_period(self, own: OwnBaseline) -> bool:
        """Return whether an own baseline has records of the period."""
        period = self.options.period
        return period is not None and own.first_at is not None and own.first_at <= period[1]

    def _columns(
        self,
        segments: tuple[Segment, ...],
        kinds: Codes,
        own: Sequence[OwnBaseline | None],
        measured: MeasuredWindows,
    ) -> Comparisons:
        """Return the columns, without verdicts."""
        latest, sizes = self._latest, measured.records.tobytes()
        if latest is None or latest.segments != segments or any(map(is_not, latest.own, own)):
            known = self._collected(segments, kinds, own, self.calibration.names)
            outputs = BaselineOutputs.of(known.decided, known.confidence)
            latest = self._sized(_Latest(segments, own, known, outputs, sizes, *np.empty((4, 0))), kinds, measured)
        elif latest.records != sizes:
            latest = self._sized(latest, kinds, measured)
        self._latest, known = latest, latest.known
        decided = shares(measured.predicted)
        distance = np.full((len(MEASURES), len(segments)), np.nan)
        if self.calibration.outputs is not None:
            distance = latest.outputs.distances(decided, shares(measured.confidence))
        return Comparisons(
            kinds,
            known.accuracies,
            self.calibration.names,
            known.records,
            self.needed,
            known.first_at,
            known.last_at,
            known.verified,
            latest.widening,
            known.unknown,
            latest.swing,
            distance,
            latest.chance,
            latest.limit,
            (latest.outputs.decided, decided),
            np.zeros(len(segments), dtype=np.uint8),
        )

    def _sized(self, latest: _Latest, kinds: Codes, measured: MeasuredWindows) -> _Latest:
        """Return what depends on the sizes of windows and baselines."""
        numbers, known = self.calibration, latest.known
        # The reference is common to both sides of a change; an own baseline is as uncertain as its size.
        n, b = np.maximum(measured.records, 1), np.maximum(known.records, 1)
        widening = np.sqrt((1.0 / n + 1.0 / b) / (1.0 / n + 1.0 / numbers.records))
        outward = NormalDist().inv_cdf((1.0 + numbers.intervals.level) / 2.0)
        chance = np.full((len(MEASURES), len(kinds)), np.nan)
        if numbers.outputs is not None:
            chance = numbers.outputs.distances_by_chance(measured.records, known.decided.sum(axis=1))
        return latest._replace(
            records=measured.records.tobytes(),
            widening=np.where(kinds == _OWN, np.maximum(1.0, widening), 1.0),
            swing=outward * np.sqrt(1.0 / n + np.where(kinds == _LABELLED, 0.0, 1.0 / b)),
            chance=chance,
            limit=np.asarray(np.hypot(DRIFT_LEAST, DRIFT_MARGIN * chance)),
        )

    def _collected(
        self, segments: Sequence[Segment], kinds: Codes, own: Sequence[OwnBaseline | None], names: tuple[str, ...]
    ) -> "_Known":
        """Return what is known of the baselines of windows."""
        numbers, count = self.calibration, len(segments)
        outputs, labelled = numbers.outputs, numbers.segments
        cells = 0 if outputs is None else len(outputs.confidence)
        found = _Known(
            np.full((len(names), count), numbers.accuracy),
            np.zeros(count),
            np.full(count, numbers.records),
            np.full(count, np.nan),
            np.full(count, np.nan),
            np.ones(count, dtype=np.bool_),
            np.zeros((count, numbers.classes), dtype=np.int64),
            np.zeros((count, cells), dtype=np.int64),
        )
        if outputs is not None:
            found.decided[:], found.confidence[:] = outputs.decided, outputs.confidence
        if labelled is not None and len(windows := np.flatnonzero(kinds == _LABELLED)):
            places = labelled.places([segments[window] for window in windows.tolist()])
            found.accuracies[:, windows], found.records[windows] = labelled.accuracy[places], labelled.records[places]
            found.decided[windows], found.confidence[windows] = labelled.decided[places], labelled.confidence[places]
            found.unknown[windows] = labelled.accuracy_reach[places]
        for window in np.flatnonzero(kinds == _OWN).tolist():
            one = own[window] or OwnBaseline(self.of)
            complete = one.complete and len(one.decided) == numbers.classes and len(one.confidence) == cells
            found.accuracies[:, window] = [one.estimates.get(name, np.nan) if complete else np.nan for name in names]
            found.records[window], found.verified[window] = one.records, one.confirmed
            found.first_at[window], found.last_at[window] = _or_nan(one.first_at), _or_nan(one.last_at)
            found.decided[window], found.confidence[window] = (one.decided, one.confidence) if complete else (0, 0)
        return found

    def forget(self, before: float, most: int) -> None:
        """Forget own baselines of segments that were last seen before a time, and the oldest of more than so many.

        After a start, time counts anew: segments may be absent because their partitions are not assigned yet.
        """
        if len(self.own) <= most and min(self.seen_at.values(), default=before) >= before:
            return
        kept = sorted((at, segment) for segment, at in self.seen_at.items() if at >= before)
        self.seen_at = {segment: at for at, segment in kept[max(0, len(kept) - most) :]}
        self.own = {segment: self.own[segment] for segment in self.seen_at}
        self.changed = True

    def reset(self, segment: Segment) -> None:
        """Start a new own baseline, from the records that come from now on."""
        self.own[segment] = OwnBaseline(self.of).restarted()
        self.changed = True

    def confirm(self, segment: Segment) -> bool:
        """Confirm a complete own baseline; return whether there is one."""
        found = self.own.get(segment)
        if found is None or not found.complete:
            return False
        self.own[segment] = replace(found, confirmed=True)
        self.changed = True
        return True


def baseline_kind(calibration: Calibration, mode: BaselineMode, segment: Segment) -> BaselineKind:
    """Return the kind of baseline of a segment."""
    labelled = calibration.segments
    if mode is BaselineMode.REFERENCE or (mode is BaselineMode.AUTO and segment == ALL):
        return BaselineKind.REFERENCE
    if mode is BaselineMode.AUTO and labelled is not None and segment in labelled:
        return BaselineKind.LABELLED
    return BaselineKind.OWN


def expected_means(calibration: Calibration, mode: BaselineMode, segment: Segment) -> Expected | None:
    """Return what the reference says of the watched estimates in a segment; None if it has an own baseline."""
    kind, unknown = (
        baseline_kind(calibration, mode, segment),
        smallest_tolerance(calibration.records, calibration.right),
    )
    if kind is BaselineKind.REFERENCE:
        return Expected(np.full(len(MEMBERS), calibration.accuracy), unknown)
    labelled = calibration.segments
    if kind is BaselineKind.OWN or labelled is None:
        return None
    place = labelled.places([segment])[0]
    rows = [labelled.names.index(name) for name in MEMBERS]
    variance = labelled.accuracy_variance[place] + labelled.bias_variance[rows, place].max()
    return Expected(
        labelled.accuracy[place] + labelled.bias[rows, place], max(unknown, UNKNOWN * float(np.sqrt(variance)))
    )


def _verdicts(found: Comparisons, estimates: WindowEstimates, valid: Booleans) -> Codes:
    """Return what each comparison says: the estimate, then the outputs; none without both estimate and baseline."""
    if (name := headline_in(estimates.names)) not in estimates.names:
        return np.zeros(len(valid), dtype=np.uint8)
    row, baseline = estimates.names.index(name), found.of(name)
    accuracy, upper = estimates.accuracy[row], change_upper(found, estimates, name)
    upper = np.maximum(upper, accuracy + _by_mix(found, accuracy, baseline))
    fell = (upper < baseline) & (accuracy <= baseline - FALL_LEAST)
    drifted = np.any(found.distance > found.limit, axis=0)
    known = valid & (estimates.why[row] == 0) & ~np.isnan(baseline)
    codes = [VERDICTS.index(one) for one in (Verdict.FELL, Verdict.DRIFTED, Verdict.HOLDS)]
    return np.select([~known, fell, drifted], [0, *codes[:2]], codes[2]).astype(np.uint8)


def change_upper(found: Comparisons, estimates: WindowEstimates, name: str) -> Floats:
    """Return the upper end of an estimate for comparison with its baseline: wider where the baseline is uncertain too.

    An own baseline has the same bias as the estimate, so the end lies above the estimate itself. A labelled one is known from
    few labels; its error counts as independent of that of the bias, though it is a part of it: so alarms rather come late.
    """
    row = estimates.names.index(name)
    accuracy, upper = estimates.accuracy[row], estimates.upper[row]
    by_mix = _by_mix(found, accuracy, found.of(name))
    own = np.fmax((upper - estimates.lower[row]) / 2.0 * found.widening, by_mix)
    labelled = np.hypot(np.fmax(upper - accuracy, by_mix), found.unknown)
    ends = np.select([found.own, found.unknown > 0.0], [accuracy + own, accuracy + labelled], upper)
    return np.asarray(np.minimum(ends, 1.0))


def _by_mix(found: Comparisons, accuracy: Floats, baseline: Floats) -> Floats:
    """Return how far chance moves an estimate from its baseline, because windows have more or fewer difficult records.

    An interval is about the accuracy of this window, and hardly covers that if confidence tells difficult records well: the
    estimate then follows the window. A mean of values from 0 to 1 varies at most as the share of right decisions.
    """
    middle = np.clip((accuracy + baseline) / 2.0, 0.0, 1.0)
    return np.asarray(found.swing * np.sqrt(middle * (1.0 - middle)))


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
