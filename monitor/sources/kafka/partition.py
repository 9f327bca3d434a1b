"""What a partition is called, and what a fetch brings of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    @property
    def shard(self) -> str:
        """What the pipeline and messages call it."""
        return f"{self.topic}/{self.number}"

    @property
    def key(self) -> bytes:
        """The key under which its position is kept."""
        return self.shard.encode()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages of one partition in the order of their offsets, as columns."""

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    """None is a tombstone."""
    times_ms: Sequence[int]
    """As the producer or the broker stamped them; negative where there is none."""
    leader_epoch: int = -1
    """Of the last message; -1 where it is not known."""

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.offsets)

    def from_offset(self, offset: int) -> "Fetched":
        """Return the messages at this offset and after it."""
        skip = next((i for i, one in enumerate(self.offsets) if one >= offset), len(self.offsets))
        if not skip:
            return self
        return Fetched(self.offsets[skip:], self.values[skip:], self.times_ms[skip:], self.leader_epoch)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What the group knows of a partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Of the last message before the offset; -1 where it is not known."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Where the consumer stands in a partition."""

    position: int
    end: int | None
    """The end as the last fetch saw it; None before the first."""
