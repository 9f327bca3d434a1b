"""Which messages are posted, when, and that nothing blocks on them. Against a real server."""

import base64
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from monitor.config.config import Config, HttpTarget, Links, Storage
from monitor.core.alerts import AlertPhase, AlertStatus, AlertType
from monitor.core.baselines.comparison import Baseline, BaselineKind
from monitor.core.change import ChangeStatus, Direction
from monitor.core.estimate import Estimate, Interval
from monitor.core.labels.realised import AuditedAccuracy, ScopeLabels, SegmentLabels
from monitor.core.performance import Metric, Performance, Target
from monitor.core.report import InputFacts, ReferenceFacts
from monitor.sinks.http_sender import HttpSender
from monitor.sinks.manager import SinkManager
from monitor.sinks.message_words import description, summary
from monitor.sinks.notifications import MessageCounters, MessageQueue, WebhookSink
from tests.sinks.receiver import AT, Receiver, alert, report, segment, status
from tests.waiting import wait_until

Open = Callable[..., WebhookSink]

SITE = (("site", "A"),)
FIRING = alert()
OK = alert(phase=AlertPhase.OK, value=0.86)


@pytest.fixture
def to() -> Iterator[Open]:
    """Open sinks that are closed at the end."""
    with ExitStack() as stack:

        def opened(url: str, notified: Any = (), unsure: Any = (), *, timeout_seconds: float = 10.0) -> WebhookSink:
            sender = HttpSender(HttpTarget(url, timeout_seconds=timeout_seconds, allow_http=True))
            sink = WebhookSink(MessageQueue("webhook", sender, first_wait_seconds=0.01), notified, unsure)
            stack.callback(sink.close)
            return sink

        yield opened


def test_a_message_has_every_documented_key(to: Open) -> None:
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.links = Links("https://wiki.example", page="https://cpcmon.example")
        sink.publish(report(segment(OK), segment(FIRING, of=SITE)))
        got = receiver.get()
        wait_until(lambda: sink.queue.counters().sent == 1)
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
        "estimator": "adaptive",
        "metric": None,
        "class": None,
        "baseline": "own",
        "at": "2026-11-16T13:00:00.000Z",
        "since": "2026-11-16T12:59:00.000Z",
        "value": 0.71,
        "threshold": 0.8,
        "field": {"80": [0.6, 0.8], "90": [0.5, 0.85]},
        "records": 5000,
        "change": None,
        "summary": "density, A: estimated accuracy 70.0%",
        "description": "accuracy_low (critical) fires since 2026-11-16 12:59 UTC. Estimated accuracy 70.0%, of 5,000 records."
        " Threshold 80.0%, compared with 71.0%.",
        "links": {
            "page": "https://cpcmon.example/model?name=density&segment=site%3DA",
            "runbook": "https://wiki.example/accuracy.md",
        },
        "test": False,
    }
    assert (got.method, got.headers["content-type"]) == ("POST", "application/json")


_REFERENCE = ReferenceFacts("2.1", "", "", ("healthy", "cancer"), 4000, 0.879, 1.0)


def _told(status: AlertStatus, **changes: Any) -> tuple[str, str]:
    """Return summary and description of an alert of a window with all that an alert may compare, and a baseline."""
    cancer, average = (Target(Metric.SENSITIVITY, 1), Target(Metric.SENSITIVITY))
    audited = AuditedAccuracy(0.68, 0.61, 0.75, 200, 9000, 240, True, AT - 9e5, AT)
    window = replace(
        segment(status, of=(("hospital", "Northlake"), ("scanner", "N2"))),
        results={
            "adaptive": Estimate(0.665, 2000, Interval(0.631, 0.699)),
            "cpc_acc": Estimate(0.682, 2000, Interval(0.641, 0.71)),
        },
        baseline=Baseline(BaselineKind.OWN, 0.893, 2000, 2000, None, None, verified=False),
        performance=(
            Performance(average, 0.81, Interval(0.78, 0.84), 300.0),
            Performance(cancer, 0.627, Interval(0.551, 0.71), 80.0),
        ),
        labels=SegmentLabels(ScopeLabels(5000, 0, None, None), ScopeLabels(9000, 240, None, audited), AT, 60.0),
        last_record_at=AT - 7200.0,
        **changes,
    )
    found = replace(report(window), reference=_REFERENCE, input=InputFacts(0.234, degraded=True))
    return summary(found, window, status), description(found, window, status, AT - 3600.0)


