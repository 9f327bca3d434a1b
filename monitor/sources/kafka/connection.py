"""The connection to the cluster: TLS and SASL, opened by a thread with backoff, its failure, a check of each broker."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from monitor.core.backoff import Backoff
from monitor.sources.base import EventBuffer
from monitor.sources.kafka.consumer import ConnectionBroken, Consumer, FailureKind, KafkaFailure, describe
from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions, Mechanism, SaslOptions, TlsOptions
from monitor.sources.kafka.partitions import Ownership

Connect = Callable[[KafkaOptions, Ownership], Consumer]
Explain = Callable[[KafkaOptions], KafkaFailure]

_FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0
_LONGEST_RETRY_WAIT = 5.0
"""After a transient error. A longer delay would block the whole group during a rebalance."""
_TIMEOUT_SECONDS = 2.0


class _Attempt:
    """One connection attempt, on its own thread."""

    def __init__(self, connect: Callable[[], Consumer], why: Callable[[KafkaFailure], KafkaFailure]) -> None:
        self._lock = threading.Lock()
        self._abandoned = False
        self.consumer: Consumer | None = None
        self.failure: KafkaFailure | None = None
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
        except KafkaFailure as failure:
            self.failure = self._why(failure)
        except Exception as error:  # noqa: BLE001 - otherwise the thread would die silently
            self.failure = KafkaFailure(FailureKind.OTHER, f"an error while connecting ({type(error).__name__})")
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


class KafkaConnection:
    """The consumer once connected, and its failures. Used by the ingestion thread, which it never blocks."""

    def __init__(
        self,
        options: KafkaOptions,
        ownership: Ownership,
        event_log: EventBuffer,
        *,
        connect: Connect,
        explain: Explain,
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._ownership = ownership
        self._event_log = event_log
        self._connect, self._explain = connect, explain
        self._monotonic = monotonic
        self._connect_backoff = Backoff(_FIRST_WAIT, LONGEST_WAIT)
        self._retry_backoff = Backoff(_FIRST_WAIT, _LONGEST_RETRY_WAIT)
        self.consumer: Consumer | None = None
        self._attempt: _Attempt | None = None
        self.failure: str | None = f"kafka {options.address}: not connected yet"
        """The current failure; None without one."""
        self._topics: str | None = None
        self._failing_since: float | None = None

    @property
    def waits_for(self) -> str | None:
        """The current failure of the cluster or its topics; None without one."""
        return self.failure or self._topics

    @property
    def backing_off(self) -> bool:
        """Whether a backoff delay is in progress."""
        return self._retry_backoff.left(self._monotonic()) > 0.0

    def connected(self) -> bool:
        """Connect if necessary; return whether there is a new connection."""
        if self.consumer is not None:
            return False
        if self._attempt is None:
            if self._connect_backoff.left(self._monotonic()):
                return False
            self._attempt = _Attempt(lambda: self._connect(self._options, self._ownership), self._explained)
        if not self._attempt.is_over:
            return False
        attempt, self._attempt = self._attempt, None
        if attempt.failure is not None:
            self._reconnect_later(attempt.failure)
            return False
        self._connect_backoff.succeeded()
        self.consumer = attempt.consumer
        self._event_log.counted[KafkaEvent.CONNECTIONS] += 1
        self.mark_healthy()
        return True

    def _explained(self, failure: KafkaFailure) -> KafkaFailure:
        return self._explain(self._options) if failure.kind is FailureKind.UNREACHABLE else failure

    def handle_failure(self, failure: KafkaFailure) -> None:
        """Handle a failure: back off, and reconnect if necessary."""
        if isinstance(failure, ConnectionBroken) or failure.kind.needs_operator or self._may_be_evicted(failure):
            self._drop()
            self._reconnect_later(failure)
        else:
            self._retry_backoff.failed(self._monotonic())
            self._report(failure, self._retry_backoff)

    def _reconnect_later(self, failure: KafkaFailure) -> None:
        self._connect_backoff.first_seconds = LONGEST_WAIT if failure.kind.needs_operator else _FIRST_WAIT
        self._connect_backoff.failed(self._monotonic())
        self._report(failure, self._connect_backoff)

    def mark_healthy(self) -> None:
        """The cluster answered."""
        self.failure = self._failing_since = None
        self._event_log.resolved("cluster", f"kafka {self._options.address}: connection restored")
        self._retry_backoff.succeeded()

    def topics_missing(self, failure: KafkaFailure | None) -> None:
        """Handle topics that are missing or forbidden; the others are read all the same."""
        if failure is None:
            self._topics = None
            self._event_log.resolved("topics", f"kafka {self._options.address}: all topics are available")
            return
        self._topics = describe(failure, self._options)
        if self._event_log.warn_once("topics", self._topics):
            self._event_log.counted[failure.kind.counted] += 1

    def close(self) -> None:
        """Release everything, including an attempt in progress."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.abandon()
        self._drop()

    def _drop(self) -> None:
        """Close the consumer. The next one reads secrets and certificates again."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            _close(consumer)
            self._ownership.lost_all()

    def _may_be_evicted(self, failure: KafkaFailure) -> bool:
        """Return whether the cluster has not answered for so long that the group may have reassigned our partitions.

        To go on counting them would count them twice in the sum over all processes.
        """
        if failure.kind is not FailureKind.UNREACHABLE:
            return False
        now = self._monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        return now - self._failing_since > self._options.session_timeout_seconds

    def _report(self, failure: KafkaFailure, backoff: Backoff) -> None:
        self._event_log.counted[failure.kind.counted] += 1
        message = describe(failure, self._options)
        self.failure = f"{message}; retrying every {backoff.seconds:g} s"
        # A growing delay is no news.
        self._event_log.warn_once("cluster", message)


def check_brokers(options: KafkaOptions) -> KafkaFailure:
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
        return _connect_failure(error, host)
    except KafkaFailure as failure:
        return failure
    if options.tls is None:
        found = "an open port that does not speak Kafka; it may expect TLS"
    elif options.sasl is None:
        found = "a port that closes the connection; it may expect SASL or a client certificate"
    else:
        found = "an open port that does not speak Kafka"
    return KafkaFailure(FailureKind.UNREACHABLE, found)


def _connect_failure(error: OSError, host: str) -> KafkaFailure:
    match error:
        case ssl.SSLCertVerificationError():
            return KafkaFailure(FailureKind.TLS, f"a certificate that is not trusted ({error.verify_message})")
        case ssl.SSLError():
            return KafkaFailure(
                FailureKind.TLS, f"no TLS ({(error.reason or 'connection closed').lower().replace('_', ' ')})"
            )
        case socket.gaierror():
            return KafkaFailure(FailureKind.UNREACHABLE, f"no address for host {host}")
        case TimeoutError():
            return KafkaFailure(FailureKind.UNREACHABLE, "no answer in time")
        case _:
            return KafkaFailure(FailureKind.UNREACHABLE, (error.strerror or type(error).__name__).lower())


_LONGEST_SECRET = 64 << 10


def security(options: KafkaOptions) -> dict[str, Any]:
    """Return the client library's settings for TLS and SASL. Raises KafkaFailure for an unusable file."""
    settings: dict[str, Any] = {"security_protocol": _PROTOCOLS[options.sasl is not None, options.tls is not None]}
    if options.tls is not None:
        settings["ssl_context"] = tls_context(options.tls)
    if options.sasl is not None:
        settings |= _sasl(options.sasl)
    return settings


