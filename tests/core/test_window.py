"""Sliding windows: content, late records, unusual clocks, memory."""

import tracemalloc

import numpy as np
import pytest

from monitor.core import window as windows_module
from monitor.core.calibration import calibrate
from monitor.core.estimate import Estimate, NoEstimate
from monitor.core.scores import MOST_RECORDS, label_outputs
from monitor.core.totals import Gauge, MeasuredWindows, totals_of
from monitor.core.window import Added, Bounds, SlidingWindow, bytes_per_window, measured, rebuilt
from tests.core.slow_totals import same
from tests.strategies import Singles, small_gauge, synthetic


@pytest.fixture(scope="module")
def gauge() -> Gauge:
    """A reference of 200 records and four classes."""
    return Gauge(calibrate(label_outputs(*synthetic(200, 4, seed=1))))


@pytest.fixture(scope="module")
def pool() -> Singles:
    """Records for the tests."""
    return synthetic(4000, 4, seed=2, sharpness=1.2)[0]


def held(window: SlidingWindow) -> list[float]:
    """Return the event times in the window."""
    return [float(time) for time in window.times]


def add(window: SlidingWindow, pool: Singles, *at: float, now: float | None = None) -> Added:
    """Add records with these event times, on time unless specified."""
    return window.add(pool[: len(at)], np.array(at, dtype=np.float64), max(at) if now is None else now)


def test_a_count_window_holds_the_last_records(gauge: Gauge, pool: Singles) -> None:
    """1 2 3 [4 5 6]."""
    window = SlidingWindow(gauge, Bounds(records=3))
    assert add(window, pool, 1, 2, 3, 4) == Added(entered=3, late=1)
    assert add(window, pool, 5, 6) == Added(entered=2, evicted=2)
    assert held(window) == [4, 5, 6]


def test_an_age_window_holds_the_last_seconds(gauge: Gauge, pool: Singles) -> None:
    """With an age of 10: 1 [5 14 15]; a record of exactly ten seconds is inside."""
    window = SlidingWindow(gauge, Bounds(age_seconds=10.0))
    add(window, pool, 1, 5)
    assert add(window, pool, 14, 15) == Added(entered=2, evicted=1)
    assert held(window) == [5, 14, 15]


def test_both_bounds_hold_together(gauge: Gauge, pool: Singles) -> None:
    """At most two, and none older than ten seconds."""
    window = SlidingWindow(gauge, Bounds(records=2, age_seconds=10.0))
    add(window, pool, 1, 2, 3)
    assert held(window) == [2, 3]
    add(window, pool, 13.5)
    assert held(window) == [13.5]


def test_a_late_record_is_inserted_by_time(gauge: Gauge, pool: Singles) -> None:
    """[10 20 30] and then 15: [15 20 30], because 10 is the oldest of four."""
    window = SlidingWindow(gauge, Bounds(records=3))
    add(window, pool, 10, 20, 30)
    assert add(window, pool, 15, now=31) == Added(entered=1, evicted=1)
    assert held(window) == [15, 20, 30]


def test_a_record_older_than_a_full_window_is_counted_late_and_left_out(gauge: Gauge, pool: Singles) -> None:
    """[10 20 30] and then 5."""
    window = SlidingWindow(gauge, Bounds(records=3))
    add(window, pool, 10, 20, 30)
    before = window.totals()
    assert add(window, pool, 5, now=31) == Added(late=1)
    assert held(window) == [10, 20, 30]
    assert same(window.totals(), before)


def test_a_single_record_from_the_future_does_not_empty_the_window(gauge: Gauge, pool: Singles) -> None:
    """A time in 2099 is replaced by the arrival time, and counted."""
    window = SlidingWindow(gauge, Bounds(age_seconds=3600.0))
    add(window, pool, 1000, 1100, 1200)
    added = window.add(pool[:1], np.array([4_070_908_800.0]), 1210.0)
    assert added == Added(entered=1, future=1)
    assert held(window) == [1000, 1100, 1200, 1210]
    assert window.clock == 1210.0


def test_a_time_slightly_in_the_future_is_accepted(gauge: Gauge, pool: Singles) -> None:
    """Up to five minutes by default: 299 seconds, not 301."""
    window = SlidingWindow(gauge, Bounds(records=10))
    assert add(window, pool, 1299, now=1000).future == 0
    assert add(window, pool, 1301, now=1000).future == 1
    assert held(window) == [1000, 1299]


def test_an_unknown_time_becomes_the_arrival_time(gauge: Gauge, pool: Singles) -> None:
    """Unknown is NaN."""
    window = SlidingWindow(gauge, Bounds(records=10))
    window.add(pool[:2], np.array([np.nan, 5.0]), 7.0)
    assert held(window) == [5.0, 7.0]


def test_of_equal_times_the_earlier_arrival_is_evicted_first(gauge: Gauge, pool: Singles) -> None:
    """Three records of one time in a window of two."""
    window = SlidingWindow(gauge, Bounds(records=2))
    window.add(pool[:1], np.array([5.0]), 5.0)
    window.add(pool[1:3], np.array([5.0, 5.0]), 5.0)
    assert np.array_equal(window.vectors(), pool[1:3])


