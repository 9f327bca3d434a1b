"""The page of a model."""

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from markupsafe import escape

from monitor.config.config import Links
from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.baselines.comparison import Baseline, BaselineKind, Verdict
from monitor.core.change import FEWEST_BLOCKS, ChangeStatus, Direction
from monitor.core.decisions import Decision
from monitor.core.estimate import HEADLINE, Estimate, NoEstimate, Why, WindowState
from monitor.core.estimators import ESTIMATORS
from monitor.core.history import Series, Span
from monitor.core.performance import Metric
from monitor.core.report import InputFacts, ReferenceFacts, Report, SegmentReport
from monitor.reference.reference import Reference
from monitor.web.pages.model import MOST_ROWS, MOST_VISIBLE, REASONS, model_page
from monitor.web.pages.other_pages import reference_page
from monitor.web.pages.overview import overview_page
from monitor.web.pages.rendering import ENVIRONMENT
from monitor.web.pages.routes import PageFunction
from monitor.web.pages.wording import HELD_EVIDENCE, STATES, alert_words, clock
from monitor.web.site import Site
from tests.strategies import older
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW, estimated, low, segment, three_models
from tests.web.sample_site import (
    AUDITED,
    AUDITED_SITES,
    DETECTOR,
    MODEL,
    SHIFTED,
    audited_report,
    detected,
    detector_reference,
    detector_report,
    facts_of,
    outputs,
    sample_reference,
    sample_report,
    sample_series,
    sample_site,
)

HOSTILE = "<script>alert('x')</script>\"&"
_SHIFTED = "site=Bonn,scanner=2"
_MEANINGS = set(vars(ENVIRONMENT.get_template("meanings.html").module)["meanings"])


@cache
def _page(**query: str) -> str:
    return text_of(model_page, sample_site(), **{"name": "density", **query})


class Numbers(HTMLParser):
    """Finds the numbers of a page, and their `data-shown` and `data-meaning`."""

    free = frozenset({"svg", "h1", "code", "a", "caption", "summary", "th", "footer", "header", "title"})
    """Elements where digits are part of a name, a time or a scale."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self.shown: set[str] = set()
        self.explained: set[str] = set()
        self.bare: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record what is shown and what is explained."""
        found = dict(attrs)
        self.shown.update((found.get("data-shown") or "").split())
        self.explained.update((found.get("data-meaning") or "").split())
        if tag not in {"meta", "link", "br"}:
            self._open.append((tag, found))

    def handle_endtag(self, tag: str) -> None:
        """Close."""
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        """Record a number without `data-shown`."""
        named = any("data-shown" in found or "data-meaning" in found for _, found in self._open)
        free = any(tag in self.free for tag, _ in self._open)
        if re.search(r"\d", data.replace("F1", "")) and not named and not free:
            self.bare.append(data)


_ALL_PAGES = [
    *((model_page, {"name": "density", "segment": _SHIFTED, "span": span}) for span in Span),
    (model_page, {"name": "density"}),
    (model_page, {"name": "density", "segment": "site=Dresden", "span": "days"}),
    (model_page, {"name": "triage"}),
    (model_page, {"name": "nodules"}),
    (reference_page, {"name": "density"}),
    (model_page, {"name": DETECTOR}),
    (model_page, {"name": AUDITED}),
    *((model_page, {"name": AUDITED, "segment": f"site={site}"}) for site in AUDITED_SITES),
]


def _rich_site() -> Site:
    return sample_site({**sample_site().reports(), DETECTOR: detector_report(), AUDITED: audited_report()})


@pytest.mark.parametrize(("page", "query"), _ALL_PAGES)
def test_each_number_is_explained_on_the_same_page(page: object, query: dict[str, str]) -> None:
    numbers = Numbers(text_of(page, _rich_site(), **query))  # type: ignore[arg-type]
    assert numbers.bare == []
    assert numbers.shown - numbers.explained == set()
    assert numbers.shown <= _MEANINGS


def test_every_meaning_is_used_and_defined() -> None:
    shown: set[str] = set()
    for page, query in _ALL_PAGES:
        shown |= Numbers(text_of(page, _rich_site(), **query)).shown
    assert _MEANINGS - shown == set()


