"""Calls a URL after successful evaluations, so that an outside system notices when they stop."""

import math
import time

from monitor.core.estimate import WindowState
from monitor.core.report import ModelReport
from monitor.sinks.message_queue import MessageQueue


class HeartbeatSink:
    """Sends at most one heartbeat in `every_seconds`, and none without a report."""

    def __init__(self, queue: MessageQueue, every_seconds: float) -> None:
        self.queue, self._every = queue, every_seconds
        self._due = -math.inf
        """When the latest heartbeat was or will be sent."""

    def publish(self, report: ModelReport) -> None:
        """Queue a heartbeat, unless one is queued already or the evaluation failed in every window."""
        if all(segment.state is WindowState.ERROR for segment in report.segments):
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
