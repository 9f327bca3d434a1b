"""Audited accuracy against a plain oracle, and on real sets."""

import math
from dataclasses import fields
from pathlib import Path
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.audit import audits
from monitor.core.estimate import share_interval
from monitor.core.labels.audit import AuditSums, audited, prediction_powered
from monitor.core.recent_ids import NO_ID

Sample = list[tuple[bool, float]]
"""Audited and labelled records: whether right, and confidence."""
Window = tuple[Sample, list[float]]
"""The sample, and the confidences of the other records."""

# Those that differ by less do not vary.
CONFIDENCES = st.one_of(st.integers(0, 1000).map(lambda one: one / 1000), st.sampled_from([0.0, 0.5, 1.0, 0.97]))


def plain(sample: Sample, others: list[float], level: float) -> tuple[float, float, float, bool]:
    """Return value, lower, upper and powered, in two passes."""
    n, labels, confidences = len(sample), [float(right) for right, _ in sample], [one for _, one in sample]
    if not n:
        return math.nan, math.nan, math.nan, False
    right = round(sum(labels))
    if min(right, n - right) < 10:
        return right / n, *share_interval(right, n, level), False
    y, f = fmean(labels), fmean(confidences)
    of_confidences = math.fsum((one - f) ** 2 for one in confidences)
    of_both = math.fsum((a - y) * (b - f) for a, b in zip(labels, confidences, strict=True))
    slope = min(max(of_both / of_confidences, 0.0), 1.0) if len(set(confidences)) > 1 else 0.0
    value = y + slope * (fmean([*confidences, *others]) - f)
    errors = [a - slope * b for a, b in zip(labels, confidences, strict=True)]
    spread = math.fsum((one - fmean(errors)) ** 2 for one in errors)
    variance = (1.0 - n / (n + len(others))) * spread / (n - 2) / n
    reach = NormalDist().inv_cdf((1.0 + level) / 2.0) * math.sqrt(variance)
    return min(max(value, 0.0), 1.0), max(0.0, value - reach), min(1.0, value + reach), True


def sums_of(windows: list[Window]) -> AuditSums:
    """Return the sums of windows, each as of its records."""
    right = [np.array([right for right, _ in sample], dtype=np.float64) for sample, _ in windows]
    confidence = [np.array([one for _, one in sample], dtype=np.float64) for sample, _ in windows]
    return AuditSums(
        labels=np.array([len(one) for one in right]),
        right=np.array([int(one.sum()) for one in right]),
        confidence=np.array([one.sum() for one in confidence]),
        confidence_squared=np.array([one @ one for one in confidence]),
        confidence_right=np.array([one @ two for one, two in zip(right, confidence, strict=True)]),
        records=np.array([len(sample) + len(others) for sample, others in windows]),
        all_confidence=np.array(
            [one.sum() + sum(others) for one, (_, others) in zip(confidence, windows, strict=True)]
        ),
    )


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Draw a window: any, or with enough right and wrong labels; confidences of few or many values, or nearly equal."""
    sample = draw(st.lists(st.tuples(st.booleans(), CONFIDENCES), max_size=30))
    if draw(st.booleans()):
        many = st.lists(CONFIDENCES, min_size=10, max_size=30)
        sample += [(right, one) for right in (True, False) for one in draw(many)]
    if draw(st.booleans()):
        sample = [(right, 0.9 + math.floor(10 * one) * 1e-3) for right, one in sample]
    return sample, draw(st.lists(CONFIDENCES, max_size=40))


@given(st.lists(windows(), min_size=1, max_size=4), st.sampled_from([0.8, 0.95, 0.99]))
@example([([], []), ([(True, 0.5)], [])], 0.95)
@example([([(i % 2 == 0, 0.97) for i in range(40)], [0.1, 0.2])], 0.95)
def test_the_audited_accuracy_is_that_of_a_plain_computation(some: list[Window], level: float) -> None:
    """In two passes, one window after the other; all windows together give the same."""
    found = prediction_powered(sums_of(some), level)
    wanted = [plain(*one, level) for one in some]
    for column, values in zip(found, zip(*wanted, strict=True), strict=True):
        assert column.tolist() == pytest.approx(list(values), abs=1e-9, nan_ok=True)
    columns = (getattr(sums_of(some), one.name)[None] for one in fields(AuditSums))
    assert prediction_powered(AuditSums(*columns), level).value[0].tolist() == pytest.approx(found.value, nan_ok=True)
    assert not (found.lower > found.value + 1e-12).any()
    assert not (found.upper < found.value - 1e-12).any()


def test_with_every_record_labelled_nothing_is_left_to_chance() -> None:
    sample = [(i % 3 > 0, 0.5 + i % 7 / 20) for i in range(90)]
    found = prediction_powered(sums_of([(sample, [])]))
    assert (found.value[0], found.lower[0], found.upper[0]) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_confidences_that_tell_right_from_wrong_make_the_interval_narrower() -> None:
    sample = [(i % 4 > 0, 0.9 if i % 4 > 0 else 0.3) for i in range(100)]
    useless = [(right, 0.7) for right, _ in sample]
    found = prediction_powered(sums_of([(sample, [0.75] * 900), (useless, [0.75] * 900)]))
    width = found.upper - found.lower
    assert width[0] < 0.5 * width[1]
    assert found.value[1] == 0.75


@pytest.mark.parametrize("share", [0.0, 2.0**-64, 0.02, 0.1, 1 / 3, 0.5, 1.0 - 2.0**-53, 1.0])
def test_the_audit_takes_exactly_the_hashes_below_the_share(share: float) -> None:
    limit = share * 2**64
    edges = {1, 2, math.floor(limit) - 1, math.floor(limit), math.ceil(limit), math.ceil(limit) + 1, 2**63, 2**64 - 1}
    hashes = [one for one in sorted(edges) if 0 < one < 2**64]
    found = audited(np.array(hashes, dtype=np.uint64), share)
    # Whole numbers and fractions are compared exactly in Python.
    assert found.tolist() == [one < limit for one in hashes]


def test_a_record_without_an_id_is_not_audited() -> None:
    assert not audited(np.array([NO_ID], dtype=np.uint64), 1.0).any()


@pytest.mark.parametrize(
    ("name", "off_by"),
    [
        pytest.param("heart_cleveland_to_switzerland", 0.5, id="estimates are off by 60 points"),
        pytest.param("breakhis400_new_patients_8subtypes", 0.2, id="estimates are off by 24 points"),
        pytest.param("pneumoniamnist_val_to_test", 0.08, id="estimates are off by 9 points"),
    ],
)
def test_the_interval_holds_under_a_real_shift(real_sets: Path, name: str, off_by: float) -> None:
    """All sets, 500 times each: `python -m benchmarks.audit`."""
    for row in audits(real_sets / f"{name}.npz", repetitions=200):
        assert abs(row.headline - row.accuracy) > off_by
        # At least 92% in the long run; 200 times are within three points of that.
        assert row.covered >= 0.89, row
        assert row.width <= row.alone + 1e-12, row
