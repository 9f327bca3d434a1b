"""Reading topics of a real broker."""

import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from monitor.records.messages import Messages
from monitor.records.record_batch import RecordBatch
from monitor.sources.base import Delivery
from monitor.sources.kafka.kafka_options import Start
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import Disk, Member, decoder, payload, payloads


def test_all_records_of_all_partitions_arrive_once_and_in_order(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic(partitions=3)
    writer = Writer(kafka.bootstrap, topic)
    for partition in range(3):
        writer.write(payloads(range(partition * 1000, partition * 1000 + 500)), partition)
    member = join(kafka.bootstrap, topic)
    for partition in range(3):
        member.until_rows(f"{topic}/{partition}", range(partition * 1000, partition * 1000 + 500))
    assert member.owned == {f"{topic}/{partition}" for partition in range(3)}
    assert member.counted["messages_read"] == 1500
    member.until(lambda: member.source.status().waits_for is None, "to be ready")
    assert member.source.status().lag.files == 0


def test_topics_are_found_by_a_pattern(kafka: Topics, join: Join) -> None:
    prefix = unique("site")
    topics = [kafka.create_topic(f"{prefix}-{name}") for name in ("a", "b")]
    for number, topic in enumerate(topics):
        Writer(kafka.bootstrap, topic).write(payloads([number]))
    member = join(kafka.bootstrap, "", pattern=f"{prefix}-.*")
    for number, topic in enumerate(topics):
        member.until_rows(f"{topic}/0", [number])


def test_a_restart_resumes_at_the_checkpoint(kafka: Topics, join: Join) -> None:
    topic, group, disk = kafka.create_topic(), unique("group"), Disk()
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(100)))
    first = join(kafka.bootstrap, topic, group, disk=disk)
    first.until_rows(f"{topic}/0", range(100))
    first.source.close()
    writer.write(payloads(range(100, 150)))
    second = join(kafka.bootstrap, topic, group, disk=disk)
    second.until_rows(f"{topic}/0", range(150))
    assert second.counted["partitions_resumed"] == 1
    assert second.counted["messages_read"] == 50


def test_latest_skips_old_messages_and_misses_none_while_down(kafka: Topics, join: Join) -> None:
    """The first checkpoint is stored at once: a restart before the first record would otherwise start at another end."""
    topic, group, disk = kafka.create_topic(), unique("group"), Disk()
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads(range(10)))
    first = join(kafka.bootstrap, topic, group, disk=disk, start=Start.LATEST)
    first.until(lambda: bool(disk.positions), "a position")
    first.kill()
    writer.write(payloads(range(10, 20)))
    second = join(kafka.bootstrap, topic, unique("another-group"), disk=disk, start=Start.LATEST)
    second.until_rows(f"{topic}/0", range(10, 20))


def test_since_starts_at_that_time(kafka: Topics, join: Join) -> None:
    topic, now = kafka.create_topic(), int(time.time())
    times = [(now - age) * 1000 for age in (7200, 5400, 1800, 60)]
    Writer(kafka.bootstrap, topic).write(payloads(range(4)), timestamps_ms=times)
    member = join(kafka.bootstrap, topic, start=Start.SINCE, since_seconds=3600.0)
    member.until_rows(f"{topic}/0", [2, 3])


def test_since_starts_at_the_end_if_all_messages_are_older(kafka: Topics, join: Join) -> None:
    topic, now = kafka.create_topic(), int(time.time())
    writer = Writer(kafka.bootstrap, topic)
    writer.write(payloads([0]), timestamps_ms=[(now - 7200) * 1000])
    member = join(kafka.bootstrap, topic, start=Start.SINCE, since_seconds=3600.0)
    member.until(lambda: bool(member.disk.positions), "a position")
    writer.write(payloads([1]))
    member.until_rows(f"{topic}/0", [1])


