"""The consumer, implemented with kafka-python, and the demo's producer.

Only this module, `internals` and `dead_letters` import the library.
"""

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import (
    FencedInstanceIdError,
    KafkaError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnsupportedCodecError,
)
from kafka.structs import MemberState, OffsetAndMetadata

from monitor.errors import ServerError
from monitor.sources.kafka import internals
from monitor.sources.kafka.connection import security
from monitor.sources.kafka.consumer import (
    ConnectionBroken,
    Consumer,
    ConsumerGroup,
    FailureKind,
    GroupMembership,
    OutOfRange,
    Truncated,
    UnreadableBatch,
)
from monitor.sources.kafka.internals import classified, connection_refusal
from monitor.sources.kafka.kafka_options import Assignor, KafkaOptions
from monitor.sources.kafka.partition_checkpoint import CommittedOffset, Fetched, Partition, PartitionProgress
from monitor.sources.kafka.partitions import Ownership

BOOTSTRAP_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_METADATA_SECONDS = 5.0
_FETCH_MIN_BYTES, _FETCH_MAX_WAIT_MS = 256 << 10, 500
_ASSIGNORS = {
    Assignor.COOPERATIVE: (CooperativeStickyAssignor,),
    Assignor.RANGE: (RangePartitionAssignor,),
}


def connect(options: KafkaOptions, ownership: Ownership) -> Consumer:
    """Connect to a cluster; takes seconds if no broker answers. Raises KafkaFailure."""
    return KafkaPythonConsumer(options, ownership)