SENSITIVITY = {"metric": Metric.SENSITIVITY, "of_class": "cancer", "estimator": None}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "estimated accuracy 66.5%, was 89.3%"),
        ({"kind": AlertType.CHANGE, "direction": Direction.DOWN}, "estimated accuracy 66.5%, was 89.3%"),
        ({"kind": AlertType.BASELINE_GAP, "estimator": None}, "estimated accuracy 66.5%, reference 87.9%"),
        # The estimate, not the end of its interval that is compared.
        ({"estimator": "cpc_acc"}, "estimated accuracy by cpc_acc 68.2%, was 89.3%"),
        ({"estimator": "audited"}, "audited accuracy 68.0%, threshold 80.0%"),
        (SENSITIVITY, "estimated sensitivity of cancer 62.7%, threshold 80.0%"),
        ({**SENSITIVITY, "phase": AlertPhase.OK}, "resolved, estimated sensitivity of cancer 62.7% now"),
        ({"kind": AlertType.SILENT, "value": None}, "no records since 2026-11-16 11:00 UTC"),
        (
            {"kind": AlertType.DEGRADED_INPUT, "value": None},
            "records are rejected or look wrong, rejected 23.4%",
        ),
        (
            {"kind": AlertType.OUTPUT_DRIFT, "value": 0.31, "threshold": 0.14},
            "the model answers differently than it did: 0.31 from its baseline, limit 0.14",
        ),
        (
            {"kind": AlertType.DISAGREEMENT, "value": 0.081, "threshold": 0.03},
            "the estimators disagree: 8.1 points, limit 3.0",
        ),
        ({"phase": AlertPhase.OK}, "resolved, estimated accuracy 66.5% now"),
        ({"phase": AlertPhase.OK, "kind": AlertType.SILENT, "value": None}, "resolved, records arrive again"),
    ],
)
def test_the_summary_has_model_segment_and_number(changes: dict[str, Any], said: str) -> None:
    assert _told(replace(FIRING, **changes))[0] == f"density, Northlake N2: {said}"


def test_the_description_of_a_resolved_alert_has_the_numbers_of_now() -> None:
    text = _told(replace(FIRING, phase=AlertPhase.OK, value=0.86))[1]
    assert text == (
        "accuracy_low (critical) fired from 2026-11-16 12:00 UTC to 2026-11-16 13:00 UTC. Estimated accuracy 66.5%,"
        " interval 63.1% to 69.9%, of 5,000 records. Threshold 80.0%, compared with 86.0%. Baseline 89.3% of 2,000 records"
        " (own, unverified)."
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            SENSITIVITY,
            "Estimated sensitivity of cancer 62.7%, interval 55.1% to 71.0%, of 5,000 records. Threshold 80.0%, compared with 71.0%.",
        ),
        (
            {"estimator": "audited"},
            "Audited accuracy 68.0%, interval 61.0% to 75.0%, from 200 labels. Threshold 80.0%, compared with 71.0%.",
        ),
    ],
)
def test_the_numbers_of_a_description_are_those_that_the_alert_is_about(changes: dict[str, Any], said: str) -> None:
    """The baseline is an accuracy: beside a sensitivity it would be taken for one."""
    assert _told(replace(FIRING, **changes))[1] == f"accuracy_low (critical) fires since 2026-11-16 12:59 UTC. {said}"


def test_the_description_of_a_change_has_the_evidence_and_where_it_began() -> None:
    fires = replace(FIRING, kind=AlertType.CHANGE, value=9.1, threshold=7.4, estimator=None, direction=Direction.DOWN)
    change = ChangeStatus(Direction.DOWN, 9.1, 7.4, 0.02, AT - 1500.0, 340, 60)
    text = _told(fires, changes=(change,))[1]
    assert text.endswith(
        "Evidence of a drop 10^9.1, budget 10^7.4. It began about 2026-11-16 12:35 UTC, 340 records ago."
    )


def test_a_change_says_where_it_began(to: Open) -> None:
    """Of the direction that the alert is about."""
    began = FIRING.since - 1500.0
    fires = replace(FIRING, kind=AlertType.CHANGE, value=9.1, threshold=7.4, estimator=None, direction=Direction.DOWN)
    changes = (
        ChangeStatus(Direction.UP, -1.0, 7.4, 0.03, FIRING.since, 1, 60),
        ChangeStatus(Direction.DOWN, 9.1, 7.4, 0.02, began, 340, 60),
    )
    with Receiver() as receiver:
        to(receiver.url()).publish(report(replace(segment(fires), changes=changes)))
        body = receiver.get().json
    assert (body["kind"], body["value"], body["threshold"], body["field"]) == ("change", 9.1, 7.4, None)
    assert body["change"] == {
        "direction": "down",
        "tolerance": 0.02,
        "began_at": "2026-11-16T12:34:00.000Z",
        "records_since": 340,
    }


