"""What tests may rely on: a real broker takes, keeps and gives back what kafka-python asks for."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaTimeoutError

from monitor.sources.kafka.internals import preserve_join
from tests.kafka.broker import Cluster
from tests.kafka.consuming import consumer, partitions, read, refusal
from tests.kafka.node import BrokerFailed
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_written_is_read_at_its_offsets(kafka: Topics, codec: str) -> None:
    topic = kafka.create_topic(partitions=2)
    writer = Writer(kafka.bootstrap, topic, compression_type=codec)
    for partition in range(2):
        writer.write([b"%d of %d" % (number, partition) for number in range(1000)], partition)

    with consumer(kafka.bootstrap) as opened:
        opened.assign(partitions(topic, 2))
        assert read(opened, 2000) == writer.truth


def test_a_tombstone_comes_as_none(kafka: Topics) -> None:
    topic = kafka.create_topic(config={"cleanup.policy": "compact"})
    writer = Writer(kafka.bootstrap, topic)
    writer.write([b"a value", None], key=b"key")
    with consumer(kafka.bootstrap) as opened:
        opened.assign(partitions(topic, 1))
        assert read(opened, 2) == writer.truth == {0: {0: b"a value", 1: None}}


def test_a_topic_that_nobody_made_is_not_there(kafka: Topics) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        Writer(kafka.bootstrap, unique("nobody-made-it"), topic_metadata_propagation_max_ms=100).write([b"lost"])


def test_a_deleted_topic_is_gone(kafka: Topics) -> None:
    topic = kafka.create_topic()
    with consumer(kafka.bootstrap) as opened:
        assert topic in opened.topics()
    kafka.delete_topic(topic)
    with consumer(kafka.bootstrap) as opened:
        assert topic not in opened.topics()


def test_deleted_records_move_the_beginning(kafka: Topics) -> None:
    topic = kafka.create_topic()
    Writer(kafka.bootstrap, topic).write([b"%d" % number for number in range(100)])
    kafka.delete_records(topic, {0: 60})
    with consumer(kafka.bootstrap) as opened:
        (partition,) = partitions(topic, 1)
        assert opened.beginning_offsets([partition]) == {partition: 60}
        opened.assign([partition])
        assert min(read(opened, 40)[0]) == 60


def test_an_aborted_transaction_is_seen_only_by_those_who_ask_for_it(kafka: Topics) -> None:
    topic = kafka.create_topic()
    writer = Writer(kafka.bootstrap, topic, transactional_id=unique("writer"))
    with writer.transaction():
        writer.enqueue([b"kept 1", b"kept 2"])
    with writer.transaction(abort=True):
        writer.enqueue([b"thrown away"])
    with writer.transaction():
        writer.enqueue([b"kept 3"])

    # Markers take offsets too: one after 0 and 1, one after 3.
    assert writer.truth == {0: {0: b"kept 1", 1: b"kept 2", 5: b"kept 3"}}
    with consumer(kafka.bootstrap, isolation_level="read_committed") as opened:
        opened.assign(partitions(topic, 1))
        assert read(opened, 3) == writer.truth
    with consumer(kafka.bootstrap) as opened:
        opened.assign(partitions(topic, 1))
        assert read(opened, 4)[0] == writer.truth[0] | {3: b"thrown away"}


def test_offsets_are_found_by_time(kafka: Topics) -> None:
    topic = kafka.create_topic()
    now = int(time.time() * 1000)
    times = [now - 1000 * (100 - number) for number in range(100)]
    Writer(kafka.bootstrap, topic).write([b"%d" % number for number in range(100)], timestamps_ms=times)
    with consumer(kafka.bootstrap) as opened:
        (partition,) = partitions(topic, 1)
        found = opened.offsets_for_times({partition: times[30] - 500})[partition]
        assert (found.offset, found.timestamp) == (30, times[30])
        assert opened.offsets_for_times({partition: now + 1000}) == {partition: None}


def test_a_commit_keeps_its_metadata(kafka: Topics) -> None:
    topic = kafka.create_topic()
    (partition,) = partitions(topic, 1)
    group = unique("group")
    Writer(kafka.bootstrap, topic).write([b"one", b"two"])
    with consumer(kafka.bootstrap, group_id=group) as opened:
        opened.assign([partition])
        opened.commit({partition: OffsetAndMetadata(1, '{"r":0}', -1)})
    with consumer(kafka.bootstrap, group_id=group) as opened:
        committed = opened.committed(partition, metadata=True)
        assert (committed.offset, committed.metadata) == (1, '{"r":0}')


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Remembers what was taken away."""

    def __init__(self) -> None:
        self.revoked: list[TopicPartition] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked += revoked

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


def test_cooperative_members_keep_what_does_not_move(kafka: Topics) -> None:
    topic, group = kafka.create_topic(partitions=4), unique("group")
    settings: dict[str, Any] = {"group_id": group, "partition_assignment_strategy": [CooperativeStickyAssignor]}
    # Of a topic that they do not know yet they would be given nothing, until they ask again.
    settings |= {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200, "metadata_max_age_ms": 500}
    with consumer(kafka.bootstrap, **settings) as first, consumer(kafka.bootstrap, **settings) as second:
        listener = _Listener()
        first.subscribe([topic], listener=listener)
        _poll_until(lambda: len(first.assignment()) == 4, first)
        second.subscribe([topic])
        _poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)

        assert first.assignment() | second.assignment() == set(partitions(topic, 4))
        assert set(listener.revoked) == second.assignment()


def _poll_until(holds: Any, *members: KafkaConsumer) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        for member in members:
            # The library alone loses a join that ends between two polls, and is given nothing for ever.
            preserve_join(member)
            member.poll(50)


def test_nobody_there_is_a_timeout_and_leaves_no_thread_behind() -> None:
    threads = threading.active_count()
    assert refusal("127.0.0.1:1", bootstrap_timeout_ms=300).kind is KafkaTimeoutError
    assert threading.active_count() == threads


def test_a_start_that_fails_says_why(real_kafka: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    settings = Cluster._settings  # noqa: SLF001, there is no mistake to be made from outside
    monkeypatch.setattr(Cluster, "_settings", lambda self: settings(self) | {"num.io.threads": "none"})
    with pytest.raises(BrokerFailed) as raised, Cluster(tmp_path):
        pass
    assert "Invalid value none for configuration num.io.threads" in str(raised.value)
