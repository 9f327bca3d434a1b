"""The narrow interface through which a cluster is read; `kafka_client` is what stands behind it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from monitor.sources.kafka.failures import KafkaFailure
from monitor.sources.kafka.partition import CommittedOffset, Fetched, Partition, PartitionProgress


@dataclass(frozen=True, slots=True)
class GroupMembership:
    """How a consumer stands with its cluster, as far as it knows without asking."""

    missing_topics: tuple[str, ...] = ()
    forbidden_topics: tuple[str, ...] = ()
    has_coordinator: bool = True
    joined: bool = True
    """Whether the group has let us in."""
    refused: KafkaFailure | None = None
    """Why the latest connection was refused, where it was."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """The assignments of a group that is stable, beside the partitions of the topics that this member subscribes to."""

    generation: int
    partitions: frozenset[Partition]
    assigned: frozenset[Partition]
    """Owned by this member, or assigned to another."""
    revoking: frozenset[Partition]
    """Owned by another member when it last joined, and not assigned to it since: it has to rejoin."""


class Consumer(Protocol):
    """A member of a consumer group. All methods are called by the thread that ingests.

    All of them raise Trouble; Broken when only a new consumer helps.
    """

    def poll(self, timeout_seconds: float, most: int) -> Mapping[Partition, Fetched]:
        """Return messages of partitions that are not paused. Raises OutOfRange, Truncated or Unreadable too.

        Partitions that the group assigns meanwhile are paused.
        """

    def seek(self, partition: Partition, offset: int, leader_epoch: int = -1) -> None:
        """Read on from an offset; with a leader epoch, the broker is asked whether its log still holds it."""

    def pause(self, partition: Partition) -> None:
        """Fetch no more of a partition."""

    def resume(self, partition: Partition) -> None:
        """Fetch a partition again."""

    def progress(self) -> Mapping[Partition, PartitionProgress]:
        """Return where each partition stands; asks nobody."""

    def topic_id(self, topic: str) -> str:
        """Return what tells a topic from others of the same name; empty where it is not known."""

    def beginnings(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        """Ask where logs begin."""

    def ends(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        """Ask where logs end, as far as they may be read."""

    def offset_at(self, partition: Partition, time: float, timeout_seconds: float) -> int | None:
        """Ask for the first message that is not older; None when there is none."""

    def committed(self, partition: Partition, timeout_seconds: float) -> CommittedOffset | None:
        """Ask what the group knows of a partition."""

    def commit(self, offsets: Mapping[Partition, CommittedOffset], done: Callable[[bool], None]) -> None:
        """Tell the group, without waiting; `done` is called during a later call, with whether it worked."""

    def commit_now(self, offsets: Mapping[Partition, CommittedOffset], timeout_seconds: float) -> None:
        """Tell the group, and wait for it."""

    def standing(self) -> GroupMembership:
        """Return how we stand with the cluster; asks nobody."""

    def ask_for_group(self) -> None:
        """Ask the coordinator for the assignments of the group, without waiting."""

    def group(self) -> ConsumerGroup | None:
        """Return the answer, once; None while there is none, and when the group was not stable."""

    def rejoin(self) -> None:
        """Rejoin the group with the next poll, such that the broker rebalances it."""

    def close(self) -> None:
        """Leave the group, unless we are a member that keeps its place, and let go of everything."""
