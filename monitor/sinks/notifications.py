"""Webhook and heartbeat: messages to a URL, from a bounded queue, sent by a thread that retries with backoff."""

import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from monitor.config.config import Links
from monitor.core.alerts import AlertStatus, runbook
from monitor.core.backoff import Backoff
from monitor.core.change import Direction
from monitor.core.estimate import HEADLINE
from monitor.core.intervals import by_level
from monitor.core.report import Report, WindowReports
from monitor.sinks.http_sender import Answer, HttpSender, Outcome
from monitor.sinks.message_words import NOT_MONITORED, description, summary

Key = tuple[str, str, str]
"""Model, segment and alert. Messages with the same key are delivered in order."""

log = logging.getLogger("cpcmon")

CAPACITY = 256
RETRY_SECONDS = 86_400.0
"""Outlasts a night in which the receiver is down."""
_CLOSE_SECONDS = 2.0


@dataclass(slots=True, eq=False)
class _Message:
    key: Key
    body: bytes | None
    created: float
    backoff: Backoff


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

    def __init__(
        self,
        name: str,
        sender: HttpSender,
        *,
        retry_seconds: float = RETRY_SECONDS,
        first_wait_seconds: float = 1.0,
        capacity: int = CAPACITY,
    ) -> None:
        """Without `retry_seconds`, a message is sent once."""
        self._name, self._sender, self._capacity = name, sender, capacity
        self._retry_seconds, self._first_wait_seconds = retry_seconds, first_wait_seconds
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
            backoff = Backoff(self._first_wait_seconds, until=now if due is None else due)
            self._messages.append(_Message(key, body, now, backoff))
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
                first = min(oldest.values(), key=lambda one: one.backoff.until, default=None)
                left = None if first is None else first.backoff.left(time.monotonic())
                if left == 0.0:
                    return first
                if self._closing:
                    return None
                self._changed.wait(left)

    def _finish(self, message: _Message, answer: Answer) -> None:
        sent = answer.outcome is Outcome.SENT
        with self._changed:
            if message not in self._messages:
                return  # dropped meanwhile, and counted as such
            message.backoff.failed(time.monotonic())
            in_time = message.backoff.until - message.created <= self._retry_seconds
            retry = in_time and answer.outcome is Outcome.RETRY
            if not retry:
                self._messages.remove(message)
                self._counters.sent += sent
                self._counters.redirected += answer.outcome is Outcome.REDIRECTED
                self._counters.failed += answer.outcome in {Outcome.FAILED, Outcome.RETRY}
        if sent != self._working:
            self._working = sent
            level, text = (logging.INFO, "delivery works again") if sent else (logging.WARNING, "delivery failed")
            log.log(level, "%s: %s", self._name, text, extra={"fields": {"why": answer.reason}})
        if not (sent or retry) and self._retry_seconds:
            about = dict(zip(("model", "segment", "alert"), message.key, strict=True))
            log.error("%s: message not delivered", self._name, extra={"fields": {**about, "why": answer.reason}})


class HeartbeatSink:
    """Calls a URL after successful evaluations, so that an outside system notices when they stop.

    At most one heartbeat in `every_seconds`, and none without a report.
    """

    def __init__(self, queue: MessageQueue, every_seconds: float) -> None:
        self.queue, self._every = queue, every_seconds
        self._due = -math.inf
        """When the latest heartbeat was or will be sent."""

    def publish(self, report: Report) -> None:
        """Queue a heartbeat, unless one is queued already or the evaluation failed in every window."""
        if report.windows.failed:
            return
        now = time.monotonic()
        # One that is being sent may be followed by one that waits.
        if now >= self._due and self.queue.counters().waiting < 2:
            self._due = max(now, self._due + self._every)
            self.queue.put(("", "", ""), None, self._due)

    def forget(self, model: str) -> None:
        """Do nothing: a model without reports causes no heartbeats."""

    def close(self) -> None:
        """Stop. A queued heartbeat is not sent: a stop is no success."""
        self.queue.close(flush=False)


