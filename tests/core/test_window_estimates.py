"""Estimates of many windows in one call are those of each window alone, to the last bit."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Self

import numpy as np
import pytest
from hypothesis import given, settings

from monitor.core.calibration import Calibration, WindowEstimates, calibrate
from monitor.core.estimate import CONSENSUS, Estimate, Interval, NoEstimate, PredictionSets, Why
from monitor.core.estimators import Form, Member, ensemble
from monitor.core.estimators.confidence import AverageConfidence
from monitor.core.estimators.ensemble import (
    MEMBERS,
    CalibratedEstimator,
    MeasuredRecords,
    Variants,
    estimate_forms,
    measure,
    side_by_side,
    with_variants,
)
from monitor.core.intervals import IntervalTables
from monitor.core.scores import (
    FIXED_POINT,
    MOST_RECORDS,
    Floats,
    LabelledOutputs,
    Outputs,
    Scores,
    Singles,
    in_blocks,
    label_outputs,
)
from monitor.core.totals import totals_of
from monitor.testing.oracle import Oracle
from tests.strategies import Case, cases, named_values, small_gauge, synthetic

SIZES = (1, 2, 3, 7, 10, 20, 49, 50, 51, 199, 200, 333, 1000, 5001)
PAPER: Variants = {"doc": "absolute", "cpc_acc": "skip", "cpc_ac": "zero"}


@cache
def calibration(records: int = 250) -> Calibration:
    return calibrate(label_outputs(*synthetic(records, 3, seed=1)))


def stacked(known: Calibration, windows: Sequence[Singles]) -> MeasuredRecords:
    """Measure windows one by one; put them side by side, and an empty one behind them."""
    blocks = [tuple(in_blocks(window, known.temperature)) for window in windows]
    found = [measure(known.estimators, lambda some=some: some) for some in blocks]  # type: ignore[misc]
    none = {name: np.zeros_like(sums) for name, sums in found[0].sums.items()}
    return side_by_side([*found, MeasuredRecords(np.array([0]), np.zeros((2, 1)), none)])


def windows_of_many_sizes() -> list[Singles]:
    made = [synthetic(size, 3, seed=size, sharpness=(0.3, 1.0, 2.0, 5.0)[size % 4])[0] for size in SIZES]
    # All sets empty, and all of one class.
    return [*made, np.full((30, 3), 1 / 3, dtype=np.float32), np.eye(3, dtype=np.float32)]


@pytest.mark.parametrize("records", [15, 250], ids=["without tables", "with tables"])
@pytest.mark.parametrize("variants", [{}, PAPER], ids=["default", "variants"])
def test_many_windows_equal_each_alone(records: int, variants: Variants) -> None:
    known, windows = calibration(records), windows_of_many_sizes()
    found = known.estimate_windows(stacked(known, windows), variants)
    for index, window in enumerate(windows):
        assert found.window(index) == known.estimate(window, variants)
    none = found.window(len(windows))
    assert set(none.values()) == {NoEstimate(Why.TOO_FEW_RECORDS, 0)}
    assert (none.disagreement, none.chance_disagreement) == (None, None)


def test_a_window_of_many_classes_equals_the_same_measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was kept from the first pass; with a first block of lower thresholds; and with too much to keep."""
    probabilities, labels = synthetic(60, 100, seed=1, sharpness=3.0)
    known = calibrate(label_outputs(probabilities, labels))
    unsure, sure = (synthetic(700, 100, seed=2, sharpness=sharpness)[0] for sharpness in (2.0, 8.0))
    derived: list[int] = []

    def counted(probabilities: Singles, temperature: float, decided: None) -> Iterator[Outputs]:
        derived.append(len(probabilities))
        return in_blocks(probabilities, temperature, decided)

    monkeypatch.setattr(ensemble, "in_blocks", counted)
    # The last block has one record.
    mixed, plain = np.concatenate([unsure[:655], sure, sure[:611]]), unsure[:656]
    for window, most_kept, passes in ((plain, 1 << 20, 1), (mixed, 1 << 20, 2), (plain, 0, 2), (plain, 1000, 2)):
        monkeypatch.setattr(ensemble, "_MOST_KEPT", most_kept)
        derived.clear()
        found = known.estimate(window)
        assert len(derived) == passes
        blocks = tuple(in_blocks(window, known.temperature))
        assert len(blocks[-1].raw.confidence) == 1
        twice = measure(known.estimators, lambda blocks=blocks: blocks)  # type: ignore[misc]
        assert found == known.estimate_windows(twice).window(0)


@pytest.mark.slow
@settings(max_examples=30)
@given(cases())
def test_many_windows_equal_the_oracle(case: Case) -> None:
    """Each column, with ties, saturation and references that are all right or wrong."""
    reference = label_outputs(case.reference, case.labels)
    known = calibrate(reference)
    windows = [case.window, case.reference, case.window[:1]]
    found = known.estimate_windows(stacked(known, windows))
    oracle = Oracle(case.reference.tolist(), case.labels.tolist(), reference.temperature)
    for index, window in enumerate(windows):
        assert known.adaptive_weight is not None
        values = named_values(found, known.adaptive_weight, index)
        wanted = {name: value for name, value in oracle.estimates(window.tolist()).items() if "[" not in name}
        assert {name: values[name] for name in wanted} == pytest.approx(wanted, abs=1e-9, rel=0)
        assert found.disagreement[index] == values["disagreement"]


