"""Example reports, facts and configurations, with fixed times."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from monitor.config.config import AuditOptions, Config, Cron, LabelOptions, Links, ModelConfig, SourceConfig, Storage
from monitor.core.alerts import AlertPhase, AlertRule, AlertStatus, AlertType, On, Severity
from monitor.core.baselines.comparison import Comparisons
from monitor.core.change import ChangeColumns, Direction
from monitor.core.estimate import AUDITED, Estimate, Interval, NoEstimate, PredictionSets, Result, Why, WindowState
from monitor.core.labels.audit import AuditedColumns, AuditSums
from monitor.core.labels.realised import LabelColumns, LabelledRows, LabelSums
from monitor.core.labels.track_record import Block, BlockTruth, TrackRecord
from monitor.core.performance import (
    ClassCurves,
    ClassMix,
    ClassReference,
    Confusion,
    MeasuredPerformance,
    Metric,
    PerformanceEstimates,
    Target,
)
from monitor.core.report import InputFacts, ReferenceFacts, Report, SegmentReport, WindowReports
from monitor.core.segments import ALL, Segment, Segmentation
from monitor.records.record_schema import Carries
from monitor.sources.base import Lag, ShardLag, ShardStatus, SourceStatus
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.state.commit_plan import Counters
from monitor.telemetry import DaemonFacts, DeliveryFacts, HttpFacts

NOW = 1_760_000_000.0

REFERENCE = ReferenceFacts(
    "2.1", "2025-10-01T00:00:00Z", "0123456789abcdef" * 4, ("a", "b", "c"), 2000, 0.91, 1.3, 0.94, (1100, 600, 300)
)


def estimate(accuracy: float, records: int = 500) -> Estimate:
    """Return an estimate with all fields."""
    return Estimate(accuracy, records, Interval(accuracy - 0.03, accuracy + 0.03), PredictionSets(1.2, 0.01))


def accuracy_low(phase: AlertPhase = AlertPhase.OK, *, held: bool = False, name: str = "accuracy_low") -> AlertStatus:
    """Return an alert on accuracy."""
    since = 0.0 if phase is AlertPhase.OK else NOW - 600.0
    return AlertStatus(name, AlertType.ACCURACY, Severity.CRITICAL, phase, since, held, "adaptive", 0.8, 0.77)


def silent(phase: AlertPhase = AlertPhase.OK) -> AlertStatus:
    """Return an alert on silence."""
    return AlertStatus("silent", AlertType.SILENT, Severity.WARNING, phase, 0.0, held=False)


def window(
    segment: Segment = ALL,
    state: WindowState = WindowState.OK,
    accuracy: float = 0.9,
    alerts: tuple[AlertStatus, ...] = (),
) -> SegmentReport:
    """Return the report of a window: all fields if it is valid, else the required ones."""
    if state is not WindowState.OK:
        return SegmentReport(segment, 20, state, last_record_at=NOW - 7200.0, last_valid_at=NOW - 3600.0, alerts=alerts)
    results: dict[str, Result] = {"adaptive": estimate(accuracy), "ac": Estimate(accuracy, 500)}
    return SegmentReport(
        segment, 500, state, MappingProxyType(results), 0.05, 0.08, (250, 150, 100), NOW - 5.0, NOW, alerts,
        field=(Interval(accuracy - 0.0625, accuracy + 0.0625), Interval(accuracy - 0.125, min(1.0, accuracy + 0.125))),
    )  # fmt: skip


def share(segment: Segment) -> SegmentReport:
    """Return a window without an estimate of its own: DOC was clipped, and one part has no interval."""
    parts = {
        "adaptive": estimate(0.9, 20),
        "ac": Estimate(0.75, 20),
        "doc": Estimate(1.0, 20, Interval(0.95, 1.0), unclipped=1.25),
    }
    few = window(segment, WindowState.TOO_FEW_RECORDS)
    return replace(few, parts=MappingProxyType(parts), fresh=True)


def report(*windows: SegmentReport, model: str = "density", at: float = NOW) -> Report:
    """Return a report on a model with a reference."""
    facts = InputFacts(rejected_share=0.002)
    return Report(model, at, 0.01, REFERENCE, windows, facts, 200, minimum_records=200)


def density() -> Report:
    """Return a report with a window of each kind."""
    broken: dict[str, Result] = {
        "adaptive": NoEstimate(Why.ERROR, 500),
        "ac": estimate(0.88),
        "cpc_acc": NoEstimate(Why.ALL_SETS_EMPTY, 500, PredictionSets(0.0, 1.0)),
    }
    failed = SegmentReport(
        (("site", "C"),), 500, WindowState.ERROR, broken, None, None, (500, 0, 0), NOW - 1.0, NOW - 60.0,
        (accuracy_low(AlertPhase.RECOVERING, held=True),),
    )  # fmt: skip
    return report(
        window(alerts=(accuracy_low(), silent())),
        window((("site", "A"),), accuracy=0.74, alerts=(accuracy_low(AlertPhase.FIRING), silent())),
        window((("site", "A"), ("scanner", "2")), accuracy=0.79, alerts=(accuracy_low(AlertPhase.PENDING),)),
        window((("site", "B"),), WindowState.STALE, alerts=(accuracy_low(AlertPhase.FIRING, held=True),)),
        failed,
        window((("site", "D"),), WindowState.WARMING, alerts=(accuracy_low(held=True),)),
        share((("site", "E"),)),
    )


class FixedPerformance(MeasuredPerformance):
    """Round numbers, which no library computes otherwise; those of the first window cannot be said."""

    def estimates(self, wanted: Sequence[Target] | None = None) -> PerformanceEstimates:
        """Return the same for every window."""
        asked, windows = self.targets if wanted is None else tuple(wanted), len(self.expected.records)
        value = np.repeat(0.5 + np.arange(len(asked))[:, None] / 16, windows, axis=1)
        value[:, self.scaled[0] == 0.0] = np.nan
        return PerformanceEstimates(asked, value, value - 0.125, value + 0.125, np.full(value.shape, 40.0))

    def class_mix(self) -> ClassMix:
        """Return the same for every window; the reference has no records of the last class."""
        value = np.repeat([[0.75], [0.25], [np.nan]], len(self.expected.records), axis=1)
        return ClassMix(value, value - 0.125, value + 0.125)


def class_reference() -> ClassReference:
    """Return what the performance of a model with three classes is compared with."""
    curves = ClassCurves(np.arange(3), np.full(3, 0.5, dtype=np.float32), np.full(3, 0.5))
    cases, right, decided = np.array([1500, 500, 0]), np.array([1200, 400, 0]), np.array([1250, 640, 110])
    none = np.empty(0, dtype=np.float32)
    return ClassReference(curves, cases, right, decided, np.nan, none, np.eye(3), 0.95, none, none)


def with_performance(plain: Report) -> Report:
    """Return a report that exports metrics and the class mix, and has an alert on a metric in its first window."""
    status = AlertStatus(
        "missed", AlertType.ACCURACY, Severity.WARNING, AlertPhase.OK, 0.0, held=True, threshold=0.75,
        metric=Metric.SENSITIVITY, of_class="b",
    )  # fmt: skip
    first, *others = plain.segments
    windows = WindowReports.of([replace(first, alerts=(*first.alerts, status)), *others])
    nothing, scaled = np.zeros((3, len(windows))), np.ones((3, len(windows)))
    scaled[:, 0] = 0.0
    expected = Confusion(windows.records, nothing, nothing, nothing.astype(np.int64))
    targets = (*(Target(metric, 1) for metric in (Metric.SENSITIVITY, Metric.PPV)), Target(Metric.SENSITIVITY))
    measured = FixedPerformance(class_reference(), expected, scaled, targets)
    return replace(
        plain,
        segments=replace(windows, performance=measured),
        reference=replace(REFERENCE, performance=measured.reference),
        exported=targets,
        exports_class_mix=True,
    )


def with_baselines(plain: Report) -> Report:
    """Return a report whose windows have baselines of every kind; the last two collect theirs."""
    windows = plain.windows
    count = len(windows)
    kinds = np.array([1, 2, 3, 3, 3, 3, 3, 3][:count], dtype=np.uint8)
    collected = np.arange(count) < count - 2
    accuracy = np.where(collected, 0.91 - np.arange(count) / 64, np.nan)
    unknown = np.full(count, np.nan)
    distance = np.where(collected, [[0.25], [0.0625]], np.nan)
    shares = np.where(collected[:, None], [[0.5, 0.25, 0.25]], np.nan), np.full((count, 3), 1 / 3)
    found = Comparisons(
        kinds,
        np.stack([accuracy, accuracy]),
        ("ac", "adaptive"),
        np.where(collected, 2000, 128),
        2000,
        np.where(kinds == 3, NOW - 86_400.0, unknown),
        np.where(kinds == 3, NOW - 43_200.0, unknown),
        kinds < 3,
        np.ones(count),
        np.zeros(count),
        np.zeros(count),
        distance,
        distance / 2,
        np.maximum(0.1, 0.75 * distance),
        shares,
        np.where(windows.valid & collected, [3, 1, 2, 0, 0, 0, 0][:count], 0).astype(np.uint8),
    )
    return replace(plain, segments=replace(windows, comparisons=found))


def with_changes(plain: Report) -> Report:
    """Return a report with detectors of drops and of rises: a firing one, quiet ones, and windows without a baseline."""
    windows, nan = plain.windows, np.nan
    rest = [nan] * (len(windows) - 3)
    found = ChangeColumns(
        (Direction.DOWN, Direction.UP),
        np.array([[0.5, 9.25, -2.5, *rest], [-1.5, -40.0, nan, *rest]]),
        (7.5, 6.5),
        np.array([[0.02, 0.03125, 0.25, *rest], [0.0625, 0.0625, nan, *rest]]),
        np.array([[NOW - 60.0, NOW - 1500.0, NOW - 30.0, *rest], [NOW - 5.0, NOW - 10.0, nan, *rest]]),
        np.array([[12.0, 340.0, 3.0, *rest], [2.0, 4.0, nan, *rest]]),
        np.array([60, 60, 60, *(23 for _ in rest)]),
        np.zeros((2, len(windows)), dtype=np.bool_),
    )
    return replace(plain, segments=replace(windows, changes=found))


def labelled_columns() -> LabelColumns:
    """Return round numbers of three windows: audited, labelled, and without labels. By scope: the window, the horizon."""
    nan, none, zero = np.nan, np.empty(0), np.zeros((2, 3))
    labels = np.array([[40, 16, 0], [200, 80, 0]])
    accuracy = np.array([[0.75, 0.625, nan], [0.6875, 0.5625, nan]])
    audited = np.array([[0.75, nan, nan], [0.71875, nan, nan]])
    count = np.array([[10, 0, 0], [60, 0, 0]])
    sums = LabelSums(
        records=np.array([[500, 250, 100], [4000, 1600, 100]]),
        labels=labels,
        right=np.rint(np.nan_to_num(accuracy * labels)).astype(np.int64),
        newest_at=np.array([NOW - 3600.0, NOW - 7200.0, nan]),
        delay=np.array([86_400.0, 172_800.0, nan]),
        classes=np.array([[[90, 70, 40], [80, 100, 20], [60, 64, 8]], [[50, 26, 4]] * 3, [[0, 0, 0]] * 3]),
        audit=AuditSums(count, count, zero, zero, zero, 40 * count, zero),
        picked=np.array([[16, 0, 0], [80, 0, 0]]),
        audited_from=np.array([NOW - 864_000.0, nan, nan]),
        audited_to=np.array([NOW - 3600.0, nan, nan]),
        rows=LabelledRows(none.astype(np.int64), none, none.astype(np.bool_), none, none.astype(np.bool_)),
    )
    found = AuditedColumns(audited, audited - 0.125, audited + 0.125, count >= 20)
    return LabelColumns(sums, accuracy, accuracy - 0.0625, accuracy + 0.0625, found, held=300, joined=280, share=0.02)


def track_record(estimated: float, realised: float, *, audited: bool = True) -> TrackRecord:
    """Return three blocks: one as estimated, one that is off, and one without labels yet."""
    found = TrackRecord()
    for number, value in enumerate((estimated, realised, None)):
        truth = None if value is None else BlockTruth(64, value, value - 0.0625, value + 0.0625, audited)
        began = NOW - 86_400.0 * (9 - 3 * number)
        answers = {"adaptive": (estimated, estimated - 0.03125, estimated + 0.03125), "ac": (estimated, None, None)}
        found = found.add(Block(began, began + 86_400.0, 500, estimated, answers, truth))
    return found


def with_labels(plain: Report) -> Report:
    """Return a report on a model that takes labels; only its first three windows have records now."""
    records = (track_record(0.84375, 0.71875), track_record(0.75, 0.6875, audited=False), TrackRecord())
    return replace(plain, segments=replace(plain.windows, labels=labelled_columns(), track_records=records))


def full() -> Report:
    """Return a report with everything that a model may have."""
    return with_labels(with_changes(with_baselines(with_performance(density()))))


def fresh() -> Report:
    """Return a report on a model that has neither a reference nor records."""
    return Report("triage", NOW, 0.001, None, (SegmentReport(ALL, 0, WindowState.NO_REFERENCE),))


def facts() -> DaemonFacts:
    """Return facts of a running daemon."""
    return DaemonFacts(
        models=("density", "triage"),
        sources={
            "results": SourceStatus("results", "directory", None, Lag(4096, 2, NOW - 30.0)),
            "pathology": SourceStatus("pathology", "directory", None),
            "late": SourceStatus("late", "directory", "waiting for its directory"),
            "stream": SourceStatus("stream", "kafka", None, Lag(0, 1, NOW - 4.0), STREAM),
        },
        counters=Counters.from_stored(
            {
                ("records_total", "results", "density"): 12_345,
                ("records_total", "elsewhere", "density"): 7,
                ("records_rejected_total", "results", "bad_sum"): 3,
                ("labels_total", "pathology", "density"): 310,
                ("labels_corrected_total", "density"): 4,
                ("source_events_total", "results", "bytes_read"): 99_000_000,
                ("source_events_total", "stream", "messages_read"): 70_000,
                ("source_events_total", "stream", "rebalances"): 3,
                ("source_events_total", "stream", "records_lost"): 40,
                ("source_events_total", "stream", "offsets_unreadable"): 5,
                ("source_events_total", "stream", "errors_unreachable"): 2,
                ("records_late_total", "density"): 2,
                ("records_evicted_total", "elsewhere"): 5,
                ("state_recovered_total", "backup"): 1,
            }
        ),
        ready=True,
        state_bytes=1 << 20,
        backup_at=NOW - 1800.0,
        last_commit_at=NOW - 2.0,
        digest="0f1e2d3c4b5a",
        http=HttpFacts(2, {"2xx": 40, "4xx": 1}, {"idle": 3}),
        webhook=DeliveryFacts(5, 2, 1, 0, 4),
        heartbeat=DeliveryFacts(60, 1),
        config=config(),
    )


def shared_config() -> Config:
    """Return the same configuration with a Kafka source, so that replicas share the model."""
    stream = SourceConfig("stream", KafkaOptions(("kafka:9092",), "cpcmon", ("predictions",)), models=("density",))
    return replace(config(), sources=(stream,))


STREAM = ShardStatus(
    {
        "site.predictions/0": ShardLag(0, 0.0),
        "site.predictions/1": ShardLag(120, 4.0, restoring=20),
        "site.predictions/11": ShardLag(7, 1.5),
    },
    assigned=3,
    with_gap=1,
    restore_seconds=2.5,
    unassigned=2,
)
"""A member of a group that rebuilds a partition."""


def config() -> Config:
    """Return a configuration with an alert of each type."""
    density_alerts = (
        AlertRule("accuracy_low", below=0.8, severity=Severity.CRITICAL),
        AlertRule("accuracy_high", above=0.99, for_seconds=0.0),
        AlertRule("apart", kind=AlertType.DISAGREEMENT),
        AlertRule("silent", kind=AlertType.SILENT, after_seconds=7200.0),
        AlertRule("refused", kind=AlertType.DEGRADED_INPUT),
        AlertRule("missed", metric=Metric.SENSITIVITY, of_class="b", drop=0.05),
        AlertRule("flawless", metric=Metric.PPV, above=0.999, on=On.LOWER),
        AlertRule("drifted", kind=AlertType.OUTPUT_DRIFT),
        AlertRule("new_site", kind=AlertType.BASELINE_GAP, drop=0.1),
        AlertRule("dropped", kind=AlertType.CHANGE, severity=Severity.CRITICAL, for_seconds=0.0),
        AlertRule("audited_low", below=0.75, estimator=AUDITED),
        AlertRule("audited_high", above=0.99, estimator=AUDITED, on=On.LOWER),
        AlertRule("rose", kind=AlertType.CHANGE, direction=Direction.UP, for_seconds=0.0),
    )
    triage_alerts = (AlertRule("accuracy_low", drop=0.05, estimator="cpc_acc"),)
    return Config(
        Storage(Path("state")),
        (SourceConfig("pathology", DirectoryOptions(Path("labels")), models=("density",), carries=Carries.LABELS),),
        (
            ModelConfig(
                "density",
                Path("density.ref"),
                segmentation=Segmentation((("site",),)),
                alerts=density_alerts,
                labels=LabelOptions(),
                audit=AuditOptions(0.02),
            ),
            ModelConfig("triage", None, evaluate=Cron("0 3 * * *"), alerts=triage_alerts),
        ),
        links=Links(runbooks="https://runbooks.example/cpcmon", page="https://cpcmon.example"),
    )
