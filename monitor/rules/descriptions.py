"""Descriptions of the configured alerts: Prometheus templates that read well when series are absent."""

from dataclasses import dataclass, replace

from monitor.core.alerts import AlertRule, AlertType, On, is_high
from monitor.core.baselines.comparison import BaselineKind
from monitor.core.change import Direction
from monitor.core.estimate import AUDITED, CONSENSUS, HEADLINE
from monitor.core.labels.realised import Scope
from monitor.core.segments import label_value, quoted
from monitor.rules import replicas
from monitor.rules.rule import OF_TARGET, duration, literal

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

PLACE = (
    "{{ $labels.model }}{{ if eq (or $labels.segment `all`) `all` }}, all records"
    "{{ else }},{{ $labels.segment | reReplaceAll `(^|,)[^=,]+=` ` ` }}{{ end }}"
)
"""Model and segment, as people name them: `density, Northlake N2`."""
PERCENT = "{{ . | first | value | printf `%.1f%%` }}"
POINTS = "{{ . | first | value | printf `%.1f points` }}"
_COUNT = "{{ . | first | value | printf `%.0f` }}"
_POWER = '10^{{ . | first | value | printf "%.1f" }}'
_DISTANCE = '{{ . | first | value | printf "%.2f" }}'
TIME = "{{ (. | first | value | toTime).UTC.Format `2006-01-02 15:04 UTC` }}"
_FOR = ", for {{ . | first | value | humanizeDuration }}"
UNKNOWN = " currently unknown"
METRIC = "cpcmon_estimated_performance"
"""The start of the names of estimated metrics and their bounds."""
METRIC_THRESHOLD = "cpcmon_performance_threshold_ratio"
_HEADLINE, _CONSENSUS = (f"estimator={quoted(name)}" for name in (HEADLINE, CONSENSUS))


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
    records: str
    baseline: str
    threshold: str
    """Of accuracy. Metrics have one of their own."""
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
    "cpcmon_window_records",
    "cpcmon_baseline_accuracy_ratio",
    "cpcmon_accuracy_threshold_ratio",
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
    replicas.ESTIMATE_RECORDS,
    replicas.BASELINE,
    replicas.THRESHOLD,
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
    # Texts about other queries may follow.
    own = text.partition("{{ with ")[0]
    if PERCENT in own or POINTS in own:
        query = f"100 * ({query})"
    found = f"query (printf `{query}` {' '.join(f'$labels.{name}' for name in labels)})"
    return f"{{{{ with {found} }}}}{text}{f'{{{{ else }}}}{otherwise}' if otherwise else ''}{{{{ end }}}}"


_LATEST = (
    "{{ with query (printf `max(cpcmon_last_record_timestamp_seconds{model=%q,segment=%q,%s})`"
    f" $labels.model $labels.segment {OF_TARGET}) }}}}"
)
"""Of the daemon that an alert is about, or of all replicas."""
LATEST_RECORD = f"{_LATEST} The latest record is from {TIME}.{{{{ end }}}}"
SILENT_TITLE = f"no records{_LATEST} since {TIME}{{{{ end }}}}"


def since(query: str, labels: tuple[str, ...], words: str = "Firing since", otherwise: str = "") -> str:
    """Return the text about since when an alert fires, and for how long."""
    ago = if_query(f"round(time() - {query})", _FOR, labels)
    return if_query(query, f" {words} {TIME}{ago}.", labels, otherwise)


_ALERT = (*ONE_DAEMON.window, "alert")
SINCE = since("cpcmon_alert_since_timestamp_seconds{instance=%q,model=%q,segment=%q,alert=%q}", _ALERT)
HELD = if_series("cpcmon_alert_held", " It cannot be evaluated now and keeps its state.", _ALERT, condition=" == 1")


