"""The overview: well-formed, escaped, and never an all-clear where nothing is known."""

import re
from dataclasses import replace

import pytest

from monitor.core.alerts import Phase, Severity
from monitor.core.report import InputFacts
from monitor.core.window_state import WindowState
from monitor.web.assets import MARK
from monitor.web.overview_page import MOST_ROWS, overview_page
from monitor.web.words import HEADINGS, STATES, Mood, ago, moment, mood_of, worst_severity
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW, estimated, low, segment, three_models


def _read(**changes: object) -> tuple[str, Reader]:
    text = text_of(overview_page, site_of(three_models(), **changes))  # type: ignore[arg-type]
    return text, Reader(text)


def test_what_somebody_should_look_at_comes_first() -> None:
    """Models and segments alike."""
    text, page = _read()
    assert re.findall(r"<h2>(\w+)</h2>", text) == ["density", "nodules", "triage"]
    body = [row for row in page.rows if row[0] != "Segment"]
    assert [row[0] for row in body[:8]] == [
        "site Bonn", "site Fulda", "site Dresden", "site Celle", "site Essen", "site Gera", "all records", "site Aachen"
    ]  # fmt: skip
    assert [row[1].split(" ", 1)[0] for row in body] == ["▲", "▲", "▲", "◆", "?", "?", "✓", "✓", "?", "–"]
    assert "<title>▲ 3 firing – Overview – cpcmon</title>" in text


def test_a_firing_site_shows_value_interval_threshold_and_since_when() -> None:
    """In words, and drawn with a text for those who do not see it."""
    _, page = _read()
    bonn = next(row for row in page.rows if row[0] == "site Bonn")
    assert bonn[1].startswith(
        "▲ Alert, critical accuracy_low (critical): upper end of the estimated accuracy, 77.2%, is under the threshold of 80.0%;"
        " firing since 2025-11-16 12:03 UTC (90 minutes ago)"
    )
    assert bonn[2].startswith("74.2% 71.2% to 77.2%")
    assert bonn[5] == "2025-11-16 13:32 UTC just now"
    labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg" and "aria-label" in attributes]
    assert labels[0] == ("estimated accuracy 74.2%, between 71.2% and 77.2%, reference 87.1%, alert threshold 80.0%")


@pytest.mark.parametrize("state", [state for state in WindowState if state is not WindowState.OK])
def test_where_nothing_can_be_said_there_is_no_all_clear_and_no_number(state: WindowState) -> None:
    """Even if results were left in the report; why is said in words."""
    report = three_models()["triage"]
    unknown = segment("X", state, estimated(0.99), low(Phase.OK))
    text = text_of(overview_page, site_of({"m": replace(report, segments=(unknown,))}))
    row = Reader(text).rows[1]
    assert mood_of(unknown) is Mood.UNKNOWN
    assert row[1].startswith(HEADINGS[Mood.UNKNOWN])
    assert STATES[state] in row[1]
    assert row[2] == "none"
    assert "99.0%" not in text
    assert HEADINGS[Mood.FINE] not in text


def test_everything_that_comes_from_outside_is_escaped() -> None:
    """Names of models, segments, alerts and versions, and hints."""
    evil = "<script>alert('\"&')</script>"
    report = three_models()["density"]
    assert report.reference is not None
    spoilt = replace(
        report,
        model=evil,
        reference=replace(report.reference, version=evil),
        segments=(segment(evil, WindowState.OK, estimated(0.7), replace(low(Phase.FIRING), alert=evil)),),
        input=InputFacts(hints=(evil,)),
        errors={evil: 3},
    )
    text = text_of(overview_page, site_of({evil: spoilt}, version=evil, problems=[evil]))
    assert [tag["src"] for name, tag in Reader(text).tags if name == "script"] == [f"/static/cpcmon.js?v={MARK}"]
    assert "<script>" not in text
    assert text.count("&lt;script&gt;") >= 8


def test_very_many_segments_are_cut_after_the_urgent_ones() -> None:
    """And what was left out is counted."""
    report = three_models()["density"]
    fine = tuple(segment(f"s{number}", WindowState.OK, estimated(0.87), low(Phase.OK)) for number in range(1000))
    loud = segment("loud", WindowState.OK, estimated(0.7), low(Phase.FIRING, 0.72))
    text = text_of(overview_page, site_of({"m": replace(report, segments=(*fine, loud))}))
    rows = Reader(text).rows
    assert len(rows) == MOST_ROWS + 1
    assert rows[1][0] == "site loud"
    assert f"and {1001 - MOST_ROWS} more segments" in text


def test_no_model_yet_is_said() -> None:
    """Right after the start."""
    assert "No model has been evaluated yet." in text_of(overview_page, site_of({}))


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "just now"), (59, "just now"), (60, "1 minute ago"), (7199, "119 minutes ago"), (7200, "2 hours ago"),
     (172_800, "2 days ago"), (-30, "just now"), (-120, "in the future")],
)  # fmt: skip
def test_times_are_said_as_people_do(seconds: float, said: str) -> None:
    """Beside the absolute one."""
    assert ago(seconds) == said
    assert moment(NOW - seconds, NOW).endswith(f" UTC ({said})")


def test_an_impossible_time_breaks_nothing() -> None:
    """It came from outside."""
    assert moment(1e300, NOW) == "an impossible time"


def test_critical_alerts_come_before_informative_ones() -> None:
    """Or one site that fails would stand behind two hundred on which the estimators merely disagree."""
    info = replace(low(Phase.FIRING, 0.77), alert="unsure", severity=Severity.INFO)
    crowd = [segment(f"S{number:03}", WindowState.OK, estimated(0.86), info) for number in range(MOST_ROWS)]
    failing = segment("Zwolle", WindowState.OK, estimated(0.75), info, low(Phase.FIRING, 0.77))
    density = replace(three_models()["density"], segments=(*crowd, failing))
    name, said, *_ = Reader(text_of(overview_page, site_of({"density": density}))).rows[1]
    assert name == "site Zwolle"
    assert said.startswith("▲ Alert, critical accuracy_low (critical)")


def test_a_critical_alert_that_waits_does_not_pass_for_one_that_fires() -> None:
    """The severity beside the heading is of what fires."""
    info = replace(low(Phase.FIRING, 0.77), alert="unsure", severity=Severity.INFO)
    mixed = segment("A", WindowState.OK, estimated(0.86), low(Phase.PENDING, 0.79), info)
    assert worst_severity(mixed) is Severity.INFO
