"""Healthy windows differ from their baseline by chance, and that is no fall."""

from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from monitor.core.baselines.comparison import (
    VERDICTS,
    BaselineMode,
    BaselineOptions,
    Baselines,
    Comparisons,
    Verdict,
    WindowTimes,
    change_upper,
)
from monitor.core.calibration import Calibration, WindowEstimates, calibrate
from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators.ensemble import ERROR, measure_vectors, side_by_side
from monitor.core.scores import Integers, Singles, label_outputs

WINDOW, SEGMENTS, ROUNDS = 500, 40, 8


def separated(count: int, seed: int) -> tuple[Singles, Integers]:
    """Return outputs of a calibrated model that is sure of most records, and knows nothing of the others."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(0.0, 0.4, (count, 10))
    logits[np.arange(count), chance.integers(0, 10, count)] += np.where(chance.random(count) < 0.3, 0.0, 9.0)
    vectors = np.exp(logits)
    vectors /= vectors.sum(axis=1, keepdims=True)
    labels = (vectors.cumsum(axis=1) < chance.random((count, 1))).sum(axis=1)
    return vectors.astype(np.float32), np.minimum(labels, 9)


@cache
def calibration() -> Calibration:
    """Return that of 3,000 such records."""
    return calibrate(label_outputs(*separated(3000, 1)))


def compared(baselines: Baselines, seed: int, failing: str | None = None) -> tuple[Comparisons, WindowEstimates]:
    """Compare a new window of each segment; one estimator may fail."""
    numbers, vectors = calibration(), separated(WINDOW * SEGMENTS, seed)[0].reshape(SEGMENTS, WINDOW, -1)
    windows = side_by_side([measure_vectors(numbers.estimators, one, numbers.temperature) for one in vectors])
    estimates = numbers.estimate_windows(windows)
    if failing is not None:
        row = estimates.names.index(failing)
        estimates.why[row], estimates.accuracy[row] = ERROR, np.nan
    assert numbers.outputs is not None
    outputs = np.tile(numbers.outputs.decided, (SEGMENTS, 1)), np.tile(numbers.outputs.confidence, (SEGMENTS, 1))
    measured = SimpleNamespace(records=windows.records, predicted=outputs[0], confidence=outputs[1])
    times = WindowTimes(np.full(SEGMENTS, 10.0 * seed), np.full(SEGMENTS, 10.0 * seed + 5.0))
    segments = [(("site", str(number)),) for number in range(SEGMENTS)]
    valid = np.ones(SEGMENTS, dtype=np.bool_)
    return baselines.compare(segments, cast("Any", measured), estimates, valid, times, 0.0), estimates


@pytest.mark.parametrize("mode", [BaselineMode.OWN, BaselineMode.REFERENCE])
def test_a_window_with_more_difficult_records_has_not_fallen(mode: BaselineMode) -> None:
    """Confidence tells them, so the estimate follows the window: its interval is narrow, and about this window only."""
    baselines = Baselines(calibration(), BaselineOptions(mode), "this", WINDOW, None)
    compared(baselines, 2)
    fell, below = [], []
    for round_ in range(ROUNDS):
        found, estimates = compared(baselines, 3 + round_)
        fell.append(found.verdicts == VERDICTS.index(Verdict.FELL))
        for name in (ADAPTIVE, CONSENSUS):
            upper = change_upper(found, estimates, name)
            assert (upper <= 1.0).all()
            below.append(upper < found.of(name))
    assert np.mean(fell) <= 0.035
    assert np.mean(below) <= 0.035 or mode is BaselineMode.REFERENCE


def test_an_estimator_that_fails_in_one_block_has_a_baseline() -> None:
    """Otherwise its alerts would be held for ever."""
    for failing, others in ((3, 2), (2, 3)):
        baselines = Baselines(
            calibration(), BaselineOptions(BaselineMode.OWN, records=2 * WINDOW), "this", WINDOW, None
        )
        for seed in (2, 3):
            found, estimates = compared(baselines, seed, CONSENSUS if seed == failing else None)
            if seed == others:
                expected = estimates.accuracy[estimates.names.index(CONSENSUS)]
        assert all(one.complete for one in baselines.own.values())
        assert found.of(CONSENSUS) == pytest.approx(expected)
        assert not np.isnan(found.of(ADAPTIVE)).any()


def test_a_window_that_is_full_by_its_age_is_a_baseline() -> None:
    """With 500 records a week, windows of at most 5,000 records and a week would be collected for ten weeks."""
    baselines = Baselines(calibration(), BaselineOptions(BaselineMode.OWN), "this", 10 * WINDOW, 5.0)
    compared(baselines, 2)
    assert {(one.complete, one.records) for one in baselines.own.values()} == {(True, WINDOW)}
