"""Inhibition by the shipped configuration of the real Alertmanager."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.prometheus.chain import alertmanager
from tests.prometheus.receiver import LIMIT_SECONDS, Receiver

pytestmark = pytest.mark.slow

SendAlert = Callable[..., None]
TARGET = {"job": "cpcmon", "instance": "a"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of notifications."""
    with closing(Receiver()) as found:
        yield found


@pytest.fixture
def send_alert(tmp_path: Path, receiver: Receiver) -> Iterator[SendAlert]:
    """Send an alert to Alertmanager, as Prometheus would; `over` resolves it."""
    with alertmanager(tmp_path, receiver.port) as port:

        def post(name: str, /, *, over: bool = False, **labels: str) -> None:
            now = datetime.now(UTC)
            ends = now - timedelta(seconds=1) if over else now + timedelta(minutes=5)
            notified = {
                "labels": {"alertname": name, **labels},
                "startsAt": (now - timedelta(minutes=1)).isoformat(),
                "endsAt": ends.isoformat(),
            }
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/api/v2/alerts",
                json.dumps([notified]).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS):  # noqa: S310  an address of our own
                pass

        yield post


def _flushed(send_alert: SendAlert, receiver: Receiver) -> None:
    """Wait until pending notifications have been sent: until a later alert has fired and resolved."""
    mark = f"CpcmonMark{time.monotonic_ns()}"
    send_alert(mark, severity="warning")
    receiver.wait_for(mark, "", "firing")
    send_alert(mark, over=True, severity="warning")
    receiver.wait_for(mark, "", "resolved")


def test_alerts_of_a_cpcmon_that_is_down_are_muted_and_not_resolved(send_alert: SendAlert, receiver: Receiver) -> None:
    """Those of another daemon are."""
    low = {"severity": "critical", "model": "density", "segment": "all"}
    send_alert("CpcmonAccuracyLow", **TARGET, **low)
    receiver.wait_for("CpcmonAccuracyLow", "all", "firing")
    send_alert("CpcmonDown", **TARGET, severity="critical")
    receiver.wait_for("CpcmonDown", "", "firing")
    known = len(receiver.notifications)
    send_alert("CpcmonAccuracyLow", over=True, **TARGET, **low)
    send_alert("CpcmonEvaluationStale", **TARGET, severity="critical", model="density")
    send_alert("CpcmonSegmentSilent", job="cpcmon", instance="b", severity="warning", model="density", segment="site=B")
    receiver.wait_for("CpcmonSegmentSilent", "site=B", "firing")
    _flushed(send_alert, receiver)
    notified = {one.short[0] for one in receiver.notifications[known:]}
    assert not notified & {"CpcmonAccuracyLow", "CpcmonEvaluationStale"}
    send_alert("CpcmonDown", over=True, **TARGET, severity="critical")
    receiver.wait_for("CpcmonDown", "", "resolved")
    _flushed(send_alert, receiver)
    assert ("CpcmonAccuracyLow", "all", "resolved") not in {one.short for one in receiver.notifications}


def test_a_critical_accuracy_alert_mutes_lesser_ones_on_the_window(send_alert: SendAlert, receiver: Receiver) -> None:
    """With the names of either rule file. Other windows are not muted."""
    window = {**TARGET, "model": "density", "segment": "all"}
    send_alert("CpcmonAccuracyLow", **window, severity="critical", alert="accuracy_low")
    receiver.wait_for("CpcmonAccuracyLow", "all", "firing")
    send_alert("CpcmonAccuracyLow", **window, severity="warning", alert="accuracy_falling")
    send_alert("CpcmonAccuracyFalling", **window, severity="warning", alert="accuracy_falling")
    send_alert("CpcmonAccuracyFalling", **{**window, "segment": "site=A"}, severity="warning", alert="accuracy_falling")
    receiver.wait_for("CpcmonAccuracyFalling", "site=A", "firing")
    _flushed(send_alert, receiver)
    assert {one.labels["severity"] for one in receiver.notifications if one.labels.get("segment") == "all"} == {
        "critical"
    }


def test_a_silent_model_mutes_its_silent_sites(send_alert: SendAlert, receiver: Receiver) -> None:
    quiet = {**TARGET, "model": "density", "severity": "warning"}
    send_alert("CpcmonSegmentSilent", **quiet, segment="all")
    receiver.wait_for("CpcmonSegmentSilent", "all", "firing")
    send_alert("CpcmonSegmentSilent", **quiet, segment="site=A")
    _flushed(send_alert, receiver)
    assert ("CpcmonSegmentSilent", "site=A", "firing") not in {one.short for one in receiver.notifications}


