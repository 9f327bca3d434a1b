"""Every estimator on outputs of real models, against values of an independent program."""

import json
from pathlib import Path

import numpy as np
import pytest

from monitor.core.decisions import Decision
from monitor.core.estimators.ensemble import (
    by_confidence,
    calibrate_all,
    estimate_forms,
    measure,
    weight_of,
    with_variants,
)
from monitor.core.intervals import field_intervals
from monitor.core.performance import OF_CLASSES, Metric, PerformanceGauge, Target
from monitor.core.performance_calibration import calibrate_performance
from monitor.core.scores import in_blocks, label_outputs
from tests.strategies import accepted, named_values

SETS = (
    "20news_cleanlab_comp_groups",
    "acs_employment_MA_2015_to_2018",
    "acs_employment_MA_prime_age_to_young_and_old",
    "breakhis400_new_patients_8subtypes",
    "breakhis400_new_patients_binary",
    "california_housing_ref_to_analysis",
    "cifar10_cleanlab_animals_only",
    "cifar10_cleanlab_noshift",
    "cifar10_to_cifar101v6_votes_all30",
    "cifar10_to_cifar101v6_votes_weak6",
    "cifar10_vgg_hard_classes90",
    "heart_cleveland_to_hungarian",
    "heart_cleveland_to_switzerland",
    "imagenet_to_imagenetv2mf_votes_weak4",
    "imagenet_to_imagenetv2top_votes_all65",
    "langid_long_to_short",
    "magika_files_new_repositories",
    "magika_fragments_200bytes",
    "mammo_nyu_14readers_L_to_R",
    "mammo_nyu_gmic_top5_prevalence30",
    "mammo_nyu_gmic_top5_readerhard",
    "mnist_cleanlab_noshift",
    "nannyml_synthetic_car_loan",
    "nannyml_synthetic_multiclass",
    "pneumoniamnist_val_to_test",
)


def test_all_real_sets_are_listed(real_sets: Path) -> None:
    assert tuple(sorted(json.loads((real_sets / "expected.json").read_text()))) == tuple(sorted(SETS))


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_estimates_equal_the_expected_values(real_sets: Path, name: str) -> None:
    """Raw values within 1e-9; T within 1e-5; scaled values within 1e-9 at the expected temperature."""
    expected = json.loads((real_sets / "expected.json").read_text())[name]
    with np.load(real_sets / f"{name}.npz") as data:
        source, labels = accepted(data["source_probs"].astype(np.float64)), data["source_labels"].astype(np.int64)
        target, truth = accepted(data["target_probs"].astype(np.float64)), data["target_labels"]
    assert label_outputs(source, labels).temperature == pytest.approx(expected["temperature"], rel=1e-5)

    reference = label_outputs(source, labels, expected["temperature"])
    ready = with_variants(calibrate_all(reference))
    windows = measure(ready, lambda: in_blocks(target, expected["temperature"]))
    weight = weight_of(*by_confidence(reference), reference.correct)
    found = named_values(estimate_forms(ready, windows), weight) | {
        "source_accuracy": reference.accuracy,
        "true_target_accuracy": float(np.mean(np.argmax(target, axis=1) == truth)),
    }
    wanted = {key: value for key, value in expected.items() if key != "temperature"}
    assert {key: found[key] for key in wanted} == pytest.approx(wanted, abs=1e-9, rel=0)

    assert (
        json.loads((real_sets / "expected_adaptive.json").read_text())[name]["temperature"] == expected["temperature"]
    )
    expected = json.loads((real_sets / "expected_adaptive.json").read_text())[name]
    field = field_intervals(np.array([found["adaptive"]]), reference.accuracy, np.array([found["disagreement"]]))
    assert [weight, found["adaptive"], *field.ravel()] == pytest.approx(
        [
            expected["adaptive.weight"],
            expected["adaptive"],
            *expected["adaptive.shift80"],
            *expected["adaptive.shift90"],
        ],
        abs=1e-9,
        rel=0,
    )


def test_operating_points_equal_the_expected_values(real_sets: Path) -> None:
    """The accuracy of the decisions, and who is decided as what, of every binary set."""
    points = {
        name: found["operating_point"]
        for name, found in json.loads((real_sets / "expected_performance.json").read_text()).items()
        if "operating_point" in found
    }
    assert points
    for name, expected in points.items():
        with np.load(real_sets / f"{name}.npz") as data:
            target, truth = accepted(data["target_probs"].astype(np.float64)), data["target_labels"].astype(np.int64)
        chosen = expected["class"]
        labelled = label_outputs(target, truth, 1.0, Decision.at(chosen, expected["threshold"]).column(target))
        found = {"accuracy": labelled.accuracy, "sensitivity": float(labelled.correct[truth == chosen].mean())}
        wanted = {
            "accuracy": expected["true"]["accuracy"],
            "sensitivity": expected["true"]["classes"][str(chosen)]["sensitivity"],
        }
        assert found == pytest.approx(wanted, abs=1e-12), name


FEW_CLASSES = [name for name in SETS if not name.startswith(("imagenet", "langid", "magika"))]
"""The sets with expected performance."""


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW_CLASSES)
def test_performance_equals_the_expected_values(real_sets: Path, name: str) -> None:
    """At argmax, and at the operating point that catches 90% of the positives; AUROC within the width of its cells."""
    expected = json.loads((real_sets / "expected_performance.json").read_text())[name]
    with np.load(real_sets / f"{name}.npz") as data:
        source, labels = accepted(data["source_probs"].astype(np.float64)), data["source_labels"].astype(np.int64)
        target = accepted(data["target_probs"].astype(np.float64))
    for point, wanted in expected.items():
        decision = Decision() if point == "argmax" else Decision.at(wanted["class"], wanted["threshold"])
        labelled = label_outputs(source, labels, 1.0, decision.column(source))
        gauge = PerformanceGauge(calibrate_performance(labelled, 0.95, lambda _share: None), labelled.temperature)
        # Denominators matter to the class mix only.
        some = target, decision.decided(target), np.ones(len(target)), np.array([len(target)])
        found = gauge.measured_windows(*some).expected
        values = {
            (metric, of_class): float(found.values([Target(metric, of_class)])[0][0, 0])
            for metric in OF_CLASSES
            for of_class in (*range(target.shape[1]), None)
        }
        estimated = wanted["estimated"]
        for of_class, metrics in estimated["classes"].items():
            assert found.cases[int(of_class), 0] / len(target) == pytest.approx(metrics["prevalence"], abs=1e-9)
            for metric in OF_CLASSES:
                if metrics[metric] is not None:
                    assert values[metric, int(of_class)] == pytest.approx(metrics[metric], abs=1e-9), (point, of_class)
        assert values[Metric.F1, None] == pytest.approx(estimated["macro_f1"], abs=1e-9)
        if "auroc" in estimated:
            assert found.auroc is not None
            assert float(found.auroc[0]) == pytest.approx(estimated["auroc"], abs=1e-3)
