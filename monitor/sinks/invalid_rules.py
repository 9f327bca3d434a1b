"""Alerts on windows of which nothing can be said: that nothing is heard of a model is not an all-clear."""

from monitor.core.alert_rules import Severity
from monitor.sinks.prometheus_rule import PrometheusRule, lately
from monitor.sinks.replica_recording import ESTIMATE_RECORDS, WINDOW, WINDOW_RECORDS

_HALF_HOUR, _DAY = 1800.0, 86_400.0
_WINDOW = "{{ $labels.model }}, {{ $labels.segment }}"
_TOLD_ELSEWHERE = 'cpcmon_window_state{state=~"warming|catching_up|version_mismatch|no_reference|degraded_input"}'
"""States that have alerts of their own: one fault would be told once more for each segment."""


def invalid_rule(matchers: str = "", unless: str = "") -> PrometheusRule:
    """Return the alert on windows that cannot be judged; `unless` leaves out some more."""
    return PrometheusRule(
        "CpcmonEstimateInvalid",
        f"({lately(f'cpcmon_estimate_valid{{{matchers}}}')} == 0) unless ignoring (state)"
        f" ({lately(_TOLD_ELSEWHERE)} == 1){unless}",
        Severity.INFO,
        "The accuracy of a model cannot be said.",
        f"{_WINDOW}: nothing can be said"
        "{{ with query (printf `cpcmon_window_state{instance=%q,model=%q,segment=%q} == 1`"
        " $labels.instance $labels.model $labels.segment) }}"
        " ({{ . | first | label `state` }}){{ end }}. Alerts stay as they were.",
        "estimate_invalid.md",
        _HALF_HOUR,
    )


def warming_rule(matchers: str = "", unless: str = "") -> PrometheusRule:
    """Return the alert on models that never had enough records."""
    all_of = ",".join(['segment="all",state="warming"', *([matchers] if matchers else [])])
    return PrometheusRule(
        "CpcmonStillWarming",
        f"{lately(f'cpcmon_window_state{{{all_of}}}')} == 1{unless}",
        Severity.INFO,
        "A model has never had enough records.",
        "{{ $labels.model }}: for a day, fewer records than are needed to say anything.",
        "estimate_invalid.md",
        _DAY,
    )


def merged_invalid_rule(matchers: str = "", only: str = "") -> PrometheusRule:
    """Return the alert on windows that all replicas together cannot judge."""
    return PrometheusRule(
        "CpcmonMergedInvalid",
        f"{lately(f'{WINDOW_RECORDS}{{{matchers}}}')} unless on ({WINDOW}) {lately(ESTIMATE_RECORDS)}{only}",
        Severity.INFO,
        "The accuracy of a model that replicas share cannot be said.",
        f"{_WINDOW}: all replicas together hold {{{{ $value }}}} records, too few or too old to say anything, or cannot"
        " speak for them. Alerts stay as they were.",
        "estimate_invalid.md",
        _HALF_HOUR,
    )
