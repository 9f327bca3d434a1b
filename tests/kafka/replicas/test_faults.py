"""Three real replicas, eight partitions, a producer that never pauses, and faults at random: nothing is lost or twice."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.group import EVERYTHING, PARTITIONS, group_of_three
from tests.kafka.replicas.records import PAYLOADS
from tests.kafka.replicas.run import PLANS, Plan, run
from tests.kafka.topics import Topics


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_replicas_that_are_killed_stopped_and_frozen_hold_every_record_once(
    kafka: Topics, tmp_path: Path, plan: Plan
) -> None:
    """24 faults in all; `make torture` does 200. `FAULTS_SEED=<seed>` repeats a failure, or tries something new."""
    plan = replace(plan, seed=int(os.environ.get("FAULTS_SEED", plan.seed)))
    outcome = run(kafka, tmp_path, plan, print)
    assert not outcome.verdict.problems, "\n".join([str(plan), *outcome.verdict.problems, outcome.last_words])
    assert outcome.faults == {"kill": 2, "freeze": 2, "stop": 2}
    assert outcome.verdict.records > 0
    # Whoever lost the disk had nothing else to go by.
    assert plan.keep_disk or outcome.rebuilt > 0


def test_replicas_that_were_all_put_out_at_once_share_everything_again(kafka: Topics, tmp_path: Path) -> None:
    """Each still claims what it had, if it does not know better, and then nobody is given it."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    with (
        EndlessProducer(kafka.bootstrap, topic, PARTITIONS, 400, tmp_path, PAYLOADS) as producer,
        group_of_three(tmp_path, kafka.bootstrap, topic, "cooperative", EVERYTHING) as group,
    ):
        for _ in range(2):
            for replica in group.replicas:
                replica.tell(signal.SIGSTOP)
            time.sleep(group.setting.session_seconds + 1.0)
            for replica in group.replicas:
                replica.tell(signal.SIGCONT)
            time.sleep(1.0)
        truth = producer.stop()
        group.settle(truth)
        verdict = group.judge(truth)
    assert not verdict.problems, "\n".join([*verdict.problems, group.last_words()])
