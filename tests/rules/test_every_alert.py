"""Every alert of every rule file fires when it should, and only then, by the real promtool."""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from deploy.prometheus.build_rules import RULES
from monitor.rules.rule_file import rule_file
from tests.rules.alert_cases import (
    OF_CPCMON,
    OF_REPLICAS,
    ONLY_GENERATED,
    ONLY_SHIPPED,
    WATCHDOG,
    Case,
    Series,
    healthy,
    of,
)
from tests.sinks import reports

pytestmark = pytest.mark.slow

FILES = {
    "shipped": (RULES.read_text(), (*OF_CPCMON, *OF_REPLICAS, *ONLY_SHIPPED)),
    "generated": (rule_file(reports.config()), (*OF_CPCMON, *ONLY_GENERATED)),
    "generated for replicas": (rule_file(reports.shared_config()), OF_REPLICAS),
}
Scraped = Callable[[int], bool]
_TARGETS = {of("up")}


def _always(_minute: int) -> bool:
    return True


def _each_fourth_fails(minute: int) -> bool:
    return minute % 4 != 3


def _asked(minute: int, firing: Sequence[str]) -> list[dict[str, object]]:
    """Expect alerts at a minute, and no others. The watchdog always fires."""
    counted = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted([*firing, WATCHDOG])]
    asked = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return [{"expr": asked, "eval_time": f"{minute}m", "exp_samples": counted}]


def _group(name: str, shapes: Series, minutes: range, scraped: Scraped, asked: Sequence[object]) -> dict[str, object]:
    """Return a promtool test."""
    series = []
    for one, shape in shapes.items():
        gone = "0" if one.startswith("up{") else "stale"
        values = [f"{shape(minute):g}" if scraped(minute) else gone for minute in minutes]
        series.append({"series": one, "values": " ".join(values)})
    return {"name": name, "interval": f"{minutes.step}m", "input_series": series, "promql_expr_test": asked}


def _fires(case: Case, scraped: Scraped = _always) -> dict[str, object]:
    """Return a test: at the minute of the case its alert fires and no other; in the third minute only if at once."""
    shapes = {**healthy(shared=case.shared), **case.poor}
    shapes = {name: shape for name, shape in shapes.items() if name not in case.absent}
    asked = _asked(case.minute, [case.alert])
    asked += _asked(2, [case.alert] if case.at_once else [])
    return _group(f"{case.alert} fires", shapes, range(0, case.minute + 1, case.every), scraped, asked)


def _together(cases: Iterable[Case]) -> list[list[Case]]:
    """Return lists of cases whose healthy series can be tried at once."""
    lists: list[list[Case]] = []
    for case in cases:
        for others in lists:
            alike = (others[0].shared, others[0].every) == (case.shared, case.every)
            if alike and all(
                _TARGETS.isdisjoint(case.well) and case.well.keys().isdisjoint(one.well) for one in others
            ):
                others.append(case)
                break
        else:
            lists.append([case])
    return lists


def _quiet(cases: Sequence[Case], scraped: Scraped = _always) -> dict[str, object]:
    """Return a test: no alert fires at the minute of any of the cases."""
    shapes = healthy(shared=cases[0].shared)
    for case in cases:
        shapes.update(case.well)
    minutes = range(0, max(case.minute for case in cases) + 1, cases[0].every)
    asked = [one for minute in sorted({case.minute for case in cases}) for one in _asked(minute, [])]
    return _group(f"{[case.alert for case in cases]} do not fire", shapes, minutes, scraped, asked)


def _output(promtool: Path, folder: Path, text: str, groups: Sequence[dict[str, object]]) -> str:
    """Return the failures of promtool tests. Annotations are left out: promtool would compute them at every minute."""
    (folder / "rules.yml").write_text(re.sub(r"^ {8}annotations:\n(?: {10}.+\n)+", "", text, flags=re.MULTILINE))
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
    groups = [*map(_fires, _untried(name)), *map(_quiet, _together(cases))]
    assert _output(promtool, tmp_path, text, groups) == ""


@pytest.mark.parametrize("name", FILES)
def test_every_alert_survives_scrapes_that_fail(promtool: Path, tmp_path: Path, name: str) -> None:
    """One of four, and the last ones before the alert fires."""
    text, cases = FILES[name]
    groups = [_quiet(some, _each_fourth_fails) for some in _together(case for case in cases if case.every == 1)]
    for case in _untried(name):

        def scraped(minute: int, last: int = case.minute - 2) -> bool:
            return _each_fourth_fails(minute) and minute <= last

        # CpcmonDown is the alert on failed scrapes: one that succeeds resolves it.
        if case.every == 1 and case.alert != "CpcmonDown":
            groups.append(_fires(case, scraped))
    assert _output(promtool, tmp_path, text, groups) == ""


def _untried(name: str) -> list[Case]:
    """Return the cases of a file without those of rules that are equal in the shipped file."""
    text, cases = FILES[name]
    own, shipped = _expressions(text), _expressions(FILES["shipped"][0])
    return [case for case in cases if name == "shipped" or own[case.alert] != shipped.get(case.alert)]


def _expressions(text: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the expressions and waits of every alert."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for alert, *rest in re.findall(r"- alert: (\w+)\n +expr: (.+)\n(?: +for: (.+)\n)?", text):
        found.setdefault(alert, []).append(tuple(rest))
    return found


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
    chosen = [case for case in cases if not (case.absent or case.at_once) and case.every == 1][::8]
    swapped = [{**_fires(case), "input_series": _quiet([case])["input_series"]} for case in chosen]
    nothing = 'got: {alertname="CpcmonWatchdog"} 1E+00\n'
    assert _output(promtool, tmp_path, text, swapped).count(nothing) == len(chosen)
