"""The connection to the cluster: opened by a thread with backoff, its current failure, and a check of each broker."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable

from monitor.sources.kafka.consumer import Consumer
from monitor.sources.kafka.events import KafkaEvent, Notes
from monitor.sources.kafka.failures import ConnectionBroken, FailureKind, KafkaFailure, sentence
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.partitions import Ownership
from monitor.sources.kafka.security import tls_context

Connect = Callable[[KafkaOptions, Ownership], Consumer]
Explain = Callable[[KafkaOptions], KafkaFailure]

_FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0


class Backoff:
    """Exponential backoff."""

    def __init__(self, monotonic: Callable[[], float], longest: float | None = None) -> None:
        self._monotonic = monotonic
        self._longest = LONGEST_WAIT if longest is None else longest
        self._wait = 0.0
        self._until = float("-inf")

    @property
    def seconds(self) -> float:
        """The length of the current delay."""
        return self._wait

    @property
    def left(self) -> float:
        """The rest of the current delay, in seconds."""
        return max(0.0, self._until - self._monotonic())

    def failed(self, *, slowly: bool = False) -> None:
        """Start a delay, longer than the last one."""
        self._wait = self._longest if slowly else min(self._longest, max(_FIRST_WAIT, 2 * self._wait))
        self._until = self._monotonic() + self._wait

    def worked(self) -> None:
        """Reset the delays."""
        self._wait, self._until = 0.0, float("-inf")


class KafkaConnector:
    """Holds the consumer once connected. Used by the ingestion thread, which it never blocks."""

    def __init__(
        self,
        options: KafkaOptions,
        ownership: Ownership,
        *,
        connect: Connect,
        explain: Explain,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._ownership = ownership
        self._connect, self._explain = connect, explain
        self.backoff = Backoff(monotonic)
        self.consumer: Consumer | None = None
        self._attempt: _Attempt | None = None

    def ask(self) -> Consumer | None:
        """Return the consumer; None while there is none. Raises the KafkaFailure of a failed attempt, once."""
        if self.consumer is not None:
            return self.consumer
        if self._attempt is None:
            if self.backoff.left:
                return None
            self._attempt = _Attempt(lambda: self._connect(self._options, self._ownership), self._why)
        if not self._attempt.is_over:
            return None
        attempt, self._attempt = self._attempt, None
        if attempt.trouble is not None:
            self.backoff.failed(slowly=attempt.trouble.kind.needs_people)
            raise attempt.trouble
        self.backoff.worked()
        self.consumer = attempt.consumer
        return self.consumer

    def _why(self, trouble: KafkaFailure) -> KafkaFailure:
        return self._explain(self._options) if trouble.kind is FailureKind.UNREACHABLE else trouble

    def drop(self) -> None:
        """Close the consumer. The next one reads secrets and certificates again."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            _close(consumer)
            self._ownership.lost_all()

    def close(self) -> None:
        """Release everything, including an attempt in progress."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon()
        self.drop()


class _Attempt:
    """One connection attempt, on its own thread."""

    def __init__(self, connect: Callable[[], Consumer], why: Callable[[KafkaFailure], KafkaFailure]) -> None:
        self._lock = threading.Lock()
        self._abandoned = False
        self.consumer: Consumer | None = None
        self.trouble: KafkaFailure | None = None
        self._connect, self._why = connect, why
        self._thread = threading.Thread(target=self._run, name="kafka-connect", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it succeeded or failed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            consumer = self._connect()
        except KafkaFailure as trouble:
            self.trouble = self._why(trouble)
        except Exception as error:  # noqa: BLE001 - otherwise the thread would die silently
            self.trouble = KafkaFailure(FailureKind.OTHER, f"an error while connecting ({type(error).__name__})")
        else:
            with self._lock:
                if not self._abandoned:
                    self.consumer = consumer
                    return
            _close(consumer)

    def abandon(self) -> None:
        """Close the consumer when it comes: nobody waits for it."""
        with self._lock:
            self._abandoned = True
            consumer, self.consumer = self.consumer, None
        if consumer is not None:
            _close(consumer)


def _close(consumer: Consumer) -> None:
    with contextlib.suppress(KafkaFailure):  # it is not needed any more
        consumer.close()


_LONGEST_REST = 5.0
"""After a transient error. A longer delay would block the whole group during a rebalance."""


class KafkaLink:
    """The connection and its failures."""

    def __init__(
        self,
        options: KafkaOptions,
        ownership: Ownership,
        notes: Notes,
        *,
        connect: Connect,
        explain: Explain,
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._notes = notes
        self._connection = KafkaConnector(options, ownership, connect=connect, explain=explain, monotonic=monotonic)
        self._rest = Backoff(monotonic, _LONGEST_REST)
        self.trouble: str | None = f"kafka {options.address}: not connected yet"
        """The current failure; None without one."""
        self._topics: str | None = None
        self._monotonic = monotonic
        self._in_trouble_since: float | None = None

    @property
    def consumer(self) -> Consumer | None:
        """The consumer, while connected."""
        return self._connection.consumer

    @property
    def waits_for(self) -> str | None:
        """The current failure of the cluster or its topics; None without one."""
        return self.trouble or self._topics

    @property
    def rests(self) -> bool:
        """Whether a backoff delay is in progress."""
        return self._rest.left > 0.0

    def connected(self) -> bool:
        """Connect if necessary; return whether there is a new connection."""
        if self.consumer is not None:
            return False
        try:
            consumer = self._connection.ask()
        except KafkaFailure as trouble:
            self._tell(trouble, self._connection.backoff)
            return False
        if consumer is None:
            return False
        self._notes.counted[KafkaEvent.CONNECTIONS] += 1
        self.is_well()
        return True

    def in_trouble(self, trouble: KafkaFailure) -> None:
        """Handle a failure: back off, and reconnect if necessary."""
        if isinstance(trouble, ConnectionBroken) or trouble.kind.needs_people or self._may_be_put_out(trouble):
            self._connection.drop()
            self._connection.backoff.failed(slowly=trouble.kind.needs_people)
            self._tell(trouble, self._connection.backoff)
        else:
            self._rest.failed()
            self._tell(trouble, self._rest)

    def is_well(self) -> None:
        """The cluster answered."""
        self.trouble = self._in_trouble_since = None
        self._notes.over("cluster", f"kafka {self._options.address}: connection restored")
        self._rest.worked()

    def topics_missing(self, trouble: KafkaFailure | None) -> None:
        """Handle topics that are missing or forbidden; the others are read all the same."""
        if trouble is None:
            self._topics = None
            self._notes.over("topics", f"kafka {self._options.address}: all topics are available")
            return
        self._topics = sentence(trouble, self._options)
        if self._notes.warn_once("topics", self._topics):
            self._notes.counted[trouble.kind.counted] += 1

    def close(self) -> None:
        """Release everything."""
        self._connection.close()

    def _may_be_put_out(self, trouble: KafkaFailure) -> bool:
        """Return whether the cluster has not answered for so long that the group may have reassigned our partitions.

        To go on counting them would count them twice in the sum over all processes.
        """
        if trouble.kind is not FailureKind.UNREACHABLE:
            return False
        now = self._monotonic()
        self._in_trouble_since = now if self._in_trouble_since is None else self._in_trouble_since
        return now - self._in_trouble_since > self._options.session_timeout_seconds

    def _tell(self, trouble: KafkaFailure, backoff: Backoff) -> None:
        self._notes.counted[trouble.kind.counted] += 1
        said = sentence(trouble, self._options)
        self.trouble = f"{said}; retrying every {backoff.seconds:g} s"
        # A growing delay is no news.
        self._notes.warn_once("cluster", said)


_TIMEOUT_SECONDS = 2.0


def probe(options: KafkaOptions) -> KafkaFailure:
    """Return what is wrong with the brokers; may take some seconds."""
    found = [_try(options, broker) for broker in options.brokers]
    # A problem of a reachable broker says more than an unreachable one.
    worst = next((one for one in found if one.kind is not FailureKind.UNREACHABLE), found[-1])
    return worst if len(set(map(str, found))) > 1 else found[0]


def _try(options: KafkaOptions, broker: str) -> KafkaFailure:
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS) as connection:
            if options.tls is not None:
                with tls_context(options.tls).wrap_socket(connection, server_hostname=host):
                    pass
    except OSError as error:
        return _explained(error, host)
    except KafkaFailure as trouble:
        return trouble
    if options.tls is None:
        found = "an open port that does not speak Kafka; it may expect TLS"
    elif options.sasl is None:
        found = "a port that closes the connection; it may expect SASL or a client certificate"
    else:
        found = "an open port that does not speak Kafka"
    return KafkaFailure(FailureKind.UNREACHABLE, found)


def _explained(error: OSError, host: str) -> KafkaFailure:
    match error:
        case ssl.SSLCertVerificationError():
            return KafkaFailure(FailureKind.TLS, f"an untrusted certificate ({error.verify_message})")
        case ssl.SSLError():
            return KafkaFailure(FailureKind.TLS, f"no TLS ({(error.reason or 'connection closed').lower().replace('_', ' ')})")
        case socket.gaierror():
            return KafkaFailure(FailureKind.UNREACHABLE, f"no address for host {host}")
        case TimeoutError():
            return KafkaFailure(FailureKind.UNREACHABLE, "no answer in time")
        case _:
            return KafkaFailure(FailureKind.UNREACHABLE, (error.strerror or type(error).__name__).lower())
