"""The configuration as frozen data, as `read_config` returns it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from monitor.core.alerts import AlertRule, AlertType
from monitor.core.baselines.comparison import BaselineMode, BaselineOptions, expected_means
from monitor.core.change import Detector, EvidenceTable, budget, null_means
from monitor.core.estimate import MINIMUM_RECORDS
from monitor.core.performance import Target, targets
from monitor.core.segments import ALL, ModelWindows, Segmentation, name_of
from monitor.core.totals import Gauge
from monitor.core.window import Bounds
from monitor.records.record_schema import Carries, ModelFormat, OutputKind, RecordFields
from monitor.reference.reference import Reference
from monitor.settings.kinds import Setting
from monitor.sources.base import SourceOptions


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The backlog from which estimates are marked as catching up, and the interval of backups."""

    catching_up_bytes: int = 16 << 20
    catching_up_files: int = 1_000
    catching_up_age_seconds: float = 600.0
    backup_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Storage:
    """The state directory."""

    path: Path
    allow_network: bool = False


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One source of records."""

    name: str
    options: SourceOptions
    fields: RecordFields = field(default_factory=RecordFields)
    models: tuple[str, ...] = ()
    """The models of its records; empty for all."""
    store_raw: bool = False
    carries: Carries = Carries.PREDICTIONS

    def reads(self, model: str) -> bool:
        """Return whether the source accepts records of a model: its predictions, or its labels."""
        return not self.models or model in self.models

    def feeds(self, model: str) -> bool:
        """Return whether the source accepts predictions of a model."""
        return self.carries is Carries.PREDICTIONS and self.reads(model)

    def labels(self, model: str) -> bool:
        """Return whether the source accepts labels of a model."""
        return self.carries is Carries.LABELS and self.reads(model)


@dataclass(frozen=True, slots=True)
class Every:
    """Evaluate at a fixed interval."""

    seconds: float = 60.0

    @property
    def shortest_seconds(self) -> float:
        """The shortest time between two evaluations."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class Cron:
    """Evaluate by a crontab line, in UTC."""

    line: str
    shortest_seconds: float = 60.0
    """The shortest time between two evaluations; a minute if the line was not checked."""


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """How long the predictions of a model are kept for labels, and labels for predictions."""

    horizon_seconds: float = 30 * 86400.0
    most: int = 1_000_000
    """The limit on kept predictions, and on kept labels."""
    delay_seconds: float = 0.0
    """Labels of younger predictions are not expected yet."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The random choice of records of a model that are to be labelled."""

    share: float
    keep_ids: bool = False
    """Whether the ids of chosen records are stored until they are labelled."""


CLASS_MIX = "class_mix"
"""The class mix in `ModelConfig.performance`, beside metrics."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model."""

    name: str
    reference: Path | None
    """None: the model is shown as `no_reference`, and its records are rejected."""
    version: str | None = None
    """The required version of the reference; None for any."""
    kind: OutputKind = OutputKind.PROBS
    decide: str | None = None
    """How the reference must say that the device decides: `argmax`, `field` or `cancer=0.13`; None for any."""
    bounds: Bounds = field(default_factory=lambda: Bounds(records=5000))
    segmentation: Segmentation = field(default_factory=Segmentation)
    versions_alike: bool = False
    most_ids: int = 1_000_000
    evaluate: Every | Cron = field(default_factory=Every)
    minimum_records: int = MINIMUM_RECORDS
    stale_after_seconds: float | None = None
    """None: three times the usual gap between records, but at least an hour."""
    alerts: tuple[AlertRule, ...] = ()
    """The configured ones, and the default ones."""
    baseline: BaselineOptions = field(default_factory=BaselineOptions)
    performance: tuple[str, ...] = ()
    """What is exported beyond accuracy: metrics, and `CLASS_MIX`."""
    watch_classes: tuple[str, ...] = ()
    """The classes with metrics of their own, for a model with many."""
    labels: LabelOptions | None = None
    """None: the model takes no labels. Set wherever it is audited or a source carries its labels."""
    audit: AuditOptions | None = None

    @property
    def most_windows(self) -> int:
        """The limit on windows: of the whole model, and of its segments."""
        return 1 + (self.segmentation.most_segments if self.segmentation.split_by else 0)

    @property
    def change_rules(self) -> tuple[AlertRule, ...]:
        """The alerts of type change: at most one for each direction."""
        return tuple(rule for rule in self.alerts if rule.kind is AlertType.CHANGE)

    @property
    def detectors(self) -> tuple[Detector, ...]:
        """What the alerts of type change look for, in their order."""
        return tuple(rule.detector for rule in self.change_rules)

    @property
    def group_by(self) -> str | None:
        """The field of which each value counts once as evidence of a change; None to count every record."""
        return next((rule.group_by for rule in self.change_rules), None)

    def windows_of(self, rule: AlertRule) -> int:
        """Return the limit on windows that share the budget of an alert of type change."""
        return 1 if set(rule.segments) == {name_of(ALL)} else self.most_windows

    def evidence_budget(self, rule: AlertRule) -> float:
        """Return the evidence at which an alert of type change fires."""
        return budget(self.windows_of(rule), rule.false_alarm_seconds, self.evaluate.shortest_seconds)

    def targets(self, classes: Sequence[str]) -> tuple[Target, ...]:
        """Return what is estimated beyond accuracy, for the classes of the reference."""
        watched = [classes.index(name) for name in self.watch_classes if name in classes]
        asked = bool(self.performance) or any(rule.metric is not None for rule in self.alerts)
        return targets(len(classes), watched, asked=asked)

    def exported(self, classes: Sequence[str]) -> tuple[Target, ...]:
        """Return what is exported beyond accuracy: the configured metrics, and those that alerts compare."""
        alerts = {target_of(rule, classes) for rule in self.alerts}
        return tuple(one for one in self.targets(classes) if one.metric in self.performance or one in alerts)


