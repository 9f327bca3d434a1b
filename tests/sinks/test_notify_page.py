"""The example message and the table of keys on `docs/notify.md`."""

import json
import re

from monitor.config.config import Webhook
from monitor.sinks.webhook import WebhookSink
from tests.conftest import ROOT
from tests.sinks.receiver import Receiver, alert, report, segment

PAGE = (ROOT / "docs" / "notify.md").read_text(encoding="utf-8")


def test_the_example_message_is_one_that_is_sent_and_each_key_is_documented() -> None:
    with Receiver() as receiver:
        sink = WebhookSink(Webhook(receiver.url(), allow_http=True))
        sink.publish(report(segment(alert(), of=(("site", "A"),))))
        sent = receiver.get().json
        sink.close()
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example
    assert json.loads(example.group(1)) | {"id": sent["id"]} == sent
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(sent)
