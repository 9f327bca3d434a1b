"""Delays double up to a limit and end with a success."""

from monitor.core.backoff import Backoff


def test_delays_double_up_to_the_limit() -> None:
    backoff = Backoff(first_seconds=1.0, longest_seconds=5.0)
    delays = []
    for _ in range(4):
        backoff.failed(100.0)
        delays.append(backoff.left(100.0))
    assert delays == [1.0, 2.0, 4.0, 5.0]


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(failures=5_000)
    assert backoff.seconds == 60.0


def test_a_success_ends_the_delays() -> None:
    backoff = Backoff()
    backoff.failed(0.0)
    backoff.failed(1.0)
    backoff.succeeded()
    assert (backoff.left(1.0), backoff.seconds) == (0.0, 0.0)
    backoff.failed(1.0)
    assert backoff.left(1.5) == 0.5
