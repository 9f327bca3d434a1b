"""The change detector: values of an independent program, and an oracle that takes one record after another."""

import json
import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.calibration import Calibration
from monitor.core.change import (
    BETS,
    MEMBERS,
    POINT,
    WAYS,
    Blocks,
    ChangeEvidence,
    Detector,
    Direction,
    EvidenceTable,
    Expected,
    log_factors,
    null_means,
)
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimators.ensemble import by_confidence, calibrate_all, weight_of
from monitor.core.scores import label_outputs
from monitor.core.segments import ALL, Chunk, ModelWindows, Segmentation
from monitor.core.totals import Gauge, member_values
from monitor.core.window import Bounds, measured
from monitor.testing.oracle import Oracle
from tests.strategies import Case, accepted, cases, small_gauge, synthetic


def calibrated(vectors: Any, labels: Any, temperature: float | None = None) -> Calibration:
    """Return a calibration without intervals, which a detector does not need."""
    reference = label_outputs(vectors, labels) if temperature is None else label_outputs(vectors, labels, temperature)
    return Calibration(
        records=reference.records,
        right=reference.right,
        classes=vectors.shape[1],
        temperature=reference.temperature,
        estimators=calibrate_all(reference),
        intervals=cast("Any", None),
        adaptive_weight=weight_of(*by_confidence(reference), reference.correct),
    )


def evidence_of(gauge: Gauge, values: Any, tolerance: float, every: int) -> list[float]:
    """Return log10 of the evidence after each evaluation of so many records."""
    assert gauge.members is not None
    means = np.full((1, len(MEMBERS)), gauge.members.accuracy - tolerance)
    return evidence_with(gauge, values, Detector(tolerance=tolerance), means, every)


def evidence_with(gauge: Gauge, values: Any, detector: Detector, means: Any, every: int) -> list[float]:
    """Return the same for any detector and means of the null hypothesis."""
    assert gauge.members is not None
    table = EvidenceTable(gauge.members, [detector], lambda _: means)
    row, found, evidence = table.row("all", 0.0), [], ChangeEvidence(1)
    evidence.select(["all"])
    for start in range(0, values.shape[1], every):
        add(table, row, values[:, start : start + every])
        evidence.update(table.snapshot(["all"]), np.array([float(start)]))
        found.append(float(evidence.value[0, 0]))
    return found


def expected_sets(real_sets: Path) -> dict[str, Any]:
    return dict(json.loads((real_sets / "expected_change.json").read_text()))


def test_evidence_equals_the_expected_values(real_sets: Path) -> None:
    for name, expected in expected_sets(real_sets).items():
        with np.load(real_sets / f"{name}.npz") as loaded:
            labels = loaded["source_labels"].astype(np.int64)
            vectors, target = (accepted(loaded[key].astype(np.float64)) for key in ("source_probs", "target_probs"))
        gauge = Gauge(calibrated(vectors[::2], labels[::2], expected["temperature"]), ())
        assert gauge.members is not None
        assert Detector().effective(gauge.members.smallest_tolerance) == pytest.approx(expected["tolerance"], abs=1e-12)
        stream = np.concatenate([vectors[1::2][:1500], target[:1500]])
        found = evidence_of(
            gauge, member_values(gauge, stream), expected["tolerance"], expected["records_per_evaluation"]
        )
        assert found == pytest.approx(expected["log10_evidence"], abs=1e-6), name


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_baseline_beyond_all_values_makes_no_evidence_of_the_best_records(sign: float) -> None:
    """Accuracy and bias of a labelled segment are drawn to those of the reference one by one: their sum may exceed 1."""
    low, high = np.zeros(4), np.ones(4)
    best, beyond = (high if sign > 0 else low)[:, None], np.full((4, 1), 0.5 + sign * 0.55)
    logs = log_factors(best, beyond, low, high, sign)
    assert np.isfinite(logs).all()
    assert (logs < 0.0).all()


def test_sizes_of_bets() -> None:
    assert BETS[0] == pytest.approx(0.02)
    assert BETS[-1] == pytest.approx(0.9)


def calibrated_for(decision: Decision, vectors: Any, labels: Any, named: Any) -> Calibration:
    reference = label_outputs(vectors, labels, None, decision.column(vectors, named))
    return replace(
        calibrated(vectors, labels, reference.temperature),
        right=reference.right,
        estimators=calibrate_all(reference),
        adaptive_weight=weight_of(*by_confidence(reference), reference.correct),
        decision=decision,
    )


