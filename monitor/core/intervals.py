"""How far an estimate may be off by chance alone, learnt by replaying the reference against itself.

Each replay splits the reference into a pseudo-reference and held-out records, calibrates every estimator on the first,
and asks it about windows of several sizes from the second, whose realised accuracy is known. What an estimator is off
on its own reference (its bias, known exactly) is taken away on both occasions: in the replay and in the field. So the
spread of the errors holds everything that chance does: to the window, to the thresholds, and to the bias itself.

The interval is about chance, not about shift. The temperature is not fitted anew in each replay: its effect cancels to
first order between the window and the bias, and the coverage measured in `benchmarks/coverage.py` shows no trace of it.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from monitor.core.ensemble import Ready, answer, calibrate_all, combine, with_variants
from monitor.core.estimate import Estimate, Interval, Result, clipped
from monitor.core.estimators.consensus import CONSENSUS
from monitor.core.scores import Floats, Integers, LabelledOutputs, Outputs

Progress = Callable[[float], None]
"""Called with the share of the work that is done."""

DEFAULT_LEVEL = 0.95
LEVELS = (0.5, 0.99)
"""Levels that the replays can tell: beyond the upper one hardly an error in a thousand would decide."""

_REPLAYS = 200
_WINDOWS_PER_SIZE = 3
_FEWEST_RECORDS = 20
"""A smaller reference says nothing about its own scatter: intervals are then the whole range."""
_FEWEST_ERRORS = 40
_SEED = 20220722
_REACHES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class ErrorQuantiles:
    """An estimator's errors in the replays, by window size, in units of sqrt(1/n + 1/m)."""

    bias: float
    low: Floats
    high: Floats


@dataclass(frozen=True)
class IntervalTables:
    """Error quantiles of every estimator form and of the consensus; the chance part of the disagreement."""

    level: float
    reference_records: int
    sizes: Integers
    errors: Mapping[str, ErrorQuantiles]
    disagreement: Floats

    def interval(self, name: str, accuracy: float, records: int) -> Interval:
        """Return the interval for an estimate from a window of this many records."""
        if len(self.sizes) == 0:
            return Interval(0.0, 1.0)
        bias, below, above = self._reach(records)[name]
        # There is no accuracy beyond 0 and 1, so what the bias leaves there lies at the end, with errors around it.
        centre = clipped(accuracy - bias)
        lower, upper = centre - below, centre + above
        return Interval(lower if lower > 0.0 else 0.0, upper if upper < 1.0 else 1.0)  # noqa: FURB136  quicker

    def chance_disagreement(self, records: int) -> float:
        """Return the disagreement that chance alone stays below at the level."""
        if len(self.sizes) == 0:
            return 1.0
        seen = self._at(records, self.disagreement[None]) * self._unit(records)
        return clipped(float(_widened(seen, self._imagined(records, 1.0 - self.level))[0]))

    def _reach(self, records: int) -> Mapping[str, tuple[float, float, float]]:
        """Return for each estimator its bias, and how far the interval reaches below and above what that leaves."""
        # A full window has the same number of records at every evaluation.
        found = self._reaches.get(records)
        if found is None:
            unit, imagined = self._unit(records), self._imagined(records, (1.0 - self.level) / 2.0)
            below = _widened(self._at(records, self._high) * unit, imagined).tolist()
            above = _widened(-self._at(records, self._low) * unit, imagined).tolist()
            biases = [error.bias for error in self.errors.values()]
            found = dict(zip(self.errors, zip(biases, below, above, strict=True), strict=True))
            if len(self._reaches) >= _REACHES_KEPT:
                self._reaches.clear()
            self._reaches[records] = found
        return found

    @cached_property
    def _reaches(self) -> dict[int, Mapping[str, tuple[float, float, float]]]:
        return {}

    @cached_property
    def _low(self) -> Floats:
        return np.array([error.low for error in self.errors.values()])

    @cached_property
    def _high(self) -> Floats:
        return np.array([error.high for error in self.errors.values()])

    def _unit(self, records: int) -> float:
        return math.sqrt(1.0 / records + 1.0 / self.reference_records)

    def _at(self, records: int, quantiles: Floats) -> Floats:
        """Interpolate rows between window sizes. By hand, since np.interp makes NaN of the infinities in a table."""
        after = int(np.searchsorted(self.sizes, records, side="right"))
        before, after = max(0, after - 1), min(after, len(self.sizes) - 1)
        low, high = quantiles[:, before], quantiles[:, after]
        if before == after:
            return low
        share = math.log(records / self.sizes[before]) / math.log(self.sizes[after] / self.sizes[before])
        same = low == high
        return low + np.where(same, 0.0, np.subtract(high, low, where=~same, out=np.zeros_like(low)) * share)

    def _imagined(self, records: int, tail: float) -> float:
        """Return the share of mistakes that chance may hold in store for the window and kept from the reference.

        A reference without a single mistake replays without a single error, and would claim certainty. So imagine one
        more record in it, a mistake: the number of mistakes in a window then exceeds k with a probability of at most
        (n / (n + m))^(k + 1), and the share is that of the smallest k for which this is within the tail.
        """
        odds = math.log(records / (records + self.reference_records))
        return max(0, math.ceil(math.log(tail) / odds) - 1) / records


