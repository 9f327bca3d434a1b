"""Every estimator against the slow, independently written oracle, on generated data."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.calibration import calibrate
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimators.ensemble import (
    by_confidence,
    calibrate_all,
    estimate_forms,
    measure,
    weight_of,
    with_variants,
)
from monitor.core.performance import Metric
from monitor.core.scores import in_blocks, label_outputs
from monitor.core.totals import Gauge, totals_of
from monitor.testing.oracle import Oracle, oracle_temperature
from tests.strategies import Case, cases, named_values, synthetic

pytestmark = pytest.mark.slow


def compare(case: Case, decision: Decision | None = None) -> None:
    """Compare both at the fitted temperature."""
    decision = decision or Decision()
    # By record: classes that have nothing to do with the probabilities.
    own, seen = (np.arange(len(some)) * 7 % some.shape[1] for some in (case.reference, case.window))
    reference = label_outputs(case.reference, case.labels, None, decision.column(case.reference, own))
    ready = with_variants(calibrate_all(reference))
    decided = decision.column(case.window, seen)
    windows = measure(ready, lambda: in_blocks(case.window, reference.temperature, decided))
    at = (decision.index, decision.threshold) if decision.by is DecidedBy.THRESHOLD else None
    named, of_window = (own.tolist(), seen.tolist()) if decision.by is DecidedBy.FIELD else (None, None)
    oracle = Oracle(case.reference.tolist(), case.labels.tolist(), reference.temperature, at, named)
    wanted = oracle.estimates(case.window.tolist(), of_window)
    found = named_values(estimate_forms(ready, windows), weight_of(*by_confidence(reference), reference.correct))
    # A CPC form shares its set sizes with its variants and its anchored form; the oracle names them once.
    assert {key: found.get(key) for key in wanted} == pytest.approx(wanted, abs=1e-9, rel=0)


@given(cases())
def test_small_cases_with_ties_and_saturation_equal_the_oracle(case: Case) -> None:
    """Also zeros, uniform outputs, and references that are all right or all wrong; sizes from 1."""
    compare(case)


@given(cases(), st.sampled_from([0.25, 0.5, 1.0, 1e-9, 0.13]))
def test_what_the_device_decides_equals_the_oracle(case: Case, threshold: float) -> None:
    """At a threshold, also one that scores tie with, and by the record itself."""
    if case.reference.shape[1] == 2:
        compare(case, Decision.at(len(case.window) % 2, threshold))
    compare(case, Decision(DecidedBy.FIELD))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 12))
def test_continuous_cases_equal_the_oracle(seed: int, classes: int) -> None:
    """Fifty records of a calibrated model, forty of a less confident one."""
    reference, labels = synthetic(50, classes, seed=seed)
    window, _ = synthetic(40, classes, seed=seed + 1, sharpness=1.0)
    compare(Case(reference, labels, window))


@pytest.mark.parametrize(
    ("classes", "decision"),
    [(2, Decision()), (2, Decision.at(1, 0.13)), (2, Decision(DecidedBy.FIELD)), (4, Decision())],
)
def test_performance_equals_the_oracle(classes: int, decision: Decision) -> None:
    """Every metric and the class mix of running totals; AUROC within the width of its cells. A class may be absent."""
    for seed in range(4):
        reference, labels = synthetic(150, classes, seed=seed)
        window, _ = synthetic(90, classes, seed=seed + 50, sharpness=1.0)
        if classes > 2:
            reference, labels = reference[labels != 1], labels[labels != 1]
        own, seen = (np.arange(len(some)) * 7 % classes for some in (reference, window))
        calibration = calibrate(
            label_outputs(reference, labels, None, decision.column(reference, own)), decision=decision
        )
        at = (decision.index, decision.threshold) if decision.by is DecidedBy.THRESHOLD else None
        named, of_window = (own.tolist(), seen.tolist()) if decision.by is DecidedBy.FIELD else (None, None)
        oracle = Oracle(reference.tolist(), labels.tolist(), calibration.temperature, at, named)
        found = totals_of(Gauge(calibration), window.astype(np.float32), seen).performance()
        assert found is not None
        values, _ = found.expected.values(found.targets)
        wanted = oracle.performance(window.tolist(), of_window)
        for target, value in zip(found.targets, values[:, 0].tolist(), strict=True):
            key = str(target.metric), target.of_class
            near = 5e-3 if target.metric is Metric.AUROC else 1e-9
            assert value == pytest.approx(wanted.get(key, np.nan), abs=near, rel=0, nan_ok=True), key
        assert found.mix()[:, 0].tolist() == pytest.approx(oracle.class_mix(window.tolist()), abs=1e-5)


def test_a_thousand_classes_equal_the_oracle() -> None:
    reference, labels = synthetic(30, 1000, seed=3)
    window, _ = synthetic(10, 1000, seed=4, sharpness=1.5)
    compare(Case(reference, labels, window))


def test_windows_larger_than_a_block_equal_the_oracle() -> None:
    """Results must not depend on where blocks end."""
    reference, labels = synthetic(40, 3, seed=5)
    window, _ = synthetic(50_000, 3, seed=6, sharpness=1.0)
    compare(Case(reference, labels, window))


@given(cases(largest=40))
def test_the_temperature_equals_a_plain_search(case: Case) -> None:
    """If the likelihood has a minimum within the range."""
    fitted = label_outputs(case.reference, case.labels).temperature
    searched = oracle_temperature(case.reference.tolist(), case.labels.tolist())
    interior = abs(np.log(searched)) < 3.5
    # At a flat or one-sided likelihood any T is as good; what counts is that the likelihood is no worse.
    if interior:
        loss = [_loss(case, temperature) for temperature in (fitted, searched)]
        assert loss[0] <= loss[1] + 1e-12
    else:
        assert _loss(case, fitted) <= _loss(case, searched) + 1e-9


def _loss(case: Case, temperature: float) -> float:
    logs = np.log(np.maximum(case.reference.astype(np.float64), 1e-12)) / temperature
    top = logs.max(axis=1)
    total = np.log(np.exp(logs - top[:, None]).sum(axis=1)) + top
    return float(np.mean(total - logs[np.arange(len(logs)), case.labels]))
