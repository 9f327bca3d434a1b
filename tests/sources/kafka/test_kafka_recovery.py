"""Restarts, with and without a disk, and changed logs; on a real broker."""

import time

from monitor.sources.kafka.kafka_options import Start
from monitor.sources.kafka.partition_checkpoint import CommittedOffset, decode_metadata
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import Disk, Member, payloads


def _committed(member: Member, topic: str) -> tuple[int, int]:
    """Return the group's committed offset and rewind offset."""
    consumer = member.source._connection.consumer  # noqa: SLF001
    assert consumer is not None
    (partition,) = member.source._ownership.owned  # noqa: SLF001
    assert partition.topic == topic
    found = consumer.committed(partition, 10.0)
    note = None if found is None else decode_metadata(found.metadata)
    return (-1, -1) if found is None or note is None else (found.offset, note.rewind)


def test_a_member_without_a_disk_rebuilds_the_windows(kafka: Topics, join: Join) -> None:
    """The window has the last 100 of 1,000 records, in batches of 50: the rewind is short, but long enough."""
    topic, group = kafka.create_topic(), unique("group")
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(1000)))
    first = join(kafka.bootstrap, topic, group, hold=100, max_poll_records=50)
    first.until_rows(f"{topic}/0", range(1000))
    first.until(lambda: _committed(first, topic)[0] == 1000, "the group to know")
    offset, rewind = _committed(first, topic)
    assert 800 <= rewind <= 900
    first.source.close()
    writer.write(payloads(range(1000, 1010)))
    second = join(kafka.bootstrap, topic, group, start=Start.LATEST)
    second.until_rows(f"{topic}/0", range(rewind, 1010))
    evidence = first.disk.evidence[f"{topic}/0"] + second.disk.evidence[f"{topic}/0"]
    assert evidence == list(range(1010)), "each record once, by the one or the other"
    assert second.counted["partitions_rewound"] == 1
    assert any(f"from offset {rewind} to" in event for event in second.events)
    assert offset == 1000


def test_during_a_rebuild_it_lags_and_the_committed_offset_stays(kafka: Topics, join: Join) -> None:
    topic, group = kafka.create_topic(), unique("group")
    Writer(kafka.bootstrap, topic).write(payloads(range(400)))
    first = join(kafka.bootstrap, topic, group)
    first.until_rows(f"{topic}/0", range(400))
    first.until(lambda: _committed(first, topic) == (400, 0), "the group to know")
    first.source.close()
    second = join(kafka.bootstrap, topic, group, max_poll_records=20, commit_seconds=0.1)
    seen = []
    second.until(lambda: bool(second.disk.rows.get(f"{topic}/0")), "the first rows")
    while len(second.disk.rows[f"{topic}/0"]) < 400:
        lag = second.shards().lags[f"{topic}/0"]
        seen.append((lag.records, lag.restoring))
        assert _committed(second, topic)[0] == 400
        second.tick()
    assert seen
    assert all(records == restoring > 0 for records, restoring in seen)
    second.until(lambda: second.shards().lags[f"{topic}/0"].restoring == 0, "to have caught up")
    spent = second.shards().restore_seconds
    assert spent > 0.0
    second.tick()
    assert second.shards().restore_seconds == spent


def test_an_outdated_checkpoint_is_replaced_by_a_rewind(kafka: Topics, join: Join) -> None:
    topic, group, disk = kafka.create_topic(), unique("group"), Disk()
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(100)))
    first = join(kafka.bootstrap, topic, group, disk=disk, hold=10, max_poll_records=50)
    first.until_rows(f"{topic}/0", range(100))
    first.source.close()
    writer.write(payloads(range(100, 1000)))
    other = join(kafka.bootstrap, topic, group, hold=10, max_poll_records=50)
    other.until(lambda: other.disk.rows.get(f"{topic}/0", [])[-1:] == [999], "the last record")
    other.until(lambda: _committed(other, topic)[0] == 1000, "the group to know")
    _, rewind = _committed(other, topic)
    other.source.close()
    again = join(kafka.bootstrap, topic, group, disk=disk, hold=10)
    again.until(lambda: disk.rows[f"{topic}/0"][-1:] == [999], "the last record")
    assert disk.rows[f"{topic}/0"] == list(range(rewind, 1000))
    assert disk.evidence[f"{topic}/0"] + other.disk.evidence[f"{topic}/0"] == list(range(1000))
    assert rewind > 900
    assert again.resets == [f"{topic}/0"]


