"""Detects a change of the accuracy early, with a bound on false alarms: an e-detector (docs/methods.md, decision 24).

Four estimates are means of one number per record. Each record bets on a change with each of them, in five sizes: its factor
has a mean of at most 1 while nothing has changed, so the evidence rarely grows large by chance. The logarithms of the factors
are fixed-point integers: their sums do not depend on batches, partitions or restarts. (Shin, Ramdas and Rinaldo 2022.)

No I/O, no clock. Not thread-safe.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from monitor.core.calibration import Calibration, or_none
from monitor.core.decisions import DecidedBy
from monitor.core.estimate import ADAPTIVE
from monitor.core.scores import Booleans, Floats, Integers

MEMBERS = ("calibrated_confidence", "cpc_acc_anchored_ts", "doc_ts", ADAPTIVE)
"""The estimates that are watched. Each is the mean of one number per record."""

BETS = 0.02 * 45.0 ** (np.arange(5) / 4.0)
"""Sizes of bets, as shares of the largest that cannot make a factor negative: small ones find small changes, large ones fast."""

POINT = float(1 << 36)
"""1.0 in fixed point. Sums of 8,192 logarithms are exact in float64."""

TOLERANCE = 0.02
"""The drop that is not worth an alarm, unless the configuration says otherwise."""
_INSIDE = 0.01
"""How far the mean of the null hypothesis is at least from the best possible value."""
UNKNOWN = 3.0
"""How many standard deviations of the reference accuracy a tolerance covers."""

FEWEST_BLOCKS = 60
"""Evaluations with records that an own baseline needs."""
_BLOCK_ERRORS, _WANDERS = 4.5, 2.0
"""How many standard errors of an own baseline, and standard deviations of a wandering mean, a tolerance covers."""
_CHI_SQUARED = 2.3263478740408408
"""The normal quantile of 99%: beyond it, block means differ by more than chance."""

_MEMBERS, _BETS = len(MEMBERS), len(BETS)
WAYS = _MEMBERS * _BETS
"""MemberValues times bets: the sums of logarithms of one detector."""
_COUNT, _VALUES, _SQUARES, _LOGS = 0, slice(1, 1 + _MEMBERS), slice(1 + _MEMBERS, 1 + 2 * _MEMBERS), 1 + 2 * _MEMBERS

Sums = NDArray[np.int64]


class Direction(StrEnum):
    """Which change of the accuracy is looked for."""

    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True)
class Detector:
    """What one detector looks for."""

    direction: Direction = Direction.DOWN
    tolerance: float | None = None
    """A smaller change is none; None for the smallest that is allowed, at least TOLERANCE."""

    @property
    def sign(self) -> float:
        """1 if it looks for a drop, -1 for a rise."""
        return 1.0 if self.direction is Direction.DOWN else -1.0

    def effective(self, smallest: Floats | float) -> Floats:
        """Return the tolerance that is used where the smallest allowed one is this; NaN if that is unknown."""
        return np.maximum(smallest, TOLERANCE if self.tolerance is None else self.tolerance)


def smallest_tolerance(records: int, right: int) -> float:
    """Return what a reference of so many records leaves unknown of its accuracy."""
    share = (right + 2.0) / (records + 4.0)
    return UNKNOWN * math.sqrt(share * (1.0 - share) / records)


def budget(windows: int, between_seconds: float, every_seconds: float) -> float:
    """Return the evidence to alarm at, for one false alarm in so long over all windows, evaluated so often."""
    return max(1.0, windows * between_seconds / every_seconds)


class Expected(NamedTuple):
    """What a baseline says of the watched estimates."""

    means: Floats
    """By member."""
    smallest_tolerance: float
    """What it leaves unknown."""


def null_means(detectors: Sequence[Detector], expected: Expected | None) -> Floats:
    """Return the means of the null hypothesis, shape (detectors, members); NaN without a baseline."""
    found = np.full((len(detectors), _MEMBERS), np.nan)
    if expected is not None:
        for row, one in zip(found, detectors, strict=True):
            row[:] = expected.means - one.sign * one.effective(expected.smallest_tolerance)
    return found


class MemberValues:
    """The numbers of a record whose means are the watched estimates, for one reference."""

    def __init__(self, calibration: Calibration) -> None:
        if calibration.adaptive_weight is None:
            raise ValueError("change: expected a reference with `adaptive`, found an old one: calibrate again")
        by_name: dict[str, Any] = {one.form.name: one.estimator for one in calibration.estimators}
        doc, conformal, atc = by_name["doc_ts"], by_name["cpc_acc_anchored_ts"], by_name["atc_mc_ts"]
        self.accuracy, self.weight, self.tie_weight = calibration.accuracy, calibration.adaptive_weight, atc.tie_weight
        self.smallest_tolerance = smallest_tolerance(calibration.records, calibration.right)
        self._doc, self._conformal = self.accuracy - doc.confidence, self.accuracy - conformal.anchor
        # The largest probability is at least 1/K; another one may be 0.
        least = 1.0 / calibration.classes if calibration.decision.by is DecidedBy.ARGMAX else 0.0
        one, zero = np.ones(1), np.zeros(1)
        self.high: Floats = self.values(one, one, one, one)[:, 0]
        self.low: Floats = self.values(zero, zero, np.array([least]), zero)[:, 0]

    def values(self, calibrated: Floats, passed: Floats, confidence: Floats, mean_score: Floats) -> Floats:
        """Return the numbers of records, shape (members, records).

        From the isotonic value, that of ATC (1 above the threshold, the tie weight at it), the scaled confidence, and the mean
        score in the conformal set.
        """
        found = np.empty((_MEMBERS, len(calibrated)))
        found[0] = calibrated
        np.add(mean_score, self._conformal, out=found[1])
        np.add(confidence, self._doc, out=found[2])
        np.multiply(found[1], 1.0 - self.weight, out=found[3])
        found[3] += self.weight * passed
        return found


def log_factors(values: Floats, means: Floats, low: Floats, high: Floats, sign: float) -> Floats:
    """Return the logarithms of the factors in fixed point, shape (members, bets, records).

    `means` are those of the null hypothesis: a column for all records, or one for each. `low` and `high` bound the values.
    """
    # A labelled baseline may lie where no value can: then no bet would be safe.
    inside = np.minimum(means, high[:, None] - _INSIDE) if sign > 0.0 else np.maximum(means, low[:, None] + _INSIDE)
    share = (inside - values) / ((high if sign > 0.0 else low)[:, None] - inside)
    # `share` is at least -1, and the largest bet is below 1: no factor is 0.
    found = BETS[:, None] * share[:, None, :]
    found += 1.0
    np.log(found, out=found)
    found *= POINT
    return np.asarray(np.rint(found, out=found))


class EvidenceTable:
    """The sums of all windows of a model over all its shards, since each began: only added to, never evicted.

    By window: records, the sums of the members' values and of their squares, then the logarithms of each detector.
    """

    def __init__(
        self, members: MemberValues, detectors: Sequence[Detector], start: Callable[[Any], Floats | None] | None = None
    ) -> None:
        self.members, self.detectors = members, tuple(detectors)
        self._start = start
        self._rows: dict[Any, int] = {}
        self._free: list[int] = []
        width = _LOGS + WAYS * len(self.detectors)
        self.sums = np.zeros((0, width), dtype=np.int64)
        self.means = np.full((0, len(self.detectors), _MEMBERS), np.nan)
        """The means of the null hypothesis; NaN while there is no baseline."""
        self.since = np.zeros(0)
        """When each window began, in Unix seconds: identifies its sums."""

    def __contains__(self, segment: object) -> bool:
        """Return whether a segment has sums."""
        return segment in self._rows

    @property
    def segments(self) -> list[Any]:
        """The segments with sums."""
        return list(self._rows)

    def row(self, segment: Any, now: float) -> int:  # noqa: ANN401 - segments are in a module above
        """Return the row of a segment, created if needed."""
        if segment not in self._rows:
            if not self._free:
                rows, more = len(self.sums), max(4, len(self.sums) >> 1)
                self.sums = np.concatenate([self.sums, np.zeros((more, self.sums.shape[1]), dtype=np.int64)])
                self.means = np.concatenate([self.means, np.full((more, *self.means.shape[1:]), np.nan)])
                self.since = np.concatenate([self.since, np.zeros(more)])
                self._free = list(range(rows + more - 1, rows - 1, -1))
            row = self._rows[segment] = self._free.pop()
            means = None if self._start is None else self._start(segment)
            self.begin(segment, np.full(self.means.shape[1:], np.nan) if means is None else means, now)
            return row
        return self._rows[segment]

    def begin(self, segment: Any, means: Floats, now: float) -> None:  # noqa: ANN401
        """Begin the sums of a segment anew, with other means."""
        row = self._rows[segment]
        self.sums[row], self.means[row] = 0, means
        # Later than before, so that it is another one.
        self.since[row] = max(now, np.nextafter(self.since[row], np.inf))

    def release(self, segments: Collection[Any]) -> None:
        """Forget segments."""
        for segment in segments:
            row = self._rows.pop(segment)
            self.sums[row], self.means[row] = 0, np.nan
            self._free.append(row)

    def add(self, values: Floats, starts: Integers, rows: Integers, taken: Booleans) -> None:
        """Add records in groups; rows of windows, and whether they count there, are given by place and group."""
        lengths = np.concatenate((starts[1:], [values.shape[1]])) - starts
        some = np.logical_or.reduce(taken, axis=0)
        if not some.all():
            # The others have left windows, mostly.
            values, lengths = values[:, np.repeat(some, lengths)], lengths[some]
            starts, rows, taken = np.cumsum(lengths) - lengths, rows[:, some], taken[:, some]
        place, group = np.nonzero(taken)
        row, width = rows[place, group], self.sums.shape[1]
        found = np.empty((len(row), width), dtype=np.int64)
        found[:, _COUNT] = lengths[group]
        summed = np.concatenate((values, values * values))
        summed *= POINT
        np.rint(summed, out=summed)
        found[:, _COUNT + 1 : _LOGS] = np.add.reduceat(summed, starts, axis=1).T[group]
        # Windows that are compared with the same have the same factors. As integers, NaN equals NaN.
        means = self.means[row]
        bits = means.view(np.int64)
        if len(row) == 1 or np.logical_and.reduce(bits == bits[0], axis=None):
            found[:, _LOGS:] = self._logs(values, starts, lengths, means[:1])[group]
        else:
            for one in range(len(rows)):
                entries = place == one
                each = np.full((len(starts), *means.shape[1:]), np.nan)
                each[group[entries]] = means[entries]
                found[entries, _LOGS:] = self._logs(values, starts, lengths, each)[group[entries]]
        where = row[:, None] * width + np.arange(width)
        np.add.at(self.sums.reshape(-1), where.reshape(-1), found.reshape(-1))

    def _logs(self, values: Floats, starts: Integers, lengths: Integers, means: Floats) -> Integers:
        """Return the sums of logarithms of groups, shape (groups, detectors times ways); 0 without a baseline.

        `means` are those of each group, or one for all.
        """
        logs = np.zeros((len(starts), len(self.detectors), WAYS), dtype=np.int64)
        for number, detector in enumerate(self.detectors):
            own = means[:, number]
            unknown = np.logical_or.reduce(np.isnan(own), axis=1)
            if unknown.all():
                continue
            each = (own if len(own) == 1 else np.repeat(own, lengths, axis=0)).T
            found = log_factors(values, each, self.members.low, self.members.high, detector.sign)
            sums = np.add.reduceat(found.reshape(WAYS, -1), starts, axis=1)
            logs[:, number] = np.where(unknown, 0.0, sums).T
        return logs.reshape(len(starts), -1)

    def snapshot(self, segments: Sequence[Any]) -> "EvidenceSums":
        """Return the sums of some segments, all of which have some."""
        rows = np.array([self._rows[segment] for segment in segments], dtype=np.int64)
        return EvidenceSums(self.sums[rows], self.means[rows], self.since[rows])

    def begin_again(self, segments: Collection[Any], now: float) -> None:
        """Begin the sums of those of some segments that are here anew, with the same means."""
        for segment in self._rows.keys() & set(segments):
            self.begin(segment, self.means[self._rows[segment]].copy(), now)

    def restore(self, segments: Sequence[Any], sums: "EvidenceSums") -> None:
        """Take stored sums."""
        for index, segment in enumerate(segments):
            row = self.row(segment, 0.0)
            self.sums[row], self.means[row], self.since[row] = (column[index] for column in sums)


class EvidenceSums(NamedTuple):
    """The sums of windows, as columns of an `EvidenceTable`."""

    sums: Sums
    means: Floats
    since: Floats


@dataclass(frozen=True, slots=True)
class Blocks:
    """The records of an own baseline, in the blocks of single evaluations: their mean, and how it wanders. Immutable."""

    count: int = 0
    records: int = 0
    values: tuple[float, ...] = (0.0,) * _MEMBERS
    squares: tuple[float, ...] = (0.0,) * _MEMBERS
    between: tuple[float, ...] = (0.0,) * _MEMBERS
    """Sums of squares of block means, each as often as it has records."""
    sizes: int = 0
    """Sum of the squares of the numbers of records."""

    def added(self, block: Sums) -> "Blocks":
        """Return them with the records between two evaluations, as differences of sums."""
        records = int(block[_COUNT])
        if not records:
            return self
        values, squares = ((block[some] / POINT).tolist() for some in (_VALUES, _SQUARES))
        return Blocks(
            self.count + 1,
            self.records + records,
            tuple(map(add, self.values, values)),
            tuple(map(add, self.squares, squares)),
            tuple(before + value**2 / records for before, value in zip(self.between, values, strict=True)),
            self.sizes + records**2,
        )

    @property
    def complete(self) -> bool:
        """Whether there are enough for a baseline."""
        return self.count >= FEWEST_BLOCKS

    @property
    def means(self) -> Floats:
        """The mean of each member."""
        return np.array(self.values) / max(1, self.records)

    @property
    def smallest_tolerance(self) -> float:
        """What the blocks leave unknown of the mean, and how far it wanders by more than chance."""
        unknown, wander = self._spread()
        return float(np.max(unknown + wander))

    @property
    def wander(self) -> float:
        """How far the mean wanders by more than chance, as tolerances count it."""
        return float(np.max(self._spread()[1]))

    def _spread(self) -> tuple[Floats, Floats]:
        degrees, means = max(1, self.count - 1), self.means
        apart = np.maximum(0.0, np.array(self.between) - self.records * means**2)
        # The variance within blocks; of single records there is none.
        within, total = np.array(self.squares) - self.between, np.array(self.squares) - self.records * means**2
        noise = np.maximum(
            within / (self.records - self.count) if self.records > self.count else total / degrees, 1e-12
        )
        error = np.sqrt(apart / max(1, self.records) / degrees)
        # Wilson and Hilferty: the cube root of chi-squared is nearly normal.
        third = 2.0 / (9.0 * degrees)
        excess = apart / noise > degrees * (1.0 - third + _CHI_SQUARED * math.sqrt(third)) ** 3
        scale = max(1e-12, self.records - self.sizes / max(1, self.records))
        wander = np.sqrt(np.maximum(0.0, apart - degrees * noise) / scale)
        return _BLOCK_ERRORS * error, np.where(excess, _WANDERS * wander, 0.0)


_NEW = (0, np.nan, np.nan, -np.inf, 0.0, np.nan, 0.0, np.nan)
"""What a new window has in each column of `ChangeEvidence`."""


@dataclass(slots=True, eq=False)
class ChangeEvidence:
    """The evidence of windows against no change, between evaluations, as columns; and where each way began to grow."""

    detectors: int
    segments: tuple[Any, ...] = ()
    away: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    """The columns of segments whose windows are not here now."""
    taken: EvidenceSums = field(init=False)
    """The sums until the last evaluation."""
    logs: Floats = field(init=False)
    """The logarithm of the evidence of each way, shape (windows, detectors, ways); minus infinity at the start."""
    rise: Floats = field(init=False)
    """A CUSUM beside each way: the logarithm since it was last 0."""
    began_at: Floats = field(init=False)
    began_records: Floats = field(init=False)
    """When each was last 0: the time of the newest record, and the records until then."""
    alarm_at: Floats = field(init=False)
    """The time of the newest record when an alarm began, shape (windows, detectors); NaN without one."""

    def __post_init__(self) -> None:
        """Start without windows."""
        ways = (0, self.detectors, WAYS)
        self.taken = EvidenceSums(
            np.zeros((0, _LOGS + self.detectors * WAYS), dtype=np.int64),
            np.zeros((0, self.detectors, _MEMBERS)),
            np.zeros(0),
        )
        self.logs, self.rise, self.began_at, self.began_records = (np.zeros(ways) for _ in range(4))
        self.alarm_at = np.zeros(ways[:2])

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns, a row for each window."""
        return (*self.taken, self.logs, self.rise, self.began_at, self.began_records, self.alarm_at)

    def put(self, segments: Sequence[Any], columns: Sequence[NDArray[Any]]) -> None:
        """Replace all columns."""
        self.segments, self.taken = tuple(segments), EvidenceSums(*columns[:3])
        self.logs, self.rise, self.began_at, self.began_records, self.alarm_at = columns[3:]

    def select(self, segments: Sequence[Any], kept: Collection[Any] = ()) -> None:
        """Order the windows as given: unknown ones are new; others are forgotten, unless they are to be kept."""
        segments = tuple(segments)
        if segments == self.segments:
            return
        columns = self.columns
        rows = {segment: tuple(one[place] for one in columns) for place, segment in enumerate(self.segments)}
        rows = {**self.away, **rows}
        others = set(kept) - set(segments)
        self.away = {one: row for one, row in rows.items() if one in others}
        new = [np.full(one.shape[1:], fill, dtype=one.dtype) for one, fill in zip(columns, _NEW, strict=True)]
        each = [rows.get(segment, new) for segment in segments]
        self.put(
            segments,
            [
                np.array([row[number] for row in each], dtype=one.dtype).reshape(len(each), *one.shape[1:])
                for number, one in enumerate(columns)
            ],
        )

    def update(self, now: EvidenceSums, newest_at: Floats, held: Booleans | None = None) -> Sums:
        """Take the records since the last evaluation; return them, as differences of sums.

        `held` are the detectors, by window, for which they do not count.
        """
        same_means = np.all(
            (now.means == self.taken.means) | (np.isnan(now.means) & np.isnan(self.taken.means)), (1, 2)
        )
        self.restart(~((now.since == self.taken.since) & same_means))
        self.taken.sums[~(now.since == self.taken.since)] = 0
        # Differences are right even if sums exceed 64 bits.
        new = now.sums - self.taken.sums
        self.taken = now
        came = (new[:, _COUNT] > 0)[:, None] & ~np.isnan(now.means).any(axis=2)
        if held is not None:
            came &= ~held
        logs = new[:, _LOGS:].reshape(self.logs.shape) / POINT
        some = came[:, :, None]
        self.logs = np.where(some, np.logaddexp(self.logs, 0.0) + logs, self.logs)
        rise = self.rise + np.where(some, logs, 0.0)
        low, first = (rise <= 0.0) & some, np.isnan(self.began_at)
        self.rise = np.maximum(rise, 0.0)
        self.began_at = np.where(
            low, newest_at[:, None, None], np.where(first, now.since[:, None, None], self.began_at)
        )
        records = now.sums[:, _COUNT, None, None]
        self.began_records = np.where(
            low, records, np.where(first, records - new[:, _COUNT, None, None], self.began_records)
        )
        return new

    def restart(self, windows: Booleans, detector: int | slice = slice(None)) -> None:
        """Start again at no evidence."""
        self.logs[windows, detector] = -np.inf
        self.rise[windows, detector] = 0.0
        self.began_at[windows, detector], self.alarm_at[windows, detector] = np.nan, np.nan

    @property
    def watching(self) -> Booleans:
        """Which windows have a baseline, shape (windows, detectors)."""
        return np.asarray(~np.isnan(self.taken.means).any(axis=2))

    @property
    def value(self) -> Floats:
        """The evidence as a logarithm to base 10, shape (windows, detectors); NaN without a baseline or without records."""
        highest = self.logs.max(axis=2, initial=-np.inf)
        finite = np.where(np.isfinite(highest), highest, 0.0)
        with np.errstate(divide="ignore"):
            mean = np.log(np.exp(self.logs - finite[:, :, None]).mean(axis=2)) + finite
        return np.where(self.watching & np.isfinite(highest), mean / math.log(10.0), np.nan)

    def began(self) -> tuple[Floats, Floats]:
        """Return when the change most likely began, and how many records ago, shape (windows, detectors)."""
        best = np.argmax(self.logs, axis=2)[:, :, None]
        at, before = (np.take_along_axis(some, best, axis=2)[:, :, 0] for some in (self.began_at, self.began_records))
        return at, self.taken.sums[:, _COUNT, None] - before


