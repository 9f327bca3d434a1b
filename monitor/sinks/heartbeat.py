"""Calls a URL after evaluations that succeeded, so that somebody outside notices when they stop.

Nothing here beats by itself: without a report there is no beat, however long the process lives.
"""

import logging
import socket
import ssl
import threading
import time
from dataclasses import dataclass, replace

from monitor.config.config import Heartbeat
from monitor.core.estimate import WindowState
from monitor.core.report import ModelReport
from monitor.sinks.http_sender import Answer, Fate, Poster, Resolver, Target

log = logging.getLogger("cpcmon")


class Pulse:
    """When to beat: after a report that came since the beat before, and not too often. Time is passed in."""

    def __init__(self, every_seconds: float) -> None:
        self._every = every_seconds
        self._told = False
        self._last: float | None = None

    def tell(self) -> None:
        """An evaluation succeeded."""
        self._told = True

    def wait_seconds(self, now: float) -> float | None:
        """Return how long until the next beat; 0 when it is due, None when there is nothing to tell."""
        if not self._told:
            return None
        return 0.0 if self._last is None else max(0.0, self._last + self._every - now)

    def beat(self, now: float) -> None:
        """It beats. Whether it is heard does not matter: an old report is no news, so a lost beat is not repeated."""
        self._told, self._last = False, now


@dataclass(frozen=True, slots=True)
class HeartbeatCounters:
    """What became of beats so far."""

    sent: int = 0
    failed: int = 0
    """Redirects among them."""


class HeartbeatSink:
    """Beats at one URL while evaluations succeed."""

    def __init__(
        self,
        heartbeat: Heartbeat,
        *,
        resolve: Resolver = socket.getaddrinfo,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._poster = Poster(
            Target.of(heartbeat.url, allow_http=heartbeat.allow_http),
            timeout_seconds=heartbeat.timeout_seconds,
            allow_link_local=heartbeat.allow_link_local,
            resolve=resolve,
            tls=tls,
        )
        self._pulse = Pulse(heartbeat.every_seconds)
        self._counters = HeartbeatCounters()
        self._heard = True
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def publish(self, report: ModelReport) -> None:
        """Beat soon, unless the evaluation failed in every window."""
        if all(segment.state is WindowState.ERROR for segment in report.segments):
            return
        with self._changed:
            self._pulse.tell()
            self._changed.notify()

    def forget(self, model: str) -> None:
        """A model is no longer configured: its reports come no more, and that is all."""

    def close(self) -> None:
        """Stop beating. A stop is no success, so nothing is sent for it."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(1.0)

    def counters(self) -> HeartbeatCounters:
        """Return what became of beats so far."""
        with self._changed:
            return self._counters

    def _run(self) -> None:
        while self._wait():
            try:
                answer = self._poster.send("GET")
            except Exception as error:  # noqa: BLE001 - no odd answer may end the beating
                answer = Answer(Fate.FAILED, f"expected an answer, found {type(error).__name__}")
            self._note(answer)

    def _wait(self) -> bool:
        """Wait until a beat is due; False when it is time to stop."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                wait = self._pulse.wait_seconds(now)
                if wait == 0.0:
                    self._pulse.beat(now)
                    return True
                self._changed.wait(wait)
            return False

    def _note(self, answer: Answer) -> None:
        heard = answer.fate is Fate.SENT
        with self._changed:
            before = self._counters
            self._counters = replace(before, sent=before.sent + heard, failed=before.failed + (not heard))
        # Once when it is lost and once when it is back, and not each minute between.
        if heard != self._heard:
            if heard:
                log.info("heartbeat: heard again")
            else:
                log.warning("heartbeat: not heard", extra={"fields": {"why": answer.why}})
        self._heard = heard
