"""The contract of a sink: it is told of each report, and brings it to where people look."""

from typing import Protocol

from monitor.core.report import ModelReport


class Sink(Protocol):
    """Where reports go."""

    def publish(self, report: ModelReport) -> None:
        """Take a report. Called on the threads that evaluate, by one at a time; it must not wait for anybody."""

    def forget(self, model: str) -> None:
        """A model is no longer configured: show nothing of it any more."""

    def close(self) -> None:
        """Let go of everything; what can be delivered within a second or two still is."""
