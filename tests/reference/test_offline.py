"""Metrics beyond accuracy of the offline API, against the daemon's totals, labels, and values of an independent program."""

import json
from pathlib import Path

import numpy as np
import pytest

from monitor import Reference, UsageError, estimate
from monitor.core.estimate import Why
from monitor.core.performance import Metric, Target, targets
from monitor.core.record_columns import Records
from monitor.core.totals import Gauge, totals_of
from monitor.records.offline_files import accept_array
from monitor.records.record_schema import OutputKind
from monitor.reference.offline import evaluate
from tests.strategies import accepted, synthetic


@pytest.mark.parametrize(
    ("classes", "decide"), [(3, "argmax"), (2, "1=0.3"), (2, "field")], ids=["argmax", "threshold", "field"]
)
def test_metrics_equal_those_of_the_daemons_totals(classes: int, decide: str) -> None:
    """Also of a window of several blocks."""
    probabilities, labels = synthetic(1000, classes, seed=1)
    window, named = synthetic(40_000, classes, seed=2)
    by_records = decide == "field"
    reference = Reference.calibrate(probabilities, labels, model="m", decide=labels if by_records else decide)
    found = estimate(reference, window, decided=named if by_records else None)
    gauge = Gauge(reference.calibration, targets(classes))
    vectors = accept_array(window, kind=OutputKind.PROBS, classes=reference.classes).records.vectors
    measured = totals_of(gauge, vectors, named if by_records else None).performance()
    assert measured is not None
    assert found.performance == measured.estimates().window(0)
    for one, other in zip(found.class_mix, measured.class_mix().window(0), strict=True):
        assert one is not None
        assert other is not None
        assert one.value == pytest.approx(other.value, abs=1e-6)


def test_too_few_records_have_no_metrics() -> None:
    reference = Reference.calibrate(*synthetic(300, 3, seed=1), model="m")
    found = estimate(reference, synthetic(100, 3, seed=2)[0])
    assert (found.performance, found.class_mix) == ((), ())


def test_of_many_classes_the_watched_ones_and_averages() -> None:
    reference = Reference.calibrate(*synthetic(2000, 25, seed=1), model="m")
    window = synthetic(500, 25, seed=2)[0]
    assert {one.target.of_class for one in estimate(reference, window).performance} == {None}
    found = estimate(reference, window, watch_classes=["7"])
    assert {one.target.of_class for one in found.performance} == {7, None}
    assert len(found.class_mix) == 25
    with pytest.raises(UsageError, match=r"watch_classes: expected one of the classes 0, .*, found 'seven'"):
        estimate(reference, window, watch_classes=["seven"])


def test_a_class_that_is_rare_cannot_be_said() -> None:
    """And an absent one has no share in the class mix; nothing is NaN."""
    probabilities, labels = synthetic(1000, 3, seed=1)
    keep = labels != 2
    reference = Reference.calibrate(probabilities[keep], labels[keep], model="m", classes=("a", "b", "c"))
    found = estimate(reference, synthetic(500, 3, seed=2)[0])
    of = {one.target: one for one in found.performance}
    rare = of[Target(Metric.SENSITIVITY, 2)]
    assert (rare.value, rare.interval, rare.why) == (None, None, Why.TOO_FEW_CASES)
    assert of[Target(Metric.SENSITIVITY, 0)].why is None
    assert [share is None for share in found.class_mix] == [False, False, True]


@pytest.mark.slow
def test_metrics_equal_the_expected_values(real_sets: Path) -> None:
    """Of every set of at most 20 classes, at argmax: estimates and realised values."""
    said = 0
    for name, found in json.loads((real_sets / "expected_performance.json").read_text()).items():
        with np.load(real_sets / f"{name}.npz") as data:
            source, target = (
                Records(accepted(vectors.astype(np.float64)), np.zeros(len(labels)), labels=labels.astype(np.int64))
                for vectors, labels in (
                    (data["source_probs"], data["source_labels"]),
                    (data["target_probs"], data["target_labels"]),
                )
            )
        expected, classes = found["argmax"], source.vectors.shape[1]
        one = evaluate(source, target, {}, classes=tuple(map(str, range(classes))))
        for (metric, of_class), compared in one.performance.items():
            if of_class is None:
                continue
            estimated, true = (expected[kind]["classes"][str(of_class)][metric.value] for kind in ("estimated", "true"))
            assert compared.realised == (None if true is None else pytest.approx(true, abs=1e-12)), name
            if compared.value is not None:
                said += 1
                assert compared.value == pytest.approx(estimated, abs=1e-9), (name, metric, of_class)
        auroc = one.performance.get(Target(Metric.AUROC))
        if auroc is not None and auroc.value is not None:
            assert auroc.value == pytest.approx(expected["estimated"]["auroc"], abs=1e-3), name
    assert said > 400
