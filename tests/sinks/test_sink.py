"""The last reports as a metrics page."""

import math
import re
import subprocess
import threading
import zlib
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from monitor.config.config import SegmentSeries
from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.change import Direction
from monitor.core.estimate import Estimate, WindowState
from monitor.core.estimators.ensemble import MEMBERS
from monitor.core.report import Report, SegmentReport
from monitor.core.segments import ALL
from monitor.sinks.manager import SinkManager
from monitor.sinks.notifications import WebhookSink
from monitor.sinks.prometheus_page import FAMILIES, MAX_CLASSES, MetricsPage, PageText, PrometheusSink, _written
from tests.sinks import reports
from tests.sinks.pages import families, samples

NEVER_ABSENT = ("cpcmon_window_records", "cpcmon_estimate_valid", "cpcmon_window_state", "cpcmon_alert_firing")
ONLY_WHEN_VALID = (
    "cpcmon_estimated_accuracy_ratio", "cpcmon_estimated_accuracy_lower_ratio", "cpcmon_estimated_accuracy_upper_ratio",
    "cpcmon_estimate_summed", "cpcmon_estimate_records", "cpcmon_estimator_disagreement_ratio",
    "cpcmon_estimator_chance_disagreement_ratio", "cpcmon_prediction_set_size", "cpcmon_prediction_set_empty_ratio",
    "cpcmon_predicted_class_ratio",
)  # fmt: skip


def _page(*published: Report) -> bytes:
    sink = PrometheusSink()
    for one in published:
        sink.publish(one)
    return bytes(sink.page())


class _Parsed:
    """A parsed page, for the library to write again."""

    def __init__(self, page: bytes) -> None:
        self._page = page

    def collect(self) -> list[Metric]:
        return list(text_string_to_metric_families(self._page.decode()))


def _lines(page: bytes) -> list[tuple[str, str | float]]:
    parted = [line.rpartition(" ") for line in page.decode().splitlines()]
    return [(start, end if start.startswith("#") else float(end)) for start, _, end in parted]


def test_the_library_would_write_the_same_page() -> None:
    """prometheus_client parses it and writes the same lines in the same order."""
    page = _page(reports.density(), reports.fresh())
    assert _lines(page) == _lines(generate_latest(_Parsed(page)))


def test_promtool_finds_nothing(promtool: Path) -> None:
    page = _page(reports.density(), reports.fresh())
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_d16_labels_with_quotes_newlines_and_backslashes_leave_a_page_that_parses(promtool: Path) -> None:
    """No two segments share a series: a duplicate would invalidate the whole page."""
    values = [
        '"',
        "\\",
        "\n",
        '\\"',
        "a\\nb",
        "a\nb",
        "\r\n# TYPE x gauge",
        "\x00",
        "\u2028",
        "\ud800",
        "x" * 5000,
        "é",
    ]
    hostile = replace(reports.REFERENCE, version='2"\n', classes=('"', "\\", "\n"))
    windows = [reports.window((("site", value),), alerts=(reports.accuracy_low(name=value),)) for value in values]
    twins = [reports.window((("site", "A,b=1"),)), reports.window((("site", "A"), ("b", "1")))]
    page = _page(replace(reports.report(*windows, *twins, model='den"s\\it\ny'), reference=hostile))
    checked = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
    assert sum(series.startswith("cpcmon_window_records{") for series in samples(page)) == len(windows) + len(twins)
    assert max(map(len, page.splitlines())) < 1000


def test_estimates_are_those_of_the_report() -> None:
    found = samples(_page(reports.report(reports.window(accuracy=0.875))))
    of_all = "estimator=adaptive,model=density,segment=all"
    assert found[f"cpcmon_estimated_accuracy_ratio{{{of_all}}}"] == 0.875
    assert found[f"cpcmon_estimated_accuracy_lower_ratio{{{of_all}}}"] == 0.875 - 0.03
    assert found[f"cpcmon_estimated_accuracy_upper_ratio{{{of_all}}}"] == 0.875 + 0.03
    assert found[f"cpcmon_estimate_summed{{{of_all}}}"] == 0.875 * 500
    assert found[f"cpcmon_estimate_records{{{of_all}}}"] == 500
    assert found["cpcmon_predicted_class_ratio{class=b,model=density,segment=all}"] == 0.3
    assert found["cpcmon_reference_predicted_class_ratio{class=a,model=density}"] == 0.55
    assert found["cpcmon_reference_confidence_ratio{model=density}"] == 0.94
    assert found["cpcmon_reference_class_position{class=b,model=density}"] == 1


