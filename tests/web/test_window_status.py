"""Window and overall status: never fine while a part is not, never an all-clear while anything is unknown."""

import re
from dataclasses import replace

import pytest

from monitor.core.alerts import AlertPhase
from monitor.core.baselines.comparison import Baseline, BaselineKind
from monitor.core.baselines.comparison import Verdict as Change
from monitor.core.estimate import WindowState
from monitor.core.input_health import FoundProblem, InputProblem
from monitor.core.report import InputFacts, Report, SegmentReport
from monitor.core.segments import Segment
from monitor.web.pages.model import model_page
from monitor.web.pages.overview import overview_page
from monitor.web.pages.status import MOST_NAMED, OverallStatus, Urgency, overall_status, urgency_of, within
from monitor.web.site import Health
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW, apart, estimated, low, segment, three_models

FINE = segment("A", WindowState.OK, estimated(0.93), low(AlertPhase.OK))
LOUD = segment("B", WindowState.OK, estimated(0.70), low(AlertPhase.FIRING, 0.72))
SOON = segment("C", WindowState.OK, estimated(0.70), low(AlertPhase.PENDING, 0.72))
INFO = segment("F", WindowState.OK, estimated(0.93), low(AlertPhase.OK), apart(AlertPhase.FIRING))
SILENT_INFO = segment("G", WindowState.STALE, None, apart(AlertPhase.FIRING))
UNKNOWN = segment("D", WindowState.STALE, None, low(AlertPhase.OK))
UNWATCHED = segment("E", WindowState.OK, estimated(0.93))
OWN = Baseline(BaselineKind.OWN, 0.93, 2000, 2000, NOW - 9e5, NOW - 8e5, verified=False)
UNVERIFIED = replace(FINE, segment=(("site", "H"),), baseline=OWN, verdict=Change.HOLDS)
DRIFTED = replace(UNVERIFIED, segment=(("site", "I"),), verdict=Change.DRIFTED)
CONFIRMED = replace(UNVERIFIED, segment=(("site", "J"),), baseline=OWN._replace(verified=True))


def _report(*segments: SegmentReport) -> dict[str, Report]:
    return {"density": replace(three_models()["density"], segments=segments)}


def _verdict(
    *segments: SegmentReport,
    unhealthy: tuple[str, ...] = (),
    not_ready: tuple[str, ...] = (),
    unevaluated: tuple[str, ...] = (),
) -> OverallStatus:
    return overall_status(_report(*segments), Health(unhealthy, not_ready, unevaluated=unevaluated))


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
        ((UNVERIFIED, FINE), Urgency.UNVERIFIED, "No alert. 2 windows evaluated, 1 with an unverified baseline.", ""),
        ((CONFIRMED, FINE), Urgency.FINE, "No alert. 2 windows evaluated.", ""),
        ((DRIFTED, UNVERIFIED), Urgency.CHANGED, "No alert, but 1 window has changed since its baseline. 2 windows evaluated, 2 with an unverified baseline.", ""),
        ((replace(LOUD, baseline=OWN), UNVERIFIED), Urgency.ALERT, "1 of 2 windows is alerting: density, site B.", "2 windows evaluated, 2 with an unverified baseline."),
        ((UNWATCHED, FINE), Urgency.UNWATCHED, "No alert. 2 windows evaluated, 1 without an alert configured.", ""),
    ],
)  # fmt: skip
def test_the_overall_status_in_one_sentence(
    segments: tuple[SegmentReport, ...], urgency: Urgency, sentence: str, more: str
) -> None:
    assert _verdict(*segments) == OverallStatus(urgency, sentence, more)


WHOLE = replace(FINE, segment=())
LATE = FoundProblem(InputProblem.LATE, value=0.97, since=NOW - 60.0)