def target_of(rule: AlertRule, classes: Sequence[str]) -> Target | None:
    """Return what an alert compares beyond accuracy; None if it has no metric, or of an unknown class."""
    if rule.metric is None or (rule.of_class is not None and rule.of_class not in classes):
        return None
    return Target(rule.metric, None if rule.of_class is None else classes.index(rule.of_class))


NO_DECISIONS = "its reference says that records name the decision, and its records name none"


class ModelShape(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The properties of a model on which its stored records depend.

    Kafka consumers compare a hash of its repr, so a new property has a default that is left out of it.
    """

    classes: tuple[str, ...]
    kind: str
    version: str
    decides: bool = False
    """Whether records name the decision."""

    def difference(self, other: "ModelShape") -> str | None:
        """Return why records stored under this shape do not fit another; None if they do."""
        if self.classes != other.classes:
            return "the classes of its reference changed"
        if self.kind != other.kind:
            return f"its output kind changed from {self.kind} to {other.kind}"
        if self.version != other.version:
            return f"its reference is of version {other.version or 'unknown'}, not {self.version or 'unknown'}"
        if other.decides and not self.decides:
            return NO_DECISIONS
        return None


@dataclass(frozen=True)
class ModelOptions:
    """A configured model with its reference, from which windows are built."""

    name: str
    reference: Reference
    bounds: Bounds = field(default_factory=lambda: Bounds(records=5000))
    segmentation: Segmentation = field(default_factory=Segmentation)
    kind: OutputKind = OutputKind.PROBS
    versions_alike: bool = False
    """Whether to count records of every version, not only those of the reference's."""
    most_ids: int = 1_000_000
    shown: tuple[Target, ...] | None = None
    """What is estimated beyond accuracy; None for everything that is estimated for so many classes."""
    detectors: tuple[Detector, ...] = ()
    """What changes are looked for."""
    baseline: BaselineMode = BaselineMode.AUTO
    group_by: str | None = None
    """The field of which each value counts once as evidence of a change; None to count every record."""
    labels: LabelOptions | None = None
    """None if the model takes no labels."""
    audit: AuditOptions | None = None

    @property
    def shape(self) -> ModelShape:
        """To be compared with the stored shape."""
        version = "" if self.versions_alike else self.reference.version
        return ModelShape(self.reference.classes, str(self.kind), version, self.format.decided_by_record)

    @property
    def format(self) -> ModelFormat:
        """The format of its records."""
        fields = dict.fromkeys(name for names in self.segmentation.split_by for name in names)
        decision = self.reference.calibration.decision
        audited_ids = self.audit.share if self.audit is not None and self.audit.keep_ids else None
        return ModelFormat(
            self.name, self.reference.classes, self.kind, tuple(fields), decision, self.group_by, audited_ids
        )

    def gauge(self) -> Gauge:
        """Return what measures its records."""
        return Gauge(self.reference.calibration, self.shown)

    def evidence(self, gauge: Gauge) -> EvidenceTable | None:
        """Return no evidence of changes yet; None if nothing looks for them, or the reference is old."""
        if not self.detectors or gauge.members is None:
            return None
        calibration, detectors = self.reference.calibration, self.detectors
        return EvidenceTable(
            gauge.members, detectors, lambda one: null_means(detectors, expected_means(calibration, self.baseline, one))
        )

    def windows(self, gauge: Gauge, evidence: EvidenceTable | None = None) -> ModelWindows:
        """Return empty windows."""
        return ModelWindows(
            gauge,
            self.bounds,
            self.segmentation,
            version=self.reference.version,
            versions_alike=self.versions_alike,
            evidence=evidence,
        )


def model_options(model: ModelConfig, reference: Reference) -> ModelOptions:
    """Return a configured model with its reference."""
    return ModelOptions(
        name=model.name,
        reference=reference,
        bounds=model.bounds,
        segmentation=model.segmentation,
        kind=model.kind,
        versions_alike=model.versions_alike,
        most_ids=model.most_ids,
        shown=model.targets(reference.classes),
        detectors=model.detectors,
        baseline=model.baseline.mode,
        group_by=model.group_by,
        labels=model.labels,
        audit=model.audit,
    )


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on memory and on the size of the metrics page."""

    window_bytes: int = 512 << 20
    """The memory limit of all windows together."""
    segments: int = 2_000
    """The limit on segments of all models together."""


class SegmentSeries(StrEnum):
    """Which estimators the metrics page shows for segments. For the whole model it shows all."""

    HEADLINE = "headline"
    """The main estimate, and those that alerts compare."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A URL to send to: the webhook for alerts, for sites without Alertmanager, or that of the heartbeat."""

    url: str = field(repr=False)
    """Never shown: it may contain a token."""
    timeout_seconds: float = 10.0
    allow_http: bool = False
    allow_link_local: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The URL to request after successful evaluations (dead man's switch)."""

    target: HttpTarget
    every_seconds: float = 60.0


OF_PAGE = "/model?name={model}&segment={segment}"
OF_DASHBOARD = "?var-model={model}&var-segment={segment}"
"""What follows the configured address for a window; model and segment are percent-encoded, or templates that do it."""


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses that notifications link to, without a slash at the end; None where not set."""

    runbooks: str | None = None
    dashboard: str | None = None
    page: str | None = None
    """The address of the daemon's own pages."""

    def runbook_url(self, name: str) -> str | None:
        """Return the link to a runbook, by its file name."""
        return None if self.runbooks is None else f"{self.runbooks}/{name}"

    def dashboard_url(self, model: str, segment: str) -> str | None:
        """Return the link to the dashboard of a window, by the name of its segment."""
        return None if self.dashboard is None else self.dashboard + _of_window(OF_DASHBOARD, model, segment)

    def page_url(self, model: str, segment: str) -> str | None:
        """Return the link to the daemon's page of a window, by the name of its segment."""
        return None if self.page is None else self.page + _of_window(OF_PAGE, model, segment)


def _of_window(form: str, model: str, segment: str) -> str:
    return form.format(model=quote(model, safe=""), segment=quote(segment, safe=""))


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration."""

    storage: Storage
    sources: tuple[SourceConfig, ...]
    models: tuple[ModelConfig, ...]
    ingest: IngestOptions = field(default_factory=IngestOptions)
    limits: Limits = field(default_factory=Limits)
    segment_series: SegmentSeries = SegmentSeries.HEADLINE
    webhook: HttpTarget | None = None
    heartbeat: Heartbeat | None = None
    web_hosts: tuple[str, ...] = ()
    """Additional allowed host names of requests; `*` for any."""
    links: Links = field(default_factory=Links)
    digest: str = ""
    """SHA-256 of the file."""
    file: Path = Path("config.yaml")
    """The file; paths in it are relative to its directory."""
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """The line of each setting, by path."""
    remarks: tuple[str, ...] = ()
    """Warnings about valid settings; without secrets."""
    settings: tuple[Setting, ...] = field(default=(), repr=False, compare=False)
    """Every effective setting, with secrets hidden."""

    def is_shared(self, model: str) -> bool:
        """Return whether other processes may read records of the model."""
        return any(source.options.sharded and source.feeds(model) for source in self.sources)

    def line_of(self, path: str) -> int:
        """Return the line of a setting, or of the nearest enclosing group in the file."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)