def since_replicas(alert: str = "") -> str:
    """Return the text about since when a replica has fired an alert of all; `alert` is its name, or it is a label."""
    matchers, labels = _of_alert(ALL_REPLICAS, alert)
    fires = f"cpcmon_alert_firing{{{matchers}}} == 1"
    found = f"min(cpcmon_alert_since_timestamp_seconds{{{matchers}}} and on (job, namespace, instance) ({fires}))"
    return since(found, labels * 2, "Firing in a replica since")


def since_rule(alertname: str, alert: str) -> str:
    """Return the text about since when Prometheus has found the condition of an alert to be true."""
    matchers, labels = _of_alert(ALL_REPLICAS, alert)
    found = f'ALERTS_FOR_STATE{{alertname="{alertname}",{matchers}}}'
    return since(found, labels, "It has been so since", " First found at this evaluation.")


def _of_alert(series: DescriptionSeries, alert: str) -> tuple[str, tuple[str, ...]]:
    """Return the matchers of an alert and their labels. Rules over replicas yield no label with its name."""
    name = f"alert={quoted(label_value(alert))}" if alert else "alert=%q"
    matchers = ",".join([*(f"{label}=%q" for label in series.window), name])
    return matchers, series.window if alert else (*series.window, "alert")


def summary(rule: AlertRule, series: DescriptionSeries) -> str:
    """Return the summary of a configured alert, a line for a pager: model, segment and number."""
    return f"{PLACE}: {_title(rule, series)}"


def _title(rule: AlertRule, series: DescriptionSeries) -> str:
    match rule.kind:
        case AlertType.CHANGE:
            found = change_title(series, rule.direction, rule.name)
        case AlertType.ACCURACY if rule.metric is not None:
            value, _, _ = _metric_numbers(rule, series)
            found = f"estimated {literal(rule.compared)}{value}{_threshold(rule, series)}"
        case AlertType.ACCURACY if rule.estimator == AUDITED:
            found = f"audited accuracy{audited_value(series)}{_threshold(rule, series)}"
        case AlertType.ACCURACY:
            found = accuracy_title(_value(rule, series), series, high=is_high(rule))
        case AlertType.DISAGREEMENT:
            found = disagreement_title(series)
        case AlertType.OUTPUT_DRIFT:
            found = drift_title(series)
        case AlertType.BASELINE_GAP:
            found = gap_title(series)
        case AlertType.SILENT:
            found = SILENT_TITLE
        case AlertType.DEGRADED_INPUT:
            found = degraded_title(series)
    return found


def accuracy_title(value: str, series: DescriptionSeries, *, high: bool = False) -> str:
    """Return the summary of an estimated accuracy, and of what it was."""
    was = if_series(series.baseline, f", was {PERCENT}", series.window)
    return f"estimated accuracy{value}{', suspiciously high' if high else ''}{was}"


def change_title(series: DescriptionSeries, direction: Direction, alert: str = "") -> str:
    """Return the summary of a change. Most records of the window may be older: its estimate may not show the change yet."""
    noun = "drop" if direction is Direction.DOWN else "rise"
    began = _began(f", {noun} began about {TIME}", series, direction, alert)
    return f"{accuracy_title(headline(series), series)}{began}"


def headline(series: DescriptionSeries) -> str:
    """Return the headline, or the consensus where the reference is too old for it."""
    old = if_series(series.ratio, f" {PERCENT}", series.window, matcher=_CONSENSUS, otherwise=UNKNOWN)
    return if_series(series.ratio, f" {PERCENT}", series.window, matcher=_HEADLINE, otherwise=old)


def disagreement_title(series: DescriptionSeries) -> str:
    """Return the summary of a disagreement."""
    return "the estimators disagree" + if_series(series.disagreement, f" by {POINTS}", series.window)


def drift_title(series: DescriptionSeries) -> str:
    """Return the summary of outputs that drifted: the measure that is beyond its limit."""
    of_window = ",".join(f"{name}=%q" for name in series.window)
    found = f"cpcmon_output_drift{{{of_window}}} > cpcmon_output_drift_limit{{{of_window}}}"
    return "the model answers differently than it did" + if_query(
        found, f": {{{{ . | first | label `measure` }}}} {_DISTANCE} from its baseline", series.window * 2
    )


