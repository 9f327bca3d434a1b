"""Three real replicas under load with random faults."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kafka.replicas.run import PLANS, Plan, run
from tests.kafka.topics import Topics

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("plan", [PLANS[1], replace(PLANS[2], static=True)], ids=str)
def test_killed_stopped_and_frozen_replicas_hold_every_record_once(kafka: Topics, tmp_path: Path, plan: Plan) -> None:
    """12 faults in all; `make torture` injects 200. `FAULTS_SEED` sets the seed."""
    plan = replace(plan, seed=int(os.environ.get("FAULTS_SEED", plan.seed)))
    outcome = run(kafka, tmp_path, plan, print)
    assert not outcome.comparison.problems, "\n".join([str(plan), *outcome.comparison.problems, outcome.log_tail])
    assert outcome.faults == {"kill": 2, "freeze": 2, "stop": 2}
    assert outcome.comparison.records > 0
    assert plan.keep_state or outcome.rebuilt > 0
