"""The message in `docs/notify.md`."""

import json
import re

from monitor.config.config import HttpTarget
from monitor.sinks.http_sender import HttpSender
from monitor.sinks.notifications import MessageQueue, WebhookSink
from tests.conftest import ROOT
from tests.sinks.receiver import Receiver, alert, report, segment

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
