"""Performance metrics and the class mix: against definitions written out slowly, and values of an independent program."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from monitor.core import performance, performance_calibration
from monitor.core.class_mix import MixSolver
from monitor.core.decisions import Decision
from monitor.core.estimate import Why
from monitor.core.performance import (
    OF_CLASSES,
    Confusion,
    MeasuredPerformance,
    Metric,
    PerformanceGauge,
    Target,
    every_target,
    realised,
)
from monitor.core.performance_calibration import calibrate_performance
from monitor.core.scores import Floats, Integers, Singles, label_outputs, outputs
from tests.strategies import Case, accepted, cases, synthetic


@pytest.fixture
def no_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate quickly, without intervals."""
    monkeypatch.setattr(performance_calibration, "_SIZES", ())


def gauge_of(vectors: Singles, labels: Integers, decided: Integers | None = None) -> PerformanceGauge:
    reference = label_outputs(vectors, labels, decided=decided)
    kept = calibrate_performance(reference, 0.95, lambda _: None)
    return PerformanceGauge(kept, reference.temperature, every_target(kept.classes))


def columns(gauge: PerformanceGauge, vectors: Singles) -> tuple[Singles, Integers, Floats]:
    """Return vectors, argmax decisions, and softmax denominators."""
    twice = outputs(np.concatenate([vectors, vectors]), gauge._temperature).scaled  # noqa: SLF001
    return vectors, np.argmax(vectors, axis=1), 1.0 / twice.confidence[: len(vectors)]


def windows_of(gauge: PerformanceGauge, vectors: Singles, lengths: list[int]) -> MeasuredPerformance:
    return gauge.measured_windows(*columns(gauge, vectors), np.array(lengths))


def slow_shares(reference: Singles, labels: Integers, window: Singles) -> Floats:
    """Return the expected share of each true class: isotonic curves by the min-max formula, divided by their sum."""
    shares = np.empty(window.shape)
    for one in range(window.shape[1]):
        knots, group, count = np.unique(reference[:, one], return_inverse=True, return_counts=True)
        hits = np.bincount(group, labels == one)
        fitted = [
            max(
                min(hits[low : high + 1].sum() / count[low : high + 1].sum() for high in range(place, len(knots)))
                for low in range(place + 1)
            )
            for place in range(len(knots))
        ]
        shares[:, one] = np.interp(window[:, one].astype(np.float64), knots.astype(np.float64), fitted)
    total = shares.sum(axis=1, keepdims=True)
    return np.where(total > 0.0, shares / np.where(total > 0.0, total, 1.0), 1.0 / window.shape[1])


def slow_metrics(shares: Floats, decided: Integers, scores: Floats) -> list[float]:
    """Return all metrics from shares of true classes, in the order of `every_target`; NaN where 0 divides."""
    found: dict[Target, float] = {}
    size, classes = shares.shape
    for one in range(classes):
        said, cases, right = int(np.sum(decided == one)), shares[:, one].sum(), shares[decided == one, one].sum()
        rejected = size - said - cases + right
        of = dict(zip(OF_CLASSES, (cases, size - cases, said, size - said, (cases + said) / 2.0), strict=True))
        for metric, over in of.items():
            share = rejected if metric in {Metric.SPECIFICITY, Metric.NPV} else right
            found[Target(metric, one)] = share / over if over > 1e-9 * size else np.nan
    for metric in OF_CLASSES:
        known = [value for target, value in found.items() if target.metric is metric and value == value]  # noqa: PLR0124
        found[Target(metric)] = float(np.mean(known)) if known else np.nan
    above = (scores[:, None] > scores) + 0.5 * (scores[:, None] == scores)
    pairs = shares[:, 1].sum() * shares[:, 0].sum()
    found[Target(Metric.AUROC)] = float(shares[:, 1] @ above @ shares[:, 0] / pairs) if pairs > 1e-9 else np.nan
    return [found[target] for target in every_target(classes)]


def same(left: NDArray[np.generic], right: NDArray[np.generic]) -> bool:
    return left.shape == right.shape and np.array_equal(left, right, equal_nan=True)


