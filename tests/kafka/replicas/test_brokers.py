"""Three brokers under three replicas and a producer that never pauses: one dies and comes back."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.broker import Cluster
from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.group import EVERYTHING, PARTITIONS, group_of_three
from tests.kafka.replicas.records import PAYLOADS

pytestmark = pytest.mark.slow

_RATE = 800
_LIMIT_SECONDS = 120.0


def test_replicas_lose_nothing_when_a_broker_is_killed_and_restarted(cluster_of_three: Cluster, tmp_path: Path) -> None:
    brokers = cluster_of_three
    topic = brokers.create_topic(partitions=PARTITIONS, replication=3)
    with (
        EndlessProducer(brokers.bootstrap, topic, PARTITIONS, _RATE, tmp_path, PAYLOADS) as producer,
        group_of_three(tmp_path, brokers.bootstrap, topic, "cooperative", EVERYTHING) as group,
    ):

        def written() -> int:
            return sum(map(len, producer.truth().values()))

        _until(lambda: written() > 2000)
        brokers.kill(2)
        # More than its share of the rate could be on its way when it died: the other two have taken over.
        after_the_kill = written() + 4000
        _until(lambda: written() > after_the_kill)
        brokers.restart(2)
        back = written() + 2000
        _until(lambda: written() > back)
        truth = producer.stop()
        group.settle(truth)
        verdict = group.judge(truth)
        assert not verdict.problems, "\n".join([*verdict.problems, group.last_words()])
    assert verdict.records > 8000


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)