def _words(**query: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", _page(**query)).split())


def test_the_head_says_the_verdict_first_then_the_baseline() -> None:
    """Each kind of baseline in its own words."""
    drifted = _words(segment="site=Celle,scanner=1")
    verdict = drifted.index("The estimate holds, but the outputs drifted: trust it less.")
    own = "No labelled baseline: compared with its own first 2,000 records, from 2025-11-06 13:33 UTC to"
    assert verdict < drifted.index("About 8") < drifted.index(own)
    assert "The estimate fell." in _words(segment=_SHIFTED)
    whole, labelled = _words(), _words(segment="site=Aachen")
    assert "The estimate holds, and so do the outputs." in whole
    assert "Compared with the 600 labelled records of the reference, accuracy 87.0%" in whole
    assert "Compared with the 1,234 labelled records of this segment in the reference, accuracy 84.0%" in labelled
    assert "84.0% baseline" in labelled
    assert "points over that of its baseline" in labelled


def _changed(
    evidence: float | None, phase: AlertPhase = AlertPhase.OK, direction: Direction = Direction.DOWN
) -> tuple[AlertStatus, ChangeStatus]:
    """Return an alert of type change, and what its detector says."""
    change = ChangeStatus(direction, evidence, 7.4, 0.02, NOW - 1800.0, 340, FEWEST_BLOCKS)
    alert = AlertStatus(
        "changed", AlertType.CHANGE, Severity.WARNING, phase, NOW - 600.0, held=False, threshold=7.4, value=evidence,
        upward=True, direction=direction,
    )  # fmt: skip
    return alert, change


@pytest.mark.parametrize(
    ("phase", "evidence", "direction", "said"),
    [
        (AlertPhase.FIRING, 9.1, "down", "The accuracy has dropped: evidence 10^9.1 passed the budget 10^7.4 at 13:23 UTC; it began about 13:03 UTC, 340 records ago."),
        (AlertPhase.RECOVERING, 2.0, "up", "The accuracy has risen: the evidence passed the budget 10^7.4 at 13:23 UTC and is 10^2.0 now; it began"),
        (AlertPhase.FIRING, None, "down", "The accuracy has dropped: the evidence passed the budget 10^7.4 at 13:23 UTC; it began"),
        (AlertPhase.OK, 5.0, "down", "Some evidence of a drop: 10^5.0 of 10^7.4; if it is one, it began about 13:03 UTC, 340 records ago."),
        (AlertPhase.OK, -0.04, "up", "No evidence of a change: 10^0.0 of 10^7.4."),
    ],
)  # fmt: skip
def test_a_change_is_said_first_and_nothing_holds_while_its_alert_fires(
    phase: AlertPhase, evidence: float | None, direction: str, said: str
) -> None:
    """The window still holds mostly records from before, so its estimate says nothing yet."""
    alert, change = _changed(evidence, phase, Direction(direction))
    baseline = Baseline(BaselineKind.REFERENCE, 0.83, 2000, 2000, None, None, verified=True)
    one = segment("A", WindowState.OK, estimated(0.83), alert)
    one = replace(one, baseline=baseline, verdict=Verdict.HOLDS, changes=(change,))
    site = sample_site({"density": replace(sample_report(), segments=(one,))})
    holds = "The estimate holds, and so"
    for page in (model_page, overview_page):
        text = " ".join(
            re.sub("<[^>]+>", " ", text_of(page, site, name="density", segment="site=A").split("<main")[1]).split()
        )
        if alert.firing:
            assert holds not in text
            assert text.index(said) < (text.index("About 83.0%") if page is model_page else len(text))
        else:
            assert text.index(holds) >= 0
            assert (said in text) is (page is model_page)


def test_two_detectors_do_not_contradict_each_other() -> None:
    """A drop is no rise."""
    alert, down = _changed(9.1, AlertPhase.FIRING)
    up = _changed(-1.0, direction=Direction.UP)[1]
    one = replace(segment("A", WindowState.OK, estimated(0.83), alert), changes=(down, up._replace(held=True)))
    site = sample_site({"density": replace(sample_report(), segments=(one,))})
    text = text_of(model_page, site, name="density", segment="site=A")
    assert "No evidence of a change" not in text
    assert "No evidence of a rise: 10^-1.0 of 10^7.4." in text
    assert "Looks for rises of more than 2.0 points." in text
    assert HELD_EVIDENCE in text


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({}, "No evidence of a change: 10^0.3 of 10^7.4. Looks for drops of more than 2.0 points."),
        ({"segment": "site=Aachen"}, "Drops of up to 8.1 points cannot be detected here: the reference leaves that much unknown"),
        ({"segment": "site=Celle,scanner=2"}, "Collecting the baseline: 23 of 60 evaluations with records."),
    ],
)  # fmt: skip
def test_a_window_says_what_it_can_detect(where: dict[str, str], said: str) -> None:
    """Beside the chart of the evidence."""
    text = _words(**where)
    assert said in text
    assert "Evidence of a change over time" in _page(**where)


