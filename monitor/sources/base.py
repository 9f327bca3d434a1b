"""The contracts of a source: `SourceOptions` is its type, `Source` reads and decodes. The ingestion loop commits.

A source delivers records together with the checkpoints that mark them as read. The caller writes both in one
transaction and then acknowledges. So a crash before the commit reads the same records again, and a crash after it
continues behind them: nothing is lost or counted twice.

A source with shards (Kafka partitions) shares them with other processes. The records and the checkpoint of a shard move
together: `Delivery.owned` decides which shards are in memory here.

All methods of a source are called by the ingestion thread; `status` by others too.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from monitor.errors import Problem, UsageError
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import Carries, ModelFormat, RecordFields
from monitor.settings.kinds import Duration, SizeSetting
from monitor.settings.section import Section

if TYPE_CHECKING:  # slow to import
    from monitor.records.decoder import RecordDecoder

Unit = TypeVar("Unit", bound=Hashable)

NOTHING_HELD: Mapping[str, float] = MappingProxyType({})
"""For sources without shards."""
NO_CHECKPOINTS: Mapping[bytes, bytes | None] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records, and the checkpoints behind them."""

    origin: str = ""
    """Where they come from, as it may be logged: `file#3fa2c81b`. Never a file name."""
    batch: RecordBatch = field(default_factory=RecordBatch)
    checkpoints: Mapping[bytes, bytes | None] = field(default_factory=dict)
    """Committed with the records; None deletes a key. Opaque to everyone but the source."""
    counted: Counter[str] = field(default_factory=Counter)
    """Counts of other events, by the source's own list of names: `bytes_read`, `files_truncated`."""
    events: tuple[str, ...] = ()
    """Messages to log at level info."""
    warnings: tuple[str, ...] = ()
    """Messages to log as warnings: failures, rejections, unexpected changes."""
    shard: str = ""
    """The shard of all its records: `topic/3`. Empty for sources without shards."""
    owned: frozenset[str] | None = None
    """The shards assigned to this process from here on; None if unchanged.

    Earlier deliveries are committed first. Then the windows of revoked shards leave memory without being written, and
    those of new shards are loaded from the state.
    """
    reset: bool = False
    """Whether the stored data of this shard is invalid: its windows and ids are deleted before this delivery is committed."""
    rebuilt: bool = False
    """Whether its records were read before, by any process, and only rebuild windows: they are no new evidence of a change."""


_MOST_MESSAGES = 20


@dataclass(slots=True)
class EventBuffer:
    """Counts and messages since the last delivery. Used by the ingestion thread."""

    counted: Counter[str] = field(default_factory=Counter, init=False)
    events: list[str] = field(default_factory=list, init=False)
    warnings: list[str] = field(default_factory=list, init=False)
    _active: dict[str, str] = field(default_factory=dict, init=False)
    """The conditions that were warned about, and last said of each."""

    def info(self, message: str) -> None:
        """Log a message; of a flood only the first few."""
        if len(self.events) < _MOST_MESSAGES:
            self.events.append(message)

    def warn(self, message: str) -> None:
        """Log a warning; of a flood only the first few."""
        if len(self.warnings) < _MOST_MESSAGES:
            self.warnings.append(message)

    def warn_once(self, about: str, message: str) -> bool:
        """Warn about a condition when it starts or changes; return whether it did."""
        if self._active.get(about) == message:
            return False
        self._active[about] = message
        self.warn(message)
        return True

    def resolved(self, about: str, message: str) -> None:
        """Log the end of a condition, if it was active."""
        if self._active.pop(about, None) is not None:
            self.info(message)

    @property
    def pending(self) -> bool:
        """Whether there is something to deliver."""
        return bool(+self.counted or self.events or self.warnings)

    def delivery(
        self,
        origin: str = "",
        checkpoints: Mapping[bytes, bytes | None] = NO_CHECKPOINTS,
        batch: RecordBatch | None = None,
        counted: Mapping[str, int] | None = None,
        owned: frozenset[str] | None = None,
    ) -> Delivery:
        """Return a delivery with everything that is pending, and these counts."""
        if counted:
            self.counted.update(counted)
        pending, events, warnings = +self.counted, tuple(self.events), tuple(self.warnings)
        self.counted.clear()
        self.events, self.warnings = [], []
        return Delivery(origin, batch or RecordBatch(), checkpoints, pending, events, warnings, owned=owned)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a source is."""

    bytes: int = 0
    files: int = 0
    """Files or partitions with something unread."""
    oldest_unread: float | None = None
    """Since when it could have been read, in Unix seconds by our own clock; None if nothing is unread."""
    rebuilding: bool = False
    """Whether windows are being rebuilt from records that another process had read."""


class LagMeter(Generic[Unit]):
    """Remembers since when each file or partition of a source has had unread data, in Unix seconds."""

    def __init__(self) -> None:
        self._since: dict[Unit, float] = {}

    def start(self, unit: Unit, since: float = -math.inf) -> None:
        """Set since when a unit has had unread data, or will have it; -inf if unknown."""
        self._since[unit] = since

    def read(self, unit: Unit, newest: float) -> None:
        """Note that the unread data of a unit is newer than this."""
        if unit in self._since:
            self._since[unit] = max(self._since[unit], newest)

    def measure(self, unread: Iterable[Unit], now: float) -> Mapping[Unit, float]:
        """Return since when these have had unread data, by default since now. All others have none."""
        self._since = {unit: self._since.get(unit, now) for unit in unread}
        return self._since


@dataclass(frozen=True, slots=True)
class ShardLag:
    """The lag of one shard."""

    records: int
    """Offsets up to the end: an upper bound of the records."""
    seconds: float
    """The age of the newest record read, while there is more; else 0."""
    restoring: int = 0
    """Those of them that only rebuild windows: another process had read them."""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The shards of a source."""

    lags: Mapping[str, ShardLag] = field(default_factory=dict)
    """By shard: `predictions/3`."""
    assigned: int = 0
    """Shards assigned to this process."""
    with_gap: int = 0
    """Shards whose windows hold records from before lost ones."""
    restore_seconds: float = 0.0
    """Time spent on rebuilding windows since the start, over all shards."""
    unassigned: int | None = None
    """Shards assigned to no process; None when unknown."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source as pages, metrics and commands show it."""

    name: str
    type_name: str
    waits_for: str | None = None
    """What it waits for; None when it is ready."""
    lag: Lag = field(default_factory=Lag)
    """As of the last poll."""
    shards: ShardStatus | None = None
    """None for a source without shards."""


