"""The change detector: values of an independent program, and an oracle that takes one record after another."""

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from monitor.core.calibration import Calibration
from monitor.core.change import BETS, MEMBERS, ChangeEvidence, Detector, EvidenceTable
from monitor.core.estimators.ensemble import by_confidence, calibrate_all, weight_of
from monitor.core.scores import label_outputs
from monitor.core.totals import Gauge, member_values
from tests.strategies import accepted


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
    detector = Detector(tolerance=tolerance)
    means = np.full((1, len(MEMBERS)), gauge.members.accuracy - tolerance)
    table = EvidenceTable(gauge.members, [detector], lambda _: means)
    row, found, evidence = table.row("all", 0.0), [], ChangeEvidence(1)
    evidence.select(["all"])
    for start in range(0, values.shape[1], every):
        some = values[:, start : start + every]
        table.add(some, np.zeros(1, dtype=np.int64), np.full((1, 1), row), np.ones((1, 1), dtype=np.bool_))
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


def test_sizes_of_bets() -> None:
    assert BETS[0] == pytest.approx(0.02)
    assert BETS[-1] == pytest.approx(0.9)
