"""Intervals cover the realised accuracy of exchangeable windows, and stay within 0 and 1."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.special import betaincinv

from monitor.core.calibration import Calibration, calibrate
from monitor.core.estimate import Estimate, Interval, share_interval, share_intervals
from monitor.core.scores import label_outputs
from tests.strategies import Case, accepted, cases, synthetic


def intervals(calibration: Calibration, window: np.ndarray) -> dict[str, tuple[float, Interval]]:
    """Return each estimate with its interval."""
    found = {}
    for name, result in calibration.estimate(window).estimators.items():
        assert isinstance(result, Estimate)
        assert result.interval is not None
        found[name] = (result.accuracy, result.interval)
    return found


@pytest.mark.slow
@settings(max_examples=15)
@given(cases(largest=40))
def test_every_estimate_has_an_interval_within_0_and_1(case: Case) -> None:
    """For any reference of any size, tied, perfect or hopeless, and any window."""
    calibration = calibrate(label_outputs(case.reference, case.labels))
    for _, interval in intervals(calibration, case.window).values():
        assert 0.0 <= interval.lower <= interval.upper <= 1.0


@pytest.fixture(scope="module")
def overconfident() -> Calibration:
    """An overconfident model: its probabilities are sharpened after the labels were drawn."""
    probabilities, labels = synthetic(2000, 4, seed=11)
    return calibrate(label_outputs(accepted(probabilities.astype(np.float64) ** 2), labels))


@pytest.mark.slow
def test_intervals_of_biased_estimators_cover_the_realised_accuracy(overconfident: Calibration) -> None:
    """At least 90% of 200 windows of 200 records, for each estimator; a plain formula covers none for ac."""
    held: dict[str, int] = {}
    plain = 0
    for seed in range(200):
        vectors, labels = synthetic(200, 4, seed=1000 + seed)
        window = accepted(vectors.astype(np.float64) ** 2)
        realised = float(np.mean(np.argmax(window, axis=1) == labels))
        found = intervals(overconfident, window)
        for name, (_, interval) in found.items():
            held[name] = held.get(name, 0) + (interval.lower <= realised <= interval.upper)
        plain += abs(found["ac"][0] - realised) < 1.96 * np.sqrt(realised * (1.0 - realised) / 200)
    assert {name: count for name, count in held.items() if count < 180} == {}
    assert plain < 20


def test_the_interval_of_a_biased_estimator_is_shifted(overconfident: Calibration) -> None:
    """Raw ac is above its own interval: the bias on the reference is known and subtracted."""
    vectors, _ = synthetic(2000, 4, seed=5)
    accuracy, interval = intervals(overconfident, accepted(vectors.astype(np.float64) ** 2))["ac"]
    assert accuracy > interval.upper


def test_more_records_make_narrower_intervals(overconfident: Calibration) -> None:
    """Down to the uncertainty of the reference itself."""
    records = np.array([20, 200, 2000, 20_000, 2_000_000])
    lower, upper, _ = overconfident.intervals.bounds(("consensus",), np.full((1, 5), 0.6), records)
    widths = (upper - lower)[0].tolist()
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > 0.02


@pytest.mark.slow
def test_a_perfect_reference_does_not_claim_certainty() -> None:
    """With no error in 1000 records, a window of 200 may still have one."""
    probabilities, _ = synthetic(1000, 3, seed=2, sharpness=6.0)
    calibration = calibrate(label_outputs(probabilities, np.argmax(probabilities, axis=1)))
    for _, interval in intervals(calibration, probabilities[:200]).values():
        assert interval.lower <= 1.0 - 1 / 200
        assert interval.upper == 1.0
    chance = calibration.estimate(probabilities[:200]).chance_disagreement
    assert chance is not None
    assert chance >= 1 / 200


def test_a_tiny_reference_gives_the_whole_range() -> None:
    """Below twenty records."""
    probabilities, labels = synthetic(19, 3, seed=2)
    found = intervals(calibrate(label_outputs(probabilities, labels)), probabilities)
    assert {interval for _, interval in found.values()} == {Interval(0.0, 1.0)}


@pytest.mark.slow
def test_calibrating_twice_gives_the_same_intervals() -> None:
    """Resampling has a fixed seed."""
    probabilities, labels = synthetic(300, 3, seed=2)
    once, twice = (intervals(calibrate(label_outputs(probabilities, labels)), probabilities) for _ in range(2))
    assert once == twice


@pytest.mark.slow
def test_a_higher_level_gives_wider_intervals() -> None:
    probabilities, labels = synthetic(60, 3, seed=2)
    widths = {}
    for level in (0.8, 0.99):
        _, interval = intervals(calibrate(label_outputs(probabilities, labels), level=level), probabilities)["doc"]
        widths[level] = interval.upper - interval.lower
    assert widths[0.8] < widths[0.99]


def test_progress_rises_to_1() -> None:
    probabilities, labels = synthetic(60, 3, seed=2)
    seen: list[float] = []
    calibrate(label_outputs(probabilities, labels), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_chance_disagreement_covers_exchangeable_windows_and_a_shift_exceeds_it(overconfident: Calibration) -> None:
    """In about 95% of exchangeable windows the disagreement is below its chance bound."""
    below = 0
    for seed in range(100):
        vectors, _ = synthetic(200, 4, seed=3000 + seed)
        window = overconfident.estimate(accepted(vectors.astype(np.float64) ** 2))
        assert window.disagreement is not None
        assert window.chance_disagreement is not None
        below += window.disagreement <= window.chance_disagreement
    assert below >= 88


@pytest.mark.parametrize(
    ("right", "records", "lower", "upper"),
    [
        pytest.param(0, 10, 0.0, 0.30850, id="none right: textbook"),
        pytest.param(10, 10, 0.69150, 1.0, id="all right: textbook"),
        pytest.param(8, 10, 0.44390, 0.97479, id="eight of ten: textbook"),
    ],
)
def test_the_interval_of_a_share_is_clopper_pearson(right: int, records: int, lower: float, upper: float) -> None:
    """At 95%."""
    interval = share_interval(right, records, 0.95)
    assert (interval.lower, interval.upper) == pytest.approx((lower, upper), abs=1e-4)


@pytest.mark.parametrize("records", [1, 2, 7, 300, 5_000, 100_000, 1_000_000])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.9999])
def test_the_interval_of_a_share_is_that_of_scipy(records: int, level: float) -> None:
    """At both ends and between, for many sizes."""
    tail = (1.0 - level) / 2.0
    for right in {0, 1, records // 10, records // 2, records * 9 // 10, records - 1, records}:
        lower = betaincinv(right, records - right + 1, tail) if right > 0 else 0.0
        upper = betaincinv(right + 1, records - right, 1.0 - tail) if right < records else 1.0
        interval = share_interval(right, records, level)
        assert (interval.lower, interval.upper) == pytest.approx((lower, upper), rel=0.0, abs=1e-11)


def test_intervals_of_many_shares_are_those_of_each() -> None:
    """Of few and of many records together, and of none."""
    records = np.array([0, 1, 1, 2, 30, 30, 500, 40_000, 1_000_000])
    right = np.array([0, 0, 1, 1, 30, 29, 1, 39_000, 999_999])
    wanted = [share_interval(*one, 0.95) for one in zip(right.tolist(), records.tolist(), strict=True)]
    for column, bounds in zip(share_intervals(right, records, 0.95), zip(*wanted, strict=True), strict=True):
        assert column.tolist() == pytest.approx(bounds, abs=1e-12)


def test_a_window_of_one_record_has_a_wide_interval(overconfident: Calibration) -> None:
    lower, upper, _ = overconfident.intervals.bounds(("atc_mc",), np.ones((1, 1)), np.array([1]))
    assert upper[0, 0] - lower[0, 0] > 0.5


@pytest.mark.slow
def test_no_interval_shrinks_to_a_point_at_the_end_of_the_range() -> None:
    """A bias beyond 0 or 1 gives the end of the range, with errors around it."""
    probabilities, labels = synthetic(400, 3, seed=3)
    unsure = accepted(probabilities.astype(np.float64) ** 0.2)
    hopeless = (probabilities.argmax(axis=1) + 1) % 3
    for reference, truth in (
        (unsure, labels),
        (probabilities, hopeless),
        (probabilities, probabilities.argmax(axis=1)),
    ):
        calibration = calibrate(label_outputs(reference, truth))
        for window in (reference[:100], accepted(reference[:100].astype(np.float64) ** 3)):
            for _, interval in intervals(calibration, window).values():
                assert interval.upper - interval.lower > 0.0


@pytest.mark.slow
def test_intervals_cover_the_accuracy_of_a_nearly_perfect_model() -> None:
    """99.9% accuracy: 160 windows of 200, over two references of 1000, some without an error."""
    held: dict[str, list[bool]] = {}
    random = np.random.default_rng(5)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        doubt = np.clip(random.beta(0.02, 20.0, size=count), 1e-6, 0.4)
        p = np.stack([1.0 - doubt, 0.7 * doubt, 0.3 * doubt], axis=1).astype(np.float32)
        return p, (random.random(count) < doubt).astype(np.int64)

    for _ in range(2):
        calibration = calibrate(label_outputs(*draw(1000)))
        for _ in range(80):
            window, labels = draw(200)
            realised = float(np.mean(window.argmax(axis=1) == labels))
            for name, (_, interval) in intervals(calibration, window).items():
                held.setdefault(name, []).append(interval.lower - 1e-12 <= realised <= interval.upper + 1e-12)
    assert {name: np.mean(all_) for name, all_ in held.items() if np.mean(all_) < 0.93} == {}
