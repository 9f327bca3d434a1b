"""The shipped configurations of Prometheus and Alertmanager, and docs/prometheus.md, by promtool and amtool."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    """With an example of a receiver for Slack, Teams and e-mail."""
    ran = _ran(real_server("amtool"), "check-config", ALERTMANAGER)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    names = {receiver["name"] for receiver in yaml.safe_load(ALERTMANAGER.read_text())["receivers"]}
    assert names >= {"example-slack", "example-teams", "example-email"}


def _rendered(folder: Path, template: str, *alerts: dict[str, Any]) -> str:
    status = "firing" if any(alert["status"] == "firing" for alert in alerts) else "resolved"
    (folder / "data.json").write_text(json.dumps({"status": status, "alerts": alerts}))
    ran = _ran(
        real_server("amtool"), "template", "render", f"--template.glob={ALERTMANAGER.parent / 'cpcmon.tmpl'}",
        f"--template.data={folder / 'data.json'}", f'--template.text={{{{ template "{template}" . }}}}',
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def _alert(status: str, **annotations: str) -> dict[str, Any]:
    labels = {"alertname": "CpcmonAccuracyLow", "model": "density", "segment": "site=A"}
    texts = {
        "summary": "density, A: estimated accuracy 66.5%",
        "description": "Interval 64.0% to 69.0%.",
        **annotations,
    }
    times = {"startsAt": "2026-11-18T12:00:00Z", "endsAt": "2026-11-18T13:30:00Z"}
    return {"status": status, "labels": labels, "annotations": texts, **times}


def test_the_title_of_a_firing_alert_is_its_summary(tmp_path: Path) -> None:
    assert _rendered(tmp_path, "cpcmon.title", _alert("firing")) == "density, A: estimated accuracy 66.5%"


def test_the_title_of_a_resolved_alert_states_no_old_number(tmp_path: Path) -> None:
    title = _rendered(tmp_path, "cpcmon.title", _alert("resolved"))
    assert title == "Resolved: CpcmonAccuracyLow, density, A"


def test_the_text_of_a_resolved_alert_says_when_its_numbers_were_true(tmp_path: Path) -> None:
    text = _rendered(tmp_path, "cpcmon.text", _alert("resolved"))
    assert "from 2026-11-18 12:00 to 2026-11-18 13:30 UTC" in text


def test_the_text_has_only_the_links_that_are_set(tmp_path: Path) -> None:
    """The shipped rules write an empty annotation for a link that is not set."""
    text = _rendered(tmp_path, "cpcmon.text", _alert("firing", page_url="https://cpcmon/model", dashboard_url=""))
    assert re.findall(r"^(\w[\w ]+): http", text, re.MULTILINE) == ["Page"]
    assert "Dashboard" not in text


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
