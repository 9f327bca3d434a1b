"""The contract of a source: it reads, decodes and says where it is; others commit.

A source delivers records together with the positions that make them read. Whoever polls it writes both in one
transaction and then acknowledges. So a crash before the commit reads the same records again, and a crash after it
reads on: none is lost and none counted twice.

A source with shards (the partitions of a topic) shares them with other processes. Rows and position of a shard belong
together and move together: what a delivery says of ownership decides which of them are in memory here.

All methods are called by one thread, the one that ingests.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Protocol

from monitor.records.record_batch import RecordBatch

NOTHING_HELD: Mapping[str, float] = MappingProxyType({})
"""Of sources without shards, nobody asks how old the records in windows are."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Some records, and where the source stands once they are taken."""

    origin: str = ""
    """Where they come from, as logs may say it: `file#3fa2c81b`. Never a file's name."""
    batch: RecordBatch = field(default_factory=RecordBatch)
    checkpoints: Mapping[bytes, bytes | None] = field(default_factory=dict)
    """Keys and values to be committed with the records; None forgets a key. Only the source knows what they mean."""
    counted: Counter[str] = field(default_factory=Counter)
    """What else happened, by the names of the source's own closed list: `bytes_read`, `files_truncated`."""
    events: tuple[str, ...] = ()
    """Sentences for the log: ordinary news."""
    warnings: tuple[str, ...] = ()
    """Sentences for the log that somebody should read: what failed, was refused, or is not as it was."""
    shard: str = ""
    """The shard that all of its records belong to: `topic/3`. Empty for sources without shards."""
    owned: frozenset[str] | None = None
    """None: as before. Else exactly these shards are ours from here on: what came before is committed first, then the
    windows of others leave memory without being written, and those of new ones are loaded from the state."""
    reset: bool = False
    """Whether what is stored of this shard is of another log: windows and ids go in the transaction that takes this."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind a source is."""

    bytes: int = 0
    files: int = 0
    """Files, partitions or what else the source counts, that hold something unread."""
    oldest_unread: float | None = None
    """Since when some of it could have been read, in Unix seconds by our own clock; None when nothing could."""
    rebuilding: bool = False
    """Whether windows hold only a part of what they held in another process, which is being read again."""


class Source(Protocol):
    """Where records come from."""

    name: str
    sharded: ClassVar[bool]
    """Whether its records come in shards, some of which may belong to other processes."""

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Take over the positions that were committed; called once, before the first poll."""

    def poll(self, now: float) -> Iterator[Delivery]:
        """Yield what is there to be read, at most as much as one tick may take, and never wait for more.

        A later delivery stands on the earlier ones, committed or not. Whoever polls may stop in the middle.
        """

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:
        """Everything delivered so far has been committed: files may be archived, offsets reported.

        `oldest` has, for each owned shard, the event time of the oldest record that any window still holds; +inf when
        none does.
        """

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement could not be committed: deliver it again."""

    def lag(self) -> Lag:
        """Return how far behind the source is, as of the last poll."""

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll; 0 when more is there already."""

    def ready(self) -> str | None:
        """Return None when the source can be read, else a sentence that says what it waits for."""

    def close(self) -> None:
        """Let go of everything that is open."""
