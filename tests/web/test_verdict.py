"""The sentence at the top: what it says, and that it is never an all-clear while anything cannot be said."""

from dataclasses import replace

import pytest

from monitor.core.alerts import AlertPhase
from monitor.core.estimate import WindowState
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.pages.status import OverallStatus, Urgency, Verdict, verdict
from tests.web.sample_reports import apart, estimated, low, segment, three_models

FINE = segment("A", WindowState.OK, estimated(0.93), low(AlertPhase.OK))
LOUD = segment("B", WindowState.OK, estimated(0.70), low(AlertPhase.FIRING, 0.72))
SOON = segment("C", WindowState.OK, estimated(0.70), low(AlertPhase.PENDING, 0.72))
INFO = segment("F", WindowState.OK, estimated(0.93), low(AlertPhase.OK), apart(AlertPhase.FIRING))
SILENT_INFO = segment("G", WindowState.STALE, None, apart(AlertPhase.FIRING))
UNKNOWN = segment("D", WindowState.STALE, None, low(AlertPhase.OK))
UNWATCHED = segment("E", WindowState.OK, estimated(0.93))


def _report(*segments: SegmentReport) -> dict[str, ModelReport]:
    return {"density": replace(three_models()["density"], segments=segments)}


def _verdict(
    *segments: SegmentReport,
    unhealthy: tuple[str, ...] = (),
    not_ready: tuple[str, ...] = (),
    unevaluated: tuple[str, ...] = (),
) -> Verdict:
    return verdict(OverallStatus(_report(*segments), unhealthy, not_ready, unevaluated))


@pytest.mark.parametrize(
    ("segments", "urgency", "sentence", "more"),
    [
        ((FINE, FINE), Urgency.FINE, "No alert. 2 windows evaluated.", ""),
        ((FINE, UNKNOWN), Urgency.UNKNOWN, "No alert. 1 window evaluated, 1 unknown.", ""),
        ((FINE, LOUD), Urgency.ALERT, "1 of 2 windows is alerting: density, site B.", "2 windows evaluated."),
        ((SOON, FINE), Urgency.PENDING, "No alert. 2 windows evaluated, 1 pending.", ""),
        ((FINE, INFO), Urgency.INFO, "No critical or warning alert. 2 windows evaluated, 1 with info only.", ""),
        ((INFO, SOON), Urgency.PENDING, "No critical or warning alert. 2 windows evaluated, 1 pending, 1 with info only.", ""),
        ((INFO, LOUD), Urgency.ALERT, "1 of 2 windows is alerting: density, site B.", "2 windows evaluated, 1 with info only."),
        ((SILENT_INFO,), Urgency.UNKNOWN, "No window can be evaluated. 0 windows evaluated, 1 unknown.", ""),
        ((UNKNOWN,), Urgency.UNKNOWN, "No window can be evaluated. 0 windows evaluated, 1 unknown.", ""),
        ((UNWATCHED,), Urgency.UNWATCHED, "No alert is configured, so none can fire. 1 window evaluated, 1 without an alert configured.", ""),
        ((UNWATCHED, FINE), Urgency.UNWATCHED, "No alert. 2 windows evaluated, 1 without an alert configured.", ""),
    ],
)  # fmt: skip
def test_how_things_are_is_one_sentence(
    segments: tuple[SegmentReport, ...], urgency: Urgency, sentence: str, more: str
) -> None:
    """With what it rests on."""
    assert _verdict(*segments) == Verdict(urgency, sentence, more)


def test_many_that_alert_are_counted_and_the_most_urgent_named() -> None:
    """A title of two hundred names is read by nobody."""
    loud = [segment(f"B{number}", WindowState.OK, estimated(0.7), low(AlertPhase.FIRING, 0.72)) for number in range(5)]
    said = _verdict(*loud, FINE).sentence
    assert said == "5 of 6 windows are alerting: density, site B0; density, site B1; density, site B2; and 2 more."


def test_while_anything_is_waited_for_all_is_not_fine() -> None:
    """A source that cannot be read may hold what would alert."""
    assert _verdict(FINE, not_ready=("inbox waits",)).urgency is Urgency.UNKNOWN
    assert _verdict(LOUD, not_ready=("inbox waits",)).urgency is Urgency.ALERT


def test_a_model_that_was_never_evaluated_counts_among_what_cannot_be_said() -> None:
    """Once, and only while it has no report."""
    found = _verdict(FINE, not_ready=("lung has not been evaluated yet",), unevaluated=("lung",))
    assert (found.urgency, found.sentence) == (Urgency.UNKNOWN, "No alert. 1 window evaluated, 1 unknown.")
    assert found.more == "cpcmon is not ready; see below."


def test_when_cpcmon_itself_is_not_well_that_comes_first() -> None:
    """Whatever the last reports say."""
    found = _verdict(FINE, unhealthy=("the scheduler stands still",))
    assert found.urgency is Urgency.ALERT
    assert found.sentence.startswith("cpcmon is unhealthy")
    assert found.more == "No alert. 1 window evaluated."


def test_before_any_evaluation_nothing_is_fine() -> None:
    """Right after the start."""
    assert verdict(OverallStatus({}, (), ())) == Verdict(Urgency.UNKNOWN, "No model has been evaluated yet.", "")