@pytest.mark.parametrize(
    ("accuracy", "kind", "verified", "verdict", "said"),
    [
        (0.30, BaselineKind.OWN, False, Verdict.HOLDS, "Like its first records, which nobody has confirmed."),
        (0.90, BaselineKind.OWN, True, Verdict.DRIFTED, "7.0 points over that of its baseline. "),
        (0.82, BaselineKind.OWN, True, Verdict.HOLDS, "1.0 point under that of its baseline, too little to call it a fall."),
        (0.82, BaselineKind.LABELLED, True, Verdict.HOLDS, "1.0 point under that of its baseline, too little to call it a fall."),
        (0.73, BaselineKind.LABELLED, True, Verdict.FELL, "10.0 points under that of its baseline, which is more than chance"),
    ],
)  # fmt: skip
def test_the_head_calls_no_change_chance_that_is_none(
    *, accuracy: float, kind: BaselineKind, verified: bool, verdict: Verdict, said: str
) -> None:
    """A segment that was bad from its first record does not hold, and a rise is not judged."""
    level = 0.30 if accuracy == 0.30 else 0.83
    baseline = Baseline(kind, level, 2000, 2000, NOW - 9e5, NOW - 8e5, verified=verified)
    one = segment("A", WindowState.OK, estimated(accuracy), low(AlertPhase.OK))
    one = replace(one, baseline=baseline, verdict=verdict)
    site = sample_site({"density": replace(sample_report(), segments=(one,))})
    text = " ".join(re.sub("<[^>]+>", " ", text_of(model_page, site, name="density", segment="site=A")).split())
    assert said in text
    assert ("The estimate holds, and so" in text) is (verdict is Verdict.HOLDS and verified)


def test_the_compared_end_of_a_change_is_not_called_the_estimate() -> None:
    """It is wider than the interval on the page, because the baseline is uncertain too."""
    alert = replace(low(AlertPhase.FIRING, 0.75), baseline=BaselineKind.LABELLED)
    estimate = estimated(0.70)[HEADLINE]
    assert isinstance(estimate, Estimate)
    words = alert_words(alert, estimate, NOW)
    assert "upper end of the estimated accuracy with what is unknown of its baseline, 75.0%, is under" in words


def test_an_unverified_baseline_says_what_to_do() -> None:
    """In a command that a shell reads as it is meant. A confirmed one says nothing."""
    collecting = _words(segment="site=Celle,scanner=2")
    assert "No labelled baseline: collecting its own, 1,200 of 2,000 records, in full windows. Unverified" in collecting
    assert "No comparison of outputs until its baseline is collected." in collecting
    assert "cpcmon baseline density --segment site=Celle,scanner=2 --confirm" in collecting
    assert "Unverified" not in _words(segment="site=Bonn")
    first = sample_report().segments[-2]
    named = replace(sample_report(), segments=(replace(first, segment=(("site", "St. Mary's; reboot"),)),))
    text = text_of(model_page, sample_site({"density": named}), name="density", segment="site=St. Mary's; reboot")
    assert escape("--segment 'site=St. Mary'\"'\"'s; reboot' --confirm") in text