def slow_evidence(values: list[list[float]], low: Any, high: Any, means: Any, sign: float, every: int) -> list[float]:
    """The evidence after each evaluation, record by record, in floats."""
    bets = [0.02 * 45 ** (b / 4) for b in range(5)]
    ways, found = [0.0] * 20, []
    for start in range(0, len(values), every):
        ways = [way + 1.0 for way in ways]
        for record in values[start : start + every]:
            for member, (x, least, most, mean) in enumerate(zip(record, low, high, means, strict=True)):
                for b, bet in enumerate(bets):
                    factor = bet / (most - mean) * (mean - x) if sign > 0 else bet / (mean - least) * (x - mean)
                    ways[5 * member + b] *= 1.0 + factor
        found.append(math.log10(math.fsum(ways) / 20))
    return found


@pytest.mark.parametrize("kind", ["argmax", "threshold", "field"])
@settings(max_examples=25)
@given(
    case=cases(largest=16),
    own=st.lists(st.floats(0.3, 0.9), min_size=4, max_size=4) | st.none(),
    every=st.integers(1, 5),
)
def test_evidence_equals_an_oracle(kind: str, case: Case, own: list[float] | None, every: int) -> None:
    """Both directions, any decision, with the reference's accuracy or means of an own baseline."""
    if kind == "threshold" and case.reference.shape[1] > 2:
        kind = "field"
    decision = {"argmax": Decision(), "threshold": Decision.at(1, 0.25), "field": Decision(DecidedBy.FIELD)}[kind]
    names, seen = (np.arange(len(some)) * 7 % some.shape[1] for some in (case.reference, case.window))
    calibration = calibrated_for(decision, case.reference, case.labels, names)
    gauge = Gauge(calibration, ())
    assert gauge.members is not None
    oracle = Oracle(
        case.reference.tolist(),
        case.labels.tolist(),
        calibration.temperature,
        (1, 0.25) if kind == "threshold" else None,
        names.tolist() if kind == "field" else None,
    )
    wanted = oracle.watched(case.window.tolist(), seen.tolist() if kind == "field" else None)
    values = member_values(gauge, case.window, seen)
    assert values.T.tolist() == [pytest.approx(one, abs=1e-9) for one in wanted]
    low, high = oracle.watched_bounds()
    assert gauge.members.low.tolist() == pytest.approx(low, abs=1e-9)
    assert gauge.members.high.tolist() == pytest.approx(high, abs=1e-9)
    for direction in Direction:
        detector = Detector(direction, 0.05)
        base = np.full(len(MEMBERS), calibration.accuracy) if own is None else np.clip(own, low, high)
        means = null_means([detector], Expected(base, 0.0))
        slow = slow_evidence(wanted, low, high, means[0].tolist(), detector.sign, every)
        assert evidence_with(gauge, values, detector, means, every) == pytest.approx(slow, abs=1e-6)


# Batches, orders, shards: the same sums to the last bit.

SITE_A, SITE_B = (("site", "A"),), (("site", "B"),)
DETECTORS = (Detector(), Detector(Direction.UP, 0.1))


def means_of(segment: Any) -> Any:
    """Site A has a baseline of its own; site B is still collecting one."""
    if segment == SITE_B:
        return None
    base = np.array([0.5, 0.6, 0.55, 0.58]) if segment == SITE_A else np.full(4, 0.7)
    return null_means(DETECTORS, Expected(base, 0.03))


@dataclass(frozen=True)
class Arrived:
    """Records as they come: their site (-1 for none), time, whether they count, and to which shard; and what follows."""

    sites: list[int]
    at: list[float]
    counted: list[bool]
    shards: list[int]
    ends: list[int]
    """Behind which records a chunk ends."""
    measured: list[bool]
    """Behind which chunks windows are measured."""


@st.composite
def arrivals(draw: st.DrawFn) -> Arrived:
    count = draw(st.integers(1, 60))

    def each(one: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(one, min_size=count, max_size=count))

    ends = sorted(draw(st.sets(st.integers(1, count), max_size=12)) | {count})
    return Arrived(
        each(st.integers(-1, 1)),
        each(st.floats(900.0, 1000.0)),
        each(st.booleans()),
        each(st.integers(0, 2)),
        ends,
        draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends))),
    )


