"""The heartbeat stops when evaluation stops, though the process lives."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from monitor.config.config import HttpTarget
from monitor.core.estimate import WindowState
from monitor.sinks.http_sender import HttpSender
from monitor.sinks.notifications import HeartbeatSink, MessageQueue
from tests.sinks.receiver import Receiver, report, segment, status
from tests.waiting import wait_until

Open = Callable[..., HeartbeatSink]


@pytest.fixture
def to() -> Iterator[Open]:
    """Open sinks that are closed at the end."""
    with ExitStack() as stack:

        def opened(url: str, every_seconds: float = 0.01) -> HeartbeatSink:
            sender = HttpSender(HttpTarget(url, allow_http=True))
            sink = HeartbeatSink(MessageQueue("heartbeat", sender, retry_seconds=0.0), every_seconds)
            stack.callback(sink.close)
            return sink

        yield opened


def finished(sink: HeartbeatSink) -> tuple[int, int]:
    """Return how many heartbeats were sent, and how many failed."""
    counters = sink.queue.counters()
    return counters.sent, counters.failed + counters.redirected


def test_e19_reports_cause_heartbeats_at_the_configured_interval(to: Open) -> None:
    """The first at once; a report between two heartbeats causes the next one when it is due."""
    with Receiver() as receiver:
        sink = to(receiver.url(), every_seconds=0.3)
        times = []
        for _ in range(3):
            sink.publish(report(segment()))
            sink.publish(report(segment()))
            receiver.get()
            times.append(time.monotonic())
        sink.close()
        assert receiver.received.empty()
    assert times[1] - times[0] > 0.2
    assert times[2] - times[1] > 0.2


def test_e19_each_report_causes_a_heartbeat_and_silence_causes_none(to: Open) -> None:
    with Receiver() as receiver:
        sink = to(receiver.url("/ping?x=1"))
        for count in range(1, 4):
            sink.publish(report(segment()))
            got = receiver.get()
            assert (got.method, got.path, got.body) == ("GET", "/ping?x=1", b"")
            wait_until(lambda count=count: finished(sink) == (count, 0))  # type: ignore[misc]
        sink.forget("density")
        sink.close()
        assert receiver.received.empty()


def test_e19_an_evaluation_that_failed_in_every_window_causes_no_heartbeat(to: Open) -> None:
    """One window that was evaluated is enough, also if it holds too few records."""
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(state=WindowState.ERROR), segment(of=(("site", "A"),), state=WindowState.ERROR)))
        sink.publish(report())
        sink.publish(report(segment(state=WindowState.ERROR), segment(of=(("site", "A"),), state=WindowState.WARMING)))
        receiver.get()
        wait_until(lambda: finished(sink) == (1, 0))
        sink.close()
        assert receiver.received.empty()


def test_e19_a_failed_heartbeat_is_counted_and_not_retried(to: Open, caplog: pytest.LogCaptureFixture) -> None:
    """A late heartbeat would report a past evaluation. The first failure is logged, and the recovery."""
    caplog.set_level("INFO")
    with Receiver(status(500), status(302, Location="/elsewhere"), status(200)) as receiver:
        sink = to(receiver.url())
        for sent, failed in ((0, 1), (0, 2), (1, 2)):
            sink.publish(report(segment()))
            receiver.get()
            wait_until(lambda wanted=(sent, failed): finished(sink) == wanted)  # type: ignore[misc]
        assert receiver.received.empty()
        wait_until(lambda: len(caplog.records) == 2)
    assert [one.getMessage() for one in caplog.records] == [
        "heartbeat: delivery failed",
        "heartbeat: delivery works again",
    ]


def test_e19_a_receiver_that_never_answers_blocks_nothing(to: Open) -> None:
    """Neither publishing nor closing; at most one heartbeat waits behind the one that is being sent."""
    with Receiver(lambda handler: handler.server.stop.wait(60) and None) as receiver:  # type: ignore[attr-defined]
        sink = to(receiver.url())
        sink.publish(report(segment()))
        receiver.get()
        for _ in range(1000):
            sink.publish(report(segment()))
        assert sink.queue.counters().waiting <= 2
        sink.close()
        assert finished(sink) == (0, 0)
        assert receiver.received.empty()