class WebhookSink:
    """Posts a message when an alert starts to fire and when it resolves.

    `notified` are the alerts that the receiver knows to be firing. It may or may not know the last change of those that are
    `unsure`: a daemon that is killed cannot say what it has just delivered. They get a message in any case.
    """

    def __init__(self, queue: MessageQueue, notified: Iterable[Key] = (), unsure: Iterable[Key] = ()) -> None:
        self.queue = queue
        self.firing = frozenset(notified)
        """The alerts that fire, by the messages sent or queued."""
        self._unsure = frozenset(unsure)
        """Until the first report of their model."""
        self._since: dict[Key, float] = {}
        """When they began to fire, as far as known: not before the first report."""
        self.links = Links()

    def publish(self, report: Report) -> None:
        """Queue a message for each alert that started to fire or resolved since the previous report."""
        before, unsure = _of(report.model, self.firing), _of(report.model, self._unsure)
        windows = report.windows
        firing, known = set[Key](), set[Key]()
        fired = {segment for _, segment, _ in before | unsure}
        # The others have no news.
        looked_at = {window for window, name in enumerate(windows.names) if name in fired}
        for window in sorted(looked_at.union(np.flatnonzero(windows.alerts.firing.any(axis=0)).tolist())):
            for status in windows.alerts.window(window):
                key = (report.model, windows.names[window], status.alert)
                known.add(key)
                if status.firing:
                    firing.add(key)
                    self._since[key] = status.since
                if key in unsure or status.firing != (key in before):
                    # What is beyond accuracy is costly to make for each window.
                    one = (windows if status.metric is not None else windows.without_performance())[window]
                    fields = {
                        "kind": status.kind.value,
                        "severity": status.severity.value,
                        "estimator": status.estimator,
                        "metric": None if status.metric is None else status.metric.value,
                        "class": status.of_class,
                        "baseline": status.baseline,
                        "value": _finite(status.value),
                        "threshold": _finite(status.threshold),
                        "field": by_level(_field(windows, window)) if status.estimator == HEADLINE else None,
                        "records": int(windows.records[window]),
                        "change": _change(windows, window, status.direction),
                        "summary": summary(report, one, status),
                        "description": description(report, one, status, self._since.get(key)),
                        "links": _links(self.links, key, status),
                    }
                    reason = "fired" if status.firing else "recovered"
                    self.queue.put(key, _body(key, reason, report.at, status.since, fields))
        self._end((before | unsure) - known, report.at)
        self.firing, self._unsure = (self.firing - before) | firing, self._unsure - unsure
        self._since = {key: since for key, since in self._since.items() if key in self.firing}

    def forget(self, model: str) -> None:
        """Resolve the alerts of a model that is no longer configured."""
        self._end(_of(model, self.firing | self._unsure), time.time())
        self.firing, self._unsure = self.firing - _of(model, self.firing), self._unsure - _of(model, self._unsure)

    def models(self) -> set[str]:
        """Return the models of which the receiver may know an alert."""
        return {model for model, _, _ in self.firing | self._unsure}

    def delivered(self) -> tuple[AbstractSet[Key], AbstractSet[Key]]:
        """Return `notified` and `unsure` for a sink that continues this one."""
        unsure = self._unsure | self.queue.undelivered()
        return self.firing - unsure, unsure

    def close(self) -> None:
        """Send what can be sent within two seconds, and stop."""
        self.queue.close(flush=True)

    def _end(self, keys: set[Key], at: float) -> None:
        """Resolve alerts that are no longer evaluated, or the receiver would wait for their end for ever."""
        for key in sorted(keys):
            model, segment, alert = key
            words = {
                "summary": f"{model}, {segment}: {alert} is gone",
                "description": f"{alert} of {segment} is gone: {NOT_MONITORED}.",
                "links": _links(self.links, key),
            }
            self.queue.put(key, _body(key, "gone", at, at, words))


def _of(model: str, keys: AbstractSet[Key]) -> set[Key]:
    return {key for key in keys if key[0] == model}


def _body(key: Key, reason: str, at: float, since: float, fields: Mapping[str, object]) -> bytes:
    model, segment, alert = key
    status = "firing" if reason == "fired" else "resolved"
    body: dict[str, object] = {
        "version": 1,  # renaming or removing a key makes it 2
        "id": hashlib.sha256("\0".join([*key, status, _timestamp(since)]).encode()).hexdigest()[:32],
        "status": status,
        "reason": reason,
        "model": model,
        "segment": segment,
        "alert": alert,
        **dict.fromkeys(("kind", "severity", "estimator", "metric", "class", "baseline")),
        "at": _timestamp(at),
        "since": _timestamp(since),
        **dict.fromkeys(("value", "threshold", "field", "records", "change", "summary", "description")),
        "links": {},
        "test": False,
    }
    return json.dumps({**body, **fields}, separators=(",", ":"), allow_nan=False).encode("ascii")


def _links(links: Links, key: Key, status: AlertStatus | None = None) -> dict[str, str]:
    """Return the links that are set."""
    model, segment, _ = key
    found = {"dashboard": links.dashboard_url(model, segment), "page": links.page_url(model, segment)}
    if status is not None:
        found["runbook"] = links.runbook_url(runbook(status.kind, upward=status.upward))
    return {name: url for name, url in found.items() if url is not None}


def trial_bodies(model: str, links: Links, at: float) -> list[bytes]:
    """Return two messages that test the receiver: an alert that fires, and the same one resolved."""
    about = "A test of the webhook of cpcmon, sent by cpcmon notify --test. No alert has changed."
    key = (model, "all", "webhook_test")
    fields = {"severity": "info", "description": about, "links": _links(links, key), "test": True}
    return [
        _body(key, reason, at, at, {**fields, "summary": f"{model}: test, {reason}"})
        for reason in ("fired", "recovered")
    ]


def _field(windows: WindowReports, window: int) -> Sequence[tuple[float, float]]:
    """Return the field intervals of the headline, if the window shows it."""
    return windows.estimates.field_of(window) if windows.has_results[window] else ()


def _change(windows: WindowReports, window: int, direction: Direction | None) -> dict[str, object] | None:
    """Return what is known of the change that an alert is about; None for other alerts."""
    found = () if windows.changes is None or direction is None else windows.changes.window(window)
    for one in found:
        if one.direction is direction:
            return {
                "direction": one.direction.value,
                "tolerance": one.tolerance,
                "began_at": None if one.began_at is None else _timestamp(one.began_at),
                "records_since": one.records_since,
            }
    return None


def _timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
