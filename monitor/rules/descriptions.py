"""Descriptions of the configured alerts: Prometheus templates that read well when series are absent."""

from dataclasses import dataclass, replace

from monitor.core.alerts import AlertRule, AlertType, On, is_high
from monitor.core.baselines.comparison import BaselineKind
from monitor.core.change import Direction
from monitor.core.estimate import AUDITED, CONSENSUS, HEADLINE
from monitor.core.labels.realised import Scope
from monitor.core.segments import label_value, quoted
from monitor.rules import replicas
from monitor.rules.rule import duration, literal

_COMPARED = {
    On.VALUE: "The estimate",
    On.LOWER: "Its lower bound",
    On.UPPER: "Its upper bound",
    On.FIELD_LOWER: "The lower end of its field interval",
    On.FIELD_UPPER: "The upper end of its field interval",
}
_COMPARED_AUDITED = {**_COMPARED, On.VALUE: "It"}
_HORIZON = f'scope="{Scope.HORIZON}"'
FIELD_MEANING = "in the real shifts we tried, about nine in ten accuracies lay inside"
SUMMARIES = {
    AlertType.CHANGE: "The accuracy of a model has dropped, by its outputs.",
    AlertType.ACCURACY: "The estimated accuracy of a model is too low.",
    AlertType.DISAGREEMENT: "The estimators of a model disagree.",
    AlertType.OUTPUT_DRIFT: "A model answers differently than it did.",
    AlertType.BASELINE_GAP: "A segment without labels is far below the reference.",
    AlertType.SILENT: "A model receives no records.",
    AlertType.DEGRADED_INPUT: "Many records of a model are rejected or look wrong.",
}
SUMMARY_ROSE = "The accuracy of a model has risen, by its outputs."
SUMMARY_HIGH = "The estimated accuracy of a model is suspiciously high."
METRIC_LOW = "An estimated performance metric of a model is too low."
METRIC_HIGH = "An estimated performance metric of a model is suspiciously high."
SUMMARY_AUDITED_LOW = "The audited accuracy of a model is too low."
SUMMARY_AUDITED_HIGH = "The audited accuracy of a model is suspiciously high."
ACTIONS = {
    AlertType.CHANGE: "Ask what was changed at that time, notify the owner of the model, and have cases since then labelled.",
    AlertType.ACCURACY: "Notify the owner of the model, and have recent cases of this segment labelled.",
    AlertType.DISAGREEMENT: "Have recent cases of this segment labelled.",
    AlertType.OUTPUT_DRIFT: "Do not rely on the estimate alone: ask what changed, and have recent cases labelled.",
    AlertType.BASELINE_GAP: "Have cases of this segment labelled. If it is as good as it should be, confirm its baseline: its page"
    " has the command.",
    AlertType.SILENT: "Check whether the model is in use. If it is, check each step between the model and cpcmon.",
    AlertType.DEGRADED_INPUT: "Check the program that writes the records; the page of cpcmon shows likely causes.",
}
"""The first step, for someone who cannot open the runbook."""
ACTION_AUDITED_HIGH = "Check how the labels are made: those who label may see the model's answer."
ACTION_AUDITED = "Notify the owner of the model: labels of a random sample say this, not an estimate."
ACTION_HIGH = "Check raw outputs at their source before anyone relies on the estimate."

PERCENT = "{{ . | first | value | humanizePercentage }}"
_POWER = '10^{{ . | first | value | printf "%.1f" }}'
_DISTANCE = '{{ . | first | value | printf "%.2f" }}'
TIME = "{{ . | first | value | humanizeTimestamp }}"
UNKNOWN = " currently unknown"
METRIC = "cpcmon_estimated_performance"
"""The start of the names of estimated metrics and their bounds."""
THRESHOLDS = (
    ("cpcmon_accuracy_threshold_ratio", "its baseline"),
    ("cpcmon_performance_threshold_ratio", "the reference's value"),
)
"""The series of thresholds, and what a drop is measured from: for accuracy, and for metrics."""


@dataclass(frozen=True, slots=True)
class DescriptionSeries:
    """The series that a description reads its numbers from."""

    target: tuple[str, ...]
    """Labels of the target: one daemon, or the replicas of one job."""
    ratio: str
    lower: str
    upper: str
    field_lower: str
    field_upper: str
    disagreement: str
    evidence: str
    evidence_threshold: str
    merged: bool
    part: str = ""
    """Which of the model's records it is about, if not all of one daemon."""

    @property
    def window(self) -> tuple[str, ...]:
        """Labels of a window."""
        return (*self.target, "model", "segment")


