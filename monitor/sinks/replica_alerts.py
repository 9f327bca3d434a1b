"""Alerts on what all replicas say together, so that many of them page once, and from the whole."""

from monitor.core.alert_rules import CHANCE_MARGIN, Kind, On, Rule
from monitor.sinks.labels import label_value, quoted
from monitor.sinks.prometheus_rule import BRIDGE
from monitor.sinks.replica_recording import ALL_DOWN, DISAGREEMENT, LOWER, RATIO, UPPER, WINDOW

_COMPARED = {On.VALUE: RATIO, On.LOWER: LOWER, On.UPPER: UPPER}


def merged_expression(model: str, rule: Rule, alert_name: str, only: str = "") -> str:
    """Return what fires when one of a model's rules holds over all replicas.

    As in the daemon, it ends only beyond the hysteresis, and stays as it is while nothing can be said. What Prometheus
    remembers of that is its own series ALERTS.
    """
    name, alert = f"{only}model={quoted(model)}", f"alert={quoted(label_value(rule.name))}"
    # Every replica says of which segments it judges the rule.
    known = f"max by ({WINDOW}) (last_over_time(cpcmon_alert_firing{{{name},{alert}}}[{BRIDGE}]))"
    match rule.kind:
        case Kind.SILENT:
            # One that gets records is proof enough that they come.
            return f"min by ({WINDOW}) (last_over_time(cpcmon_alert_firing{{{name},{alert}}}[{BRIDGE}])) == 1"
        case Kind.DEGRADED_INPUT:
            return f"{known} == 1"
        case Kind.ACCURACY | Kind.DISAGREEMENT:
            value = _value(name, rule)
    bad, not_well = _compared(value, name, alert, rule)
    firing = f'ALERTS{{alertname="{alert_name}",alertstate="firing",{name},{alert}}}'
    return (
        f"({bad} or ({not_well} and on ({WINDOW}) {firing})"
        f" or ({known} unless on ({WINDOW}) {value} and on ({WINDOW}) {firing}))"
        f" and on ({WINDOW}) {known}"
        f" or max by ({WINDOW}) ({firing}) and on (job, namespace) {ALL_DOWN} unless on ({WINDOW}) {value}"
    )


def _value(name: str, rule: Rule) -> str:
    if rule.kind is Kind.DISAGREEMENT:
        series = f"{DISAGREEMENT}{{{name}}}"
    else:
        series = f"{_COMPARED[rule.on]}{{{name},estimator={quoted(rule.estimator)}}}"
    return f"max by ({WINDOW}) (last_over_time({series}[{BRIDGE}]))"


def _compared(value: str, name: str, alert: str, rule: Rule) -> tuple[str, str]:
    """Return what is true when the rule is broken, and what is true until it is well again."""
    high = rule.above is not None or rule.kind is Kind.DISAGREEMENT
    sign, away = (">", "-") if high else ("<", "+")
    limit = rule.below if rule.below is not None else rule.above
    if limit is not None:
        # Never more than half way to the end of the scale, or an alert near 0 or 1 could not recover.
        well = limit - min(rule.hysteresis, limit / 2.0) if high else limit + min(rule.hysteresis, (1.0 - limit) / 2.0)
        return f"{value} {sign} {limit!r}", f"{value} {sign} {well!r}"
    if rule.kind is Kind.DISAGREEMENT:
        # The replica with most records knows best what chance does in a large window.
        chance = f"min by ({WINDOW}) (last_over_time(cpcmon_estimator_chance_disagreement_ratio{{{name}}}[{BRIDGE}]))"
        series = f"{CHANCE_MARGIN} * {chance}"
        half = f"{series} / 2"
    else:
        series = f"max by ({WINDOW}) (last_over_time(cpcmon_accuracy_threshold_ratio{{{name},{alert}}}[{BRIDGE}]))"
        half = f"(1 + {series}) / 2"
    matched = f"{sign} on ({WINDOW})"
    not_well = f"({value} {matched} {series} {away} {rule.hysteresis!r}) and on ({WINDOW}) ({value} {matched} {half})"
    return f"({value} {matched} {series})", f"({not_well})"
