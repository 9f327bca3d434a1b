"""How soon a drop of the accuracy is noticed, by a change detector and by rules on windows: replays of known records.

The records are labelled ones of the reference, in random order, or those of a stream in its own order. Records with a low
confidence are drawn more often, until the accuracy has fallen by the wanted points. Each replay starts with a healthy window.
The same seed draws the same records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from monitor.core.alerts import AlertRule, AlertType, On, Severity
from monitor.core.calibration import Calibration
from monitor.core.change import (
    FEWEST_BLOCKS,
    MEMBERS,
    POINT,
    WAYS,
    Blocks,
    ChangeEvidence,
    Detector,
    EvidenceSums,
    EvidenceTable,
    MemberValues,
    budget,
    log_factors,
    smallest_tolerance,
)
from monitor.core.estimate import ADAPTIVE
from monitor.core.intervals import Progress
from monitor.core.record_columns import Records
from monitor.core.scores import Booleans, Floats, Integers
from monitor.core.totals import Gauge, member_values
from monitor.errors import InvalidInput, Problem
from monitor.reference.reference import Reference

DROPS = (0.03, 0.05, 0.10, 0.20)
HORIZON_SECONDS = 90 * 86400.0
"""A drop that is not noticed by then is not noticed in time."""
_RUNS = (40, 200)
_ALL_DRAWN = 4_000_000
_FEWEST_DRAWN, _MOST_DRAWN = 20_000, 200_000
"""Replays of a drop, records of all of them, and of each."""
_FEWEST_SECONDS = 3 * 3600.0
"""The time that a replay lasts at least: some rules wait for half an hour."""
MOST_PER_EVALUATION = 1_000
"""Records of an evaluation that are replayed."""
_LONGER, _HOPELESS = 4.0, 2.0
"""How many times the expected delay a replay lasts; and the delay, in replays, from which it is not tried."""
_TOGETHER = 1 << 16
"""Records of all replays that are added in one piece."""
_BLOCK = 50
"""Records of a stream among which drawn ones stay in their order."""
_LARGER_BLOCKS = 4
_LARGER_TOLERANCES, _TOLERANCES, _EVALUATIONS = 1.25, 12, 1_024
"""The tolerances that are tried on a stream as it is, and how many evaluations together."""
_CALIBRATED, _ADAPTIVE = MEMBERS.index("calibrated_confidence"), MEMBERS.index(ADAPTIVE)
_SEED = 20220722
_STEEPEST = 1e4
"""Beyond this slope no more records of low confidence are found."""

SIZES = (500, 2_000, 5_000)
WINDOW_RULES = tuple(
    (AlertRule(name, drop=drop, on=on), size)
    for name, drop, on in (("large", 0.05, On.UPPER), ("early", 0.02, On.VALUE))
    for size in SIZES
)
"""The rules on windows that a detector is compared with, and sizes of windows."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the delays depend on beside the reference."""

    every_seconds: float
    records_per_second: float
    windows: int
    between_seconds: float
    """The time between two false alarms, over all windows."""
    tolerance: float

    @property
    def budget(self) -> float:
        """The evidence to alarm at."""
        return budget(self.windows, self.between_seconds, self.every_seconds)

    @property
    def records_per_evaluation(self) -> float:
        """Records between two evaluations that are replayed, on average."""
        return min(self.records_per_second * self.every_seconds, MOST_PER_EVALUATION)


