"""Truncated and compacted logs; on a real broker."""

import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Cluster
from tests.kafka.consuming import consumer, partitions, take
from tests.kafka.producing import Truth, Writer
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import LIMIT_SECONDS, Disk, Member, payloads

pytestmark = pytest.mark.slow

_HEADER = struct.Struct(">qi")
"""Of a batch: its first offset, and the length of the rest."""
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "86400000",
}
"""Compacted by the broker every 15 seconds; tombstones stay."""
_LAST = 32
"""The offset of the last record in the compacted log, and its number."""


@pytest.fixture(scope="module")
def cluster(real_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:  # noqa: ARG001
    """A broker that each test kills and restarts."""
    with Cluster(tmp_path_factory.mktemp("broker")) as started:
        yield started


def _written(bootstrap: str, topic: str, begin: int, end: int) -> None:
    """Write records in batches of ten."""
    writer = Writer(bootstrap, topic)
    for first in range(begin, end, 10):
        writer.write(payloads(range(first, min(first + 10, end))))


def _cut(cluster: Cluster, topic: str, end: int) -> None:
    """Truncate the log of a stopped broker before an offset."""
    folder = cluster.nodes[1].folder / "logs" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    length = _length(segment, end)
    with segment.open("r+b") as stream:
        stream.truncate(length)
    # Its other files describe the longer log, and are rebuilt.
    for pattern in ("*.index", "*.timeindex", "*.snapshot"):
        for path in folder.glob(pattern):
            path.unlink()


def _length(segment: Path, end: int) -> int:
    content, at = segment.read_bytes(), 0
    while at < len(content):
        offset, length = _HEADER.unpack_from(content, at)
        if offset >= end:
            assert offset == end
            return at
        at += _HEADER.size + length
    raise AssertionError(f"expected a batch at offset {end}, found the end of the log")


def _assert_read_anew(member: Member, shard: str, rows: list[int]) -> None:
    member.until(lambda: member.disk.rows.get(shard, [])[-1:] == rows[-1:], f"the last record of {shard}")
    assert member.disk.rows[shard] == rows
    assert member.counted["partitions_truncated"] == 1
    assert member.counted["records_lost"] == 0
    assert member.resets == [shard]
    expected = f"{shard}: log was truncated before the checkpoint; its windows are deleted"
    assert [warning for warning in member.warnings if expected in warning]


def test_a_log_truncated_while_reading_is_reported_and_read_from_the_start(cluster: Cluster, join: Join) -> None:
    """It ends before the checkpoint, even with the messages written since."""
    topic = cluster.create_topic()
    _written(cluster.bootstrap, topic, 0, 50)
    member = join(cluster.bootstrap, topic)
    member.until_rows(f"{topic}/0", range(50))
    member.until(lambda: member.counted["offset_commits"] > 0, "a commit")
    cluster.kill(1)
    _cut(cluster, topic, 20)
    cluster.restart(1)
    _written(cluster.bootstrap, topic, 500, 510)
    _assert_read_anew(member, f"{topic}/0", [*range(20), *range(500, 510)])
    _written(cluster.bootstrap, topic, 510, 600)
    member.until_rows(f"{topic}/0", [*range(20), *range(500, 600)])
    # Which of those before the old checkpoint are new is not known.
    assert member.disk.evidence[f"{topic}/0"] == [*range(50), *range(510, 600)]
    member.source.close()


def test_a_log_truncated_and_regrown_while_down_is_reported_and_read_from_the_start(
    cluster: Cluster, join: Join
) -> None:
    """It has more records than were read, so only the leader epoch reveals it."""
    topic, group, disk = cluster.create_topic(), unique("group"), Disk()
    _written(cluster.bootstrap, topic, 0, 50)
    first = join(cluster.bootstrap, topic, group, disk=disk)
    first.until_rows(f"{topic}/0", range(50))
    first.source.close()
    cluster.kill(1)
    _cut(cluster, topic, 20)
    cluster.restart(1)
    _written(cluster.bootstrap, topic, 500, 600)
    second = join(cluster.bootstrap, topic, group, disk=disk)
    _assert_read_anew(second, f"{topic}/0", [*range(20), *range(500, 600)])
    second.source.close()


def _left(bootstrap: str, topic: str) -> dict[int, bytes | None]:
    """Return the content of a compacted log by offset, up to its closing record."""
    found: Truth = defaultdict(dict)
    with consumer(bootstrap) as opened:
        opened.assign(partitions(topic, 1))
        deadline = time.monotonic() + LIMIT_SECONDS
        while _LAST not in found[0]:
            assert time.monotonic() < deadline, f"expected offset {_LAST}, found {sorted(found[0])}"
            take(opened, found)
    return found[0]


def _compacted(bootstrap: str, topic: str) -> dict[int, bytes | None]:
    """Wait for the compaction of a log; return its content."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(left := _left(bootstrap, topic)) > _LAST // 2:
        assert time.monotonic() < deadline, f"expected a compacted log, found {sorted(left)}"
        time.sleep(0.5)
    return left


def test_gaps_in_a_compacted_topic_are_not_lost_records(kafka: Topics, join: Join) -> None:
    """One checkpoint points into a gap, another member starts fresh; the log also starts with a gap."""
    topic, group, disk = kafka.create_topic(config=_COMPACTED), unique("group"), Disk()
    shard, long_ago = f"{topic}/0", int(time.time() * 1000) - 60_000
    writer = Writer(kafka.bootstrap, topic)

    def write(number: int) -> None:
        writer.enqueue(payloads([number]), key=b"key %d" % (number % 5), timestamps_ms=[long_ago])

    for number in range(10):
        write(number)
    writer.flush()
    first = join(kafka.bootstrap, topic, group, disk=disk)
    first.until_rows(shard, range(10))
    first.source.close()
    for number in range(10, 30):
        write(number)
    writer.flush()
    for key in (b"key 0", b"key 1"):
        writer.write([None], key=key, timestamps_ms=[long_ago])
    # Only closed segments are compacted. After a minute this starts a new one.
    writer.write(payloads([_LAST]), key=b"last")
    assert sorted(_compacted(kafka.bootstrap, topic)) == [27, 28, 29, 30, 31, _LAST]

    second, stranger = join(kafka.bootstrap, topic, group, disk=disk), join(kafka.bootstrap, topic)
    for member, before in ((second, range(10)), (stranger, range(0))):
        member.until_rows(shard, [*before, 27, 28, 29, _LAST])
        assert member.counted["messages_read"] == 6
        assert member.counted["tombstones"] == 2
        assert not {"records_lost", "messages_repeated", "stalls", "partitions_truncated"} & set(+member.counted)
        assert member.resets == member.warnings == []
        assert member.shards().with_gap == 0
        member.until(lambda: member.shards().lags[shard].records == 0, "nothing left")  # noqa: B023


def test_a_log_truncated_and_regrown_is_read_from_the_start_without_a_disk_too(cluster: Cluster, join: Join) -> None:
    """The committed offset is behind the truncation: the records between were never read."""
    topic, group = cluster.create_topic(), unique("group")
    _written(cluster.bootstrap, topic, 0, 50)
    first = join(cluster.bootstrap, topic, group, hold=1, max_poll_records=10)
    first.until_rows(f"{topic}/0", range(50))
    first.source.close()
    cluster.kill(1)
    _cut(cluster, topic, 20)
    cluster.restart(1)
    _written(cluster.bootstrap, topic, 500, 600)
    second = join(cluster.bootstrap, topic, group)
    second.until(lambda: second.disk.rows.get(f"{topic}/0", [])[-1:] == [599], "the last record")
    assert second.disk.rows[f"{topic}/0"] == [*range(20), *range(500, 600)]
    assert second.counted["partitions_truncated"] == 1
    second.source.close()