class Source(Protocol):
    """Where records come from."""

    name: str
    sharded: ClassVar[bool] = False
    """Whether its records come in shards that may be assigned to other processes."""

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Load the committed checkpoints; called once, before the first poll."""

    def poll(self, now: float) -> Iterator[Delivery]:
        """Yield what is available, at most the budget of one poll, without waiting for more.

        A later delivery builds on the earlier ones, committed or not. The caller may stop at any delivery.
        """

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Everything delivered so far is committed: files may be archived, offsets committed to the group.

        `oldest` has, for each owned shard, the event time of the oldest record in any window; +inf without one.
        """

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement was not committed: deliver it again."""

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll; 0 if more is available."""

    def status(self) -> SourceStatus:
        """Return the status. Thread-safe, and never waits."""

    def close(self) -> None:
        """Release everything."""


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The parts that a source is built from."""

    name: str
    formats: Sequence[ModelFormat]
    """Of the models whose records it reads."""
    key: bytes
    """Hashes ids and names; of the state."""
    state_path: Path
    fields: RecordFields = field(default_factory=RecordFields)
    store_raw: bool = False
    wording: Wording = CONFIG_FILE
    fingerprint: str = ""
    """A hash of the settings that decide which records the windows hold."""
    room: int | None = None
    """For a source with shards: how many fit in memory; None if unknown."""
    carries: Carries = Carries.PREDICTIONS

    def decoder(self, max_message_bytes: int | None = None) -> "RecordDecoder":
        """Return a decoder of lines, files and messages."""
        from monitor.records.decoder import RecordDecoder  # noqa: PLC0415 - slow to import

        return RecordDecoder(
            self.formats,
            self.fields,
            hash_key=self.key,
            keep_raw=self.store_raw,
            max_message_bytes=max_message_bytes,
            wording=self.wording,
            carries=self.carries,
        )


@dataclass(frozen=True, slots=True)
class EventMetric:
    """A counter of some events of a source, beside `cpcmon_source_events_total`."""

    name: str
    help: str
    events: Mapping[str, str]
    """Event names by the value of the label; a metric without a label has one event, under the empty string."""
    label: str | None = None


class SourceOptions(ABC):
    """A type of source: the frozen dataclass of its settings. Its module imports no slow library."""

    __slots__ = ()

    type_name: ClassVar[str]
    """`type` in the configuration."""
    EVENTS: ClassVar[type[StrEnum]]
    """The names in `Delivery.counted`. Public: they become label values."""
    METRICS: ClassVar[Sequence[EventMetric]] = ()
    """Its own metrics."""
    sharded: ClassVar[bool] = False
    """Whether its records come in shards that may be assigned to other processes."""

    @classmethod
    @abstractmethod
    def read(cls, section: Section, folder: Path) -> Self | None:
        """Read the settings; None after a problem. Paths are relative to the folder."""

    @classmethod  # noqa: B027 - most types need none
    def check_together(cls, sources: Sequence[tuple[Section, Self]]) -> None:
        """Report conflicts between the sources of this type, such as two that read the same data."""

    @property
    def read_by_every_process(self) -> bool:
        """Whether each process with these settings reads all records, as all of them need all labels."""
        return not self.sharded

    def reads_folder(self, folder: Path) -> bool:  # noqa: ARG002 - most sources read no files
        """Return whether files in a folder, which need not exist yet, would be read as records."""
        return False

    @abstractmethod
    def describe(self) -> str:
        """Return one line for `cpcmon check-config`. Contacts no server."""

    @abstractmethod
    def build(self, context: SourceContext) -> Source:
        """Return a source with these settings."""


def report_error(section: Section, error: UsageError, key: str | None = None) -> None:
    """Report a problem of options as one with the setting of the same name, or with another key."""
    if error.problem is None:
        raise error
    section.report(key or error.problem.where, error.problem.expected, error.problem.found)


NumberBounds = Mapping[str, tuple[float, float]]
"""The least and the greatest value of each number in the options."""


def read_numbers(
    section: Section,
    default: SourceOptions,
    bounds: NumberBounds,
    durations: Mapping[str, str],
    sizes: Mapping[str, str],
) -> dict[str, Any]:
    """Read durations and sizes within their bounds, by option; both mappings have the option of each key."""
    numbers: dict[str, Any] = {}
    for key, name in durations.items():
        numbers[name] = section.get(key, Duration(*bounds[name]), getattr(default, name))
    for key, name in sizes.items():
        least, most = bounds[name]
        numbers[name] = section.get(key, SizeSetting(int(least), int(most)), getattr(default, name))
    return numbers


def check_bounds(options: SourceOptions, bounds: NumberBounds) -> None:
    """Raise UsageError unless these numbers of the options are within their bounds."""
    for name, (least, most) in bounds.items():
        value = getattr(options, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise UsageError(Problem(name, f"a number from {least:g} to {most:g}", repr(value)))
