"""Recording rules and alert expressions over all replicas of a shared model.

Each replica exports sums over its own records. Their total does not depend on which replica holds which partition.
`docs/scaling.md` lists the estimators for which this is exact.
"""

from monitor.core.alerts import CHANCE_MARGIN, AlertRule, AlertType, On
from monitor.core.estimate import ADAPTIVE, CONSENSUS, HEADLINE
from monitor.core.estimators.ensemble import MEMBERS
from monitor.core.intervals import FIELD_CHANCE, FIELD_LEAST, FIELD_LEVELS
from monitor.core.segments import label_value, quoted
from monitor.rules.rule import BRIDGE, RecordingRule

MODEL = "job, namespace, model"
WINDOW = f"{MODEL}, segment"
"""Labels of a merged window. Outside Kubernetes `namespace` is empty on both sides of a match."""
_ESTIMATOR = f"{WINDOW}, estimator"

RATIO = "cpcmon:estimated_accuracy_ratio"
LOWER = "cpcmon:estimated_accuracy_lower_ratio"
UPPER = "cpcmon:estimated_accuracy_upper_ratio"
FIELD_REACH = "cpcmon:estimated_accuracy_field_reach_ratio"
FIELD_LOWER = "cpcmon:estimated_accuracy_field_lower_ratio"
FIELD_UPPER = "cpcmon:estimated_accuracy_field_upper_ratio"
FIELD_LEVEL = f'level="{max(FIELD_LEVELS)}"'
"""The level that alerts compare, and people see first."""
DISAGREEMENT = "cpcmon:estimator_disagreement_ratio"
BASELINE = "cpcmon:baseline_accuracy_ratio"
THRESHOLD = "cpcmon:accuracy_threshold_ratio"
EVIDENCE = "cpcmon:change_evidence"
EVIDENCE_THRESHOLD = "cpcmon:change_evidence_threshold"
WINDOW_RECORDS = "cpcmon:window_records"
ESTIMATE_RECORDS = "cpcmon:estimate_records"
"""Present only while the merged window has an estimate."""

ALL_DOWN = f"(min_over_time((max by (job, namespace) (up))[{BRIDGE}:]) == 0)"
"""Jobs without a target that could be scraped. Merged alerts have no `instance`, so inhibition by target misses them."""


def recording_rules(job: str) -> list[RecordingRule]:
    """Return the recording rules in order of dependency; `job` is a regular expression."""
    matcher = f"job=~{quoted(job)}"
    only = f"{{{matcher}}}"
    counts = f"sum by ({_ESTIMATOR}) (cpcmon_estimate_records{only})"
    members = f"{RATIO}{{estimator=~{quoted('|'.join(MEMBERS))},{matcher}}}"
    complete = f"and on ({WINDOW}) count by ({WINDOW}) ({members}) == {len(MEMBERS)}"
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
            f'clamp(sum by ({_ESTIMATOR}) (cpcmon_estimate_summed{{estimator!="{CONSENSUS}",{matcher}}}) / {counts}, 0, 1)'
            f" and on ({WINDOW}) {ESTIMATE_RECORDS}",
        ),
        # The consensus of the merged members, with the daemon's interpolation: not a mean of the replicas' consensus.
        RecordingRule(RATIO, f"quantile by ({WINDOW}) (0.25, {members}) {complete}", {"estimator": CONSENSUS}),
        RecordingRule(DISAGREEMENT, f"max by ({WINDOW}) ({members}) - min by ({WINDOW}) ({members}) {complete}"),
        RecordingRule(LOWER, _bound("lower", "<", only, counts)),
        RecordingRule(UPPER, _bound("upper", ">", only, counts)),
        RecordingRule(THRESHOLD, _threshold(only)),
        RecordingRule(BASELINE, _baseline(only)),
        *_field(matcher),
        *_evidence(only),
    ]


def _evidence(only: str) -> list[RecordingRule]:
    """Return the evidence of a change, and the evidence to alarm at.

    Evidence of shares does not add up: the largest counts, and since each of them may be wrong, the budget is as many times
    that of one. The thresholds are logarithms.
    """
    window = f"{WINDOW}, direction"
    evidence = f"cpcmon_change_evidence{only}"
    replicas = f"log10(count by ({window}) ({evidence}))"
    return [
        RecordingRule(EVIDENCE, f"max by ({window}) ({evidence})"),
        RecordingRule(EVIDENCE_THRESHOLD, f"max by ({window}) (cpcmon_change_evidence_threshold{only}) + {replicas}"),
    ]


