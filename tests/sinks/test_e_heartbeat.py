"""The heartbeat stops when evaluation stops, though the process lives."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from monitor.config.config import Heartbeat
from monitor.core.estimate import WindowState
from monitor.sinks.heartbeat import HeartbeatCounters, HeartbeatSink, Pulse
from tests.sinks.receiver import Receiver, eventually, report, segment, status

Open = Callable[..., HeartbeatSink]


@pytest.fixture
def to() -> Iterator[Open]:
    """Open sinks that are closed in the end."""
    with ExitStack() as stack:

        def opened(url: str, every_seconds: float = 0.01) -> HeartbeatSink:
            sink = HeartbeatSink(Heartbeat(url, every_seconds=every_seconds, allow_http=True))
            stack.callback(sink.close)
            return sink

        yield opened


def settled(sink: HeartbeatSink, count: int) -> None:
    """Wait until so many beats have been judged."""
    eventually(lambda: sink.counters().sent + sink.counters().failed == count)


def test_e19_without_a_report_there_is_no_beat() -> None:
    """Neither at the start nor ever after the last one."""
    pulse = Pulse(60.0)
    assert pulse.wait_seconds(0.0) is None
    pulse.tell()
    assert pulse.wait_seconds(0.0) == 0.0
    pulse.beat(0.0)
    for now in (60.0, 3600.0, 1e9):
        assert pulse.wait_seconds(now) is None


def test_e19_beats_are_no_closer_than_asked_for() -> None:
    """Reports each ten seconds, a beat each minute."""
    pulse, beats = Pulse(60.0), []
    for now in range(0, 300, 10):
        pulse.tell()
        if pulse.wait_seconds(now) == 0.0:
            pulse.beat(now)
            beats.append(now)
    assert beats == [0, 60, 120, 180, 240]


def test_e19_a_report_shortly_before_a_beat_is_due_makes_it_when_it_is() -> None:
    """Evaluations that come a little early do not halve the rate."""
    pulse = Pulse(60.0)
    pulse.tell()
    pulse.beat(0.0)
    pulse.tell()
    assert pulse.wait_seconds(59.5) == 0.5


def test_e19_each_report_makes_a_beat_and_silence_makes_none(to: Open) -> None:
    """Over the wire: as many requests as reports, and none after."""
    with Receiver() as receiver:
        sink = to(receiver.url("/ping?x=1"))
        for count in range(1, 4):
            sink.publish(report(segment()))
            got = receiver.get()
            assert (got.method, got.path, got.body) == ("GET", "/ping?x=1", b"")
            settled(sink, count)
        sink.forget("density")
        sink.close()
        assert receiver.received.empty()
    assert sink.counters() == HeartbeatCounters(sent=3)


def test_e19_an_evaluation_that_failed_everywhere_is_no_success(to: Open) -> None:
    """One window that could be judged is enough, and so is one that holds too few records: it was looked at."""
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(state=WindowState.ERROR), segment(of=(("site", "A"),), state=WindowState.ERROR)))
        sink.publish(report())
        sink.publish(report(segment(state=WindowState.ERROR), segment(of=(("site", "A"),), state=WindowState.WARMING)))
        receiver.get()
        eventually(lambda: sink.counters().sent == 1)
        sink.close()
        assert receiver.received.empty()


def test_e19_a_beat_that_fails_is_counted_and_not_repeated(to: Open) -> None:
    """A late beat would vouch for an evaluation of the past."""
    with Receiver(status(500), status(302, Location="/elsewhere"), status(200)) as receiver:
        sink = to(receiver.url())
        for count in range(1, 4):
            sink.publish(report(segment()))
            receiver.get()
            settled(sink, count)
        assert receiver.received.empty()
    assert sink.counters() == HeartbeatCounters(sent=1, failed=2)


def test_e19_a_receiver_that_never_answers_holds_up_nobody(to: Open) -> None:
    """Publishing goes on, and so does closing."""
    with Receiver(lambda handler: handler.server.stop.wait(60) and None) as receiver:  # type: ignore[attr-defined]
        sink = to(receiver.url())
        sink.publish(report(segment()))
        receiver.get()
        for _ in range(1000):
            sink.publish(report(segment()))
        sink.close()
        assert sink.counters() == HeartbeatCounters()
        assert receiver.received.empty()
