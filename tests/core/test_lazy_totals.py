"""Totals that are computed on demand equal those computed at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core import window as windows_module
from monitor.core.scores import Floats
from monitor.core.totals import Gauge, Marks, TotalsTable, totals_of
from monitor.core.window import Bounds, SlidingWindow
from tests.core.slow_totals import same
from tests.strategies import Singles, small_gauge, synthetic

POOL: Singles = synthetic(600, 3, seed=2, sharpness=1.2)[0]


@pytest.mark.parametrize("most_left", [9, 1 << 20], ids=["little may be owed", "much may be owed"])
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=40), st.integers(1, 20))
def test_totals_do_not_depend_on_when_they_are_read(
    most_left: int, steps: list[tuple[int, bool, bool]], size: int
) -> None:
    """After each step or after many; with late records, and windows refilled several times in between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_module, "_MOST_LEFT_NUMBERS", most_left)
        window = SlidingWindow(small_gauge(), Bounds(records=size))
        start = 0
        for records, late, queried in steps:
            at = np.arange(start, start + records, dtype=np.float64) - (15.0 if late else 0.0)
            window.add(POOL[start : start + records], at, now=1000.0)
            start += records
            if queried:
                assert same(window.totals(), totals_of(small_gauge(), window.vectors()))
        assert same(window.totals(), totals_of(small_gauge(), window.vectors()))


def test_records_evicted_between_reads_are_never_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of an evaluation depends on the window, not on the records that passed through it."""
    measured: list[int] = []
    real = Gauge.derive

    def noted(gauge: Gauge, vectors: Singles) -> tuple[Floats, Marks]:
        measured.append(len(vectors))
        return real(gauge, vectors)

    monkeypatch.setattr(Gauge, "derive", noted)
    window = SlidingWindow(small_gauge(), Bounds(records=10))
    for start in range(0, 600, 20):
        window.add(POOL[start : start + 20], np.arange(start, start + 20.0), now=1000.0)
    window.totals()
    window.totals()
    assert measured == [10]


def test_a_failure_halfway_is_followed_by_measuring_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is counted twice or left out."""
    window = SlidingWindow(small_gauge(), Bounds(records=100))
    window.add(POOL[:80], np.arange(80.0), now=1000.0)
    window.totals()
    window.add(POOL[80:130], np.arange(80.0, 130.0), now=1000.0)
    with monkeypatch.context() as patch:
        patch.setattr(TotalsTable, "add_steps", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            window.totals()
    assert same(window.totals(), totals_of(small_gauge(), window.vectors()))
