"""How far an estimate may be off by chance alone, learnt by replaying the reference against itself.

Each replay splits the reference into a pseudo-reference and held-out records, calibrates every estimator on the first,
and asks it about windows of several sizes from the second, whose realised accuracy is known. What an estimator is off
on its own reference (its bias, known exactly) is taken away on both occasions: in the replay and in the field. So the
spread of the errors holds everything that chance does: to the window, to the thresholds, and to the bias itself.

The interval is about chance, not about shift. The temperature is not fitted anew in each replay: its effect cancels to
first order between the window and the bias, and the coverage measured in `benchmarks/coverage.py` shows no trace of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from monitor.core.ensemble import CONSENSUS, Ready, answer, calibrate_all, combine, with_variants
from monitor.core.estimate import Estimate, Interval, Result
from monitor.core.labelled import LabelledOutputs
from monitor.core.scores import Floats, Integers, Outputs

Progress = Callable[[float], None]
"""Called with the share of the work that is done."""

DEFAULT_LEVEL = 0.95

_REPLAYS = 200
_WINDOWS_PER_SIZE = 2
_FEWEST_RECORDS = 20
"""A smaller reference says nothing about its own scatter: intervals are then the whole range."""
_FEWEST_ERRORS = 40
_SEED = 20220722


@dataclass(frozen=True, slots=True)
class ErrorQuantiles:
    """An estimator's errors in the replays, by window size, in units of sqrt(1/n + 1/m)."""

    bias: float
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
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
        error, unit = self.errors[name], self._unit(records)
        centre = accuracy - error.bias
        lower = centre - _widened(self._at(records, error.high), self.level, self.reference_records) * unit
        upper = centre + _widened(-self._at(records, error.low), self.level, self.reference_records) * unit
        return Interval(float(np.clip(lower, 0.0, 1.0)), float(np.clip(upper, 0.0, 1.0)))

    def chance_disagreement(self, records: int) -> float:
        """Return the disagreement that chance alone stays below at the level."""
        if len(self.sizes) == 0:
            return 1.0
        return float(min(1.0, self._at(records, self.disagreement) * self._unit(records)))

    def _unit(self, records: int) -> float:
        return float(np.sqrt(1.0 / records + 1.0 / self.reference_records))

    def _at(self, records: int, quantiles: Floats) -> float:
        return float(np.interp(np.log(records), np.log(self.sizes), quantiles))


def _widened(error: float, level: float, reference_records: int) -> float:
    """Add one imagined disagreement in `m` records to what the replays saw.

    A reference without a single mistake replays without a single error, and would claim certainty. Between `m` records
    and one more there is always room for the first mistake; for other references the addition is invisible.
    """
    if np.isinf(error):
        return error
    imagined = float(ndtri(0.5 + level / 2.0)) ** 2 / reference_records
    return error + float(np.sqrt(error * error + imagined)) - abs(error)


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
