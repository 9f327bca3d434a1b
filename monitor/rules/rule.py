"""Alerting and recording rules, and their text in a Prometheus rule file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from monitor.config.config import OF_DASHBOARD, OF_PAGE, Links
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

OF_TARGET = (
    "(or (and $labels.instance (printf `instance=%q` $labels.instance))"
    " (printf `job=~%q,namespace=~%q` (or $labels.job `.*`) (or $labels.namespace `.*`)))"
)
"""In a template: matchers of the daemon that an alert is about, or of all replicas."""

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

    def text(self, links: Links | None) -> str:
        """Return the rule as YAML, with the links of a configuration; None for those that the daemon exports."""
        severity = "{{ $labels.severity }}" if self.severity is None else str(self.severity)
        labels = {
            "severity": severity,
            **{name: literal(value) for name, value in self.labels.items()},
            **self.templates,
        }
        urls = _exported_urls(self.runbook) if links is None else _urls(links, self.runbook)
        annotations = {"summary": self.summary, "description": self.description, **urls}
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

    def text(self, links: Links | None = None) -> str:
        """Return the rule as YAML."""
        del links
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


def group_text(name: str, rules: Sequence[PrometheusRule | RecordingRule], links: Links | None) -> str:
    """Return a rule group as YAML."""
    return f"  - name: {_string(name)}\n    rules:\n" + "".join(rule.text(links) for rule in rules)


def _for_window(form: str, otherwise: str = "") -> str:
    """Return the end of a link to the window that an alert is about; of other alerts, to no window."""
    window = form.format(model="{{ $labels.model | urlquery }}", segment="{{ or $labels.segment `all` | urlquery }}")
    return f"{{{{ if $labels.model }}}}{window}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _ends(runbook: str) -> dict[str, str]:
    """Return what follows each configured address."""
    return {"runbooks": f"/{runbook}", "dashboard": _for_window(OF_DASHBOARD), "page": _for_window(OF_PAGE, "/")}


_ANNOTATIONS = {"runbooks": "runbook_url", "dashboard": "dashboard_url", "page": "page_url"}


def _urls(links: Links, runbook: str) -> dict[str, str]:
    found = ((name, getattr(links, name), end) for name, end in _ends(runbook).items())
    return {_ANNOTATIONS[name]: literal(address) + end for name, address, end in found if address is not None}


def _exported_urls(runbook: str) -> dict[str, str]:
    """Return templates that read the addresses from the daemon that an alert is about, or from a replica; also after it stopped."""
    return {
        _ANNOTATIONS[name]: (
            f'{{{{ with query (printf `last_over_time(cpcmon_links_info{{%s,{name}!=""}}[1h])`'
            f" {OF_TARGET}) }}}}{{{{ . | first | label `{name}` }}}}{end}{{{{ end }}}}"
        )
        for name, end in _ends(runbook).items()
    }


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
