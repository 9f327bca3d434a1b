"""For every alert of the rule files: series with which it fires, and series with which it does not.

A shape gives the value of a series at a minute. Each case adds its series to those of a healthy daemon.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Shape = Callable[[int], float]
Series = Mapping[str, Shape]

TARGET = 'job="cpcmon",instance="a:9877"'


def steady(value: float) -> Shape:
    """Return a constant shape."""
    return lambda _minute: value


def stepped(minute: int, before: float, after: float) -> Shape:
    """Return a shape that changes once."""
    return lambda now: before if now < minute else after


def rising(step: float) -> Shape:
    """Return a shape that grows every minute."""
    return lambda minute: step * minute


def of(name: str, **labels: str) -> str:
    """Return a series of the daemon."""
    own = [f'{label}="{value}"' for label, value in labels.items()]
    return f"{name}{{{','.join([TARGET, *own])}}}"


def density(name: str, **labels: str) -> str:
    """Return a series of the model `density`, segment `all`."""
    return of(name, model="density", segment="all", **labels)


def healthy(*, shared: bool) -> dict[str, Shape]:
    """Return the series of a healthy daemon."""
    shown: dict[str, Shape] = {of("up"): steady(1)}
    for model in ("density", "triage"):
        shown[of("cpcmon_last_evaluation_timestamp_seconds", model=model)] = rising(60)
        shown[of("cpcmon_evaluations_total", model=model)] = rising(1)
        shown[of("cpcmon_evaluation_gap_seconds", model=model)] = steady(60)
        shown[of("cpcmon_model_shared", model=model)] = steady(float(shared and model == "density"))
        shown[of("cpcmon_estimate_valid", model=model, segment="all")] = steady(1)
    for alert, kind in _KINDS.items():
        on = {"on": "value"} if kind.startswith(("accuracy", "performance", "audited")) else {}
        on |= {"on": _DIRECTIONS[alert]} if kind == "change" else {}
        shown[of("cpcmon_alert_info", model="density", alert=alert, kind=kind, **on)] = steady(1)
        shown[of("cpcmon_alert_for_seconds", model="density", alert=alert)] = steady(1800)
        shown[_firing(alert)] = steady(0)
    return shown


_KINDS = {
    "accuracy_low": "accuracy_low",
    "accuracy_high": "accuracy_high",
    "apart": "disagreement",
    "silent": "silent",
    "refused": "degraded_input",
    "missed": "performance_low",
    "flawless": "performance_high",
    "drifted": "output_drift",
    "new_site": "baseline_gap",
    "audited_low": "audited_low",
    "audited_high": "audited_high",
    "dropped": "change",
    "rose": "change",
}
"""Alerts of `reports.config()`."""
_DIRECTIONS = {"dropped": "down", "rose": "up"}


def _firing(alert: str, severity: str = "critical") -> str:
    return density("cpcmon_alert_firing", alert=alert, severity=severity)


def _state(state: str) -> str:
    return density("cpcmon_window_state", state=state)


@dataclass(frozen=True, slots=True)
class Case:
    """One alert: series that make it fire by a minute, and similar series that do not."""

    alert: str
    minute: int
    poor: Series
    well: Series
    shared: bool = False
    """Whether replicas share the model."""
    absent: frozenset[str] = field(default_factory=frozenset)
    """Series of a healthy daemon that are missing."""
    every: int = 1
    """Minutes between scrapes, and between evaluations of the rules."""
    at_once: bool = False
    """Whether it fires from the start. Others must not fire in the third minute."""


def _gauge(alert: str, minute: int, series: str, poor: float, *, shared: bool = False) -> Case:
    """Return a case of a series that is 0 or 1."""
    return Case(alert, minute, {series: steady(poor)}, {series: steady(1 - poor)}, shared)


def _counter(alert: str, minute: int, series: str) -> Case:
    """Return a case of a counter that rises, and that does not."""
    return Case(alert, minute, {series: stepped(5, 0, 7)}, {series: steady(7)})


def _merged(sums: float, records: float = 300) -> dict[str, Shape]:
    """Return the series of one replica."""
    return {
        density("cpcmon_window_records"): steady(records),
        density("cpcmon_window_fresh"): steady(1),
        of("cpcmon_window_minimum_records", model="density"): steady(200),
        density("cpcmon_estimate_summed", estimator="ac"): steady(sums),
        density("cpcmon_estimate_records", estimator="ac"): steady(records),
        density("cpcmon_accuracy_threshold_ratio", alert="accuracy_low", estimator="ac", severity="critical"): steady(
            0.8
        ),
    }


def _changed(direction: str, evidence: float, firing: float = 1) -> dict[str, Shape]:
    """Return the series of the only replica, with a budget of 10^6."""
    alert = next(name for name, one in _DIRECTIONS.items() if one == direction)
    return {
        _firing(alert): steady(firing),
        density("cpcmon_change_evidence", direction=direction): steady(evidence),
        density("cpcmon_change_evidence_threshold", direction=direction): steady(6),
    }


def _lag(step: float) -> dict[str, Shape]:
    return {
        of("cpcmon_kafka_lag_seconds", source="stream"): steady(600),
        of("cpcmon_kafka_lag_records", source="stream"): lambda minute: 90_000 + step * minute,
        of("cpcmon_source_events_total", source="stream", event="messages_read"): rising(900),
    }


def _unread(step: float) -> dict[str, Shape]:
    return {
        of("cpcmon_source_oldest_unread_timestamp_seconds", source="results"): steady(0),
        of("cpcmon_source_lag_bytes", source="results"): lambda minute: 900_000 + step * minute,
    }


def _stuck(read: Shape) -> dict[str, Shape]:
    return {
        of("cpcmon_kafka_lag_records", source="stream"): steady(500),
        of("cpcmon_source_events_total", source="stream", event="messages_read"): read,
    }


def _audit(came: float, picked: float = 40) -> dict[str, Shape]:
    return {
        density("cpcmon_audit_labels_ratio"): steady(came),
        density("cpcmon_audit_picked_records"): steady(picked),
    }


_EVALUATED = of("cpcmon_last_evaluation_timestamp_seconds", model="density")

OF_CPCMON = (
    Case("CpcmonDown", 6, {of("up"): steady(0)}, {of("up"): stepped(3, 0, 1)}),
    Case(
        "CpcmonEvaluationStale",
        22,
        {_EVALUATED: lambda minute: 60.0 * min(minute, 10)},
        {_EVALUATED: lambda minute: 240.0 * (minute // 4)},
    ),
    Case("CpcmonEvaluationStale", 12, {}, {}, absent=frozenset({_EVALUATED})),
    Case(
        "CpcmonEvaluationFailing",
        40,
        {of("cpcmon_evaluation_failures_total", model="density"): rising(1)},
        {of("cpcmon_evaluation_failures_total", model="density"): steady(9)},
    ),
    Case(
        "CpcmonEvaluationFailing",
        40,
        {of("cpcmon_estimator_failures_total", model="density", estimator="ac"): rising(1)},
        {of("cpcmon_estimator_failures_total", model="density", estimator="ac"): steady(9)},
    ),
    _gauge("CpcmonEstimateInvalid", 35, of("cpcmon_estimate_valid", model="triage", segment="all"), 0),
    Case(
        "CpcmonStillWarming",
        1470,
        {of("cpcmon_window_state", model="triage", segment="all", state="warming"): steady(1)},
        {of("cpcmon_window_state", model="triage", segment="all", state="warming"): stepped(1400, 1, 0)},
        every=30,
    ),
    _gauge("CpcmonVersionMismatch", 35, _state("version_mismatch"), 1),
    _gauge("CpcmonReferenceMissing", 35, _state("no_reference"), 1),
    _gauge("CpcmonInputOdd", 20, of("cpcmon_input_one_hot", model="density"), 1),
    _gauge("CpcmonInputOdd", 20, of("cpcmon_input_constant", model="density"), 1),
    _gauge("CpcmonInputProblem", 20, of("cpcmon_input_problem", model="density", problem="segment_never_seen"), 1),
    _gauge("CpcmonInputDegraded", 20, of("cpcmon_input_degraded", model="triage"), 1),
    _counter("CpcmonSegmentsDropped", 9, of("cpcmon_records_unstored_segment_total", model="density")),
    _gauge("CpcmonSourceNotReady", 15, of("cpcmon_source_ready", source="results"), 0),
    Case("CpcmonSourceLagGrowing", 40, _unread(5000), _unread(-5000)),
    _gauge("CpcmonCatchingUp", 65, of("cpcmon_catching_up"), 1),
    _gauge("CpcmonStatePaused", 9, of("cpcmon_paused"), 1),
    _counter("CpcmonStateRecovered", 9, of("cpcmon_state_recovered_total", **{"from": "empty"})),
    _counter("CpcmonStateRecovered", 9, of("cpcmon_state_damaged_chunks_total")),
    _gauge("CpcmonReloadFailed", 9, of("cpcmon_config_last_reload_successful"), 0),
    _gauge("CpcmonWebConfigFailed", 9, of("cpcmon_web_config_last_reload_successful"), 0),
    _gauge("CpcmonWebhookFailing", 20, of("cpcmon_webhook_waiting"), 1),
    *(
        _counter("CpcmonWebhookFailing", 30, of(f"cpcmon_webhook_{one}_total"))
        for one in ("failures", "dropped", "redirects")
    ),
    _gauge("CpcmonEstimatesWrong", 20, density("cpcmon_estimates_wrong"), 1),
    Case("CpcmonAuditLabelsMissing", 65, _audit(0.85), _audit(0.95)),
    Case("CpcmonAuditLabelsMissing", 65, _audit(0.85), _audit(0.5, picked=20)),
    _gauge("CpcmonTelemetryFailing", 9, of("cpcmon_telemetry_errors"), 1),
)
"""In the shipped file, and in the rules of `reports.config()`."""

OF_REPLICAS = (
    Case("CpcmonKafkaLagGrowing", 30, _lag(500), _lag(-500)),
    _counter("CpcmonKafkaRecordsLost", 9, of("cpcmon_kafka_records_lost_total", source="stream", reason="retention")),
    Case("CpcmonKafkaStalled", 40, _stuck(steady(900)), _stuck(rising(900))),
    Case(
        "CpcmonKafkaStalled",
        30,
        {of("cpcmon_kafka_stalls_total", source="stream"): rising(1)},
        {of("cpcmon_kafka_stalls_total", source="stream"): steady(9)},
    ),
    Case(
        "CpcmonKafkaNoPartitions",
        20,
        {of("cpcmon_kafka_assigned_partitions", source="stream"): steady(0)},
        {of("cpcmon_kafka_assigned_partitions", source="stream"): steady(3)},
    ),
    Case(
        "CpcmonKafkaPartitionsUnassigned",
        9,
        {of("cpcmon_kafka_unassigned_partitions", source="stream"): steady(3)},
        {of("cpcmon_kafka_unassigned_partitions", source="stream"): steady(0)},
    ),
    Case("CpcmonMergedInvalid", 40, _merged(60, records=70), _merged(270), shared=True),
)
"""In the shipped file, and in the rules of `reports.shared_config()`."""


def _passed_on(name: str, alert: str, severity: str = "critical") -> Case:
    return Case(name, 9, {_firing(alert, severity): stepped(4, 0, 1)}, {_firing(alert, severity): stepped(4, 1, 0)})


ONLY_SHIPPED = (
    _passed_on("CpcmonAccuracyLow", "accuracy_low"),
    _passed_on("CpcmonAccuracyLow", "accuracy_low", "warning"),
    _passed_on("CpcmonAccuracyHigh", "accuracy_high", "info"),
    _passed_on("CpcmonDisagreementHigh", "apart"),
    _passed_on("CpcmonSegmentSilent", "silent", "warning"),
    _passed_on("CpcmonInputRefused", "refused"),
    _passed_on("CpcmonPerformanceLow", "missed"),
    _passed_on("CpcmonPerformanceHigh", "flawless", "info"),
    _passed_on("CpcmonOutputDrift", "drifted", "warning"),
    _passed_on("CpcmonBaselineGap", "new_site"),
    _passed_on("CpcmonAuditedLow", "audited_low"),
    _passed_on("CpcmonAuditedHigh", "audited_high", "info"),
    Case(
        "CpcmonAuditedLow",
        9,
        {_firing("audited_low"): steady(1)},
        {_firing("accuracy_low"): steady(1)},
        shared=True,
        at_once=True,
    ),
    Case(
        "CpcmonPerformanceLow",
        9,
        {_firing("missed"): steady(1)},
        {_firing("accuracy_low"): steady(1)},
        shared=True,
        at_once=True,
    ),
    Case(
        "CpcmonSegmentSilent",
        9,
        {_firing("silent"): steady(1)},
        {_firing("accuracy_low"): steady(1)},
        shared=True,
        at_once=True,
    ),
    Case("CpcmonMergedAccuracyLow", 40, _merged(225), _merged(246), shared=True),
    _passed_on("CpcmonAccuracyChange", "dropped"),
    _passed_on("CpcmonAccuracyChange", "rose", "info"),
    *(
        Case("CpcmonMergedAccuracyChange", 9, _changed(one, 6.5), _changed(one, 6.5, 0), shared=True, at_once=True)
        for one in ("down", "up")
    ),
)

ONLY_GENERATED = (
    _passed_on("CpcmonAccuracyLow", "accuracy_low"),
    _passed_on("CpcmonAccuracyHigh", "accuracy_high"),
    _passed_on("CpcmonApart", "apart"),
    _passed_on("CpcmonSilent", "silent"),
    _passed_on("CpcmonRefused", "refused"),
    _passed_on("CpcmonMissed", "missed"),
    _passed_on("CpcmonFlawless", "flawless"),
    _passed_on("CpcmonDrifted", "drifted"),
    _passed_on("CpcmonNewSite", "new_site"),
    _passed_on("CpcmonAuditedLow", "audited_low"),
    _passed_on("CpcmonAuditedHigh", "audited_high"),
    _passed_on("CpcmonDropped", "dropped"),
    _passed_on("CpcmonRose", "rose"),
    Case(
        "CpcmonRulesOutdated",
        20,
        {_firing("newer"): steady(0)},
        {_firing("accuracy_low"): steady(0)},
    ),
    Case(
        "CpcmonRulesOutdated",
        20,
        {of("cpcmon_alert_firing", model="newer", segment="all", alert="silent", severity="warning"): steady(0)},
        {},
    ),
)

WATCHDOG = "CpcmonWatchdog"
"""Always fires."""
