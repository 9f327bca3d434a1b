"""Posts a message when an alert begins to fire and when it ends, with a queue and retries.

`publish` compares and queues, and never waits. A thread of the sink's own sends. What is sent is best effort: the
metrics and the status page remain the truth.
"""

import hashlib
import json
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from monitor.config.config import Webhook
from monitor.core.alerts import AlertStatus
from monitor.core.report import ModelReport, SegmentReport
from monitor.sinks.http_sender import Answer, Fate, Poster, Resolver, Target

Key = tuple[str, str, str]
"""What a message is about: model, segment and alert. Messages about the same are sent in their order."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a message is worth trying: a night in which the receiver is down must not swallow a page."""

    attempts: int = 1500
    age_seconds: float = 86_400.0
    first_wait_seconds: float = 1.0
    most_wait_seconds: float = 60.0

    def wait_seconds(self, attempts: int) -> float:
        """Return how long to wait after so many attempts: twice as long each time."""
        # The exponent is bounded, or the power would be too large for a float.
        return min(self.most_wait_seconds, self.first_wait_seconds * 2.0 ** min(attempts - 1, 60))


@dataclass(slots=True)
class Message:
    """One message and how often it was tried."""

    key: Key
    body: bytes
    made: float
    due: float
    attempts: int = 0


class Outbox:
    """A bounded list of messages, oldest first. When it is full the oldest goes: the newest tell how things stand now.

    A message that cannot be delivered holds up only later ones about the same alert. Not safe for threads by itself.
    """

    def __init__(self, capacity: int, patience: Patience) -> None:
        self._capacity, self._patience = capacity, patience
        self._messages: list[Message] = []

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._messages)

    def keys(self) -> set[Key]:
        """Return what the messages that wait are about."""
        return {message.key for message in self._messages}

    def put(self, key: Key, body: bytes, now: float) -> bool:
        """Add a message; tell whether the oldest had to go for it."""
        self._messages.append(Message(key, body, made=now, due=now))
        full = len(self._messages) > self._capacity
        if full:
            del self._messages[0]
        return full

    def next(self, now: float) -> Message | None:
        """Return the first message that may be tried now; it stays until `done` or `again` says what became of it."""
        return next((message for message in self._heads() if message.due <= now), None)

    def wait_seconds(self, now: float) -> float | None:
        """Return how long until a message may be tried; None when there is none."""
        return min((max(0.0, message.due - now) for message in self._heads()), default=None)

    def done(self, message: Message) -> None:
        """A message was sent, or never will be."""
        # It may have been dropped for a newer one while it was on its way.
        self._messages = [one for one in self._messages if one is not message]

    def again(self, message: Message, now: float) -> bool:
        """A message failed in a way that may pass: put it off, and tell whether it is still worth trying."""
        message.attempts += 1
        message.due = now + self._patience.wait_seconds(message.attempts)
        worth = message.attempts < self._patience.attempts and message.due - message.made <= self._patience.age_seconds
        if not worth:
            self.done(message)
        return worth

    def clear(self) -> int:
        """Give up every message; return how many."""
        count, self._messages = len(self._messages), []
        return count

    def _heads(self) -> list[Message]:
        """Return the oldest message about each alert."""
        first: dict[Key, Message] = {}
        for message in self._messages:
            first.setdefault(message.key, message)
        return list(first.values())


log = logging.getLogger("cpcmon")

VERSION = 1
"""Of the body. A key that is renamed or removed makes it another."""
CAPACITY = 256
"""Messages that may wait."""
CLOSE_SECONDS = 2.0
"""How long `close` waits for what is still to be sent."""


@dataclass(frozen=True, slots=True)
class WebhookCounters:
    """What became of messages so far. Each ends in exactly one of these."""

    sent: int = 0
    failed: int = 0
    """Given up: refused by the other side, or too old."""
    dropped: int = 0
    """The oldest of too many, or still waiting at the stop."""
    redirected: int = 0
    """The other side wanted it sent elsewhere; that is never done."""