def test_drift_stands_beside_the_estimate_with_the_class_that_changed_most() -> None:
    text = _words(segment="site=Celle,scanner=1")
    assert "Predicted classes ≠ drifted 0.31 0.06 0.10" in text
    assert "Confidence ✓ as before 0.06 0.05 0.10" in text
    assert "Changed most: heterogeneous: 18.2% of the answers then, 0.0% now" in text
    assert (
        "output_drift (warning): the model answers differently than it did; do not rely on the estimate alone: 0.31 from"
        " its baseline, limit 0.10 (compared with its own first records); pending since" in text
    )


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"name": "unknown"},
        {"name": "density", "segment": "site=Nowhere"},
        {"name": "density", "span": "century"},
        {"name": "<script>"},
    ],
)
def test_an_unknown_name_has_no_page(query: dict[str, str]) -> None:
    assert model_page(sample_site(), query) is None


@pytest.mark.parametrize("span", list(Span))
@pytest.mark.parametrize("segment", ["all", _SHIFTED, "site=Dresden"])
def test_every_window_and_span_is_well_formed(segment: str, span: Span) -> None:
    reader = Reader(_page(segment=segment, span=span))
    assert any(tag == "svg" and found.get("role") == "img" for tag, found in reader.tags)
    assert all(found.get("aria-label") for tag, found in reader.tags if tag == "svg" and found.get("role") == "img")
    assert not any("style" in found for _, found in reader.tags)


def test_the_head_has_the_alert_the_estimate_and_the_drop() -> None:
    text = _page(segment=_SHIFTED)
    report = sample_report()
    shifted = next(one for one in report.segments if one.segment == SHIFTED)
    headline = shifted.results["adaptive"]
    assert isinstance(headline, Estimate)
    assert shifted.baseline is not None
    assert shifted.baseline.accuracy is not None
    drop = 100 * (shifted.baseline.accuracy - headline.accuracy)
    assert 'class="verdict alert"' in text
    assert f"About {headline.accuracy:.1%} of the predictions are correct" in text
    assert f"{drop:.1f} points under that of its baseline, which is more than chance explains" in text


def test_the_field_interval_is_a_number_and_a_paler_band() -> None:
    text = _page(segment=_SHIFTED)
    shifted = next(one for one in sample_report().segments if one.segment == SHIFTED)
    assert f"{shifted.field[1].lower:.1%} to {shifted.field[1].upper:.1%}" in text
    assert f"or {shifted.field[0].lower:.1%} to {shifted.field[0].upper:.1%} for eight in ten" in text
    assert "In the real shifts we tried, about nine in ten accuracies lay inside." in text
    chart = text.index('class="chart over-time"')
    assert chart < text.index('<path class="field"') < text.index('<path class="band"')


def test_an_old_reference_is_said_and_has_no_field_interval() -> None:
    old, before = older(sample_reference()), sample_report()
    facts = replace(facts_of(old), headline="consensus")
    window = before.segments[0]
    estimates = {name: one for name, one in window.results.items() if name != "adaptive"}
    report = replace(before, reference=facts, segments=(replace(window, results=estimates, field=()),))
    site = replace(sample_site({MODEL: report}), reference=lambda _: old)
    text = text_of(model_page, site, name=MODEL)
    assert "was made by an older version of cpcmon, without what adaptive and the field interval need" in text
    assert re.search(r"<dt>Field interval</dt><dd class=\"figure\">cannot say", text)
    assert "<small>by consensus</small>" in text
    assert 'class="field"' not in text
    assert "run `cpcmon calibrate` again" in text_of(overview_page, site)


def test_a_window_without_an_estimate_has_no_number_and_no_all_clear() -> None:
    text = _page(segment="site=Dresden")
    assert 'class="verdict unknown"' in text
    assert "Collecting its first records" in text
    assert "The accuracy is unknown now" in text
    figures = re.findall(
        r'<div class="fact" data-shown="(?:estimate|interval|drop)">.*?class="figure">(.*?)</dd>', text
    )
    assert figures == ["unknown"]
    assert ">✓ No alert" not in text.split("</h1>")[0]


