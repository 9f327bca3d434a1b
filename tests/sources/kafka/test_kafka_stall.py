"""A client that silently stops fetching, simulated by a fake consumer."""

# ruff: noqa: D102 - `Consumer` documents each method

from collections.abc import Callable, Iterable, Mapping

from monitor.sources.kafka.consumer import GroupMembership
from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from monitor.sources.kafka.partition_checkpoint import CommittedOffset, Fetched, Partition, PartitionProgress
from monitor.sources.kafka.partitions import Ownership
from tests.sources.kafka.member import Member, payloads

P = Partition("outputs", 0)
OPTIONS = KafkaOptions(("kafka:9092",), "cpcmon", topics=("outputs",), start=Start.EARLIEST, stall_after_seconds=60.0)


class Clock:
    """A clock that advances with each poll."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


class FakeConsumer:
    """Ten messages in one partition; when stuck, none is fetched. `readable` is the end of the committed ones."""

    def __init__(self, ownership: Ownership, clock: Clock, *, stuck: bool, readable: int = 10) -> None:
        self._clock, self._stuck, self._readable = clock, stuck, readable
        self._ownership, self._at = ownership, 0
        self._assigned = self.closed = False

    def poll(self, timeout_seconds: float, most: int) -> Mapping[Partition, Fetched]:
        del timeout_seconds, most
        self._clock.at += 1.0
        if not self._assigned:
            self._assigned = True
            self._ownership.assigned([P])
            return {}
        offsets = range(self._at, self._readable)
        if self._stuck or not offsets:
            return {}
        self._at = self._readable
        return {P: Fetched(list(offsets), payloads(offsets), [1000] * len(offsets))}

    def seek(self, partition: Partition, offset: int, leader_epoch: int = -1) -> None:
        del partition, leader_epoch
        self._at = offset

    def pause(self, partition: Partition) -> None:
        del partition

    def resume(self, partition: Partition) -> None:
        del partition

    def progress(self) -> Mapping[Partition, PartitionProgress]:
        return {P: PartitionProgress(self._at, 10)} if self._assigned else {}

    def topic_id(self, topic: str) -> str:
        return f"id of {topic}"

    def beginnings(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        del timeout_seconds
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[Partition], timeout_seconds: float) -> Mapping[Partition, int]:
        del timeout_seconds
        return dict.fromkeys(partitions, self._readable)

    def offset_at(self, partition: Partition, time: float, timeout_seconds: float) -> int | None:
        del partition, time, timeout_seconds
        return None

    def committed(self, partition: Partition, timeout_seconds: float) -> CommittedOffset | None:
        del partition, timeout_seconds
        return None

    def commit(self, offsets: Mapping[Partition, CommittedOffset], done: Callable[[bool], None]) -> None:
        del offsets
        done(True)

    def commit_now(self, offsets: Mapping[Partition, CommittedOffset], timeout_seconds: float) -> None:
        del offsets, timeout_seconds

    def membership(self) -> GroupMembership:
        return GroupMembership()

    def request_group(self) -> None:
        pass

    def group(self) -> None:
        pass

    def rejoin(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_a_stalled_partition_is_read_over_a_new_connection() -> None:
    clock, made = Clock(), list[FakeConsumer]()

    def connect(_: KafkaOptions, ownership: Ownership) -> FakeConsumer:
        made.append(FakeConsumer(ownership, clock, stuck=not made))
        return made[-1]

    member = Member(OPTIONS, monotonic=clock, connect=connect)

    def goes_on() -> bool:
        clock.at += 1.0
        return len(member.disk.rows.get("outputs/0", [])) == 10

    member.until(goes_on, "all rows")
    assert member.counted["stalls"] == 1
    assert made[0].closed
    assert len(made) == 2
    assert any("outputs/0 did not advance although there are unread messages" in warning for warning in member.warnings)
    assert [one.owned for one in member.deliveries if one.owned is not None] == [{"outputs/0"}, set(), {"outputs/0"}]


def test_an_open_transaction_is_no_stall() -> None:
    """A transaction is open: the log ends at 10, and messages before 4 are committed."""
    clock, made = Clock(), list[FakeConsumer]()

    def connect(_: KafkaOptions, ownership: Ownership) -> FakeConsumer:
        made.append(FakeConsumer(ownership, clock, stuck=False, readable=4))
        return made[-1]

    member = Member(OPTIONS, monotonic=clock, connect=connect)
    member.until(lambda: len(member.disk.rows.get("outputs/0", [])) == 4, "what is committed")
    for _ in range(300):
        member.tick()
    assert clock.at > 4 * OPTIONS.stall_after_seconds
    assert member.counted["stalls"] == 0
    assert len(made) == 1