def gap_title(series: DescriptionSeries) -> str:
    """Return the summary of a segment far below the reference."""
    reference = if_series("cpcmon_reference_accuracy_ratio", f", reference {PERCENT}", (*series.target, "model"))
    return f"estimated accuracy{headline(series)}{reference}"


def degraded_title(series: DescriptionSeries) -> str:
    """Return the summary of rejected and odd records."""
    share = if_series("cpcmon_input_rejected_ratio", f", rejected {PERCENT}", (*series.target, "model"))
    return f"records are rejected or look wrong{share}"


def description(rule: AlertRule, series: DescriptionSeries, fired: str) -> str:
    """Return the description of a configured alert: where, what, since when, and the first step."""
    where = "{{ $labels.model }}, {{ $labels.segment }}" + series.part
    upward = is_high(rule) or (rule.kind is AlertType.CHANGE and rule.direction is Direction.UP)
    high, low = ACTION_HIGH, ACTIONS[rule.kind]
    if rule.estimator == AUDITED:
        high, low = ACTION_AUDITED_HIGH, ACTION_AUDITED
    return f"{where}: {_problem(rule, series)}{fired} {high if upward else low}"


def _problem(rule: AlertRule, series: DescriptionSeries) -> str:
    match rule.kind:
        case AlertType.CHANGE:
            found = change(series, rule.direction, rule.name)
        case AlertType.ACCURACY:
            found = _accuracy(rule, series) if rule.metric is None else _metric(rule, series)
        case AlertType.DISAGREEMENT:
            found = disagreement(series, rule.above)
        case AlertType.OUTPUT_DRIFT:
            found = output_drift(series)
        case AlertType.BASELINE_GAP:
            found = baseline_gap(series, rule.drop)
        case AlertType.SILENT:
            found = f"no records for {duration(rule.after_seconds)}.{LATEST_RECORD}"
        case AlertType.DEGRADED_INPUT:
            found = degraded_input(series)
    return found


def change(series: DescriptionSeries, direction: Direction, alert: str = "") -> str:
    """Return the text about a change: the evidence, when it began, and what the window says by now."""
    matcher = f'direction="{direction}"'
    evidence, budget = (
        if_series(name, text, series.window, matcher=matcher)
        for name, text in ((series.evidence, f": evidence {_POWER}"), (series.evidence_threshold, f", budget {_POWER}"))
    )
    query, labels = _of_most_evidence("records_since_start", series, direction)
    ago = if_query(query, f", {_COUNT} records ago", labels)
    began = _began(f" It began about {TIME}{ago}.", series, direction, alert)
    estimate = f" The estimate of the window, which also holds older records, is{headline(series)}{_interval(series, _HEADLINE)}"
    text = f"{estimate}{records(series)}{field_interval(series)}."
    known = if_series(series.ratio, text, series.window, matcher=f'estimator=~"{HEADLINE}|{CONSENSUS}"')
    did = "dropped" if direction is Direction.DOWN else "risen"
    return f"the accuracy has {did}{evidence}{budget}.{began}{known}{baseline(series)}"


def records(series: DescriptionSeries, before: str = ", of ") -> str:
    """Return the number of records that an estimate is of."""
    return if_series(series.records, f"{before}{_COUNT} records", series.window)


def _interval(series: DescriptionSeries, matcher: str) -> str:
    lower = if_series(series.lower, f", interval {PERCENT}", series.window, matcher=matcher)
    return lower + if_series(series.upper, f" to {PERCENT}", series.window, matcher=matcher)


def _began(text: str, series: DescriptionSeries, direction: Direction, alert: str) -> str:
    """Return a text about when a change began; `alert` is its name, or it is a label.

    Where the evidence is gone before the alert ends, the series starts again: it is not about what fired.
    """
    query, labels = _of_most_evidence("started_timestamp_seconds", series, direction)
    matchers, of_alert = _of_alert(series, alert)
    query += f" <= on (instance) cpcmon_alert_since_timestamp_seconds{{{matchers}}}"
    return if_query(query, text, labels + of_alert)