ONE_DAEMON = DescriptionSeries(
    ("instance",),
    "cpcmon_estimated_accuracy_ratio",
    "cpcmon_estimated_accuracy_lower_ratio",
    "cpcmon_estimated_accuracy_upper_ratio",
    "cpcmon_estimated_accuracy_field_lower_ratio",
    "cpcmon_estimated_accuracy_field_upper_ratio",
    "cpcmon_estimator_disagreement_ratio",
    "cpcmon_change_evidence",
    "cpcmon_change_evidence_threshold",
    merged=False,
)
ALL_REPLICAS = DescriptionSeries(
    ("job", "namespace"),
    replicas.RATIO,
    replicas.LOWER,
    replicas.UPPER,
    replicas.FIELD_LOWER,
    replicas.FIELD_UPPER,
    replicas.DISAGREEMENT,
    replicas.EVIDENCE,
    replicas.EVIDENCE_THRESHOLD,
    merged=True,
    part=", all replicas",
)
ONE_REPLICA = replace(ONE_DAEMON, part=", one replica ({{ $labels.instance }})")


def if_series(
    series: str, text: str, labels: tuple[str, ...], *, condition: str = "", matcher: str = "", otherwise: str = ""
) -> str:
    """Return a template for a text about a series with the labels of the alert, empty if there is no such series."""
    matchers = ",".join([*(f"{name}=%q" for name in labels), *([matcher] if matcher else [])])
    return if_query(f"{series}{{{matchers}}}{condition}", text, labels, otherwise)


def if_query(query: str, text: str, labels: tuple[str, ...], otherwise: str = "") -> str:
    """Return a template for a text about the result of a query; `%q` in the query stands for each label in turn."""
    if PERCENT in text:
        # As on the pages: to a tenth of a point.
        query = f"round({query}, 0.001)"
    found = f"query (printf `{query}` {' '.join(f'$labels.{name}' for name in labels)})"
    return f"{{{{ with {found} }}}}{text}{f'{{{{ else }}}}{otherwise}' if otherwise else ''}{{{{ end }}}}"


_ALERT = (*ONE_DAEMON.window, "alert")
SINCE = if_series("cpcmon_alert_since_timestamp_seconds", f" Firing since {TIME}.", _ALERT)
HELD = if_series("cpcmon_alert_held", " It cannot be evaluated now and keeps its state.", _ALERT, condition=" == 1")


def summary(rule: AlertRule) -> str:
    """Return the summary of a configured alert."""
    if rule.kind is AlertType.CHANGE and rule.direction is Direction.UP:
        return SUMMARY_ROSE
    if rule.estimator == AUDITED:
        return SUMMARY_AUDITED_HIGH if is_high(rule) else SUMMARY_AUDITED_LOW
    if is_high(rule):
        return SUMMARY_HIGH if rule.metric is None else METRIC_HIGH
    return SUMMARIES[rule.kind] if rule.metric is None else METRIC_LOW


def description(rule: AlertRule, series: DescriptionSeries) -> str:
    """Return the description of a configured alert: where, what, since when, and the first step."""
    where = "{{ $labels.model }}, {{ $labels.segment }}" + series.part
    since = "" if series.merged else SINCE + HELD
    upward = is_high(rule) or (rule.kind is AlertType.CHANGE and rule.direction is Direction.UP)
    high, low = ACTION_HIGH, ACTIONS[rule.kind]
    if rule.estimator == AUDITED:
        high, low = ACTION_AUDITED_HIGH, ACTION_AUDITED
    return f"{where}: {_problem(rule, series)}{since} {high if upward else low}"


def _problem(rule: AlertRule, series: DescriptionSeries) -> str:
    match rule.kind:
        case AlertType.CHANGE:
            found = change(series, rule.direction)
        case AlertType.ACCURACY:
            found = _accuracy(rule, series) if rule.metric is None else _metric(rule, series)
        case AlertType.DISAGREEMENT:
            chance = if_series(
                "cpcmon_estimator_chance_disagreement_ratio",
                f", where chance alone stays below {PERCENT}",
                series.window,
            )
            limit = chance if rule.above is None else f", where {_percent(rule.above)} is allowed"
            found = disagreement(series, limit)
        case AlertType.OUTPUT_DRIFT:
            found = output_drift(series)
        case AlertType.BASELINE_GAP:
            found = baseline_gap(series, rule.drop)
        case AlertType.SILENT:
            found = f"no records for {duration(rule.after_seconds)}.{latest_record(series)}"
        case AlertType.DEGRADED_INPUT:
            found = degraded_input(series)
    return found


