"""Rules of Prometheus as text of its rule file: alerts, and series that are recorded."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.core.alerts import Severity

_NONE: Mapping[str, str] = MappingProxyType({})
BRIDGE = "15m"
"""Over how long a gap without scrapes a firing alert goes on. A restart must not look like a recovery."""
LATELY = "4m"
"""How old a value may be for an alert that waits: less than any of them waits, or one poor value before an end would fire.

With nothing to bridge, one failed scrape would begin the wait anew, and an alert on a poor network never fire.
"""

_UNITS = ((604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class PrometheusRule:
    """What Prometheus evaluates, and what people then read."""

    alert: str
    expr: str
    severity: Severity | None
    """None: as the daemon says, by the label of its series."""
    summary: str
    """A constant sentence."""
    description: str
    """A template of Prometheus's; it must say something sensible when series are absent."""
    page: str
    """Of the runbook."""
    for_seconds: float = 0.0
    labels: Mapping[str, str] = field(default_factory=lambda: _NONE)

    def text(self, runbooks: str) -> str:
        """Return the rule as YAML."""
        severity = "{{ $labels.severity }}" if self.severity is None else str(self.severity)
        labels = {"severity": severity, **{name: _literal(value) for name, value in self.labels.items()}}
        runbook = _literal(runbooks + self.page)
        notes = {"summary": self.summary, "description": self.description, "runbook_url": runbook}
        lines = [f"- alert: {self.alert}", f"  expr: {_string(self.expr)}"]
        if self.for_seconds:
            lines.append(f"  for: {duration(self.for_seconds)}")
        lines += ["  labels:", *(f"    {name}: {_string(value)}" for name, value in labels.items())]
        lines += ["  annotations:", *(f"    {name}: {_string(value)}" for name, value in notes.items())]
        return "".join(f"      {line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A series that Prometheus works out from others."""

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


def lately(series: str) -> str:
    """Return the last value of a series, also when a scrape or a few have failed."""
    return f"last_over_time({series}[{LATELY}])"


def bridged(series: str) -> str:
    """Return the last value of a series, over a restart too."""
    return f"last_over_time({series}[{BRIDGE}])"


def group_text(name: str, rules: Sequence[PrometheusRule | RecordingRule], runbooks: str = "") -> str:
    """Return a group of rules as YAML."""
    return f"  - name: {_string(name)}\n    rules:\n" + "".join(rule.text(runbooks) for rule in rules)


def duration(seconds: float) -> str:
    """Return a time as Prometheus writes it: `90s`, `30m`."""
    whole = max(1, round(seconds))
    return next(f"{whole // size}{unit}" for size, unit in _UNITS if whole % size == 0)


def _literal(text: str) -> str:
    # Labels and annotations are templates, and what others wrote must not be one.
    return text.replace("{{", '{{ "{{" }}')


def _string(text: str) -> str:
    # YAML reads every JSON string alike, as long as characters beyond ASCII are not written as halves of pairs.
    return json.dumps(text, ensure_ascii=False)
