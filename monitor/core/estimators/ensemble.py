"""All estimators together: calibration on a reference, estimation for windows."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from monitor.core.estimate import (
    ADAPTIVE,
    CONSENSUS,
    HEADLINE,
    Estimate,
    Interval,
    NoEstimate,
    PredictionSets,
    Result,
    Why,
)
from monitor.core.estimators import ESTIMATORS, Estimator, Form
from monitor.core.estimators.base import Line
from monitor.core.estimators.conformal import Conformal
from monitor.core.scores import (
    Booleans,
    Floats,
    Integers,
    LabelledOutputs,
    Outputs,
    Singles,
    UpperScores,
    in_blocks,
    place_at,
)

Failed = Callable[[str, Exception, int], None]
"""Called with the name and error of an estimator that failed, and on how many windows. Without it, a failure is raised."""

Variants = Mapping[str, str]
"""Which variant of an estimator to use, by its name: `{"cpc_ac": "skip"}`."""


@dataclass(frozen=True, slots=True)
class CalibratedEstimator:
    """A calibrated estimator."""

    form: Form
    estimator: Estimator


def calibrate_all(reference: LabelledOutputs) -> tuple[CalibratedEstimator, ...]:
    """Calibrate every estimator, raw and scaled, in its default variant."""
    return tuple(
        CalibratedEstimator(form, member.family.calibrate(reference, scaled=form.scaled))
        for member in ESTIMATORS
        for form in member.forms()
        if form.variant is None
    )


def with_variants(ready: Iterable[CalibratedEstimator]) -> tuple[CalibratedEstimator, ...]:
    """Return each estimator in all its variants."""
    return tuple(choose(one, variant) for one in ready for variant in (None, *one.form.member.variants))


def choose(ready: CalibratedEstimator, variant: str | None) -> CalibratedEstimator:
    """Return an estimator in another variant."""
    if variant is None:
        return ready
    fields = ready.form.member.variants[variant]
    return CalibratedEstimator(replace(ready.form, variant=variant), replace(cast("Any", ready.estimator), **fields))


class Measured(Protocol):
    """Measured windows of a model, as the estimators need them. Windows without records have any finite means."""

    @property
    def records(self) -> Integers:
        """Number of records of each window."""
        ...

    def mean_confidence(self, *, scaled: bool) -> Floats:
        """Return the mean confidence of each window, raw or scaled."""
        ...

    def means(self, one: CalibratedEstimator) -> Floats:
        """Return the means of an estimator's contributions, shape (rows, windows)."""
        ...

    def all_means(self) -> tuple[Floats, Mapping[str, slice]]:
        """Return the means of all estimators in one array, behind them a row of NaN; and the rows of each form."""
        ...


@dataclass(frozen=True, slots=True)
class MeasuredRecords:
    """Windows measured from their records."""

    records: Integers
    confidence: Floats
    """Sums of the confidences, raw and scaled, shape (2, windows)."""
    sums: Mapping[str, Floats]
    """Sums of the contributions by form, shape (rows, windows)."""
    divisor: Integers = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Divide by 1 without records."""
        object.__setattr__(self, "divisor", np.maximum(self.records, 1))

    def mean_confidence(self, *, scaled: bool) -> Floats:
        """Return the mean confidences."""
        return self._mean(self.confidence[int(scaled)])

    def means(self, one: CalibratedEstimator) -> Floats:
        """Return the means of an estimator's contributions."""
        return self._mean(self.sums[one.form.name])

    def all_means(self) -> tuple[Floats, Mapping[str, slice]]:
        """Return the means of all estimators, behind them a row of NaN; and the rows of each form."""
        rows, place = dict[str, slice](), 0
        for name, sums in self.sums.items():
            rows[name] = slice(place, place + len(sums))
            place += len(sums)
        return self._mean(np.vstack([*self.sums.values(), np.full(len(self.records), np.nan)])), rows

    def _mean(self, sums: Floats) -> Floats:
        return np.asarray(sums / self.divisor)


# Between the two passes over a window, what its conformal sets need is kept if there are many classes, at most so many bytes;
# if there are few, all derived scores of a small window. Otherwise scores are derived twice: keeping more would take
# as long, in page faults.
_MANY_CLASSES = 64
_MOST_KEPT = 1 << 24
_SMALL_ELEMENTS = 1 << 17

# The mean confidence of a window is rarely that much above that of its first block.
_MORE_CONFIDENCE = 0.05


