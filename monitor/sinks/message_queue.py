"""Delivers messages to one URL, for webhook and heartbeat: a bounded queue, a thread, and retries with backoff."""

import logging
import threading
import time
from dataclasses import dataclass, replace

from monitor.sinks.http_sender import Answer, HttpSender, Outcome

Key = tuple[str, str, str]
"""Model, segment and alert. Messages with the same key are delivered in order."""

log = logging.getLogger("cpcmon")

CAPACITY = 256
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff. The default outlasts a night in which the receiver is down."""

    attempts: int = 1500
    age_seconds: float = 86_400.0
    first_wait_seconds: float = 1.0
    max_wait_seconds: float = 60.0

    def wait_seconds(self, attempts: int) -> float:
        """Return the wait after so many attempts."""
        # The exponent is limited, or the power would overflow.
        return min(self.max_wait_seconds, self.first_wait_seconds * 2.0 ** min(attempts - 1, 60))


RETRY = RetryPolicy()
NO_RETRY = RetryPolicy(attempts=1)


@dataclass(slots=True, eq=False)
class _Message:
    key: Key
    body: bytes | None
    created: float
    due: float
    attempts: int = 0


@dataclass(slots=True)
class MessageCounters:
    """Messages by outcome. Each counts once."""

    sent: int = 0
    failed: int = 0
    """Rejected by the receiver, or retried for too long."""
    dropped: int = 0
    """The oldest of a full queue, or undelivered at the stop."""
    redirected: int = 0
    waiting: int = 0
    """Queued, or being sent."""


class MessageQueue:
    """A queue of messages and the thread that sends them. A full queue drops its oldest message."""

    def __init__(self, name: str, sender: HttpSender, retry: RetryPolicy = RETRY, capacity: int = CAPACITY) -> None:
        self._name, self._sender, self._retry, self._capacity = name, sender, retry, capacity
        self._messages: list[_Message] = []
        """Oldest first. A message that is being sent stays until its outcome is known."""
        self._counters = MessageCounters()
        self._working, self._closing = True, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, key: Key, body: bytes | None, due: float | None = None) -> None:
        """Queue a message, due now or at a time of the monotonic clock."""
        now = time.monotonic()
        with self._changed:
            self._messages.append(_Message(key, body, now, now if due is None else due))
            if len(self._messages) > self._capacity:
                del self._messages[0]
                self._counters.dropped += 1
            self._changed.notify()

    def close(self, *, flush: bool) -> None:
        """Stop; with `flush`, send first what is due and can be sent within two seconds."""
        with self._changed:
            self._closing = True
            if not flush:
                self._messages.clear()
            self._changed.notify()
        if flush:
            self._thread.join(_CLOSE_SECONDS)
        with self._changed:
            undelivered = len(self._messages)
            self._counters.dropped += undelivered
            self._messages.clear()
        if undelivered:
            log.warning("%s: stopped with undelivered messages", self._name, extra={"fields": {"count": undelivered}})

    def counters(self) -> MessageCounters:
        """Return the counters."""
        with self._changed:
            return replace(self._counters, waiting=len(self._messages))

    def undelivered(self) -> set[Key]:
        """Return the keys of the messages that wait."""
        with self._changed:
            return {message.key for message in self._messages}

    def _run(self) -> None:
        while (message := self._next()) is not None:
            self._finish(message, self._sender.send(message.body))

    def _next(self) -> _Message | None:
        """Wait for the next message that is due; None at the stop."""
        with self._changed:
            while True:
                oldest = {message.key: message for message in reversed(self._messages)}
                first = min(oldest.values(), key=lambda one: one.due, default=None)
                now = time.monotonic()
                if first is not None and first.due <= now:
                    return first
                if self._closing:
                    return None
                self._changed.wait(None if first is None else first.due - now)

    def _finish(self, message: _Message, answer: Answer) -> None:
        policy, sent = self._retry, answer.outcome is Outcome.SENT
        with self._changed:
            if message not in self._messages:
                return  # dropped meanwhile, and counted as such
            message.attempts += 1
            message.due = time.monotonic() + policy.wait_seconds(message.attempts)
            worth = message.attempts < policy.attempts and message.due - message.created <= policy.age_seconds
            retry = worth and answer.outcome is Outcome.RETRY
            if not retry:
                self._messages.remove(message)
                self._counters.sent += sent
                self._counters.redirected += answer.outcome is Outcome.REDIRECTED
                self._counters.failed += answer.outcome in {Outcome.FAILED, Outcome.RETRY}
        if sent != self._working:
            self._working = sent
            level, text = (logging.INFO, "delivery works again") if sent else (logging.WARNING, "delivery failed")
            log.log(level, "%s: %s", self._name, text, extra={"fields": {"why": answer.reason}})
        if not (sent or retry) and policy is not NO_RETRY:
            about = dict(zip(("model", "segment", "alert"), message.key, strict=True))
            log.error("%s: message not delivered", self._name, extra={"fields": {**about, "why": answer.reason}})
