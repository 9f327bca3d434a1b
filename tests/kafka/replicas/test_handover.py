"""Partitions that a static member was told to give up, and could not, are read by somebody."""

from pathlib import Path

import pytest

from tests.kafka.replicas.handover import hand_over
from tests.kafka.topics import Topics

pytestmark = pytest.mark.slow


def test_partitions_that_a_killed_replica_had_to_give_up_are_read_again(kafka: Topics, tmp_path: Path) -> None:
    """`make torture` does it ten times."""
    outcome = hand_over(kafka, tmp_path)
    assert not outcome.verdict.problems, "\n".join([*outcome.verdict.problems, outcome.last_words])
    assert outcome.told > 0, "the broker rebalanced the group by itself"
    assert outcome.verdict.records > 0