@pytest.mark.parametrize("state", [state for state in WindowState if state not in {WindowState.OK, WindowState.ERROR}])
def test_a_window_without_an_estimate_has_only_status_series(state: WindowState) -> None:
    """Even if the report holds estimates."""
    alert = reports.accuracy_low(AlertPhase.FIRING, held=True)
    found = samples(_page(reports.report(replace(reports.window(alerts=(alert,)), state=state))))
    assert not [series for series in found if series.startswith(ONLY_WHEN_VALID)]
    assert {series.partition("{")[0] for series in found} >= set(NEVER_ABSENT)
    assert found["cpcmon_estimate_valid{model=density,segment=all}"] == 0
    assert found["cpcmon_alert_firing{alert=accuracy_low,model=density,segment=all,severity=critical}"] == 1
    assert found["cpcmon_alert_held{alert=accuracy_low,model=density,segment=all,severity=critical}"] == 1


@pytest.mark.parametrize("state", list(WindowState))
def test_exactly_one_state_is_1(state: WindowState) -> None:
    """All others are 0, not absent."""
    found = samples(_page(reports.report(reports.window(state=state))))
    states = {series: value for series, value in found.items() if series.startswith("cpcmon_window_state")}
    assert len(states) == len(WindowState)
    assert [series for series, value in states.items() if value] == [
        f"cpcmon_window_state{{model=density,segment=all,state={state}}}"
    ]


def test_e15_where_one_estimator_failed_the_others_are_shown() -> None:
    """The window is invalid all the same."""
    found = samples(_page(reports.density()))
    assert found["cpcmon_estimate_valid{model=density,segment=site=C}"] == 0
    assert "cpcmon_estimated_accuracy_ratio{estimator=adaptive,model=density,segment=site=C}" not in found
    assert found["cpcmon_estimated_accuracy_ratio{estimator=ac,model=density,segment=site=C}"] == 0.88
    assert found["cpcmon_prediction_set_empty_ratio{estimator=cpc_acc,model=density,segment=site=C}"] == 1.0


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_not_exported(number: float) -> None:
    """NaN never fires, and spreads to every average."""
    results = MappingProxyType({"adaptive": Estimate(number, 500)})
    page = _page(reports.report(replace(reports.window(), results=results, disagreement=number, last_record_at=number)))
    assert not {"NaN", "nan", "inf"} & {line.split()[-1].lower() for line in page.decode().splitlines()}
    assert "cpcmon_estimated_accuracy_ratio" not in families(page)


def test_e2_an_empty_window_has_no_estimate() -> None:
    """0 records, not valid, no estimate."""
    found = samples(_page(reports.report(SegmentReport(ALL, 0, WindowState.WARMING))))
    assert found["cpcmon_window_records{model=density,segment=all}"] == 0
    assert found["cpcmon_estimate_valid{model=density,segment=all}"] == 0
    assert not [series for series in found if series.startswith((*ONLY_WHEN_VALID, "cpcmon_last_record"))]


def _estimators(page: bytes, segment: str, family: str = "cpcmon_estimated_accuracy_ratio") -> set[str]:
    found = re.findall(
        rf'^{family}{{estimator="(\w+)",model="density",segment="{segment}"}}', page.decode(), re.MULTILINE
    )
    return set(found)


def test_by_default_segments_show_the_headline_and_what_alerts_on_them_compare() -> None:
    site, other = (("site", "A"),), (("site", "B"),)
    on_ac = replace(reports.accuracy_low(), estimator="ac")
    sink = PrometheusSink(SegmentSeries.HEADLINE)
    sink.publish(reports.report(reports.window(), reports.window(site), reports.window(other, alerts=(on_ac,))))
    page = bytes(sink.page())
    assert _estimators(page, "all") == {"adaptive", "ac"}
    assert _estimators(page, "site=A") == {"adaptive"}
    assert _estimators(page, "site=B") == {"adaptive", "ac"}
    assert 'cpcmon_predicted_class_ratio{class="a",model="density",segment="site=A"}' not in page.decode()


def test_by_default_segments_show_only_the_state_that_holds() -> None:
    held = replace(reports.accuracy_low(), held=True, phase=AlertPhase.PENDING)
    sink = PrometheusSink(SegmentSeries.HEADLINE)
    alerts = (reports.accuracy_low(name="calm"), held)
    sink.publish(reports.report(reports.window(alerts=alerts), reports.window((("site", "A"),), alerts=alerts)))
    found = samples(bytes(sink.page()))
    states = {series: value for series, value in found.items() if series.startswith("cpcmon_window_state")}
    assert [series for series in states if "site=A" in series] == [
        "cpcmon_window_state{model=density,segment=site=A,state=ok}"
    ]
    assert len(states) == 1 + len(WindowState)
    for name, shown in {"firing": 2, "pending": 1, "held": 1}.items():
        assert sum(one.startswith(f"cpcmon_alert_{name}") and "site=A" in one for one in found) == shown


