"""Partitions and fetched messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    @property
    def shard(self) -> str:
        """Its name as a shard, and in messages."""
        return f"{self.topic}/{self.number}"

    @property
    def key(self) -> bytes:
        """The key of its checkpoint."""
        return self.shard.encode()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages of one partition in offset order, as columns."""

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    """None is a tombstone."""
    times_ms: Sequence[int]
    """Set by the producer or the broker; negative without one."""
    leader_epoch: int = -1
    """Of the last message; -1 if unknown."""

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.offsets)

    def from_offset(self, offset: int) -> "Fetched":
        """Return the messages from this offset on."""
        skip = next((i for i, one in enumerate(self.offsets) if one >= offset), len(self.offsets))
        if not skip:
            return self
        return Fetched(self.offsets[skip:], self.values[skip:], self.times_ms[skip:], self.leader_epoch)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The group's committed offset of a partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Of the last message before the offset; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The consumer's position in a partition."""

    position: int
    end: int | None
    """The log end of the last fetch; None before the first."""
