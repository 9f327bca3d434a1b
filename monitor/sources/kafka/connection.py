"""The connection to the cluster: made on a thread with backoff, its problem, and a check of each broker."""

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
    """How long to wait after failures: twice as long each time, up to a limit."""

    def __init__(self, monotonic: Callable[[], float], longest: float | None = None) -> None:
        self._monotonic = monotonic
        self._longest = LONGEST_WAIT if longest is None else longest
        self._wait = 0.0
        self._until = float("-inf")

    @property
    def seconds(self) -> float:
        """How long the wait is that was begun last."""
        return self._wait

    @property
    def left(self) -> float:
        """How many seconds of it are left."""
        return max(0.0, self._until - self._monotonic())

    def failed(self, *, slowly: bool = False) -> None:
        """Wait, and longer than the last time."""
        self._wait = self._longest if slowly else min(self._longest, max(_FIRST_WAIT, 2 * self._wait))
        self._until = self._monotonic() + self._wait

    def worked(self) -> None:
        """Begin with short waits again."""
        self._wait, self._until = 0.0, float("-inf")


class KafkaConnector:
    """The consumer, once there is one. Asked by the thread that ingests, which it never keeps waiting."""

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
        """Return the consumer; None while there is none. Raises Trouble, once, when an attempt has failed."""
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
        """Let go of the consumer: the next one is made anew, with secrets and certificates as they are then."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            _close(consumer)
            self._ownership.lost_all()

    def close(self) -> None:
        """Let go of everything, an attempt that is under way included."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon()
        self.drop()


class _Attempt:
    """One attempt to connect, on its own thread."""

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
        """Whether it worked or failed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            consumer = self._connect()
        except KafkaFailure as trouble:
            self.trouble = self._why(trouble)
        except Exception as error:  # noqa: BLE001 - a thread that dies of it would be waited for without a word
            self.trouble = KafkaFailure(FailureKind.OTHER, f"a failure to connect ({type(error).__name__})")
        else:
            with self._lock:
                if not self._abandoned:
                    self.consumer = consumer
                    return
            _close(consumer)

    def abandon(self) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._abandoned = True
            consumer, self.consumer = self.consumer, None
        if consumer is not None:
            _close(consumer)


def _close(consumer: Consumer) -> None:
    with contextlib.suppress(KafkaFailure):  # it is not needed any more, in trouble or not
        consumer.close()


_LONGEST_REST = 5.0
"""After an error that passes. Who rests for longer keeps the whole group waiting when it shares partitions anew."""


class KafkaLink:
    """A connection, and the sentences about it."""

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
        self.trouble: str | None = f"kafka {options.address}: has not been reached yet"
        """What is the matter; None when nothing is."""
        self._topics: str | None = None
        self._monotonic = monotonic
        self._in_trouble_since: float | None = None

    @property
    def consumer(self) -> Consumer | None:
        """The consumer, as long as there is one."""
        return self._connection.consumer

    @property
    def waits_for(self) -> str | None:
        """What is the matter with the cluster, or with topics in it; None when nothing is."""
        return self.trouble or self._topics

    @property
    def rests(self) -> bool:
        """Whether nothing is asked of the cluster for a moment."""
        return self._rest.left > 0.0

    def connected(self) -> bool:
        """Try to connect, if there is no connection, and tell whether there is a new one now."""
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
        """Go on after a while; over a new connection, where the old one will not do."""
        if isinstance(trouble, ConnectionBroken) or trouble.kind.needs_people or self._may_be_put_out(trouble):
            self._connection.drop()
            self._connection.backoff.failed(slowly=trouble.kind.needs_people)
            self._tell(trouble, self._connection.backoff)
        else:
            self._rest.failed()
            self._tell(trouble, self._rest)

    def is_well(self) -> None:
        """The cluster answers."""
        self.trouble = self._in_trouble_since = None
        self._notes.over("cluster", f"kafka {self._options.address}: answers again")
        self._rest.worked()

    def topics_missing(self, trouble: KafkaFailure | None) -> None:
        """Some topics are not there, or not for us; the others are read all the same."""
        if trouble is None:
            self._topics = None
            self._notes.over("topics", f"kafka {self._options.address}: all topics are there")
            return
        self._topics = sentence(trouble, self._options)
        if self._notes.warn_once("topics", self._topics):
            self._notes.counted[trouble.kind.counted] += 1

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()

    def _may_be_put_out(self, trouble: KafkaFailure) -> bool:
        """Tell whether nobody has answered for so long that the group may have given our partitions to others.

        Who went on counting them would have them counted twice in all.
        """
        if trouble.kind is not FailureKind.UNREACHABLE:
            return False
        now = self._monotonic()
        self._in_trouble_since = now if self._in_trouble_since is None else self._in_trouble_since
        return now - self._in_trouble_since > self._options.session_timeout_seconds

    def _tell(self, trouble: KafkaFailure, backoff: Backoff) -> None:
        self._notes.counted[trouble.kind.counted] += 1
        said = sentence(trouble, self._options)
        self.trouble = f"{said}; trying again every {backoff.seconds:g} s"
        # That the wait grows is no news.
        self._notes.warn_once("cluster", said)


_TIMEOUT_SECONDS = 2.0


def probe(options: KafkaOptions) -> KafkaFailure:
    """Return what is the matter with the brokers; may take some seconds."""
    found = [_try(options, broker) for broker in options.brokers]
    # What is wrong with a broker that can be reached says more than that another cannot.
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
        found = "an open port that does not answer as Kafka does, perhaps one that expects TLS"
    elif options.sasl is None:
        found = "a port that breaks off, perhaps one that expects a user or another certificate"
    else:
        found = "an open port that does not answer as Kafka does"
    return KafkaFailure(FailureKind.UNREACHABLE, found)


def _explained(error: OSError, host: str) -> KafkaFailure:
    match error:
        case ssl.SSLCertVerificationError():
            return KafkaFailure(FailureKind.TLS, f"a certificate that is not trusted ({error.verify_message})")
        case ssl.SSLError():
            return KafkaFailure(FailureKind.TLS, f"no TLS ({(error.reason or 'broken off').lower().replace('_', ' ')})")
        case socket.gaierror():
            return KafkaFailure(FailureKind.UNREACHABLE, f"no address for host {host}")
        case TimeoutError():
            return KafkaFailure(FailureKind.UNREACHABLE, "no answer in time")
        case _:
            return KafkaFailure(FailureKind.UNREACHABLE, (error.strerror or type(error).__name__).lower())
