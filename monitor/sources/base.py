"""The contract of a source: it reads and decodes; the ingestion loop commits.

A source delivers records together with the checkpoints that mark them as read. The caller writes both in one
transaction and then acknowledges. So a crash before the commit reads the same records again, and a crash after it
continues behind them: nothing is lost or counted twice.

A source with shards (Kafka partitions) shares them with other processes. The records and the checkpoint of a shard move
together: `Delivery.owned` decides which shards are in memory here.

All methods are called by the ingestion thread.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Protocol

from monitor.records.record_batch import RecordBatch

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


class Source(Protocol):
    """Where records come from."""

    name: str
    sharded: ClassVar[bool]
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

    def lag(self) -> Lag:
        """Return the lag as of the last poll."""

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll; 0 if more is available."""

    def ready(self) -> str | None:
        """Return None if the source is ready, else what it waits for."""

    def close(self) -> None:
        """Release everything."""
