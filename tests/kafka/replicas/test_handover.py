"""Partitions revoked from a static member that is killed before its rejoin."""

from pathlib import Path

import pytest

from tests.kafka.replicas.handover import hand_over
from tests.kafka.topics import Topics

pytestmark = pytest.mark.slow


def test_revoked_partitions_of_a_killed_member_are_assigned_again(kafka: Topics, tmp_path: Path) -> None:
    """`make torture` repeats it ten times."""
    outcome = hand_over(kafka, tmp_path)
    assert not outcome.comparison.problems, "\n".join([*outcome.comparison.problems, outcome.log_tail])
    assert outcome.reported > 0, "the broker rebalanced the group by itself"
    assert outcome.comparison.records > 0