def test_an_empty_window_has_no_estimate(gauge: Gauge) -> None:
    """And an empty batch changes nothing."""
    window = SlidingWindow(gauge, Bounds(records=2))
    assert window.add(np.empty((0, 4), dtype=np.float32), np.empty(0), 5.0) == Added()
    assert isinstance(window.totals().estimate()["consensus"], NoEstimate)


def test_a_million_inserts_and_evictions_cause_no_drift() -> None:
    """In random batches, with late records: totals are bit-equal to a fresh computation."""
    calibration = calibrate(label_outputs(*synthetic(500, 5, seed=1)))
    gauge = Gauge(calibration)
    pool, _ = synthetic(20_000, 5, seed=3, sharpness=1.2)
    random = np.random.default_rng(4)
    window, done, clock = SlidingWindow(gauge, Bounds(records=1500, age_seconds=5000.0)), 0, 0.0
    evicted = 0
    while done < 1_000_000:
        size = int(random.integers(1, 8000))
        rows = random.integers(0, len(pool), size)
        late = np.where(random.random(size) < 0.05, random.exponential(500.0, size), 0.0).astype(np.float64)
        at = clock + np.arange(size, dtype=np.float64) - late
        clock += size
        evicted += window.add(pool[rows], at, clock).evicted
        done += size
    assert evicted > 100_000
    fresh = totals_of(gauge, window.vectors())
    assert same(window.totals(), fresh)
    running, direct = window.totals().estimate(), calibration.estimate(window.vectors())
    for name, result in direct.estimators.items():
        again = running[name]
        assert isinstance(result, Estimate)
        assert isinstance(again, Estimate)
        assert again.accuracy == pytest.approx(result.accuracy, abs=1e-9, rel=0)
        assert again.interval is not None
        assert result.interval is not None
        assert again.interval.lower == pytest.approx(result.interval.lower, abs=1e-9)
        if result.prediction_sets is not None:
            assert again.prediction_sets is not None
            assert again.prediction_sets.mean_size == pytest.approx(result.prediction_sets.mean_size, abs=1e-9)
            assert again.prediction_sets.empty_share == pytest.approx(result.prediction_sets.empty_share, abs=1e-9)
    assert running.disagreement == pytest.approx(direct.disagreement, abs=1e-9)


def test_totals_depend_only_on_the_content(gauge: Gauge, pool: Singles) -> None:
    """One by one, and all at once after other records."""
    slowly, detoured = SlidingWindow(gauge, Bounds(records=50)), SlidingWindow(gauge, Bounds(records=50))
    for row in range(120):
        slowly.add(pool[row : row + 1], np.array([float(row)]), float(row))
    detoured.add(pool[1000:3000], np.linspace(-5.0, 5.0, 2000), 10.0)
    order = np.random.default_rng(1).permutation(120)
    detoured.add(pool[:120][order], np.arange(120.0)[order], 120.0)
    assert same(slowly.totals(), detoured.totals())


def test_a_snapshot_does_not_change_when_the_window_does(gauge: Gauge, pool: Singles) -> None:
    window = SlidingWindow(gauge, Bounds(records=50))
    add(window, pool, 1, 2, 3)
    snapshot = window.totals()
    add(window, pool, 4, 5)
    assert (snapshot.records[0], window.totals().records[0]) == (3, 5)


def test_windows_of_several_shards_merge(gauge: Gauge, pool: Singles) -> None:
    """At the threshold of their common confidence, which may be outside the range of each."""
    order = np.argsort(pool.max(axis=1))
    parts = [pool[order[:1000]], pool[order[1000:]]]
    windows = [rebuilt(gauge, Bounds(records=4000), part, np.arange(len(part), dtype=np.float64)) for part in parts]
    assert same(measured(gauge, [windows]), totals_of(gauge, pool))
    both = measured(gauge, [[window] for window in windows] + [[]])
    assert both.records.tolist() == [1000, 3000, 0]


def test_totals_that_would_overflow_do_not_merge(gauge: Gauge, pool: Singles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "MOST_RECORDS", 15)
    windows = [rebuilt(gauge, Bounds(records=10), pool[:10], np.arange(10.0)) for _ in range(2)]
    with pytest.raises(OverflowError, match="at most 15 records together, found 20"):
        measured(gauge, [windows])


def test_a_full_window_of_certain_records_does_not_overflow(gauge: Gauge) -> None:
    """The largest window with the largest contributions."""
    sure = totals_of(gauge, np.array([[1.0, 0.0, 0.0, 0.0]], dtype=np.float32))
    most = MeasuredWindows(
        gauge,
        sure.totals * MOST_RECORDS,
        sure.confidences,
        sure.predicted * MOST_RECORDS,
        sure.of_performance * MOST_RECORDS,
    ).estimate()
    for name in ("ac", "cpc_ac", "cpc_acc"):
        one = most[name]
        assert isinstance(one, Estimate)
        assert one.accuracy == 1.0


