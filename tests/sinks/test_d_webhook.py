"""Which messages are posted, when, and that nothing waits for them. Against a real server."""

import base64
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from monitor.config.config import Webhook
from monitor.core.alerts import AlertPhase
from monitor.errors import UsageError
from monitor.sinks.webhook import Patience, WebhookCounters, WebhookSink
from tests.sinks.receiver import Receiver, alert, eventually, report, segment, status

Open = Callable[..., WebhookSink]

SITE = (("site", "A"),)
QUICK = Patience(attempts=5, first_wait_seconds=0.01, most_wait_seconds=0.05)
FIRING = alert()
OK = alert(phase=AlertPhase.OK, value=0.86)


@pytest.fixture
def to() -> Iterator[Open]:
    """Open sinks that are closed in the end."""
    with ExitStack() as stack:

        def opened(url: str, already: Any = (), *, timeout_seconds: float = 10.0, **options: Any) -> WebhookSink:
            webhook = Webhook(url, timeout_seconds=timeout_seconds, allow_http=True)
            sink = WebhookSink(webhook, already, **{"patience": QUICK} | options)
            stack.callback(sink.close)
            return sink

        yield opened


def test_a_message_says_what_fires_where_since_when_and_by_how_much(to: Open) -> None:
    """The whole body: its keys are public."""
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(OK), segment(FIRING, of=SITE)))
        got = receiver.get()
        eventually(lambda: sink.counters().sent == 1)
        assert receiver.received.empty()
    body = got.json
    assert len(body.pop("id")) == 32
    assert body == {
        "version": 1,
        "status": "firing",
        "reason": "fired",
        "model": "density",
        "segment": "site=A",
        "alert": "accuracy_low",
        "kind": "accuracy",
        "severity": "critical",
        "estimator": "consensus",
        "at": "2026-11-16T13:00:00.000Z",
        "since": "2026-11-16T12:59:00.000Z",
        "value": 0.71,
        "threshold": 0.8,
        "records": 5000,
    }
    assert (got.method, got.headers["content-type"]) == ("POST", "application/json")


def test_an_episode_is_two_messages_however_many_reports(to: Open) -> None:
    """Pending is no news, recovering still fires, held changes nothing."""
    phases = [
        AlertPhase.OK,
        AlertPhase.PENDING,
        AlertPhase.FIRING,
        AlertPhase.FIRING,
        AlertPhase.RECOVERING,
        AlertPhase.FIRING,
        AlertPhase.OK,
        AlertPhase.OK,
    ]
    with Receiver() as receiver:
        sink = to(receiver.url())
        for phase in phases:
            sink.publish(report(segment(replace(FIRING, phase=phase, held=phase is AlertPhase.RECOVERING))))
        bodies = [receiver.get().json for _ in range(2)]
        sink.publish(report(segment(replace(FIRING, since=FIRING.since + 7200))))
        bodies.append(receiver.get().json)
        eventually(lambda: sink.counters().sent == 3)
        assert receiver.received.empty()
    assert [(body["status"], body["reason"]) for body in bodies] == [
        ("firing", "fired"),
        ("resolved", "recovered"),
        ("firing", "fired"),
    ]
    assert len({body["id"] for body in bodies}) == 3


def test_models_segments_and_alerts_are_told_apart(to: Open) -> None:
    """A report of one model says nothing of another."""
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING, alert("silent")), segment(FIRING, of=SITE)))
        sink.publish(report(segment(FIRING), model="other"))
        sink.publish(report(segment(OK), model="other"))
        bodies = [receiver.get().json for _ in range(5)]
    told = {tuple(body[key] for key in ("model", "segment", "alert", "status")) for body in bodies}
    assert told == {
        ("density", "all", "accuracy_low", "firing"),
        ("density", "all", "silent", "firing"),
        ("density", "site=A", "accuracy_low", "firing"),
        ("other", "all", "accuracy_low", "firing"),
        ("other", "all", "accuracy_low", "resolved"),
    }


@pytest.mark.parametrize("how", ["segment forgotten", "alert no longer configured", "model no longer configured"])
def test_e17_what_is_no_longer_watched_is_resolved_as_gone(to: Open, how: str) -> None:
    """Nobody waits for ever for the end of an alert, and nobody reads it as a recovery."""
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(OK), segment(FIRING, of=SITE)))
        assert receiver.get().json["status"] == "firing"
        if how == "segment forgotten":
            sink.publish(report(segment(OK)))
        elif how == "alert no longer configured":
            sink.publish(report(segment(OK), segment(of=SITE)))
        else:
            sink.forget("density")
        body = receiver.get().json
        sink.publish(report(segment(OK)))
        sink.forget("density")
        eventually(lambda: sink.counters().sent == 2)
        assert receiver.received.empty()
    assert (body["status"], body["reason"], body["segment"], body["value"]) == ("resolved", "gone", "site=A", None)


def test_values_that_are_no_numbers_are_null(to: Open) -> None:
    """JSON has no word for them."""
    with Receiver() as receiver:
        to(receiver.url()).publish(report(segment(alert(value=float("nan")))))
        assert receiver.get().json["value"] is None


def test_text_of_records_stays_within_the_body(to: Open) -> None:
    """A segment's name is what records say: it never reaches the path or a header."""
    odd = (("site", 'A"\r\nX-Injected: 1\u2028/../'),)
    with Receiver() as receiver:
        to(receiver.url()).publish(report(segment(FIRING, of=odd)))
        got = receiver.get()
    assert got.json["segment"] == 'site=A"\r\nX-Injected: 1\u2028/../'
    assert got.path == "/hook"
    assert "x-injected" not in got.headers
    assert got.body.isascii()


