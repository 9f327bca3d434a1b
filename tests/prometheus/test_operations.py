"""End to end with the shipped files: the real daemon on a directory, Prometheus, Alertmanager, notifications."""

import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon.process import Process, one
from tests.daemon.process import running as running_cpcmon
from tests.prometheus.chain import Chain, chain
from tests.prometheus.feed import Feed
from tests.prometheus.receiver import Receiver
from tests.prometheus.running import free_port
from tests.rules.runbooks import RUNBOOKS

pytestmark = pytest.mark.slow

MODEL = """\
storage: {path: state}
sources:
  - {name: results, type: directory, path: inbox, poll: 0.2s}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    segment_by: [[site]]
    evaluate: {every: 1s}
    minimum_records: 200
"""
CONFIG = f"""{MODEL}
    window: {{records: 500}}
    alerts:
      - {{name: accuracy_low, below: 0.81, on: value, for: 1s, new_records: 0.1, segments: [all], severity: critical}}
      - {{name: site_low, below: 0.81, on: value, for: 1s, new_records: 0.1, segments: ["site=*"], severity: warning}}
      - {{name: quiet, type: silent, after: 15s, severity: warning}}
"""
WITH_CHANGE = f"""{MODEL}
    window: {{records: 2000}}
    baseline: reference
    alerts:
      - {{name: accuracy_drop, type: change}}
"""
"""As everyone has it, except for the baseline: an own one takes a minute or more."""
QUIET = {("CpcmonWatchdog", "")}
EVALUATIONS = 'min(prometheus_rule_group_iterations_total{rule_group=~".*cpcmon.*"})'


def _installed(folder: Path, calibrated: Path, config: str = CONFIG) -> Feed:
    """Return a folder with a configuration and a reference."""
    feed = Feed(folder)
    shutil.copy(calibrated / "density.ref", folder)
    (folder / "config.yaml").write_text(config)
    return feed


def _well(cpcmon: Process) -> None:
    """Wait until every window has an estimate."""
    for window in ("all", "site=A", "site=B"):
        cpcmon.wait_for(f'cpcmon_estimate_valid{{model="density",segment="{window}"}}', 1.0)


def _evaluated_for_a_while(prometheus: Chain) -> None:
    """Wait for several evaluations of the daemon and of the rules."""
    prometheus.wait_until('up{job="cpcmon"}', 1)
    prometheus.wait_until(EVALUATIONS, prometheus.value(EVALUATIONS) + 7)
    prometheus.wait_until('cpcmon_evaluations_total{model="density"}', 8)


def _runbooks_can_be_followed(prometheus: Chain, cpcmon: Process) -> None:
    """Prometheus accepts every query of a runbook, and cpcmon has every URL."""
    for runbook in RUNBOOKS.values():
        for query in runbook.queries:
            prometheus.ask(query)
        for address in re.findall(r"curl -s http://127.0.0.1:9877(\S+)", "\n".join(runbook.commands)):
            assert cpcmon.ask(address)[0] == 200, address
    (threshold,) = prometheus.ask(
        "cpcmon_estimated_accuracy_upper_ratio - on (job, instance, model, segment, estimator)"
        ' group_right cpcmon_accuracy_threshold_ratio{alert="accuracy_low"}'
    )
    assert float(threshold["value"][1]) < 0.1