def test_records_deleted_while_down_are_counted_as_lost_and_leave_a_gap(kafka: Topics, join: Join) -> None:
    topic, group, disk = kafka.create_topic(), unique("group"), Disk()
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(100)))
    first = join(kafka.bootstrap, topic, group, disk=disk)
    first.until_rows(f"{topic}/0", range(100))
    first.source.close()
    writer.write(payloads(range(100, 200)))
    kafka.delete_records(topic, {0: 150})
    second = join(kafka.bootstrap, topic, group, disk=disk, hold=60)
    second.until_rows(f"{topic}/0", [*range(100), *range(150, 200)])
    assert second.counted["records_lost"] == 50
    assert any("found the log start at 150" in warning for warning in second.warnings)
    assert second.shards().with_gap == 1
    second.source.close()
    third = join(kafka.bootstrap, topic, group, disk=disk, hold=60)
    third.until(lambda: third.shards().with_gap == 1, "the gap to be known after a restart")
    assert third.counted["records_lost"] == 0
    writer.write(payloads(range(200, 220)))
    third.until(lambda: disk.rows.get(f"{topic}/0", [])[-1:] == [219], "the last record")
    assert third.shards().with_gap == 0


def test_records_deleted_before_a_slow_reader_are_counted_as_lost(kafka: Topics, join: Join) -> None:
    """Without a restart: the broker rejects the offset while reading."""
    topic = kafka.create_topic()
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(10)))
    member = join(kafka.bootstrap, topic)
    member.until_rows(f"{topic}/0", range(10))
    _hold_back(member, topic)
    # A fetch in progress waits at the broker for half a second, and would return them before they are deleted.
    time.sleep(1.0)
    writer.write(payloads(range(10, 40)))
    kafka.delete_records(topic, {0: 30})
    _let_go(member, topic)
    member.until_rows(f"{topic}/0", [*range(10), *range(30, 40)])
    assert member.counted["records_lost"] == 20
    assert member.resets == []


def _hold_back(member: Member, topic: str) -> None:
    consumer = member.source._connection.consumer  # noqa: SLF001
    assert consumer is not None
    for partition in consumer.progress():
        assert partition.topic == topic
        consumer.pause(partition)


def _let_go(member: Member, topic: str) -> None:
    consumer = member.source._connection.consumer  # noqa: SLF001
    assert consumer is not None
    for partition in consumer.progress():
        assert partition.topic == topic
        # Fetched messages are fetched again.
        member.source._partitions.seek(consumer, partition)  # noqa: SLF001
        consumer.resume(partition)


def test_a_topic_recreated_while_down_is_read_from_the_start(kafka: Topics, join: Join) -> None:
    """It has more records than were read of the old one, so the offset stays valid."""
    topic, group, disk = kafka.create_topic(), unique("group"), Disk()
    Writer(kafka.bootstrap, topic).write(payloads(range(10)))
    first = join(kafka.bootstrap, topic, group, disk=disk)
    first.until_rows(f"{topic}/0", range(10))
    first.source.close()
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    Writer(kafka.bootstrap, topic).write(payloads(range(500, 550)))
    second = join(kafka.bootstrap, topic, group, disk=disk)
    second.until(lambda: disk.rows.get(f"{topic}/0", [])[-1:] == [549], "the last record")
    assert disk.rows[f"{topic}/0"] == list(range(500, 550))
    assert second.counted["topics_recreated"] == 1
    assert second.resets == [f"{topic}/0"]


def test_a_recreated_topic_is_read_from_the_start_without_a_disk_too(kafka: Topics, join: Join) -> None:
    topic, group = kafka.create_topic(), unique("group")
    Writer(kafka.bootstrap, topic).write(payloads(range(10)))
    first = join(kafka.bootstrap, topic, group, hold=1)
    first.until_rows(f"{topic}/0", range(10))
    first.until(lambda: _committed(first, topic)[0] == 10, "the group to know")
    first.source.close()
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    Writer(kafka.bootstrap, topic).write(payloads(range(500, 550)))
    second = join(kafka.bootstrap, topic, group)
    second.until_rows(f"{topic}/0", range(500, 550))