def _field(matcher: str) -> list[RecordingRule]:
    """Return the field intervals of the merged headline, by the daemon's formula."""
    headline = f'{RATIO}{{estimator="{ADAPTIVE}",{matcher}}}'
    reference = f"max by ({MODEL}) (cpcmon_reference_accuracy_ratio{{{matcher}}})"
    # Where the estimate started from: the segment's own accuracy in the reference, or that of the whole.
    labelled = f'max by ({WINDOW}) (cpcmon_baseline_accuracy_ratio{{kind="labelled",{matcher}}})'
    start = f"({labelled} or max by ({WINDOW}) (0 * {headline} + on ({MODEL}) group_left () {reference}))"
    visible = f"abs({headline} - on ({WINDOW}) group_left () {start})"
    spread = f"{FIELD_CHANCE} * sqrt({headline} * (1 - {headline})) + {FIELD_LEAST}"
    reach = f"{visible} + on ({WINDOW}) group_left () {DISAGREEMENT}{{{matcher}}} + {spread}"
    found = [RecordingRule(FIELD_REACH, reach)]
    for level, factor in FIELD_LEVELS.items():
        by = f"{factor} * {FIELD_REACH}{{{matcher}}}"
        found += [
            RecordingRule(FIELD_LOWER, f"clamp_min({headline} - {by}, 0)", {"level": str(level)}),
            RecordingRule(FIELD_UPPER, f"clamp_max({headline} + {by}, 1)", {"level": str(level)}),
        ]
    return found


def _bound(side: str, beyond: str, only: str, counts: str) -> str:
    """Return the mean of the replicas' bounds, weighted by records; the estimate itself where it lies beyond that mean."""
    mean = f"sum by ({_ESTIMATOR}) (cpcmon_estimate_{side}_summed{only}) / {counts}"
    estimate = f"{RATIO}{only}"
    return f"{mean} {beyond} {estimate} or ({estimate} and {mean})"


def _threshold(only: str) -> str:
    """Return the mean of the replicas' thresholds, weighted by the records of their baselines.

    Replicas have own baselines of their partitions; together those are the baseline of the merged estimate. A replica that
    collects its baseline has no threshold yet, and one of an older version has no baseline.
    """
    window, by = "alert, estimator, severity", f"{_ESTIMATOR}, alert, severity"
    found = f"cpcmon_accuracy_threshold_ratio{only}"
    weights = f"ignoring ({window}) group_left () (max without (kind) (cpcmon_baseline_records{only}) > 0)"
    return f"sum by ({by}) ({found} * {weights}) / sum by ({by}) ({found} * 0 + {weights}) or max by ({by}) ({found})"


def _baseline(only: str) -> str:
    """Return the mean of the replicas' baselines, weighted by their records."""
    accuracy, records = f"cpcmon_baseline_accuracy_ratio{only}", f"(cpcmon_baseline_records{only} > 0)"
    return f"sum by ({WINDOW}) ({accuracy} * {records}) / sum by ({WINDOW}) ({accuracy} * 0 + {records})"


COMPARED = {
    On.VALUE: RATIO,
    On.LOWER: LOWER,
    On.UPPER: UPPER,
    On.FIELD_LOWER: f"{FIELD_LOWER}{{{FIELD_LEVEL}}}",
    On.FIELD_UPPER: f"{FIELD_UPPER}{{{FIELD_LEVEL}}}",
}
"""The series that merged alerts compare."""


