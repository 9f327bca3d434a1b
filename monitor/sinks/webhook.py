"""Posts a message when an alert starts to fire and when it resolves."""

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from monitor.core.report import ModelReport
from monitor.sinks.message_queue import Key, MessageQueue


class WebhookSink:
    """Sends alert messages; `notified` are the alerts that the receiver knows to be firing."""

    def __init__(self, queue: MessageQueue, notified: Iterable[Key] = ()) -> None:
        self.queue = queue
        self.firing = frozenset(notified)
        """The alerts that fire, by the messages sent or queued."""

    def publish(self, report: ModelReport) -> None:
        """Queue a message for each alert that started to fire or resolved since the previous report."""
        before = {key for key in self.firing if key[0] == report.model}
        firing, known = set[Key](), set[Key]()
        for segment in report.segments:
            for status in segment.alerts:
                key = (report.model, segment.name, status.alert)
                known.add(key)
                if status.firing:
                    firing.add(key)
                if status.firing != (key in before):
                    fields = {
                        "kind": status.kind.value,
                        "severity": status.severity.value,
                        "estimator": status.estimator,
                        "value": _finite(status.value),
                        "threshold": _finite(status.threshold),
                        "records": segment.records,
                    }
                    reason = "fired" if status.firing else "recovered"
                    self.queue.put(key, _body(key, reason, report.at, status.since, fields))
        self._end(before - known, report.at)
        self.firing = (self.firing - before) | firing

    def forget(self, model: str) -> None:
        """Resolve the alerts of a model that is no longer configured."""
        before = {key for key in self.firing if key[0] == model}
        self._end(before, time.time())
        self.firing -= before

    def close(self) -> None:
        """Send what can be sent within two seconds, and stop."""
        self.queue.close(flush=True)

    def _end(self, keys: set[Key], at: float) -> None:
        """Resolve alerts that are no longer evaluated, or the receiver would wait for their end for ever."""
        for key in sorted(keys):
            self.queue.put(key, _body(key, "gone", at, at, {}))


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
        **dict.fromkeys(("kind", "severity", "estimator")),
        "at": _timestamp(at),
        "since": _timestamp(since),
        **dict.fromkeys(("value", "threshold", "records")),
    }
    return json.dumps({**body, **fields}, separators=(",", ":"), allow_nan=False).encode("ascii")


def _timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