def test_a_held_alert_is_at_the_top() -> None:
    head = text_of(model_page, site_of(three_models()), name="density", segment="site=Fulda").split("</h1>")
    assert "alert, critical" in head[0]
    assert "cannot be evaluated now and stays" in head[1]


def test_the_reference_is_linked_where_it_has_a_page() -> None:
    assert 'href="/reference?name=density"' in _page()
    assert "/reference?" not in text_of(model_page, site_of({"density": sample_report()}), name="density")


def test_segments_are_linked_worst_first_and_keep_the_span() -> None:
    text = _page(span="days")
    listed = re.search(r'<nav aria-label="Segments".*?</nav>', text, re.DOTALL)
    assert listed is not None
    links = re.findall(r'href="([^"]*)"', listed[0])
    assert links[:2] == [
        "/model?name=density&amp;span=days",
        "/model?name=density&amp;segment=site%3DBonn%2Cscanner%3D2&amp;span=days",
    ]
    assert len(links) == len(sample_report().segments)
    assert "<details" not in listed[0]


def test_less_urgent_segments_are_folded() -> None:
    many = [segment(f"S{index:03}", WindowState.OK, estimated(0.9), low(AlertPhase.OK, 0.9)) for index in range(120)]
    many.append(segment("Worst", WindowState.OK, estimated(0.5), low(AlertPhase.FIRING, 0.5)))
    report = replace(three_models()["triage"], segments=(segment(None, WindowState.OK, estimated(0.9)), *many))
    text = text_of(model_page, site_of({"triage": report}), name="triage")
    seen, hidden = re.findall(r'<ul class="choices segments">(.*?)</ul>', text)
    assert seen.count("<li") == MOST_VISIBLE
    assert hidden.count("<li") == 122 - MOST_VISIBLE
    assert "site Worst" in seen.split("<li")[2]


def test_every_estimator_is_in_one_family() -> None:
    families = vars(ENVIRONMENT.get_template("families.html").module)["families"]
    names = [name for _, members, *_ in families for name in members]
    known = {form.name for member in ESTIMATORS for form in member.forms()} | {"consensus", "adaptive"}
    assert sorted(names) == sorted(known)


def test_all_estimators_have_value_interval_and_chart() -> None:
    shifted = next(one for one in sample_report().segments if one.segment == SHIFTED)
    text = _page(segment=_SHIFTED)
    shown = re.findall(r'<tr data-estimator="(\w+)">(.*?)</tr>', text)
    assert next(name for name, _ in shown) == "adaptive"
    assert {name for name, _ in shown} == set(shifted.results)
    for name, row in shown:
        result = shifted.results[name]
        assert isinstance(result, Estimate)
        assert result.interval is not None
        assert f"<b>{result.accuracy:.1%}</b>" in row
        assert f"{result.interval.lower:.1%} to {result.interval.upper:.1%}" in row
        assert "<svg" in row


def test_an_estimator_without_an_estimate_has_a_reason() -> None:
    assert set(REASONS) == set(Why)
    assert "none: all prediction sets are empty" in _page()


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_the_history_table_is_bounded_and_newest_first(count: int) -> None:
    series = sample_series(Span.RECENT)
    end = len(series)
    kept = slice(max(0, end - count), end)
    part = Series(
        series.at[kept],
        series.states[kept],
        series.accuracy[kept],
        series.lower[kept],
        series.upper[kept],
        series.lowest[kept],
        series.disagreement[kept],
        series.records[kept],
    )
    site = replace(sample_site(), history=lambda *_: part)
    rows = re.findall(r'<tr data-at><th scope="row">(.*?)</th>', text_of(model_page, site, name="density"))
    assert len(rows) == min(len(part), MOST_ROWS)
    assert rows == sorted(rows, reverse=True)


def test_spans_without_an_estimate_are_explained() -> None:
    text = _page(segment=_SHIFTED)
    assert f"Shaded: {STATES[WindowState.WARMING]}; {STATES[WindowState.DEGRADED_INPUT]}" in text