def test_shares_of_replicas_keep_what_the_rules_merge() -> None:
    """The members of the consensus, for its disagreement, on which the field interval of the whole depends."""
    part = reports.share((("site", "A"),))
    parts = {name: reports.estimate(0.9, 20) for name in ("adaptive", "ac", *MEMBERS)}
    sink = PrometheusSink(SegmentSeries.HEADLINE)
    sink.publish(reports.report(replace(part, parts=MappingProxyType(parts))))
    page = bytes(sink.page())
    assert _estimators(page, "site=A", "cpcmon_estimate_summed") == {"adaptive", *MEMBERS}
    assert _estimators(page, "site=A", "cpcmon_estimate_records") == {"adaptive", *MEMBERS}
    assert _estimators(page, "site=A", "cpcmon_estimate_upper_summed") == {"adaptive"}


def test_two_alerts_of_one_severity_have_a_threshold_each() -> None:
    alerts = (reports.accuracy_low(), replace(reports.accuracy_low(name="lower_still"), threshold=0.7))
    found = samples(_page(reports.report(reports.window(alerts=alerts))))
    rest = "estimator=adaptive,model=density,segment=all,severity=critical"
    assert found[f"cpcmon_accuracy_threshold_ratio{{alert=accuracy_low,{rest}}}"] == 0.8
    assert found[f"cpcmon_accuracy_threshold_ratio{{alert=lower_still,{rest}}}"] == 0.7


@pytest.mark.parametrize(("classes", "shown"), [(2, 2), (MAX_CLASSES, MAX_CLASSES), (MAX_CLASSES + 1, 0)])
def test_shares_of_classes_are_exported_up_to_a_limit(classes: int, shown: int) -> None:
    """All or none."""
    reference = replace(reports.REFERENCE, classes=tuple(map(str, range(classes))), predicted=(3,) * classes)
    one = replace(reports.window(), predicted=(5,) * classes)
    found = samples(_page(replace(reports.report(one), reference=reference)))
    for family in ("cpcmon_predicted_class_ratio", "cpcmon_reference_predicted_class_ratio"):
        assert sum(series.startswith(family) for series in found) == shown


def test_e17_removed_segments_and_models_lose_their_series() -> None:
    sink = PrometheusSink()
    sink.publish(reports.density())
    sink.publish(reports.fresh())
    sink.publish(reports.report(reports.window()))
    assert b"site=" not in bytes(sink.page())
    sink.forget("density")
    assert b"density" not in bytes(sink.page())
    assert b"triage" in bytes(sink.page())
    sink.forget("triage")
    sink.forget("never there")
    assert bytes(sink.page()) == b""


def test_a_scrape_without_a_new_report_computes_nothing() -> None:
    sink = PrometheusSink()
    sink.publish(reports.density())
    assert sink.page() is sink.page()


@given(st.lists(st.binary(max_size=300)))
def test_packed_texts_join_to_one_stream(texts: list[bytes]) -> None:
    page, plain = MetricsPage.of([PageText.of(one) for one in texts]), b"".join(texts)
    assert (bytes(page), page.size, page.crc) == (plain, len(plain), zlib.crc32(plain))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.floats(1e-6, 1e-3)))
def test_numbers_are_written_as_python_writes_them(numbers: list[float]) -> None:
    assert _written(np.array(numbers)) == [repr(one).encode() for one in numbers]


def test_many_windows_are_written_as_one_by_one() -> None:
    """Windows are written in blocks."""
    windows = [
        reports.window((("site", str(number)),), WindowState.OK if number % 3 else WindowState.STALE, number / 1000)
        for number in range(300)
    ]
    whole = _page(reports.report(*windows)).splitlines()
    alone = [_page(reports.report(one)).splitlines() for one in windows]
    labelled = [[line for line in lines if b"segment=" in line] for lines in (whole, *alone)]
    by_family = sorted((line for lines in labelled[1:] for line in lines), key=lambda line: line.partition(b"{")[0])
    assert sorted(labelled[0], key=lambda line: line.partition(b"{")[0]) == by_family


def test_the_last_page_outlives_the_sink() -> None:
    """Prometheus may scrape while the daemon stops."""
    sink = PrometheusSink()
    sink.publish(reports.density())
    sink.close()
    assert bytes(sink.page()) == _page(reports.density())


