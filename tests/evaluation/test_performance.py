"""Performance beyond accuracy in the daemon: against a slow oracle after any history, and in alerts."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from monitor.core.alerts import AlertPhase, AlertRule
from monitor.core.estimate import Why, WindowState
from monitor.core.performance import FEWEST_CASES, Metric, Target
from monitor.core.report import Report, SegmentReport, Snapshot
from monitor.core.scores import Floats
from monitor.core.segments import Segment
from monitor.sinks.prometheus_page import PrometheusSink
from monitor.testing.oracle import Oracle
from tests.evaluation.driver import CLASSES, HEALTHY, POOR, Monitor, alert, monitor_reference, named, phase, whole
from tests.strategies import Singles, synthetic

MISSED = AlertRule("missed", drop=0.05, for_seconds=600.0, metric=Metric.SENSITIVITY, of_class="owl")
NO_OWLS: Singles = HEALTHY[HEALTHY[:, 2] < 0.002]


@cache
def oracle() -> Oracle:
    """Return the oracle of the monitor's reference."""
    vectors, labels = synthetic(2000, 3, seed=1, sharpness=2.6)
    return Oracle(vectors.tolist(), labels.tolist(), monitor_reference().calibration.temperature)


def _check(found: SegmentReport, records: list[list[float]]) -> None:
    """Compare a window with the oracle, from all its records."""
    assert found.records == len(records)
    wanted = oracle().performance(records)
    assert len(found.performance) == 4 * 5
    for one in found.performance:
        if one.value is None:
            assert (one.why, one.interval) == (Why.TOO_FEW_CASES, None)
            assert one.cases < FEWEST_CASES
        else:
            value = wanted[str(one.target.metric), one.target.of_class]
            assert one.value == pytest.approx(value, abs=1e-8)
            assert one.interval is not None
            assert one.interval.lower <= one.value <= one.interval.upper
    mix = [one.value for one in found.class_mix if one is not None]
    assert mix == pytest.approx(oracle().class_mix(records), abs=1e-5)


@pytest.mark.parametrize("seed", [1, 2])
def test_windows_equal_the_oracle_after_any_history(tmp_path: Path, seed: int) -> None:
    """Sites of different pools and sizes, evictions, kills: from the last records of each."""
    random = np.random.default_rng(seed)
    monitor = Monitor(tmp_path, minimum=20, window=120, split=True)
    report = monitor.step()
    for _ in range(14):
        for site, pool in (("A", HEALTHY), ("B", POOR), ("C", NO_OWLS)):
            monitor.send(int(random.integers(0, 60)), pool, site=site)
        report = monitor.step()
        if random.random() < 0.3:
            monitor.restart()
            report = monitor.step()
    sent = [json.loads(line) for line in monitor.lines]
    assert len(sent) > 3 * 120
    _check(whole(report), [one["probs"] for one in sent[-120:]])
    for site in "ABC":
        records = [one["probs"] for one in sent if one["site"] == site][-120:]
        _check(named(report, f"site={site}"), records)
    # A restart reads the records, not the totals.
    monitor.restart()
    again = monitor.step()
    for before, after in zip(report.segments, again.segments, strict=True):
        assert (before.performance, before.class_mix) == (after.performance, after.class_mix)


def test_windows_that_are_not_here_yet_have_none(tmp_path: Path) -> None:
    """Behind the others in the columns, while the daemon catches up."""
    monitor = Monitor(tmp_path, minimum=20, window=120, split=True)
    monitor.send(60, site="A")
    monitor.send(60, site="B")
    report = monitor.step()
    assert [len(one.performance) for one in report.segments] == [20, 20, 20]
    snapshot = monitor.ingestion.view.snapshot("density", monitor.now, monitor.running)
    fewer = replace(
        snapshot,
        segments=snapshot.segments[:2],
        measured=replace(
            snapshot.measured,
            totals=snapshot.measured.totals[:2],
            confidences=snapshot.measured.confidences[:, :2],
            counts=snapshot.measured.counts[:2],
            of_performance=snapshot.measured.of_performance[:2],
        ),
        **{name: getattr(snapshot, name)[:2] for name in _COLUMNS},
        catching_up=True,
    )
    monitor.evaluator.snapshots = _Fixed(fewer)
    windows = monitor.evaluate().windows
    assert windows.performance is not None
    assert windows.performance.expected.records.tolist() == [120, 60, 0]
    assert [one.state for one in windows] == [WindowState.CATCHING_UP] * 3
    assert [one.performance for one in windows] == [()] * 3


