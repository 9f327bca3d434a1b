"""The message and the command in `docs/notify.md`."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.config.config import HttpTarget
from monitor.sinks.http_sender import HttpSender
from monitor.sinks.notifications import MessageQueue, WebhookSink
from tests.conftest import ROOT, Ran
from tests.sinks.receiver import Receiver, alert, report, segment, status

PAGE = (ROOT / "docs" / "notify.md").read_text(encoding="utf-8")


def test_the_page_shows_a_message_as_it_is_sent() -> None:
    """The example is a real message, and the table has all its keys."""
    with Receiver() as receiver:
        sink = WebhookSink(MessageQueue("webhook", HttpSender(HttpTarget(receiver.url(), allow_http=True))))
        sink.publish(report(segment(alert(), of=(("site", "A"),))))
        sent = receiver.get().json
        sink.close()
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example
    assert json.loads(example.group(1)) | {"id": sent["id"]} == sent
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(sent)


CONFIG = """
storage: {{path: state}}
sources: [{{name: results, type: directory, path: inbox}}]
models: [{{name: density, reference: density.ref}}]
{notify}
"""
Command = Callable[..., Ran]


@pytest.fixture
def notify(cpcmon: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Ran]:
    """Run the command of the page with a webhook, or without one."""
    monkeypatch.chdir(tmp_path)
    (line,) = re.findall(r"^cpcmon (notify .*)$", PAGE, re.MULTILINE)

    def run(url: str) -> Ran:
        webhook = f"notify: {{webhook: {{url: '{url}', allow_http: true}}}}" if url else ""
        Path("config.yaml").write_text(CONFIG.format(notify=webhook), encoding="utf-8")
        return cpcmon(*shlex.split(line))

    return run


def test_a_test_is_received_and_printed_with_the_answer_and_no_secret(notify: Callable[[str], Ran]) -> None:
    with Receiver() as receiver:
        ran = notify(receiver.url("/token-4711", "user:secret@"))
        sent = [receiver.get().json for _ in range(2)]
        assert receiver.received.empty()
    assert [(one["status"], one["test"], one["model"]) for one in sent] == [
        ("firing", True, "density"),
        ("resolved", True, "density"),
    ]
    where, *lines = ran.out.splitlines()
    assert f"http://127.0.0.1:{receiver.port}," in where
    assert [json.loads(line) for line in lines[::2]] == sent
    assert lines[1::2] == ["delivered: status 204"] * 2
    assert not re.search("4711|secret", ran.out + ran.err)
    assert ran.code == 0


def test_a_test_that_is_refused_fails(notify: Callable[[str], Ran]) -> None:
    with Receiver(status(403)) as receiver:
        ran = notify(receiver.url())
    assert ran.code == 1
    assert "not delivered: expected a status from 200 to 299, found 403" in ran.out


def test_without_a_webhook_there_is_nothing_to_test(notify: Callable[[str], Ran]) -> None:
    ran = notify("")
    assert ran.code == 2
    assert "notify.webhook: expected a webhook" in ran.err