def test_a_new_reference_is_in_the_legend_the_text_and_the_table() -> None:
    series = sample_series(Span.RECENT)
    first = len(series) - 5
    site = replace(
        sample_site(), history=lambda *_: replace(series, references=("a",) * first + ("b",) * (len(series) - first))
    )
    text = text_of(model_page, site, name="density")
    assert "other reference from here on; reference accuracy and thresholds" in text
    assert f"Another reference was in use from {clock(float(series.at[first]))} on" in text
    (row,) = re.findall(r"<tr data-at>(?:(?!</tr>).)*other reference from here on.*?</tr>", text)
    assert f'<th scope="row">{clock(float(series.at[first]))}</th>' in row
    assert text.count('class="replaced"') == 3, "for screens, for phones, and in the legend"
    assert "other reference" not in _page()
    assert "Another reference" not in _page()


def test_a_window_without_history_has_a_text() -> None:
    text = text_of(model_page, site_of({"density": sample_report()}), name="density")
    assert "No evaluation of this window is stored for this time span" in text


def test_the_whole_model_lists_what_fired_in_every_window_and_a_segment_its_own() -> None:
    whole, bonn = (
        [row for row in Reader(_section(text, "What fired, and for how long")).rows[1:] if row]
        for text in (_page(), _page(segment="site=Bonn"))
    )
    assert {row[1] for row in whole} == {"site Bonn, scanner 2", "site Essen", "site Bonn"}
    assert [row[0].split()[0] for row in bonn] == ["accuracy_low"]
    assert bonn[0][2:5] == ["25 hours", "74.1%", "84.3%"]


def test_quiet_alerts_are_listed_with_their_runbook() -> None:
    rows = {
        row[0].split()[0]: row for row in Reader(_page(segment=_SHIFTED)).rows if row and "docs/runbooks" in row[-1]
    }
    assert rows["silent"][1:3] == ["✓ quiet", "never changed"]
    assert rows["accuracy_low"][1] == "▲ firing"
    assert rows["accuracy_low"][-1] == "runbook docs/runbooks/accuracy.md"
    assert rows["estimators_disagree"][-1] == "runbook docs/runbooks/disagreement.md"


@pytest.mark.parametrize("upward", [False, True])
@pytest.mark.parametrize(("page", "places"), [(model_page, 2), (overview_page, 1)])
def test_a_runbook_is_a_link_or_a_path(page: PageFunction, places: int, *, upward: bool) -> None:
    """Low and high accuracy have different runbooks."""
    alert = replace(low(AlertPhase.FIRING, 0.7), upward=upward)
    report = replace(sample_report(), segments=(segment(None, WindowState.OK, estimated(0.7), alert),))
    name = "accuracy_high.md" if upward else "accuracy.md"

    def text_with(runbooks: str | None) -> str:
        return text_of(page, site_of({"density": report}, links=lambda: Links(runbooks)), name="density")

    link = f'<a href="https://wiki.example/&lt;b&gt;/{name}" rel="noreferrer">runbook {name}</a>'
    assert text_with("https://wiki.example/<b>").count(link) == places
    assert text_with(None).count(f"runbook <code>docs/runbooks/{name}</code>") == places


def test_history_and_reference_are_linked_as_json() -> None:
    link = "/api/v1/history?model=density&segment=site%3DBonn%2Cscanner%3D2&span=days"
    assert link in [tag.get("href") for _, tag in Reader(_page(segment=_SHIFTED, span="days")).tags]
    text = text_of(reference_page, sample_site(), name="density")
    assert "/api/v1/reference?model=density" in [tag.get("href") for _, tag in Reader(text).tags]
    assert "/api/v1/history" not in text_of(model_page, sample_site(), name="triage")


def test_disagreement_is_compared_with_chance() -> None:
    assert "▲ More than chance explains" in _page(segment=_SHIFTED)
    assert "✓ No more than chance explains" in _page(segment="site=Aachen")


