"""Brokers that fail or respond slowly, simulated by the mock cluster; and a damaged log of a real one."""

import re
import time
from typing import Any

from confluent_kafka import KafkaError
from kafka.errors import UnknownBrokerIdError

from tests.kafka.mock import MOCK_API_VERSION, MockCluster, Request
from tests.kafka.producing import Writer
from tests.kafka.shared import SecuredBroker
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import Member, payloads

TOPIC = "outputs"


def _written(cluster: MockCluster, count: int, partitions: int = 1) -> Writer:
    cluster.create_topic(TOPIC, partitions, 1)
    writer = Writer(cluster.bootstrap, TOPIC)
    for partition in range(partitions):
        writer.write(payloads(range(count)), partition)
    return writer


def _joined(cluster: MockCluster, join: Join, **settings: object) -> Member:
    return join(cluster.bootstrap.split(",")[0], TOPIC, api_version=MOCK_API_VERSION, **settings)


def test_errors_of_all_kinds_lose_nothing(mock_kafka: MockCluster, join: Join) -> None:
    writer = _written(mock_kafka, 500, 3)
    member = _joined(mock_kafka, join, max_poll_records=50)
    for partition in range(3):
        member.until(lambda shard=f"{TOPIC}/{partition}": len(member.disk.rows.get(shard, [])) > 0, "a start")  # type: ignore[misc]
    mock_kafka.fail_next(
        Request.FETCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN,
    )
    mock_kafka.fail_next(Request.HEARTBEAT, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS)
    mock_kafka.fail_next(Request.OFFSET_COMMIT, KafkaError.ILLEGAL_GENERATION, KafkaError.REQUEST_TIMED_OUT)
    for partition in range(3):
        writer.write(payloads(range(500, 700)), partition)
    for partition in range(3):
        member.until_rows(f"{TOPIC}/{partition}", range(700))


def test_failed_commits_are_counted_and_repeated(mock_kafka: MockCluster, join: Join) -> None:
    _written(mock_kafka, 10)
    mock_kafka.fail_next(Request.OFFSET_COMMIT, *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 2)
    member = _joined(mock_kafka, join)
    member.until_rows(f"{TOPIC}/0", range(10))
    member.until(lambda: member.counted["offset_commits"] > 0, "a commit that works")
    assert member.counted["offset_commit_errors"] == 2
    assert member.source.status().waits_for is None


def test_lost_brokers_are_reported_and_reconnected(mock_kafka: MockCluster, join: Join) -> None:
    writer = _written(mock_kafka, 10)
    member = _joined(mock_kafka, join)
    member.until_rows(f"{TOPIC}/0", range(10))
    for broker in (1, 2, 3):
        mock_kafka.set_down(broker)
    member.until(lambda: "expected a broker to answer" in (member.source.status().waits_for or ""), "to be not ready")
    assert member.owned == {f"{TOPIC}/0"}
    for broker in (1, 2, 3):
        mock_kafka.set_up(broker)
    writer.write(payloads(range(10, 20)))
    member.until_rows(f"{TOPIC}/0", range(20))
    member.until(lambda: member.source.status().waits_for is None, "to be ready")
    assert any("connection restored" in event for event in member.events)


def test_a_join_for_new_partitions_completed_between_polls_counts(kafka: Topics, join: Join) -> None:
    """Nothing else would trigger a join, and its result would never be handled."""
    topic = unique("later")
    member = join(kafka.bootstrap, topic)
    member.until(lambda: "found none" in (member.source.status().waits_for or ""), "the missing topic")
    consumer: Any = member.source._connection.consumer  # noqa: SLF001
    coordinator = consumer._consumer._coordinator  # noqa: SLF001
    kafka.create_topic(topic)
    for _ in range(100):
        # Polls without a timeout start a join without waiting for it.
        consumer.poll(0.0, 10)
        time.sleep(0.1)
        if member.source._ownership.owned:  # noqa: SLF001
            break
    assert coordinator._metadata_snapshot == {topic: {0}}  # noqa: SLF001
    member.until(lambda: member.owned == {f"{topic}/0"}, "the new partition")


def test_a_batch_that_is_intact_when_fetched_again_is_not_skipped(mock_kafka: MockCluster, join: Join) -> None:
    writer = _written(mock_kafka, 10)
    member = _joined(mock_kafka, join)
    member.until_rows(f"{TOPIC}/0", range(10))
    mock_kafka.fail_next(Request.FETCH, *[KafkaError.INVALID_MSG] * 3)
    writer.write(payloads(range(10, 20)))
    member.until_rows(f"{TOPIC}/0", range(20))
    assert member.counted["offsets_unreadable"] == 0


def test_a_broker_is_fetched_from_again_after_a_failed_send(kafka: Topics, join: Join) -> None:
    """Metadata names a leader that is not among the brokers, for a moment."""
    topic = kafka.create_topic()
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(10)))
    member = join(kafka.bootstrap, topic, stall_after_seconds=600.0)
    member.until_rows(f"{topic}/0", range(10))
    consumer: Any = member.source._connection.consumer  # noqa: SLF001
    manager = consumer._consumer._manager  # noqa: SLF001
    send, failures = manager.send, 0

    def fails(request: Any, *words: Any, **named: Any) -> Any:
        nonlocal failures
        if type(request).__name__ == "FetchRequest" and failures < 3:
            failures += 1
            raise UnknownBrokerIdError
        return send(request, *words, **named)

    manager.send = fails
    member.until(lambda: failures == 3, "fetches that fail")
    writer.write(payloads(range(10, 20)))
    member.until_rows(f"{topic}/0", range(20))
    assert member.counted["errors_unreachable"] == 3
    assert member.counted["stalls"] == 0


def test_a_join_completed_between_polls_counts(mock_kafka: MockCluster, join: Join) -> None:
    """Each join takes longer than a poll. If its result were lost, it would start again for ever."""
    _written(mock_kafka, 10)
    for broker in (1, 2, 3):
        mock_kafka.slow_down(broker, 150)
    member = _joined(mock_kafka, join, session_timeout_seconds=30.0)
    for _ in range(20):
        member.tick()
        time.sleep(0.5)
        if member.owned:
            break
    assert member.owned == {f"{TOPIC}/0"}


def test_a_damaged_batch_is_skipped_and_nothing_after_it_is_lost(secured_kafka: SecuredBroker, join: Join) -> None:
    """Three batches of ten; one byte of the second is changed in the broker's log."""
    topic = secured_kafka.create_topic()
    writer = Writer(secured_kafka.bootstrap, topic, linger_ms=200)
    for start in (0, 10, 20):
        writer.write(payloads(range(start, start + 10)))
    (log,) = (secured_kafka.log.parent / "logs" / f"{topic}-0").glob("*.log")
    (place,) = (found.start() for found in re.finditer(str(1_760_000_015).encode(), log.read_bytes()))
    with log.open("r+b") as file:
        file.seek(place)
        file.write(b"9")
    member = join(secured_kafka.bootstrap, topic)
    member.until_rows(f"{topic}/0", [*range(10), *range(20, 30)])
    assert member.counted["batches_unreadable"] == 1
    assert member.counted["offsets_unreadable"] == 10
    assert any("offset 10 is damaged" in warning for warning in member.warnings)
    assert any("offsets 10 to 19 are unreadable" in warning for warning in member.warnings)
