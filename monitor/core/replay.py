"""The error of an estimate by chance, from replaying the reference against itself.

Each replay splits the reference into a pseudo-reference and held-out records, calibrates every estimator on the first, and
estimates windows of several sizes from the second, whose accuracy is known. The bias of an estimator on its own reference
is subtracted in the replay and in use. So the spread of the errors includes every effect of chance: on the window, on the
thresholds, and on the bias itself.

The interval covers chance, not shift. The temperature is not fitted again in each replay: its effect cancels to first
order between the window and the bias, and does not show in the coverage measured by `benchmarks/coverage.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from monitor.core.ensemble import (
    MEMBERS,
    CalibratedEstimator,
    calibrate_all,
    combine,
    estimate_forms,
    measure,
    with_variants,
)
from monitor.core.estimate import CONSENSUS
from monitor.core.intervals import ErrorQuantiles, IntervalTables, Progress
from monitor.core.scores import Floats, LabelledOutputs, Outputs

_REPLAYS = 200
_WINDOWS_PER_SIZE = 3
_FEWEST_RECORDS = 20
"""With a smaller reference, intervals are the whole range."""
_FEWEST_ERRORS = 40
_SEED = 20220722


def replay(reference: LabelledOutputs, level: float, progress: Progress) -> IntervalTables:
    """Replay the reference against itself; return the error quantiles of each estimator."""
    whole = with_variants(calibrate_all(reference))
    biases = _biases(whole, reference)
    if reference.records < _FEWEST_RECORDS:
        nothing = np.empty(0)
        errors = {name: ErrorQuantiles(bias, nothing, nothing) for name, bias in biases.items()}
        return IntervalTables(level, reference.records, np.empty(0, dtype=np.int64), errors, nothing)
    classes = len(reference.outputs.raw.probabilities)
    # Enough records for stable errors, few enough for a thousand classes.
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
                # The last value is the disagreement, which has no true value.
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
    """Return the quantile of each column, rounded outward; infinite with too few values."""
    outward: Literal["lower", "higher"] = "lower" if share < 0.5 else "higher"
    found = []
    for column in errors.T:
        finite = column[np.isfinite(column)]
        enough = len(finite) >= _FEWEST_ERRORS
        found.append(float(np.quantile(finite, share, method=outward)) if enough else np.copysign(np.inf, share - 0.5))
    return found


def _biases(ready: Iterable[CalibratedEstimator], reference: LabelledOutputs) -> dict[str, float]:
    """Return the bias of each form, and of the consensus, on its own reference."""
    ready = tuple(ready)
    biased = [one for one in ready if not one.estimator.returns_reference_accuracy]
    found = estimate_forms(biased, measure(biased, lambda: (reference.outputs,)))
    biases = {one.form.full_name: 0.0 for one in ready}
    biases |= zip(found.names, (found.accuracy[:, 0] - reference.accuracy).tolist(), strict=True)
    # Every member returns the reference accuracy on the reference; so does the consensus.
    return {**biases, CONSENSUS: 0.0}


def _values(ready: Iterable[CalibratedEstimator], window: Outputs) -> Floats:
    """Return every estimate, the consensus and the disagreement; NaN if there is none."""
    ready = tuple(ready)
    found = estimate_forms(ready, measure(ready, lambda: (window,)))
    consensus, spread = combine(found.accuracy[[found.names.index(member) for member in MEMBERS]])
    return np.array([*found.accuracy[:, 0], consensus[0], spread[0]])


def _derive_once(outputs: Outputs) -> None:
    """Derive the scores of all records once, for all replays."""
    for scores in (outputs.raw, outputs.scaled):
        _ = scores.confidence, scores.negative_entropy, scores.comparable