_PROTOCOLS = {
    (False, False): "PLAINTEXT",
    (False, True): "SSL",
    (True, False): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}
"""By whether SASL and TLS are configured."""


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context. Raises KafkaFailure for an unusable file."""
    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    except (OSError, ssl.SSLError) as error:
        raise KafkaFailure(FailureKind.TLS, f"no certificates in tls.ca {str(tls.ca)!r} ({_why(error)})") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_hostname
    if tls.cert is not None:
        password = (
            None if tls.password_file is None else _secret(tls.password_file, "tls.password_file", FailureKind.TLS)
        )
        try:
            # Without a password, OpenSSL would prompt for it on the terminal.
            context.load_cert_chain(tls.cert, tls.key, password=password or "")
        except (OSError, ssl.SSLError) as error:
            raise KafkaFailure(
                FailureKind.TLS,
                f"no certificate with its key in tls.cert {str(tls.cert)!r} and tls.key ({_why(error)})",
            ) from error
    return context


def _sasl(sasl: SaslOptions) -> dict[str, Any]:
    if sasl.mechanism is Mechanism.OAUTHBEARER:
        # Imported here: configurations are validated without the client library, which is slow to import.
        from monitor.sources.kafka.internals import TokenFile  # noqa: PLC0415

        assert sasl.token_file is not None  # noqa: S101 - validated by SaslOptions
        provider = TokenFile(partial(_secret, sasl.token_file, "sasl.token_file", FailureKind.AUTHENTICATION))
        provider.token()  # report a missing file now
        return {"sasl_mechanism": str(sasl.mechanism), "sasl_oauth_token_provider": provider}
    assert sasl.password_file is not None  # noqa: S101 - validated by SaslOptions
    return {
        "sasl_mechanism": str(sasl.mechanism),
        "sasl_plain_username": sasl.user,
        "sasl_plain_password": _secret(sasl.password_file, "sasl.password_file", FailureKind.AUTHENTICATION),
    }


def _secret(path: Path, where: str, kind: FailureKind) -> str:
    try:
        with path.open("rb") as file:
            secret = file.read(_LONGEST_SECRET).decode().strip("\r\n")
    except OSError as error:
        raise KafkaFailure(kind, f"{where} {str(path)!r} that cannot be read ({_why(error)})") from error
    except UnicodeDecodeError:
        # Not chained: the exception would quote the file.
        raise KafkaFailure(kind, f"{where} {str(path)!r} that is not UTF-8") from None
    if not secret:
        raise KafkaFailure(kind, f"{where} {str(path)!r} that is empty")
    return secret


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    return (getattr(error, "strerror", None) or type(error).__name__).lower()