def measure_vectors(
    ready: Iterable[CalibratedEstimator], probabilities: Singles, temperature: float, decided: Integers | None = None
) -> MeasuredRecords:
    """Measure a window of vectors, shape (records, classes); `decided` are the decided classes, unless by argmax."""

    def blocks() -> Iterator[Outputs]:
        return in_blocks(probabilities, temperature, decided)

    if probabilities.shape[1] >= _MANY_CLASSES:
        return measure(ready, blocks, _MOST_KEPT)
    if probabilities.size > _SMALL_ELEMENTS:
        return measure(ready, blocks)
    kept = list(blocks())
    return measure(ready, lambda: kept)


def measure(
    ready: Iterable[CalibratedEstimator], blocks: Callable[[], Iterable[Outputs]], most_kept: int = 0
) -> MeasuredRecords:
    """Measure the window whose records `blocks` yields at each call.

    The first pass finds the window's mean confidence, which sets the threshold of `cpc_ac`; the second adds the conformal
    sets. With `most_kept`, so many bytes of what sets probably need are kept, so that `blocks` is rarely called again.
    """
    forms = {one.form.name: one for one in ready}
    sets = {name: one for name, one in forms.items() if isinstance(one.estimator, Conformal)}
    others = {name: one for name, one in forms.items() if name not in sets}
    records, confidence, sums = 0, np.zeros(2), dict[object, Any]()
    kept = _Kept(list(sets.values()), most_kept)
    for block in blocks():
        records += block.records
        confidence += [block.raw.confidence.sum(), block.scaled.confidence.sum()]
        # Only conformal forms use the mean confidence.
        _add(sums, others, block, np.zeros(2))
        kept.add(block)
    means = confidence / max(records, 1)
    # Forms with the same threshold share their sums.
    keys: dict[str, object] = {name: name for name in others}
    keys |= {name: (one.form.scaled, _threshold(one, means)) for name, one in sets.items()}
    shared = {keys[name]: one for name, one in sets.items()}
    for block in kept.blocks(means) or blocks():
        _add(sums, shared, block, means)
    columns = {name: np.reshape(sums.get(keys[name], 0.0), (-1, 1)) for name in forms}
    return MeasuredRecords(np.array([records]), confidence[:, None], columns)


def _add(sums: dict[object, Any], forms: Mapping[Any, CalibratedEstimator], block: Outputs, confidence: Floats) -> None:
    for key, one in forms.items():
        scaled = one.form.scaled
        rows = one.estimator.contributions(block.scores(scaled=scaled), float(confidence[int(scaled)]))
        sums[key] = sums.get(key, 0.0) + np.add.reduce(rows, axis=1)


def _threshold(one: CalibratedEstimator, confidence: Floats) -> float:
    estimator = cast("Conformal", one.estimator)
    return float(estimator.threshold(confidence[int(one.form.scaled)]))


class _Kept:
    """The upper probabilities of blocks, from a little below the thresholds for the mean confidence of the first."""

    def __init__(self, sets: Sequence[CalibratedEstimator], most_bytes: int) -> None:
        self._sets = sets
        self._left = most_bytes
        self._floors: Floats | None = None
        self._blocks: list[Outputs] = []

    def add(self, block: Outputs) -> None:
        """Keep what is needed of a block, if there is space."""
        if self._left <= 0:
            return
        if self._floors is None:
            means = np.array([block.raw.confidence.mean(), block.scaled.confidence.mean()])
            self._floors = self._lowest(np.minimum(1.0, means + _MORE_CONFIDENCE))
        if block.records > 1:
            upper = [UpperScores(block.scores(scaled=scaled), self._floors[int(scaled)]) for scaled in (False, True)]
            self._left -= upper[0].nbytes + upper[1].nbytes
            block = Outputs(*upper)
        self._blocks.append(block)

    def blocks(self, confidence: Floats) -> Sequence[Outputs]:
        """Return all blocks of a window with this mean confidence; none if they are not enough."""
        enough = self._left > 0 and self._floors is not None and np.all(self._lowest(confidence) >= self._floors)
        return self._blocks if enough else ()

    def _lowest(self, confidence: Floats) -> Floats:
        """Return the lowest threshold, raw and scaled."""
        thresholds = ((one.form.scaled, _threshold(one, confidence)) for one in self._sets)
        lowest = np.full(2, 2.0)
        for scaled, threshold in thresholds:
            lowest[int(scaled)] = min(lowest[int(scaled)], threshold)
        return lowest


