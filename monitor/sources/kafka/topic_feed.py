"""Writes to a topic, and creates it if missing; for the demo only."""

import contextlib
from collections.abc import Sequence

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from monitor.errors import ServerError

_WAIT_MS = 5_000
_KEPT_MS = 3_600_000
"""Retention of the demo's messages."""


class TopicFeed:
    """Sends messages to the first partition of a topic, so that one window contains them all."""

    def __init__(self, broker: str, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        try:
            self._make()
            self._producer = KafkaProducer(
                bootstrap_servers=[broker],
                client_id="cpcmon-demo",
                linger_ms=50,
                max_block_ms=_WAIT_MS,
                bootstrap_timeout_ms=_WAIT_MS,
            )
        except KafkaError as error:
            raise self._refused(error) from error

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send messages; raises ServerError if the broker takes none."""
        try:
            for payload in payloads:
                self._producer.send(self._topic, value=payload, partition=0)
        except KafkaError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Flush for a moment, and release everything."""
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=5.0)

    def _make(self) -> None:
        admin = KafkaAdminClient(
            bootstrap_servers=[self._broker], client_id="cpcmon-demo", bootstrap_timeout_ms=_WAIT_MS
        )
        try:
            kept = {"retention.ms": str(_KEPT_MS), "segment.ms": str(_KEPT_MS)}
            with contextlib.suppress(TopicAlreadyExistsError):
                admin.create_topics([NewTopic(self._topic, 1, 1, topic_configs=kept)])
        finally:
            admin.close()

    def _refused(self, error: KafkaError) -> ServerError:
        return ServerError(
            f"--kafka {self._broker}: expected a broker that takes records, found {type(error).__name__}"
        )