@pytest.mark.slow
def test_the_level_of_cpc_ac_is_exact_for_large_references() -> None:
    """Uniform vectors put the level exactly on a rank: a rounding error, times m, would select the next one."""
    calibration = calibrate(label_outputs(*synthetic(5999, 6, seed=1)))
    window = np.full((50, 6), 1 / 6, dtype=np.float32)
    running, direct = totals_of(Gauge(calibration), window).estimate(), calibration.estimate(window)
    for name in ("cpc_ac", "cpc_ac_ts", "cpc_ac_anchored", "cpc_ac_anchored_ts"):
        one, other = running[name], direct[name]
        assert isinstance(one, Estimate)
        assert isinstance(other, Estimate)
        assert one.accuracy == pytest.approx(other.accuracy, abs=1e-9)


def test_a_clock_that_was_ahead_does_not_block_the_window(gauge: Gauge, pool: Singles) -> None:
    """After a clock at 2096 is corrected, records are accepted again."""
    for bounds in (Bounds(records=3), Bounds(age_seconds=3600.0)):
        window = SlidingWindow(gauge, bounds)
        window.add(pool[:3], np.full(3, np.nan), 4e9)
        added = window.add(pool[3:5], np.array([1.7e9 + 3.0, 1.7e9 + 4.0]), 1.7e9 + 2.0)
        assert (added.entered, added.late, added.future) == (2, 0, 3)
        assert window.clock == 1.7e9 + 4.0


def test_minus_zero_is_zero(gauge: Gauge) -> None:
    """Some producers write it; as bits it is a negative number."""
    negative, plain = (
        np.array([[0.5, 0.5, -0.0, 0.0]], dtype=np.float32),
        np.array([[0.5, 0.5, 0.0, 0.0]], dtype=np.float32),
    )
    assert same(totals_of(gauge, negative), totals_of(gauge, plain))


@pytest.mark.parametrize(
    ("rows", "times", "now"),
    [
        pytest.param(10, 4, 5.0, id="too few times"),
        pytest.param(4, 10, 5.0, id="too many times"),
        pytest.param(4, 4, float("nan"), id="no arrival"),
        pytest.param(4, 4, float("inf"), id="arrival never"),
    ],
)
def test_an_invalid_batch_changes_nothing(gauge: Gauge, pool: Singles, rows: int, times: int, now: float) -> None:
    window = SlidingWindow(gauge, Bounds(records=50))
    add(window, pool, 1, 2, 3)
    before = window.totals()
    with pytest.raises(ValueError, match="expected"):
        window.add(pool[:rows], np.arange(times, dtype=np.float64), now)
    assert (held(window), window.clock) == ([1, 2, 3], 3.0)
    assert same(window.totals(), before)


def test_totals_count_the_predicted_classes(gauge: Gauge, pool: Singles) -> None:
    window = SlidingWindow(gauge, Bounds(records=300))
    for start in range(0, 1000, 100):
        window.add(pool[start : start + 100], np.arange(start, start + 100.0), 2000.0)
    assert window.totals().predicted[0].tolist() == np.bincount(pool[700:1000].argmax(axis=1), minlength=4).tolist()


def test_memory_is_at_most_the_computed_bound(gauge: Gauge, pool: Singles) -> None:
    """For a full window, fed for long in small or large batches."""
    bounds = Bounds(records=4000)
    for batch in (100, 4000):
        tracemalloc.start()
        window = SlidingWindow(gauge, bounds)
        for step in range(60):
            window.add(pool[:batch], np.arange(batch, dtype=np.float64) + batch * step, float(batch * (step + 1)))
            window.records.take_freed()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(window) == 4000
        # Except for a spare row of totals and a few small objects.
        assert taken <= bytes_per_window(gauge, bounds) + gauge.bytes_per_window + 16_384


def test_totals_take_no_more_memory_for_a_larger_reference() -> None:
    few, many = (Gauge(calibrate(label_outputs(*synthetic(m, 4, seed=1)))) for m in (600, 3000))
    assert few.bytes_per_window == many.bytes_per_window <= 64 << 10


def test_an_age_window_evicts_its_oldest_records_at_the_memory_bound(gauge: Gauge, pool: Singles) -> None:
    window = SlidingWindow(gauge, Bounds(age_seconds=1e9, most_records=100))
    window.add(pool, np.arange(4000.0), 4000.0)
    assert held(window) == list(np.arange(3900.0, 4000.0))


def test_a_wrong_clock_of_another_shard_is_forgotten_when_it_is_set_back() -> None:
    gauge, bounds = small_gauge(), Bounds(age_seconds=600.0, tolerance_seconds=60.0)
    vectors = synthetic(5, gauge.calibration.classes, seed=1)[0]
    window = SlidingWindow(gauge, bounds)
    window.add(vectors, np.full(5, 1000.0), 1000.0)
    window.expire(9000.0)
    assert window.add(vectors, np.full(5, 1100.0), 1100.0).entered == 5