def change(series: DescriptionSeries, direction: Direction) -> str:
    """Return the text about a change: the evidence, when it began, and what the window says by now."""
    matcher, headline = f'direction="{direction}"', f"estimator={quoted(HEADLINE)}"
    evidence, budget = (
        if_series(name, text, series.window, matcher=matcher)
        for name, text in ((series.evidence, f": evidence {_POWER}"), (series.evidence_threshold, f", budget {_POWER}"))
    )
    ago = _of_most_evidence(
        "records_since_start", ", {{ . | first | value | printf `%.0f` }} records ago", series, matcher
    )
    began = _of_most_evidence("started_timestamp_seconds", f" It began about {TIME}{ago}.", series, matcher)
    lower, upper = (
        if_series(name, text, series.window, matcher=headline)
        for name, text in ((series.lower, f", interval {PERCENT}"), (series.upper, f" to {PERCENT}"))
    )
    estimate = f" The estimate of the window, which also holds older records, is {PERCENT}{lower}{upper}."
    value = if_series(series.ratio, estimate, series.window, matcher=headline)
    did = "dropped" if direction is Direction.DOWN else "risen"
    return f"the accuracy has {did}{evidence}{budget}.{began}{value}{baseline(series)}"


def _of_most_evidence(name: str, text: str, series: DescriptionSeries, matcher: str) -> str:
    """Return a text about a change; with replicas, about that of the one with the most evidence."""
    name = f"cpcmon_change_{name}"
    if not series.merged:
        return if_series(name, text, series.window, matcher=matcher)
    of_window = ",".join([*(f"{label}=%q" for label in series.window), matcher])
    most = f"topk(1, cpcmon_change_evidence{{{of_window}}})"
    return if_query(f"{name}{{{of_window}}} and on (instance) {most}", text, series.window * 2)


def disagreement(series: DescriptionSeries, limit: str = "") -> str:
    """Return the text about a disagreement."""
    found = if_series(series.disagreement, f" by {PERCENT}", series.window)
    return f"the estimators disagree{found}{limit}. Do not trust any estimate until the cause is known."


def output_drift(series: DescriptionSeries) -> str:
    """Return the text about outputs that drifted."""
    parts = [
        if_series(name, text, series.window, matcher=f'measure="{measure}"')
        for measure, words in (("class_mix", "mix of predicted classes"), ("confidence", "confidence"))
        for name, text in (
            ("cpcmon_output_drift", f" The {words} is {_DISTANCE} from its baseline."),
            ("cpcmon_output_drift_limit", f" Its limit is {_DISTANCE}."),
        )
    ]
    return f"the model answers differently than it did.{''.join(parts)}{baseline(series)}"


def baseline(series: DescriptionSeries) -> str:
    """Return the text about the baseline of a window; replicas have parts of it, so that no one knows its size."""
    count = "" if series.merged else "{{ . | first | value | printf `%.0f` }} "
    kind = "(. | first | label `kind`)"
    names = (
        f"{{{{ if eq {kind} `{BaselineKind.OWN}` }}}}its own first {count}records, without labels"
        f"{{{{ else if eq {kind} `{BaselineKind.LABELLED}` }}}}the {count}labelled records of the segment in the reference"
        f"{{{{ else }}}}the {count}records of the reference{{{{ end }}}}"
    )
    return if_series("cpcmon_baseline_records", f" Baseline: {names}.", series.window)


def baseline_gap(series: DescriptionSeries, gap: float | None = None) -> str:
    """Return the text about a segment that was far below the reference from the start."""
    value = if_series(series.ratio, f" {PERCENT}", series.window, matcher=f"estimator={quoted(HEADLINE)}")
    reference = if_series("cpcmon_reference_accuracy_ratio", f" of {PERCENT}", (*series.target, "model"))
    points = "far" if gap is None else f"more than {100 * gap:.3g} points"
    return (
        f"estimated accuracy{value}, {points} below the reference{reference}, and nobody has confirmed its own baseline: it may"
        " have been so from its first record. Compared with the reference."
    )


def latest_record(series: DescriptionSeries) -> str:
    """Return the text about the time of the latest record."""
    return if_series("cpcmon_last_record_timestamp_seconds", f" The latest record is from {TIME}.", series.window)


