"""The rule file that makes Prometheus pass on the alerts of exactly one configuration."""

import re

from monitor.configuration.config import Config, Every, ModelConfig
from monitor.core.alert_rules import Kind, On, Rule
from monitor.sinks.cron_gap import longest_gap_seconds
from monitor.sinks.labels import label_value, quoted
from monitor.sinks.operational_rules import (
    FIXED,
    WATCHDOG,
    down_rule,
    failing_rule,
    refused_rule,
    stale_rule,
    unruled_rule,
)
from monitor.sinks.prometheus_rule import PrometheusRule, duration, group_text

DEFAULT_JOB = ".*cpcmon.*"

_BRIDGE = "15m"
"""Over how long a gap without scrapes a firing alert goes on. A restart must not look like a recovery."""

_HEAD = """\
# Written by `cpcmon rules`. Do not edit it: change the configuration and write it anew.
#
# The daemon judges. Before it says that an alert is firing it has applied the interval, `for`, the share of new records
# and the hysteresis, and what it cannot judge it leaves as it was. So nothing waits here again. last_over_time bridges
# restarts and failed scrapes: a series that is gone for less than {bridge} counts as its last value, while a recovery that
# the daemon says resolves at once (keep_firing_for would hold it back as long).
"""

_SUMMARIES = {
    Kind.ACCURACY: "The estimated accuracy of a model is too low.",
    Kind.DISAGREEMENT: "The estimators of a model disagree.",
    Kind.SILENT: "No records of a model come in.",
    Kind.DEGRADED_INPUT: "Many records of a model are refused.",
}
_SUSPICIOUS = "The estimated accuracy of a model is suspiciously high."
_COMPARED = {
    On.VALUE: "accuracy",
    On.LOWER: "lower bound of the accuracy",
    On.UPPER: "upper bound of the accuracy",
}

_IF_HELD = (
    "{{ with query (printf `cpcmon_alert_held{instance=%q,model=%q,segment=%q,alert=%q} == 1`"
    " $labels.instance $labels.model $labels.segment $labels.alert) }} It cannot be judged now and stays as it was.{{ end }}"
)


def rule_file(config: Config, job: str = DEFAULT_JOB) -> str:
    """Return the rule file; `job` is a regular expression for the job under which Prometheus scrapes cpcmon."""
    of_cpcmon = [down_rule(job), unruled_rule(config, job), *FIXED, WATCHDOG]
    groups = {"cpcmon": of_cpcmon} | {f"cpcmon model {label_value(one.name)}": _of_model(one) for one in config.models}
    texts = [group_text(name, rules, config.runbooks) for name, rules in groups.items()]
    return _HEAD.format(bridge=_BRIDGE) + "groups:\n" + "".join(texts)


def _of_model(model: ModelConfig) -> list[PrometheusRule]:
    gap = model.evaluate.seconds if isinstance(model.evaluate, Every) else longest_gap_seconds(model.evaluate.line)
    configured = [_passed_on(label_value(model.name), rule) for rule in model.alerts]
    return [*configured, stale_rule(model, gap), failing_rule(model, gap), *refused_rule(model)]


def _passed_on(model: str, rule: Rule) -> PrometheusRule:
    """Return the Prometheus alert for one of the daemon's; it fires for each segment by itself."""
    alert = label_value(rule.name)
    firing = f"cpcmon_alert_firing{{model={quoted(model)},alert={quoted(alert)}}}"
    high = rule.kind is Kind.ACCURACY and rule.above is not None
    return PrometheusRule(
        alert_name(rule.name),
        # Without severity, or a firing alert of which it was just changed would be there twice, and Prometheus refuse both.
        f"max without (severity) (last_over_time({firing}[{_BRIDGE}])) == 1",
        rule.severity,
        _SUSPICIOUS if high else _SUMMARIES[rule.kind],
        f"{{{{ $labels.model }}}}, {{{{ $labels.segment }}}}: {_said(rule)}{_IF_HELD}",
        "accuracy_high.md" if high else f"{rule.kind}.md",
        # Not only from the series: two models may have an alert of one name, and rules must differ in what is fixed.
        labels={"model": model, "alert": alert},
    )


def alert_name(name: str) -> str:
    """Return what Prometheus calls an alert: `accuracy_low` becomes `CpcmonAccuracyLow`."""
    words = re.findall("[A-Za-z0-9]+", name)
    return "Cpcmon" + "".join(word[0].upper() + word[1:] for word in words)


def _said(rule: Rule) -> str:
    match rule.kind:
        case Kind.ACCURACY:
            return _accuracy(rule)
        case Kind.DISAGREEMENT:
            found = _value("cpcmon_estimator_disagreement_ratio", "by more than they should")
            return f"the estimators disagree: {found}. No estimate deserves trust until it is known why."
        case Kind.SILENT:
            last = _value("cpcmon_last_record_timestamp_seconds", "unknown", shown="humanizeTimestamp")
            return f"no record came for {duration(rule.after_seconds)}. The newest was made: {last}."
        case Kind.DEGRADED_INPUT:
            share = _value("cpcmon_input_rejected_ratio", "too many", of_segment=False)
            return f"of the latest records were refused: {share}. Its accuracy cannot be said."


def _accuracy(rule: Rule) -> str:
    if rule.drop is not None:
        limit = f"more than {rule.drop:g} under the accuracy on the reference"
    else:
        limit = f"under {rule.below:g}" if rule.below is not None else f"over {rule.above:g}"
    estimator = f",estimator={quoted(rule.estimator)}"
    value = _value("cpcmon_estimated_accuracy_ratio", "unknown", labels=estimator)
    lower = _value("cpcmon_estimated_accuracy_lower_ratio", "unknown", labels=estimator)
    upper = _value("cpcmon_estimated_accuracy_upper_ratio", "unknown", labels=estimator)
    dwell = f" for {duration(rule.for_seconds)}" if rule.for_seconds else ""
    return (
        f"the {_COMPARED[rule.on]} by {rule.estimator} stayed {limit}{dwell} and over enough new records."
        f" Estimated now: {value}, from {lower} to {upper}."
    )


def _value(
    series: str, otherwise: str, *, labels: str = "", shown: str = "humanizePercentage", of_segment: bool = True
) -> str:
    """Return the template of a series' value, with a word for when it is absent."""
    whose, given = "instance=%q,model=%q", "$labels.instance $labels.model"
    if of_segment:
        whose, given = f"{whose},segment=%q", f"{given} $labels.segment"
    query = f"query (printf `{series}{{{whose}{labels}}}` {given})"
    return f"{{{{ with {query} }}}}{{{{ . | first | value | {shown} }}}}{{{{ else }}}}{otherwise}{{{{ end }}}}"
