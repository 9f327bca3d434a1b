"""Recording rules and alerts over all replicas of a shared model.

A part is a sum over the records that one replica holds, so the sum over replicas does not depend on which of them holds
which partition. `docs/scaling.md` says for which estimators that is exact.
"""

from monitor.core.alerts import CHANCE_MARGIN, AlertRule, AlertType, On
from monitor.core.estimators.consensus import CONSENSUS, VOICES
from monitor.core.label_values import label_value, quoted
from monitor.rules.rule import BRIDGE, RecordingRule

MODEL = "job, namespace, model"
WINDOW = f"{MODEL}, segment"
"""What a merged window is told apart by. Where Prometheus knows no namespaces, the label is empty on both sides."""
_ESTIMATOR = f"{WINDOW}, estimator"

RATIO = "cpcmon:estimated_accuracy_ratio"
LOWER = "cpcmon:estimated_accuracy_lower_ratio"
UPPER = "cpcmon:estimated_accuracy_upper_ratio"
DISAGREEMENT = "cpcmon:estimator_disagreement_ratio"
WINDOW_RECORDS = "cpcmon:window_records"
ESTIMATE_RECORDS = "cpcmon:estimate_records"
"""There when the merged estimate may be said, and not otherwise."""

ALL_DOWN = f"(min_over_time((max by (job, namespace) (up))[{BRIDGE}:]) == 0)"
"""Jobs of which lately nobody could be scraped: what replicas said together has no instance, so no inhibition finds it."""

_VOICES = f"{RATIO}{{estimator=~{quoted('|'.join(VOICES))}%s}}"


def recording_rules(job: str | None = None) -> list[RecordingRule]:
    """Return the rules, each after those that it needs; `job` is a regular expression, None for whatever is scraped."""
    chosen = "" if job is None else f"job=~{quoted(job)}"
    only = f"{{{chosen}}}" if chosen else ""
    more = f",{chosen}" if chosen else ""
    counts = f"sum by ({_ESTIMATOR}) (cpcmon_estimate_count{only})"
    voices = _VOICES % more
    all_speak = f"and on ({WINDOW}) count by ({WINDOW}) ({voices}) == {len(VOICES)}"
    return [
        RecordingRule(WINDOW_RECORDS, f"sum by ({WINDOW}) (cpcmon_window_records{only})"),
        RecordingRule(
            ESTIMATE_RECORDS,
            f"max by ({WINDOW}) ({counts})"
            f" >= on ({MODEL}) group_left () max by ({MODEL}) (cpcmon_window_minimum_records{only})"
            f" and on ({WINDOW}) max by ({WINDOW}) (cpcmon_window_fresh{only}) == 1",
        ),
        RecordingRule(
            RATIO,
            f'clamp(sum by ({_ESTIMATOR}) (cpcmon_estimate_sum{{estimator!="{CONSENSUS}"{more}}}) / {counts}, 0, 1)'
            f" and on ({WINDOW}) {ESTIMATE_RECORDS}",
        ),
        # Not the mean of the replicas' own: that of the merged voices, by the interpolation that the daemon uses too.
        RecordingRule(RATIO, f"quantile by ({WINDOW}) (0.25, {voices}) {all_speak}", {"estimator": CONSENSUS}),
        RecordingRule(DISAGREEMENT, f"max by ({WINDOW}) ({voices}) - min by ({WINDOW}) ({voices}) {all_speak}"),
        RecordingRule(LOWER, _bound("lower", "<", only, counts)),
        RecordingRule(UPPER, _bound("upper", ">", only, counts)),
    ]


def _bound(side: str, beyond: str, only: str, counts: str) -> str:
    """Return the mean of the replicas' bounds by records, or the estimate itself where that lies beyond it."""
    mean = f"sum by ({_ESTIMATOR}) (cpcmon_estimate_{side}_sum{only}) / {counts}"
    estimate = f"{RATIO}{only}"
    return f"{mean} {beyond} {estimate} or ({estimate} and {mean})"


_COMPARED = {On.VALUE: RATIO, On.LOWER: LOWER, On.UPPER: UPPER}


def merged_expression(model: str, rule: AlertRule, alert_name: str, only: str = "") -> str:
    """Return what fires when one of a model's rules holds over all replicas.

    As in the daemon, it ends only beyond the hysteresis, and stays as it is while nothing can be said. What Prometheus
    remembers of that is its own series ALERTS.
    """
    name, alert = f"{only}model={quoted(model)}", f"alert={quoted(label_value(rule.name))}"
    # Every replica says of which segments it judges the rule.
    known = f"max by ({WINDOW}) (last_over_time(cpcmon_alert_firing{{{name},{alert}}}[{BRIDGE}]))"
    match rule.kind:
        case AlertType.SILENT:
            # One that gets records is proof enough that they come.
            return f"min by ({WINDOW}) (last_over_time(cpcmon_alert_firing{{{name},{alert}}}[{BRIDGE}])) == 1"
        case AlertType.DEGRADED_INPUT:
            return f"{known} == 1"
        case AlertType.ACCURACY | AlertType.DISAGREEMENT:
            value = _value(name, rule)
    bad, not_well = _compared(value, name, alert, rule)
    firing = f'ALERTS{{alertname="{alert_name}",alertstate="firing",{name},{alert}}}'
    return (
        f"({bad} or ({not_well} and on ({WINDOW}) {firing})"
        f" or ({known} unless on ({WINDOW}) {value} and on ({WINDOW}) {firing}))"
        f" and on ({WINDOW}) {known}"
        f" or max by ({WINDOW}) ({firing}) and on (job, namespace) {ALL_DOWN} unless on ({WINDOW}) {value}"
    )


def _value(name: str, rule: AlertRule) -> str:
    if rule.kind is AlertType.DISAGREEMENT:
        series = f"{DISAGREEMENT}{{{name}}}"
    else:
        series = f"{_COMPARED[rule.on]}{{{name},estimator={quoted(rule.estimator)}}}"
    return f"max by ({WINDOW}) (last_over_time({series}[{BRIDGE}]))"


def _compared(value: str, name: str, alert: str, rule: AlertRule) -> tuple[str, str]:
    """Return what is true when the rule is broken, and what is true until it is well again."""
    high = rule.above is not None or rule.kind is AlertType.DISAGREEMENT
    sign, away = (">", "-") if high else ("<", "+")
    limit = rule.below if rule.below is not None else rule.above
    if limit is not None:
        # Never more than half way to the end of the scale, or an alert near 0 or 1 could not recover.
        well = limit - min(rule.hysteresis, limit / 2.0) if high else limit + min(rule.hysteresis, (1.0 - limit) / 2.0)
        return f"{value} {sign} {limit!r}", f"{value} {sign} {well!r}"
    if rule.kind is AlertType.DISAGREEMENT:
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