def _changed(send_alert: SendAlert, segment: str, name: str = "CpcmonAccuracyChange", **labels: str) -> None:
    """Send an alert on a change with the labels that the rules give it."""
    parts = [] if segment == "all" else segment.split(",")
    within = {f"segment_{depth}": ",".join(parts[:depth]) for depth in range(1, min(3, len(parts)) + 1)}
    common = {**TARGET, "severity": "critical", "model": "density", "direction": "down"}
    send_alert(name, **{**common, **within, "segment": segment, **labels})


def _notified(receiver: Receiver) -> set[str]:
    """Return the segments with a notified change."""
    return {one.labels["segment"] for one in receiver.notifications if one.labels.get("direction")}


def test_one_fault_in_a_scanner_is_one_page(send_alert: SendAlert, receiver: Receiver) -> None:
    """Not another of its hospital, nor of the whole model. Other hospitals, models and directions are not muted."""
    _changed(send_alert, "site=A,scanner=2")
    receiver.wait_for("CpcmonAccuracyChange", "site=A,scanner=2", "firing")
    _changed(send_alert, "site=A")
    _changed(send_alert, "all")
    _flushed(send_alert, receiver)
    assert _notified(receiver) == {"site=A,scanner=2"}
    others: list[tuple[str, dict[str, str]]] = [
        ("site=B", {}),
        ("site=AB", {}),
        ("site=A", {"model": "triage"}),
        ("site=A", {"direction": "up"}),
        ("site=A", {"instance": "b"}),
        ("site=A,scanner=3", {}),
    ]
    for number, (segment, labels) in enumerate(others):
        _changed(send_alert, segment, f"CpcmonOther{number}", **labels)
        receiver.wait_for(f"CpcmonOther{number}", segment, "firing")


def test_a_hospital_mutes_the_whole_model_and_a_scanner_that_is_well_again_mutes_nothing(
    send_alert: SendAlert, receiver: Receiver
) -> None:
    """The merged alerts of replicas have no instance. A part of a scanner mutes scanner, hospital and model."""
    names = ["site=A,scanner=2,coil=1", "site=A,scanner=2", "site=A", "all"]
    merged = {"name": "CpcmonMergedAccuracyChange", "instance": ""}
    _changed(send_alert, names[0], **merged)
    receiver.wait_for(merged["name"], names[0], "firing")
    for name in names[1:]:
        _changed(send_alert, name, **merged)
    _flushed(send_alert, receiver)
    assert _notified(receiver) == set(names[:1])
    send_alert(
        merged["name"], over=True, job="cpcmon", severity="critical", model="density", direction="down", segment=names[0],
        **{f"segment_{depth}": ",".join(names[0].split(",")[:depth]) for depth in (1, 2, 3)},
    )  # fmt: skip
    receiver.wait_for(merged["name"], names[1], "firing")
    _flushed(send_alert, receiver)
    assert _notified(receiver) == set(names[:2])


def test_a_noticed_drop_mutes_slower_alerts_on_the_window(send_alert: SendAlert, receiver: Receiver) -> None:
    """A critical accuracy alert is an absolute limit, and is not muted; nor are other windows."""
    window = {**TARGET, "model": "density", "segment": "site=A"}
    _changed(send_alert, "site=A")
    receiver.wait_for("CpcmonAccuracyChange", "site=A", "firing")
    send_alert("CpcmonAccuracyFalling", **window, severity="warning")
    send_alert("CpcmonBaselineGap", **window, severity="critical")
    send_alert("CpcmonAccuracyLow", **window, severity="critical")
    send_alert("CpcmonAccuracyFalling", **{**window, "segment": "site=B"}, severity="warning")
    receiver.wait_for("CpcmonAccuracyLow", "site=A", "firing")
    receiver.wait_for("CpcmonAccuracyFalling", "site=B", "firing")
    _flushed(send_alert, receiver)
    of_window = {one.short[0] for one in receiver.notifications if one.labels.get("segment") == "site=A"}
    assert of_window == {"CpcmonAccuracyChange", "CpcmonAccuracyLow"}