@settings(max_examples=100)
@given(some=arrivals(), age=st.none() | st.floats(5.0, 60.0))
def test_sums_do_not_depend_on_batches_shards_or_what_windows_hold(some: Arrived, age: float | None) -> None:
    """Every record that counts is counted once in each of its windows, also one that came and went, or came too late."""
    gauge = small_gauge()
    assert gauge.members is not None
    vectors, _ = synthetic(len(some.sites), 3, seed=len(some.sites))
    table = EvidenceTable(gauge.members, DETECTORS, means_of)
    shards = [
        ModelWindows(gauge, Bounds(records=5, age_seconds=age), Segmentation((("site",),)), evidence=table)
        for _ in range(3)
    ]
    start = 0
    for end, now_measured in zip(some.ends, some.measured, strict=True):
        for shard, windows in enumerate(shards):
            rows = np.array([row for row in range(start, end) if some.shards[row] == shard], dtype=np.int64)
            if len(rows):
                codes = np.array(some.sites, dtype=np.int32)[rows, None]
                at, counted = np.array(some.at)[rows], np.array(some.counted)[rows]
                windows.enter(Chunk(1000.0, at, vectors[rows], (SITE_A, SITE_B), codes, None, counted))
            if now_measured:
                measured(gauge, [[windows[segment]] for segment in windows])
        start = end
    for windows in shards:
        windows.settle_evidence()
    values = member_values(gauge, vectors)
    for segment, site in ((ALL, None), (SITE_A, 0), (SITE_B, 1)):
        chosen = [
            row for row, counts in enumerate(some.counted) if counts and (site is None or some.sites[row] == site)
        ]
        if segment in table:
            assert table.snapshot([segment]).sums[0].tolist() == sums_of(gauge, values, chosen, means_of(segment))
        else:
            assert not chosen


def sums_of(gauge: Gauge, values: Any, chosen: list[int], means: Any) -> list[int]:
    """The sums of some records, one after the other, as plain integers."""
    assert gauge.members is not None
    found = [0] * (1 + 2 * len(MEMBERS) + WAYS * len(DETECTORS))
    for row in chosen:
        record = values[:, row : row + 1]
        one = [1.0, *np.rint(record[:, 0] * POINT), *np.rint(record[:, 0] ** 2 * POINT)]
        for number, detector in enumerate(DETECTORS):
            logs = np.zeros(WAYS)
            if means is not None:
                own = means[number][:, None]
                logs = log_factors(record, own, gauge.members.low, gauge.members.high, detector.sign).ravel()
            one += logs.tolist()
        found = [before + int(more) for before, more in zip(found, one, strict=True)]
    return found


def test_sums_beyond_64_bits_give_the_same_evidence() -> None:
    gauge, found = small_gauge(), []
    assert gauge.members is not None
    values = member_values(gauge, synthetic(200, 3, seed=5)[0])
    for first in (0, np.iinfo(np.int64).max - 1000, np.iinfo(np.int64).min + 1000):
        table = EvidenceTable(gauge.members, DETECTORS, means_of)
        row, evidence = table.row(ALL, 0.0), ChangeEvidence(len(DETECTORS))
        table.sums[row, 1:] = first
        evidence.select([ALL])
        evidence.update(table.snapshot([ALL]), np.zeros(1))
        for start in range(0, 200, 20):
            add(table, row, values[:, start : start + 20])
            evidence.update(table.snapshot([ALL]), np.zeros(1))
        found.append(evidence.value.tolist())
    assert found[0] == found[1] == found[2]


def test_where_a_change_began() -> None:
    """The newest record of the last evaluation before it, and the records since; none is lost if evaluations pass without any."""
    gauge = small_gauge()
    assert gauge.members is not None
    detectors = DETECTORS[:1]
    means = null_means(detectors, Expected(np.full(4, 0.8), 0.02))
    table = EvidenceTable(gauge.members, detectors, lambda _: means)
    row, evidence = table.row(ALL, 1000.0), ChangeEvidence(1)
    evidence.select([ALL])
    for evaluation in range(60):
        level = 0.82 if evaluation < 40 else 0.6
        if evaluation % 5:
            add(table, row, np.full((4, 25), level))
        evidence.update(table.snapshot([ALL]), np.array([2000.0 + evaluation]))
        at, since = (float(one[0, 0]) for one in evidence.began())
        if evaluation >= 41:
            # Evaluation 40 had no records, so the evidence of all ways was last 0 at evaluation 39.
            assert at == 2039.0
            assert since == 25 * sum(one % 5 > 0 for one in range(40, evaluation + 1))
    assert evidence.value[0, 0] > 6.0