_COLUMNS = ("newest_at", "usual_gap_seconds", "entered", "came_at", "came_before")


class _Fixed:
    def __init__(self, found: Snapshot) -> None:
        self._found = found

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return the same snapshot."""
        del model, now, running
        return self._found

    def begin_evidence(self, model: str, means: Mapping[Segment, Floats], now: float) -> None:
        """Not called."""


def test_an_alert_on_sensitivity_fires_and_resolves(tmp_path: Path) -> None:
    """Relative to the reference's own sensitivity of the class; the status says which metric it is."""
    monitor = Monitor(tmp_path, MISSED, minimum=100, window=300)
    assert phase(monitor.run(1200.0, a_minute=30)) is AlertPhase.OK
    report = monitor.run(2400.0, POOR, a_minute=30)
    status = alert(report)
    assert (status.phase, status.metric, status.of_class, status.estimator) == (
        AlertPhase.FIRING, Metric.SENSITIVITY, "owl", None,
    )  # fmt: skip
    assert status.compared == "sensitivity of owl"
    performance = monitor_reference().calibration.performance
    assert performance is not None
    own = performance.value(Target(Metric.SENSITIVITY, 2))
    assert own is not None
    assert status.threshold == own - 0.05
    (estimate,) = [one for one in whole(report).performance if one.target == Target(Metric.SENSITIVITY, 2)]
    assert estimate.interval is not None
    assert status.value == estimate.interval.upper
    # A restart neither resolves it nor starts the wait again.
    monitor.restart()
    assert phase(monitor.run(60.0, POOR, a_minute=30)) is AlertPhase.FIRING
    assert phase(monitor.run(3600.0, a_minute=30)) is AlertPhase.OK


def test_without_enough_cases_an_alert_is_held_and_never_ok(tmp_path: Path) -> None:
    """A window without owls says nothing about their sensitivity."""
    monitor = Monitor(tmp_path, MISSED, minimum=100, window=300)
    report = monitor.run(1200.0, NO_OWLS, a_minute=30)
    assert (alert(report).held, alert(report).value) == (True, None)
    monitor.run(2400.0, POOR, a_minute=30)
    report = monitor.run(3600.0, NO_OWLS, a_minute=30)
    assert (phase(report), alert(report).held) == (AlertPhase.FIRING, True)
    (estimate,) = [one for one in whole(report).performance if one.target == Target(Metric.SENSITIVITY, 2)]
    assert (estimate.value, estimate.why) == (None, Why.TOO_FEW_CASES)
    assert 'cpcmon_alert_held{alert="missed",model="density",segment="all",severity="warning"} 1.0' in _page(report)


def test_only_what_is_configured_or_compared_is_exported(tmp_path: Path) -> None:
    """Beside the accuracies, which are always there."""
    monitor = Monitor(tmp_path, minimum=100, window=300)
    plain = monitor.run(600.0, a_minute=30)
    assert "performance" not in _page(plain)
    assert "estimated_class" not in _page(plain)
    monitor.restart(alerts=(MISSED,), performance=("ppv", "class_mix"))
    text = _page(monitor.run(60.0, a_minute=30))
    rows = [
        line.split("{")[1].split(",model")[0] for line in text.splitlines() if line.startswith("cpcmon_estimated_per")
    ]
    shown = [(name, "ppv") for name in ("cat", "dog", "owl", "")] + [("owl", "sensitivity")]
    assert sorted(set(rows)) == sorted(f'class="{name}",metric="{metric}"' for name, metric in shown)
    assert len(rows) == 3 * len(shown)
    assert all(f'cpcmon_estimated_class_ratio{{class="{name}",model="density"' in text for name in CLASSES)


def _page(report: Report) -> str:
    sink = PrometheusSink()
    sink.publish(report)
    return bytes(sink.page()).decode()