class KafkaPythonConsumer:
    """A consumer of kafka-python."""

    def __init__(self, options: KafkaOptions, ownership: Ownership) -> None:
        self._options = options
        self._connection_errors = internals.ConnectionErrors()
        self._group_request: Any = None
        try:
            self._consumer = KafkaConsumer(**_settings(options), kafka_client=self._connection_errors.client)
            internals.claim_owned(self._consumer)
            internals.allow_rejoin(self._consumer)
            self._consumer.subscribe(
                topics=options.topics, pattern=options.pattern, listener=_Listener(self._consumer, ownership)
            )
        except Exception as error:
            self._connection_errors.close_clients()
            raise connection_refusal(self._connection_errors) or internals.translated(error) from error
        internals.wait_for_metadata(self._consumer, _METADATA_SECONDS)

    def poll(self, timeout_seconds: float, most: int) -> Mapping[Partition, Fetched]:
        """Return messages of partitions that are not paused."""
        if internals.is_fenced(self._consumer):
            raise classified(FencedInstanceIdError())
        internals.preserve_join(self._consumer)
        try:
            with _no_collection():
                fetched = self._consumer.poll(timeout_ms=int(timeout_seconds * 1000), max_records=most)
        except OffsetOutOfRangeError as error:
            raise OutOfRange(map(_ours, error.args[0] if error.args else ())) from error
        except LogTruncationError as error:
            raise Truncated(map(_ours, error.divergent_offsets)) from error
        except UnsupportedCodecError as error:
            # Another poll would never return: the library loops over the batch that it cannot decompress.
            raise ConnectionBroken(FailureKind.CODEC, "an unsupported codec") from error
        except Exception as error:
            internals.release_node(self._consumer, error)
            raise self._unreadable(error) or internals.translated(error) from error
        return {
            _ours(partition): Fetched(
                [one.offset for one in records],
                [one.value for one in records],
                [one.timestamp for one in records],
                records[-1].leader_epoch,
            )
            for partition, records in fetched.items()
            if records
        }

    def _unreadable(self, error: Exception) -> UnreadableBatch | None:
        found = internals.unreadable(self._consumer, error)
        return None if found is None else UnreadableBatch(_ours(found[0]), found[1])

    def seek(self, partition: Partition, offset: int, leader_epoch: int = -1) -> None:
        """Continue at an offset."""
        internals.seek(self._consumer, TopicPartition(*partition), offset, leader_epoch)

    def pause(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        self._if_assigned(self._consumer.pause, partition)

    def resume(self, partition: Partition) -> None:
        """Resume fetching a partition."""
        self._if_assigned(self._consumer.resume, partition)

    def _if_assigned(self, act: Callable[[TopicPartition], None], partition: Partition) -> None:
        theirs = TopicPartition(*partition)
        if theirs in self._consumer.assignment():
            act(theirs)

    def progress(self) -> Mapping[Partition, PartitionProgress]:
        """Return the position in each partition."""
        return {_ours(one): PartitionProgress(*at) for one, at in internals.progress(self._consumer).items()}

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic."""
        return internals.topic_id(self._consumer, topic)

    def beginnings(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        """Request the log start offsets."""
        return self._offsets(self._consumer.beginning_offsets, partitions, timeout_seconds)

    def ends(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        """Request the log end offsets."""
        return self._offsets(self._consumer.end_offsets, partitions, timeout_seconds)

    def _offsets(
        self, request: Callable[..., dict[TopicPartition, int]], partitions: Iterable[Partition], timeout_seconds: float
    ) -> Mapping[Partition, int]:
        theirs = [TopicPartition(*one) for one in partitions]
        found = _call(request, theirs, timeout_ms=int(timeout_seconds * 1000)) if theirs else {}
        return {_ours(partition): offset for partition, offset in found.items()}

    def offset_at(self, partition: Partition, time: float, timeout_seconds: float) -> int | None:
        """Request the offset of the first message that is not older."""
        theirs = TopicPartition(*partition)
        requested = {theirs: max(0, int(time * 1000))}
        found = _call(self._consumer.offsets_for_times, requested, timeout_ms=int(timeout_seconds * 1000))[theirs]
        return None if found is None else int(found.offset)

    def committed(self, partition: Partition, timeout_seconds: float) -> CommittedOffset | None:
        """Request the group's committed offset of a partition."""
        theirs = TopicPartition(*partition)
        found = _call(self._consumer.committed, theirs, metadata=True, timeout_ms=int(timeout_seconds * 1000))
        if found is None or found.offset < 0:
            return None
        return CommittedOffset(found.offset, found.metadata or "", found.leader_epoch)

    def commit(self, offsets: Mapping[Partition, CommittedOffset], done: Callable[[bool], None]) -> None:
        """Commit offsets to the group, asynchronously."""
        _call(
            self._consumer.commit_async,
            _theirs(offsets),
            callback=lambda _, answer: done(not isinstance(answer, Exception)),
        )

    def commit_now(self, offsets: Mapping[Partition, CommittedOffset], timeout_seconds: float) -> None:
        """Commit offsets to the group, synchronously."""
        _call(self._consumer.commit, _theirs(offsets), timeout_ms=int(timeout_seconds * 1000))

    def membership(self) -> GroupMembership:
        """Return the state of the group membership."""
        known, forbidden = internals.known_topics(self._consumer)
        missing = [one for one in self._options.topics if one not in known and one not in forbidden]
        if self._options.pattern is not None and not self._consumer.subscription():
            missing = [f"matching {self._options.pattern}"]
        return GroupMembership(
            tuple(missing),
            tuple(one for one in self._options.topics if one in forbidden),
            internals.has_coordinator(self._consumer),
            self._consumer.group_metadata().state == MemberState.STABLE,
            connection_refusal(self._connection_errors),
        )

    def request_group(self) -> None:
        """Request the assignments of the group, asynchronously."""
        self._group_request = internals.describe_group(self._consumer)

    def group(self) -> ConsumerGroup | None:
        """Return the answer, once."""
        if self._group_request is None or not self._group_request.is_done:
            return None
        requested, self._group_request = self._group_request, None
        if requested.exception is not None:
            raise internals.translated(requested.exception) from requested.exception
        if requested.value is None:
            return None
        generation, *partitions = requested.value
        return ConsumerGroup(generation, *(frozenset(map(_ours, some)) for some in partitions))

    def rejoin(self) -> None:
        """Rejoin the group with the next poll."""
        internals.rejoin(self._consumer)

    def close(self) -> None:
        """Leave the group and release everything."""
        try:
            self._consumer.close(autocommit=False, timeout_ms=int(_CLOSE_SECONDS * 1000))
        except Exception as error:
            internals.close_client(self._consumer)
            raise internals.translated(error) from error


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage meanwhile: the library makes objects for each message, which would be visited again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the library has no types
    """Records assignments. Runs on the library's thread, where requests to the cluster would fail."""

    def __init__(self, consumer: Any, ownership: Ownership) -> None:  # noqa: ANN401 - the library has no types
        self._consumer = consumer
        self._ownership = ownership

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Pause them until the resume offset is known."""
        for partition in assigned:
            # Any position will do: without one the library looks for its own, and fails if there is none.
            self._consumer.seek(partition, 0)
            self._consumer.pause(partition)
        self._ownership.assigned(map(_ours, assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """They were revoked."""
        self._ownership.revoked(map(_ours, revoked))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        """They were assigned to others a while ago."""
        self._ownership.lost(map(_ours, lost))


def _settings(options: KafkaOptions) -> dict[str, Any]:
    session_ms = int(options.session_timeout_seconds * 1000)
    settings = {
        "bootstrap_servers": list(options.brokers),
        "bootstrap_timeout_ms": int(BOOTSTRAP_SECONDS * 1000),
        "client_id": "cpcmon",
        "client_rack": options.client_rack,
        "group_id": options.group,
        "group_instance_id": options.instance_id,
        "enable_auto_commit": False,
        # Any other value makes the library silently jump if the log was truncated, or its start deleted. This one
        # raises an error, which we count, report and handle.
        "auto_offset_reset": "none",
        "check_crcs": True,
        "isolation_level": str(options.isolation),
        "partition_assignment_strategy": _ASSIGNORS[options.assignor],
        "allow_auto_create_topics": False,
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": min(3_000, session_ms // 3),
        "max_poll_records": options.max_poll_records,
        # Every fetch is a disk commit, so small messages are collected for half a second.
        "fetch_min_bytes": _FETCH_MIN_BYTES,
        "fetch_max_wait_ms": _FETCH_MAX_WAIT_MS,
        "fetch_max_bytes": options.fetch_max_bytes,
        "max_partition_fetch_bytes": options.partition_fetch_bytes,
        # New topics and partitions are found by a metadata refresh.
        "metadata_max_age_ms": 30_000,
        "reconnect_backoff_max_ms": 5_000,
        "metrics_enabled": False,
    }
    if options.api_version is not None:
        settings["api_version"] = options.api_version
    return settings | security(options)


def _call(request: Callable[..., Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - the library has no types
    try:
        return request(*arguments, **named)
    except Exception as error:
        raise internals.translated(error) from error


def _ours(partition: TopicPartition) -> Partition:
    return Partition(partition.topic, partition.partition)


def _theirs(offsets: Mapping[Partition, CommittedOffset]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*one): OffsetAndMetadata(at.offset, at.metadata, at.leader_epoch) for one, at in offsets.items()
    }


_FEED_WAIT_MS = 5_000
_FEED_KEPT_MS = 3_600_000
"""Retention of the demo's messages."""


class TopicFeed:
    """Sends messages to the first partition of a topic, so that one window contains them all."""

    def __init__(self, broker: str, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        try:
            self._make()
            self._producer = KafkaProducer(
                bootstrap_servers=[broker],
                client_id="cpcmon-demo",
                linger_ms=50,
                max_block_ms=_FEED_WAIT_MS,
                bootstrap_timeout_ms=_FEED_WAIT_MS,
            )
        except KafkaError as error:
            raise self._refused(error) from error

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send messages; raises ServerError if the broker takes none."""
        try:
            for payload in payloads:
                self._producer.send(self._topic, value=payload, partition=0)
        except KafkaError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Flush for a moment, and release everything."""
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=5.0)

    def _make(self) -> None:
        admin = KafkaAdminClient(
            bootstrap_servers=[self._broker], client_id="cpcmon-demo", bootstrap_timeout_ms=_FEED_WAIT_MS
        )
        try:
            kept = {"retention.ms": str(_FEED_KEPT_MS), "segment.ms": str(_FEED_KEPT_MS)}
            with contextlib.suppress(TopicAlreadyExistsError):
                admin.create_topics([NewTopic(self._topic, 1, 1, topic_configs=kept)])
        finally:
            admin.close()

    def _refused(self, error: KafkaError) -> ServerError:
        return ServerError(
            f"--kafka {self._broker}: expected a broker that takes records, found {type(error).__name__}"
        )
