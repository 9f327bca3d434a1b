"""A broker is killed and restarted under load."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.broker import Cluster
from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.group import PARTITIONS, UNBOUNDED, group_of_three
from tests.kafka.replicas.records import PAYLOADS

pytestmark = pytest.mark.slow

_RATE = 400
_LIMIT_SECONDS = 120.0


def test_a_killed_broker_costs_no_record(cluster_of_two: Cluster, tmp_path: Path) -> None:
    brokers = cluster_of_two
    topic = brokers.create_topic(partitions=PARTITIONS, replication=2)
    with (
        EndlessProducer(brokers.bootstrap, topic, PARTITIONS, _RATE, tmp_path, PAYLOADS) as producer,
        group_of_three(tmp_path, brokers.bootstrap, topic, "cooperative", UNBOUNDED) as group,
    ):

        def written() -> int:
            return producer.path.read_bytes().count(b"\n")

        _wait_until(lambda: written() > 1000)
        brokers.kill(2)
        # More than could be in flight: the other broker leads its partitions.
        after_the_kill = written() + 2000
        _wait_until(lambda: written() > after_the_kill)
        brokers.restart(2)
        back = written() + 1000
        _wait_until(lambda: written() > back)
        truth = producer.stop()
        group.wait_until_caught_up(truth)
        comparison = group.compare(truth)
        assert not comparison.problems, "\n".join([*comparison.problems, group.log_tail()])
    assert comparison.records > 4000


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
