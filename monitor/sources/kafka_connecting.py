"""Making a connection without waiting for it: on a thread of its own, again and again, ever more slowly."""

import contextlib
import threading
import time
from collections.abc import Callable

from monitor.sources.kafka_consumer import Consumer
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.kafka_ownership import Ownership
from monitor.sources.kafka_trouble import Kind, Trouble

Connect = Callable[[KafkaOptions, Ownership], Consumer]
Explain = Callable[[KafkaOptions], Trouble]

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


class Connection:
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

    def _why(self, trouble: Trouble) -> Trouble:
        return self._explain(self._options) if trouble.kind is Kind.UNREACHABLE else trouble

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

    def __init__(self, connect: Callable[[], Consumer], why: Callable[[Trouble], Trouble]) -> None:
        self._lock = threading.Lock()
        self._abandoned = False
        self.consumer: Consumer | None = None
        self.trouble: Trouble | None = None
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
        except Trouble as trouble:
            self.trouble = self._why(trouble)
        except Exception as error:  # noqa: BLE001 - a thread that dies of it would be waited for without a word
            self.trouble = Trouble(Kind.OTHER, f"a failure to connect ({type(error).__name__})")
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
    with contextlib.suppress(Trouble):  # it is not needed any more, in trouble or not
        consumer.close()
