"""Three brokers under a producer that never pauses: one dies and comes back."""

from collections import defaultdict
from pathlib import Path

from kafka.errors import KafkaError

from tests.kafka.broker import Cluster
from tests.kafka.consuming import consumer, partitions, take
from tests.kafka.endless import EndlessProducer, example
from tests.kafka.producing import Truth


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

        def read(records: int) -> None:
            wanted = sum(map(len, found.values())) + records
            while sum(map(len, found.values())) < wanted:
                try:
                    take(opened, found)
                except KafkaError as error:
                    # Says what comes out of poll() while brokers fail; `pytest -s` shows it.
                    print(f"{type(error).__name__}: {error}")  # noqa: T201

        read(1000)
        cluster_of_three.kill(2)
        read(3000)
        cluster_of_three.restart(2)
        cluster_of_three.kill(3)
        read(3000)
        truth = producer.stop()
        total = sum(map(len, truth.values()))
        while sum(map(len, found.values())) < total:
            take(opened, found)

    assert found == truth
    written = [payload for records in truth.values() for payload in records.values()]
    assert sorted(map(str, written)) == sorted(str(example(number)) for number in range(total))
