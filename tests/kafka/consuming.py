"""Consumers of kafka-python."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from monitor.sources.kafka.internals import preserve_join
from tests.kafka.producing import Truth

_LIMIT_SECONDS = 60.0


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """Open a consumer without auto-commit, which starts at the earliest offset."""
    defaults = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    opened = KafkaConsumer(bootstrap_servers=bootstrap, **(defaults | settings))
    try:
        yield opened
    finally:
        opened.close(autocommit=False)


def read(opened: KafkaConsumer, records: int) -> Truth:
    """Return that many records, by partition and offset; raises TimeoutError."""
    found: Truth = defaultdict(dict)
    deadline = time.monotonic() + _LIMIT_SECONDS
    while sum(map(len, found.values())) < records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {records} records, got {sum(map(len, found.values()))}")
        take(opened, found)
    return found


def take(opened: KafkaConsumer, found: Truth) -> None:
    """Poll once, and add the records."""
    if opened.config["group_id"] is not None:
        preserve_join(opened)
    for partition, records in opened.poll(200).items():
        for record in records:
            assert record.offset not in found[partition.partition]
            found[partition.partition][record.offset] = record.value


def partitions(topic: str, count: int) -> list[TopicPartition]:
    """Return the partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(count)]
