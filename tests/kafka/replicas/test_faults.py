"""Three real replicas, eight partitions, a producer that never pauses, and faults at random: nothing is lost or twice."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kafka.replicas.run import PLANS, Plan, run
from tests.kafka.topics import Topics

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plan", [PLANS[1], PLANS[2], PLANS[4]], ids=str)
def test_replicas_that_are_killed_stopped_and_frozen_hold_every_record_once(
    kafka: Topics, tmp_path: Path, plan: Plan
) -> None:
    """18 faults in all; `make torture` does 200, with all plans. `FAULTS_SEED=<seed>` repeats a failure, or tries something new."""
    plan = replace(plan, seed=int(os.environ.get("FAULTS_SEED", plan.seed)))
    outcome = run(kafka, tmp_path, plan, print)
    assert not outcome.verdict.problems, "\n".join([str(plan), *outcome.verdict.problems, outcome.last_words])
    assert outcome.faults == {"kill": 2, "freeze": 2, "stop": 2}
    assert outcome.verdict.records > 0
    # Whoever lost the disk had nothing else to go by.
    assert plan.keep_disk or outcome.rebuilt > 0
