"""The contracts of a source: `SourceOptions` is its type, `Source` reads and decodes. The ingestion loop commits.

A source delivers records together with the checkpoints that mark them as read. The caller writes both in one
transaction and then acknowledges. So a crash before the commit reads the same records again, and a crash after it
continues behind them: nothing is lost or counted twice.

A source with shards (Kafka partitions) shares them with other processes. The records and the checkpoint of a shard move
together: `Delivery.owned` decides which shards are in memory here.

All methods of a source are called by the ingestion thread; `status` by others too.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from monitor.errors import Problem, UsageError
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields
from monitor.settings.section import Section

if TYPE_CHECKING:  # slow to import
    from monitor.records.decoder import StreamDecoder
    from monitor.records.message_decoder import MessageDecoder

NOTHING_HELD: Mapping[str, float] = MappingProxyType({})
"""For sources without shards."""


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

    def file_decoder(self) -> "StreamDecoder":
        """Return a decoder of lines and files."""
        from monitor.records.decoder import StreamDecoder  # noqa: PLC0415 - slow to import

        return StreamDecoder(
            self.formats, self.fields, hash_key=self.key, keep_raw=self.store_raw, wording=self.wording
        )

    def message_decoder(self, max_message_bytes: int) -> "MessageDecoder":
        """Return a decoder of messages."""
        from monitor.records.message_decoder import MessageDecoder  # noqa: PLC0415 - slow to import

        return MessageDecoder(
            self.formats,
            self.fields,
            hash_key=self.key,
            keep_raw=self.store_raw,
            max_message_bytes=max_message_bytes,
        )


class SourceOptions(ABC):
    """A type of source: the frozen dataclass of its settings. Its module imports no slow library."""

    __slots__ = ()

    type_name: ClassVar[str]
    """`type` in the configuration."""
    EVENTS: ClassVar[type[StrEnum]]
    """The names in `Delivery.counted`. Public: they become label values."""
    sharded: ClassVar[bool] = False
    """Whether its records come in shards that may be assigned to other processes."""

    @classmethod
    @abstractmethod
    def read(cls, section: Section, folder: Path) -> Self | None:
        """Read the settings; None after a problem. Paths are relative to the folder."""

    @classmethod  # noqa: B027 - most types need none
    def check_together(cls, sources: Sequence[tuple[Section, Self]]) -> None:
        """Report conflicts between the sources of this type, such as two that read the same data."""

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


def check_bounds(options: SourceOptions, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Raise UsageError unless these numbers of the options are within their bounds."""
    for name, (least, most) in bounds.items():
        value = getattr(options, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
            raise UsageError(Problem(name, f"a number from {least:g} to {most:g}", repr(value)))