def test_e8_a_restart_tells_nothing_that_was_told_before(to: Open) -> None:
    """Firing before and after: silence. What changed while it was down is told."""
    already = [("density", "all", "accuracy_low"), ("density", "site=A", "accuracy_low")]
    with Receiver() as receiver:
        sink = to(receiver.url(), already)
        sink.publish(report(segment(FIRING, alert("silent", AlertPhase.PENDING)), segment(FIRING, of=SITE)))
        sink.publish(report(segment(OK), model="other"))
        sink.publish(report(segment(FIRING, alert("silent", AlertPhase.PENDING)), segment(OK, of=SITE)))
        body = receiver.get().json
        eventually(lambda: sink.counters().sent == 1)
        assert receiver.received.empty()
        assert sink.firing == {("density", "all", "accuracy_low")}
    assert (body["segment"], body["status"], body["reason"]) == ("site=A", "resolved", "recovered")


def test_e8_a_sink_that_takes_the_place_of_another_is_told_what_that_one_knew(to: Open) -> None:
    """A reload that changes the URL notifies nobody again."""
    with Receiver() as first, Receiver() as second:
        old = to(first.url())
        old.publish(report(segment(FIRING)))
        first.get()
        new = to(second.url(), old.firing)
        new.publish(report(segment(FIRING)))
        new.publish(report(segment(OK)))
        assert second.get().json["status"] == "resolved"


def test_d3_user_and_password_are_sent_and_shown_nowhere(to: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the log of failures, not in the configuration when it is printed."""
    caplog.set_level(logging.DEBUG)
    encoded = base64.b64encode(b"nurse:s3cr3t").decode()
    with Receiver(status(500), status(500), status(404)) as receiver:
        url = receiver.url("/hook/t0ken?key=k3y", "nurse:s3cr3t@")
        sink = to(url)
        sink.publish(report(segment(FIRING)))
        got = receiver.get()
        eventually(lambda: sink.counters().failed == 1)
    assert got.headers["authorization"] == f"Basic {encoded}"
    assert got.path == "/hook/t0ken?key=k3y"
    shown = "".join(str(record.__dict__) for record in caplog.records) + repr(Webhook(url)) + repr(sink)
    assert "found 500" in shown
    assert "found 404" in shown
    for secret in ("nurse", "s3cr3t", encoded, "t0ken", "k3y"):
        assert secret not in shown


def test_d14_a_redirect_is_counted_and_not_followed(to: Open) -> None:
    """Nor tried again."""
    with Receiver(status(307, Location="http://169.254.169.254/latest/meta-data/")) as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING)))
        eventually(lambda: sink.counters().redirected == 1)
        receiver.get()
        assert receiver.received.empty()
    assert sink.counters() == WebhookCounters(redirected=1)


def test_d14_an_address_that_is_refused_is_counted_as_failed(to: Open) -> None:
    """At once."""
    sink = to("http://169.254.169.254/latest/meta-data/")
    sink.publish(report(segment(FIRING)))
    eventually(lambda: sink.counters() == WebhookCounters(failed=1))


def test_d14_plain_http_must_be_asked_for() -> None:
    """Alerts go encrypted unless somebody insists."""
    with pytest.raises(UsageError, match="expected https://, found http://"):
        WebhookSink(Webhook("http://hook.example/"))


def test_d15_a_failing_receiver_gets_the_message_when_it_is_back(to: Open) -> None:
    """In the order in which things happened."""
    with Receiver(status(500), status(503), status(429), status(204)) as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING)))
        sink.publish(report(segment(OK)))
        bodies = [receiver.get().json for _ in range(5)]
        eventually(lambda: sink.counters().sent == 2)
    assert [body["status"] for body in bodies] == ["firing"] * 4 + ["resolved"]
    assert len({body["id"] for body in bodies}) == 2
    assert sink.counters() == WebhookCounters(sent=2)


def test_d15_a_receiver_that_stays_broken_is_given_up(to: Open) -> None:
    """After so many attempts; the message is counted as failed, and the next one is tried."""
    with Receiver(status(500)) as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING)))
        eventually(lambda: sink.counters() == WebhookCounters(failed=1))
        assert receiver.received.qsize() == QUICK.attempts


def test_d15_publishing_never_waits_and_the_queue_is_bounded(to: Open) -> None:
    """The receiver never answers, and a thousand alerts fire: each is queued at once and the oldest are dropped."""
    ended = []

    def stall(handler: BaseHTTPRequestHandler) -> None:
        ended.append(handler.server.stop.wait(300))  # type: ignore[attr-defined]

    with Receiver(stall) as receiver:
        sink = to(receiver.url(), timeout_seconds=300.0)
        sink.publish(report(segment(FIRING)))
        receiver.get()
        for number in range(1000):
            sink.publish(report(segment(FIRING, alert(f"alert_{number}"))))
        # Each report but the first begins one alert and ends the one before it.
        assert sink.waiting() == 256
        assert sink.counters().dropped == 1 + 1999 - 256
        assert ("density", "all", "alert_999") in sink.undelivered()
        sink.close()
        assert ended == [], "neither publishing nor closing waited for the answer"
    assert sink.counters() == WebhookCounters(dropped=2000)


def test_what_can_be_sent_at_the_stop_is_sent(to: Open) -> None:
    """Closing waits for it a moment."""
    with Receiver() as receiver:
        sink = to(receiver.url())
        for number in range(10):
            sink.publish(report(segment(FIRING), model=f"m{number}"))
        sink.close()
        assert sink.counters().sent + sink.counters().dropped == 10
        assert sink.counters().sent >= 1
        assert sink.waiting() == 0