@settings(max_examples=150, deadline=None)
@given(case=cases(largest=14))
def test_metrics_equal_the_definitions(case: Case) -> None:
    decided = np.argmax(case.window, axis=1)
    measured = windows_of(gauge_of(case.reference, case.labels), case.window, [len(case.window)])
    wanted = every_target(case.window.shape[1])
    shares, scores = slow_shares(case.reference, case.labels, case.window), case.window[:, 1].astype(np.float64)
    # AUROC, the last, is exact only within the cells.
    few = [row for row, target in enumerate(wanted) if target.metric is not Metric.AUROC]
    expected = np.array(slow_metrics(shares, decided, scores))
    assert measured.expected.values(wanted)[0][few, 0] == pytest.approx(expected[few], abs=1e-9, nan_ok=True)

    labels = np.resize(case.labels, len(case.window))
    one_hot = np.eye(case.window.shape[1])[labels]
    found = realised(case.window, decided, labels).values(wanted)[0][:, 0]
    assert found == pytest.approx(slow_metrics(one_hot, decided, scores), abs=1e-12, nan_ok=True)


@pytest.mark.usefixtures("no_replays")
def test_performance_equals_the_expected_values(real_sets: Path) -> None:
    """Of all sets with at most 20 classes, at argmax and at operating points: within 1e-9, AUROC within 1e-3."""
    for name, modes in json.loads((real_sets / "expected_performance.json").read_text()).items():
        with np.load(real_sets / f"{name}.npz") as data:
            source, labels = accepted(data["source_probs"].astype(np.float64)), data["source_labels"].astype(np.int64)
            target, truth = accepted(data["target_probs"].astype(np.float64)), data["target_labels"].astype(np.int64)
        wanted = every_target(source.shape[1])
        for mode, expected in modes.items():
            decision = Decision() if mode == "argmax" else Decision.at(expected["class"], expected["threshold"])
            decided, gauge = decision.decided(target), gauge_of(source, labels, decision.decided(source))
            estimated = gauge.measured_windows(target, decided, columns(gauge, target)[2], np.array([len(target)]))
            for key, confusion in {"estimated": estimated.expected, "true": realised(target, decided, truth)}.items():
                found = dict(zip(wanted, confusion.values(wanted)[0][:, 0].tolist(), strict=True))
                values = expected[key]
                for one, metrics in values["classes"].items():
                    for metric in OF_CLASSES:
                        value = np.nan if metrics[metric] is None else metrics[metric]
                        where = (name, mode, key, one, metric)
                        assert found[Target(metric, int(one))] == pytest.approx(value, abs=1e-9, nan_ok=True), where
                assert found[Target(Metric.F1)] == pytest.approx(values["macro_f1"], abs=1e-9), (name, mode, key)
                if "auroc" in values:
                    assert found[Target(Metric.AUROC)] == pytest.approx(values["auroc"], abs=1e-3), (name, mode, key)


@pytest.mark.usefixtures("no_replays")
def test_a_reference_reads_negative_zeros_as_zeros() -> None:
    """Their bits do not ascend."""
    vectors = accepted(np.random.default_rng(1).multinomial(3, np.full(5, 0.2), 40).astype(np.float64))
    labels = np.argmax(vectors, axis=1)
    mixed = np.where((vectors == 0.0) & (np.arange(5) % 2 == 0), np.float32(-0.0), vectors)
    plain, signed = (gauge_of(some, labels) for some in (vectors, mixed))
    for window in (vectors, mixed, synthetic(50, 5, seed=4)[0]):
        found = [windows_of(gauge, window, [len(window)]).expected.cases for gauge in (plain, signed)]
        assert same(*found)