def side_by_side(windows: Sequence[MeasuredRecords]) -> MeasuredRecords:
    """Return measured windows of one model together."""
    if len(windows) == 1:
        return windows[0]
    return MeasuredRecords(
        np.concatenate([one.records for one in windows]),
        np.hstack([one.confidence for one in windows]),
        {name: np.hstack([one.sums[name] for one in windows]) for name in windows[0].sums},
    )


Codes = NDArray[np.uint8]

_WHY = (None, *Why)
TOO_FEW_RECORDS, ALL_SETS_EMPTY, ERROR = (
    _WHY.index(why) for why in (Why.TOO_FEW_RECORDS, Why.ALL_SETS_EMPTY, Why.ERROR)
)

# The accuracy of a reference changed by less than 1; anything else is not an accuracy, a percentage for example.
# These are arrays, because numpy converts a number at every call.
_LOWEST, _HIGHEST = np.array(-1.0), np.array(2.0)
_ZERO, _ONE, _THREE, _FOUR = np.array(0.0), np.array(1.0), np.array(3.0), np.array(4.0)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Estimates of windows, as columns: a row an estimator, a column a window."""

    names: tuple[str, ...]
    records: Integers
    accuracy: Floats
    """NaN if there is none."""
    unclipped: Floats
    """Before clipping to 0 and 1; NaN if there is none."""
    set_size: Floats
    """The mean size of conformal sets; NaN without sets."""
    empty_share: Floats
    why: Codes
    """0 for an estimate, otherwise 1 plus the index of the reason in `Why`."""

    def results(self, window: int, intervals: Iterable[Interval | None] | None = None) -> dict[str, Result]:
        """Return the results for one window by name."""
        records = int(self.records[window])
        columns = (self.accuracy, self.unclipped, self.set_size, self.empty_share, self.why)
        rows = zip(*(column[:, window].tolist() for column in columns), strict=True)
        found: dict[str, Result] = {}
        for name, row, interval in zip(self.names, rows, intervals or [None] * len(self.names), strict=True):
            accuracy, unclipped, size, empty, code = row
            # NaN differs from itself.
            sets = PredictionSets(size, empty) if size == size else None  # noqa: PLR0124
            why = _WHY[code]
            if why is None:
                found[name] = Estimate(accuracy, records, interval, sets, None if accuracy == unclipped else unclipped)
            else:
                found[name] = NoEstimate(why, records, sets)
        return found


class Forms:
    """Estimators in some forms, with what their estimates need besides the windows; behind them rows for combinations."""

    def __init__(self, ready: Iterable[CalibratedEstimator], combinations: int = 0) -> None:
        self.ready = tuple(ready)
        self._combinations = combinations
        self._lines = [_line(one.estimator) for one in self.ready]
        self._others = [row for row, line in enumerate(self._lines) if line is None]
        lines = [line or Line() for line in (*self._lines, *[None] * combinations)]
        self._moving = [(row, line.anchor) for row, line in enumerate(lines) if isinstance(line.anchor, np.ndarray)]
        self._scaled = [self.ready[row].form.scaled for row, _ in self._moving]
        self._ranks = np.array([(len(anchor) + 1.0,) for _, anchor in self._moving])
        fixed = [0.0 if isinstance(line.anchor, np.ndarray) else line.anchor for line in lines]
        self._weight, self._anchor, self._accuracy = (
            np.array(some)[:, None]
            for some in ([line.weight for line in lines], fixed, [line.accuracy for line in lines])
        )
        self._places: tuple[Mapping[str, slice] | None, Integers] = None, np.empty(0, dtype=np.int64)

    def columns(self, windows: Measured, failed: Failed | None = None) -> tuple[Floats, Codes, bool]:
        """Return accuracies, unclipped, set sizes and shares of empty sets, shape (4, estimators, windows); and `why`.

        With empty rows for the combinations. The last is whether all windows have all estimates.
        """
        records, forms = windows.records, len(self.ready)
        filled = np.count_nonzero(records)
        errors: dict[int, Exception] = {}
        columns = self._values(windows) if filled else np.full((4, forms + self._combinations, len(records)), np.nan)
        for row in self._others if filled else ():
            one = self.ready[row]
            try:
                confidence = windows.mean_confidence(scaled=one.form.scaled)
                columns[1, row] = one.estimator.estimate(windows.means(one), confidence)
            except Exception as error:
                if failed is None:
                    raise
                errors[row] = error
        why, values = np.zeros(columns.shape[1:], dtype=np.uint8), columns[1, :forms]
        # False for NaN.
        valid = (values >= _LOWEST) & (values <= _HIGHEST)
        complete = filled == len(records) and np.count_nonzero(valid) == valid.size
        if not complete:
            why[:forms][~valid] = ERROR
            self._explain(columns[1:, :forms], why[:forms], records, errors, failed)
        np.minimum(_ONE, np.maximum(_ZERO, columns[1]), out=columns[0])
        return columns, why, complete

    def _explain(
        self, columns: Floats, why: Codes, records: Integers, errors: Mapping[int, Exception], failed: Failed | None
    ) -> None:
        """Complete the reasons, report the failures, and remove what is no estimate."""
        values, sizes, empty = columns
        why[np.isnan(values) & (empty == 1.0)] = ALL_SETS_EMPTY
        why[:, records == 0] = TOO_FEW_RECORDS
        for row in np.flatnonzero((why == ERROR).any(axis=1)).tolist():
            wrong = why[row] == ERROR
            name, found = self.ready[row].form.full_name, values[row, wrong][0]
            problem = errors.get(row) or ArithmeticError(f"{name}: expected an accuracy from 0 to 1, found {found}")
            if failed is None:
                raise problem
            failed(name, problem, int(np.count_nonzero(wrong)))
        values[why != 0] = np.nan
        without = (why == ERROR) | (why == TOO_FEW_RECORDS)
        sizes[without] = empty[without] = np.nan

    def _values(self, windows: Measured) -> Floats:
        """Return new columns, with the estimates of all lines; NaN for the others and for combinations."""
        means, places = windows.all_means()
        if places is not self._places[0]:
            self._places = places, self._rows(places)
        columns = means.take(self._places[1], axis=0)
        values = columns[1]
        values *= self._weight
        values += columns[0]
        values -= self._anchor
        if self._moving:
            levels = np.array([windows.mean_confidence(scaled=scaled) for scaled in self._scaled])
            for (row, anchor), place in zip(self._moving, place_at(levels, self._ranks), strict=True):
                values[row] -= anchor.take(place, mode="clip")
        values += self._accuracy
        return columns

    def _rows(self, places: Mapping[str, slice]) -> Integers:
        """Return the rows of the means for each column: both of the line, the size and the share of empty sets.

        The last row of the means is NaN.
        """
        rows = np.full((4, len(self.ready) + self._combinations), -1)
        for column, (one, line) in enumerate(zip(self.ready, self._lines, strict=True)):
            if one.form.name in places:
                first = places[one.form.name].start
                if line is not None:
                    rows[:2, column] = first, first + line.row
                if isinstance(one.estimator, Conformal):
                    rows[2:, column] = first + 1, first + 2
        return rows


def _line(estimator: Estimator) -> Line | None:
    """Return the line of an estimator; None if it has none, or a subclass has another `estimate`."""
    for family in type(estimator).__mro__:
        if "line" in vars(family):
            return cast("Line | None", cast("Any", estimator).line())
        if "estimate" in vars(family):
            break
    return None


def estimate_forms(ready: Iterable[CalibratedEstimator], windows: Measured) -> Estimates:
    """Return the estimates of measured windows."""
    forms = Forms(ready)
    columns, why, _ = forms.columns(windows)
    accuracy, unclipped, sizes, empty = columns
    names = tuple(one.form.full_name for one in forms.ready)
    return Estimates(names, windows.records, accuracy, unclipped, sizes, empty, why)


def results_of(ready: Iterable[CalibratedEstimator], blocks: Callable[[], Iterable[Outputs]]) -> dict[str, Result]:
    """Measure a window and return its results by full name."""
    ready = tuple(ready)
    return estimate_forms(ready, measure(ready, blocks)).results(0)


MEMBERS = (
    "atc_mc_ts",
    "atc_ne_ts",
    "doc_ts",
    "cpc_acc_anchored_ts",
    "cpc_ac_anchored_ts",
    "calibrated_confidence",
)
"""The members. Each returns the reference accuracy on the reference itself."""


def combine(accuracies: Floats) -> tuple[Floats, Floats]:
    """Return the consensus of the six members, and their disagreement, from rows in the order of MEMBERS.

    The consensus is the lower quartile of the members: under shift they all tend to be too high. Like its members, it does
    not detect confident errors. The disagreement is the highest minus the lowest member; if it is large, no estimate is
    reliable. Both are NaN if a member is.
    """
    rising = accuracies.copy()
    rising.sort(axis=0)
    # NaN is sorted last.
    spread = rising[5] - rising[0]
    # The lower quartile of six is a quarter of the way from the second to the third.
    lower = (rising[1] * _THREE + rising[2]) / _FOUR
    np.putmask(lower, np.isnan(spread), np.nan)
    return lower, spread


MIXED = ("atc_mc_ts", "cpc_acc_anchored_ts")
"""The two parts of `adaptive`. Each returns the reference accuracy on the reference itself."""

_PRIOR_AREA, _PRIOR_ERRORS = 0.75, 10.0
_AREAS = (0.70, 0.80)


def adaptive_weight(right: Integers, wrong: Integers) -> float:
    """Return the weight of ATC in `adaptive`, from the right and wrong decisions of the reference by rising scaled confidence.

    Where confidence separates right from wrong, thresholding it is the best single method; where it does not, ATC overreacts
    and the anchored conformal estimate holds. The area under the ROC curve says which; with few errors it is drawn to a prior.
    """
    errors, below = int(wrong.sum()), np.cumsum(wrong) - wrong
    pairs = errors * int(right.sum())
    area = float(np.sum(right * (below + wrong / 2.0))) / pairs if pairs else _PRIOR_AREA
    if pairs:
        area = (errors * area + _PRIOR_ERRORS * _PRIOR_AREA) / (errors + _PRIOR_ERRORS)
    low, high = _AREAS
    return min(1.0, max(0.0, (area - low) / (high - low)))


def by_confidence(reference: LabelledOutputs) -> tuple[Integers, int]:
    """Return the rank of each record by scaled confidence as float32, ties alike, and the number of ranks."""
    confidences, ranks = np.unique(reference.outputs.scaled.confidence.astype(np.float32), return_inverse=True)
    return ranks, len(confidences)


def weight_of(ranks: Integers, count: int, correct: Booleans) -> float:
    """Return the weight of ATC for records with these ranks."""
    return adaptive_weight(*(np.bincount(ranks[some], minlength=count) for some in (correct, ~correct)))


def mix(parts: Floats, weight: float | Floats) -> Floats:
    """Return `adaptive`, not clipped, from the unclipped estimates of its parts, in the order of MIXED."""
    return np.asarray(weight * parts[0] + (1.0 - weight) * parts[1])


def headline_in(names: Container[str]) -> str:
    """Return the headline among some estimates: the consensus if the reference is too old for `adaptive`."""
    return HEADLINE if HEADLINE in names else CONSENSUS


class Ensemble:
    """Calibrated estimators in chosen variants, the consensus, and `adaptive` if its weight is known."""

    def __init__(self, ready: Iterable[CalibratedEstimator], variants: Variants, weight: float | None = None) -> None:
        default = tuple(ready)
        chosen = tuple(choose(one, variants.get(one.form.member.name)) for one in default)
        combined = (CONSENSUS,) if weight is None else (CONSENSUS, ADAPTIVE)
        # Combinations always use the default variants.
        self._forms = Forms((*default, *(one for one in chosen if one.form.variant is not None)), len(combined))
        place = {one.form.full_name: row for row, one in enumerate(self._forms.ready)}
        self._members, self._mixed = (np.array([place[name] for name in names]) for names in (MEMBERS, MIXED))
        forms = len(place)
        # As a column, because numpy converts a number at every call.
        self._weights = None if weight is None else np.array([[weight], [1.0 - weight]])
        self._consensus, self._adaptive = forms, forms + 1
        last = range(forms, forms + len(combined))
        self._rows = [*(place[one.form.full_name] for one in chosen), *last] if forms > len(default) else None
        self.names = (*(one.form.name for one in chosen), *combined)
        self.full_names = (*(one.form.full_name for one in chosen), *combined)

    def estimate(self, windows: Measured, failed: Failed | None = None) -> tuple[Floats, Codes, Floats]:
        """Return the columns of `Estimates` in the chosen variants, then the combinations; their `why`; the disagreement."""
        columns, why, complete = self._forms.columns(windows, failed)
        consensus, spread = combine(columns[0].take(self._members, axis=0))
        columns[:2, self._consensus] = consensus
        if self._weights is not None:
            mixed = columns[1, self._adaptive]
            np.add.reduce(columns[1].take(self._mixed, axis=0) * self._weights, axis=0, out=mixed)
            np.minimum(_ONE, np.maximum(_ZERO, mixed), out=columns[0, self._adaptive])
        if not complete:
            # The reason of the first member that has one.
            for row, members in ((self._consensus, self._members), (self._adaptive, self._mixed)):
                if row < len(why):
                    reasons = why[members]
                    why[row] = reasons[(reasons != 0).argmax(axis=0), np.arange(len(spread))]
        if self._rows is not None:
            columns, why = columns[:, self._rows], why[self._rows]
        return columns, why, spread