def _of_most_evidence(name: str, series: DescriptionSeries, direction: Direction) -> tuple[str, tuple[str, ...]]:
    """Return the query of a series about a change, and its labels; with replicas, of the one with the most evidence."""
    of_window = ",".join([*(f"{label}=%q" for label in series.window), f'direction="{direction}"'])
    found = f"cpcmon_change_{name}{{{of_window}}}"
    if not series.merged:
        return found, series.window
    most = f"topk(1, cpcmon_change_evidence{{{of_window}}})"
    return f"({found} and on (instance) {most})", series.window * 2


def disagreement(series: DescriptionSeries, above: float | None = None) -> str:
    """Return the text about a disagreement; `above` is the configured limit, if there is one."""
    limit = f", where {100 * (above or 0.0):.1f} points are allowed"
    if above is None:
        chance = "cpcmon_estimator_chance_disagreement_ratio"
        limit = if_series(chance, f", where chance alone stays below {POINTS}", series.window)
    found = f"{disagreement_title(series)}{records(series, ' over ')}{limit}"
    return f"{found}. Do not trust any estimate until the cause is known."


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
    count = "" if series.merged else f"{_COUNT} "
    accuracy = if_series(series.baseline, f" {PERCENT},", series.window)
    kind = "(. | first | label `kind`)"
    names = (
        f"{{{{ if eq {kind} `{BaselineKind.OWN}` }}}}its own first {count}records, without labels"
        f"{{{{ else if eq {kind} `{BaselineKind.LABELLED}` }}}}the {count}labelled records of the segment in the reference"
        f"{{{{ else }}}}the {count}records of the reference{{{{ end }}}}"
    )
    return if_series("cpcmon_baseline_records", f" Baseline:{accuracy} {names}.", series.window)


def baseline_gap(series: DescriptionSeries, gap: float | None = None) -> str:
    """Return the text about a segment that was far below the reference from the start."""
    value = f"{headline(series)}{_interval(series, _HEADLINE)}{records(series)}"
    reference = if_series("cpcmon_reference_accuracy_ratio", f" of {PERCENT}", (*series.target, "model"))
    points = "far" if gap is None else f"more than {100 * gap:.3g} points"
    return (
        f"estimated accuracy{value}, {points} below the reference{reference}, and nobody has confirmed its own baseline: it may"
        " have been so from its first record. Compared with the reference."
    )


def degraded_input(series: DescriptionSeries) -> str:
    """Return the text about rejected and odd records."""
    share = if_series("cpcmon_input_rejected_ratio", f" (rejected: {PERCENT})", (*series.target, "model"))
    return f"too many recent records are rejected or look wrong{share}. No accuracy is reported."


def audited(series: DescriptionSeries) -> str:
    """Return the text about the audited accuracy, and how much it rests on."""
    parts = [
        if_series(f"cpcmon_audit{name}", text, series.window, matcher=matcher)
        for name, text, matcher in (
            ("ed_accuracy_lower_ratio", f", interval {PERCENT}", _HORIZON),
            ("ed_accuracy_upper_ratio", f" to {PERCENT}", _HORIZON),
            ("ed_labels", f", from {_COUNT} labels", _HORIZON),
            ("_labels_ratio", f" ({PERCENT} of the audited records)", ""),
        )
    ]
    return f"audited accuracy{audited_value(series)}{''.join(parts)}."


def audited_value(series: DescriptionSeries) -> str:
    """Return the audited accuracy."""
    name = "cpcmon_audited_accuracy_ratio"
    return if_series(name, f" {PERCENT}", series.window, matcher=_HORIZON, otherwise=UNKNOWN)


