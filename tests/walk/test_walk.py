"""The walk of a record is short, and docs/architecture.md lists it as the real daemon takes it."""

import os
import re
from pathlib import Path

import pytest

from tests.daemon.conftest import Site, kafka, real_kafka, run_folder, secured_kafka, site
from tests.daemon.kafka_site import KafkaSite, payloads, produce
from tests.daemon.process import write_records
from tests.kafka.topics import Topics
from tests.walk.walk import WRITTEN, Walk, table, walk

__all__ = ["kafka", "real_kafka", "run_folder", "secured_kafka", "site"]

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
_RECORDS = 60


def assert_documented(name: str, found: Walk) -> None:
    """Compare a walk with its table on the page; with WRITE_WALK=1, write the table first."""
    page = _PAGE.read_text("utf-8")
    start, end = f"<!-- walk {name} -->\n", f"\n<!-- end of walk {name} -->"
    pattern = re.compile(re.escape(start) + "(.*?)" + re.escape(end), re.DOTALL)
    if os.environ.get("WRITE_WALK"):
        figures = f"{len(found.modules)} modules, {found.package_changes} changes of package:\n\n"
        page = pattern.sub(lambda _: start + figures + table(found) + end, page)
        _PAGE.write_text(page, encoding="utf-8")
    written = pattern.search(page)
    assert written is not None
    listed = set(re.findall(r"^\| `([^`]+\.py)`", written.group(1), re.MULTILINE))
    assert listed == set(found.modules), "run WRITE_WALK=1 pytest tests/walk"
    assert len(found.modules) <= 45
    assert found.package_changes <= 12


@pytest.mark.slow
def test_a_line_of_a_file_passes_at_most_45_modules(site: Site) -> None:
    """From the poll that reads it to the page with its gauge."""
    file = site.inbox / "outputs.jsonl"
    write_records(file, site.reference_vectors[:_RECORDS], site="A", id=[f"r{n}" for n in range(_RECORDS)])

    def write(number: int) -> None:
        write_records(file, site.reference_vectors[_RECORDS + number :][:1], site="A", id=f"later{number}")

    assert_documented("of a line", walk(site.config, write, records=_RECORDS))


def test_a_kafka_message_passes_at_most_45_modules(site: Site, kafka: Topics) -> None:
    """The same for a message of a topic."""
    topic = kafka.create_topic()
    stream = KafkaSite(site, kafka.bootstrap, topic)
    stream.configure()
    messages = payloads(site.reference_vectors[: _RECORDS + WRITTEN])
    produce(kafka, topic, 1, messages[:_RECORDS])

    def write(number: int) -> None:
        produce(kafka, topic, 1, messages[_RECORDS + number :][:1])

    assert_documented("of a message", walk(site.config, write, records=_RECORDS))
