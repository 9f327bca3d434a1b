"""Every alert of every rule file fires when it should, and only then, by the real promtool."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from deploy.prometheus.build_rules import RULES
from monitor.rules.rule_file import rule_file
from tests.rules.alert_cases import OF_CPCMON, OF_REPLICAS, ONLY_GENERATED, ONLY_SHIPPED, WATCHDOG, Case, Shape, healthy
from tests.sinks import reports

pytestmark = pytest.mark.slow

FILES = {
    "shipped": (RULES.read_text(), (*OF_CPCMON, *OF_REPLICAS, *ONLY_SHIPPED)),
    "generated": (rule_file(reports.config()), (*OF_CPCMON, *ONLY_GENERATED)),
    "generated for replicas": (rule_file(reports.shared_config()), OF_REPLICAS),
}
Scraped = Callable[[int], bool]


def _always(_minute: int) -> bool:
    return True


def _each_fourth_fails(minute: int) -> bool:
    return minute % 4 != 3


def _group(case: Case, *, poor: bool, scraped: Scraped = _always) -> dict[str, object]:
    """Return a promtool test: at the minute of the case its alert fires and no other, or none at all."""
    shapes: dict[str, Shape] = {**healthy(shared=case.shared), **(case.poor if poor else case.well)}
    if poor:
        shapes = {name: shape for name, shape in shapes.items() if name not in case.absent}
    series = []
    for name, shape in shapes.items():
        gone = "0" if name.startswith("up{") else "stale"
        values = [f"{shape(minute):g}" if scraped(minute) else gone for minute in range(0, case.minute + 1, case.every)]
        series.append({"series": name, "values": " ".join(values)})
    firing = [{"labels": f'{{alertname="{case.alert}"}}', "value": 1}] if poor else []
    asked = f'count by (alertname) (ALERTS{{alertstate="firing",alertname!="{WATCHDOG}"}})'
    return {
        "name": f"{case.alert} {'fires' if poor else 'does not fire'}",
        "interval": f"{case.every}m",
        "input_series": series,
        "promql_expr_test": [
            {"expr": asked, "eval_time": f"{case.minute}m", "exp_samples": firing},
            *([{"expr": asked, "eval_time": "2m", "exp_samples": firing if case.at_once else []}] if poor else []),
            {
                "expr": f'count(ALERTS{{alertstate="firing",alertname="{WATCHDOG}"}})',
                "eval_time": f"{case.minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
        ],
    }


def _output(promtool: Path, folder: Path, text: str, groups: Sequence[dict[str, object]]) -> str:
    """Return the failures of promtool tests."""
    (folder / "rules.yml").write_text(text)
    output = ""
    for interval in {group["interval"] for group in groups}:
        alike = [group for group in groups if group["interval"] == interval]
        tests = {"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": alike}
        (folder / "tests.yml").write_text(json.dumps(tests))
        ran = subprocess.run(
            [promtool, "test", "rules", folder / "tests.yml"], capture_output=True, text=True, check=False
        )
        output += "" if ran.returncode == 0 else ran.stdout + ran.stderr
    return output


@pytest.mark.parametrize("name", FILES)
def test_every_alert_fires_when_it_should_and_only_then(promtool: Path, tmp_path: Path, name: str) -> None:
    """Not before its time, and no other alert with it."""
    text, cases = FILES[name]
    groups = [_group(case, poor=poor) for case in cases for poor in (True, False)]
    assert _output(promtool, tmp_path, text, groups) == ""


@pytest.mark.parametrize("name", FILES)
def test_every_alert_survives_scrapes_that_fail(promtool: Path, tmp_path: Path, name: str) -> None:
    """One of four, and the last ones before the alert fires."""
    text, cases = FILES[name]
    groups = []
    for case in (case for case in cases if case.every == 1):
        last = case.minute - 2

        def scraped(minute: int, last: int = last) -> bool:
            return _each_fourth_fails(minute) and minute <= last

        # CpcmonDown is the alert on failed scrapes: one that succeeds resolves it.
        if case.alert != "CpcmonDown":
            groups.append(_group(case, poor=True, scraped=scraped))
        groups.append(_group(case, poor=False, scraped=_each_fourth_fails))
    assert _output(promtool, tmp_path, text, groups) == ""


def test_every_alert_of_every_file_has_a_case() -> None:
    """Add one for a new alert."""
    tried = {case.alert for _, cases in FILES.values() for case in cases} | {WATCHDOG}
    for text, cases in (FILES["shipped"], FILES["generated"]):
        written = set(re.findall(r"- alert: (\w+)$", text, re.MULTILINE))
        assert written == {case.alert for case in cases} | {WATCHDOG}
    assert set(re.findall(r"- alert: (\w+)$", FILES["generated for replicas"][0], re.MULTILINE)) <= tried


def test_promtool_reports_cases_that_do_not_hold(promtool: Path, tmp_path: Path) -> None:
    """Here each expects its alert to fire on the series of a healthy daemon."""
    text, cases = FILES["shipped"]
    chosen = [case for case in cases if not case.absent and case.every == 1][::8]
    swapped = [{**_group(case, poor=True), "input_series": _group(case, poor=False)["input_series"]} for case in chosen]
    assert _output(promtool, tmp_path, text, swapped).count("got: nil") == len(chosen) + sum(
        case.at_once for case in chosen
    )
