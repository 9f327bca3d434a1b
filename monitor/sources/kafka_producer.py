"""Sending to a topic by kafka-python; used for dead letters only, and only by their thread."""

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from kafka import KafkaProducer
from kafka.errors import KafkaError

from monitor.sources.kafka_errors import refused, sorted_out
from monitor.sources.kafka_internals import Refusals
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.kafka_security import security
from monitor.sources.kafka_trouble import Kind, Trouble

_WAIT_MS = 5_000
_GIVE_UP_MS = 60_000
_OVERHEAD = 64 << 10
"""What key and headers may add to a message."""


Done = Callable[[Trouble | None], None]
"""Told why a message did not arrive; None when it did."""


class Producer(Protocol):
    """Sends messages. May wait, and may raise Trouble."""

    def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]], done: Done) -> None:
        """Send one; `done` is told, on any thread, what became of it."""

    def close(self, timeout_seconds: float) -> None:
        """Send what is left, for so long, and let go of everything."""


def connect_producer(options: KafkaOptions) -> Producer:
    """Connect to a cluster; takes seconds when no broker answers. Raises Trouble."""
    return KafkaPythonProducer(options)


class KafkaPythonProducer:
    """A producer of kafka-python."""

    def __init__(self, options: KafkaOptions) -> None:
        self._topic = options.dead_letter_topic
        refusals = Refusals()
        settings: dict[str, Any] = {
            "bootstrap_servers": list(options.brokers),
            "bootstrap_timeout_ms": _WAIT_MS,
            "client_id": "cpcmon-dead-letters",
            "allow_auto_create_topics": False,
            # A producer without ids of its own needs no permission beside Write on its topic.
            "enable_idempotence": False,
            "linger_ms": 50,
            "max_block_ms": _WAIT_MS,
            "delivery_timeout_ms": _GIVE_UP_MS,
            "max_request_size": options.max_message_bytes + _OVERHEAD,
            "metrics_enabled": False,
        }
        if options.api_version is not None:
            settings["api_version"] = options.api_version
        try:
            self._producer = KafkaProducer(**settings, **security(options), kafka_client=refusals.client)
        except Exception as error:
            refusals.close_clients()
            raise refused(refusals) or _translated(error) from error

    def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]], done: Done) -> None:
        """Send one."""
        try:
            future = self._producer.send(self._topic, value=value, key=key, headers=headers)
        except Exception as error:
            raise _translated(error) from error
        future.add_callback(lambda _: done(None))
        future.add_errback(lambda error: done(_translated(error)))

    def close(self, timeout_seconds: float) -> None:
        """Send what is left and let go of everything."""
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=timeout_seconds)


def _translated(error: Exception) -> Trouble:
    if isinstance(error, Trouble):
        return error
    if isinstance(error, KafkaError):
        return sorted_out(error)
    return Trouble(Kind.OTHER, f"a failure of the client library ({type(error).__name__})")