def test_tombstones_are_counted_and_are_no_records(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic()
    Writer(kafka.bootstrap, topic).write([None, payload(1), None, None, payload(4), None], key=b"k")
    member = join(kafka.bootstrap, topic)
    member.until(lambda: member.counted["messages_read"] == 6, "all messages")
    assert member.disk.rows[f"{topic}/0"] == [1, 4]
    assert member.counted["tombstones"] == 4
    assert member.shards().lags[f"{topic}/0"].records == 0


def test_aborted_transactions_are_not_read_and_their_markers_are_not_waited_for(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic()
    writer = Writer(kafka.bootstrap, topic, transactional_id=unique("transaction"))
    with writer.transaction():
        writer.enqueue(payloads(range(5)))
    with writer.transaction(abort=True):
        writer.enqueue(payloads(range(100, 105)))
    with writer.transaction():
        writer.enqueue(payloads(range(5, 10)))
    member = join(kafka.bootstrap, topic)
    member.until_rows(f"{topic}/0", range(10))
    member.until(lambda: member.source.status().lag.files == 0, "no lag")
    assert member.counted["records_lost"] == 0


def test_a_topic_created_later_is_read(kafka: Topics, join: Join) -> None:
    topic = unique("later")
    member = join(kafka.bootstrap, topic, start=Start.EARLIEST)
    member.until(
        lambda: f"expected topic {topic}, found none" in (member.source.status().waits_for or ""), "the missing topic"
    )
    assert member.counted["errors_unknown_topic"] == 1
    kafka.create_topic(topic)
    Writer(kafka.bootstrap, topic).write(payloads(range(3)))
    member.until_rows(f"{topic}/0", range(3))
    member.until(lambda: member.source.status().waits_for is None, "to be ready")


class _Fails:
    """A decoder with a bug."""

    def __init__(self) -> None:
        self._inner = decoder()

    def messages(self, where: str, messages: Messages) -> RecordBatch:
        if payload(13) in messages.values:
            raise ZeroDivisionError
        return self._inner.messages(where, messages)


def test_a_decoder_exception_skips_one_message_only(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic()
    Writer(kafka.bootstrap, topic).write(payloads(range(50)))
    member = join(kafka.bootstrap, topic, decoder=_Fails())
    member.until_rows(f"{topic}/0", [number for number in range(50) if number != 13])
    assert member.counted["decoder_errors"] == 1
    assert member.counted["messages_read"] == 50
    assert any("at offset 13" in warning for warning in member.warnings)


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_uncommitted_messages_are_delivered_again(kafka: Topics, join: Join, taken: int) -> None:
    """A poll is stopped and rolled back, ownership and first checkpoints included."""
    topic = kafka.create_topic(partitions=2)
    writer = Writer(kafka.bootstrap, topic)
    for partition in range(2):
        writer.write(payloads(range(200)), partition)
    member = join(kafka.bootstrap, topic, max_poll_records=50)
    for attempt in range(60):
        polled = member.source.poll(time.time())
        some = _first(polled, taken + attempt % 3) if attempt % 2 else list(polled)
        if attempt % 2:
            member.source.roll_back()
            _finish(polled)
        elif some:
            member.take(some)
    for partition in range(2):
        member.until_rows(f"{topic}/{partition}", range(200))
    assert member.owned == {f"{topic}/0", f"{topic}/1"}
    assert len(member.disk.positions) == 2


def _first(polled: Iterator[Delivery], count: int) -> list[Delivery]:
    return list(islice(polled, count))


def _finish(polled: Iterator[Delivery]) -> None:
    assert list(polled) == []


def test_a_poll_stopped_early_is_continued_by_the_next(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic(partitions=4)
    writer = Writer(kafka.bootstrap, topic)
    for partition in range(4):
        writer.write(payloads(range(100)), partition)
    member = join(kafka.bootstrap, topic)
    seconds = time.monotonic() + 30
    while sum(map(len, member.disk.rows.values())) < 400 and time.monotonic() < seconds:
        some = _first(member.source.poll(time.time()), 1)
        if some:
            member.take(some)
    assert member.disk.rows == {f"{topic}/{partition}": list(range(100)) for partition in range(4)}


def test_rejected_records_are_counted_and_the_others_read(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic()
    Writer(kafka.bootstrap, topic).write([payload(0), b"no JSON", b"", payload(3)])
    member = join(kafka.bootstrap, topic)
    member.until_rows(f"{topic}/0", [0, 3])
    refused = sum((one.batch.rejected.total() for one in member.deliveries), 0)
    assert refused == 2
    offsets = [pointer.offset for one in member.deliveries for pointer in one.batch.pointers]
    assert offsets == [1, 2]


def test_members_that_are_closed_leave_no_threads(kafka: Topics, join: Join) -> None:
    topic = kafka.create_topic()
    before = _threads()
    member: Member = join(kafka.bootstrap, topic)
    member.until(lambda: bool(member.owned), "a partition")
    assert _threads() > before
    member.source.close()
    assert _threads() == before


def _threads() -> int:
    return sum(thread.name.startswith("kafka") for thread in threading.enumerate())
