"""Many records from a topic: none is lost, and memory is bounded."""

import time

import pytest

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import KafkaSite, assert_matches_oracle, records_read, wait_for_evaluation
from tests.daemon.process import LIMIT, one, running
from tests.daemon.test_scale import resident
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

RECORDS, PARTITIONS, PER_MESSAGE = 600_000, 4, 100
MESSAGES = RECORDS // PARTITIONS // PER_MESSAGE


def _messages(seed: int) -> list[bytes]:
    """Return the messages of one partition: batches of the same 1,000 records in different orders."""
    # Printed as 32-bit floats: rounded vectors would be normalised.
    texts = [
        f'{{"probs": [{", ".join(map(str, vector))}]}}' for vector in synthetic(1000, 3, seed=seed, sharpness=2.0)[0]
    ]
    step = 7
    return [
        f"[{', '.join(texts[(number * step + row) % len(texts)] for row in range(PER_MESSAGE))}]".encode()
        for number in range(MESSAGES)
    ]


def test_memory_does_not_grow_after_the_first_fifth_of_600_000_records(site: Site, kafka: Topics) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic, window=75)
    kafka_site.configure()
    writer = Writer(kafka.bootstrap, topic)
    for partition in range(PARTITIONS):
        writer.enqueue(_messages(seed=partition + 1), partition)
    writer.flush()
    name, _ = records_read(RECORDS)
    after_a_fifth = 0
    with running(site.config) as process:
        deadline = time.monotonic() + 8 * LIMIT
        while (count := process.metrics().get(name, 0.0)) < RECORDS:
            assert time.monotonic() < deadline, f"{count} records:\n{process.log}"
            if not after_a_fifth and count >= RECORDS / 5:
                after_a_fifth = resident(process)
            time.sleep(0.02)
        page = wait_for_evaluation(process, RECORDS)
        assert one(page, "cpcmon_window_records", segment="all") == 75 * PARTITIONS
        assert one(page, "cpcmon_source_events_total", event="messages_read") == RECORDS / PER_MESSAGE
        assert_matches_oracle(page, "all", kafka_site.oracle().estimates(kafka_site.expected_vectors(writer.truth)))
        assert after_a_fifth > 0
        assert resident(process) - after_a_fifth < 48 << 20
        assert process.stop() == 0
