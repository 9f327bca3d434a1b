"""What the demo claims, over several seeds, with the real estimators; see `simulated.py`."""

import numpy as np
import pytest

from monitor.demo.story import (
    EVENTS,
    LENGTH,
    MENDED_AT,
    REPLACED,
    REPLACED_AT,
    SCANNERS,
    SHIFTED,
    Exams,
    contrast,
    events,
    records,
)
from monitor.reference.reference import Reference
from tests.demo.simulated import Played, played, settings

SEEDS = (1, 2, 3)
FULL_SECONDS = 25.0
"""After which a scanner's window holds only what came after a change."""


@pytest.fixture(scope="module")
def stories(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> list[Played]:
    """The story, played with several seeds."""
    model, rule = settings(tmp_path_factory.mktemp("settings") / "demo")
    return [played(seed, reference, model, rule) for seed in SEEDS]


@pytest.mark.slow
def test_the_alert_fires_once_for_the_scanner_and_its_hospital_and_nowhere_else(stories: list[Played]) -> None:
    """Half of what the hospital does is done by that scanner, so its own accuracy falls too. The whole hides it."""
    for story in stories:
        assert set(story.fired) == {SHIFTED, f"hospital={REPLACED.hospital}"}
        assert all(len(times) == 1 for times in story.fired.values())
        assert all(REPLACED_AT < times[0] < 180.0 for times in story.fired.values())


def test_every_alert_ends_after_the_new_scanner_is_calibrated_and_before_the_story_begins_again(
    stories: list[Played],
) -> None:
    """So the second round begins as the first one did."""
    for story in stories:
        assert set(story.ended) == set(story.fired)
        assert all(len(times) == 1 and MENDED_AT < times[0] < LENGTH for times in story.ended.values())


def test_the_estimate_of_the_shifted_scanner_is_nearer_to_the_truth_than_the_reference_is(
    stories: list[Played], reference: Reference
) -> None:
    """At every look while the shift fills the window, and by far."""
    usual = reference.calibration.accuracy
    for story in stories:
        looks = [one for one in story.looks[SHIFTED] if REPLACED_AT + FULL_SECONDS <= one.at < MENDED_AT]
        assert len(looks) > 50
        assert all(abs(one.estimated - one.realised) < abs(usual - one.realised) for one in looks)
        off = np.mean([abs(one.estimated - one.realised) for one in looks])
        assert off < 0.25 * np.mean([abs(usual - one.realised) for one in looks])


def test_records_tell_nothing_of_the_truth() -> None:
    """Neither a grade nor whether the model was right; the fields are what the documentation says, and no more."""
    (one, *_) = sent = records(Exams(1).next(50, 0.0), 100, "run", 1_790_000_000.0)
    assert len(sent) == 50
    assert set(one) == {"model", "version", "id", "time", "hospital", "scanner", "probs"}
    assert [record["id"] for record in sent] == [f"run-{number}" for number in range(100, 150)]


def test_only_one_scanner_changes_and_only_between_two_events() -> None:
    """At their very seconds, and again in the next round."""
    for start in (0.0, LENGTH, 5 * LENGTH):
        before = contrast(REPLACED, start)
        assert contrast(REPLACED, start + REPLACED_AT) < before
        assert contrast(REPLACED, start + MENDED_AT - 0.1) < before
        assert contrast(REPLACED, start + MENDED_AT) == before
    others = [one for one in SCANNERS if one is not REPLACED]
    assert all(contrast(one, REPLACED_AT + 1.0) == one.contrast for one in others)


@pytest.mark.parametrize(
    ("after", "until", "told"),
    [(-1.0, 0.0, [0]), (0.0, 59.9, []), (59.9, 60.0, [1]), (60.0, 419.0, [2]), (300.0, 420.0, [0]), (-1.0, 890.0, [0, 1, 2] * 2 + [0])],
)  # fmt: skip
def test_every_event_is_told_once(after: float, until: float, told: list[int]) -> None:
    """Also where the story begins again in between."""
    assert [one.sentence for one in events(after, until)] == [EVENTS[number].sentence for number in told]
