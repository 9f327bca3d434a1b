"""The queue of messages: bounded, in order for each alert, retried with backoff. With a sender that needs no network."""

import queue
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from monitor.config.config import Webhook
from monitor.sinks.http_sender import Answer, HttpSender, Outcome
from monitor.sinks.message_queue import Key, MessageCounters, MessageQueue, RetryPolicy
from tests.sinks.receiver import LONG_SECONDS, eventually

LOW: Key = ("density", "all", "accuracy_low")
SILENT: Key = ("density", "all", "silent")
QUICK = RetryPolicy(attempts=3, first_wait_seconds=0.01)


class FakeSender(HttpSender):
    """Records bodies, and waits for the test to give each its outcome."""

    def __init__(self) -> None:
        super().__init__(Webhook("http://hook.example/"))
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

        def open_(retry: RetryPolicy = QUICK, capacity: int = 8) -> tuple[MessageQueue, FakeSender]:
            sender = FakeSender()
            one = MessageQueue("webhook", sender, retry, capacity)
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
    eventually(lambda: one.counters() == MessageCounters(sent=2))
    assert one.undelivered() == set()


def test_d15_a_full_queue_drops_its_oldest_message(opened: Open) -> None:
    """Also one that is being sent: it is not retried, and counts once."""
    one, sender = opened(capacity=2)
    for body in (b"1", b"2", b"3"):
        one.put(LOW, body)
        if body == b"1":
            eventually(lambda: not sender.bodies.empty())
    assert one.counters() == MessageCounters(dropped=1, waiting=2)
    assert [sender.next(outcome) for outcome in (Outcome.RETRY, Outcome.SENT, Outcome.SENT)] == [b"1", b"2", b"3"]
    eventually(lambda: one.counters() == MessageCounters(sent=2, dropped=1))


def test_d15_waits_double_up_to_the_longest() -> None:
    policy = RetryPolicy(first_wait_seconds=1.0, max_wait_seconds=60.0)
    assert [policy.wait_seconds(n) for n in (1, 2, 3, 4, 7, 8, 5000)] == [1.0, 2.0, 4.0, 8.0, 60.0, 60.0, 60.0]


@pytest.mark.parametrize(
    "policy", [QUICK, RetryPolicy(age_seconds=0.035, first_wait_seconds=0.01)], ids=["attempts", "age"]
)
def test_d15_a_message_fails_after_too_many_attempts_or_too_long(opened: Open, policy: RetryPolicy) -> None:
    one, sender = opened(policy)
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
    one, sender = opened(RetryPolicy(first_wait_seconds=0.3))
    one.put(LOW, b"firing")
    one.put(SILENT, b"other")
    one.put(LOW, b"resolved")
    outcomes = (Outcome.RETRY, Outcome.SENT, Outcome.SENT, Outcome.SENT)
    assert [sender.next(outcome) for outcome in outcomes] == [b"firing", b"other", b"firing", b"resolved"]
