"""Totals that are computed on demand equal those computed at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core import totals as measuring
from monitor.core.scores import Totals
from monitor.core.totals import Gauge, totals_of
from monitor.core.window import Bounds, SlidingWindow
from tests.strategies import Singles, small_gauge, synthetic

POOL: Singles = synthetic(600, 3, seed=2, sharpness=1.2)[0]


@pytest.mark.parametrize("limits", [(5, 9), (1 << 16, 1 << 20)], ids=["little may be owed", "much may be owed"])
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=40), st.integers(1, 20))
def test_totals_do_not_depend_on_when_they_are_read(
    limits: tuple[int, int], steps: list[tuple[int, bool, bool]], size: int
) -> None:
    """After each step or after many; with late records, and windows refilled several times in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "_MOST_WAITING", limits[0])
        patch.setattr(measuring, "_MOST_LEFT_NUMBERS", limits[1])
        window = SlidingWindow(small_gauge(), Bounds(records=size))
        start = 0
        for records, late, queried in steps:
            at = np.arange(start, start + records, dtype=np.float64) - (15.0 if late else 0.0)
            window.add(POOL[start : start + records], at, now=1000.0)
            start += records
            if queried:
                np.testing.assert_array_equal(window.totals().vector, totals_of(small_gauge(), window.vectors()).vector)
        np.testing.assert_array_equal(window.totals().vector, totals_of(small_gauge(), window.vectors()).vector)


def test_records_evicted_between_reads_are_never_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of an evaluation depends on the window, not on the records that passed through it."""
    measured: list[int] = []
    real = Gauge.measure

    def noted(gauge: Gauge, totals: Totals, vectors: Singles, sign: int) -> None:
        measured.append(len(vectors))
        real(gauge, totals, vectors, sign)

    monkeypatch.setattr(Gauge, "measure", noted)
    window = SlidingWindow(small_gauge(), Bounds(records=10))
    for start in range(0, 600, 20):
        window.add(POOL[start : start + 20], np.arange(start, start + 20.0), now=1000.0)
    window.totals()
    window.totals()
    assert measured == [10]
