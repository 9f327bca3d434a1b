"""Labelled baselines: a segment returns its own accuracy up to the shrinkage, and other windows stay as they are."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from math import sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.coverage import class_round, hospital_round
from monitor.core.baselines.labelled_baselines import FEWEST_RECORDS, SegmentBaselines, shrink
from monitor.core.calibration import Calibration, WindowEstimates, calibrate
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators.ensemble import MEMBERS, measure_vectors, side_by_side
from monitor.core.intervals import field_intervals
from monitor.core.record_columns import Records, Texts
from monitor.core.scores import Floats, Integers, Singles, label_outputs
from monitor.core.segments import ALL, Segment
from tests.strategies import hospital

SIZES = {"A": 400, "B": 300, "C": 120, "D": FEWEST_RECORDS - 1, "": 80}
OUTWARD = NormalDist().inv_cdf(0.975)


@cache
def labelled() -> Records:
    """Records of hospitals that differ, one of them small, some of none; each with two scanners."""
    random = np.random.default_rng(3)
    parts = [hospital(random, size, harder=0.3 * i, mistaken=0.1 * i) for i, size in enumerate(SIZES.values())]
    vectors, labels = (np.concatenate(some) for some in zip(*parts, strict=True))
    sites = Texts.of(site for site, size in SIZES.items() for _ in range(size))
    scanners = Texts.of(str(row % 2) for row in range(len(vectors)))
    return Records(vectors, np.zeros(len(vectors)), {"site": sites, "scanner": scanners}, labels=labels)


def rows_of(segment: Segment) -> Integers:
    """Return the rows of a segment."""
    columns = labelled().fields
    return np.flatnonzero(np.all([columns[name].are(value) for name, value in segment], axis=0))


def fitted(records: Records, decision: Decision | None = None) -> Calibration:
    """Return a calibration with baselines by site, and by scanner of a site."""
    assert records.labels is not None
    decided = (decision or Decision()).column(records.vectors, records.decided)
    found = calibrate(label_outputs(records.vectors, records.labels, decided=decided), decision=decision)
    return replace(found, segments=SegmentBaselines.of(found, records, [("site",), ("site", "scanner")]))


@cache
def calibration() -> Calibration:
    return fitted(labelled())


def baselines() -> SegmentBaselines:
    found = calibration().segments
    assert found is not None
    return found


def estimated(windows: Sequence[Singles]) -> WindowEstimates:
    known = calibration()
    measured = [measure_vectors(known.estimators, one, known.temperature) for one in windows]
    return known.estimate_windows(side_by_side(measured))


def by_definition(own: Floats, whole: float, noise: Floats, records: Integers) -> tuple[Floats, Floats]:
    """Return the shrunk values, as means weighted by precision, and what remains unknown of them."""
    m, share = calibration().records, records / calibration().records
    distance, by_chance, between = 0.0, 0.0, 0.0
    for place in range(len(own)):
        distance += (own[place] - whole) ** 2 / noise[place]
        by_chance += records[place] * (1.0 / records[place] - 1.0 / m)
        between += ((1.0 - share[place]) ** 2 + np.delete(share**2, place).sum()) / noise[place]
    tau = (distance - by_chance) / between
    if tau <= 0.0:
        return np.full(len(own), whole), 2.0 / (len(own) - 1) * (own - whole) ** 2
    value = (own / noise + whole / tau) / (1.0 / noise + 1.0 / tau)
    return value, 1.0 / (1.0 / noise + 1.0 / tau) + 2.0 / (len(own) - 1) * (own - value) ** 2


def reach(name: str, records: int) -> tuple[float, float]:
    """Return how far the interval of a window reaches from its centre."""
    tables = calibration().intervals
    centre = 0.5 - tables.errors[name].bias
    (low,), (high,), _ = tables.bounds((name,), np.array([[0.5]]), np.array([records]))
    return float(centre - low[0]), float(high[0] - centre)


@pytest.mark.parametrize("names", [("site",), ("site", "scanner")])
def test_a_segment_returns_its_own_accuracy_up_to_the_shrinkage(names: tuple[str, ...]) -> None:
    """Every estimator, with interval, and the accuracy that it is compared with."""
    known, all_of, records = calibration(), baselines(), labelled()
    segments = [one for one in all_of.segments if tuple(name for name, _ in one) == names]
    assert len(segments) == (3 if len(names) == 1 else 6)
    rows = [rows_of(segment) for segment in segments]
    count, m, labels = np.array([len(some) for some in rows]), known.records, records.labels
    assert labels is not None
    own = np.array([np.mean(records.vectors[some].argmax(axis=1) == labels[some]) for some in rows])
    answers = estimated([records.vectors[some] for some in rows])
    found = all_of.corrected(answers, segments)

    smooth = (known.right + 1) / (m + 2)
    accuracy, _ = by_definition(own, known.accuracy, smooth * (1.0 - smooth) / count, count)
    assert [all_of[one].accuracy for one in segments] == pytest.approx(accuracy.tolist(), abs=1e-9)
    assert ((accuracy - known.accuracy) * (own - known.accuracy) > 0.0).all()

    shrunk = 0
    for row, name in enumerate(answers.names):
        widths = np.array([sum(reach(name, n)) for n in count.tolist()]) / 2.0 / OUTWARD
        noise = widths**2 / (1.0 / count + 1.0 / m) / count
        bias = answers.unclipped[row] - own
        value, left = by_definition(bias, known.intervals.errors[name].bias, noise, count)
        shrunk += bool(np.abs(value - known.intervals.errors[name].bias).max() > 0.001)
        wanted = own + (bias - value)
        if name == CONSENSUS:
            members = [found.accuracy[answers.names.index(member)] for member in MEMBERS]
            wanted = np.quantile(members, 0.25, axis=0)
        np.testing.assert_allclose(found.unclipped[row], wanted, rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.accuracy[row], np.clip(wanted, 0.0, 1.0), rtol=0, atol=1e-9)
        for place, n in enumerate(count.tolist()):
            centre, unknown = float(found.accuracy[row, place]), OUTWARD * sqrt(left[place])
            below, above = (sqrt(one**2 + unknown**2) for one in reach(name, n))
            assert found.lower[row, place] == pytest.approx(max(0.0, centre - below), abs=1e-9)
            assert found.upper[row, place] == pytest.approx(min(1.0, centre + above), abs=1e-9)
    # The hospitals differ, so that most biases are more than that of the whole.
    assert shrunk > 10
    corrected = found.accuracy[[answers.names.index(member) for member in MEMBERS]]
    np.testing.assert_allclose(found.disagreement, np.ptp(corrected, axis=0), rtol=0, atol=1e-12)
    headline = found.accuracy[answers.names.index(ADAPTIVE)]
    np.testing.assert_allclose(found.field, field_intervals(headline, accuracy, found.disagreement), rtol=0, atol=1e-9)


def test_other_windows_stay_as_they_are() -> None:
    """To the bit: all records, a segment that is too small, an unknown one, one of other fields."""
    known, vectors = baselines(), labelled().vectors
    others: list[Segment] = [ALL, (("site", "D"),), (("site", "E"),), (("scanner", "1"),)]
    windows = [vectors[:300], vectors[100:200], vectors[:1], vectors[200:]]
    before = estimated(windows)
    assert known.corrected(before, others) is before
    after = known.corrected(estimated([*windows, vectors[:100]]), [*others, (("site", "A"),)])
    for one in fields(before):
        value = getattr(before, one.name)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(after, one.name)[..., :4], value)
    assert after.accuracy[-1, 4] != estimated([vectors[:100]]).accuracy[-1, 0]


def test_the_order_of_fields_makes_no_difference() -> None:
    known = baselines()
    segment: Segment = (("site", "A"), ("scanner", "1"))
    assert segment in known
    assert known[segment[::-1]].records == known[segment].records == 200
    assert known.places([segment, segment[::-1], (("site", "D"),)]).tolist() == [*[known.places([segment])[0]] * 2, -1]
    assert (("site", "D"),) not in known
    with pytest.raises(KeyError):
        known[ALL]


def test_baselines_count_decisions_and_confidences() -> None:
    known, vectors = baselines(), labelled().vectors
    one, outputs = known[(("site", "B"),)], calibration().outputs
    assert outputs is not None
    rows = rows_of((("site", "B"),))
    assert one.decided.tolist() == np.bincount(vectors[rows].argmax(axis=1), minlength=4).tolist()
    above = [(vectors[rows].max(axis=1) > edge).sum() for edge in outputs.edges]
    assert np.cumsum(one.confidence[::-1])[::-1][1:].tolist() == above
    assert one.confidence.sum() == one.records == len(rows)


def test_totals_still_add_up_over_replicas() -> None:
    """A bias is a constant of the reference: estimators that are means of records stay so."""
    vectors, segment = labelled().vectors, (("site", "C"),)
    whole = baselines().corrected(estimated([vectors[:250]]), [segment])
    parts = baselines().corrected(estimated([vectors[:70], vectors[70:250]]), [segment, segment])
    for row, name in enumerate(whole.names):
        if not name.startswith("cpc_ac") or name.startswith("cpc_acc"):
            together = (parts.unclipped[row] * parts.records).sum()
            if name != CONSENSUS:
                assert together == pytest.approx(whole.unclipped[row, 0] * 250, abs=1e-9), name


def test_baselines_follow_the_decisions_of_the_device() -> None:
    """Every tenth record is decided for the second class."""
    records = labelled()
    decided = np.argsort(-records.vectors, axis=1)[:, 0]
    decided[::10] = np.argsort(-records.vectors, axis=1)[::10, 1]
    found = fitted(replace(records, decided=decided), Decision(DecidedBy.FIELD)).segments
    rows, labels = rows_of((("site", "A"),)), records.labels
    assert found is not None
    assert labels is not None
    assert found[(("site", "A"),)].right == np.count_nonzero(decided[rows] == labels[rows])
    assert found[(("site", "A"),)].decided.tolist() == np.bincount(decided[rows], minlength=4).tolist()


def test_without_enough_records_there_are_no_baselines() -> None:
    records = labelled().taken(np.arange(FEWEST_RECORDS - 1))
    assert SegmentBaselines.of(calibration(), records, [("site",)]) is None
    assert SegmentBaselines.of(calibration(), labelled(), [("ward",)]) is None


def test_shrinkage_has_the_right_limits() -> None:
    """Many records: a segment's own value. Few, or segments alike: that of the whole. One segment that is all: likewise."""
    own, whole, share = np.array([[0.7, 0.8, 0.9]]), np.array([[0.8]]), np.full(3, 1.0 / 3.0)
    np.testing.assert_allclose(shrink(own, whole, np.full((1, 3), 1e-12), share).value, own, atol=1e-9)
    np.testing.assert_array_equal(shrink(own, whole, np.full((1, 3), 0.1), share).value, [[0.8] * 3])
    alike = shrink(np.full((1, 3), 0.8), whole, np.full((1, 3), 1e-4), share)
    np.testing.assert_array_equal(alike.value, [[0.8] * 3])
    np.testing.assert_array_equal(alike.variance, np.zeros((1, 3)))
    only = shrink(np.array([[0.8]]), whole, np.array([[1e-4]]), np.ones(1))
    assert (only.value[0, 0], only.variance[0, 0]) == (0.8, 0.0)
    # The fewer records, the closer to the whole.
    noise = np.array([[1e-4, 1e-3, 1e-2]])
    trust = (shrink(np.full((1, 3), 0.9), whole, noise, np.array([0.5, 0.05, 0.005])).value - 0.8) / 0.1
    assert 1.0 > trust[0, 0] > trust[0, 1] > trust[0, 2] > 0.0