def test_an_alert_is_two_messages_for_any_number_of_reports(to: Open) -> None:
    """Pending sends nothing, recovering still fires, held changes nothing."""
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
        wait_until(lambda: sink.queue.counters().sent == 3)
        assert receiver.received.empty()
    assert [(body["status"], body["reason"]) for body in bodies] == [
        ("firing", "fired"),
        ("resolved", "recovered"),
        ("firing", "fired"),
    ]
    assert len({body["id"] for body in bodies}) == 3


def test_models_segments_and_alerts_are_separate(to: Open) -> None:
    with Receiver() as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING, alert("silent")), segment(FIRING, of=SITE)))
        sink.publish(report(segment(FIRING), model="other"))
        sink.publish(report(segment(OK), model="other"))
        bodies = [receiver.get().json for _ in range(5)]
    sent = {tuple(body[key] for key in ("model", "segment", "alert", "status")) for body in bodies}
    assert sent == {
        ("density", "all", "accuracy_low", "firing"),
        ("density", "all", "silent", "firing"),
        ("density", "site=A", "accuracy_low", "firing"),
        ("other", "all", "accuracy_low", "firing"),
        ("other", "all", "accuracy_low", "resolved"),
    }


@pytest.mark.parametrize("how", ["segment forgotten", "alert no longer configured", "model no longer configured"])
def test_e17_an_alert_that_is_no_longer_evaluated_is_resolved_as_gone(to: Open, how: str) -> None:
    """The receiver does not wait for its end for ever, and does not take it for a recovery."""
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
        wait_until(lambda: sink.queue.counters().sent == 2)
        assert receiver.received.empty()
    assert (body["status"], body["reason"], body["segment"], body["value"]) == ("resolved", "gone", "site=A", None)


def test_values_that_are_not_numbers_are_null(to: Open) -> None:
    with Receiver() as receiver:
        to(receiver.url()).publish(report(segment(alert(value=float("nan")))))
        assert receiver.get().json["value"] is None


def test_text_from_records_stays_within_the_body(to: Open) -> None:
    """The name of a segment comes from records: it never reaches the path or a header."""
    hostile = (("site", 'A"\r\nX-Injected: 1\u2028/../'),)
    with Receiver() as receiver:
        to(receiver.url()).publish(report(segment(FIRING, of=hostile)))
        got = receiver.get()
    assert got.json["segment"] == 'site=A"\r\nX-Injected: 1\u2028/../'
    assert got.path == "/hook"
    assert "x-injected" not in got.headers
    assert got.body.isascii()


def test_e8_a_restart_repeats_no_message(to: Open) -> None:
    """A change during the downtime is sent."""
    notified = [("density", "all", "accuracy_low"), ("density", "site=A", "accuracy_low")]
    with Receiver() as receiver:
        sink = to(receiver.url(), notified)
        sink.publish(report(segment(FIRING, alert("silent", AlertPhase.PENDING)), segment(FIRING, of=SITE)))
        sink.publish(report(segment(OK), model="other"))
        sink.publish(report(segment(FIRING, alert("silent", AlertPhase.PENDING)), segment(OK, of=SITE)))
        body = receiver.get().json
        wait_until(lambda: sink.queue.counters().sent == 1)
        assert receiver.received.empty()
        assert sink.firing == {("density", "all", "accuracy_low")}
    assert (body["segment"], body["status"], body["reason"]) == ("site=A", "resolved", "recovered")


def test_the_alerts_of_a_model_that_was_removed_before_a_start_are_resolved_as_gone(tmp_path: Path) -> None:
    manager = SinkManager()
    with Receiver() as receiver:
        webhook = HttpTarget(receiver.url(), allow_http=True)
        manager.configured(Config(Storage(tmp_path), (), (), webhook=webhook), [("density", "all", "accuracy_low")])
        body = receiver.get().json
        manager.close()
    assert (body["model"], body["status"], body["reason"]) == ("density", "resolved", "gone")


def test_e8_a_reload_that_replaces_the_webhook_repeats_no_message(to: Open) -> None:
    with Receiver() as first, Receiver() as second:
        old = to(first.url())
        old.publish(report(segment(FIRING)))
        wait_until(lambda: old.queue.counters().sent == 1)
        new = to(second.url(), *old.delivered())
        new.publish(report(segment(FIRING)))
        new.publish(report(segment(OK)))
        assert second.get().json["status"] == "resolved"


def test_a_webhook_that_replaces_another_sends_the_end_that_it_could_not_deliver(to: Open) -> None:
    with Receiver(status(204), status(503)) as first, Receiver() as second:
        old = to(first.url())
        old.publish(report(segment(FIRING)))
        wait_until(lambda: old.queue.counters().sent == 1)
        old.publish(report(segment(OK)))
        new = to(second.url(), *old.delivered())
        new.publish(report(segment(OK)))
        assert second.get().json["status"] == "resolved"


