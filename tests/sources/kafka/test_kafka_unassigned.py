"""Partitions assigned to no member: when they are reported, and when the group is rejoined. Needs no broker."""

from typing import cast

from monitor.sources.base import EventBuffer
from monitor.sources.kafka.consumer import Consumer, ConsumerGroup, FailureKind, KafkaFailure
from monitor.sources.kafka.health import GROUP_CHECK_SECONDS, UnassignedCheck
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.partition_checkpoint import Partition

OPTIONS = KafkaOptions(("kafka:9092",), "cpcmon", topics=("outputs",))
ALL = frozenset(Partition("outputs", number) for number in range(6))
HALF = frozenset(Partition("outputs", number) for number in range(3))
NONE: frozenset[Partition] = frozenset()
SHARED, MISSING = ConsumerGroup(1, ALL, ALL, NONE), ConsumerGroup(1, ALL, HALF, NONE)


class FakeGroup:
    """A check whose clock advances by one interval with each response."""

    def __init__(self) -> None:
        self.rejoins = 0
        self._at = 0.0
        self._answer: ConsumerGroup | KafkaFailure | None = None
        self.notes = EventBuffer()
        self.check = UnassignedCheck(OPTIONS, self.notes, lambda: self._at)

    def respond(self, *answers: ConsumerGroup | KafkaFailure | None) -> list[int]:
        """Give these responses; return the number of rejoins after each."""
        rejoins = []
        for self._answer in answers:
            self._at += GROUP_CHECK_SECONDS
            self.check.check(cast("Consumer", self))
            rejoins.append(self.rejoins)
        return rejoins

    def reported(self) -> tuple[int | None, str | None]:
        """What the metric and `/-/ready` report."""
        return self.check.count, self.check.waits_for

    def request_group(self) -> None:
        """Do nothing."""

    def group(self) -> ConsumerGroup | None:
        """Return the response."""
        answer, self._answer = self._answer, None
        if isinstance(answer, KafkaFailure):
            raise answer
        return answer

    def rejoin(self) -> None:
        """Count."""
        self.rejoins += 1


def test_partitions_unassigned_in_two_checks_are_reported_and_the_group_is_rejoined() -> None:
    group = FakeGroup()
    assert group.respond(MISSING) == [0]
    assert group.reported() == (3, None)
    assert group.respond(MISSING) == [1]
    count, warning = group.reported()
    assert count == 3
    assert "group cpcmon, found 3 that no member reads: outputs/3, outputs/4, outputs/5" in (warning or "")
    group.respond(SHARED)
    assert group.reported() == (0, None)
    assert group.notes.warnings == [warning]
    assert group.notes.events == ["every partition is assigned to a member of group cpcmon"]


def test_partitions_about_to_be_revoked_are_reported_without_a_rejoin() -> None:
    """Their owner may be dead, and a rebalance would wait for its session to end."""
    group = FakeGroup()
    group.respond(*[ConsumerGroup(1, ALL, HALF, ALL - HALF)] * 9)
    assert group.rejoins == 0
    assert "found 3 that no member reads" in (group.reported()[1] or "")


def test_useless_rebalances_are_requested_with_backoff() -> None:
    """A rebalance requested by another member counts too."""
    group = FakeGroup()
    rejoined_after = []
    for generation in range(1, 10):
        before, checks = group.rejoins, 0
        while group.rejoins == before:
            group.respond(ConsumerGroup(generation, ALL, HALF, NONE))
            checks += 1
        rejoined_after.append(checks)
    assert rejoined_after == [2, 2, 4, 8, 16, 32, 64, 64, 64]
    assert group.respond(SHARED, MISSING, MISSING) == [9, 9, 10]


def test_without_a_response_the_count_is_unknown() -> None:
    group = FakeGroup()
    assert group.reported() == (None, None)
    group.respond(SHARED, None)
    assert group.reported() == (0, None), "a rebalance is in progress"
    refusal = KafkaFailure(FailureKind.AUTHORIZATION, "a refusal", group=True)
    group.respond(*[refusal] * 6)
    assert group.reported() == (None, None)
    (warning,) = group.notes.warnings
    assert "cannot check for unassigned" in warning
    assert "grant Read on the group" in warning
