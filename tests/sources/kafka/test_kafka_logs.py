"""Logs that are not what was written: cut behind our back, and compacted; on a real broker."""

import struct
from pathlib import Path

from tests.kafka.broker import Cluster
from tests.kafka.producing import Writer
from tests.kafka.topics import unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import Disk, Member, payloads

_HEADER = struct.Struct(">qi")
"""Of a batch: its first offset, and the length of what follows."""


def _written(bootstrap: str, topic: str, begin: int, end: int) -> None:
    """Write records in batches of ten."""
    writer = Writer(bootstrap, topic)
    for first in range(begin, end, 10):
        writer.write(payloads(range(first, min(first + 10, end))))


def _cut(cluster: Cluster, topic: str, end: int) -> None:
    """Let the log of a broker that is not running end with the batch before an offset."""
    folder = cluster.nodes[1].folder / "logs" / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    length = _length(segment, end)
    with segment.open("r+b") as stream:
        stream.truncate(length)
    # What it knows besides is of the longer log, and is made anew.
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
    said = f"{shard}: its log no longer holds what was read of it; its windows are forgotten"
    assert [warning for warning in member.warnings if said in warning]


def test_a_log_that_was_cut_while_it_is_read_is_told_and_read_from_its_beginning(
    real_kafka: None,  # noqa: ARG001, a condition
    tmp_path: Path,
    join: Join,
) -> None:
    """It ends before our position, also with what was written since."""
    with Cluster(tmp_path / "broker") as cluster:
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
        member.source.close()


def test_a_log_that_was_cut_and_grew_again_while_away_is_told_and_read_from_its_beginning(
    real_kafka: None,  # noqa: ARG001, a condition
    tmp_path: Path,
    join: Join,
) -> None:
    """It has more records than were read, so that only the leader's epoch gives it away."""
    with Cluster(tmp_path / "broker") as cluster:
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
