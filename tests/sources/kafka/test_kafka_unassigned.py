"""Partitions assigned to no member: when they are reported, and when the group is rejoined. Needs no broker."""

from typing import cast

from monitor.sources.kafka.consumer import Consumer, ConsumerGroup, EventLog, FailureKind, KafkaFailure
from monitor.sources.kafka.health import GROUP_CHECK_SECONDS, UnassignedCheck
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.partition_checkpoint import Partition

OPTIONS = KafkaOptions(("kafka:9092",), "cpcmon", topics=("outputs",))
ALL = frozenset(Partition("outputs", number) for number in range(6))
HALF = frozenset(Partition("outputs", number) for number in range(3))
NONE: frozenset[Partition] = frozenset()
SHARED, MISSING = ConsumerGroup(1, ALL, ALL, NONE), ConsumerGroup(1, ALL, HALF, NONE)


class Asked:
    """A check whose clock advances by one interval with each answer."""

    def __init__(self) -> None:
        self.rejoins = 0
        self._at = 0.0
        self._answer: ConsumerGroup | KafkaFailure | None = None
        self.notes = EventLog()
        self.check = UnassignedCheck(OPTIONS, self.notes, lambda: self._at)

    def answered(self, *answers: ConsumerGroup | KafkaFailure | None) -> list[int]:
        """Give these answers; return after each the number of rejoins."""
        rejoins = []
        for self._answer in answers:
            self._at += GROUP_CHECK_SECONDS
            self.check.check(cast("Consumer", self))
            rejoins.append(self.rejoins)
        return rejoins

    def told(self) -> tuple[int | None, str | None]:
        """What the metric and `/-/ready` report."""
        return self.check.count, self.check.waits_for

    def request_group(self) -> None:
        """Ask."""

    def group(self) -> ConsumerGroup | None:
        """Answer."""
        answer, self._answer = self._answer, None
        if isinstance(answer, KafkaFailure):
            raise answer
        return answer

    def rejoin(self) -> None:
        """Count."""
        self.rejoins += 1


def test_partitions_unassigned_in_two_checks_are_reported_and_the_group_is_rejoined() -> None:
    asked = Asked()
    assert asked.answered(MISSING) == [0]
    assert asked.told() == (3, None)
    assert asked.answered(MISSING) == [1]
    count, said = asked.told()
    assert count == 3
    assert "group cpcmon, found 3 that no member reads: outputs/3, outputs/4, outputs/5" in (said or "")
    asked.answered(SHARED)
    assert asked.told() == (0, None)
    assert asked.notes.warnings == [said]
    assert asked.notes.events == ["every partition is assigned to a member of group cpcmon"]


def test_partitions_about_to_be_revoked_are_reported_without_a_rejoin() -> None:
    """It may be dead, and a rebalance would wait for its session to end."""
    asked = Asked()
    asked.answered(*[ConsumerGroup(1, ALL, HALF, ALL - HALF)] * 9)
    assert asked.rejoins == 0
    assert "found 3 that no member reads" in (asked.told()[1] or "")


def test_useless_rebalances_are_requested_ever_more_rarely() -> None:
    """A rebalance requested by another member counts too."""
    asked = Asked()
    rejoined_after = []
    for generation in range(1, 10):
        before, checks = asked.rejoins, 0
        while asked.rejoins == before:
            asked.answered(ConsumerGroup(generation, ALL, HALF, NONE))
            checks += 1
        rejoined_after.append(checks)
    assert rejoined_after == [2, 2, 4, 8, 16, 32, 64, 64, 64]
    assert asked.answered(SHARED, MISSING, MISSING) == [9, 9, 10]


def test_without_an_answer_nothing_is_known() -> None:
    asked = Asked()
    assert asked.told() == (None, None)
    asked.answered(SHARED, None)
    assert asked.told() == (0, None), "the group is being rebalanced, and had all a moment ago"
    refusal = KafkaFailure(FailureKind.AUTHORIZATION, "a refusal", group=True)
    asked.answered(*[refusal] * 6)
    assert asked.told() == (None, None)
    (said,) = asked.notes.warnings
    assert "cannot check for unassigned" in said
    assert "grant Read on the group" in said
