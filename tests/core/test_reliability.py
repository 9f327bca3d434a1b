"""The reliability bins of a reference, and the calibration error computed from them."""

import pytest
from hypothesis import given

from monitor.core.scores import LabelledOutputs, label_outputs
from monitor.reference.summary import ReliabilityBin, summarise
from tests.strategies import Case, cases


def _counted(labelled: LabelledOutputs, *, scaled: bool) -> list[tuple[int, int, float]]:
    """Count per record, without arrays: records, correct ones, and mean confidence."""
    members: list[list[tuple[float, bool]]] = [[] for _ in range(15)]
    confidences = labelled.scores(scaled=scaled).confidence.tolist()
    for confidence, right in zip(confidences, labelled.correct.tolist(), strict=True):
        members[min(int(confidence * 15), 14)].append((confidence, right))
    return [
        (len(bin_), sum(right for _, right in bin_), sum(c for c, _ in bin_) / len(bin_) if bin_ else 0.0)
        for bin_ in members
    ]


def _are_as_counted(bins: tuple[ReliabilityBin, ...], labelled: LabelledOutputs, *, scaled: bool) -> bool:
    counted = _counted(labelled, scaled=scaled)
    assert [(one.records, one.right) for one in bins] == [(records, right) for records, right, _ in counted]
    return [one.confidence for one in bins] == pytest.approx([mean for _, _, mean in counted], abs=1e-12)


@given(cases())
def test_bins_equal_a_plain_count(case: Case) -> None:
    """Raw and scaled; from one record on."""
    labelled = label_outputs(case.reference, case.labels)
    summary = summarise(labelled)
    assert _are_as_counted(summary.reliability, labelled, scaled=False)
    assert _are_as_counted(summary.reliability_scaled, labelled, scaled=True)


@given(cases())
def test_the_calibration_error_follows_from_the_bins(case: Case) -> None:
    """The gap between confidence and accuracy of each bin, weighted by its records."""
    summary = summarise(label_outputs(case.reference, case.labels))
    for bins, error in (
        (summary.reliability, summary.calibration_error),
        (summary.reliability_scaled, summary.calibration_error_scaled),
    ):
        gaps = [
            one.records / summary.records * abs(one.confidence - one.right / one.records) for one in bins if one.records
        ]
        assert sum(gaps) == pytest.approx(error, abs=1e-12)


@given(cases())
def test_every_record_is_in_exactly_one_bin(case: Case) -> None:
    """Also if every confidence is 1."""
    summary = summarise(label_outputs(case.reference, case.labels))
    for bins in (summary.reliability, summary.reliability_scaled):
        assert len(bins) == 15
        assert sum(one.records for one in bins) == summary.records
        assert sum(one.right for one in bins) == sum(summary.class_right)
        assert all(0.0 <= one.confidence <= 1.0 for one in bins)