def merged_expression(model: str, rule: AlertRule, alert_name: str, only: str = "") -> str:
    """Return the expression of a configured alert, evaluated over all replicas.

    As in the daemon, a firing alert resolves only beyond the hysteresis and keeps its state while there is no estimate.
    Prometheus's own series ALERTS holds that state.
    """
    name, alert = f"{only}model={quoted(model)}", f"alert={quoted(label_value(rule.name))}"
    # Every replica exports the segments for which it evaluates the rule.
    known = f"max by ({WINDOW}) (last_over_time(cpcmon_alert_firing{{{name},{alert}}}[{BRIDGE}]))"
    firing = f'ALERTS{{alertname="{alert_name}",alertstate="firing",{name},{alert}}}'
    match rule.kind:
        case AlertType.CHANGE:
            return changed(known, firing, f'{name},direction="{rule.direction}"')
        case AlertType.SILENT:
            # One replica with records shows that they arrive.
            return f"min by ({WINDOW}) (last_over_time(cpcmon_alert_firing{{{name},{alert}}}[{BRIDGE}])) == 1"
        case AlertType.DEGRADED_INPUT:
            return f"{known} == 1"
        case AlertType.OUTPUT_DRIFT | AlertType.BASELINE_GAP:
            raise ValueError(f"replicas evaluate {rule.kind} on their own")
        case AlertType.ACCURACY | AlertType.DISAGREEMENT:
            value = _value(name, rule)
    broken, not_recovered = _compared(value, name, alert, rule)
    return (
        f"({broken} or ({not_recovered} and on ({WINDOW}) {firing})"
        f" or ({known} unless on ({WINDOW}) {value} and on ({WINDOW}) {firing}))"
        f" and on ({WINDOW}) {known}"
        f" or max by ({WINDOW}) ({firing}) and on (job, namespace) {ALL_DOWN} unless on ({WINDOW}) {value}"
    )


def changed(known: str, firing: str, matchers: str, more: str = "") -> str:
    """Return the expression of an alert of type change over all replicas.

    `known` is whether a replica fires: with less evidence than all together need, so that this alert begins later. It ends with
    the alert of the last replica. `firing` is the alert itself; `more` are its labels beside those of a window.
    """
    reached = (
        f"{_latest(f'{EVIDENCE}{{{matchers}}}')} >= on ({WINDOW}) {_latest(f'{EVIDENCE_THRESHOLD}{{{matchers}}}')}"
    )
    return (
        f"{known} == 1 and on ({WINDOW}) ({reached} or {firing})"
        f" or max by ({WINDOW}{more}) ({firing}) and on (job, namespace) {ALL_DOWN} unless on ({WINDOW}) {known}"
    )


def _value(name: str, rule: AlertRule) -> str:
    if rule.kind is AlertType.DISAGREEMENT:
        return _latest(f"{DISAGREEMENT}{{{name}}}")
    series, _, level = COMPARED[rule.on].rstrip("}").partition("{")
    more = f"{name},{level}" if level else name
    found = _latest(f"{series}{{{more},estimator={quoted(rule.estimator)}}}")
    if rule.estimator != HEADLINE or rule.on.of_field:
        return found
    # With an old reference, whose daemons compare what it has.
    return f"({found} or {_latest(f'{series}{{{more},estimator={quoted(CONSENSUS)}}}')})"


def _latest(series: str) -> str:
    return f"max by ({WINDOW}) (last_over_time({series}[{BRIDGE}]))"


def _compared(value: str, name: str, alert: str, rule: AlertRule) -> tuple[str, str]:
    """Return the condition that breaks the rule, and the condition that holds until it has recovered."""
    high = rule.above is not None or rule.kind is AlertType.DISAGREEMENT
    sign, away = (">", "-") if high else ("<", "+")
    limit = rule.below if rule.below is not None else rule.above
    if limit is not None:
        # At most half way to the end of the scale, or an alert near 0 or 1 could not recover.
        margin = -min(rule.hysteresis, limit / 2.0) if high else min(rule.hysteresis, (1.0 - limit) / 2.0)
        return f"{value} {sign} {limit!r}", f"{value} {sign} {limit + margin!r}"
    if rule.kind is AlertType.DISAGREEMENT:
        # The replica with the most records is closest to the chance disagreement of the whole window.
        chance = f"min by ({WINDOW}) (last_over_time(cpcmon_estimator_chance_disagreement_ratio{{{name}}}[{BRIDGE}]))"
        series = f"{CHANCE_MARGIN} * {chance}"
        half = f"{series} / 2"
    else:
        series = f"max by ({WINDOW}) (last_over_time({THRESHOLD}{{{name},{alert}}}[{BRIDGE}]))"
        half = f"(1 + {series}) / 2"
    matched = f"{sign} on ({WINDOW})"
    not_recovered = (
        f"({value} {matched} {series} {away} {rule.hysteresis!r}) and on ({WINDOW}) ({value} {matched} {half})"
    )
    return f"({value} {matched} {series})", f"({not_recovered})"
