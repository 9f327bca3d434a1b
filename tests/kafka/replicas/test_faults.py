"""Three real replicas, eight partitions, a producer that never pauses, and faults at random: nothing is lost or twice."""

import os
from pathlib import Path

import pytest

from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.faults import Faults
from tests.kafka.replicas.group import EVERYTHING, PARTITIONS, group_of_three
from tests.kafka.replicas.records import PAYLOADS
from tests.kafka.topics import Topics

_FAULTS = 6
_RATE = 800
_SMALL = 300

# To repeat a failure: FAULTS_SEED=<the seed it printed> pytest tests/kafka/replicas -k <its name>.
_SEED = int(os.environ.get("FAULTS_SEED", "0"))


@pytest.mark.parametrize(
    ("seed", "assignor", "keep_disk", "most"),
    [
        pytest.param(1, "cooperative", True, _SMALL, id="cooperative-disk"),
        pytest.param(2, "cooperative", False, EVERYTHING, id="cooperative-no_disk"),
        pytest.param(3, "range", True, EVERYTHING, id="range-disk"),
        pytest.param(4, "range", False, _SMALL, id="range-no_disk"),
    ],
)
def test_replicas_that_are_killed_stopped_and_frozen_hold_every_record_once(
    kafka: Topics, tmp_path: Path, seed: int, assignor: str, *, keep_disk: bool, most: int
) -> None:
    """Six faults each: 24 in all. `make torture` does 200."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    with (
        EndlessProducer(kafka.bootstrap, topic, PARTITIONS, _RATE, tmp_path, PAYLOADS) as producer,
        group_of_three(tmp_path, kafka.bootstrap, topic, assignor, most) as group,
    ):
        faults = Faults(group, _SEED or seed, keep_disk)
        faults.strike(_FAULTS, print)
        truth = producer.stop()
        group.settle(truth)
        verdict = group.judge(truth)
        assert not verdict.problems, "\n".join([f"seed {faults.seed}", *verdict.problems, group.last_words()])
    assert faults.done.total() == _FAULTS
    assert verdict.records > 0