@pytest.mark.parametrize(
    ("whole", "urgency", "sentence"),
    [
        (WHOLE, Urgency.PROBLEM, "No alert, but the input of density has a problem: this is no all-clear."),
        (
            replace(DRIFTED, segment=()),
            Urgency.PROBLEM,
            "No alert, but 1 window has changed since its baseline, and the input",
        ),
        (replace(LOUD, segment=()), Urgency.ALERT, "1 of 2 windows is alerting: density, all records."),
        (replace(UNKNOWN, segment=()), Urgency.UNKNOWN, "No alert, but the input of density has a problem"),
        (replace(UNWATCHED, segment=()), Urgency.PROBLEM, "No alert, but the input of density has a problem"),
    ],
)
def test_a_model_with_an_input_problem_does_not_look_all_clear(
    whole: SegmentReport, urgency: Urgency, sentence: str
) -> None:
    """Whatever its alerts say; on the overview, and on the pages of all its windows."""
    report = replace(_report(whole, FINE)["density"], input=InputFacts(problems=(LATE,)))
    found = overall_status({"density": report}, Health())
    assert found.urgency is urgency
    assert found.sentence.startswith(sentence)
    inside = within(report)
    assert inside["all"].urgency(urgency_of(whole)) is urgency
    site = site_of({"density": report})
    said = "expected records newer than the window, found 97.0% of the latest records older than all of it"
    pages = [text_of(overview_page, site)]
    pages += [text_of(model_page, site, name="density", segment=name) for name in ("all", "site=A")]
    for page in pages:
        assert said in page
        assert f'class="verdict {Urgency.FINE.kind}"' not in page


def test_many_alerting_windows_are_counted_and_the_worst_named() -> None:
    loud = [segment(f"B{number}", WindowState.OK, estimated(0.7), low(AlertPhase.FIRING, 0.72)) for number in range(5)]
    sentence = _verdict(*loud, FINE).sentence
    assert sentence == "5 of 6 windows are alerting: density, site B0; density, site B1; density, site B2; and 2 more."


def test_no_all_clear_while_not_ready() -> None:
    """A source that cannot be read may hide an alert."""
    assert _verdict(FINE, not_ready=("inbox waits",)).urgency is Urgency.UNKNOWN
    assert _verdict(LOUD, not_ready=("inbox waits",)).urgency is Urgency.ALERT


def test_an_unevaluated_model_counts_as_unknown() -> None:
    found = _verdict(FINE, not_ready=("lung has not been evaluated yet",), unevaluated=("lung",))
    assert (found.urgency, found.sentence) == (Urgency.UNKNOWN, "No alert. 1 window evaluated, 1 unknown.")
    assert found.more == "cpcmon is not ready; see below."


def test_an_unhealthy_daemon_comes_first() -> None:
    found = _verdict(FINE, unhealthy=("the scheduler is stopped",))
    assert found.urgency is Urgency.ALERT
    assert found.sentence.startswith("cpcmon is unhealthy")
    assert found.more == "No alert. 1 window evaluated."


def test_no_all_clear_before_any_evaluation() -> None:
    assert overall_status({}, Health()) == OverallStatus(Urgency.UNKNOWN, "No model has been evaluated yet.", "")


WHOLE = segment(None, WindowState.OK, estimated(0.93), low(AlertPhase.OK))
SEGMENTS = {
    Urgency.ALERT: segment(None, WindowState.OK, estimated(0.7), low(AlertPhase.FIRING, 0.72)),
    Urgency.PENDING: segment(None, WindowState.OK, estimated(0.7), low(AlertPhase.PENDING, 0.72)),
    Urgency.UNKNOWN: segment(None, WindowState.STALE, None, low(AlertPhase.OK)),
    Urgency.FINE: WHOLE,
}
SITE: Segment = (("site", "<A>"),)
SCANNER: Segment = (*SITE, ("scanner", "1"))
OTHER: Segment = (("site", "B"), ("scanner", "1"))