def test_thousands_of_windows_are_corrected_at_once() -> None:
    """As one by one."""
    known, vectors = baselines(), labelled().vectors
    segments = [known.segments[row % len(known)] for row in range(40)]
    windows = [vectors[row : row + 60] for row in range(40)]
    together = known.corrected(estimated(windows), segments)
    for place in (0, 7, 39):
        alone = known.corrected(estimated([windows[place]]), [segments[place]])
        np.testing.assert_array_equal(together.lower[:, place], alone.lower[:, 0])
        np.testing.assert_array_equal(together.accuracy[:, place], alone.accuracy[:, 0])


@pytest.mark.slow
def test_corrected_intervals_cover_healthy_hospitals() -> None:
    """Of ten hospitals that differ by up to ten points; uncorrected, many windows are outside. benchmarks/coverage.py has more."""
    found = [one for seed in range(6) for one in hospital_round(seed)]
    for name in (ADAPTIVE, CONSENSUS):
        before, after = (
            np.mean([held for _, label, held, _, _ in found if label == text]) for text in (name, f"{name}, corrected")
        )
        assert 0.92 <= after <= 0.98
        assert before < after


@pytest.mark.slow
def test_healthy_classes_of_a_real_set_are_estimated_better(real_sets: Path) -> None:
    """Those with and without employment as segments: fit on a half, estimated on the other."""
    found = [one for seed in range(4) for one in class_round(real_sets / "acs_employment_MA_2015_to_2018.npz", seed)]
    before, after = (
        np.mean([error for _, label, _, _, error in found if label == text])
        for text in (ADAPTIVE, f"{ADAPTIVE}, corrected")
    )
    assert after < 0.5 * before
