"""What `docs/notify.md` promises is so."""

import json
import re

from monitor.configuration.config import Webhook
from monitor.core.alerts import Kind
from monitor.sinks.outbox import Patience
from monitor.sinks.posting import CONNECT_SECONDS, MOST_READ
from monitor.sinks.webhook import CAPACITY, CLOSE_SECONDS, VERSION, WebhookSink
from tests.conftest import ROOT
from tests.sinks.receiver import Receiver, alert, report, segment

PAGE = (ROOT / "docs" / "notify.md").read_text(encoding="utf-8")


def test_the_page_shows_a_message_as_it_is_sent() -> None:
    """The example is what a receiver gets for it, and the table explains each of its keys."""
    with Receiver() as receiver:
        sink = WebhookSink(Webhook(receiver.url(), allow_http=True))
        sink.publish(report(segment(alert(), of=(("site", "A"),))))
        sent = receiver.get().json
        sink.close()
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example
    assert json.loads(example.group(1)) | {"id": sent["id"]} == sent
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(sent)


def test_the_page_gives_the_limits_as_they_are() -> None:
    """Numbers in words and in code agree."""
    patience = Patience()
    assert f"of this format: {VERSION}." in PAGE
    assert f"up to {patience.attempts} attempts or one day" in PAGE
    assert (patience.age_seconds, patience.first_wait_seconds, patience.most_wait_seconds) == (86_400.0, 1.0, 60.0)
    assert "again after 1, 2, 4 … 60 seconds" in PAGE
    assert f"At most {CAPACITY} wait" in PAGE
    assert (CLOSE_SECONDS, CONNECT_SECONDS) == (2.0, 5.0)
    assert f"More than {MOST_READ >> 10} KiB of headers" in PAGE
    assert all(f"`{kind}`" in PAGE for kind in Kind)
