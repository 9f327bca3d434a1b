"""The consumer interface, implemented by `client`, and its failures, classified by what an operator must do.

Messages never contain a secret or the content of a record.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions, Mechanism
from monitor.sources.kafka.partition_checkpoint import CommittedOffset, Fetched, Partition, PartitionProgress


class FailureKind(StrEnum):
    """The kind of failure."""

    UNREACHABLE = "unreachable"
    TLS = "tls"
    AUTHENTICATION = "authentication"
    AUTHORIZATION = "authorization"
    FENCED = "fenced"
    CONFIGURATION = "configuration"
    UNKNOWN_TOPIC = "unknown_topic"
    CODEC = "codec"
    OTHER = "other"

    @property
    def counted(self) -> KafkaEvent:
        """The event name."""
        return KafkaEvent(f"errors_{self}")

    @property
    def needs_operator(self) -> bool:
        """Whether it needs an operator: retried slowly, over a new connection."""
        return self in {
            FailureKind.TLS,
            FailureKind.AUTHENTICATION,
            FailureKind.AUTHORIZATION,
            FailureKind.FENCED,
            FailureKind.CONFIGURATION,
            FailureKind.CODEC,
        }


class KafkaFailure(Exception):
    """A failure reported by the cluster or the client library."""

    def __init__(self, kind: FailureKind, found: str, *, topics: Iterable[str] = (), group: bool = False) -> None:
        super().__init__(f"{kind}: {found}")
        self.kind = kind
        self.found = found
        """What was found, short and without secrets: `connection refused`."""
        self.topics = tuple(sorted(topics))
        self.group = group
        """Whether it concerns the group."""


class ConnectionBroken(KafkaFailure):
    """Only a new connection helps."""


class OutOfRange(Exception):
    """The broker rejects an offset: the log starts later or ends earlier."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        super().__init__("offset out of range")
        self.partitions = frozenset(partitions)


class Truncated(Exception):
    """The log was truncated, and may have grown again."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        super().__init__("log truncated")
        self.partitions = frozenset(partitions)


class UnreadableBatch(Exception):
    """A batch of messages is damaged."""

    def __init__(self, partition: Partition, position: int) -> None:
        super().__init__("unreadable batch")
        self.partition = partition
        self.position = position


def describe(failure: KafkaFailure, options: KafkaOptions) -> str:
    """Return the message: where, expected, found, and advice."""
    expected, advice = _TEXTS[failure.kind]
    words = {
        "topics": ", ".join(failure.topics or options.topics) or f"matching {options.pattern}",
        "group": options.group,
        "instance": options.instance_id,
        "who": _who(options),
        "secret": _secret(options),
    }
    if failure.kind is FailureKind.AUTHORIZATION and failure.group:
        expected, advice = "to be allowed to use group {group}", "grant Read on the group to {who}"
    message = f"kafka {options.address}: expected {expected.format(**words)}, found {failure.found}"
    return f"{message}; {advice.format(**words)}" if advice else message


def describe_dead_letter_failure(failure: KafkaFailure, options: KafkaOptions) -> str:
    """Return the message for a failure of the dead-letter topic, which is written and not read."""
    topic = options.dead_letter_topic
    if failure.kind is FailureKind.AUTHORIZATION:
        message = f"expected to be allowed to write to topic {topic}, found {failure.found}"
        return f"kafka {options.address}: {message}; grant Write on it to {_who(options)}"
    if failure.kind is FailureKind.UNKNOWN_TOPIC:
        return f"kafka {options.address}: expected topic {topic}, found none; create it"
    return describe(failure, options)


_TEXTS = {
    FailureKind.UNREACHABLE: ("a broker to answer", ""),
    FailureKind.TLS: (
        "an encrypted connection",
        "check tls.ca, tls.cert, tls.key, and the host name in the broker's certificate",
    ),
    FailureKind.AUTHENTICATION: ("to be authenticated as {who}", "check {secret}"),
    FailureKind.AUTHORIZATION: ("to be allowed to read topic {topics}", "grant Read and Describe on it to {who}"),
    FailureKind.FENCED: (
        "to be the only process with instance_id {instance} in group {group}",
        "give each process its own",
    ),
    FailureKind.UNKNOWN_TOPIC: ("topic {topics}", "create it, or grant Describe on it to {who}"),
    FailureKind.CODEC: ("messages compressed by gzip, snappy, lz4 or zstd", "install cpcmon with all its dependencies"),
    FailureKind.CONFIGURATION: (
        "settings that the cluster and group {group} accept",
        "check session_timeout, instance_id and assignor",
    ),
    FailureKind.OTHER: ("an answer without an error", ""),
}
"""By kind: expectation and advice."""


def _who(options: KafkaOptions) -> str:
    if options.sasl is not None:
        user = (
            "the owner of the token" if options.sasl.mechanism is Mechanism.OAUTHBEARER else f"user {options.sasl.user}"
        )
        return f"{user} by {options.sasl.mechanism}"
    if options.tls is not None and options.tls.cert is not None:
        return "the owner of the certificate"
    return "the anonymous user"


def _secret(options: KafkaOptions) -> str:
    if options.sasl is None:
        return "sasl: the broker requires a user"
    if options.sasl.mechanism is Mechanism.OAUTHBEARER:
        return f"the token in {str(options.sasl.token_file)!r}"
    return (
        f"the password in {str(options.sasl.password_file)!r}, and whether the broker offers {options.sasl.mechanism}"
    )


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