class Known:
    """Labelled records of a reference, which are drawn in random order."""

    def __init__(self, reference: Reference) -> None:
        kept = reference.sample
        if kept is None:
            expected = "a reference with a sample of its records"
            raise InvalidInput(
                Problem("--reference", expected, "an older one: run `cpcmon calibrate` again, or give --history")
            )
        members = MemberValues(reference.calibration)
        self.values: Floats = np.clip(kept.values.astype(np.float64), members.low[:, None], members.high[:, None])
        right = np.arange(self.values.shape[1]) < kept.right
        accuracy = reference.calibration.accuracy
        counts = np.where(right, kept.right, len(right) - kept.right)
        self.shares = np.where(right, accuracy, 1.0 - accuracy) / counts
        self.right = right

    def weights(self, drop: float) -> Floats | None:
        """Return how often each record is drawn where the accuracy has fallen so far; None if that is not possible."""
        confidence = self.values[_CALIBRATED] - self.values[_CALIBRATED].min()

        def tilted(slope: float) -> Floats:
            found = self.shares * np.exp(-slope * confidence)
            return np.asarray(found / found.sum())

        slope = _solved(lambda slope: float(tilted(slope)[self.right].sum()), drop)
        return None if slope is None else tilted(slope)

    def draw(self, weights: Floats, runs: int, before: int, after: int, random: np.random.Generator) -> Integers:
        """Return healthy records, then those with these weights: places of records, a row for each run."""
        healthy = random.choice(len(self.right), (runs, before), p=self.shares)
        return np.concatenate([healthy, random.choice(len(self.right), (runs, after), p=weights)], axis=1)


