"""Pointers to rejected records, produced to a dead-letter topic: never blocks, and drops letters if the queue is full."""

import contextlib
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError

from monitor.records.record_batch import Pointer
from monitor.sources.kafka.connection import security
from monitor.sources.kafka.consumer import KafkaFailure
from monitor.sources.kafka.internals import ConnectionErrors, connection_refusal, translated
from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions
from monitor.sources.kafka.partition_checkpoint import Partition

_WAIT_MS = 5_000
_GIVE_UP_MS = 60_000
_OVERHEAD = 64 << 10
"""The size of key and headers."""


Done = Callable[[KafkaFailure | None], None]
"""Called with the failure of a message; None if it was delivered."""
MOST_WAITING = 10_000
_MOST_BYTES = 64 << 20
_RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 2.0


class Producer(Protocol):
    """Sends messages. May block, and may raise KafkaFailure."""

    def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]], done: Done) -> None:
        """Send one; `done` is called, on any thread, with the result."""

    def close(self, timeout_seconds: float) -> None:
        """Flush for this long, and release everything."""


def connect_producer(options: KafkaOptions) -> Producer:
    """Connect to a cluster; takes seconds if no broker answers. Raises KafkaFailure."""
    return KafkaPythonProducer(options)


class KafkaPythonProducer:
    """A producer of kafka-python."""

    def __init__(self, options: KafkaOptions) -> None:
        self._topic = options.dead_letter_topic
        connection_errors = ConnectionErrors()
        settings: dict[str, Any] = {
            "bootstrap_servers": list(options.brokers),
            "bootstrap_timeout_ms": _WAIT_MS,
            "client_id": "cpcmon-dead-letters",
            "allow_auto_create_topics": False,
            # An idempotent producer would need more permissions than Write on its topic.
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
            self._producer = KafkaProducer(**settings, **security(options), kafka_client=connection_errors.client)
        except Exception as error:
            connection_errors.close_clients()
            raise connection_refusal(connection_errors) or translated(error) from error

    def send(self, key: bytes, value: bytes, headers: list[tuple[str, bytes]], done: Done) -> None:
        """Send one."""
        try:
            future = self._producer.send(self._topic, value=value, key=key, headers=headers)
        except Exception as error:
            raise translated(error) from error
        future.add_callback(lambda _: done(None))
        future.add_errback(lambda error: done(translated(error)))

    def close(self, timeout_seconds: float) -> None:
        """Flush and release everything."""
        with contextlib.suppress(KafkaError):
            self._producer.close(timeout=timeout_seconds)


@dataclass(frozen=True, slots=True)
class Letter:
    """One message for the dead-letter topic."""

    key: bytes
    """The location of the rejected record: `topic/partition/offset`."""
    value: bytes
    headers: list[tuple[str, bytes]]


def letters(
    partition: Partition, pointers: Sequence[Pointer], offsets: Sequence[int], values: Sequence[bytes] | None
) -> Iterator[Letter]:
    """Yield a letter for each rejected record; with payloads, one for each message."""
    last: int | None = None
    for pointer in pointers:
        if pointer.offset is None or (values is not None and pointer.offset == last):
            continue
        last = pointer.offset
        about = {
            "reason": str(pointer.reason),
            "topic": partition.topic,
            "partition": partition.number,
            "offset": pointer.offset,
            "number": pointer.number,
            "length": pointer.length,
            "digest": pointer.digest,
            "shape": pointer.shape,
            "expected": pointer.expected,
        }
        value = msgspec.json.encode(about)
        if values is not None:
            index = bisect_left(offsets, pointer.offset)
            value = values[index] if index < len(offsets) and offsets[index] == pointer.offset else value
        headers = [(f"cpcmon.{name}", str(one).encode()) for name, one in about.items() if one is not None]
        yield Letter(f"{partition.shard}/{pointer.offset}".encode(), value, headers)


class DeadLetters:
    """A queue and the thread that sends from it, started with the first letter."""

    def __init__(
        self, options: KafkaOptions, *, connect: Callable[[KafkaOptions], Producer] = connect_producer
    ) -> None:
        self._options = options
        self._connect = connect
        self._condition = threading.Condition()
        self._waiting: deque[Letter] = deque()
        self._bytes = 0
        self._counted: Counter[str] = Counter()
        self._failure: KafkaFailure | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, letter: Letter) -> None:
        """Enqueue a letter; never blocks."""
        size = len(letter.value)
        with self._condition:
            if self._closing or len(self._waiting) >= MOST_WAITING or self._bytes + size > _MOST_BYTES:
                self._counted[KafkaEvent.DEAD_LETTERS_DROPPED] += 1
                return
            self._counted[KafkaEvent.DEAD_LETTERS] += 1
            self._waiting.append(letter)
            self._bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kafka-dead-letters", daemon=True)
                self._thread.start()
            self._condition.notify()

    def take_counted(self) -> tuple[Counter[str], KafkaFailure | None]:
        """Return the events since the last call, and the failure, if any."""
        with self._condition:
            counted, self._counted = self._counted, Counter()
            failure, self._failure = self._failure, None
            return counted, failure

    def close(self) -> None:
        """Flush for a moment, and drop the rest."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(2 * _CLOSE_SECONDS)

    def _run(self) -> None:
        producer: Producer | None = None
        while (letter := self._next()) is not None:
            try:
                producer = producer or self._connect(self._options)
                producer.send(letter.key, letter.value, letter.headers, self._done)
            except KafkaFailure as failure:
                self._failed(failure)
        if producer is not None:
            producer.close(_CLOSE_SECONDS)

    def _next(self) -> Letter | None:
        with self._condition:
            while not self._waiting and not self._closing:
                self._condition.wait()
            if not self._waiting:
                return None
            letter = self._waiting.popleft()
            self._bytes -= len(letter.value)
            return letter

    def _failed(self, failure: KafkaFailure) -> None:
        """Drop a letter, and wait before the next attempt; the queue bounds the backlog."""
        with self._condition:
            self._counted[KafkaEvent.DEAD_LETTERS_DROPPED] += 1
            self._failure = failure
            if self._closing:
                self._counted[KafkaEvent.DEAD_LETTERS_DROPPED] += len(self._waiting)
                self._waiting.clear()
                self._bytes = 0
            else:
                self._condition.wait_for(lambda: self._closing, _RETRY_SECONDS)

    def _done(self, failure: KafkaFailure | None) -> None:
        with self._condition:
            self._counted[KafkaEvent.DEAD_LETTERS_SENT if failure is None else KafkaEvent.DEAD_LETTERS_DROPPED] += 1
            self._failure = failure or self._failure
