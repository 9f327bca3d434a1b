"""Queries, commands and links of the runbooks work."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from deploy.prometheus.build_rules import RULES
from monitor.rules.replicas import recording_rules
from monitor.rules.rule_file import DEFAULT_JOB, rule_file
from tests.conftest import ROOT
from tests.rules.runbooks import RUNBOOKS
from tests.servers import real_server
from tests.sinks import reports
from tests.sinks.golden import page
from tests.sinks.pages import families

ELSEWHERE = {"kafka-consumer-groups.sh"}
"""Kafka's scripts: the tests have only its jars."""
OF_PROMETHEUS = {"prometheus_notifications_errors_total", "alertmanager_notifications_failed_total"}


@pytest.mark.parametrize("name", RUNBOOKS)
def test_every_runbook_has_queries_to_paste(name: str) -> None:
    """Of series that exist."""
    queries = RUNBOOKS[name].queries
    assert queries
    shown = {re.sub("_(sum|count|bucket)$", "", one) for one in families(page().encode())} | OF_PROMETHEUS
    shown |= {rule.record for rule in recording_rules(DEFAULT_JOB)}
    for query in queries:
        for series in re.findall(r"\b(?:cpcmon[_:]|process_|prometheus_|alertmanager_)\w+", query):
            assert series in shown or re.sub("_(sum|count|bucket)$", "", series) in shown, query


def test_promtool_can_read_every_query(promtool: Path, tmp_path: Path) -> None:
    """As expressions of rules."""
    queries = [query for one in RUNBOOKS.values() for query in one.queries]
    assert _problems(promtool, tmp_path, queries) == ""
    assert "parse error" in _problems(promtool, tmp_path, [*queries, "cpcmon_ready =="])


def _problems(promtool: Path, folder: Path, queries: list[str]) -> str:
    rules = [{"record": f"runbook:query{number}", "expr": query} for number, query in enumerate(queries)]
    path = folder / "queries.yml"
    path.write_text(json.dumps({"groups": [{"name": "runbooks", "rules": rules}]}))
    ran = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def test_every_other_program_exists() -> None:
    """On Debian."""
    programs = {command.split()[0] for one in RUNBOOKS.values() for command in one.commands} - ELSEWHERE - {"cpcmon"}
    assert {"systemctl", "journalctl", "curl"} <= programs
    for program in programs:
        real_server(program)


def test_every_systemctl_command_works() -> None:
    """`systemctl reload` of a unit without ExecReload fails."""
    unit = (ROOT / "deploy" / "systemd" / "cpcmon.service").read_text()
    for command in (command for one in RUNBOOKS.values() for command in one.commands if "systemctl" in command):
        _, verb, name = command.split()
        assert verb in {"status", "reload", "restart"}
        assert name in {"cpcmon", "prometheus"}
    assert "ExecReload=" in unit


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RULES.read_text(), id="shipped"),
        pytest.param(rule_file(reports.config()), id="generated"),
        pytest.param(rule_file(reports.shared_config()), id="generated for replicas"),
    ],
)
def test_every_alert_links_to_an_existing_runbook(text: str) -> None:
    linked = re.findall(r'runbook_url: ".*/(\w+)\.md[^/]*"', text)
    assert len(linked) == text.count("- alert: ")
    assert set(linked) <= set(RUNBOOKS)
