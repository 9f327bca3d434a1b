"""The drift of outputs: distances against scipy, and what chance makes of them."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import ks_2samp

from monitor.core.baselines.output_drift import MEASURES, BaselineOutputs, OutputReference, output_cells, shares
from monitor.core.calibration import calibrate
from monitor.core.scores import Floats, Integers, Singles, label_outputs
from tests.strategies import synthetic

CLASSES = 5


def outputs(vectors: Singles, labels: Integers) -> OutputReference:
    found = calibrate(label_outputs(vectors, labels)).outputs
    assert found is not None
    return found


def counts(reference: OutputReference, vectors: Singles) -> tuple[Integers, Integers]:
    """Return the decided classes and the cells of some records, counted, as one row each."""
    cells = output_cells(reference.edges, vectors.max(axis=1))
    return (
        np.bincount(vectors.argmax(axis=1), minlength=CLASSES)[None],
        np.bincount(cells, minlength=len(reference.confidence))[None],
    )


def distance(reference: OutputReference, window: Singles, baseline: Singles) -> Floats:
    return BaselineOutputs.of(*counts(reference, baseline)).distances(*map(shares, counts(reference, window)))[:, 0]


def test_distances_are_those_of_jensen_and_shannon_and_of_kolmogorov_and_smirnov() -> None:
    """The second within the width of a cell: cells are quantiles of the reference, so at most a few hundredths."""
    reference = outputs(*synthetic(2000, CLASSES, seed=1))
    before, _ = synthetic(900, CLASSES, seed=2)
    now, _ = synthetic(700, CLASSES, seed=3, sharpness=1.0)
    now[:, 0] *= 0.5
    mixes = [np.bincount(some.argmax(axis=1), minlength=CLASSES) for some in (before, now)]
    found = distance(reference, now, before)
    assert found[0] == pytest.approx(jensenshannon(mixes[0], mixes[1], base=2), abs=1e-12)
    exact = ks_2samp(before.max(axis=1), now.max(axis=1)).statistic
    assert exact - 0.03 <= found[1] <= exact


def test_distances_end_at_0_and_1() -> None:
    """The same outputs, and outputs that have nothing in common; without records they are unknown."""
    reference = outputs(*synthetic(500, 2, seed=1))
    one, other = np.array([[8, 0], [0, 9], [0, 0]]), np.array([8, 0])
    cells = np.zeros((3, len(reference.confidence)), dtype=np.int64)
    cells[0, 0] = cells[1, -1] = 5
    found = BaselineOutputs.of(other, cells[0]).distances(shares(one), shares(cells))
    assert found[:, 0].tolist() == [0.0, 0.0]
    assert found[:, 1].tolist() == [1.0, 1.0]
    assert np.isnan(found[:, 2]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("records", "baseline"), [(200, 3000), (1000, 1000), (2000, 500)])
def test_chance_alone_exceeds_its_level_in_a_twentieth_of_windows(records: int, baseline: int) -> None:
    """Of windows and baselines from the same source as the reference, of any sizes. KS may be rarer: cells are coarse."""
    reference = outputs(*synthetic(3000, CLASSES, seed=1))
    chance = reference.distances_by_chance(np.array([records]), np.array([baseline]))[:, 0]
    exceeded = np.zeros(len(MEASURES))
    for seed in range(400):
        vectors, _ = synthetic(records + baseline, CLASSES, seed=100 + seed)
        exceeded += distance(reference, vectors[:records], vectors[records:]) > chance
    assert exceeded[0] / 400 == pytest.approx(0.05, abs=0.03)
    assert 0.01 <= exceeded[1] / 400 <= 0.08


def test_a_class_that_is_never_predicted_any_more_is_far_beyond_chance() -> None:
    """The mean confidence stays, and so do the confidences."""
    reference = outputs(*synthetic(3000, CLASSES, seed=1))
    before, _ = synthetic(2000, CLASSES, seed=2)
    now = before[before.argmax(axis=1) != 1]
    found = distance(reference, now, before)
    chance = reference.distances_by_chance(np.array([len(now)]), np.array([2000]))[:, 0]
    assert found[0] > 5 * chance[0]
    assert found[1] < chance[1]
