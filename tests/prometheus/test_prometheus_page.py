"""The shipped configurations of Prometheus and Alertmanager, and docs/prometheus.md, by promtool and amtool."""

import re
import subprocess
from pathlib import Path

import pytest

from deploy.prometheus.build_rules import RULES
from monitor.rules.rule_file import rule_file
from tests.conftest import ROOT
from tests.servers import real_server
from tests.sinks import reports

PAGE = (ROOT / "docs" / "prometheus.md").read_text()
PROMETHEUS = ROOT / "deploy" / "prometheus" / "prometheus.yml"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
TEXTS = {"generic": RULES.read_text(), "generated": rule_file(reports.config())} | {
    "generated for replicas": rule_file(reports.shared_config())
}
PASSED_ON = {
    "CpcmonAccuracyLow", "CpcmonAccuracyHigh", "CpcmonDisagreementHigh", "CpcmonSegmentSilent", "CpcmonInputRefused",
    "CpcmonMergedAccuracyLow", "CpcmonApart", "CpcmonSilent", "CpcmonRefused",
    "CpcmonPerformanceLow", "CpcmonPerformanceHigh", "CpcmonMissed", "CpcmonFlawless",
    "CpcmonAuditedLow", "CpcmonAuditedHigh", "CpcmonOutputDrift", "CpcmonBaselineGap", "CpcmonDrifted", "CpcmonNewSite",
    "CpcmonAccuracyChange", "CpcmonMergedAccuracyChange", "CpcmonDropped", "CpcmonRose",
}  # fmt: skip
"""Configured alerts: their names in the shipped rules and in those of `reports.config()`."""
RECEIVERS = {"critical": "on-call", "warning": "office-hours", "info": "to-be-read"}


def _ran(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def _alerts(text: str) -> set[tuple[str, str]]:
    """Return every alert of a rule file with each possible severity."""
    found = re.findall(r'- alert: (\w+)\n(?:.*\n)*?.*severity: "(.+)"', text)
    return {(alert, one) for alert, severity in found for one in (RECEIVERS if "$labels" in severity else (severity,))}


def test_prometheus_accepts_its_configuration(promtool: Path) -> None:
    ran = _ran(promtool, "check", "config", PROMETHEUS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 rule files found" in ran.stdout


def test_prometheus_accepts_its_configuration_with_generated_rules(promtool: Path, tmp_path: Path) -> None:
    """Instead of the shipped ones, with the same file name."""
    (tmp_path / "prometheus.yml").write_text(PROMETHEUS.read_text())
    (tmp_path / "cpcmon.rules.yml").write_text(rule_file(reports.shared_config()))
    ran = _ran(promtool, "check", "config", tmp_path / "prometheus.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alertmanager_accepts_its_configuration() -> None:
    ran = _ran(real_server("amtool"), "check-config", ALERTMANAGER)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", TEXTS)
def test_alertmanager_routes_every_alert_as_the_page_says(name: str) -> None:
    """By severity; the watchdog goes to no person."""
    amtool = real_server("amtool")
    for alert, severity in sorted(_alerts(TEXTS[name])):
        receiver = "dead-mans-switch" if alert == "CpcmonWatchdog" else RECEIVERS[severity]
        words = (f"--verify.receivers={receiver}", f"alertname={alert}", f"severity={severity}", "model=density")
        ran = _ran(amtool, "config", "routes", "test", f"--config.file={ALERTMANAGER}", *words)
        assert ran.returncode == 0, f"{alert} {severity}: {ran.stdout}{ran.stderr}"


def test_amtool_reports_a_wrong_receiver() -> None:
    """The test above can fail."""
    words = ("--verify.receivers=on-call", "alertname=CpcmonWatchdog", "severity=info")
    assert (
        _ran(real_server("amtool"), "config", "routes", "test", f"--config.file={ALERTMANAGER}", *words).returncode == 1
    )


def test_every_built_in_alert_is_listed_with_its_severity() -> None:
    """And no other."""
    written = {one for text in TEXTS.values() for one in _alerts(text) if one[0] not in PASSED_ON}
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(written)


def test_every_configured_alert_name_is_in_the_table() -> None:
    for alert in {alert for alert, _ in _alerts(TEXTS["generic"])} & PASSED_ON:
        assert f"| `{alert}`" in PAGE
