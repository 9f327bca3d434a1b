"""Alerting and recording rules, and their text in a Prometheus rule file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.core.alerts import Severity

_NONE: Mapping[str, str] = MappingProxyType({})
BRIDGE = "15m"
"""The longest gap without scrapes during which an alert keeps firing. A restart must not look like a recovery."""
RECENT = "4m"
"""The maximum age of a value in rules with `for`.

It must be shorter than every `for`, or one bad value before a shutdown would fire. Without it, each failed scrape would
restart the wait, and on a poor network the alert would never fire.
"""

SEGMENT_LABELS: Mapping[str, str] = MappingProxyType(
    {
        # In names with a ~, which are of odd values, commas may not separate parts.
        f"segment_{depth}": f"{{{{ reReplaceAll `^({','.join(['[^,~]+=[^,~]*'] * depth)})(,[^~]*)?$|.*` `$1` $labels.segment }}}}"
        for depth in (1, 2, 3)
    }
)
"""Templates of labels for the segments that contain a segment, and itself: Alertmanager's inhibition compares whole labels.

Of `site=A,scanner=2`, `segment_1` is `site=A`, `segment_2` is the whole name, and `segment_3` is empty, which is no label.
"""

_UNITS = ((604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    """An alerting rule."""

    alert: str
    expr: str
    severity: Severity | None
    """None: the `severity` label of the series."""
    summary: str
    description: str
    """A Prometheus template. It must read well when series are absent."""
    runbook: str
    """File name of the runbook."""
    for_seconds: float = 0.0
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)
    templates: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """Labels that are templates."""

    def text(self, runbooks: str) -> str:
        """Return the rule as YAML."""
        severity = "{{ $labels.severity }}" if self.severity is None else str(self.severity)
        labels = {
            "severity": severity,
            **{name: literal(value) for name, value in self.labels.items()},
            **self.templates,
        }
        runbook = literal(runbooks + self.runbook)
        annotations = {"summary": self.summary, "description": self.description, "runbook_url": runbook}
        lines = [f"- alert: {self.alert}", f"  expr: {_string(self.expr)}"]
        if self.for_seconds:
            lines.append(f"  for: {duration(self.for_seconds)}")
        lines += ["  labels:", *(f"    {name}: {_string(value)}" for name, value in labels.items())]
        lines += ["  annotations:", *(f"    {name}: {_string(value)}" for name, value in annotations.items())]
        return "".join(f"      {line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A recording rule."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)

    def text(self, runbooks: str = "") -> str:
        """Return the rule as YAML."""
        del runbooks
        lines = [f"- record: {self.record}", f"  expr: {_string(self.expr)}"]
        if self.labels:
            lines += ["  labels:", *(f"    {name}: {_string(value)}" for name, value in self.labels.items())]
        return "".join(f"      {line}\n" for line in lines)


def recent(series: str) -> str:
    """Return the last value of a series, bridging a few failed scrapes."""
    return f"last_over_time({series}[{RECENT}])"


def bridged(series: str) -> str:
    """Return the last value of a series, bridging a restart."""
    return f"last_over_time({series}[{BRIDGE}])"


def group_text(name: str, rules: Sequence[PrometheusRule | RecordingRule], runbooks: str) -> str:
    """Return a rule group as YAML."""
    return f"  - name: {_string(name)}\n    rules:\n" + "".join(rule.text(runbooks) for rule in rules)


def duration(seconds: float) -> str:
    """Return a duration in Prometheus notation: `90s`, `30m`."""
    whole = max(1, round(seconds))
    return next(f"{whole // size}{unit}" for size, unit in _UNITS if whole % size == 0)


def literal(text: str) -> str:
    """Return a name from the configuration for a label or an annotation, which are templates."""
    return text.replace("{{", '{{ "{{" }}')


def _string(text: str) -> str:
    # Every JSON string is a YAML string, except with characters beyond U+FFFF escaped as surrogate pairs.
    return json.dumps(text, ensure_ascii=False)
