"""Messages that wait: bounded, in order for each alert, tried again for a while. No thread, no clock."""

from monitor.sinks.webhook import Key, Outbox, Patience

LOW: Key = ("density", "all", "accuracy_low")
SILENT: Key = ("density", "all", "silent")


def test_messages_leave_in_the_order_they_came() -> None:
    """Sizes 0, 1 and 2."""
    outbox = Outbox(8, Patience())
    assert outbox.next(0.0) is None
    assert outbox.wait_seconds(0.0) is None
    outbox.put(LOW, b"1", 0.0)
    outbox.put(SILENT, b"2", 0.0)
    sent = []
    while (message := outbox.next(1.0)) is not None:
        sent.append(message.body)
        outbox.done(message)
    assert sent == [b"1", b"2"]
    assert len(outbox) == 0


def test_d15_when_it_is_full_the_oldest_goes() -> None:
    """And it says so, for it to be counted."""
    outbox = Outbox(2, Patience())
    assert [outbox.put(LOW, body, 0.0) for body in (b"1", b"2", b"3")] == [False, False, True]
    message = outbox.next(0.0)
    assert message is not None
    assert message.body == b"2"
    assert len(outbox) == 2


def test_d15_a_message_dropped_while_on_its_way_does_not_come_back() -> None:
    """It was taken to be sent, and meanwhile a newer one needed its place."""
    outbox = Outbox(1, Patience())
    outbox.put(LOW, b"1", 0.0)
    on_its_way = outbox.next(0.0)
    assert on_its_way is not None
    assert outbox.put(LOW, b"2", 0.0)
    outbox.again(on_its_way, 0.0)
    message = outbox.next(1000.0)
    assert message is not None
    assert message.body == b"2"


def test_d15_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    """A receiver that is down is not hammered."""
    patience = Patience(first_wait_seconds=1.0, most_wait_seconds=60.0)
    assert [patience.wait_seconds(n) for n in (1, 2, 3, 4, 7, 8, 5000)] == [1.0, 2.0, 4.0, 8.0, 60.0, 60.0, 60.0]


def test_d15_a_message_waits_and_then_is_tried_again() -> None:
    """Not before its time."""
    outbox = Outbox(8, Patience(first_wait_seconds=4.0))
    outbox.put(LOW, b"1", 0.0)
    message = outbox.next(0.0)
    assert message is not None
    assert outbox.again(message, 10.0)
    assert outbox.next(13.9) is None
    assert outbox.wait_seconds(11.0) == 3.0
    assert outbox.next(14.0) is message


def test_d15_it_is_given_up_after_so_many_attempts_or_so_long() -> None:
    """Whichever comes first."""
    for patience, tries in ((Patience(attempts=3), 3), (Patience(age_seconds=6.9, first_wait_seconds=1.0), 3)):
        outbox = Outbox(8, patience)
        outbox.put(LOW, b"1", 0.0)
        now, tried = 0.0, 0
        while (message := outbox.next(now)) is not None:
            tried += 1
            outbox.again(message, now)
            now = message.due
        assert tried == tries
        assert len(outbox) == 0


def test_d15_one_alert_that_cannot_be_told_does_not_hold_up_another() -> None:
    """But a later message about the same alert waits: a `resolved` never overtakes its `firing`."""
    outbox = Outbox(8, Patience(first_wait_seconds=10.0))
    outbox.put(LOW, b"firing", 0.0)
    outbox.put(SILENT, b"other", 0.0)
    outbox.put(LOW, b"resolved", 0.0)
    first = outbox.next(0.0)
    assert first is not None
    outbox.again(first, 0.0)
    second = outbox.next(0.0)
    assert second is not None
    assert second.body == b"other"
    outbox.done(second)
    assert outbox.next(0.0) is None
    assert outbox.next(10.0) is first
    outbox.done(first)
    last = outbox.next(10.0)
    assert last is not None
    assert last.body == b"resolved"