def test_notifications_from_a_drop_over_a_kill_to_the_recovery(tmp_path: Path, calibrated: Path) -> None:
    """With the shipped files, which do not know the configuration."""
    feed, receiver, port = _installed(tmp_path, calibrated), Receiver(), free_port()
    listen = ("--web.listen-address", f"127.0.0.1:{port}")
    with ExitStack() as stack:
        stack.callback(receiver.close)
        feed.start()
        stack.callback(feed.stop)
        cpcmon = stack.enter_context(running_cpcmon(tmp_path / "config.yaml", *listen))
        _well(cpcmon)
        prometheus = stack.enter_context(chain(tmp_path, port, receiver.port))
        assert receiver.wait_for("CpcmonWatchdog", "", "firing").receiver == "dead-mans-switch"
        _evaluated_for_a_while(prometheus)
        # Before the first scrape, some seconds after the start, Prometheus has no series of cpcmon: with `for`
        # shortened from five minutes to five seconds, CpcmonDown may fire.
        assert {one.short[0] for one in receiver.notifications if "instance" in one.labels} == set()
        assert prometheus.firing() == QUIET

        # The model becomes inaccurate at one site, and the other site becomes silent.
        feed.inaccurate.add("A")
        feed.silent.add("B")
        low = receiver.wait_for("CpcmonAccuracyLow", "all", "firing")
        assert low.receiver == "on-call"
        expected = {"alert": "accuracy_low", "model": "density", "severity": "critical", "job": "cpcmon"}
        assert low.labels.items() >= {**expected, "instance": f"127.0.0.1:{port}"}.items()
        assert re.fullmatch(
            r"density, all records: estimated accuracy \d\d\.\d%, was \d\d\.\d%", low.annotations["summary"]
        )
        assert low.annotations["description"].startswith("density, all: estimated accuracy ")
        for part in (
            ", interval ",
            ", by adaptive, of ",
            "The compared value stayed below ",
            " records, field interval",
            " Baseline: ",
            " Firing since ",
        ):
            assert part in low.annotations["description"]
        assert low.annotations["runbook_url"] == ""
        site = receiver.wait_for("CpcmonAccuracyLow", "site=A", "firing")
        assert (site.receiver, site.labels["alert"], site.labels["severity"]) == ("office-hours", "site_low", "warning")
        silent = receiver.wait_for("CpcmonSegmentSilent", "site=B", "firing")
        assert (silent.receiver, silent.labels["alert"]) == ("office-hours", "quiet")
        assert "no records for longer than configured" in silent.annotations["description"]

        _runbooks_can_be_followed(prometheus, cpcmon)

        # The daemon is killed, and restarts.
        before, known = prometheus.firing(), len(receiver.notifications)
        cpcmon.kill()
        down = receiver.wait_for("CpcmonDown", "", "firing", since=known)
        assert (down.receiver, down.labels["severity"]) == ("on-call", "critical")
        again = stack.enter_context(running_cpcmon(tmp_path / "config.yaml", *listen))
        receiver.wait_for("CpcmonDown", "", "resolved", since=known)
        _evaluated_for_a_while(prometheus)
        assert prometheus.firing() == before
        meanwhile = {one.short for one in receiver.notifications[known:]}
        of_before = {(*alert, "firing") for alert in before}
        assert meanwhile - of_before == {("CpcmonDown", "", "firing"), ("CpcmonDown", "", "resolved")}

        # Everything recovers.
        feed.inaccurate.clear()
        feed.silent.clear()
        assert receiver.wait_for("CpcmonAccuracyLow", "all", "resolved").receiver == "on-call"
        receiver.wait_for("CpcmonAccuracyLow", "site=A", "resolved")
        receiver.wait_for("CpcmonSegmentSilent", "site=B", "resolved")
        _evaluated_for_a_while(prometheus)
        assert prometheus.firing() == QUIET
        assert one(again.metrics(), "cpcmon_alert_firing", alert="accuracy_low", segment="all") == 0.0


def test_a_site_that_changes_is_one_page_while_most_of_its_window_is_still_healthy(
    tmp_path: Path, calibrated: Path
) -> None:
    """It says when it began. That of the whole model fires too, muted."""
    feed, receiver, port = _installed(tmp_path, calibrated, WITH_CHANGE), Receiver(), free_port()
    with ExitStack() as stack:
        stack.callback(receiver.close)
        feed.start()
        stack.callback(feed.stop)
        cpcmon = stack.enter_context(
            running_cpcmon(tmp_path / "config.yaml", "--web.listen-address", f"127.0.0.1:{port}")
        )
        _well(cpcmon)
        prometheus = stack.enter_context(chain(tmp_path, port, receiver.port, group_wait="3s"))
        _evaluated_for_a_while(prometheus)
        assert prometheus.firing() == QUIET
        start = time.time()
        feed.inaccurate.add("A")
        changed = receiver.wait_for("CpcmonAccuracyChange", "site=A", "firing")
        assert changed.receiver == "on-call"
        assert changed.labels.items() >= {"direction": "down", "segment_1": "site=A", "severity": "critical"}.items()
        text = changed.annotations["description"]
        assert re.match(
            r"density, site=A: the accuracy has dropped: evidence 10\^\d+\.\d, budget 10\^9\.\d\. It began", text
        )
        assert re.search(
            r", [1-9]\d* records ago\. The estimate of the window, which also holds older records, is ", text
        )
        # The site sends 100 records a second.
        (began,) = prometheus.ask('cpcmon_change_started_timestamp_seconds{segment="site=A"}')
        (since,) = prometheus.ask('cpcmon_alert_since_timestamp_seconds{alert="accuracy_drop",segment="site=A"}')
        assert float(since["value"][1]) - float(began["value"][1]) < 10
        assert abs(float(began["value"][1]) - start) < 30
        prometheus.wait_until('ALERTS{alertname="CpcmonAccuracyChange",alertstate="firing",segment="all"}', 1)
        prometheus.wait_until_muted("CpcmonAccuracyChange", "all")
        assert ("CpcmonAccuracyChange", "all", "firing") not in {one.short for one in receiver.notifications}