@pytest.mark.parametrize("classes", [2, 10, 40, 300])
def test_a_window_estimates_the_same_alone_and_among_others(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, and whatever the blocks in which its records are measured."""
    gauge = gauge_of(*synthetic(1200, classes, seed=1))
    vectors, lengths = synthetic(1000, classes, seed=2)[0], [1, 30, 200, 69, 0, 700]
    together = windows_of(gauge, vectors, lengths)
    monkeypatch.setattr(performance, "_BLOCK_ELEMENTS", 7 * classes)
    start = 0
    for index, length in enumerate(lengths):
        alone = windows_of(gauge, vectors[start : start + length], [length])
        start += length
        for one in (alone, together.at(index)):
            for many, few in ((together.estimates(), one.estimates()), (together.class_mix(), one.class_mix())):
                for column in ("value", "lower", "upper"):
                    assert same(getattr(few, column)[:, 0], getattr(many, column)[:, index]), (index, column)
        assert same(alone.estimates().cases[:, 0], together.estimates().cases[:, index])


def test_a_small_reference_cannot_say() -> None:
    """Without replays there are neither errors by chance nor values; no interval has unknown ends."""
    for records in (1, 2, 20, 50):
        vectors, labels = synthetic(records, 3, seed=records)
        measured = windows_of(gauge_of(vectors, labels), synthetic(500, 3, seed=3)[0], [500])
        assert {one.why for one in measured.estimates().window(0)} == {Why.TOO_FEW_CASES}
        assert measured.class_mix().window(0) == (None, None, None)


def test_a_macro_average_of_a_rare_class_has_few_cases() -> None:
    """As many as a share of the same standard error."""
    confusion = Confusion(
        np.array([202]), np.array([[2.0], [200.0]]), np.array([[1.0], [190.0]]), np.array([[11], [191]])
    )
    (value,), (cases,) = confusion.values([Target(Metric.SENSITIVITY)])
    assert value == pytest.approx((1 / 2 + 190 / 200) / 2)
    assert 1 / cases == pytest.approx((1 / 2 + 1 / 200) / 4)


def test_a_class_without_others_has_no_specificity() -> None:
    """Rounding in fixed point leaves a little more than no others."""
    many = 100_000
    confusion = Confusion(
        np.array([many]), np.array([[many - 1e-7], [1e-7]]), np.array([[many - 1e-7], [0.0]]), np.array([[many], [0]])
    )
    wanted = [Target(Metric.SPECIFICITY, 0), Target(Metric.SPECIFICITY, 1), Target(Metric.SPECIFICITY)]
    assert confusion.values(wanted)[0][:, 0] == pytest.approx([np.nan, 1.0, 1.0], nan_ok=True)


def slow_distance(profiles: Floats, mean: Floats) -> float:
    """Return the least squared distance from any mix, over all sets of classes in it."""
    found = []
    for size in range(1, len(profiles) + 1):
        for chosen in itertools.combinations(range(len(profiles)), size):
            some = profiles[:, chosen]
            bordered = np.block([[some.T @ some, np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            shares = np.linalg.lstsq(bordered, np.append(some.T @ mean, 1.0), rcond=None)[0][:size]
            if np.all(shares >= -1e-10):
                found.append(float(np.sum((some @ shares - mean) ** 2)))
    return min(found)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1 << 32), classes=st.integers(1, 6), style=st.sampled_from(["any", "twins", "mixture", "sure"])
)
def test_the_class_mix_is_the_nearest(seed: int, classes: int, style: str) -> None:
    """Also if some classes have the same profile, or that of a mix of others."""
    random = np.random.default_rng(seed)
    profiles = random.dirichlet(np.full(classes, 0.5), classes).T
    if style == "twins":
        profiles[:, -1] = profiles[:, 0]
    elif style == "mixture":
        profiles[:, -1] = profiles.mean(axis=1)
    elif style == "sure":
        profiles = np.eye(classes)
    means = random.dirichlet(np.full(classes, 0.3), 4).T
    mixes = MixSolver(profiles, np.ones(classes, dtype=np.bool_)).solve(means)
    assert np.all(mixes >= 0.0)
    assert mixes.sum(axis=0) == pytest.approx(np.ones(4))
    for mix, mean in zip(mixes.T, means.T, strict=True):
        assert np.sum((profiles @ mix - mean) ** 2) == pytest.approx(slow_distance(profiles, mean), abs=1e-9)


def test_the_class_mix_of_a_mixture_of_the_reference_is_exact() -> None:
    vectors, labels = synthetic(1500, 4, seed=5)
    gauge = gauge_of(vectors, labels)
    some = np.concatenate([np.flatnonzero(labels == one)[: 20 * (one + 1)] for one in range(4)])
    profiles = gauge.reference.profiles
    share = np.array([0.1, 0.2, 0.3, 0.4])
    assert gauge.reference.mixes.solve((profiles @ share)[:, None])[:, 0] == pytest.approx(share, abs=1e-9)
    found = windows_of(gauge, vectors[some], [len(some)]).class_mix()
    assert np.all((found.lower[:, 0] <= share) & (share <= found.upper[:, 0]))