def test_a_topic_recreated_while_reading_is_read_from_the_start(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic()
    Writer(kafka.bootstrap, topic).write(payloads(range(10)))
    member = join(kafka.bootstrap, topic)
    member.until_rows(f"{topic}/0", range(10))
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    Writer(kafka.bootstrap, topic).write(payloads(range(500, 505)))
    member.until(lambda: member.disk.rows[f"{topic}/0"][-1:] == [504], "the last record")
    assert member.disk.rows[f"{topic}/0"] == list(range(500, 505))


def test_damaged_checkpoints_are_counted_and_their_data_deleted(kafka: Topics, join: Join) -> None:
    topic, disk = kafka.create_topic(), Disk()
    Writer(kafka.bootstrap, topic).write(payloads(range(10)))
    disk.positions[f"{topic}/0".encode()] = b"\x93nonsense"
    disk.rows[f"{topic}/0"] = [77]
    member = join(kafka.bootstrap, topic, disk=disk)
    member.until(lambda: disk.rows.get(f"{topic}/0", [])[-1:] == [9], "the last record")
    assert disk.rows[f"{topic}/0"] == list(range(10))
    assert member.counted["positions_damaged"] == 1


def test_a_member_without_a_disk_starts_at_offsets_set_by_hand(kafka: Topics, join: Join) -> None:
    """As with `kafka-consumer-groups --reset-offsets`: an offset without metadata."""
    topic, group = kafka.create_topic(), unique("group")
    Writer(kafka.bootstrap, topic).write(payloads(range(10)))
    first = join(kafka.bootstrap, topic, group)
    first.until_rows(f"{topic}/0", range(10))
    consumer = first.source._connection.consumer  # noqa: SLF001
    assert consumer is not None
    (partition,) = consumer.progress()
    first.until(lambda: _committed(first, topic)[0] == 10, "the group to know")
    found = consumer.committed(partition, 10.0)
    assert found is not None
    consumer.commit_now({partition: type(found)(7, "")}, 10.0)
    first.kill()
    second = join(kafka.bootstrap, topic, group)
    second.until_rows(f"{topic}/0", range(7, 10))


def test_an_unknown_leader_epoch_means_another_log(kafka: Topics, join: Join) -> None:
    """As after a cluster was restored from a copy, and its log has grown again: the broker rejects an offset within the log."""
    topic, group = kafka.create_topic(), unique("group")
    Writer(kafka.bootstrap, topic).write(payloads(range(10)))
    first = join(kafka.bootstrap, topic, group)
    first.until_rows(f"{topic}/0", range(10))
    consumer = first.source._connection.consumer  # noqa: SLF001
    assert consumer is not None
    (partition,) = consumer.progress()
    first.until(lambda: _committed(first, topic)[0] == 10, "the group to know")
    consumer.commit_now({partition: CommittedOffset(7, "", leader_epoch=99)}, 10.0)
    first.kill()
    second = join(kafka.bootstrap, topic, group)
    second.until_rows(f"{topic}/0", range(10))
    assert second.counted["partitions_truncated"] == 1
    assert [one for one in second.warnings if "log was truncated before the checkpoint" in one]


def test_lag_is_in_records_and_in_seconds_since_the_last_read(kafka: Topics, join: Join) -> None:
    topic, now = kafka.create_topic(), time.time()
    times = [int((now - 1000 + number) * 1000) for number in range(100)]
    Writer(kafka.bootstrap, topic).write(payloads(range(100)), timestamps_ms=times)
    member = join(kafka.bootstrap, topic, max_poll_records=10)
    member.until(lambda: len(member.disk.rows.get(f"{topic}/0", [])) == 10, "the first records")
    lag = member.shards().lags[f"{topic}/0"]
    assert lag.records == 90
    assert lag.seconds >= 990
    assert member.source.status().lag.files == 1
    assert member.source.status().lag.oldest_unread == times[9] / 1000
    member.until_rows(f"{topic}/0", range(100))
    assert member.shards().lags[f"{topic}/0"].seconds == 0.0
    assert member.source.status().lag.oldest_unread is None
