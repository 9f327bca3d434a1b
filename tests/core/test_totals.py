"""Totals of many windows equal a slow computation from their records to the bit, whatever their history."""

from functools import cache

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from monitor.core import totals as measuring
from monitor.core import window as windows_module
from monitor.core.calibration import calibrate
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimate import Estimate
from monitor.core.performance import targets
from monitor.core.scores import Integers, label_outputs
from monitor.core.segments import ALL, Chunk, ModelWindows, Segment, Segmentation
from monitor.core.totals import Gauge, totals_of
from monitor.core.window import Bounds, measured, measured_after
from tests.core.slow_totals import assert_equal
from tests.strategies import Singles, synthetic

DECISIONS = [Decision(), Decision.at(1, 0.3), Decision(DecidedBy.FIELD)]


@cache
def reference(classes: int, decision: Decision = DECISIONS[0]) -> tuple[Gauge, Singles]:
    """Return a gauge, and records with ties, certain and uniform ones, and scores of the reference itself."""
    probabilities, labels = synthetic(60, classes, seed=1)
    votes = np.random.default_rng(3).multinomial(5, np.full(classes, 1 / classes), size=12) / 5
    probabilities[:12] = votes
    pool, _ = synthetic(120, classes, seed=2, sharpness=1.5)
    certain, uniform = np.zeros((2, classes)), np.full((2, classes), 1 / classes)
    certain[:, [0, -1]] = np.eye(2)
    pool = np.concatenate([pool, probabilities, certain, uniform]).astype(np.float32)
    labelled = label_outputs(probabilities, labels, decided=decision.column(probabilities, named(60, classes)))
    return Gauge(calibrate(labelled, decision=decision), targets(classes, asked=True)), pool


def named(records: int, classes: int) -> Integers:
    """Return classes that records name, which have nothing to do with their probabilities."""
    return np.arange(records) * 5 % 7 % classes


@cache
def tight(classes: int, decision: Decision = DECISIONS[0]) -> tuple[Gauge, Singles]:
    """Return the same with curves of four cells."""
    gauge, pool = reference(classes, decision)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "CELLS", 4)
        return Gauge(gauge.calibration, targets(classes, asked=True)), pool


@pytest.fixture
def few_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves of a few cells, that are rebuilt all the time, and small blocks."""
    monkeypatch.setattr(measuring, "_BELOW", 1)
    monkeypatch.setattr(measuring, "_BLOCK_ELEMENTS", 64)
    monkeypatch.setattr(measuring, "_SORTED_ELEMENTS", 200)
    monkeypatch.setattr(windows_module, "_GATHERED_RECORDS", 7)


@pytest.mark.parametrize(
    ("classes", "decision"),
    [
        *((classes, DECISIONS[0]) for classes in (2, 3, 10, 33, 100, 1000)),
        (2, DECISIONS[1]),
        *((classes, DECISIONS[2]) for classes in (2, 10, 100)),
    ],
)
@pytest.mark.usefixtures("few_cells")
def test_totals_equal_a_slow_computation(classes: int, decision: Decision) -> None:
    """Of any records together, or alone."""
    gauge, pool = tight(classes, decision)
    assert gauge.cells == (4, 4)
    random = np.random.default_rng(classes)
    for size in (1, 2, 9, 60):
        vectors = pool[random.permutation(len(pool))[:size]]
        decided = named(len(vectors), classes)
        assert_equal(totals_of(gauge, vectors, decided), 0, vectors, decided)
    # Certain and uniform records.
    for vectors in (pool[-4:], pool[-2:], pool[-4:-2]):
        decided = named(len(vectors), classes)
        assert_equal(totals_of(gauge, vectors, decided), 0, vectors, decided)
        offline = gauge.calibration.estimate(vectors, decided=decided)
        running = totals_of(gauge, vectors, decided).estimate()
        found, wanted = (
            {name: one.accuracy for name, one in some.items() if isinstance(one, Estimate)}
            for some in (running, offline)
        )
        assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("classes", [3, 10, 100, 1000])
def test_a_record_measures_the_same_alone_as_among_others(classes: int) -> None:
    """In blocks of any size, from any floor."""
    gauge, pool = reference(classes)
    denominators, marks = gauge.derive(pool)
    for row in range(0, len(pool), 7):
        alone = gauge.derive(pool[row : row + 1])
        assert (alone[0][0], alone[1][0]) == (denominators[row], marks[row])
    measures = gauge.measure(pool, denominators, marks)
    lowest = [np.ones(len(pool), dtype=np.int64)] * 2
    higher = [np.full(len(pool), len(grid.thresholds) // 2) for grid in gauge.grids]
    fine, coarse = (
        {
            (stream, record, cell): step
            for stream, steps in enumerate(gauge.steps(pool, measures, denominators, floors))
            for record, cell, step in zip(*_summed(steps.record, steps.cell, steps.step), strict=True)
            if cell >= floors[stream][record]
        }
        for floors in (lowest, higher)
    )
    assert 0 < len(coarse) < len(fine)
    for key, value in coarse.items():
        assert fine[key] == value


def _summed(record: np.ndarray, cell: np.ndarray, step: np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Add up the steps of one record in one cell."""
    totals: dict[tuple[int, int], int] = {}
    for key in zip(record.tolist(), cell.tolist(), step.tolist(), strict=True):
        totals[key[:2]] = totals.get(key[:2], 0) + key[2]
    return [one for one, _ in totals], [other for _, other in totals], list(totals.values())


SITES: tuple[Segment, ...] = tuple((("site", name),) for name in "ABC")
SCANNERS: tuple[Segment, ...] = tuple((("site", "A"), ("scanner", name)) for name in "12")
SEGMENTS = (*SITES, *SCANNERS)

