"""Any interleaving of batches, late records, evictions, merges and rebuilds equals a slow oracle."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from monitor.core.calibration import Calibration, calibrate
from monitor.core.estimate import Estimate
from monitor.core.scores import label_outputs
from monitor.core.totals import Gauge, totals_of
from monitor.core.window import Bounds, SlidingWindow, measured, rebuilt
from monitor.testing.oracle import Oracle
from tests.core.slow_totals import same
from tests.strategies import Integers, Singles, synthetic

pytestmark = pytest.mark.slow


def prepared(style: str) -> tuple[Singles, Integers, Singles]:
    """Return a reference, its labels, and a pool of records: continuous scores, or vote shares with many ties."""
    reference, labels = synthetic(40, 3, seed=1)
    pool, _ = synthetic(300, 3, seed=2, sharpness=1.2)
    if style == "votes":
        votes = [
            np.random.default_rng(seed).multinomial(5, [0.5, 0.3, 0.2], size=size) for seed, size in ((1, 40), (2, 300))
        ]
        reference, pool = ((v / 5).astype(np.float32) for v in votes)
    pool[0, 2], pool[0, 0] = -0.0, pool[0, 0] + pool[0, 2]
    # Records of the reference itself tie with its thresholds.
    return reference, labels, np.concatenate([pool, reference])


_PREPARED = {style: prepared(style) for style in ("softmax", "votes")}


@cache
def gauge_of(style: str) -> Gauge:
    """Return the gauge of a reference."""
    reference, labels, _ = _PREPARED[style]
    return Gauge(calibrate(label_outputs(reference, labels)))


@dataclass
class SlowWindow:
    """The expected content of the window: (event time, number of arrival, row of the pool), in order."""

    bounds: Bounds
    held: list[tuple[float, int, int]] = field(default_factory=list)
    arrived: int = 0
    clock: float = float("-inf")

    def arrive(self, now: float) -> None:
        """Start a batch. If the clock went back, times in the future become the current time."""
        limit = now + self.bounds.tolerance_seconds
        if self.clock > limit:
            self.held = sorted((now if time > limit else time, number, row) for time, number, row in self.held)
            self.clock = self.held[-1][0] if self.held else float("-inf")

    def add(self, row: int, at: float | None, now: float) -> None:
        """Add one record."""
        believed = now if at is None or at > now + self.bounds.tolerance_seconds else at
        self.clock = max(self.clock, believed)
        self.held.append((believed, self.arrived, row))
        self.arrived += 1
        if self.bounds.age_seconds is not None:
            self.held = [one for one in self.held if one[0] >= self.clock - self.bounds.age_seconds]
        self.held = sorted(self.held)[-self.bounds.capacity :]

    @property
    def rows(self) -> list[int]:
        """Rows of the pool, oldest first."""
        return [row for *_, row in self.held]


class WindowMachine(RuleBasedStateMachine):
    """Drives a window and its oracle."""

    @initialize(
        style=st.sampled_from(["softmax", "votes"]),
        records=st.one_of(st.none(), st.integers(1, 12)),
        age=st.one_of(st.none(), st.integers(1, 30)),
    )
    def begin(self, style: str, records: int | None, age: int | None) -> None:
        """Choose the reference and the bounds."""
        if records is None and age is None:
            records = 5
        bounds = Bounds(records, None if age is None else float(age), tolerance_seconds=4.0, most_records=15)
        self.style, self.gauge = style, gauge_of(style)
        self.pool = _PREPARED[style][2]
        self.now = 100.0
        self.window, self.slow = SlidingWindow(self.gauge, bounds), SlowWindow(bounds)

    @rule(
        batch=st.lists(
            st.tuples(st.integers(0, 339), st.one_of(st.none(), st.integers(-40, 12))), min_size=0, max_size=20
        ),
        passed=st.integers(0, 8) | st.sampled_from([-60, -20, -3]),
    )
    def add(self, batch: list[tuple[int, int | None]], passed: int) -> None:
        """Records on time, late, in the future, without a time and of equal times; clocks that go back."""
        self.now += passed
        at = [None if offset is None else self.now + offset for _, offset in batch]
        rows = np.array([row for row, _ in batch], dtype=np.int64)
        before = len(self.window)
        added = self.window.add(self.pool[rows], np.array([np.nan if t is None else t for t in at]), self.now)
        self.slow.arrive(self.now)
        for row, time in zip(rows, at, strict=True):
            self.slow.add(int(row), time, self.now)
        assert added.entered + added.late == len(batch)
        assert len(self.window) == before + added.entered - added.evicted
        assert added.future >= sum(t is not None and t > self.now + 4.0 for t in at)

    @rule()
    def rebuild(self) -> None:
        """Rebuild the window from its records, in the order of their arrival."""
        old = self.window
        order = np.argsort(old.records.arrival[old.slots])
        self.window = rebuilt(self.gauge, old.bounds, old.vectors()[order], old.times[order])
        assert same(self.window.totals(), old.totals())

    @precondition(lambda self: len(self.window) > 0)
    @rule(rows=st.lists(st.integers(0, 339), max_size=10))
    def merge(self, rows: list[int]) -> None:
        """Totals of two windows add up to those of their union."""
        window = SlidingWindow(self.gauge, Bounds(records=20))
        window.add(self.pool[rows], np.arange(len(rows), dtype=np.float64), 100.0)
        union = totals_of(self.gauge, np.concatenate([self.window.vectors(), self.pool[rows]]))
        assert same(measured(self.gauge, [[self.window, window]]), union)

    @invariant()
    def the_window_equals_the_oracle(self) -> None:
        """The same records in the same order, and bit-equal totals."""
        if not hasattr(self, "window"):
            return
        wanted = self.pool[self.slow.rows]
        assert np.array_equal(self.window.vectors(), wanted)
        assert self.window.times.tolist() == [time for time, *_ in self.slow.held]
        assert same(self.window.totals(), totals_of(self.gauge, wanted))

    def teardown(self) -> None:
        """Every estimate equals that of the oracle."""
        if not hasattr(self, "window") or len(self.window) == 0:
            return
        reference, labels, _ = _PREPARED[self.style]
        oracle = Oracle(reference.tolist(), labels.tolist(), self.gauge.calibration.temperature)
        wanted = oracle.estimates(self.pool[self.slow.rows].tolist())
        for name, result in self.window.totals().estimate().estimators.items():
            if isinstance(result, Estimate):
                assert result.accuracy == pytest.approx(wanted[name], abs=1e-9, rel=0), name
            else:
                assert name not in wanted


TestWindowMachine = WindowMachine.TestCase
TestWindowMachine.settings = settings(max_examples=150, stateful_step_count=12, deadline=None, derandomize=True)


def test_the_references_of_the_machine_are_informative() -> None:
    for gauge in map(gauge_of, _PREPARED):
        assert isinstance(gauge.calibration, Calibration)
        assert 0.0 < gauge.calibration.accuracy < 1.0
