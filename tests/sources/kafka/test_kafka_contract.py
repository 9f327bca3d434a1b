"""The source checks, applied to the Kafka source."""

import json

from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from monitor.sources.kafka.kafka_source import KafkaSource
from monitor.testing.source_checks import check_source
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.sources.kafka.member import decoder

PRIVATE = "ZZPATIENT"


def test_the_kafka_source_passes_the_checks(kafka: Topics) -> None:
    topic = kafka.create_topic()
    writer = Writer(kafka.bootstrap, topic)
    options = KafkaOptions((kafka.bootstrap,), unique("group"), topics=(topic,), start=Start.EARLIEST)
    record = json.dumps({"probs": [0.5, 0.25, 0.25], "id": PRIVATE}).encode()
    check_source(
        lambda: KafkaSource("outputs", options, decoder()),
        lambda count: writer.write([record] * count),
        private_text=PRIVATE,
        patience_seconds=60.0,
    )
