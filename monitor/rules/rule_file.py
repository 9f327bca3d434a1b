"""The rule file that makes Prometheus pass on the alerts of exactly one configuration."""

import re
from collections.abc import Sequence

from monitor.config.config import Config, ModelConfig
from monitor.core.alerts import AlertRule, AlertType, is_high, runbook
from monitor.core.label_values import label_value, quoted
from monitor.evaluation.schedule import longest_wait_seconds
from monitor.rules.alert_texts import ALL_REPLICAS, ONE_DAEMON, description
from monitor.rules.model_rules import (
    failing_rule,
    invalid_rule,
    merged_invalid_rule,
    refused_rule,
    stale_rule,
    unruled_rule,
    warming_rule,
)
from monitor.rules.replicas import merged_expression, recording_rules
from monitor.rules.rule import BRIDGE, PrometheusRule, RecordingRule, bridged, group_text
from monitor.rules.self_rules import FIXED, KAFKA, WATCHDOG, down_rule
from monitor.sources.kafka.kafka_options import KafkaOptions

DEFAULT_JOB = ".*cpcmon.*"

_HEAD = """\
# Written by `cpcmon rules`. Do not edit it: change the configuration and write it anew.
#
# The daemon judges. Before it says that an alert is firing it has applied the interval, `for`, the share of new records
# and the hysteresis, and what it cannot judge it leaves as it was. So nothing waits here again. last_over_time bridges
# restarts and failed scrapes: a series that is gone for less than {bridge} counts as its last value, while a recovery that
# the daemon says resolves at once (keep_firing_for would hold it back as long).
"""

_OF_REPLICAS = """\
#
# Of models that replicas share, each replica judges its own records only, and Prometheus judges the whole: with `for` and
# the hysteresis, without the share of new records. docs/scaling.md has more.
"""

_SUMMARIES = {
    AlertType.ACCURACY: "The estimated accuracy of a model is too low.",
    AlertType.DISAGREEMENT: "The estimators of a model disagree.",
    AlertType.SILENT: "No records of a model come in.",
    AlertType.DEGRADED_INPUT: "Many records of a model are refused or look odd.",
}
_SUSPICIOUS = "The estimated accuracy of a model is suspiciously high."


def rule_file(config: Config, job: str = DEFAULT_JOB) -> str:
    """Return the rule file; `job` is a regular expression for the job under which Prometheus scrapes cpcmon."""
    # Under a job of its own, a daemon may have a neighbour with models and alerts of the same names.
    only = "" if job == DEFAULT_JOB else f"job=~{quoted(job)},"
    shared = [model.name for model in config.models if config.is_shared(model.name)]
    in_groups = any(isinstance(source.options, KafkaOptions) for source in config.sources)
    of_cpcmon = [
        down_rule(job),
        unruled_rule(config, job),
        *_of_silence(shared, only),
        *FIXED,
        *(KAFKA if in_groups else ()),
        WATCHDOG,
    ]
    groups: dict[str, Sequence[PrometheusRule | RecordingRule]] = {"cpcmon": of_cpcmon}
    if shared:
        groups["cpcmon replicas"] = recording_rules(job)
    for one in config.models:
        groups[f"cpcmon model {label_value(one.name)}"] = _of_model(one, only, shared=one.name in shared)
    texts = [group_text(name, rules, config.runbooks) for name, rules in groups.items()]
    return _HEAD.format(bridge=BRIDGE) + (_OF_REPLICAS if shared else "") + "groups:\n" + "".join(texts)


def _of_silence(shared: Sequence[str], only: str) -> list[PrometheusRule]:
    """Return the alerts on models of which nothing can be said; of those that replicas share, not even together."""
    if not shared:
        return [invalid_rule(only.rstrip(",")), warming_rule(only.rstrip(","))]
    names = quoted("|".join(re.escape(label_value(name)) for name in shared))
    # The share of one replica may be too small to say anything, and is still a part of the whole.
    alone = f"{only}model!~{names}"
    return [invalid_rule(alone), warming_rule(alone), merged_invalid_rule(f"{only}model=~{names}")]


def _of_model(model: ModelConfig, only: str, *, shared: bool) -> list[PrometheusRule]:
    gap = longest_wait_seconds(model.evaluate)
    configured = [_passed_on(label_value(model.name), rule, only, shared=shared) for rule in model.alerts]
    return [*configured, stale_rule(model, gap, only), failing_rule(model, gap, only), *refused_rule(model, only)]


def _passed_on(model: str, rule: AlertRule, only: str, *, shared: bool) -> PrometheusRule:
    """Return the Prometheus alert for one of the daemon's; it fires for each segment by itself."""
    alert, name = label_value(rule.name), alert_name(rule.name)
    firing = f"cpcmon_alert_firing{{{only}model={quoted(model)},alert={quoted(alert)}}}"
    # Without severity, or a firing alert of which it was just changed would be there twice, and Prometheus refuse both.
    of_one = f"max without (severity) ({bridged(firing)}) == 1"
    judged_here = shared and rule.kind in {AlertType.ACCURACY, AlertType.DISAGREEMENT}
    high = is_high(rule)
    return PrometheusRule(
        name,
        merged_expression(model, rule, name, only) if shared else of_one,
        rule.severity,
        _SUSPICIOUS if high else _SUMMARIES[rule.kind],
        description(rule, ALL_REPLICAS if shared else ONE_DAEMON),
        runbook(rule.kind, upward=rule.upward),
        rule.for_seconds if judged_here else 0.0,
        # Not only from the series: two models may have an alert of one name, and rules must differ in what is fixed.
        labels={"model": model, "alert": alert},
    )


def alert_name(name: str) -> str:
    """Return what Prometheus calls an alert: `accuracy_low` becomes `CpcmonAccuracyLow`."""
    words = re.findall("[A-Za-z0-9]+", name)
    return "Cpcmon" + "".join(word[0].upper() + word[1:] for word in words)
