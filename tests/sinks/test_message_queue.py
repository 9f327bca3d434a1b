"""The queue of messages: bounded, in order for each alert, retried with backoff. With a sender that needs no network."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from monitor.config.config import HttpTarget
from monitor.sinks.http_sender import Answer, HttpSender, Outcome
from monitor.sinks.notifications import Key, MessageCounters, MessageQueue
from tests.sinks.receiver import LONG_SECONDS
from tests.waiting import wait_until

LOW: Key = ("density", "all", "accuracy_low")
SILENT: Key = ("density", "all", "silent")


class FakeSender(HttpSender):
    """Records bodies, and waits for the test to give each its outcome."""

    def __init__(self) -> None:
        super().__init__(HttpTarget("http://hook.example/"))
        self.bodies: queue.Queue[bytes | None] = queue.Queue()
        self.outcomes: queue.Queue[Outcome] = queue.Queue()

    def send(self, body: bytes | None) -> Answer:
        """Wait for the outcome."""
        self.bodies.put(body)
        return Answer(self.outcomes.get(timeout=LONG_SECONDS), "a reason")

    def next(self, outcome: Outcome) -> bytes | None:
        """Let the next request end with an outcome; return its body."""
        body = self.bodies.get(timeout=LONG_SECONDS)
        self.outcomes.put(outcome)
        return body


Open = Callable[..., tuple[MessageQueue, FakeSender]]


@pytest.fixture
def opened() -> Iterator[Open]:
    with ExitStack() as stack:

        def open_(**options: Any) -> tuple[MessageQueue, FakeSender]:
            sender = FakeSender()
            one = MessageQueue("webhook", sender, **{"first_wait_seconds": 0.01, "capacity": 8, **options})
            stack.callback(one.close, flush=False)
            return one, sender

        yield open_


def test_messages_are_delivered_in_order(opened: Open) -> None:
    one, sender = opened()
    one.put(LOW, b"1")
    one.put(SILENT, b"2")
    assert one.counters().waiting == 2
    assert one.undelivered() == {LOW, SILENT}
    assert [sender.next(Outcome.SENT), sender.next(Outcome.SENT)] == [b"1", b"2"]
    wait_until(lambda: one.counters() == MessageCounters(sent=2))
    assert one.undelivered() == set()


def test_d15_a_full_queue_drops_its_oldest_message(opened: Open) -> None:
    """Also one that is being sent: it is not retried, and counts once."""
    one, sender = opened(capacity=2)
    for body in (b"1", b"2", b"3"):
        one.put(LOW, body)
        if body == b"1":
            wait_until(lambda: not sender.bodies.empty())
    assert one.counters() == MessageCounters(dropped=1, waiting=2)
    assert [sender.next(outcome) for outcome in (Outcome.RETRY, Outcome.SENT, Outcome.SENT)] == [b"1", b"2", b"3"]
    wait_until(lambda: one.counters() == MessageCounters(sent=2, dropped=1))


def test_d15_a_message_fails_after_too_long(opened: Open) -> None:
    """Waits double: 10, 20 and 40 ms are more than 35."""
    one, sender = opened(retry_seconds=0.035)
    one.put(LOW, b"1")
    attempts = 0
    while one.counters().failed == 0:
        time.sleep(0.001)
        if not sender.bodies.empty():
            sender.next(Outcome.RETRY)
            attempts += 1
    assert attempts <= 3
    assert one.counters() == MessageCounters(failed=1)


def test_d15_a_retried_message_delays_only_its_own_alert(opened: Open) -> None:
    """A `resolved` never overtakes its `firing`."""
    one, sender = opened(first_wait_seconds=0.3)
    one.put(LOW, b"firing")
    one.put(SILENT, b"other")
    one.put(LOW, b"resolved")
    outcomes = (Outcome.RETRY, Outcome.SENT, Outcome.SENT, Outcome.SENT)
    assert [sender.next(outcome) for outcome in outcomes] == [b"firing", b"other", b"firing", b"resolved"]