def degraded_input(series: DescriptionSeries) -> str:
    """Return the text about rejected and odd records."""
    share = if_series("cpcmon_input_rejected_ratio", f" (rejected: {PERCENT})", (*series.target, "model"))
    return f"too many recent records are rejected or look wrong{share}. No accuracy is reported."


def audited(series: DescriptionSeries) -> str:
    """Return the text about the audited accuracy, and how much it rests on."""
    parts = [
        if_series(f"cpcmon_audit{name}", text, series.window, matcher=matcher, otherwise=otherwise)
        for name, text, matcher, otherwise in (
            ("ed_accuracy_ratio", f" {PERCENT}", _HORIZON, UNKNOWN),
            ("ed_accuracy_lower_ratio", f", interval {PERCENT}", _HORIZON, ""),
            ("ed_accuracy_upper_ratio", f" to {PERCENT}", _HORIZON, ""),
            ("ed_labels", ", from {{ . | first | value | printf `%.0f` }} labels", _HORIZON, ""),
            ("_labels_ratio", f" ({PERCENT} of the audited records)", "", ""),
        )
    ]
    return f"audited accuracy{''.join(parts)}."


def _accuracy(rule: AlertRule, series: DescriptionSeries) -> str:
    if rule.estimator == AUDITED:
        return f"{audited(series)} {_COMPARED_AUDITED[rule.on]} stayed {_limit(rule, series)}{_wait(rule)}."
    estimator = f"estimator={quoted(rule.estimator)}"
    is_headline = rule.estimator == HEADLINE
    old = if_series(
        series.ratio,
        f" {PERCENT} by {CONSENSUS}, since the reference is of an older version",
        series.window,
        matcher=f"estimator={quoted(CONSENSUS)}",
        otherwise=UNKNOWN,
    )
    value = if_series(
        series.ratio,
        f" {PERCENT} by {rule.estimator}",
        series.window,
        matcher=estimator,
        otherwise=old if is_headline else UNKNOWN,
    )
    lower = if_series(series.lower, f", interval {PERCENT}", series.window, matcher=estimator)
    upper = if_series(series.upper, f" to {PERCENT}", series.window, matcher=estimator)
    new = "" if series.merged else " and over enough new records"
    return (
        f"estimated accuracy{value}{lower}{upper}{field_interval(series) if is_headline else ''}."
        f" {_COMPARED[rule.on]} stayed {_limit(rule, series)}{_wait(rule)}{new}."
        f"{baseline(series) if rule.uses_baseline else ''}"
    )


def field_interval(series: DescriptionSeries) -> str:
    """Return the text about the field interval of the headline."""
    level = replicas.FIELD_LEVEL
    lower = if_series(series.field_lower, f", field interval {PERCENT}", series.window, matcher=level)
    return lower + if_series(series.field_upper, f" to {PERCENT} ({FIELD_MEANING})", series.window, matcher=level)


def _metric(rule: AlertRule, series: DescriptionSeries) -> str:
    matcher = f"metric={quoted(str(rule.metric))},class={quoted(label_value(rule.of_class or ''))}"
    # Prometheus templates: a query is quoted by backticks, and braces of a class would open an action.
    plain = not set("`%{}") & set(matcher)
    value, lower, upper = (
        if_series(f"{METRIC}{end}_ratio", text, series.window, matcher=matcher, otherwise=otherwise) if plain else ""
        for end, text, otherwise in (
            ("", f" {PERCENT}", UNKNOWN),
            ("_lower", f", interval {PERCENT}", ""),
            ("_upper", f" to {PERCENT}", ""),
        )
    )
    return (
        f"estimated {literal(rule.compared)}{value}{lower}{upper}. {_COMPARED[rule.on]} stayed"
        f" {_limit(rule, series)}{_wait(rule)} and over enough new records."
    )


def _wait(rule: AlertRule) -> str:
    return f" for {duration(rule.for_seconds)}" if rule.for_seconds else ""


def _limit(rule: AlertRule, series: DescriptionSeries) -> str:
    if rule.drop is None:
        side, ratio = ("above", rule.above) if rule.below is None else ("below", rule.below)
        return f"{side} {_percent(ratio)}"
    # The number, where it is known: readers do not know the reference accuracy by heart.
    name, own = THRESHOLDS[rule.metric is not None]
    number = if_series(name, f" {PERCENT},", (*series.window, "alert"))
    return f"below{number} {own} minus {100.0 * rule.drop:g} points,"


def _percent(ratio: float | None) -> str:
    return "its limit" if ratio is None else f"{100.0 * ratio:g}%"
