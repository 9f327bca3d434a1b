"""A producer that records what it wrote."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException, Message, Producer

Truth = dict[int, dict[int, bytes | None]]
"""The content of a topic: payloads by partition and offset."""

_FLUSH_SECONDS = 60.0


class Writer:
    """Writes payloads to one topic; `truth` holds those that were acknowledged and, in a transaction, committed."""

    def __init__(self, bootstrap: str, topic: str, *, transactional_id: str = "", **settings: str | int) -> None:
        self.topic = topic
        self.truth: Truth = defaultdict(dict)
        self._pending: list[tuple[int, int, bytes | None]] = []
        self._failed: KafkaError | None = None
        given = {name.replace("_", "."): value for name, value in settings.items()}
        known: dict[str, str | int] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": "true",
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
            "log_level": 0,
        }
        if transactional_id:
            known["transactional.id"] = transactional_id
        self._producer = Producer(known | given)
        if transactional_id:
            self._producer.init_transactions(_FLUSH_SECONDS)
        self._transactional = bool(transactional_id)

    def write(
        self,
        payloads: Iterable[bytes | None],
        partition: int = 0,
        *,
        key: bytes | None = None,
        timestamps_ms: Sequence[int] | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Write payloads in order, and wait for the acknowledgement; None is a tombstone."""
        self.enqueue(payloads, partition, key=key, timestamps_ms=timestamps_ms, headers=headers)
        self.flush()

    def enqueue(
        self,
        payloads: Iterable[bytes | None],
        partition: int = 0,
        *,
        key: bytes | None = None,
        timestamps_ms: Sequence[int] | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """Write payloads without waiting for the broker."""
        for number, payload in enumerate(payloads):
            timestamp = timestamps_ms[number] if timestamps_ms else 0
            while True:
                try:
                    self._producer.produce(
                        self.topic, payload, key, partition,
                        on_delivery=self._delivered, timestamp=timestamp, headers=list(headers),
                    )  # fmt: skip
                except BufferError:
                    self._producer.poll(0.1)
                else:
                    break
            self._producer.poll(0)

    def flush(self) -> None:
        """Wait until everything is acknowledged; raises KafkaException on failure."""
        left = self._producer.flush(_FLUSH_SECONDS)
        if self._failed is not None:
            raise KafkaException(self._failed)
        if left:
            raise TimeoutError(f"expected every record delivered in {_FLUSH_SECONDS:.0f} s, {left} were not")
        if not self._transactional:
            self._add_pending()

    @contextmanager
    def transaction(self, *, abort: bool = False) -> Iterator[None]:
        """Write in one transaction, and commit or abort it."""
        self._producer.begin_transaction()
        yield
        self.flush()
        if abort:
            self._producer.abort_transaction(_FLUSH_SECONDS)
            self._pending.clear()
        else:
            self._producer.commit_transaction(_FLUSH_SECONDS)
            self._add_pending()

    def _add_pending(self) -> None:
        for partition, offset, payload in self._pending:
            self.truth[partition][offset] = payload
        self._pending.clear()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._pending.append((partition, offset, message.value()))