def _accuracy(rule: AlertRule, series: DescriptionSeries) -> str:
    if rule.estimator == AUDITED:
        return f"{audited(series)} {_COMPARED_AUDITED[rule.on]} stayed {_limit(rule, series)}{_wait(rule)}."
    is_headline = rule.estimator == HEADLINE
    interval = _interval(series, f"estimator={quoted(rule.estimator)}")
    value = f"{_value(rule, series, named=True)}{interval}{records(series)}"
    new = "" if series.merged else " and over enough new records"
    return (
        f"estimated accuracy{value}{field_interval(series) if is_headline else ''}."
        f" {_COMPARED[rule.on]} stayed {_limit(rule, series)}{_wait(rule)}{new}.{baseline(series)}"
    )


def _value(rule: AlertRule, series: DescriptionSeries, *, named: bool = False) -> str:
    """Return the estimate that an alert compares; with an old reference, that which it has instead."""
    by, old_by = (
        (f" by {rule.estimator}", f" by {CONSENSUS}, since the reference is of an older version") if named else ("", "")
    )
    otherwise = UNKNOWN
    if rule.estimator == HEADLINE:
        otherwise = if_series(series.ratio, f" {PERCENT}{old_by}", series.window, matcher=_CONSENSUS, otherwise=UNKNOWN)
    estimator = f"estimator={quoted(rule.estimator)}"
    return if_series(series.ratio, f" {PERCENT}{by}", series.window, matcher=estimator, otherwise=otherwise)


def field_interval(series: DescriptionSeries) -> str:
    """Return the text about the field interval of the headline."""
    level = replicas.FIELD_LEVEL
    lower = if_series(series.field_lower, f", field interval {PERCENT}", series.window, matcher=level)
    return lower + if_series(series.field_upper, f" to {PERCENT} ({FIELD_MEANING})", series.window, matcher=level)


def _metric(rule: AlertRule, series: DescriptionSeries) -> str:
    value, lower, upper = _metric_numbers(rule, series)
    return (
        f"estimated {literal(rule.compared)}{value}{lower}{upper}{records(series)}. {_COMPARED[rule.on]} stayed"
        f" {_limit(rule, series)}{_wait(rule)} and over enough new records."
    )


def _metric_numbers(rule: AlertRule, series: DescriptionSeries) -> tuple[str, str, str]:
    """Return a metric and its interval."""
    matcher = f"metric={quoted(str(rule.metric))},class={quoted(label_value(rule.of_class or ''))}"
    if set("`%{}") & set(matcher):
        # Prometheus templates: a query is quoted by backticks, and braces of a class would open an action.
        return "", "", ""
    value, lower, upper = (
        if_series(f"{METRIC}{end}_ratio", text, series.window, matcher=matcher, otherwise=otherwise)
        for end, text, otherwise in (
            ("", f" {PERCENT}", UNKNOWN),
            ("_lower", f", interval {PERCENT}", ""),
            ("_upper", f" to {PERCENT}", ""),
        )
    )
    return value, lower, upper


def _wait(rule: AlertRule) -> str:
    return f" for {duration(rule.for_seconds)}" if rule.for_seconds else ""


def _limit(rule: AlertRule, series: DescriptionSeries) -> str:
    if rule.drop is None:
        side, ratio = ("above", rule.above) if rule.below is None else ("below", rule.below)
        return f"{side} {_percent(ratio)}"
    # The number, where it is known: readers do not know the reference accuracy by heart.
    own = "its baseline" if rule.metric is None else "the reference's value"
    return f"below{_number(rule, series, f' {PERCENT},')} {own} minus {100.0 * rule.drop:g} points,"


def _threshold(rule: AlertRule, series: DescriptionSeries) -> str:
    if rule.drop is None:
        return f", threshold {_percent(rule.above if rule.below is None else rule.below)}"
    return _number(rule, series, f", threshold {PERCENT}")


def _number(rule: AlertRule, series: DescriptionSeries, text: str) -> str:
    """Return a text about the threshold of a drop."""
    name = series.threshold if rule.metric is None else METRIC_THRESHOLD
    return if_series(name, text, series.window, matcher=f"alert={quoted(label_value(rule.name))}")


def _percent(ratio: float | None) -> str:
    return "its limit" if ratio is None else f"{100.0 * ratio:.1f}%"
