"""The story of the demo over several seeds, with the real estimators."""

from collections.abc import Collection

import numpy as np
import pytest

from monitor.demo.demo_folder import AUDITED_SHARE
from monitor.demo.example_data import CLASSES
from monitor.demo.story import (
    CALIBRATED_AT,
    EVENTS,
    LENGTH,
    LOWEST,
    REPLACED,
    REPLACED_AT,
    SCANNERS,
    SEGMENTS,
    SHIFTED,
    UNSURE,
    Exams,
    Truth,
    contrast,
    events,
    labels,
    records,
)
from monitor.reference.reference import Reference
from tests.demo.simulated import Played, audit, played, settings

pytestmark = pytest.mark.slow

SEEDS = (1, 2)
FULL_SECONDS = 25.0
"""Time to fill the window of a scanner."""


@pytest.fixture(scope="module")
def stories(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> list[Played]:
    """The story, played with several seeds."""
    model = settings(tmp_path_factory.mktemp("settings") / "demo")
    return [played(seed, reference, model) for seed in SEEDS]


def test_the_alerts_fire_once_for_the_scanner_and_its_hospital_and_nowhere_else(stories: list[Played]) -> None:
    """The scanner does half of the exams of its hospital, so the accuracy of the hospital falls too."""
    places = (SHIFTED, f"hospital={REPLACED.hospital}")
    for story in stories:
        assert set(story.fired) == {
            (alert, place) for alert in ("accuracy_drop", "outputs_changed") for place in places
        }
        assert all(len(times) == 1 for times in story.fired.values())
        assert all(REPLACED_AT < times[0] < 180.0 for times in story.fired.values())
        # Half of the window of a scanner is replaced after ten seconds.
        assert story.fired["accuracy_drop", SHIFTED][0] < REPLACED_AT + 10.0


def test_every_alert_ends_after_the_calibration_and_before_the_story_repeats(
    stories: list[Played],
) -> None:
    for story in stories:
        assert set(story.ended) == set(story.fired)
        assert all(len(times) == 1 and CALIBRATED_AT < times[0] < LENGTH for times in story.ended.values())


def test_a_hospital_that_is_less_accurate_in_health_is_compared_with_itself(
    stories: list[Played], reference: Reference
) -> None:
    """It has labels; the hospital of the replaced scanner has none, and an own baseline."""
    for story in stories:
        realised = np.mean([one.realised for one in story.evaluated[LOWEST]])
        best = np.mean([one.realised for one in story.evaluated[SCANNERS[0].segments[1]]])
        assert best - realised == pytest.approx(0.10, abs=0.015)
        assert reference.calibration.accuracy - realised > 0.04
        assert np.mean([one.estimated - one.realised for one in story.evaluated[LOWEST]]) == pytest.approx(
            0.0, abs=0.02
        )
        assert story.kinds == {
            name: "reference" if name == "all" else "labelled" if scanner.labelled else "own"
            for scanner in SCANNERS
            for name in scanner.segments
        }


def test_the_estimate_of_the_shifted_scanner_is_closer_to_the_truth_than_the_reference(
    stories: list[Played], reference: Reference
) -> None:
    """At every evaluation while the shift fills the window."""
    usual = reference.calibration.accuracy
    for story in stories:
        shifted = [one for one in story.evaluated[SHIFTED] if REPLACED_AT + FULL_SECONDS <= one.at < CALIBRATED_AT]
        assert len(shifted) > 50
        assert all(abs(one.estimated - one.realised) < abs(usual - one.realised) for one in shifted)
        off = np.mean([abs(one.estimated - one.realised) for one in shifted])
        assert off < 0.25 * np.mean([abs(usual - one.realised) for one in shifted])


def test_the_audited_accuracy_of_the_shifted_scanner_is_right_and_labelled_cases_look_worse(
    stories: list[Played],
) -> None:
    """While the shift fills the horizon."""
    for story in stories:
        true = np.mean(
            [one.realised for one in story.evaluated[SHIFTED] if REPLACED_AT + FULL_SECONDS <= one.at < CALIBRATED_AT]
        )
        found = [one.labels.horizon for one in story.labelled[SHIFTED] if REPLACED_AT + 60.0 <= one.at < CALIBRATED_AT]
        assert len(found) > 100
        for one in found:
            assert one.audited is not None
            assert one.realised is not None
            assert one.audited.labels > 150
            assert one.audited.came == 1.0
            assert one.audited.value == pytest.approx(true, abs=0.08)
            assert one.realised.value < true - 0.08
        covered = [one.audited.lower <= true <= one.audited.upper for one in found if one.audited is not None]
        assert np.mean(covered) > 0.7


def test_every_window_has_a_track_record_before_the_story_repeats(stories: list[Played]) -> None:
    """The first block is judged within a minute."""
    for story in stories:
        for name in SEGMENTS:
            assert next(one for one in story.labelled[name] if one.at >= 60.0).track.summary().blocks > 0
            assert story.labelled[name][-1].track.summary().blocks >= 15


def test_records_contain_no_label() -> None:
    (one, *_) = sent = records(Exams(1).next(50, 0.0), 100, "run", 1_790_000_000.0)
    assert len(sent) == 50
    assert set(one) == {"model", "version", "id", "time", "hospital", "scanner", "probs"}
    assert [record["id"] for record in sent] == [f"run-{number}" for number in range(100, 150)]


def test_labels_come_of_the_audit_and_of_unsure_exams() -> None:
    """So the labelled cases look worse than the audited ones, which are like all."""
    examined = Exams(1).next(30_000, REPLACED_AT + 1.0)
    sent = {one["id"]: one["probs"] for one in records(examined, 100, "run", 0.0)}
    found = {one["id"]: one["label"] for one in labels(examined, 100, "run", audit)}
    chosen = {id_ for id_, is_audited in zip(sent, audit([*sent]).tolist(), strict=True) if is_audited}
    assert found.keys() == chosen | {id_ for id_, vector in sent.items() if max(vector) < UNSURE}
    assert len(chosen) == pytest.approx(AUDITED_SHARE * len(sent), rel=0.1)

    def accuracy(ids: Collection[str]) -> float:
        return float(np.mean([CLASSES[int(np.argmax(sent[id_]))] == found[id_] for id_ in ids]))

    true = np.mean([right for one in examined for right in one.right])
    assert accuracy(chosen) == pytest.approx(true, abs=0.03)
    assert accuracy(found) < true - 0.1


def test_only_one_scanner_changes_between_two_events() -> None:
    for start in (0.0, LENGTH, 5 * LENGTH):
        before = contrast(REPLACED, start)
        assert contrast(REPLACED, start + REPLACED_AT) < before
        assert contrast(REPLACED, start + CALIBRATED_AT - 0.1) < before
        assert contrast(REPLACED, start + CALIBRATED_AT) == before
    others = [one for one in SCANNERS if one is not REPLACED]
    assert all(contrast(one, REPLACED_AT + 1.0) == one.contrast for one in others)


@pytest.mark.parametrize(
    ("after", "until", "expected"),
    [(-1.0, 0.0, [0]), (0.0, 89.9, []), (89.9, 90.0, [1]), (90.0, 449.0, [2]), (300.0, 450.0, [0]), (-1.0, 950.0, [0, 1, 2] * 2 + [0])],
)  # fmt: skip
def test_every_event_occurs_once(after: float, until: float, expected: list[int]) -> None:
    """Also when the story repeats."""
    assert [one.sentence for one in events(after, until)] == [EVENTS[number].sentence for number in expected]


def test_true_accuracies_need_enough_records() -> None:
    """And count the latest records of the window."""
    truth, exams = Truth(window=100, minimum=20), Exams(1)
    assert truth.now("all") is None
    everything: list[bool] = []
    for _ in range(10):
        examined = exams.next(60, 0.0)
        everything += [right for one in examined for right in one.right]
        truth.note(examined)
    assert truth.now("all") == sum(everything[-100:]) / 100
    assert truth.now("hospital=Nowhere") is None