def test_of_many_classes_some_are_shown() -> None:
    names = tuple(f"class {index}" for index in range(30))
    facts = ReferenceFacts("1", "2026", "ab", names, 3000, 0.9, 1.0, 0.9, (100,) * 30)
    window = replace(segment(None, WindowState.OK, estimated(0.9)), predicted=(100,) * 29 + (900,))
    text = text_of(model_page, site_of({"m": Report("m", NOW, 0.1, facts, (window,))}), name="m")
    assert "The 20 of 30 classes that changed most." in text
    assert "class 29" in text


def _section(text: str, title: str) -> str:
    (found,) = re.findall(rf"<section[^>]*><h2>{title}</h2>.*?</section>", text, re.DOTALL)
    assert isinstance(found, str)
    return found


def _detector_page(report: Report, reference: Reference | None = None) -> str:
    site = sample_site({DETECTOR: report})
    return text_of(
        model_page, site if reference is None else replace(site, reference=lambda _: reference), name=DETECTOR
    )


def test_each_metric_has_value_interval_reference_and_chart() -> None:
    report = detector_report()
    section = _section(_detector_page(report), "Performance")
    assert "for a device that decides cancer at 0.13 or above" in section
    window, own = report.segments[0], detector_reference().calibration.performance
    assert own is not None
    values, _ = own.own.values([one.target for one in window.performance])
    rows = re.findall(r"<tr data-metric.*?</tr>", section)
    # The class of the threshold is first, and the other one is folded, after the averages.
    shown = sorted(
        zip(window.performance, values[:, 0], strict=True), key=lambda one: (1, None, 0).index(one[0].target.of_class)
    )
    assert len(rows) == len(shown) == 16
    for row, (one, reference) in zip(rows, shown, strict=True):
        assert one.value is not None
        assert one.interval is not None
        assert f'<tr data-metric="{one.target.metric}">' in row
        for expected in (one.value, one.interval.lower, one.interval.upper, reference):
            assert f"{expected:.1%}" in row
        assert "<svg" in row
        assert ("↓" in row or "↑" in row) == (not one.interval.lower <= reference <= one.interval.upper)
    assert "↑" in section, "the prevalence has doubled"


def test_a_metric_with_too_few_cases_has_none_and_says_how_many_are_needed() -> None:
    rows = Reader(_detector_page(detector_report(records=60))).rows
    (row,) = {tuple(row) for row in rows if row[0] == "AUROC"}
    assert re.fullmatch(r"cannot say: too few cases \(\d expected, 10 needed\)", row[1])


def test_the_threshold_of_an_alert_on_a_metric_is_drawn_beside_the_metric() -> None:
    report = detector_report()
    upper = next(
        one.interval.upper
        for one in report.segments[0].performance
        if one.target == (Metric.SENSITIVITY, 1) and one.interval
    )
    alert = replace(
        low(AlertPhase.FIRING, upper),
        threshold=0.99,
        alert="misses",
        estimator=None,
        metric=Metric.SENSITIVITY,
        of_class="cancer",
    )
    window = replace(report.segments[0], alerts=(alert,))
    text = _detector_page(replace(report, segments=(window,)))
    assert "misses (critical): upper end of the estimated sensitivity of cancer" in text
    assert [row[0] for row in Reader(_section(text, "Alerts of this window")).rows if "misses" in row[0]] == [
        "misses critical, sensitivity of cancer"
    ]
    section = _section(text, "Performance")
    assert section.count("alert threshold 99.0%") == section.count('class="threshold"') == 1
    assert text.count('class="threshold"') == 1, "not over time, where the accuracy is"


def test_too_few_cases_in_the_reference_are_named() -> None:
    likely, truth = detected(1000, 1, prevalence=0.006)
    reference = Reference.calibrate(likely, truth, model=DETECTOR, classes=("benign", "cancer"))
    text = _detector_page(detector_report(4000, reference), reference)
    assert f"cannot say: too few cases in the reference ({truth.sum()}, 10 needed)" in text


def test_a_reference_of_format_1_is_to_be_calibrated_again() -> None:
    reference = detector_reference()
    old = replace(reference, calibration=replace(reference.calibration, performance=None))
    text = _detector_page(detector_report(reference=old), old)
    assert "<code>cpcmon calibrate</code> again to see sensitivity" in _section(text, "Performance")
    assert "Class mix" not in text


