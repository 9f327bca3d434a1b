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
    Kind.DEGRADED_INPUT: "Many records of a model are refused or look odd.",
}
_SUSPICIOUS = "The estimated accuracy of a model is suspiciously high."
_COMPARED = {On.VALUE: "It", On.LOWER: "Its lower bound", On.UPPER: "Its upper bound"}
_TO_DO = {
    Kind.ACCURACY: "Tell whoever answers for the model, and have some of the latest cases from there labelled.",
    Kind.DISAGREEMENT: "Have some of the latest cases from there labelled.",
    Kind.SILENT: "Ask there whether the model is in use. If it is, follow its records on their way to cpcmon.",
    Kind.DEGRADED_INPUT: "Look at what writes the records; the page of cpcmon says what they might be.",
}
"""The first thing, for somebody who cannot open the runbook."""
_IF_SUSPICIOUS = "Look at some raw outputs at their source before anybody relies on it."

_PER_CENT = "{{ . | first | value | humanizePercentage }}"
_TIME = "{{ . | first | value | humanizeTimestamp }}"
_OF_WINDOW = ("instance", "model", "segment")
_OF_ALERT = (*_OF_WINDOW, "alert")


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
    high = _is_high(rule)
    return PrometheusRule(
        alert_name(rule.name),
        # Without severity, or a firing alert of which it was just changed would be there twice, and Prometheus refuse both.
        f"max without (severity) (last_over_time({firing}[{_BRIDGE}])) == 1",
        rule.severity,
        _SUSPICIOUS if high else _SUMMARIES[rule.kind],
        _description(rule),
        "accuracy_high.md" if high else f"{rule.kind}.md",
        # Not only from the series: two models may have an alert of one name, and rules must differ in what is fixed.
        labels={"model": model, "alert": alert},
    )


def _is_high(rule: Rule) -> bool:
    return rule.kind is Kind.ACCURACY and rule.above is not None


def alert_name(name: str) -> str:
    """Return what Prometheus calls an alert: `accuracy_low` becomes `CpcmonAccuracyLow`."""
    words = re.findall("[A-Za-z0-9]+", name)
    return "Cpcmon" + "".join(word[0].upper() + word[1:] for word in words)


def _description(rule: Rule) -> str:
    """Say where, what, since when and what to do. What is not known at the moment is left out, or said so."""
    since = _if("cpcmon_alert_since_timestamp_seconds", f" Firing since {_TIME}.", _OF_ALERT)
    held = _if("cpcmon_alert_held", " It cannot be judged now and stays as it was.", _OF_ALERT, compared=" == 1")
    where = "{{ $labels.model }}, {{ $labels.segment }}"
    return f"{where}: {_said(rule)}{since}{held} {_IF_SUSPICIOUS if _is_high(rule) else _TO_DO[rule.kind]}"


def _said(rule: Rule) -> str:
    match rule.kind:
        case Kind.ACCURACY:
            return _accuracy(rule)
        case Kind.DISAGREEMENT:
            found = _if("cpcmon_estimator_disagreement_ratio", f" by {_PER_CENT}")
            chance = _if("cpcmon_estimator_chance_disagreement_ratio", f", where chance alone stays below {_PER_CENT}")
            allowed = chance if rule.above is None else f", where {_per_cent(rule.above)} is allowed"
            return f"the estimators disagree{found}{allowed}. No estimate deserves trust until it is known why."
        case Kind.SILENT:
            last = _if("cpcmon_last_record_timestamp_seconds", f" The newest was made {_TIME}.")
            return f"no record came for {duration(rule.after_seconds)}.{last}"
        case Kind.DEGRADED_INPUT:
            share = _if("cpcmon_input_rejected_ratio", f" (refused: {_PER_CENT})", ("instance", "model"))
            return f"too many of the latest records are refused or look odd{share}. The accuracy cannot be said."


def _accuracy(rule: Rule) -> str:
    estimator = f"estimator={quoted(rule.estimator)}"
    value = _if("cpcmon_estimated_accuracy_ratio", f" {_PER_CENT}", also=estimator, otherwise=" unknown at the moment")
    lower = _if("cpcmon_estimated_accuracy_lower_ratio", f", from {_PER_CENT}", also=estimator)
    upper = _if("cpcmon_estimated_accuracy_upper_ratio", f" to {_PER_CENT}", also=estimator)
    dwell = f" for {duration(rule.for_seconds)}" if rule.for_seconds else ""
    return (
        f"estimated accuracy{value}{lower}{upper}, by {rule.estimator}."
        f" {_COMPARED[rule.on]} stayed {_limit(rule)}{dwell} and over enough new records."
    )


def _limit(rule: Rule) -> str:
    if rule.drop is None:
        side, ratio = ("over", rule.above) if rule.below is None else ("under", rule.below)
        return f"{side} {_per_cent(ratio)}"
    # A number to compare with, where it is known: nobody has the accuracy on the reference in mind.
    number = _if("cpcmon_accuracy_threshold_ratio", f" {_PER_CENT},", _OF_ALERT)
    return f"under{number} the accuracy on the reference less {100.0 * rule.drop:g} points,"


def _per_cent(ratio: float | None) -> str:
    return "its limit" if ratio is None else f"{100.0 * ratio:g}%"


def _if(
    series: str,
    text: str,
    same: tuple[str, ...] = _OF_WINDOW,
    *,
    compared: str = "",
    also: str = "",
    otherwise: str = "",
) -> str:
    """Return the template that says a text if there is a series with the same labels as the alert; it may use its value."""
    labels = ",".join([*(f"{name}=%q" for name in same), *([also] if also else [])])
    query = f"query (printf `{series}{{{labels}}}{compared}` {' '.join(f'$labels.{name}' for name in same)})"
    return f"{{{{ with {query} }}}}{text}{f'{{{{ else }}}}{otherwise}' if otherwise else ''}{{{{ end }}}}"