class WebhookSink:
    """Tells one URL of alerts. `already` are those that were firing at the last stop: of them it was told before."""

    def __init__(
        self,
        webhook: Webhook,
        already: Iterable[Key] = (),
        *,
        capacity: int = CAPACITY,
        patience: Patience | None = None,
        resolve: Resolver = socket.getaddrinfo,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._poster = Poster(
            Target.of(webhook.url, allow_http=webhook.allow_http),
            timeout_seconds=webhook.timeout_seconds,
            allow_link_local=webhook.allow_link_local,
            resolve=resolve,
            tls=tls,
        )
        self._firing = set(already)
        self._outbox = Outbox(capacity, patience or Patience())
        self._counters = WebhookCounters()
        self._changed = threading.Condition()
        self._closing = self._over = False
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def publish(self, report: ModelReport) -> None:
        """Queue a message for each alert that began or ceased to fire since the report before."""
        firing: set[Key] = set()
        for segment in report.segments:
            for status in segment.alerts:
                key = (report.model, segment.name, status.alert)
                if status.firing:
                    firing.add(key)
                if status.firing != (key in self._firing):
                    self._queue(key, _body(key, report.at, segment, status))
        known = {(report.model, one.name, status.alert) for one in report.segments for status in one.alerts}
        before = {key for key in self._firing if key[0] == report.model}
        self._gone(before - known, report.at)
        self._firing = (self._firing - before) | firing

    def forget(self, model: str) -> None:
        """A model is no longer configured: whoever was told of its alerts is told that nobody watches it any more."""
        before = {key for key in self._firing if key[0] == model}
        self._gone(before, time.time())
        self._firing = self._firing - before

    def close(self) -> None:
        """Send what can be sent soon, and stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)
        with self._changed:
            self._over = True
            left = self._outbox.clear()
            self._count(dropped=left)
        if left:
            log.warning("webhook: stopped before every message was sent", extra={"fields": {"unsent": left}})

    @property
    def firing(self) -> frozenset[Key]:
        """The alerts of which it has been told that they fire: the `already` of whatever comes in its place."""
        return frozenset(self._firing)

    def undelivered(self) -> set[Key]:
        """Return the alerts of which a message still waits."""
        with self._changed:
            return self._outbox.keys()

    def counters(self) -> WebhookCounters:
        """Return what became of messages so far."""
        with self._changed:
            return self._counters

    def waiting(self) -> int:
        """Return how many messages wait."""
        with self._changed:
            return len(self._outbox)

    def _gone(self, keys: set[Key], at: float) -> None:
        """Tell that alerts are no longer watched: nobody may wait for ever for the end of something that is no more."""
        for key in sorted(keys):
            self._queue(key, _encoded(key, "resolved", "gone", {"at": _stamp(at), "since": _stamp(at)}))

    def _queue(self, key: Key, body: bytes) -> None:
        with self._changed:
            if self._outbox.put(key, body, time.monotonic()):
                self._count(dropped=1)
            self._changed.notify()

    def _count(self, *, sent: int = 0, failed: int = 0, dropped: int = 0, redirected: int = 0) -> None:
        """Count; called with the lock held."""
        before = self._counters
        self._counters = replace(
            before,
            sent=before.sent + sent,
            failed=before.failed + failed,
            dropped=before.dropped + dropped,
            redirected=before.redirected + redirected,
        )

    def _run(self) -> None:
        """Send what is due until told to stop, and then once what is left."""
        while (message := self._due()) is not None:
            try:
                answer = self._poster.send("POST", message.body)
            except Exception as error:  # noqa: BLE001 - no odd answer may end the thread that tells of alerts
                answer = Answer(Fate.FAILED, f"expected an answer, found {type(error).__name__}")
            self._settle(message, answer)

    def _due(self) -> Message | None:
        """Wait for the next message; None when it is time to stop."""
        with self._changed:
            while True:
                now = time.monotonic()
                if not self._over and (message := self._outbox.next(now)) is not None:
                    return message
                # What failed before will hardly succeed in the last second.
                if self._closing:
                    return None
                self._changed.wait(self._outbox.wait_seconds(now))

    def _settle(self, message: Message, answer: Answer) -> None:
        with self._changed:
            if self._over:
                return
            fields = {"model": message.key[0], "segment": message.key[1], "alert": message.key[2], "why": answer.why}
            if answer.fate is Fate.RETRY and self._outbox.again(message, time.monotonic()):
                # The first and the last failure are told, and not the fifty between.
                if message.attempts == 1:
                    log.warning("webhook: a message was not taken, trying again", extra={"fields": fields})
                return
            self._outbox.done(message)
            self._count(
                sent=answer.fate is Fate.SENT,
                redirected=answer.fate is Fate.REDIRECTED,
                failed=answer.fate in {Fate.FAILED, Fate.RETRY},
            )
        if answer.fate is not Fate.SENT:
            log.error("webhook: a message was given up", extra={"fields": fields})


def _body(key: Key, at: float, segment: SegmentReport, status: AlertStatus) -> bytes:
    fields = {
        "kind": status.kind.value,
        "severity": status.severity.value,
        "estimator": status.estimator,
        "at": _stamp(at),
        "since": _stamp(status.since),
        "value": _finite(status.value),
        "threshold": _finite(status.threshold),
        "records": segment.records,
    }
    return _encoded(key, "firing", "fired", fields) if status.firing else _encoded(key, "resolved", "recovered", fields)


def _encoded(key: Key, status: str, reason: str, fields: Mapping[str, object]) -> bytes:
    model, segment, alert = key
    body = {
        "version": VERSION,
        "id": hashlib.sha256("\0".join([*key, status, str(fields["since"])]).encode()).hexdigest()[:32],
        "status": status,
        "reason": reason,
        "model": model,
        "segment": segment,
        "alert": alert,
        "kind": None,
        "severity": None,
        "estimator": None,
        "at": None,
        "since": None,
        "value": None,
        "threshold": None,
        "records": None,
    }
    return json.dumps({**body, **fields}, separators=(",", ":"), allow_nan=False).encode("ascii")


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
