"""Access to parts of kafka-python that have no public API, its errors, and the token provider it calls.

The version is pinned to 3.0; `tests/sources/kafka` detects when one of these changes.
"""

import contextlib
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from kafka import TopicPartition, errors
from kafka.consumer.fetcher import Fetcher
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import (
    CorruptRecordError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    for_code,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.sasl import SaslAuthenticateRequest
from kafka.structs import OffsetAndMetadata

from monitor.sources.kafka.consumer import ConnectionBroken, FailureKind, KafkaFailure


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """Reads the token from its file each time: another process renews it."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def token(self) -> str:
        """Return the token."""
        return self._read()


# ruff: noqa: ANN401, SLF001 - the library has no types, and these are private attributes


def hide_secrets() -> None:
    """Keep the library from logging requests: at level debug they contain passwords."""
    log = logging.getLogger("kafka")
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)


class ConnectionErrors:
    """Why the latest connection failed, until one succeeds.

    The library does not report it: it retries, and finally reports only that no broker answered.
    """

    def __init__(self) -> None:
        self.latest: Exception | None = None
        self._clients: list[Any] = []
        self._watched: WeakSet[Any] = WeakSet()

    def client(self, **settings: Any) -> Any:
        """Return a client of the library, observed."""
        hide_secrets()
        client = KafkaNetClient(**settings)
        self._clients.append(client)
        # The library fails to pass this on, and would create misspelt topics.
        client._manager.cluster.config["allow_auto_create_topics"] = False
        connection_of = client._manager.get_connection

        def watched(*words: Any, **named: Any) -> Any:
            connection = connection_of(*words, **named)
            if connection not in self._watched:
                self._watched.add(connection)
                self._watch(connection)
            return connection

        client._manager.get_connection = watched
        return client

    def _watch(self, connection: Any) -> None:
        send, authenticating = connection._send_request, False

        def sent(request: Any, *words: Any, **named: Any) -> Any:
            nonlocal authenticating
            authenticating = authenticating or isinstance(request, SaslAuthenticateRequest)
            return send(request, *words, **named)

        def failed(error: Exception) -> None:
            # A broker answers a wrong password and closes the connection. If both arrive at once, the library drops the
            # answer.
            if authenticating and isinstance(error, KafkaConnectionError):
                error = SaslAuthenticationFailedError()
            # A refusal stands until a connection succeeds, even if the next attempt times out.
            if not isinstance(self.latest, SaslAuthenticationFailedError):
                self.latest = error

        def worked(_: Any) -> None:
            self.latest = None

        connection._send_request = sent
        connection.init_future.add_callback(worked)
        connection.init_future.add_errback(failed)

    def close_clients(self) -> None:
        """Stop threads and close sockets: the library leaks those of a consumer or producer that failed to start."""
        for client in self._clients:
            client.close()


def unreadable(consumer: Any, error: Exception) -> tuple[TopicPartition, int] | None:
    """Return the damaged batch that made a poll fail: partition and position; None for another cause.

    The batch is discarded: the next poll would otherwise loop over it for ever. To mistake another error for this one
    would skip good messages, so only the exact origin of the exception counts.
    """
    partition, unpacking = None, isinstance(error, CorruptRecordError)
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is Fetcher.fetched_records.__code__:
            partition = frame.f_locals.get("fetched_partition") or partition
        unpacking = unpacking or frame.f_code is Fetcher.PartitionRecords._unpack_records.__code__
    records = consumer._fetcher._next_partition_records
    if unpacking and records is not None and records.topic_partition == partition:
        records.drain()
        consumer._fetcher._next_partition_records = None
    state = consumer._subscription.assignment.get(partition) if unpacking else None
    return None if state is None or state.position is None else (partition, state.position.offset)


def release_node(consumer: Any, error: Exception) -> None:
    """Clear the pending fetch of a broker to which the fetch could not be sent.

    The library marks a fetch as pending before it is sent. If sending fails the mark stays, and that broker is never
    fetched from again.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is Fetcher._send_fetches_async.__code__:
            consumer._fetcher._nodes_with_pending_fetch_requests.discard(frame.f_locals.get("node_id"))


def seek(consumer: Any, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
    """Continue at an offset with its leader epoch; the public `seek` takes none."""
    state = consumer._subscription.assignment.get(partition)
    if state is not None:
        state.seek(OffsetAndMetadata(offset, "", leader_epoch))


def progress(consumer: Any) -> Mapping[TopicPartition, tuple[int, int | None]]:
    """Return position and log end of each partition; the public `position` sends a request."""
    states = consumer._subscription.assignment.copy()
    return {
        one: (state.position.offset, state.highwater) for one, state in states.items() if state.position is not None
    }


def topic_id(consumer: Any, topic: str) -> str:
    """Return the id of a topic from the metadata; empty if brokers have none."""
    found = consumer._cluster.topic_id(topic)
    return "" if found is None else str(found)


def known_topics(consumer: Any) -> tuple[set[str], set[str]]:
    """Return the topics in the metadata, and the forbidden ones; the public `topics` requests all."""
    cluster = consumer._cluster
    return cluster.topics(exclude_internal_topics=False), cluster.unauthorized_topics


def has_coordinator(consumer: Any) -> bool:
    """Return whether the group coordinator is known."""
    return not consumer._coordinator.coordinator_unknown()


def wait_for_metadata(consumer: Any, timeout_seconds: float) -> None:
    """Wait for metadata of the subscription: a member that joins without it causes a second rebalance."""
    with contextlib.suppress(KafkaError):
        future = consumer._cluster.request_update()
        consumer._net.run(consumer._manager.wait_for, future, timeout_seconds * 1000)


def preserve_join(consumer: Any) -> None:
    """Keep the result of a join in progress, even if it completes before the next poll; called before each poll.

    A join takes longer than a poll. In the next poll the library mistakes a completed join for none and starts another,
    possibly for ever; or, if new partitions had caused it, for a finished one, and waits for ever without heartbeats.
    """
    coordinator = consumer._coordinator
    if coordinator._join_task is None:
        return
    coordinator.rejoin_needed = True
    if not isinstance(coordinator._join_task, _JoinUnderWay):
        coordinator._join_task = _JoinUnderWay(coordinator._join_task)


class _JoinUnderWay:
    """A join that counts as in progress until its result has been handled."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self._task = task

    def add_callback(self, function: Callable[..., None]) -> None:
        """Call this on success; at once if it has succeeded."""
        self._task.add_callback(function)

    def add_errback(self, function: Callable[..., None]) -> None:
        """Call this on failure; at once if it has failed."""
        self._task.add_errback(function)


def claim_owned(consumer: Any) -> None:
    """Make a joining member claim the partitions it owns, not those it was last assigned.

    A member that was removed from the group still claims its old partitions. The assignor then withholds them until the
    member revokes them, which it cannot, since it has none: nobody reads them until a member joins or leaves.
    """
    coordinator = consumer._coordinator
    for assignor in coordinator._assignors.values():
        if isinstance(assignor, StickyPartitionAssignor):
            assignor.metadata = _metadata_of(assignor, coordinator)


def _metadata_of(assignor: Any, coordinator: Any) -> Callable[[Any], Any]:
    message = assignor.metadata

    def metadata(topics: Any) -> Any:
        lost = coordinator._generation.is_lost()
        assignor.member_assignment = [] if lost else list(coordinator._subscription.assigned_partitions())
        return message(topics)

    return metadata


def allow_rejoin(consumer: Any) -> None:
    """Prepare a consumer for `rejoin`.

    To a member that joins a stable group with an unchanged subscription the broker returns the stored assignment,
    without a rebalance, unless the member leads the group. So each rejoin sends other user data, which our assignors
    ignore.
    """
    coordinator = consumer._coordinator
    coordinator.rejoins = 0
    for assignor in coordinator._assignors.values():
        assignor.metadata = _with_user_data(assignor.metadata, coordinator)


def _with_user_data(metadata: Callable[[Any], Any], coordinator: Any) -> Callable[[Any], Any]:
    def with_user_data(topics: Any) -> Any:
        subscription = metadata(topics)
        subscription.user_data = str(coordinator.rejoins).encode() if coordinator.rejoins else b""
        return subscription

    return with_user_data


def rejoin(consumer: Any) -> None:
    """Rejoin the group with the next poll, such that the broker rebalances it."""
    consumer._coordinator.rejoins += 1
    consumer._coordinator.request_rejoin()


def describe_group(consumer: Any) -> Any:
    """Return a future of the generation, the partitions of the topics, those assigned, and those that others revoke.

    Its value is None if the group was not stable. The library describes groups only in its admin client, which would
    need its own connections and thread.
    """
    return consumer._manager.call_soon(_described_group, consumer)


async def _described_group(consumer: Any) -> tuple[int, set[Any], set[Any], set[Any]] | None:
    coordinator = consumer._coordinator
    generation = coordinator.generation_if_stable()
    if generation is None or coordinator.rejoin_needed or coordinator.coordinator_unknown():
        return None
    request = DescribeGroupsRequest(groups=[coordinator.group_id])
    response = await consumer._manager.send(request, node_id=coordinator.coordinator_id)
    (group,) = response.groups
    if group.error_code:
        raise for_code(group.error_code)
    joined = {member.member_id: member for member in group.members}
    mine = joined.pop(generation.member_id, None)
    if group.group_state != "Stable" or mine is None or coordinator.generation_if_stable() != generation:
        return None
    subscription, cluster = consumer._subscription, consumer._cluster
    partitions = {
        TopicPartition(topic, number)
        for topic in subscription.subscription
        for number in cluster.partitions_for_topic(topic) or ()
    }
    assigned, revoking = set(subscription.assigned_partitions()), set()
    for member in joined.values():
        given = set(ConsumerProtocolAssignment.decode(member.member_assignment).partitions())
        owned = ConsumerProtocolSubscription.decode(member.member_metadata).owned_partitions or ()
        assigned |= given
        revoking |= {TopicPartition(one.topic, number) for one in owned for number in one.partitions} - given
    return generation.generation_id, partitions, assigned, revoking


def is_fenced(consumer: Any) -> bool:
    """Return whether a heartbeat was rejected because another process has our instance id.

    The library then stops its heartbeats silently and goes on fetching: only a commit would fail.
    """
    coordinator = consumer._coordinator
    if coordinator.config["group_instance_id"] is None:
        return False
    with coordinator._lock:
        return coordinator.stable() and not coordinator.rejoining and not coordinator._heartbeat_enabled


def close_client(consumer: Any) -> None:
    """Stop the library's thread and close its sockets, nothing else."""
    consumer._client.close()


_CLASSES: tuple[tuple[FailureKind, str, tuple[type[Exception], ...]], ...] = (
    (
        FailureKind.AUTHENTICATION,
        "a refusal",
        (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError),
    ),
    (FailureKind.AUTHORIZATION, "a refusal", (errors.AuthorizationError,)),
    (
        FailureKind.FENCED,
        "another process",
        (errors.FencedInstanceIdError, errors.UnreleasedInstanceIdError),
    ),
    (
        FailureKind.CONFIGURATION,
        "members that use another assignor",
        (errors.InconsistentGroupProtocolError,),
    ),
    (
        FailureKind.CONFIGURATION,
        "a session timeout that the broker does not allow",
        (errors.InvalidSessionTimeoutError,),
    ),
    (FailureKind.CONFIGURATION, "a full group", (errors.GroupMaxSizeReachedError,)),
    (
        FailureKind.CONFIGURATION,
        "",
        (
            errors.KafkaConfigurationError,
            errors.InvalidGroupIdError,
            errors.UnsupportedVersionError,
            errors.UnrecognizedBrokerVersion,
            errors.InvalidConfigurationError,
        ),
    ),
    (FailureKind.CODEC, "an unsupported codec", (errors.UnsupportedCodecError, errors.UnsupportedCompressionTypeError)),
    (FailureKind.UNKNOWN_TOPIC, "none", (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError)),
    (
        FailureKind.UNREACHABLE,
        "no answer",
        (
            errors.KafkaConnectionError,
            errors.KafkaTimeoutError,
            errors.NodeNotReadyError,
            errors.RequestTimedOutError,
            errors.BrokerNotAvailableError,
            errors.CoordinatorNotAvailableError,
            errors.UnknownBrokerIdError,
        ),
    ),
)
"""The first match counts. The library's own messages are not repeated: they may quote anything."""


def classified(error: Exception) -> KafkaFailure:
    """Return the failure for an error of the library."""
    name = type(error).__name__
    for kind, found, classes in _CLASSES:
        if isinstance(error, classes):
            topics = _topics(error) if isinstance(error, errors.TopicAuthorizationFailedError) else ()
            group = isinstance(error, errors.GroupAuthorizationFailedError)
            return KafkaFailure(kind, f"{found} ({name})" if found else name, topics=topics, group=group)
    return KafkaFailure(FailureKind.OTHER, name)


def translated(error: Exception) -> KafkaFailure:
    """Return the failure for any exception raised by the library."""
    if isinstance(error, KafkaFailure):
        return error
    if isinstance(error, KafkaError):
        return classified(error)
    return ConnectionBroken(FailureKind.OTHER, f"an error of the client library ({type(error).__name__})")


def connection_refusal(connection_errors: ConnectionErrors) -> KafkaFailure | None:
    """Return why the latest connection was refused; None if it was not, or failed otherwise."""
    if connection_errors.latest is None:
        return None
    failure = classified(connection_errors.latest)
    return failure if failure.kind.needs_operator else None


def _topics(error: Exception) -> tuple[str, ...]:
    named: Any = error.args[0] if error.args else ()
    return tuple(one for one in named if isinstance(one, str)) if isinstance(named, set | list | tuple) else ()
