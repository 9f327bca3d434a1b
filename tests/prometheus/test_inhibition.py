"""Who is not told, by the example configuration of the real Alertmanager."""

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

Say = Callable[..., None]
TARGET = {"job": "cpcmon", "instance": "a"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Takes in messages."""
    with closing(Receiver()) as found:
        yield found


@pytest.fixture
def say(tmp_path: Path, receiver: Receiver) -> Iterator[Say]:
    """Tell Alertmanager of an alert, as Prometheus would; `over` that it has ended."""
    with alertmanager(tmp_path, receiver.port) as port:

        def post(name: str, /, *, over: bool = False, **labels: str) -> None:
            now = datetime.now(UTC)
            ends = now - timedelta(seconds=1) if over else now + timedelta(minutes=5)
            told = {
                "labels": {"alertname": name, **labels},
                "startsAt": (now - timedelta(minutes=1)).isoformat(),
                "endsAt": ends.isoformat(),
            }
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/api/v2/alerts",
                json.dumps([told]).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=LIMIT_SECONDS):  # noqa: S310  an address of our own
                pass

        yield post


def _flushed(say: Say, receiver: Receiver) -> None:
    """Wait until messages that were due have been sent: until one of a later alert has come, and its end."""
    mark = f"CpcmonMark{time.monotonic_ns()}"
    say(mark, severity="warning")
    receiver.wait_for(mark, "", "firing")
    say(mark, over=True, severity="warning")
    receiver.wait_for(mark, "", "resolved")


def test_alerts_of_a_cpcmon_that_is_down_are_neither_told_nor_called_resolved(say: Say, receiver: Receiver) -> None:
    """Those of another are."""
    low = {"severity": "critical", "model": "density", "segment": "all"}
    say("CpcmonAccuracyLow", **TARGET, **low)
    receiver.wait_for("CpcmonAccuracyLow", "all", "firing")
    say("CpcmonDown", **TARGET, severity="critical")
    receiver.wait_for("CpcmonDown", "", "firing")
    known = len(receiver.told)
    say("CpcmonAccuracyLow", over=True, **TARGET, **low)
    say("CpcmonEvaluationStale", **TARGET, severity="critical", model="density")
    say("CpcmonSegmentSilent", job="cpcmon", instance="b", severity="warning", model="density", segment="site=B")
    receiver.wait_for("CpcmonSegmentSilent", "site=B", "firing")
    _flushed(say, receiver)
    told = {one.short[0] for one in receiver.told[known:]}
    assert not told & {"CpcmonAccuracyLow", "CpcmonEvaluationStale"}
    say("CpcmonDown", over=True, **TARGET, severity="critical")
    receiver.wait_for("CpcmonDown", "", "resolved")
    _flushed(say, receiver)
    assert ("CpcmonAccuracyLow", "all", "resolved") not in {one.short for one in receiver.told}


def test_of_two_alerts_on_the_accuracy_of_a_window_the_critical_one_is_told(say: Say, receiver: Receiver) -> None:
    """Under the names of either rule file; another window is told of all the same."""
    window = {**TARGET, "model": "density", "segment": "all"}
    say("CpcmonAccuracyLow", **window, severity="critical", alert="accuracy_low")
    receiver.wait_for("CpcmonAccuracyLow", "all", "firing")
    say("CpcmonAccuracyLow", **window, severity="warning", alert="accuracy_falling")
    say("CpcmonAccuracyFalling", **window, severity="warning", alert="accuracy_falling")
    say("CpcmonAccuracyFalling", **{**window, "segment": "site=A"}, severity="warning", alert="accuracy_falling")
    receiver.wait_for("CpcmonAccuracyFalling", "site=A", "firing")
    _flushed(say, receiver)
    assert {one.labels["severity"] for one in receiver.told if one.labels.get("segment") == "all"} == {"critical"}


def test_when_nothing_comes_at_all_sites_are_not_told_one_by_one(say: Say, receiver: Receiver) -> None:
    quiet = {**TARGET, "model": "density", "severity": "warning"}
    say("CpcmonSegmentSilent", **quiet, segment="all")
    receiver.wait_for("CpcmonSegmentSilent", "all", "firing")
    say("CpcmonSegmentSilent", **quiet, segment="site=A")
    _flushed(say, receiver)
    assert ("CpcmonSegmentSilent", "site=A", "firing") not in {one.short for one in receiver.told}
