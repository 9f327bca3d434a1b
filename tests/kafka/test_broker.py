"""The brokers of the tests."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.kafka.broker import Cluster
from tests.kafka.consuming import consumer, partitions, read
from tests.kafka.node import BrokerFailed
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(kafka: Topics, codec: str) -> None:
    topic = kafka.create_topic(partitions=2)
    writer = Writer(kafka.bootstrap, topic, compression_type=codec)
    for partition in range(2):
        writer.write([b"%d of %d" % (number, partition) for number in range(1000)], partition)

    with consumer(kafka.bootstrap) as opened:
        opened.assign(partitions(topic, 2))
        assert read(opened, 2000) == writer.truth


def test_topics_are_not_created_automatically(kafka: Topics) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        Writer(kafka.bootstrap, unique("missing"), topic_metadata_propagation_max_ms=100).write([b"lost"])


def test_a_failed_start_has_its_reason(real_kafka: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    settings = Cluster._settings  # noqa: SLF001
    monkeypatch.setattr(Cluster, "_settings", lambda self: settings(self) | {"num.io.threads": "none"})
    with pytest.raises(BrokerFailed) as raised, Cluster(tmp_path):
        pass
    assert "Invalid value none for configuration num.io.threads" in str(raised.value)
