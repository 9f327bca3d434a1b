"""Runs promtool on rules: series over time in, firing alerts out."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from monitor.config.config import Config
from monitor.rules.rule_file import rule_file

_FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'


@dataclass(frozen=True, slots=True)
class Rules:
    """A rule file, run by promtool."""

    promtool: Path
    folder: Path
    config: Config
    text: str = ""
    """The rule file; empty for that of the configuration."""

    def check(self) -> str:
        """Return the findings of promtool's lint."""
        ran = self._run("check", "rules", "--lint=all", "--lint-fatal", self._written())
        return "" if ran.returncode == 0 else ran.stdout + ran.stderr

    def firing(self, series: Mapping[str, str], *minutes: float) -> list[Counter[str]]:
        """Return how often each alert fires at some minutes. Series have one value a minute, from minute 0 on."""
        # promtool only compares: expect something wrong, and read the actual values from its message.
        cases = [
            {"expr": _FIRING, "eval_time": f"{60 * minute:.0f}s", "exp_samples": [{"value": -1}]} for minute in minutes
        ]
        output = self._tested(series, {"promql_expr_test": cases})
        found = [line for line in output.splitlines() if line.strip().startswith("got:")]
        assert len(found) == len(minutes), output
        counted = [re.findall(r'\{alertname="(\w+)"\} (\S+?),? ?(?=\{|$)', line) for line in found]
        return [Counter({name: round(float(count)) for name, count in one}) for one in counted]

    def values(self, series: Mapping[str, str], minute: float, expr: str) -> dict[str, float]:
        """Return the values of an expression at a minute, by labels."""
        case = {"expr": expr, "eval_time": f"{60 * minute:.0f}s", "exp_samples": [{"labels": "wrong", "value": -1}]}
        output = self._tested(series, {"promql_expr_test": [case]})
        (found,) = (line for line in output.splitlines() if line.strip().startswith("got:"))
        return {labels: float(value) for labels, value in re.findall(r"(\{.*?\}) (\S+?)(?:, |$)", found)}

    def described(self, series: Mapping[str, str], minute: float, alert: str) -> str:
        """Return labels and annotations of a firing alert, in the output of promtool."""
        case = {"eval_time": f"{60 * minute:.0f}s", "alertname": alert, "exp_alerts": []}
        return self._tested(series, {"alert_rule_test": [case]})

    def _tested(self, series: Mapping[str, str], test: dict[str, object]) -> str:
        inputs = [{"series": name, "values": values} for name, values in series.items()]
        tests = {
            "rule_files": [str(self._written())],
            "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": inputs, **test}],
        }
        path = self.folder / "test.yml"
        path.write_text(json.dumps(tests))  # JSON is YAML too
        ran = self._run("test", "rules", path)
        return ran.stdout + ran.stderr

    def _written(self) -> Path:
        path = self.folder / "rules.yml"
        path.write_text(self.text or rule_file(self.config))
        return path

    def _run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.promtool, *map(str, words)], capture_output=True, text=True, check=False)
