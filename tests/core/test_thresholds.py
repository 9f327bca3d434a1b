"""The lookup table of thresholds is exact for every float32, and so are the mean scores at every threshold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from monitor.core.scores import Scores, ThresholdGrid, mean_scores_at
from tests.strategies import Singles, vectors

pytestmark = pytest.mark.slow

probabilities = hnp.arrays(
    np.float32, st.integers(1, 40), elements=st.floats(0.0, 1.0, width=32) | st.sampled_from([0.0, -0.0, 0.5, 1.0])
)


@given(probabilities, probabilities)
def test_the_table_equals_a_binary_search(thresholds: Singles, values: Singles) -> None:
    """At thresholds, next to them, at the ends and elsewhere."""
    grid = ThresholdGrid(thresholds)
    queried = np.concatenate(
        [values, thresholds, np.nextafter(thresholds, np.float32(2)), np.nextafter(thresholds, np.float32(0))]
    )
    queried = np.clip(queried, np.float32(0), np.float32(1))
    assert np.array_equal(grid.cell(queried), np.searchsorted(np.unique(thresholds), queried, side="right"))


def test_close_thresholds_are_found_by_binary_search() -> None:
    """Many calibration scores share their upper bits: stepping would be slow."""
    crowded = np.float32(0.3) + np.arange(500, dtype=np.float32) * np.float32(3e-8)
    grid = ThresholdGrid(crowded)
    queried = np.random.default_rng(1).uniform(0.29999, 0.30002, 1000).astype(np.float32)
    assert np.array_equal(grid.cell(queried), np.searchsorted(np.unique(crowded), queried, side="right"))


@given(st.data(), st.integers(2, 6), st.integers(1, 12))
def test_mean_scores_at_every_threshold_equal_those_of_the_sets(
    data: st.DataObject, classes: int, records: int
) -> None:
    """As the anchored forms need them of the reference."""
    p = data.draw(vectors(records, classes))
    thresholds = data.draw(vectors(8, classes)).ravel()
    scores = Scores(np.ascontiguousarray(p.T, dtype=np.float64))
    for threshold, mean in zip(thresholds, mean_scores_at(thresholds, scores), strict=True):
        assert mean == pytest.approx(scores.sets_at(threshold).mean_score.mean(), abs=1e-11)