def test_estimators_together_equal_each_alone() -> None:
    """In all variants, to the bit: lines are computed together."""
    known = calibration()
    ready, windows = with_variants(known.estimators), stacked(known, windows_of_many_sizes())
    found = estimate_forms(ready, windows)
    for row, one in enumerate(ready):
        confidence = windows.mean_confidence(scaled=one.form.scaled)
        wanted = one.estimator.estimate(windows.means(one), confidence)[:-1]
        np.testing.assert_array_equal(found.unclipped[row, :-1], wanted, one.form.full_name)


class HalfConfidence(AverageConfidence):
    """Half the mean confidence, by a class that has inherited a line."""

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return half of it."""
        return super().estimate(means, mean_confidence) / 2.0


def test_a_subclass_may_have_another_estimate() -> None:
    known, windows = calibration(), windows_of_many_sizes()
    half = CalibratedEstimator(Form(Member("ac", HalfConfidence), scaled=False, variant=None), HalfConfidence())
    found = replace(known, estimators=(half, *known.estimators[1:])).estimate_windows(stacked(known, windows))
    np.testing.assert_array_equal(found.accuracy[0], known.estimate_windows(stacked(known, windows)).accuracy[0] / 2.0)


def interval_by_definition(tables: IntervalTables, name: str, accuracy: float, records: int) -> tuple[float, float]:
    """One interval in plain Python."""
    errors, tail = tables.errors[name], (1.0 - tables.level) / 2.0
    centre = min(1.0, max(0.0, accuracy - errors.bias))
    lower = centre - reach_by_definition(tables, errors.high.tolist(), records, tail)
    upper = centre + reach_by_definition(tables, (-errors.low).tolist(), records, tail)
    return max(0.0, lower), min(1.0, upper)


def reach_by_definition(tables: IntervalTables, errors: Sequence[float], records: int, tail: float) -> float:
    sizes: list[int] = tables.sizes.tolist()
    m = tables.reference_records
    after = sum(size <= records for size in sizes)
    before, after = max(0, after - 1), min(after, len(sizes) - 1)
    low, high = errors[before], errors[after]
    if low != high:
        low += (high - low) * (math.log(records / sizes[before]) / math.log(sizes[after] / sizes[before]))
    seen = low * math.sqrt(1.0 / records + 1.0 / m)
    unseen = max(0, math.ceil(math.log(tail) / math.log(records / (records + m))) - 1) / records
    return seen + math.sqrt(seen * seen + unseen * unseen) - abs(seen) if math.isfinite(seen) else seen


def test_intervals_and_the_consensus_equal_their_definitions() -> None:
    """For every number of records up to beyond the tables, to the last bit."""
    known = calibration()
    tables, random = known.intervals, np.random.default_rng(3)
    records = np.array([*range(1, 400), 1999, 2000, 10**6, 8 * 10**6])
    names = tuple(tables.errors)
    accuracy = random.random((len(names), len(records)))
    lower, upper, chance = tables.bounds(names, accuracy, records)
    for row, name in enumerate(names):
        for column, size in enumerate(records.tolist()):
            wanted = interval_by_definition(tables, name, float(accuracy[row, column]), size)
            assert (lower[row, column], upper[row, column]) == wanted, (name, size)
    for column, size in enumerate(records.tolist()):
        explained = reach_by_definition(tables, tables.disagreement.tolist(), size, 1.0 - tables.level)
        assert chance[column] == min(1.0, max(0.0, explained))


def test_intervals_follow_the_numbers_of_records() -> None:
    """Whatever numbers were asked for before."""
    tables = calibration().intervals
    names = tuple(tables.errors)
    accuracy = np.full((len(names), 2), 0.5)
    for records in ([50, 100], [50, 100], [100, 50], [50, 0]):
        found = tables.bounds(names, accuracy, np.array(records))
        fresh = replace(tables).bounds(names, accuracy, np.array(records))
        for one, wanted in zip(found, fresh, strict=True):
            np.testing.assert_array_equal(one, wanted)
        # Callers own what they get.
        for one in found:
            one[...] = -1.0


def test_the_consensus_is_the_lower_quartile_of_its_members() -> None:
    known, windows = calibration(), windows_of_many_sizes()
    found = known.estimate_windows(stacked(known, windows))
    for index in range(len(windows)):
        results = found.window(index)
        members = [
            result.accuracy for name, result in results.items() if name in MEMBERS and isinstance(result, Estimate)
        ]
        consensus = results[CONSENSUS]
        assert isinstance(consensus, Estimate)
        assert consensus.accuracy == statistics.quantiles(members, n=4, method="inclusive")[0]
        assert results.disagreement == max(members) - min(members)


@dataclass(frozen=True, slots=True)
class Failing:
    """Fails on windows of little confidence, or with an exception."""

    returns_reference_accuracy: ClassVar[bool] = False

    raises: bool = False

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Return one that fails on some windows."""
        del reference, scaled
        return cls()

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return each record's confidence."""
        del mean_confidence
        return scores.confidence[None]

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return a percentage on some windows, NaN on others."""
        del mean_confidence
        if self.raises:
            raise ZeroDivisionError("no estimate")
        return np.where(means[0] < 0.5, np.nan, np.where(means[0] > 0.9, 100.0 * means[0], means[0]))


def with_failing(known: Calibration, name: str, *, raises: bool) -> Calibration:
    """Return the calibration with a failing estimator in place of a raw one."""
    wrong = CalibratedEstimator(Form(Member(name, Failing), scaled=False, variant=None), Failing(raises))
    return replace(known, estimators=tuple(wrong if one.form.name == name else one for one in known.estimators))


def failures(known: Calibration, windows: Sequence[Singles]) -> tuple[WindowEstimates, list[tuple[str, str, int]]]:
    """Return the estimates and what failed."""
    failed: list[tuple[str, str, int]] = []
    found = known.estimate_windows(
        stacked(known, windows), failed=lambda name, error, count: failed.append((name, type(error).__name__, count))
    )
    return found, failed


def test_a_failing_estimator_affects_only_itself() -> None:
    """In the windows on which it fails; an exception is a failure on all windows with records."""
    known, windows = calibration(), windows_of_many_sizes()
    expected = known.estimate_windows(stacked(known, windows))
    others = [row for row, name in enumerate(expected.names) if name != "ac"]
    confidence = expected.accuracy[expected.names.index("ac")]
    wrong = (confidence < 0.5) | (confidence > 0.9)
    assert 0 < wrong.sum() < len(windows)

    found, failed = failures(with_failing(known, "ac", raises=False), windows)
    assert failed == [("ac", "ArithmeticError", wrong.sum())]
    for index in range(len(windows)):
        one, whole = found.window(index), expected.window(index)
        wanted = NoEstimate(Why.ERROR, whole.records) if wrong[index] else whole["ac"]
        assert one["ac"] == wanted
        assert {**one, "ac": None} == {**whole, "ac": None}

    found, failed = failures(with_failing(known, "ac", raises=True), windows)
    assert failed == [("ac", "ZeroDivisionError", len(windows))]
    np.testing.assert_array_equal(found.accuracy[others], expected.accuracy[others])
    assert found.window(len(windows))["ac"] == NoEstimate(Why.TOO_FEW_RECORDS, 0)


def test_without_a_member_there_is_no_consensus() -> None:
    known, windows = calibration(), windows_of_many_sizes()
    found, _ = failures(with_failing(known, "calibrated_confidence", raises=True), windows)
    assert found.window(3)[CONSENSUS] == NoEstimate(Why.ERROR, SIZES[3])
    assert np.isnan(found.disagreement).all()


def test_without_a_handler_a_failure_is_raised() -> None:
    known, windows = calibration(), windows_of_many_sizes()
    with pytest.raises(ArithmeticError, match="ac: expected an accuracy from 0 to 1, found"):
        with_failing(known, "ac", raises=False).estimate_windows(stacked(known, windows))
    with pytest.raises(ZeroDivisionError):
        with_failing(known, "ac", raises=True).estimate_windows(stacked(known, windows))


def test_results_of_one_window_are_plain_numbers() -> None:
    """Clipped, with the value before clipping and the size of conformal sets."""
    known = calibration()
    sure = np.tile(np.array([[1.0, 0.0, 0.0]], dtype=np.float32), (5, 1))
    found = known.estimate_windows(stacked(known, [sure]), {"cpc_ac": "skip"}).window(0)
    doc = found["doc"]
    assert isinstance(doc, Estimate)
    assert doc.accuracy == 1.0
    assert doc.unclipped is not None
    assert doc.unclipped > 1.0
    assert doc.total == 5 * doc.unclipped
    cpc = found["cpc_ac"]
    assert isinstance(cpc, Estimate)
    assert cpc.prediction_sets == PredictionSets(1.0, 0.0)
    assert isinstance(cpc.interval, Interval)
    assert {type(value) for value in (*doc, *cpc.prediction_sets, *cpc.interval)} <= {float, int, Interval, type(None)}


def test_means_of_conformal_sets_are_rounded_once() -> None:
    """Also in windows whose totals are above the integers that a float can hold."""
    gauge, random = small_gauge(), np.random.default_rng(1)
    records = random.integers(1, MOST_RECORDS, 500)
    of_one = totals_of(gauge, synthetic(1, 3, seed=1)[0])
    scores = random.integers(0, records * FIXED_POINT)
    totals = np.repeat(of_one.totals, 500, axis=0)
    totals[:, 0], totals[:, gauge.moving[0].start] = records, scores
    windows = replace(of_one, totals=totals)
    (one,) = (one for one in gauge.calibration.estimators if one.form.name == "cpc_ac")
    pairs = zip(scores.tolist(), records.tolist(), strict=True)
    assert windows.means(one)[0].tolist() == [score / (FIXED_POINT * count) for score, count in pairs]
