"""What is needed of kafka-python and has no public name there, and the token provider it calls.

The version is pinned to 3.0, and `tests/sources/kafka` notices when one of these moves.
"""

import contextlib
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

from kafka import TopicPartition
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


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """Reads the token from its file each time: somebody else renews it."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def token(self) -> str:
        """Return the token."""
        return self._read()


# ruff: noqa: ANN401, SLF001 - the library has no types, and these are its private parts


def keep_secrets() -> None:
    """Keep the library from logging what it sends: on the level for developers, passwords are among it."""
    log = logging.getLogger("kafka")
    if log.getEffectiveLevel() < logging.INFO:
        log.setLevel(logging.INFO)


class FetchErrors:
    """Why the latest connection failed, as long as none has worked since.

    The library tells it to nobody: it tries on, and in the end says only that no broker answered.
    """

    def __init__(self) -> None:
        self.latest: Exception | None = None
        self._clients: list[Any] = []
        self._watched: WeakSet[Any] = WeakSet()

    def client(self, **settings: Any) -> Any:
        """Return a client of the library, watched."""
        keep_secrets()
        client = KafkaNetClient(**settings)
        self._clients.append(client)
        # The library forgets to pass this on, and would make topics whose names are misspelt in our settings.
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
        send, proved = connection._send_request, False

        def sent(request: Any, *words: Any, **named: Any) -> Any:
            nonlocal proved
            proved = proved or isinstance(request, SaslAuthenticateRequest)
            return send(request, *words, **named)

        def failed(error: Exception) -> None:
            # A broker answers a wrong password and hangs up. When both arrive at once, the library drops the answer.
            if proved and isinstance(error, KafkaConnectionError):
                error = SaslAuthenticationFailedError()
            # Who was refused is refused until let in, even if the next attempt runs out of time before it is.
            if not isinstance(self.latest, SaslAuthenticationFailedError):
                self.latest = error

        def worked(_: Any) -> None:
            self.latest = None

        connection._send_request = sent
        connection.init_future.add_callback(worked)
        connection.init_future.add_errback(failed)

    def close_clients(self) -> None:
        """End threads and close sockets: the library leaves those of a consumer or producer that could not be made."""
        for client in self._clients:
            client.close()


def unreadable(consumer: Any, error: Exception) -> tuple[TopicPartition, int] | None:
    """Return which batch made a poll fail, and where it was read; None when it was something else.

    The batch is let go of: the next poll would otherwise go round and round in it for ever. To take another error for
    this one would pass over good messages, so it counts where exactly it was raised.
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
    """Let a broker be asked again to which a fetch could not be sent.

    The library notes that a fetch is under way before it sends it. When there is nobody to send it to, the note stays,
    and nothing is ever fetched from that broker again.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is Fetcher._send_fetches_async.__code__:
            consumer._fetcher._nodes_with_pending_fetch_requests.discard(frame.f_locals.get("node_id"))


def seek(consumer: Any, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
    """Read on from an offset that was read under a leader epoch; the public `seek` takes none."""
    state = consumer._subscription.assignment.get(partition)
    if state is not None:
        state.seek(OffsetAndMetadata(offset, "", leader_epoch))


def progress(consumer: Any) -> Mapping[TopicPartition, tuple[int, int | None]]:
    """Return position and end of each partition; the public `position` asks the cluster."""
    states = consumer._subscription.assignment.copy()
    return {
        one: (state.position.offset, state.highwater) for one, state in states.items() if state.position is not None
    }


def topic_id(consumer: Any, topic: str) -> str:
    """Return the id of a topic as metadata tells it; empty where brokers have none."""
    found = consumer._cluster.topic_id(topic)
    return "" if found is None else str(found)


def known_topics(consumer: Any) -> tuple[set[str], set[str]]:
    """Return the topics that metadata tells of, and those that we may not see; the public `topics` asks for all."""
    cluster = consumer._cluster
    return cluster.topics(exclude_internal_topics=False), cluster.unauthorized_topics


def has_coordinator(consumer: Any) -> bool:
    """Tell whether a coordinator of the group is known."""
    return not consumer._coordinator.coordinator_unknown()


def learn_topics(consumer: Any, timeout_seconds: float) -> None:
    """Wait for metadata of what was subscribed: a member that joins without any makes the group share twice."""
    with contextlib.suppress(KafkaError):
        future = consumer._cluster.request_update()
        consumer._net.run(consumer._manager.wait_for, future, timeout_seconds * 1000)


def keep_join(consumer: Any) -> None:
    """Keep what a join that is under way brings, even if it is over before the next poll; called before each poll.

    A join takes longer than a poll. The library looks at it again in the next one, but takes a join that is over by then
    for none, and begins another, with bad luck for ever; or, where it was new partitions that called for it, for done,
    and waits for ever. Meanwhile nobody sends heartbeats.
    """
    coordinator = consumer._coordinator
    if coordinator._join_task is None:
        return
    coordinator.rejoin_needed = True
    if not isinstance(coordinator._join_task, _JoinUnderWay):
        coordinator._join_task = _JoinUnderWay(coordinator._join_task)


class _JoinUnderWay:
    """A join that counts as under way until its outcome has been looked at."""

    is_done = False

    def __init__(self, task: Any) -> None:
        self._task = task

    def add_callback(self, function: Callable[..., None]) -> None:
        """Call this once it has worked; at once, if it has."""
        self._task.add_callback(function)

    def add_errback(self, function: Callable[..., None]) -> None:
        """Call this once it has failed; at once, if it has."""
        self._task.add_errback(function)


def claim_what_is_owned(consumer: Any) -> None:
    """Let a member that joins tell what it owns, instead of what it was given last.

    A member that the group has put out still claims what it had. Whoever shares partitions then keeps them back until it
    gives them up, which it cannot, since it has nothing: nobody reads them again, until a member comes or goes.
    """
    coordinator = consumer._coordinator
    for assignor in coordinator._assignors.values():
        if isinstance(assignor, StickyPartitionAssignor):
            assignor.metadata = _metadata_of(assignor, coordinator)


def _metadata_of(assignor: Any, coordinator: Any) -> Callable[[Any], Any]:
    said = assignor.metadata

    def metadata(topics: Any) -> Any:
        lost = coordinator._generation.is_lost()
        assignor.member_assignment = [] if lost else list(coordinator._subscription.assigned_partitions())
        return said(topics)

    return metadata


def allow_rejoin(consumer: Any) -> None:
    """Prepare a consumer for `rejoin`.

    To a member that joins a stable group with an unchanged subscription the broker returns the stored assignment, without
    a rebalance, unless the member leads the group. So each rejoin sends other user data, which our assignors ignore.
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

    Its value is None when the group was not stable. The library describes groups in its admin client only, which would need
    connections and a thread of its own.
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


def is_put_out(consumer: Any) -> bool:
    """Tell whether a heartbeat was answered that another process has our instance id.

    The library then ends its heartbeats, tells nobody, and fetches on for ever, in haste: only a commit would fail.
    """
    coordinator = consumer._coordinator
    if coordinator.config["group_instance_id"] is None:
        return False
    with coordinator._lock:
        return coordinator.stable() and not coordinator.rejoining and not coordinator._heartbeat_enabled


def close_client(consumer: Any) -> None:
    """End the library's thread and close its sockets, and nothing else."""
    consumer._client.close()