def test_a_scrape_never_mixes_two_evaluations() -> None:
    """Each report has the same number in every window, so a page with two numbers mixes two reports."""
    sink = PrometheusSink()
    over = threading.Event()
    segments = [ALL, *((("site", str(number)),) for number in range(20))]
    made = [
        reports.report(*(replace(reports.window(segment), records=number) for segment in segments), at=float(number))
        for number in range(2)
    ]

    def publish() -> None:
        for number in range(300):
            sink.publish(made[number % 2])
        over.set()

    sink.publish(made[0])
    thread = threading.Thread(target=publish)
    thread.start()
    scrapes = 0
    while not over.is_set() or scrapes == 0:
        lines = bytes(sink.page()).decode().splitlines()
        values = {
            line.split()[-1] for line in lines if line.startswith(("cpcmon_window_rec", "cpcmon_last_evaluation"))
        }
        assert len(values) == 1
        scrapes += 1
    thread.join()


def test_a_scrape_does_not_wait_for_a_report_that_is_being_published() -> None:
    manager = SinkManager()
    manager.publish(reports.fresh())
    publishing, over = threading.Event(), threading.Event()

    class Slow(WebhookSink):
        def __init__(self) -> None: ...

        def publish(self, _report: Report) -> None:
            publishing.set()
            over.wait(60.0)

    manager.webhook = Slow()
    thread = threading.Thread(target=manager.publish, args=(reports.density(),))
    thread.start()
    publishing.wait()
    found = set(manager.reports()), b"density" in bytes(manager.metrics())
    over.set()
    thread.join()
    assert found == ({"density", "triage"}, True)


def test_a_change_has_a_start_while_there_is_evidence_or_its_alert_fires() -> None:
    """Windows without a baseline have no series at all."""
    fires = AlertStatus(
        "rise", AlertType.CHANGE, Severity.INFO, AlertPhase.FIRING, reports.NOW, held=False, direction=Direction.UP
    )
    plain = reports.report(*(reports.window(((name, "1"),), alerts=(fires,) if name == "b" else ()) for name in "abcd"))
    changed = reports.with_changes(plain)
    # Windows made one by one say the same.
    page = _page(changed)
    assert _page(replace(changed, segments=tuple(changed.segments))) == page
    of_windows = {name: value for name, value in samples(page).items() if name.startswith("cpcmon_change_")}
    began = {name: value for name, value in of_windows.items() if "started" in name}
    start = "cpcmon_change_started_timestamp_seconds{direction="
    assert began == {
        f"{start}down,model=density,segment=a=1}}": reports.NOW - 60.0,
        f"{start}down,model=density,segment=b=1}}": reports.NOW - 1500.0,
        f"{start}up,model=density,segment=b=1}}": reports.NOW - 10.0,
    }
    assert of_windows["cpcmon_change_evidence{direction=down,model=density,segment=c=1}"] == -2.5
    assert of_windows["cpcmon_change_evidence_threshold{direction=up,model=density,segment=a=1}"] == 6.5
    assert not any("segment=d=1" in name or "up,model=density,segment=c=1" in name for name in of_windows)


def test_every_family_occurs_in_some_report() -> None:
    """With the labels that it declares."""
    page = _page(reports.full(), reports.fresh())
    assert {name: labels for name, (_, labels) in families(page).items()} == {
        family.name: set(family.labels) for family in FAMILIES
    }


def test_series_are_written_once_for_all_scrapes() -> None:
    """Scrapes copy nothing."""
    segments = [ALL, *((("site", str(number)),) for number in range(320))]
    large = reports.report(*(reports.window(segment, alerts=(reports.accuracy_low(),)) for segment in segments))
    sink = PrometheusSink()
    sink.publish(large)
    page = sink.page()
    assert len(samples(bytes(page))) > 10_000
    assert sink.page() is page


def test_a_model_without_labels_has_no_series_of_them() -> None:
    of_labels = (
        "label",
        "audit",
        "realised",
        "track_record",
        "estimates_wrong",
        "estimator_error",
        "interval_coverage",
    )
    page = _page(reports.with_changes(reports.with_baselines(reports.with_performance(reports.density()))))
    assert [name for name in families(page) if any(word in name for word in of_labels)] == []


def test_a_window_that_is_missing_now_has_no_series_of_labels() -> None:
    """Only the first windows have records."""
    found = samples(_page(reports.with_labels(reports.density())))
    shown = {name.partition("segment=")[2] for name in found if name.startswith("cpcmon_labelled_records")}
    assert shown == {"all}", "site=A}", "site=A,scanner=2}"}
    assert "cpcmon_labelled_records{model=density,scope=horizon,segment=site=A,scanner=2}" in found
    assert not any("site=A,scanner=2" in name for name in found if name.startswith("cpcmon_realised"))
