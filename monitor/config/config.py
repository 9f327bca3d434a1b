"""The configuration as frozen objects: what `read_config` makes of a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from monitor.core.alerts import AlertRule
from monitor.core.estimate import MINIMUM_RECORDS
from monitor.core.segments import Segmentation
from monitor.core.window import Bounds
from monitor.records.layout import OutputKind
from monitor.records.record_schema import RecordFields
from monitor.settings.kinds import Setting
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.kafka.kafka_options import KafkaOptions


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How much may be behind before estimates are marked, and how often state is copied."""

    catching_up_bytes: int = 16 << 20
    catching_up_files: int = 1_000
    catching_up_age_seconds: float = 600.0
    backup_seconds: float = 3600.0


SourceOptions = DirectoryOptions | KafkaOptions
"""What a source needs to know beside its name: one class for each `type`."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Where windows, positions and alerts are kept."""

    path: Path
    allow_network: bool = False


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One source of records."""

    name: str
    options: SourceOptions
    fields: RecordFields = field(default_factory=RecordFields)
    models: tuple[str, ...] = ()
    """Which models its records may be of; empty for all."""
    store_raw: bool = False


@dataclass(frozen=True, slots=True)
class Every:
    """Evaluate after each such time."""

    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Cron:
    """Evaluate when a crontab line says so, in UTC."""

    line: str


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model."""

    name: str
    reference: Path | None
    """None while there is none: the model is shown as `no_reference`, and its records are refused."""
    version: str | None = None
    """What the reference must be of; None to take whatever it is of."""
    kind: OutputKind = OutputKind.PROBS
    bounds: Bounds = field(default_factory=lambda: Bounds(records=5000))
    segmentation: Segmentation = field(default_factory=Segmentation)
    versions_alike: bool = False
    most_ids: int = 1_000_000
    evaluate: Every | Cron = field(default_factory=Every)
    minimum_records: int = MINIMUM_RECORDS
    stale_after_seconds: float | None = None
    """None: three times the usual gap between records, and at least an hour."""
    alerts: tuple[AlertRule, ...] = ()
    realised: Path | None = None
    """Where others write accuracies that labels showed later; need not be there. For pages alone."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What protects the machine and the metrics page from a configuration that asks too much."""

    window_bytes: int = 512 << 20
    """The most memory that all windows together may come to take."""
    segments: int = 2_000
    """The most segments of all models together."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where alerts are posted to, for sites without Alertmanager."""

    url: str = field(repr=False)
    """May hold a token, so it is never shown."""
    timeout_seconds: float = 10.0
    allow_http: bool = False
    allow_link_local: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What is called after evaluations that succeeded, so that somebody outside notices when they stop."""

    url: str = field(repr=False)
    every_seconds: float = 60.0
    timeout_seconds: float = 10.0
    allow_http: bool = False
    allow_link_local: bool = False


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that the daemon is told."""

    storage: Storage
    sources: tuple[SourceConfig, ...]
    models: tuple[ModelConfig, ...]
    ingest: IngestOptions = field(default_factory=IngestOptions)
    limits: Limits = field(default_factory=Limits)
    webhook: Webhook | None = None
    heartbeat: Heartbeat | None = None
    web_hosts: tuple[str, ...] = ()
    """Host names that requests may be for, beside those that are always allowed; `*` for any."""
    runbooks: str = "docs/runbooks/"
    """Where the pages stand that alerts link to: an address that people on call can open, ending in a slash."""
    digest: str = ""
    """Tells one file's content from another's."""
    file: Path = Path("config.yaml")
    """Where it was read from; paths in it are relative to its folder."""
    lines: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """In which line each setting stands, for messages about what it names."""
    remarks: tuple[str, ...] = ()
    """What is allowed, but worth a thought; never a secret."""
    settings: tuple[Setting, ...] = field(default=(), repr=False, compare=False)
    """Every setting that holds, as people may see it."""

    def is_shared(self, model: str) -> bool:
        """Tell whether other processes may read other records of a model, as members of one consumer group do."""
        return any(
            isinstance(source.options, KafkaOptions) and (not source.models or model in source.models)
            for source in self.sources
        )

    def line_of(self, path: str) -> int:
        """Return the line of a setting, or of the nearest group around it that the file holds."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)
