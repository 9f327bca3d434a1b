"""What `docs/prometheus.md` shows, before the real promtool and amtool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from monitor.sinks.alert_rules import rule_file
from tests.prometheus import reports

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "prometheus.md").read_text()
PROMETHEUS, ALERTMANAGER = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def routes(tmp_path: Path) -> list[str]:
    """The command that says to whom an alert goes."""
    amtool = shutil.which("amtool")
    if amtool is None:
        pytest.skip("amtool is not installed")
    path = tmp_path / "alertmanager.yml"
    path.write_text(ALERTMANAGER)
    return [amtool, "config", "routes", "test", f"--config.file={path}"]


def test_prometheus_takes_its_configuration(promtool: Path, tmp_path: Path) -> None:
    """With the rules of a configuration beside it."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "cpcmon.yml").write_text(rule_file(reports.config()))
    (tmp_path / "prometheus.yml").write_text(PROMETHEUS)
    ran = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "rules found" in ran.stdout


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("alertname=CpcmonWatchdog", "severity=info"), "dead-mans-switch"),
        (("alertname=CpcmonEstimateInvalid", "severity=info"), "to-be-read"),
        (("alertname=CpcmonRefused", "severity=warning"), "office-hours"),
        (("alertname=CpcmonAccuracyLow", "severity=critical"), "on-call"),
    ],
)
def test_alertmanager_sends_each_where_the_page_says(routes: list[str], labels: tuple[str, ...], receiver: str) -> None:
    """The watchdog above all not to a person."""
    ran = subprocess.run([*routes, *labels], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == receiver, ran.stderr


def test_every_alert_on_cpcmon_itself_is_listed_with_its_severity() -> None:
    """And none that there is not."""
    own = {"CpcmonAccuracyLow", "CpcmonAccuracyHigh", "CpcmonApart", "CpcmonSilent", "CpcmonRefused"}
    written = re.findall(r'- alert: (\w+)\n(?:.*\n)*?.*severity: "(\w+)"', rule_file(reports.shared_config()))
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted({one for one in written if one[0] not in own})
