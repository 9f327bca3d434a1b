"""A whole never looks well while a part of it does not, on no page."""

import re
from dataclasses import replace

import pytest

from monitor.core.alerts import AlertPhase
from monitor.core.estimate import WindowState
from monitor.core.report import ModelReport, Realised, SegmentReport
from monitor.core.segments import Segment
from monitor.web.pages.model import model_page
from monitor.web.pages.overview import overview_page
from monitor.web.pages.status import HEADINGS, MOST_NAMED, Urgency, within
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW, estimated, low, segment, three_models

FINE = segment(None, WindowState.OK, estimated(0.93), low(AlertPhase.OK))
KINDS = {
    Urgency.ALERT: segment(None, WindowState.OK, estimated(0.7), low(AlertPhase.FIRING, 0.72)),
    Urgency.PENDING: segment(None, WindowState.OK, estimated(0.7), low(AlertPhase.PENDING, 0.72)),
    Urgency.UNKNOWN: segment(None, WindowState.STALE, None, low(AlertPhase.OK)),
    Urgency.FINE: FINE,
}
SITE: Segment = (("site", "<A>"),)
SCANNER: Segment = (*SITE, ("scanner", "1"))
OTHER: Segment = (("site", "B"), ("scanner", "1"))


def _named(fields: Segment, urgency: Urgency) -> SegmentReport:
    return replace(KINDS[urgency], segment=fields)


def _report(scanner: Urgency, *more: SegmentReport) -> ModelReport:
    """Return a model that is well but for one scanner of one of its sites."""
    parts = (_named(SITE, Urgency.FINE), _named(SCANNER, scanner), _named(OTHER, Urgency.FINE))
    return replace(three_models()["density"], segments=(FINE, *parts, *more))


def _page(report: ModelReport, **query: str) -> str:
    return text_of(model_page, site_of({"density": report}), name="density", **query)


@pytest.mark.parametrize(
    ("part", "shown", "said"),
    [
        (Urgency.ALERT, "pending", "is alerting"),
        (Urgency.PENDING, "pending", "is pending"),
        (Urgency.UNKNOWN, "unwatched", "cannot be evaluated"),
    ],
)
def test_a_whole_is_not_green_while_a_part_of_it_is_not(part: Urgency, shown: str, said: str) -> None:
    """The page names the part and links to it; the site that holds the scanner says the same, other sites do not."""
    report = _report(part)
    link = '<a href="/model?name=density&amp;segment=site%3D%3CA%3E%2Cscanner%3D1">site &lt;A&gt;, scanner 1</a>'
    for segment_name, parts in (("all", "3 segments"), ("site=<A>", "1 segment")):
        text = _page(report, segment=segment_name)
        assert f'<div class="verdict {shown}">' in text
        assert f"<p>1 of its {parts} {said}: {link}.</p>" in text
        assert "no alert of its own</h1>" in text
    assert '<div class="verdict fine">' in _page(report, segment="site=B,scanner=1")


@pytest.mark.parametrize("part", [Urgency.ALERT, Urgency.PENDING, Urgency.UNKNOWN])
def test_nothing_about_a_whole_is_green_on_the_overview_while_a_part_is_not(part: Urgency) -> None:
    """Neither the card of the model nor the row of the whole."""
    text = text_of(overview_page, site_of({"density": _report(part)}))
    assert f'<section class="model {part.name.lower()}">' in text
    rows = {
        tag["data-segment"]: tag["data-urgency"]
        for name, tag in Reader(text).tags
        if name == "tr" and "data-urgency" in tag
    }
    assert "fine" not in {rows["all"], rows["site=<A>"]}
    assert rows["site=B,scanner=1"] == "fine"


def test_a_whole_whose_parts_are_well_is_well() -> None:
    text = _page(_report(Urgency.FINE))
    assert '<div class="verdict fine">' in text
    assert "of its 3 segments" not in text


@pytest.mark.parametrize("own", [Urgency.ALERT, Urgency.PENDING, Urgency.UNKNOWN])
def test_a_window_that_is_not_well_itself_keeps_its_own_words(own: Urgency) -> None:
    report = replace(_report(Urgency.ALERT), segments=(KINDS[own], *_report(Urgency.ALERT).segments[1:]))
    found = within(report)["all"]
    assert (found.urgency(own), found.heading(own)) == (own, HEADINGS[own])


def test_the_worst_part_is_named_first() -> None:
    """The one furthest under its threshold, as in every other list."""
    worse = replace(
        segment(None, WindowState.OK, estimated(0.5), low(AlertPhase.FIRING, 0.52)), segment=(("site", "Z"),)
    )
    found = within(_report(Urgency.ALERT, worse))["all"]
    assert [one.name for one in found.notable] == ["site=Z", "site=<A>,scanner=1"]


def test_of_many_parts_the_first_are_named_and_the_others_counted() -> None:
    more = [_named((("site", f"C{number}"),), Urgency.ALERT) for number in range(MOST_NAMED + 2)]
    text = _page(_report(Urgency.FINE, *more))
    assert f"{MOST_NAMED + 2} of its {3 + MOST_NAMED + 2} segments are alerting: " in text
    (told,) = re.findall(r"<p>\d+ of its .*? and 2 more\.</p>", text)
    assert told.count("<a ") == MOST_NAMED


def test_what_is_wrong_with_the_realised_accuracies_is_said_on_both_pages() -> None:
    """Else labels that cannot be read look like labels that nobody has."""
    told = {"density": [Realised(NOW - 60.0, "all", 100, 87)]}
    for realised in ({}, told):
        site = site_of(
            three_models(),
            realised_remark={"density": "realised: 2 <lines>"}.get,
            realised=lambda name, of=realised: of.get(name, ()),
        )
        assert text_of(overview_page, site).count("<li>realised: 2 &lt;lines&gt;</li>") == 1
        assert text_of(model_page, site, name="density").count("realised: 2 &lt;lines&gt;") == 1
        assert "realised: 2" not in text_of(model_page, site, name="triage")
