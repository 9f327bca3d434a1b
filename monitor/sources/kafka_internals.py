"""What is needed of kafka-python and has no public name there, all in one place.

The version is pinned to 3.0, and `tests/sources/kafka` notices when one of these moves.
"""

# ruff: noqa: ANN401, SLF001 - the library has no types, and these are its private parts

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata


def unreadable(consumer: Any) -> tuple[TopicPartition, int] | None:
    """Return which batch made a poll fail, and where it was read, when it was a batch.

    It must be left by a seek before the next poll, which would otherwise go round and round in it for ever.
    """
    records = consumer._fetcher._next_partition_records
    state = None if records is None else consumer._subscription.assignment.get(records.topic_partition)
    if state is None or state.position is None:
        return None
    return records.topic_partition, state.position.offset


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
    for none, and begins another: with bad luck for ever, while the group waits and nobody sends heartbeats.
    """
    coordinator = consumer._coordinator
    if coordinator._join_task is not None and not isinstance(coordinator._join_task, _JoinUnderWay):
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


def close_client(consumer: Any) -> None:
    """End the library's thread and close its sockets, and nothing else."""
    consumer._client.close()