@pytest.mark.parametrize("notified", [[("density", "all", "accuracy_low")], []], ids=["fired", "quiet"])
@pytest.mark.parametrize(("now", "told"), [(FIRING, "firing"), (OK, "resolved")])
def test_an_alert_gets_one_message_if_it_is_unsure_whether_the_receiver_knows_its_last_change(
    to: Open, now: AlertStatus, told: str, notified: Any
) -> None:
    """The daemon was killed before it stored what it had delivered."""
    with Receiver() as receiver:
        sink = to(receiver.url(), notified, [("density", "all", "accuracy_low")])
        sink.publish(report(segment(now)))
        sink.publish(report(segment(now)))
        sink.publish(report(segment(now), segment(FIRING, of=SITE)))
        assert [(got["segment"], got["status"]) for got in (receiver.get().json, receiver.get().json)] == [
            ("all", told),
            ("site=A", "firing"),
        ]


def test_d3_user_and_password_are_sent_and_shown_nowhere(to: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the log nor in the printed configuration."""
    caplog.set_level(logging.DEBUG)
    encoded = base64.b64encode(b"nurse:s3cr3t").decode()
    with Receiver(status(500), status(500), status(404)) as receiver:
        url = receiver.url("/hook/t0ken?key=k3y", "nurse:s3cr3t@")
        sink = to(url)
        sink.publish(report(segment(FIRING)))
        got = receiver.get()
        wait_until(lambda: sink.queue.counters().failed == 1)
    assert got.headers["authorization"] == f"Basic {encoded}"
    assert got.path == "/hook/t0ken?key=k3y"
    shown = "".join(str(record.__dict__) for record in caplog.records) + repr(HttpTarget(url)) + repr(sink)
    assert "found 500" in shown
    assert "found 404" in shown
    for secret in ("nurse", "s3cr3t", encoded, "t0ken", "k3y"):
        assert secret not in shown


def test_d14_a_redirect_is_counted_and_not_followed(to: Open) -> None:
    with Receiver(status(307, Location="http://169.254.169.254/latest/meta-data/")) as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING)))
        wait_until(lambda: sink.queue.counters().redirected == 1)
        receiver.get()
        assert receiver.received.empty()
    assert sink.queue.counters() == MessageCounters(redirected=1)


def test_d14_a_forbidden_address_is_counted_as_failed(to: Open) -> None:
    sink = to("http://169.254.169.254/latest/meta-data/")
    sink.publish(report(segment(FIRING)))
    wait_until(lambda: sink.queue.counters() == MessageCounters(failed=1))


def test_d15_a_failing_receiver_gets_the_message_when_it_is_back(to: Open) -> None:
    """In order."""
    with Receiver(status(500), status(503), status(429), status(204)) as receiver:
        sink = to(receiver.url())
        sink.publish(report(segment(FIRING)))
        sink.publish(report(segment(OK)))
        bodies = [receiver.get().json for _ in range(5)]
        wait_until(lambda: sink.queue.counters().sent == 2)
    assert [body["status"] for body in bodies] == ["firing"] * 4 + ["resolved"]
    assert len({body["id"] for body in bodies}) == 2
    assert sink.queue.counters() == MessageCounters(sent=2)


def test_d15_publishing_never_blocks_and_the_queue_is_bounded(to: Open) -> None:
    """The receiver never answers, and a thousand alerts fire: the oldest messages are dropped."""
    ended = []

    def stall(handler: BaseHTTPRequestHandler) -> None:
        ended.append(handler.server.stop.wait(300))  # type: ignore[attr-defined]

    with Receiver(stall) as receiver:
        sink = to(receiver.url(), timeout_seconds=300.0)
        sink.publish(report(segment(FIRING)))
        receiver.get()
        for number in range(1000):
            sink.publish(report(segment(FIRING, alert(f"alert_{number}"))))
        # Each report but the first starts one alert and ends the previous one.
        assert sink.queue.counters().waiting == 256
        assert sink.queue.counters().dropped == 1 + 1999 - 256
        assert ("density", "all", "alert_999") in sink.queue.undelivered()
        sink.close()
        assert ended == [], "publishing or closing waited for the answer"
    assert sink.queue.counters() == MessageCounters(dropped=2000)


def test_close_sends_queued_messages(to: Open) -> None:
    with Receiver() as receiver:
        sink = to(receiver.url())
        for number in range(10):
            sink.publish(report(segment(FIRING), model=f"m{number}"))
        sink.close()
        assert sink.queue.counters().sent + sink.queue.counters().dropped == 10
        assert sink.queue.counters().sent >= 1
        assert sink.queue.counters().waiting == 0
