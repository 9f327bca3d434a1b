"""The example configurations of Prometheus and Alertmanager, and the page that shows them, before promtool and amtool."""

import re
import subprocess
from pathlib import Path

import pytest

from monitor.rules.rule_file import rule_file
from tests.conftest import ROOT
from tests.rules.shipped_rules import GENERIC
from tests.servers import real_server
from tests.sinks import reports

PAGE = (ROOT / "docs" / "prometheus.md").read_text()
PROMETHEUS = ROOT / "deploy" / "prometheus" / "prometheus.yml"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
TEXTS = {"generic": GENERIC.read_text(), "generated": rule_file(reports.config())} | {
    "generated for replicas": rule_file(reports.shared_config())
}
PASSED_ON = {
    "CpcmonAccuracyLow", "CpcmonAccuracyHigh", "CpcmonDisagreementHigh", "CpcmonSegmentSilent", "CpcmonInputRefused",
    "CpcmonMergedAccuracyLow", "CpcmonApart", "CpcmonSilent", "CpcmonRefused",
}  # fmt: skip
"""Alerts of a configuration, under their names in the generic file and in that of `reports.config()`."""
RECEIVERS = {"critical": "on-call", "warning": "office-hours", "info": "to-be-read"}


def _ran(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)


def _alerts(text: str) -> set[tuple[str, str]]:
    """Return every alert of a rule file with each severity that it may have."""
    found = re.findall(r'- alert: (\w+)\n(?:.*\n)*?.*severity: "(.+)"', text)
    return {(alert, one) for alert, said in found for one in (RECEIVERS if "$labels" in said else (said,))}


def test_prometheus_takes_its_configuration_with_the_rules_beside_it(promtool: Path) -> None:
    """As it stands in the tree."""
    ran = _ran(promtool, "check", "config", PROMETHEUS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 rule files found" in ran.stdout


def test_prometheus_takes_its_configuration_with_generated_rules(promtool: Path, tmp_path: Path) -> None:
    """In place of the shipped ones, under the same name."""
    (tmp_path / "prometheus.yml").write_text(PROMETHEUS.read_text())
    (tmp_path / "cpcmon.rules.yml").write_text(rule_file(reports.shared_config()))
    ran = _ran(promtool, "check", "config", tmp_path / "prometheus.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alertmanager_takes_its_configuration() -> None:
    ran = _ran(real_server("amtool"), "check-config", ALERTMANAGER)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", TEXTS)
def test_alertmanager_sends_every_alert_where_the_page_says(name: str) -> None:
    """By its severity, and the watchdog above all not to a person."""
    amtool = real_server("amtool")
    for alert, severity in sorted(_alerts(TEXTS[name])):
        receiver = "dead-mans-switch" if alert == "CpcmonWatchdog" else RECEIVERS[severity]
        words = (f"--verify.receivers={receiver}", f"alertname={alert}", f"severity={severity}", "model=density")
        ran = _ran(amtool, "config", "routes", "test", f"--config.file={ALERTMANAGER}", *words)
        assert ran.returncode == 0, f"{alert} {severity}: {ran.stdout}{ran.stderr}"


def test_amtool_would_notice_a_wrong_receiver() -> None:
    """Or the test above would hold of any routes."""
    words = ("--verify.receivers=on-call", "alertname=CpcmonWatchdog", "severity=info")
    assert (
        _ran(real_server("amtool"), "config", "routes", "test", f"--config.file={ALERTMANAGER}", *words).returncode == 1
    )


def test_every_alert_on_cpcmon_itself_is_listed_with_its_severity() -> None:
    """And none that there is not."""
    written = {one for text in TEXTS.values() for one in _alerts(text) if one[0] not in PASSED_ON}
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(written)


def test_every_name_of_an_alert_of_the_configuration_is_in_the_table() -> None:
    """Under the generic file."""
    for alert in {alert for alert, _ in _alerts(TEXTS["generic"])} & PASSED_ON:
        assert f"| `{alert}`" in PAGE
