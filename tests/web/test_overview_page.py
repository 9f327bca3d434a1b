"""The overview: order, escaping, bounds, and never an all-clear without an estimate."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from monitor.core.alerts import AlertPhase, Severity
from monitor.core.estimate import WindowState
from monitor.core.report import Report
from monitor.sources.base import Lag, ShardStatus, SourceStatus
from monitor.web.pages.overview import LEAST_ROWS, MOST_ALERTS, MOST_ROWS, MOST_ROWS_IN_ALL, overview_page
from monitor.web.pages.status import Urgency, ranked, urgency_of, worst_severity
from monitor.web.pages.wording import STATES, ago, moment
from monitor.web.site import SourceView
from tests.web.reading import Reader, site_of, text_of
from tests.web.sample_reports import NOW, apart, estimated, low, segment, three_models
from tests.web.sample_site import sample_site


def _read(**changes: object) -> tuple[str, Reader]:
    text = text_of(overview_page, site_of(three_models(), **changes))  # type: ignore[arg-type]
    return text, Reader(text)


def _quiet_report() -> Report:
    one = segment(None, WindowState.OK, estimated(0.93), low(AlertPhase.OK))
    return replace(three_models()["triage"], segments=(one,))


def test_the_most_urgent_comes_first() -> None:
    """Models and segments, after the whole model."""
    text, page = _read()
    assert re.findall(r'<h2><a href="/model\?name=(\w+)">', text) == ["density", "nodules", "triage"]
    rows = [tag for name, tag in page.tags if name == "tr" and "data-model" in tag]
    assert [(row["data-model"], row["data-segment"]) for row in rows] == [
        ("density", "all"), ("density", "site=Bonn"), ("density", "site=Fulda"), ("density", "site=Dresden"),
        ("density", "site=Celle"), ("density", "site=Essen"), ("density", "site=Gera"), ("density", "site=Aachen"),
        ("nodules", "all"), ("triage", "all"),
    ]  # fmt: skip
    body = [row for row in page.rows if row[0] != "Window"]
    assert [row[1].split(" ", 1)[0] for row in body] == ["◆", "▲", "▲", "▲", "◆", "?", "?", "✓", "?", "–"]
    assert "<title>▲ 3 firing – Overview – cpcmon</title>" in text


def test_alerts_that_ended_in_the_last_day_are_listed_latest_first() -> None:
    text = text_of(overview_page, sample_site())
    listed = re.findall(r'<li class="ended">.*?</li>', text, re.DOTALL)
    gone, resolved = (re.sub(r"<.*?>", "", one) for one in listed)
    assert "density, site Essen silent: gone" in gone
    assert "fired for 7 hours" in gone
    assert "density, site Bonn accuracy_low (critical): resolved" in resolved
    assert "fired for 25 hours; estimated accuracy 74.1% when it fired, 84.3% when it ended." in resolved
    # A window that no longer exists has no page.
    assert [one.replace("&amp;", "&") for one in re.findall(r'href="(.*?)"', "".join(listed))] == [
        "/model?name=density",
        "/model?name=density&segment=site%3DBonn",
    ]


@pytest.mark.parametrize("phase", [AlertPhase.PENDING, AlertPhase.FIRING, AlertPhase.RECOVERING])
def test_an_info_alert_is_no_emergency(phase: AlertPhase) -> None:
    """In the title, badge, headline, counts, list and row."""
    info = segment("A", WindowState.OK, estimated(0.93), low(AlertPhase.OK), apart(phase))
    report = replace(
        three_models()["triage"], segments=(segment(None, WindowState.OK, estimated(0.93), low(AlertPhase.OK)), info)
    )
    text = text_of(overview_page, site_of({"triage": report}))
    assert "<title>Overview – cpcmon</title>" in text
    assert '<div class="verdict info"><span class="sign" aria-hidden="true">○</span>' in text
    assert '<li class="info"><b>1</b> ○ Info</li>' in text
    assert '<li class="info"><b class="urgency">○ Info</b>' in text
    assert '<tr class="info" data-model="triage" data-segment="site=A" data-urgency="info">' in text
    assert not re.search(r'class="(alert|pending)\b|▲|◆', text)


def test_an_info_alert_is_listed_after_a_pending_one() -> None:
    both = segment("A", WindowState.OK, estimated(0.78), apart(AlertPhase.FIRING), low(AlertPhase.PENDING, 0.79))
    text = text_of(overview_page, site_of({"triage": replace(three_models()["triage"], segments=(both,))}))
    assert re.findall(r'<li class="(\w+)"><b class="urgency">', text) == ["pending", "info"]


def test_equally_urgent_segments_are_ordered_by_margin() -> None:
    """To the threshold; without one, to the reference."""
    density = three_models()["density"]
    fired = [
        segment(name, WindowState.OK, estimated(at), low(AlertPhase.FIRING, at))
        for name, at in (("A", 0.76), ("B", 0.7))
    ]
    watched = [segment(name, WindowState.OK, estimated(at)) for name, at in (("C", 0.86), ("D", 0.81))]
    report = replace(density, segments=(*watched, *fired))
    assert [one.name for one in ranked(report)] == ["site=B", "site=A", "site=D", "site=C"]


def test_a_row_has_the_verdict_and_the_baseline() -> None:
    """Neither a drifted nor an unverified window looks fine."""
    rows = {row[0]: row for row in Reader(text_of(overview_page, sample_site())).rows}
    drifted, unverified, labelled = (rows[f"site {one}"] for one in ("Celle, scanner 1", "Bonn, scanner 1", "Aachen"))
    assert drifted[1].startswith("◆ Pending, warning Evaluated for 3 hours The estimate holds, but the outputs drifted")
    assert "heterogeneous: 18.2% of the answers then, 0.0% now." in drifted[1]
    assert unverified[1].startswith("◌ No alert, baseline unverified")
    assert unverified[3].startswith("own baseline 86.0% of 2,000, unverified reference 87.0%")
    assert labelled[1].startswith("✓ No alert")
    assert labelled[3].startswith("labelled baseline 84.0% of 1,234 reference 87.0%")
    collecting = rows["site Celle, scanner 2"]
    assert collecting[3].startswith("collecting its own baseline: 1,200 of 2,000 records")


def test_a_firing_window_shows_value_interval_threshold_and_time() -> None:
    _, page = _read()
    bonn = next(row for row in page.rows if row[0] == "site Bonn")
    assert bonn[1].startswith("▲ Alert, critical accuracy_low firing since 2025-11-16 12:03 UTC (90 minutes ago)")
    assert bonn[2].startswith("74.2% 71.2% to 77.2%")
    assert bonn[3] == "reference 87.1% threshold 80.0%"
    assert bonn[4] == "1,800 newest just now"
    labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg" and "aria-label" in attributes]
    assert labels[1] == ("estimated accuracy 74.2%, between 71.2% and 77.2%, baseline 87.1%, alert threshold 80.0%")


def test_alerts_are_listed_firing_before_pending() -> None:
    text, page = _read()
    items = re.findall(r'<li class="(alert|pending)"><b class="urgency">.*?data-key="alert density (.*?) (\w+)"', text)
    assert items == [
        ("alert", "site=Bonn", "accuracy_low"), ("alert", "site=Fulda", "accuracy_low"),
        ("alert", "site=Dresden", "silent"), ("pending", "site=Celle", "accuracy_low"),
    ]  # fmt: skip
    assert "/model?name=density&segment=site%3DBonn" in [tag.get("href") for _, tag in page.tags]
    (first,) = re.findall(r"<span>(accuracy_low .*?77.2%.*?)</span></li>", text)
    assert re.sub("<.*?>", "", first) == (
        "accuracy_low (critical): upper end of the estimated accuracy, 77.2%, is under the threshold of 80.0%;"
        " firing since 2025-11-16 12:03 UTC (90 minutes ago). What to do: runbook docs/runbooks/accuracy.md"
    )


def test_an_empty_alert_list_is_no_all_clear_without_estimates() -> None:
    triage = three_models()["triage"]
    quiet = segment("A", WindowState.OK, estimated(0.93), low(AlertPhase.OK))
    unknown = segment("B", WindowState.STALE, None, low(AlertPhase.OK))
    for segments, expected in (
        (triage.segments, "No alert is configured"),
        ((quiet, unknown), "1 window cannot be evaluated: this is no all-clear"),
        ((quiet,), "No alert fires, and none is pending."),
    ):
        assert expected in text_of(overview_page, site_of({"m": replace(triage, segments=segments)}))


def test_too_many_alerts_are_cut_and_counted() -> None:
    lesser = replace(low(AlertPhase.FIRING, 0.77), severity=Severity.WARNING)
    crowd = [segment(f"S{number}", WindowState.OK, estimated(0.7), lesser) for number in range(MOST_ALERTS)]
    worst = segment("worst", WindowState.OK, estimated(0.7), low(AlertPhase.FIRING, 0.72))
    text = text_of(overview_page, site_of({"m": replace(three_models()["triage"], segments=(*crowd, worst))}))
    assert text.count('<li class="alert"><b class="urgency">') == MOST_ALERTS
    assert text.index("alert triage site=worst") < text.index("alert triage site=S0 ")
    assert "… and 1 more, none more urgent" in text


def test_the_start_of_a_state_is_shown_when_known() -> None:
    density = three_models()["density"]
    fine, unknown = (replace(one, state_since=NOW - 7200.0) for one in (density.segments[1], density.segments[5]))
    page = Reader(text_of(overview_page, site_of({"m": replace(density, segments=(fine, unknown))})))
    status = {row[0]: row[1] for row in page.rows}
    assert "Evaluated for 2 hours" in status["site Aachen"]
    titles = [tag.get("title") for name, tag in page.tags if name == "small"]
    assert "since 2025-11-16 11:33 UTC (2 hours ago)" in titles
    assert "Collecting its first records; since 2025-11-16 11:33 UTC (2 hours ago)" in status["site Essen"]
    assert (
        "ince"
        not in Reader(text_of(overview_page, site_of({"m": replace(density, segments=density.segments[5:6])}))).rows[1][
            1
        ]
    )


def test_an_unevaluated_model_is_shown_as_unknown() -> None:
    site = site_of({"m": _quiet_report()}, waits=["lung has not been evaluated yet"], unevaluated=["lung"])
    text = text_of(overview_page, site)
    assert '<section class="model unknown" data-model="lung">' in text
    assert '<div class="verdict unknown">' in text


def test_sources_show_status_backlog_and_rejections() -> None:
    """Waiting sources first."""
    sources = [
        SourceView(SourceStatus("inbox", "directory", None, Lag(1_234_567, 3, NOW - 120.0)), 9_900, 100),
        SourceView(
            SourceStatus("topic", "kafka", "kafka b:9092: waiting to join group g", shards=ShardStatus(assigned=4))
        ),
        SourceView(SourceStatus("other", "kafka", None, Lag(files=1, rebuilding=True), ShardStatus(assigned=1)), 10),
    ]
    page = Reader(text_of(overview_page, site_of({"m": _quiet_report()}, sources=lambda: sources)))
    rows = page.rows[-3:]
    assert rows[0][:3] == [
        "topic kafka, 4 partitions assigned",
        "? Waiting kafka b:9092: waiting to join group g",
        "unknown",
    ]
    assert rows[1][1:] == [
        "ready", "1.2 MB in 3 files oldest since 2025-11-16 13:31 UTC (2 minutes ago)", "9,900", "100 1.0%"
    ]  # fmt: skip
    assert rows[2][1].startswith("? Rebuilding")
    assert rows[2][2] == "1 partition"


def test_disagreement_above_chance_is_shown() -> None:
    report = _quiet_report()
    apart = replace(report, segments=(replace(report.segments[0], disagreement=0.06),))
    assert "disagree by 6.0 points; chance explains up to 2.0" in text_of(overview_page, site_of({"m": apart}))
    assert "disagree by" not in text_of(overview_page, site_of({"m": report}))


@pytest.mark.parametrize("state", [state for state in WindowState if state is not WindowState.OK])
def test_a_window_without_an_estimate_has_no_number_and_no_all_clear(state: WindowState) -> None:
    """Even if the report contains results."""
    report = three_models()["triage"]
    unknown = segment("X", state, estimated(0.99), low(AlertPhase.OK))
    text = text_of(overview_page, site_of({"m": replace(report, segments=(unknown,))}))
    row = Reader(text).rows[1]
    assert urgency_of(unknown) is Urgency.UNKNOWN
    assert row[1].startswith(Urgency.UNKNOWN.heading)
    assert STATES[state] in row[1]
    assert row[2] == "none"
    assert "99.0%" not in text
    assert Urgency.FINE.heading not in text
    assert Urgency.FINE.sign not in text


def test_too_many_segments_are_cut_and_counted() -> None:
    report = three_models()["density"]
    fine = tuple(segment(f"s{number}", WindowState.OK, estimated(0.87), low(AlertPhase.OK)) for number in range(1000))
    loud = segment("loud", WindowState.OK, estimated(0.7), low(AlertPhase.FIRING, 0.72))
    text = text_of(overview_page, site_of({"m": replace(report, segments=(*fine, loud))}))
    rows = Reader(text).rows
    assert len(rows) == MOST_ROWS + 1
    assert rows[1][0] == "site loud"
    assert f"and {1001 - MOST_ROWS} more segments" in text


def test_with_many_models_each_keeps_its_most_urgent_rows() -> None:
    fine = tuple(segment(f"s{number}", WindowState.OK, estimated(0.87), low(AlertPhase.OK)) for number in range(300))
    reports = {f"m{one:02}": replace(three_models()["density"], model=f"m{one:02}", segments=fine) for one in range(20)}
    tags = Reader(text_of(overview_page, site_of(reports))).tags
    rows = Counter(tag["data-model"] for name, tag in tags if name == "tr" and "data-model" in tag)
    assert rows["m00"] == MOST_ROWS
    assert rows["m19"] == LEAST_ROWS
    assert rows.total() <= MOST_ROWS_IN_ALL + len(reports) * LEAST_ROWS


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "just now"), (59, "just now"), (60, "1 minute ago"), (7199, "119 minutes ago"), (7200, "2 hours ago"),
     (172_800, "2 days ago"), (-30, "just now"), (-120, "in the future")],
)  # fmt: skip
def test_times_are_relative_and_absolute(seconds: float, expected: str) -> None:
    assert ago(seconds) == expected
    assert moment(NOW - seconds, NOW).endswith(f" UTC ({expected})")


def test_an_impossible_time_is_formatted() -> None:
    assert moment(1e300, NOW) == "an impossible time"


def test_critical_alerts_come_before_info_alerts() -> None:
    info = replace(low(AlertPhase.FIRING, 0.77), alert="unsure", severity=Severity.INFO)
    crowd = [segment(f"S{number:03}", WindowState.OK, estimated(0.86), info) for number in range(MOST_ROWS)]
    failing = segment("Zwolle", WindowState.OK, estimated(0.75), info, low(AlertPhase.FIRING, 0.77))
    density = replace(three_models()["density"], segments=(*crowd, failing))
    name, status, *_ = Reader(text_of(overview_page, site_of({"density": density}))).rows[1]
    assert name == "site Zwolle"
    assert status.startswith("▲ Alert, critical accuracy_low firing")


def test_the_severity_of_the_heading_is_that_of_the_firing_alert() -> None:
    info = replace(low(AlertPhase.FIRING, 0.77), alert="unsure", severity=Severity.INFO)
    mixed = segment("A", WindowState.OK, estimated(0.86), low(AlertPhase.PENDING, 0.79), info)
    assert worst_severity(mixed) is Severity.INFO