class OwnStream:
    """A stream of records, which are drawn in blocks in its own order."""

    def __init__(self, reference: Reference, records: Records, where: str) -> None:
        if len(records) < 2 * _BLOCK:
            raise InvalidInput(Problem(where, f"at least {2 * _BLOCK} records", f"{len(records):,}"))
        gauge = Gauge(reference.calibration, ())
        self.values = member_values(gauge, records.vectors, records.decided)
        self._whole = len(records) // _BLOCK

    @property
    def accuracy(self) -> float:
        """The estimated accuracy of the whole stream."""
        return float(np.clip(self.values[_ADAPTIVE].mean(), 0.0, 1.0))

    def weights(self, drop: float) -> Floats | None:
        """Return how often each record is drawn where the estimate has fallen so far; None if that is not possible."""
        kept = self._whole * _BLOCK
        adaptive, confidence = (self.values[row, :kept].reshape(-1, _BLOCK) for row in (_ADAPTIVE, _CALIBRATED))

        def tilted(slope: float) -> Floats:
            found = np.exp(-slope * (confidence - confidence.min(axis=1, keepdims=True)))
            return np.asarray(found / found.sum(axis=1, keepdims=True))

        slope = _solved(lambda slope: float((tilted(slope) * adaptive).sum(axis=1).mean()), drop)
        return None if slope is None else tilted(slope).ravel() / self._whole

    def draw(self, weights: Floats, runs: int, before: int, after: int, random: np.random.Generator) -> Integers:
        """Return records as they came, then the blocks behind them with these weights within each, in order."""
        first = random.integers(self._whole, size=(runs, 1))
        healthy = (first * _BLOCK - before + np.arange(before)) % (self._whole * _BLOCK)
        blocks = (first + np.arange(-(-after // _BLOCK))) % self._whole
        places = np.sort(random.random((runs, blocks.shape[1], _BLOCK)), axis=2) + blocks[:, :, None]
        ends = np.cumsum(weights) * self._whole
        drawn = np.minimum(np.searchsorted(ends, places.reshape(runs, -1), side="right"), len(weights) - 1)
        return np.concatenate([healthy, drawn[:, :after]], axis=1)

    def spread(self, members: MemberValues, setup: Setup) -> tuple[float, float] | None:
        """Return the tolerance that the stream allows as an own baseline, and how far its mean wanders; None if it is too short.

        In blocks of the records between evaluations, and in larger ones: a slow change of the mean shows only in these.
        """
        size, found = self._per_evaluation(setup), list[Blocks]()
        while self.values.shape[1] >= size * FEWEST_BLOCKS:
            starts = np.arange(0, self.values.shape[1], size)
            table, count = EvidenceTable(members, []), len(starts)
            table.sums, table.means = np.zeros((count, table.sums.shape[1]), np.int64), np.zeros((count, 0, 0))
            table.add(self.values, starts, np.arange(count)[None], np.ones((1, count), dtype=np.bool_))
            blocks = Blocks()
            for block in table.sums:
                blocks = blocks.added(block)
            found.append(blocks)
            size *= _LARGER_BLOCKS
        return (max(one.smallest_tolerance for one in found), max(one.wander for one in found)) if found else None

    def _per_evaluation(self, setup: Setup) -> int:
        return max(1, round(setup.records_per_evaluation))

    def alarms(self, members: MemberValues, setup: Setup, progress: Progress) -> dict[float, list[int]]:
        """Return after how many records the stream, as it is, would have raised each alarm: at this tolerance and larger ones."""
        tolerances = [setup.tolerance * _LARGER_TOLERANCES**power for power in range(_TOLERANCES)]
        starts = np.arange(0, self.values.shape[1], self._per_evaluation(setup))
        ends = np.append(starts[1:], self.values.shape[1])
        runs = Runs(members, setup, np.array(tolerances))
        found = [list[int]() for _ in tolerances]
        for first in range(0, len(starts), _EVALUATIONS):
            piece = slice(first, first + _EVALUATIONS)
            values = self.values[:, starts[first] : ends[piece][-1]]
            logs = [
                np.add.reduceat(logs_of(values, members, one), starts[piece] - starts[first], axis=0)
                for one in tolerances
            ]
            for place, each in enumerate(np.stack(logs, axis=1), first):
                alarms = runs.alarms(np.full(len(tolerances), ends[place] - starts[place]), each)
                runs.evidence.restart(alarms)
                for one in np.flatnonzero(alarms):
                    found[one].append(int(ends[place]))
            progress(min(1.0, (first + _EVALUATIONS) / len(starts)))
        return dict(zip(tolerances, found, strict=True))


def _solved(accuracy: Callable[[float], float], drop: float) -> float | None:
    """Return the slope at which the accuracy has fallen so far; None if there is none."""
    low, high = 0.0, 1.0
    wanted = accuracy(0.0) - drop
    while accuracy(high) > wanted:
        high *= 2.0
        if high > _STEEPEST:
            return None
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if accuracy(middle) > wanted else (low, middle)
    return high


def logs_of(values: Floats, members: MemberValues, tolerance: float) -> Integers:
    """Return the logarithms of the factors of records, shape (records, ways)."""
    means = np.full((len(MEMBERS), 1), members.accuracy - tolerance)
    found = log_factors(values, means, members.low, members.high, Detector().sign)
    return np.ascontiguousarray(found.reshape(WAYS, -1).T.astype(np.int64))


class Runs:
    """The change detector in several runs, each of which is a window with a tolerance."""

    def __init__(self, members: MemberValues, setup: Setup, tolerances: Floats) -> None:
        runs = len(tolerances)
        self.evidence, self._threshold = ChangeEvidence(1), math.log10(setup.budget)
        self.evidence.select(range(runs))
        means = np.repeat(members.accuracy - tolerances, len(MEMBERS)).reshape(runs, 1, len(MEMBERS))
        width = EvidenceTable(members, [Detector()]).sums.shape[1]
        self._sums = EvidenceSums(np.zeros((runs, width), dtype=np.int64), means, np.zeros(runs))

    def alarms(self, counts: Integers, logs: Integers) -> Booleans:
        """Take the records of an evaluation, some in each run; return which have reached the budget."""
        sums = self._sums.sums.copy()
        sums[:, 0] += counts
        sums[:, -WAYS:] += logs
        self._sums = self._sums._replace(sums=sums)
        self.evidence.update(self._sums, self._sums.since)
        return np.asarray(self.evidence.value[:, 0] >= self._threshold)

    def keep(self, runs: Booleans) -> None:
        """Go on with some of the runs."""
        self.evidence.select([one for one, kept in zip(self.evidence.segments, runs, strict=True) if kept])
        sums, means, since = self._sums
        self._sums = EvidenceSums(sums[runs], means[runs], since[runs])


class Delay(NamedTuple):
    """Records and seconds until an alarm; infinite if it does not come."""

    records: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Noticed:
    """How soon one rule notices a drop."""

    rule: AlertRule
    window: int | None
    """The records of its window; None for a change detector."""
    half: Delay
    """Half of the replays need no more."""
    most: Delay
    """Nine in ten replays need no more."""
    share: float
    """The share of replays with an alarm."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How soon a drop is noticed by each rule; without a drop, how often they alarm wrongly."""

    drop: float
    seconds: float
    """The time replayed."""
    rules: tuple[Noticed, ...]


def replay_drop(
    reference: Reference, records: Known | OwnStream, setup: Setup, drop: float, progress: Progress
) -> Replayed | None:
    """Replay a drop many times; None if the records do not have enough of low confidence for it."""
    weights = records.weights(drop)
    if weights is None:
        return None
    members, random = MemberValues(reference.calibration), np.random.default_rng([_SEED, round(1e6 * drop)])
    logs = logs_of(records.values, members, setup.tolerance)
    expected = _expected(weights, logs, setup.budget) if drop > setup.tolerance else math.inf
    # Without a drop, long enough for false alarms of rules on windows; those of the detector are bounded by its budget.
    rate = setup.records_per_evaluation / setup.every_seconds
    fewest = max(_FEWEST_DRAWN, _FEWEST_SECONDS * rate)
    lasting = fewest if drop and math.isinf(expected) else max(fewest, _LONGER * expected)
    lasting = max(1.0, min(HORIZON_SECONDS * rate, _MOST_DRAWN, lasting))
    runs = int(min(_RUNS[1], max(_RUNS[0], _ALL_DRAWN / lasting)))
    counts, seconds = _arrivals(setup, lasting, runs, random)
    ends = np.cumsum(counts, axis=1)
    drawn = records.draw(weights, runs, max(SIZES), int(ends[:, -1].max()), random)
    alarms = [np.full(runs, -1)]
    if expected < _HOPELESS * lasting:
        alarms = [_change_alarms(members, setup, logs, drawn[:, max(SIZES) :], counts, progress)]
    adaptive = records.values[_ADAPTIVE]
    alarms += list(
        np.array(
            [
                [_window_alarm(reference.calibration, one, size, sums, end, at) for one, size in WINDOW_RULES]
                for sums, end, at in zip((np.cumsum(adaptive[row]) for row in drawn), ends, seconds, strict=True)
            ]
        ).T
    )
    progress(1.0)
    rules = [(change_rule(setup), None), *WINDOW_RULES]
    return Replayed(
        drop,
        min(HORIZON_SECONDS, float(seconds[:, -1].mean())),
        tuple(_noticed(rule, size, some, ends, seconds) for (rule, size), some in zip(rules, alarms, strict=True)),
    )


def _expected(weights: Floats, logs: Integers, evidence: float) -> float:
    """Return about how many records it takes until the evidence is this large, by its growth a record; infinite if it shrinks."""
    growth = float((weights @ logs[: len(weights)]).max()) / POINT
    return math.log(WAYS * evidence) / growth if growth > 0.0 else math.inf


def change_rule(setup: Setup) -> AlertRule:
    """Return the alert of type change."""
    return AlertRule(
        "accuracy_drop",
        AlertType.CHANGE,
        Severity.CRITICAL,
        tolerance=setup.tolerance,
        false_alarm_seconds=setup.between_seconds,
    )


def _arrivals(setup: Setup, records: float, runs: int, random: np.random.Generator) -> tuple[Integers, Floats]:
    """Return the records of the evaluations that have some, and when these are, a row for each run."""
    each = setup.records_per_evaluation
    some = -math.expm1(-each)
    shape = runs, max(1, math.ceil(records * some / each))
    # When the first record comes, given that one comes; then those behind it.
    first = -np.log1p(-random.random(shape) * some)
    counts = 1 + random.poisson(np.maximum(0.0, each - first))
    return counts, np.cumsum(random.geometric(some, shape), axis=1).astype(np.float64) * setup.every_seconds


def _change_alarms(
    members: MemberValues, setup: Setup, logs: Integers, drawn: Integers, counts: Integers, progress: Progress
) -> Integers:
    """Return the evaluation of each run at which a change detector alarms; -1 if it does not."""
    runs, evaluations = counts.shape
    step, ends = max(1, int(_TOGETHER / runs / counts.mean())), np.cumsum(counts, axis=1)
    found, left, detector = np.full(runs, -1), np.arange(runs), Runs(members, setup, np.full(runs, setup.tolerance))
    for start in range(0, evaluations, step):
        piece = slice(start, min(start + step, evaluations))
        sizes = counts[left, piece]
        pieces = [drawn[run, ends[run, start] - counts[run, start] : ends[run, piece.stop - 1]] for run in left]
        starts = np.cumsum(sizes.ravel()) - sizes.ravel()
        sums = np.add.reduceat(logs[np.concatenate(pieces)], starts, axis=0).reshape(*sizes.shape, WAYS)
        for place in range(sizes.shape[1]):
            alarms = detector.alarms(sizes[:, place], sums[:, place])
            found[left[alarms & (found[left] < 0)]] = start + place
        kept = found[left] < 0
        if not kept.any():
            break
        detector.keep(kept)
        left = left[kept]
        progress(piece.stop / evaluations)
    return found


def _window_alarm(
    calibration: Calibration, rule: AlertRule, size: int, sums: Floats, ends: Integers, at: Floats
) -> int:
    """Return the evaluation at which a rule on the latest records alarms; -1 if it does not.

    `sums` are those of `adaptive` until each record; the first records were there before.
    """
    last = max(SIZES) + ends - 1
    value = np.clip((sums[last] - np.where(last >= size, sums[last - size], 0.0)) / size, 0.0, 1.0)
    if rule.on is On.UPPER and not len(calibration.intervals.sizes):
        return -1  # the intervals of so few records are the whole range
    if rule.on is On.UPPER:
        bias, _, above, _ = calibration.intervals.around((ADAPTIVE,), np.array([size]))
        value = np.minimum(1.0, np.clip(value - bias[0], 0.0, 1.0) + above[0])
    bad = value < max(0.0, calibration.accuracy - (rule.drop or 0.0))
    places = np.arange(len(ends))
    # Where the latest stretch of bad values began: later records confirm it.
    began = np.minimum(np.maximum.accumulate(np.where(bad, -1, places)) + 1, len(ends) - 1)
    confirmed = (at - at[began] >= rule.for_seconds) & (ends - ends[began] >= rule.new_records_of(size))
    fired = bad & confirmed
    return int(np.argmax(fired)) if fired.any() else -1


def _noticed(rule: AlertRule, window: int | None, alarms: Integers, ends: Integers, seconds: Floats) -> Noticed:
    runs, noticed = np.arange(len(alarms)), alarms >= 0
    noticed &= seconds[runs, alarms] <= HORIZON_SECONDS
    columns = [np.where(noticed, some[runs, alarms], np.inf) for some in (ends, seconds)]
    half, most = (Delay(*(_quantile(some, share) for some in columns)) for share in (0.5, 0.9))
    return Noticed(rule, window, half, most, float(noticed.mean()))


def _quantile(values: Floats, share: float) -> float:
    return float(np.sort(values)[math.ceil(share * len(values)) - 1])


def labelled_records(calibration: Calibration, tolerance: float) -> int:
    """Return how many labelled records a reference of this accuracy needs to allow a tolerance."""
    least, most = 1, 2
    while _allows(calibration, most) > tolerance:
        least, most = most, 2 * most
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if _allows(calibration, middle) <= tolerance else (middle + 1, most)
    return most


def _allows(calibration: Calibration, records: int) -> float:
    return smallest_tolerance(records, round(calibration.accuracy * records))