steps = st.lists(
    st.tuples(
        st.lists(
            st.tuples(st.integers(0, 183), st.integers(-1, 2), st.integers(-1, 1), st.integers(-30, 3)), max_size=12
        ),
        st.sampled_from(["", "", "", "measure", "some", "forget", "back"]),
    ),
    max_size=12,
)


class SlowWindows:
    """The expected content of windows: event time, number of arrival and row of the pool, in order."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.held: dict[Segment, list[tuple[float, int, int]]] = {ALL: []}
        self.clocks: dict[Segment, float] = {}
        self.arrived = 0

    def restamp(self, now: float) -> None:
        """Give times in the future the present time."""
        limit = now + self.bounds.tolerance_seconds
        for segment, held in self.held.items():
            self.held[segment] = sorted((now if time > limit else time, one, row) for time, one, row in held)
            self.clocks[segment] = max((time for time, *_ in held if time <= limit), default=-np.inf)
            if any(time > limit for time, *_ in held):
                self.clocks[segment] = max(self.clocks[segment], now)

    def add(self, row: int, time: float, segments: list[Segment]) -> None:
        """Add one record."""
        for segment in segments:
            held = sorted([*self.held.get(segment, []), (time, self.arrived, row)])
            self.clocks[segment] = max(self.clocks.get(segment, -np.inf), time)
            horizon = self.clocks[segment] - (self.bounds.age_seconds or np.inf)
            self.held[segment] = [one for one in held if one[0] >= horizon][-self.bounds.capacity :]
        self.arrived += 1

    def forget(self, segment: Segment) -> None:
        """Remove a segment."""
        self.held.pop(segment, None)
        self.clocks.pop(segment, None)


@pytest.mark.parametrize(
    ("classes", "decision"), [(3, DECISIONS[0]), (40, DECISIONS[0]), (2, DECISIONS[1]), (3, DECISIONS[2])]
)
@pytest.mark.usefixtures("few_cells")
@settings(max_examples=60, deadline=None, phases=[Phase.generate, Phase.shrink])
@given(steps=steps, capacity=st.integers(1, 12), age=st.sampled_from([None, 25.0]))
def test_windows_of_any_history_equal_a_slow_computation(
    classes: int,
    decision: Decision,
    steps: list[tuple[list[tuple[int, int, int, int]], str]],
    capacity: int,
    age: float | None,
) -> None:
    """Late records, segments that come and go, clocks set back; measured often, rarely, or in pieces."""
    gauge, pool = tight(classes, decision)
    decided = named(len(pool), classes)
    bounds = Bounds(records=capacity, age_seconds=age, tolerance_seconds=5.0)
    windows, slow = ModelWindows(gauge, bounds, Segmentation((("site",), ("site", "scanner")))), SlowWindows(bounds)
    now, freed = 100.0, set[int]()
    for batch, action in steps:
        now += 2.0 if action != "back" else -60.0
        if windows.would_restamp(now):
            slow.restamp(now)
        codes = [(site, scanner + len(SITES) if scanner >= 0 else -1) for _, site, scanner, _ in batch]
        chunk = Chunk(
            now,
            np.array([now + offset for *_, offset in batch], dtype=np.float64),
            pool[[row for row, *_ in batch]].reshape(-1, classes),
            SEGMENTS,
            np.array(codes, dtype=np.int32).reshape(-1, 2),
            decided[[row for row, *_ in batch]],
        )
        assert windows.enter(chunk).first == slow.arrived
        for (row, *_, offset), chosen in zip(batch, codes, strict=True):
            slow.add(row, now + offset, [ALL, *(SEGMENTS[code] for code in chosen if code >= 0)])
        if action == "measure":
            _check(gauge, windows, pool, slow)
        elif action == "some":
            measured_after(gauge, [[windows[segment]] for segment in windows], 3)
        elif action == "forget" and SITES[0] in windows:
            windows.forget(SITES[0])
            slow.forget(SITES[0])
        freed |= set(windows.take_freed().tolist())
    _check(gauge, windows, pool, slow)
    rows = {one: row for held in slow.held.values() for _, one, row in held}
    lasting = [rows[one] for one in sorted(rows)]
    assert freed == set(range(slow.arrived)) - set(rows)
    live = windows.live(0, slow.arrived)
    _check_live(live, slow, pool[lasting].reshape(-1, classes))
    assert (live.decided is None) == (decision.by is not DecidedBy.FIELD)
    assert live.decided is None or live.decided.tolist() == decided[lasting].tolist()


def _check_live(live: Chunk, slow: SlowWindows, vectors: Singles) -> None:
    """The records in any window, in order of arrival, with their segments."""
    assert np.array_equal(live.vectors, vectors)
    inside: dict[int, set[Segment]] = {}
    for segment, held in slow.held.items():
        for _, one, _ in held:
            inside.setdefault(one, set()).add(segment)
    everywhere = set() if ALL in live.segments else {ALL}
    found = [everywhere | {live.segments[code] for code in codes if code >= 0} for codes in live.codes.tolist()]
    assert found == [inside[one] for one in sorted(inside)]


def _check(gauge: Gauge, windows: ModelWindows, pool: Singles, slow: SlowWindows) -> None:
    found = measured(gauge, [[windows[segment]] for segment in windows])
    for index, segment in enumerate(windows):
        held = slow.held.get(segment, [])
        assert windows[segment].times.tolist() == [time for time, *_ in held]
        assert windows.arrivals(segment).tolist() == [one for _, one, _ in held]
        rows = [row for *_, row in held]
        decided = named(len(pool), pool.shape[1])[rows]
        assert_equal(found, index, pool[rows].reshape(-1, pool.shape[1]), decided)
