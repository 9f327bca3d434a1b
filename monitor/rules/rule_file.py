"""The Prometheus rule file of a configuration."""

import re
from collections.abc import Sequence

from monitor.config.config import Config, ModelConfig
from monitor.core.alerts import AlertRule, AlertType, runbook
from monitor.core.estimate import AUDITED
from monitor.core.segments import label_value, quoted
from monitor.evaluation.crontab import longest_gap_seconds
from monitor.rules.builtin_rules import (
    DAEMON,
    KAFKA,
    LABELS,
    WATCHDOG,
    down_rule,
    evaluation_rules,
    invalid_rule,
    merged_invalid_rule,
    outdated_rule,
    warming_rule,
)
from monitor.rules.descriptions import (
    ALL_REPLICAS,
    HELD,
    ONE_DAEMON,
    ONE_REPLICA,
    SINCE,
    description,
    since_replicas,
    since_rule,
    summary,
)
from monitor.rules.replicas import merged_expression, recording_rules
from monitor.rules.rule import BRIDGE, SEGMENT_LABELS, PrometheusRule, RecordingRule, bridged, group_text

DEFAULT_JOB = ".*cpcmon.*"

_HEAD = """\
# Written by `cpcmon rules`. Do not edit: change the configuration and run the command again.
#
# The daemon evaluates the alerts. It applies the interval, `for`, the share of new records and the hysteresis before it
# reports an alert as firing, so the rules here do not wait again. An alert that cannot be evaluated keeps its state.
# last_over_time bridges restarts and failed scrapes of up to {bridge}. A recovery that the daemon reports resolves the
# alert at once, which keep_firing_for would delay.
"""

_HEAD_REPLICAS = """\
#
# For models that replicas share, each replica evaluates only its own records. Prometheus evaluates the whole, with `for`
# and the hysteresis, without the share of new records: docs/scaling.md. Alerts with a metric, and those on the audited
# accuracy, are those of each replica.
"""


def rule_file(config: Config, job: str = DEFAULT_JOB) -> str:
    """Return the rule file; `job` is a regular expression for the job under which Prometheus scrapes cpcmon."""
    # With a job of its own, a daemon may have a neighbour with models and alerts of the same names.
    only = "" if job == DEFAULT_JOB else f"job=~{quoted(job)},"
    shared = [model.name for model in config.models if config.is_shared(model.name)]
    sharded = any(source.options.sharded for source in config.sources)
    groups: dict[str, Sequence[PrometheusRule | RecordingRule]] = {
        "cpcmon": [
            down_rule(job),
            outdated_rule(config, job),
            *_without_estimate(shared, only),
            *DAEMON,
            *(LABELS if any(one.labels is not None for one in config.models) else ()),
            *(KAFKA if sharded else ()),
            WATCHDOG,
        ]
    }
    if shared:
        groups["cpcmon replicas"] = recording_rules(job)
    for one in config.models:
        groups[f"cpcmon model {label_value(one.name)}"] = _model_rules(one, only, shared=one.name in shared)
    texts = [group_text(name, rules, config.links) for name, rules in groups.items()]
    return _HEAD.format(bridge=BRIDGE) + (_HEAD_REPLICAS if shared else "") + "groups:\n" + "".join(texts)


def _without_estimate(shared: Sequence[str], only: str) -> list[PrometheusRule]:
    if not shared:
        return [invalid_rule(only.rstrip(",")), warming_rule(only.rstrip(","))]
    names = quoted("|".join(re.escape(label_value(name)) for name in shared))
    # One replica's share may be too small for an estimate and still be a part of the whole.
    alone = f"{only}model!~{names}"
    return [invalid_rule(alone), warming_rule(alone), merged_invalid_rule(f"{only}model=~{names}")]


def _model_rules(model: ModelConfig, only: str, *, shared: bool) -> list[PrometheusRule]:
    configured = [_configured(label_value(model.name), rule, only, shared=shared) for rule in model.alerts]
    return [*configured, *evaluation_rules(model, longest_gap_seconds(model.evaluate), only)]


def _configured(model: str, rule: AlertRule, only: str, *, shared: bool) -> PrometheusRule:
    """Return the rule for a configured alert; it fires for each segment separately."""
    alert, name = label_value(rule.name), alert_name(rule.name)
    firing = f"cpcmon_alert_firing{{{only}model={quoted(model)},alert={quoted(alert)}}}"
    # Without severity: after it was changed there are two series, and Prometheus would reject the duplicate.
    of_one = f"max without (severity) ({bridged(firing)}) == 1"
    # Metrics of the replicas do not add up, each has its own baseline, and audits its own partitions: each alerts on its own
    # records.
    own = rule.metric is not None or rule.estimator == AUDITED
    merged = shared and not own and rule.kind not in {AlertType.OUTPUT_DRIFT, AlertType.BASELINE_GAP}
    evaluated_here = merged and rule.kind in {AlertType.ACCURACY, AlertType.DISAGREEMENT}
    # For inhibition: one fault in a scanner also changes its hospital and the whole model.
    is_change = rule.kind is AlertType.CHANGE
    series = ALL_REPLICAS if merged else ONE_REPLICA if shared else ONE_DAEMON
    if not merged:
        fired = SINCE + HELD
    elif evaluated_here:
        fired = since_rule(name, rule.name)
    else:
        fired = since_replicas(rule.name)
    return PrometheusRule(
        name,
        merged_expression(model, rule, name, only) if merged else of_one,
        rule.severity,
        summary(rule, series),
        description(rule, series, fired),
        runbook(rule.kind, upward=rule.upward),
        rule.for_seconds if evaluated_here else 0.0,
        # Fixed labels: two models may have alerts of the same name, and Prometheus forbids equal rules in a group.
        labels={"model": model, "alert": alert} | ({"direction": rule.direction} if is_change else {}),
        templates=SEGMENT_LABELS if is_change else {},
    )


def alert_name(name: str) -> str:
    """Return the alert name in Prometheus: `accuracy_low` becomes `CpcmonAccuracyLow`."""
    words = re.findall("[A-Za-z0-9]+", name)
    return "Cpcmon" + "".join(word[0].upper() + word[1:] for word in words)
