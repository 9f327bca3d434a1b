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