class ChangeStatus(NamedTuple):
    """What one detector says of one window, for display."""

    direction: Direction
    evidence: float | None
    """As a logarithm to base 10; None without a baseline or without records."""
    threshold: float
    """The evidence to alarm at, as a logarithm to base 10."""
    tolerance: float | None
    """A smaller change is none; None without a baseline."""
    began_at: float | None
    """When the evidence began to grow: the time of a record, in Unix seconds. None without evidence."""
    records_since: int | None
    """The records since then."""
    blocks: int
    """Of an own baseline, evaluations with records until now; FEWEST_BLOCKS for another one."""
    held: bool = False
    """Whether records do not count now: in maintenance, or because they are not what the reference is about."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangeColumns:
    """What the detectors of a model say, a row for each and a column for each window."""

    directions: tuple[Direction, ...]
    evidence: Floats
    """NaN without a baseline or without records."""
    thresholds: tuple[float, ...]
    tolerance: Floats
    began_at: Floats
    records_since: Floats
    blocks: Integers
    """By window."""
    held: Booleans
    """Whether records do not count now."""

    def window(self, index: int) -> tuple[ChangeStatus, ...]:
        """Return what they say of one window."""
        columns = (self.evidence, self.tolerance, self.began_at, self.records_since, self.held)
        rows = zip(self.directions, self.thresholds, *(one[:, index].tolist() for one in columns), strict=True)
        return tuple(
            ChangeStatus(
                direction,
                or_none(evidence),
                threshold,
                or_none(tolerance),
                or_none(at),
                None if math.isnan(since) else int(since),
                int(self.blocks[index]),
                bool(held),
            )
            for direction, threshold, evidence, tolerance, at, since, held in rows
        )

    def padded(self, count: int) -> "ChangeColumns":
        """Return them with so many windows behind that have no evidence."""

        def filled(column: Floats) -> Floats:
            return np.pad(column, ((0, 0), (0, count)), constant_values=np.nan)

        return ChangeColumns(
            self.directions,
            filled(self.evidence),
            self.thresholds,
            filled(self.tolerance),
            filled(self.began_at),
            filled(self.records_since),
            np.pad(self.blocks, (0, count)),
            np.pad(self.held, ((0, 0), (0, count))),
        )


BYTES_PER_WINDOW = 8 * (2 * (_LOGS + WAYS + _MEMBERS + 1) + 4 * WAYS + 1)
"""The memory of one window with one detector, in the sums and between evaluations."""
