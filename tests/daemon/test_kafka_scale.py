"""Very many records from a topic: none lost, windows as the oracle has them, memory where it was."""

import time

import pytest

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import KafkaSite, assert_equals_the_oracle, judged, taken
from tests.daemon.process import LIMIT, one, running
from tests.daemon.test_scale import resident
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

RECORDS, PARTITIONS, IN_A_MESSAGE = 600_000, 4, 100
MESSAGES = RECORDS // PARTITIONS // IN_A_MESSAGE


def _messages(seed: int) -> list[bytes]:
    """Return the messages of one partition: batches of records, the same thousand outputs in ever other orders."""
    # Few digits, yet the same 32-bit numbers: rounded ones would be divided by their sum.
    texts = [
        f'{{"probs": [{", ".join(map(str, vector))}]}}' for vector in synthetic(1000, 3, seed=seed, sharpness=2.0)[0]
    ]
    step = 7
    return [
        f"[{', '.join(texts[(number * step + row) % len(texts)] for row in range(IN_A_MESSAGE))}]".encode()
        for number in range(MESSAGES)
    ]


def test_600_000_records_are_taken_in_and_leave_memory_where_a_fifth_of_them_had_brought_it(
    site: Site, kafka: Topics
) -> None:
    topic = kafka.create_topic(partitions=PARTITIONS)
    reading = KafkaSite(site, kafka.bootstrap, topic, window=75)
    reading.configure()
    writer = Writer(kafka.bootstrap, topic)
    for partition in range(PARTITIONS):
        writer.enqueue(_messages(seed=partition + 1), partition)
    writer.flush()
    name, _ = taken(RECORDS)
    after_a_fifth = 0
    with running(site.config) as process:
        deadline = time.monotonic() + 8 * LIMIT
        while (came := process.metrics().get(name, 0.0)) < RECORDS:
            assert time.monotonic() < deadline, f"{came} records:\n{process.log}"
            if not after_a_fifth and came >= RECORDS / 5:
                after_a_fifth = resident(process)
            time.sleep(0.02)
        page = judged(process, RECORDS)
        assert one(page, "cpcmon_window_records", segment="all") == 75 * PARTITIONS
        assert one(page, "cpcmon_source_events_total", event="messages_read") == RECORDS / IN_A_MESSAGE
        assert_equals_the_oracle(page, "all", reading.oracle().estimates(reading.held(writer.truth)))
        assert after_a_fifth > 0
        assert resident(process) - after_a_fifth < 48 << 20
        assert process.stop() == 0
