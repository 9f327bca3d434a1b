"""The consumer interface, implemented by `client`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from monitor.sources.kafka.failures import KafkaFailure
from monitor.sources.kafka.partition import CommittedOffset, Fetched, Partition, PartitionProgress


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """The state of the group membership, as known locally."""

    missing_topics: tuple[str, ...] = ()
    forbidden_topics: tuple[str, ...] = ()
    has_coordinator: bool = True
    joined: bool = True
    """Whether this process is a member of the group."""
    refused: KafkaFailure | None = None
    """Why the latest connection was refused, if it was."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The assignments of a stable group, and the partitions of the subscribed topics."""

    generation: int
    partitions: frozenset[Partition]
    assigned: frozenset[Partition]
    """Owned by this member, or assigned to another."""
    revoking: frozenset[Partition]
    """Owned by another member when it last joined, and no longer assigned to it: it must rejoin."""


class Consumer(Protocol):
    """A member of a consumer group. All methods are called by the ingestion thread.

    All of them raise KafkaFailure, or ConnectionBroken if only a new consumer helps.
    """

    def poll(self, timeout_seconds: float, most: int) -> Mapping[Partition, Fetched]:
        """Return messages of partitions that are not paused. Also raises OutOfRange, Truncated or UnreadableBatch.

        Partitions that the group assigns meanwhile are paused.
        """

    def seek(self, partition: Partition, offset: int, leader_epoch: int = -1) -> None:
        """Continue at an offset; with a leader epoch, the broker validates it."""

    def pause(self, partition: Partition) -> None:
        """Stop fetching a partition."""

    def resume(self, partition: Partition) -> None:
        """Resume fetching a partition."""

    def progress(self) -> Mapping[Partition, PartitionProgress]:
        """Return the position in each partition. Sends no request."""

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic; empty if unknown."""

    def beginnings(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        """Request the log start offsets."""

    def ends(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        """Request the log end offsets, as far as they may be read."""

    def offset_at(self, partition: Partition, time: float, timeout_seconds: float) -> int | None:
        """Request the offset of the first message that is not older; None without one."""

    def committed(self, partition: Partition, timeout_seconds: float) -> CommittedOffset | None:
        """Request the group's committed offset of a partition."""

    def commit(self, offsets: Mapping[Partition, CommittedOffset], done: Callable[[bool], None]) -> None:
        """Commit offsets to the group, asynchronously; `done` is called during a later call, with the success."""

    def commit_now(self, offsets: Mapping[Partition, CommittedOffset], timeout_seconds: float) -> None:
        """Commit offsets to the group, synchronously."""

    def membership(self) -> GroupMembership:
        """Return the state of the group membership. Sends no request."""

    def request_group(self) -> None:
        """Request the assignments of the group, asynchronously."""

    def group(self) -> ConsumerGroup | None:
        """Return the answer, once; None while there is none, or if the group was not stable."""

    def rejoin(self) -> None:
        """Rejoin the group with the next poll, such that the broker rebalances it."""

    def close(self) -> None:
        """Leave the group, except as a static member, and release everything."""
