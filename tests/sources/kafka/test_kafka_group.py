"""Several members of one group with reassigned partitions; on a real broker."""

# ruff: noqa: SLF001 - the claimed partitions have no public name

import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from monitor.sources.kafka import internals
from monitor.sources.kafka.kafka_options import Assignor
from tests.kafka.consuming import consumer
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import Disk, Member, payloads

PARTITIONS = 8


def _shards(topic: str) -> set[str]:
    return {f"{topic}/{number}" for number in range(PARTITIONS)}


def _settle(members: list[Member], topic: str) -> None:
    """Poll until each partition belongs to exactly one of them."""
    members[0].until(lambda: _is_shared(members, topic), f"{len(members)} members to share {topic}")


def _is_shared(members: list[Member], topic: str) -> bool:
    for member in members:
        member.tick()
    owned = [shard for member in members for shard in member.owned]
    return sorted(owned) == sorted(_shards(topic)) and all(member.owned for member in members)


@pytest.mark.parametrize("assignor", Assignor)
def test_reassigned_partitions_are_read_once(kafka: Topics, join: Join, assignor: Assignor) -> None:
    topic, group = kafka.create_topic(partitions=PARTITIONS), unique("group")
    writer = Writer(kafka.bootstrap, topic)
    for partition in range(PARTITIONS):
        writer.write(payloads(range(50)), partition)
    first = join(kafka.bootstrap, topic, group, assignor=assignor)
    _settle([first], topic)
    second = join(kafka.bootstrap, topic, group, assignor=assignor)
    _settle([first, second], topic)
    for partition in range(PARTITIONS):
        writer.write(payloads(range(50, 100)), partition)
    for member in (first, second):
        for shard in member.owned:
            member.until_rows(shard, range(100))
    second.source.close()
    _settle([first], topic)
    for shard in _shards(topic):
        first.until_rows(shard, range(100))
    assert first.counted["partitions_lost"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("disks", ["kept", "lost"])
@pytest.mark.parametrize("assignor", Assignor)
def test_random_membership_changes_lose_and_repeat_nothing(
    kafka: Topics, join: Join, assignor: Assignor, disks: str
) -> None:
    topic, group, dice = kafka.create_topic(partitions=PARTITIONS), unique("group"), random.Random(7)  # noqa: S311
    writer, written = Writer(kafka.bootstrap, topic), 0
    members = [join(kafka.bootstrap, topic, group, assignor=assignor, max_poll_records=30) for _ in range(3)]
    for _ in range(12):
        for partition in range(PARTITIONS):
            writer.enqueue(payloads(range(written, written + 20)), partition)
        writer.flush()
        written += 20
        for _ in range(dice.randrange(1, 6)):
            for member in members:
                member.tick()
        place = dice.randrange(3)
        gone = members[place]
        # Uncommitted messages are lost with it.
        if dice.random() < 0.5:
            next(gone.source.poll(0.0), None)
        (gone.kill if dice.random() < 0.7 else gone.source.close)()
        disk = gone.disk if disks == "kept" else Disk()
        members[place] = join(
            kafka.bootstrap, topic, group, disk=disk, assignor=assignor, max_poll_records=dice.choice([10, 500])
        )
    _settle(members, topic)
    for member in members:
        for shard in member.owned:
            member.until_rows(shard, range(written))


def test_a_member_reports_its_assigned_partitions(kafka: Topics, join: Join) -> None:
    topic, group = kafka.create_topic(partitions=PARTITIONS), unique("group")
    first = join(kafka.bootstrap, topic, group)
    _settle([first], topic)
    second = join(kafka.bootstrap, topic, group)
    _settle([first, second], topic)
    owned = [one.owned for one in first.deliveries if one.owned is not None]
    assert owned[-1] == first.owned
    assert len(first.owned) == PARTITIONS // 2
    assert set(first.shards().lags) == first.owned
    assert first.counted["partitions_revoked"] == PARTITIONS // 2


def test_a_static_member_returns_without_a_rebalance(kafka: Topics, join: Join) -> None:
    topic, group = kafka.create_topic(partitions=PARTITIONS), unique("group")
    settings = {"session_timeout_seconds": 30.0}
    members = [join(kafka.bootstrap, topic, group, instance_id=f"replica-{n}", **settings) for n in range(2)]
    _settle(members, topic)
    before, rebalances = members[0].owned, members[1].counted["rebalances"]
    members[0].source.close()
    members[0] = join(kafka.bootstrap, topic, group, disk=members[0].disk, instance_id="replica-0", **settings)
    _settle(members, topic)
    assert members[0].owned == before
    assert members[1].counted["rebalances"] == rebalances


@pytest.mark.slow
def test_partitions_added_after_the_leader_returned_are_read(kafka: Topics, join: Join) -> None:
    """A returning static member does not learn that it is the leader, so no member checks for new partitions."""
    topic, group = kafka.create_topic(partitions=PARTITIONS // 2), unique("group")
    first = join(kafka.bootstrap, topic, group, instance_id="replica-0")
    first.until(lambda: len(first.owned) == PARTITIONS // 2, "all partitions")
    first.source.close()
    back = join(kafka.bootstrap, topic, group, disk=first.disk, instance_id="replica-0")
    back.until(lambda: len(back.owned) == PARTITIONS // 2, "all partitions")
    kafka.add_partitions(topic, PARTITIONS)
    consumer: Any = back.source._connection.consumer
    # The next check is within half a minute.
    consumer._consumer._cluster.request_update()
    _settle([back], topic)
    assert back.counted["rejoins"] == 1


def test_every_member_can_make_the_group_rebalance(kafka: Topics, join: Join) -> None:
    """To a follower that joins unchanged, the broker only returns its old assignment."""
    topic, group = kafka.create_topic(partitions=PARTITIONS), unique("group")
    leader = join(kafka.bootstrap, topic, group, assignor=Assignor.RANGE)
    _settle([leader], topic)
    other = join(kafka.bootstrap, topic, group, assignor=Assignor.RANGE)
    _settle([leader, other], topic)
    before = leader.counted["rebalances"]
    consumer = other.source._connection.consumer
    assert consumer is not None
    consumer.rejoin()

    def rebalanced() -> bool:
        other.tick()
        return leader.counted["rebalances"] > before

    leader.until(rebalanced, "a rebalance")
    _settle([leader, other], topic)


def test_two_processes_with_one_instance_id_are_reported(kafka: Topics, join: Join) -> None:
    topic, group = kafka.create_topic(), unique("group")
    first = join(kafka.bootstrap, topic, group, instance_id="replica-0")
    first.until(lambda: bool(first.owned), "a partition")
    second = join(kafka.bootstrap, topic, group, instance_id="replica-0")
    second.until(lambda: bool(second.owned), "a partition")
    first.until(lambda: first.counted["errors_fenced"] > 0, "to be fenced")
    assert f"to be the only process with instance_id replica-0 in group {group}" in (
        first.source.status().waits_for or ""
    )
    first.tick()
    assert first.owned == frozenset()


def test_a_fenced_process_is_reported_even_without_a_commit(kafka: Topics, join: Join) -> None:
    """A heartbeat reveals it."""
    topic, group = kafka.create_topic(), unique("group")
    first = join(kafka.bootstrap, topic, group, instance_id="replica-0", commit_seconds=3600.0)
    first.until(lambda: bool(first.owned), "a partition")
    second = join(kafka.bootstrap, topic, group, instance_id="replica-0", commit_seconds=3600.0)
    second.until(lambda: bool(second.owned), "a partition")
    first.until(lambda: first.counted["errors_fenced"] > 0, "to be fenced")
    first.tick()
    assert first.owned == frozenset()


def test_an_evicted_member_claims_no_partitions(kafka: Topics) -> None:
    """Claimed partitions are withheld from the others until revoked, which an evicted member never does."""
    topic = kafka.create_topic(partitions=4)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": [CooperativeStickyAssignor],
        "group_id": unique("group"),
    }
    settings |= {"max_poll_interval_ms": 2000, "session_timeout_ms": 1500, "heartbeat_interval_ms": 300}
    with consumer(kafka.bootstrap, **settings) as member:
        internals.claim_owned(member)
        member.subscribe([topic])
        internals.wait_for_metadata(member, 5.0)
        _poll_until(member, lambda: len(member.assignment()) == 4)
        assert _claimed(member) == {0, 1, 2, 3}
        deadline = time.monotonic() + 60.0
        while not member._coordinator._generation.is_lost():
            assert time.monotonic() < deadline, "the group keeps a member that never polls"
            time.sleep(0.1)
        assert _claimed(member) == set()
        _poll_until(member, lambda: _claimed(member) == {0, 1, 2, 3})


def _claimed(member: KafkaConsumer) -> set[int]:
    """Return the partitions that it would claim if it joined now."""
    ((_, metadata),) = member._coordinator.group_protocols()
    return {number for one in metadata.owned_partitions for number in one.partitions}


def _poll_until(member: KafkaConsumer, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < deadline
        internals.preserve_join(member)
        member.poll(50)