def _named(fields: Segment, urgency: Urgency) -> SegmentReport:
    return replace(SEGMENTS[urgency], segment=fields)


def _report_with(scanner: Urgency, *more: SegmentReport) -> Report:
    """Return a model that is fine except for one scanner of one site."""
    parts = (_named(SITE, Urgency.FINE), _named(SCANNER, scanner), _named(OTHER, Urgency.FINE))
    return replace(three_models()["density"], segments=(WHOLE, *parts, *more))


def _page(report: Report, **query: str) -> str:
    return text_of(model_page, site_of({"density": report}), name="density", **query)


@pytest.mark.parametrize(
    ("part", "shown", "expected"),
    [
        (Urgency.ALERT, "pending", "is alerting"),
        (Urgency.PENDING, "pending", "is pending"),
        (Urgency.UNKNOWN, "unwatched", "cannot be evaluated"),
    ],
)
def test_a_window_is_not_fine_while_a_part_is_not(part: Urgency, shown: str, expected: str) -> None:
    """The page names the part and links to it. Other sites are not affected."""
    report = _report_with(part)
    link = '<a href="/model?name=density&amp;segment=site%3D%3CA%3E%2Cscanner%3D1">site &lt;A&gt;, scanner 1</a>'
    for segment_name, parts in (("all", "3 segments"), ("site=<A>", "1 segment")):
        text = _page(report, segment=segment_name)
        assert f'<div class="verdict {shown}">' in text
        assert f"<p>1 of its {parts} {expected}: {link}.</p>" in text
        assert "no alert of its own</h1>" in text
    assert '<div class="verdict fine">' in _page(report, segment="site=B,scanner=1")


@pytest.mark.parametrize("part", [Urgency.ALERT, Urgency.PENDING, Urgency.UNKNOWN])
def test_the_overview_shows_no_fine_window_with_a_part_that_is_not(part: Urgency) -> None:
    text = text_of(overview_page, site_of({"density": _report_with(part)}))
    assert f'<section class="model {part.name.lower()}">' in text
    rows = {
        tag["data-segment"]: tag["data-urgency"]
        for name, tag in Reader(text).tags
        if name == "tr" and "data-urgency" in tag
    }
    assert "fine" not in {rows["all"], rows["site=<A>"]}
    assert rows["site=B,scanner=1"] == "fine"


def test_a_window_with_fine_parts_is_fine() -> None:
    text = _page(_report_with(Urgency.FINE))
    assert '<div class="verdict fine">' in text
    assert "of its 3 segments" not in text


@pytest.mark.parametrize("own", [Urgency.ALERT, Urgency.PENDING, Urgency.UNKNOWN])
def test_a_window_that_is_not_fine_keeps_its_heading(own: Urgency) -> None:
    report = replace(_report_with(Urgency.ALERT), segments=(SEGMENTS[own], *_report_with(Urgency.ALERT).segments[1:]))
    found = within(report)["all"]
    assert (found.urgency(own), found.heading(own)) == (own, own.heading)


def test_the_worst_part_is_named_first() -> None:
    worse = replace(
        segment(None, WindowState.OK, estimated(0.5), low(AlertPhase.FIRING, 0.52)), segment=(("site", "Z"),)
    )
    found = within(_report_with(Urgency.ALERT, worse))["all"]
    assert [one.name for one in found.notable] == ["site=Z", "site=<A>,scanner=1"]


def test_of_many_parts_the_first_are_named_and_the_others_counted() -> None:
    more = [_named((("site", f"C{number}"),), Urgency.ALERT) for number in range(MOST_NAMED + 2)]
    text = _page(_report_with(Urgency.FINE, *more))
    assert f"{MOST_NAMED + 2} of its {3 + MOST_NAMED + 2} segments are alerting: " in text
    (sentence,) = re.findall(r"<p>\d+ of its .*? and 2 more\.</p>", text)
    assert sentence.count("<a ") == MOST_NAMED
