"""Reading topics with kafka-python, as the product does."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

from monitor.sources.kafka.internals import preserve_join
from tests.kafka.producing import Truth

_LIMIT_SECONDS = 60.0
_HASTE = {"bootstrap_timeout_ms": 1500, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 20}


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[KafkaConsumer]:
    """Open a consumer that commits nothing by itself and starts at the beginning."""
    defaults = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    opened = KafkaConsumer(bootstrap_servers=bootstrap, **(defaults | settings))
    try:
        yield opened
    finally:
        opened.close(autocommit=False)


@dataclass(frozen=True)
class Refusal:
    """What kafka-python raised instead of connecting, and what it logged: only there it says why."""

    kind: type[KafkaError]
    text: str
    reasons: str
    """Its warnings and errors, each once."""
    log: str
    """All that it logged at INFO and above."""


class _Log(logging.Handler):
    """Keeps what kafka-python logs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.kept: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append((record.levelno, record.getMessage()))

    def lines(self, level: int) -> str:
        """Return the messages of at least a level, each once."""
        return "\n".join(dict.fromkeys(text for at, text in self.kept if at >= level))


@contextmanager
def _logged() -> Iterator[_Log]:
    logger, log = logging.getLogger("kafka"), _Log()
    before = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    # pytest would keep the records until its next test, with the errors in them, and the sockets that those hold.
    logger.propagate = False
    try:
        yield log
    finally:
        logger.propagate = True
        logger.setLevel(before)
        logger.removeHandler(log)


def refusal(bootstrap: str, **settings: Any) -> Refusal:
    """Return how a consumer fails that cannot connect; fails when it can."""
    clients: list[KafkaNetClient] = []

    def client(**given: Any) -> KafkaNetClient:
        clients.append(KafkaNetClient(**given))
        return clients[-1]

    with _logged() as log:
        try:
            KafkaConsumer(bootstrap_servers=bootstrap, kafka_client=client, **(_HASTE | settings))
        except KafkaError as error:
            kind, text = type(error), str(error)
        else:
            pytest.fail("expected that the broker refuses the connection, it let the consumer in")
        finally:
            # A KafkaConsumer that fails to start leaves a thread and four open files behind, for good.
            clients.pop().close()
    return Refusal(kind, text, log.lines(logging.WARNING), log.lines(logging.INFO))


def read(opened: KafkaConsumer, records: int) -> Truth:
    """Return that many records, by partition and offset; fails when they do not come."""
    found: Truth = defaultdict(dict)
    deadline = time.monotonic() + _LIMIT_SECONDS
    while sum(map(len, found.values())) < records:
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {records} records, got {sum(map(len, found.values()))}")
        take(opened, found)
    return found


def take(opened: KafkaConsumer, found: Truth) -> None:
    """Poll once, and add what comes."""
    if opened.config["group_id"] is not None:
        preserve_join(opened)
    for partition, records in opened.poll(200).items():
        for record in records:
            assert record.offset not in found[partition.partition]
            found[partition.partition][record.offset] = record.value


def partitions(topic: str, count: int) -> list[TopicPartition]:
    """Return the partitions of a topic."""
    return [TopicPartition(topic, number) for number in range(count)]