def test_performance_of_many_classes_is_folded_and_needs_watched_classes() -> None:
    assert "<details" not in _section(_page(), "Performance")
    likely, truth = (np.repeat(one, 2, axis=-1) for one in outputs(2000, 3))
    likely, truth = likely / 2.0, truth[::2] * 2
    names = tuple(f"class {index}" for index in range(8))
    reference = Reference.calibrate(likely, truth, model=DETECTOR, classes=names)
    section = _section(_detector_page(detector_report(reference=reference, likely=likely), reference), "Performance")
    assert "Each of 8 classes" in section
    none = replace(sample_report(), segments=[replace(one, performance=()) for one in sample_report().segments])
    assert "<code>watch_classes</code>" in _section(
        text_of(model_page, sample_site({"density": none}), name="density"), "Performance"
    )


def test_the_class_mix_is_beside_the_reference_and_the_decisions() -> None:
    report = detector_report()
    section = _section(_detector_page(report), "Class mix")
    window, own = report.segments[0], detector_reference().calibration.performance
    assert own is not None
    share = window.class_mix[1]
    assert share is not None
    assert 0.06 < share.value < 0.10
    rows = {row[0]: row[1:] for row in Reader(section).rows if row}
    interval = f"{share.interval.lower:.1%} to {share.interval.upper:.1%}"
    before, decided = own.cases[1] / own.records, window.predicted[1] / window.records
    assert rows["cancer"][:4] == [f"{share.value:.1%}", interval, f"{before:.1%}", f"{decided:.1%}"]
    assert "if nothing but the class mix changed" in section
    assert "off by 17 to 23 points" in section


def test_input_problems_and_hints_are_shown() -> None:
    problems = replace(
        sample_report(), input=InputFacts(0.2, degraded=True, one_hot=True, constant=True, hints=("hint",))
    )
    text = text_of(model_page, site_of({"density": problems}), name="density")
    for expected in ("<li>hint</li>", "the sender may send the answer", "may be stuck", "20.0%"):
        assert expected in text


def test_how_the_device_decides_is_shown_unless_by_argmax() -> None:
    for decision, words in ((Decision.at(1, 0.13), "malignant at 0.13 or above"), (Decision(), None)):
        report = three_models()["triage"]
        assert report.reference is not None
        report = replace(report, reference=replace(report.reference, decision=decision))
        text = text_of(model_page, site_of({"triage": report}), name="triage")
        assert ("The device decides" in text) == (words is not None)
        assert (words or "") in text


def test_hostile_names_are_escaped() -> None:
    alert = AlertStatus(
        HOSTILE, AlertType.ACCURACY, Severity.CRITICAL, AlertPhase.FIRING, NOW - 60.0, False, HOSTILE, 0.8, 0.7
    )
    window = SegmentReport(
        ((HOSTILE, HOSTILE),),
        500,
        WindowState.OK,
        {**estimated(0.7), HOSTILE: NoEstimate(Why.ERROR, 500)},
        0.1,
        0.02,
        (300, 200),
        NOW,
        NOW,
        (alert,),
    )
    facts = ReferenceFacts(HOSTILE, HOSTILE, HOSTILE, (HOSTILE, f"{HOSTILE}2"), 100, 0.9, 1.0, 0.9, (50, 50))
    problems = InputFacts(hints=(HOSTILE,))
    whole = segment(None, WindowState.OK, estimated(0.9))
    report = Report(HOSTILE, NOW, 0.1, facts, (whole, window), problems, errors={HOSTILE: 1})
    site = replace(sample_site({HOSTILE: report}), history=lambda *_: sample_series(Span.RECENT))
    for name in ("all", window.name):
        text = text_of(model_page, site, name=HOSTILE, segment=name)
        reader = Reader(text)
        assert "<script>alert" not in text
        assert [found for tag, found in reader.tags if tag == "script"] == [
            found for tag, found in Reader(_page()).tags if tag == "script"
        ]
        assert not any(name.startswith("on") for _, found in reader.tags for name in found)