def _widened(errors: Floats, imagined: float) -> Floats:
    """Add to the errors seen in replays, outward, one that is independent of them."""
    finite = np.isfinite(errors)
    known = np.where(finite, errors, 0.0)
    return np.where(finite, known + np.sqrt(known * known + imagined * imagined) - np.abs(known), errors)


def replay(reference: LabelledOutputs, level: float, progress: Progress) -> IntervalTables:
    """Replay the reference against itself and keep the quantiles of each estimator's errors."""
    whole = with_variants(calibrate_all(reference))
    biases = _biases(whole, reference)
    if reference.records < _FEWEST_RECORDS:
        nothing = np.empty(0)
        errors = {name: ErrorQuantiles(bias, nothing, nothing) for name, bias in biases.items()}
        return IntervalTables(level, reference.records, np.empty(0, dtype=np.int64), errors, nothing)
    classes = len(reference.outputs.raw.probabilities)
    # Enough records for errors to be in their final shape, few enough for a thousand classes to finish.
    taken = min(reference.records, max(1000, min(20_000, 1_000_000 // classes)))
    held = taken // 4
    sizes = [size for power in range(6) for size in (10**power, 2 * 10**power, 5 * 10**power) if size <= held]
    seen: dict[int, list[list[float]]] = {size: [] for size in sizes}
    _derive_once(reference.outputs)
    random = np.random.default_rng(_SEED)
    unit = {size: np.sqrt(1.0 / size + 1.0 / (taken - held)) for size in sizes}
    for done in range(_REPLAYS):
        rows = random.permutation(reference.records)[:taken]
        pseudo = reference.take(rows[held:])
        ready = with_variants(calibrate_all(pseudo))
        bias = np.array([*_biases(ready, pseudo).values(), 0.0])
        for size in sizes:
            for window in range(min(_WINDOWS_PER_SIZE, held // size)):
                some = rows[window * size : (window + 1) * size]
                values = _values(ready, reference.outputs.take(some))
                # The last value is the disagreement, which has no truth to be off from.
                truth = np.full(len(values), reference.correct[some].mean())
                truth[-1] = 0.0
                seen[size].append(list((values - bias - truth) / unit[size]))
        progress((done + 1) / _REPLAYS)
    return _tables(level, reference.records, biases, {size: np.array(errors) for size, errors in seen.items()})


def _tables(level: float, records: int, biases: Mapping[str, float], seen: Mapping[int, Floats]) -> IntervalTables:
    tail = (1.0 - level) / 2.0
    low = np.array([_quantiles(errors, tail) for errors in seen.values()])
    high = np.array([_quantiles(errors, 1.0 - tail) for errors in seen.values()])
    chance = np.array([_quantiles(errors[:, -1:], level)[0] for errors in seen.values()])
    names = list(biases)
    errors = {name: ErrorQuantiles(biases[name], low[:, i], high[:, i]) for i, name in enumerate(names)}
    return IntervalTables(level, records, np.array(list(seen), dtype=np.int64), errors, chance)


def _quantiles(errors: Floats, share: float) -> list[float]:
    """Quantile of each column, outward where it falls between two errors; infinite where too few windows spoke."""
    outward: Literal["lower", "higher"] = "lower" if share < 0.5 else "higher"
    found = []
    for column in errors.T:
        spoken = column[np.isfinite(column)]
        enough = len(spoken) >= _FEWEST_ERRORS
        found.append(float(np.quantile(spoken, share, method=outward)) if enough else np.copysign(np.inf, share - 0.5))
    return found


def _biases(ready: Iterable[Ready], reference: LabelledOutputs) -> dict[str, float]:
    """Return what each form, and the consensus, is off by on its own reference."""
    ready = tuple(ready)
    biased = [one for one in ready if not one.estimator.returns_reference_accuracy]
    results = answer(biased, lambda: (reference.outputs,))
    biases = {one.form.full_name: 0.0 for one in ready}
    biases |= {name: _accuracy(result) - reference.accuracy for name, result in results.items()}
    # Every voice of the consensus returns the reference accuracy on its own reference; so does the consensus.
    return {**biases, CONSENSUS: 0.0}


def _values(ready: Iterable[Ready], window: Outputs) -> Floats:
    """Return every estimate, the consensus and the disagreement; NaN, within this file only, where there is none."""
    results = answer(ready, lambda: (window,))
    consensus, disagreement = combine(results)
    spread = np.nan if disagreement is None else disagreement
    return np.array([*(_accuracy(result) for result in results.values()), _accuracy(consensus), spread])


def _accuracy(result: Result) -> float:
    return result.accuracy if isinstance(result, Estimate) else float("nan")


def _derive_once(outputs: Outputs) -> None:
    """Derive the scores of all records now, so that the replays only pick from them."""
    for scores in (outputs.raw, outputs.scaled):
        _ = scores.confidence, scores.negative_entropy, scores.comparable