def add(table: EvidenceTable, row: int, values: Any) -> None:
    table.add(values, np.zeros(1, dtype=np.int64), np.full((1, 1), row), np.ones((1, 1), dtype=np.bool_))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_promise_at_the_worst_null(sign: int) -> None:
    """Records whose mean is exactly the null hypothesis: until evidence c it takes on average at least c evaluations."""
    gauge, streams, budget = small_gauge(), 150, 40.0
    assert gauge.members is not None
    detector = Detector(Direction.DOWN if sign > 0 else Direction.UP)
    means = np.full((1, 4), 0.6)
    table = EvidenceTable(gauge.members, [detector], lambda _: means)
    rows = np.array([[table.row(stream, 0.0) for stream in range(streams)]])
    evidence, random = ChangeEvidence(1), np.random.default_rng(sign + 1)
    evidence.select(range(streams))
    first = np.full(streams, np.inf)
    low, high = gauge.members.low[:, None], gauge.members.high[:, None]
    assert (low < 0.6).all()
    assert (high > 0.6).all()
    for evaluation in range(1, 1000):
        chance = random.random(10 * streams)
        # Only the ends of the range, each as often as the mean asks.
        values = np.where(chance < (0.6 - low) / (high - low), high, low)
        table.add(values, 10 * np.arange(streams), rows, np.ones_like(rows, dtype=np.bool_))
        evidence.update(table.snapshot(range(streams)), np.zeros(streams))
        first[(evidence.value[:, 0] >= math.log10(budget)) & np.isinf(first)] = evaluation
        if np.isfinite(first).all():
            break
    # Those that never alarmed would have waited longer.
    assert np.minimum(first, 1000).mean() >= budget


# The tolerance of an own baseline.

CHI_SQUARED_99 = {59: 87.166, 99: 134.642, 199: 248.329}
"""From tables, by degrees of freedom."""


@pytest.mark.parametrize("count", [60, 100, 200])
@pytest.mark.parametrize("wander", [0.0, 0.02, 0.05, 0.2])
def test_the_smallest_tolerance_of_an_own_baseline(count: int, wander: float) -> None:
    """From the list of block means, with the formulas of METHODS.md."""
    random, per = np.random.default_rng([count, int(100 * wander)]), 50
    levels = 0.7 + wander * random.normal(size=(count, 1, 1))
    values = levels + np.array([0.1, 0.2, 0.3, 0.4]) * random.normal(size=(count, per, 4))
    blocks = Blocks()
    for block in values:
        sums = np.concatenate([[per], *(np.rint(some * POINT).sum(axis=0) for some in (block, block**2))])
        blocks = blocks.added(sums.astype(np.int64))
    assert (blocks.count, blocks.complete) == (count, True)
    wanted = []
    for member in range(4):
        means = [statistics.fmean(block[:, member]) for block in values]
        noise = statistics.fmean(statistics.variance(block[:, member]) for block in values) / per
        variance = statistics.variance(means)
        assert blocks.means[member] == pytest.approx(statistics.fmean(means))
        tolerance = 4.5 * math.sqrt(variance / count)
        if (count - 1) * variance / noise > CHI_SQUARED_99[count - 1]:
            tolerance += 2.0 * math.sqrt(variance - noise)
        wanted.append(tolerance)
    assert blocks.smallest_tolerance == pytest.approx(max(wanted), rel=1e-6)


def test_blocks_without_records_do_not_count() -> None:
    nothing = np.zeros(1 + 2 * len(MEMBERS), dtype=np.int64)
    assert Blocks().added(nothing) == Blocks()


def test_a_failure_halfway_counts_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the totals nor as evidence."""
    gauge, vectors = small_gauge(), synthetic(50, 3, seed=5)[0]
    assert gauge.members is not None
    table = EvidenceTable(gauge.members, DETECTORS, means_of)
    windows = ModelWindows(gauge, Bounds(records=40), evidence=table)
    windows.enter(Chunk(1000.0, np.arange(50.0), vectors))
    with monkeypatch.context() as patch:
        patch.setattr(EvidenceTable, "_logs", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            measured(gauge, [[windows[ALL]]])
    assert measured(gauge, [[windows[ALL]]]).records.tolist() == [40]
    assert table.snapshot([ALL]).sums[0, 0] == 50
