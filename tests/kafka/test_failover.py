"""Three brokers under a producer that never pauses: one dies and comes back."""

import time
from collections import defaultdict
from pathlib import Path

from kafka.errors import KafkaError

from tests.kafka.broker import Cluster
from tests.kafka.consuming import consumer, partitions, take
from tests.kafka.endless import EndlessProducer, example
from tests.kafka.producing import Truth

_LIMIT_SECONDS = 120.0


def test_nothing_is_lost_or_doubled_when_a_broker_is_killed_and_restarted(
    cluster_of_three: Cluster, tmp_path: Path
) -> None:
    topic = cluster_of_three.create_topic(partitions=6, replication=3)
    found: Truth = defaultdict(dict)
    with (
        EndlessProducer(cluster_of_three.bootstrap, topic, 6, 1000, tmp_path) as producer,
        consumer(cluster_of_three.bootstrap) as opened,
    ):
        opened.assign(partitions(topic, 6))

        def read_until(wanted: int) -> None:
            deadline = time.monotonic() + _LIMIT_SECONDS
            while sum(map(len, found.values())) < wanted:
                assert time.monotonic() < deadline
                try:
                    take(opened, found)
                except KafkaError as error:
                    # What comes out of poll() while brokers fail; `pytest -rP` shows it.
                    print(f"{type(error).__name__}: {error}")  # noqa: T201

        read_until(1000)
        cluster_of_three.kill(2)
        read_until(4000)
        cluster_of_three.restart(2)
        cluster_of_three.kill(3)
        # More than was written before the kill, so that some of it was written to the two that are left.
        read_until(sum(map(len, producer.truth().values())) + 3000)
        truth = producer.stop()
        total = sum(map(len, truth.values()))
        read_until(total)

    assert found == truth
    written = [payload for records in truth.values() for payload in records.values()]
    assert sorted(map(str, written)) == sorted(str(example(number)) for number in range(total))
