"""Properties of estimators on any data."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from monitor.core.calibration import calibrate
from monitor.core.estimate import Estimate, NoEstimate, PredictionSets, Why
from monitor.core.estimators import ESTIMATORS, Member
from monitor.core.estimators.ensemble import calibrate_all, estimate_forms, measure, results_of
from monitor.core.scores import Scores, in_blocks, label_outputs, outputs, scale
from monitor.testing.oracle import check_estimator
from tests.strategies import Case, cases, named_values, synthetic


@pytest.mark.parametrize("member", ESTIMATORS, ids=lambda member: member.name)
@settings(max_examples=40)
@given(case=cases())
def test_every_estimator_passes_the_shared_checks(member: Member, case: Case) -> None:
    """Sizes 0, 1, 2 and full; within 0 and 1; any order; read-only input; the reference accuracy where promised."""
    check_estimator(member, case.reference, case.labels)


@pytest.mark.parametrize("member", ESTIMATORS, ids=lambda member: member.name)
@pytest.mark.parametrize("truth", ["perfect", "hopeless", "one class"])
def test_every_estimator_survives_extreme_references(member: Member, truth: str) -> None:
    """All right, all wrong, and a single class, with 1000 classes."""
    probabilities, _ = synthetic(30, 1000, seed=1)
    predicted = np.argmax(probabilities, axis=1)
    labels = {"perfect": predicted, "hopeless": (predicted + 1) % 1000, "one class": np.zeros(30, dtype=np.int64)}[
        truth
    ]
    check_estimator(member, probabilities, labels)


@settings(max_examples=40)
@given(cases())
def test_members_return_the_reference_accuracy_on_the_reference(case: Case) -> None:
    """doc, both ATC, both anchored and calibrated confidence, and so their combinations, with or without ties."""
    reference = label_outputs(case.reference, case.labels)
    ready = calibrate_all(reference)
    windows = measure(ready, lambda: in_blocks(case.reference, reference.temperature))
    found = named_values(estimate_forms(ready, windows), weight=0.4)
    promised = ["doc", "atc_mc", "atc_ne", "cpc_acc_anchored", "cpc_ac_anchored", "calibrated_confidence"]
    for name in [*promised, *(f"{name}_ts" for name in promised)]:
        assert found[name] == pytest.approx(reference.accuracy, abs=1e-12)
    assert found["consensus"] == pytest.approx(reference.accuracy, abs=1e-12)
    assert found["adaptive"] == pytest.approx(reference.accuracy, abs=1e-12)
    assert found["disagreement"] == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 1.0, 2.0]))
def test_two_classes_make_both_atc_equal(seed: int, sharpness: float) -> None:
    """For K = 2 confidence and entropy have the same order, where confidence does not saturate."""
    probabilities, labels = synthetic(60, 2, seed=seed, sharpness=sharpness)
    window, _ = synthetic(40, 2, seed=seed + 1, sharpness=0.7)
    reference = label_outputs(probabilities, labels)
    if np.max(reference.outputs.scaled.comparable) == 1.0:
        return
    results = results_of(calibrate_all(reference), lambda: in_blocks(window, reference.temperature))
    assert results["atc_mc"] == results["atc_ne"]
    assert results["atc_mc_ts"] == results["atc_ne_ts"]


@given(st.integers(0, 10_000), st.integers(2, 20), st.floats(0.2, 5.0))
def test_scaling_from_probabilities_equals_scaling_from_logits(seed: int, classes: int, temperature: float) -> None:
    """softmax(log p / T) is softmax(logits / T): no logits are needed."""
    logits = np.random.default_rng(seed).normal(size=(classes, 30)) * 3.0
    np.testing.assert_allclose(
        scale(softmax(logits, axis=0), temperature), softmax(logits / temperature, axis=0), rtol=1e-9, atol=1e-15
    )


@settings(max_examples=40)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(case: Case, random: Random) -> None:
    """Up to the last bits of a sum."""
    order = np.array(random.sample(range(len(case.labels)), len(case.labels)))
    temperature = label_outputs(case.reference, case.labels).temperature
    one = label_outputs(case.reference, case.labels, temperature)
    other = label_outputs(case.reference[order], case.labels[order], temperature)
    first = results_of(calibrate_all(one), lambda: in_blocks(case.window, temperature))
    second = results_of(calibrate_all(other), lambda: in_blocks(np.ascontiguousarray(case.window[::-1]), temperature))
    for name, result in first.items():
        again = second[name]
        assert isinstance(result, Estimate) == isinstance(again, Estimate)
        if isinstance(result, Estimate) and isinstance(again, Estimate):
            assert result.accuracy == pytest.approx(again.accuracy, abs=1e-12)


def test_an_empty_window_has_a_reason_instead_of_an_estimate() -> None:
    probabilities, labels = synthetic(40, 3, seed=1)
    window = calibrate(label_outputs(probabilities, labels)).estimate(probabilities[:0])
    assert set(window.estimators.values()) == {NoEstimate(Why.TOO_FEW_RECORDS, 0, minimum_records=1)}
    assert window.disagreement is None


def test_skip_without_sets_has_a_reason_instead_of_an_estimate() -> None:
    """Under `skip`, when all sets are empty."""
    sure = np.tile(np.array([[0.99, 0.01]], dtype=np.float32), (10, 1))
    unsure = np.full((5, 2), 0.5, dtype=np.float32)
    calibration = calibrate(label_outputs(sure, np.zeros(10, dtype=np.int64)))
    assert calibration.estimate(unsure, {"cpc_acc": "skip"})["cpc_acc"] == NoEstimate(
        Why.ALL_SETS_EMPTY, 5, PredictionSets(0.0, 1.0)
    )
    assert isinstance(calibration.estimate(unsure)["cpc_acc"], Estimate)


def test_absolute_doc_never_falls_below_the_reference_accuracy() -> None:
    """So it is not the default."""
    probabilities, labels = synthetic(400, 4, seed=1)
    unsure, _ = synthetic(400, 4, seed=2, sharpness=0.3)
    calibration = calibrate(label_outputs(probabilities, labels))
    signed, absolute = (calibration.estimate(unsure, chosen)["doc"] for chosen in ({}, {"doc": "absolute"}))
    assert isinstance(signed, Estimate)
    assert isinstance(absolute, Estimate)
    assert signed.accuracy < calibration.accuracy < absolute.accuracy


def test_a_record_scores_the_same_alone_and_among_others() -> None:
    """So that windows can add and remove records exactly."""
    probabilities, _ = synthetic(500, 7, seed=9)
    together = outputs(probabilities, 1.7)
    for row in (0, 123, 499):
        alone = outputs(probabilities[row : row + 1], 1.7)
        for stream in ("raw", "scaled"):
            one, many = getattr(alone, stream), getattr(together, stream)
            assert one.confidence[0] == many.confidence[row]
            assert one.negative_entropy[0] == many.negative_entropy[row]
            assert one.sets_at(np.float32(0.1)).mean_score[0] == many.sets_at(np.float32(0.1)).mean_score[row]


@pytest.mark.parametrize(("records", "classes"), [(1, 1000), (2, 1000), (65, 1000), (300, 100), (500, 3)])
def test_scores_that_are_derived_together_equal_those_derived_alone(records: int, classes: int) -> None:
    """To the last bit, and whether few or many classes are in a conformal set."""
    probabilities, _ = synthetic(records, classes, seed=records, sharpness=4.0)
    probabilities[0, -1] = 0.0
    together = outputs(probabilities, 1.7)
    raw = np.ascontiguousarray(probabilities.T, dtype=np.float64)
    for found, wanted in ((together.raw, Scores(raw)), (together.scaled, Scores(scale(raw, 1.7)))):
        np.testing.assert_array_equal(found.probabilities, wanted.probabilities)
        np.testing.assert_array_equal(found.confidence, wanted.confidence)
        np.testing.assert_array_equal(found.negative_entropy, wanted.negative_entropy)
        for threshold in (0.0, 1e-4, 0.01, 0.3, 0.9, 1.0):
            inside = wanted.comparable >= np.float32(threshold)
            size = np.count_nonzero(inside, axis=0)
            sets = found.sets_at(np.float32(threshold))
            np.testing.assert_array_equal(sets.size, size)
            np.testing.assert_array_equal(sets.empty, size == 0)
            mean = np.add.reduce(wanted.probabilities * inside, axis=0) / np.maximum(size, 1)
            np.testing.assert_array_equal(sets.mean_score, mean)
