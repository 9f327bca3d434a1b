"""The columns of a report, and the reports of its windows made from them, say the same."""

from dataclasses import replace

import pytest

from monitor.core.alerts import AlertRule, AlertType
from monitor.core.estimate import WindowState
from monitor.core.report import Report, WindowReports
from monitor.sinks.prometheus_page import PrometheusSink
from tests.evaluation.driver import HEALTHY, LOW, POOR, Monitor


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "shared"])
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    """Return reports of windows in several states, with alerts in several phases."""
    silent = AlertRule("silent", kind=AlertType.SILENT, after_seconds=90.0, for_seconds=0.0, segments=("site=*",))
    high = AlertRule("high", above=0.5, for_seconds=60.0)
    monitor = Monitor(tmp_path_factory.mktemp("state"), LOW, silent, high, minimum=60, split=True, stale_after=150.0)
    monitor.evaluator.shared = request.param
    made = []
    for minute in range(8):
        for site, count in enumerate((40, 70, 3)):
            if site != 1 or minute < 3:
                monitor.send(count, POOR if site == 0 else HEALTHY, site=f"S{site}")
        made.append(monitor.step())
    return made


def _page(report: Report) -> bytes:
    sink = PrometheusSink()
    sink.publish(report)
    return bytes(sink.page())


def test_a_page_is_the_same_from_columns_and_from_the_reports_of_windows(reports: list[Report]) -> None:
    for report in reports:
        assert isinstance(report.segments, WindowReports)
        # Baselines are compared in columns only.
        plain = replace(report, segments=replace(report.segments, comparisons=None))
        assert _page(replace(report, segments=tuple(report.segments))) == _page(plain)


def test_a_summary_differs_only_in_the_results(reports: list[Report]) -> None:
    """It has the headline where there is one."""
    for report in reports:
        for full, short in zip(report.segments, report.summary().segments, strict=True):
            kept = {name: one for name, one in full.results.items() if name == "adaptive"}
            wanted = replace(full, results=kept, parts={}, performance=(), class_mix=())
            assert wanted == replace(short, results=dict(short.results), parts={})


def test_windows_in_error_keep_their_records_and_hold_their_alerts(reports: list[Report]) -> None:
    before = reports[-1].segments
    for was, now in zip(before, reports[-1].windows.in_error(5.0), strict=True):
        assert now == replace(
            was,
            state=WindowState.ERROR,
            results={},
            disagreement=None,
            chance_disagreement=None,
            predicted=(),
            field=(),
            performance=(),
            class_mix=(),
            alerts=tuple(replace(one, held=True) for one in was.alerts),
            parts={},
            fresh=False,
            state_since=5.0,
            baseline=None,
            drift=(),
            changed_class=None,
            verdict=None,
        )
