"""The demo on a real broker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.demo.demo_folder import LABELS_TOPIC, TOPIC
from monitor.demo.story import SHIFTED
from tests.demo.process import LIMIT, demo
from tests.kafka.consuming import consumer
from tests.kafka.topics import Topics

pytestmark = pytest.mark.slow


def test_the_demo_creates_its_topics_and_reads_them(kafka: Topics, prepared: Callable[[], Path]) -> None:
    """Each run has its own consumer group."""
    folder = prepared()
    words = ("--web.listen-address", "127.0.0.1:0", "--kafka", kafka.bootstrap, "--speed", "2")
    with demo(folder, *words) as running:
        running.wait_for_output("N2 at Northlake estimated 0")
        assert SHIFTED in running.segments()
        assert [*(folder / "arriving").iterdir(), *(folder / "labels").iterdir()] == []
        config = (folder / "config.yaml").read_text()
        assert running.interrupt() == 0
    with demo(folder, *words) as again:
        assert again.url
        assert (folder / "config.yaml").read_text() != config
    with consumer(kafka.bootstrap) as reader:
        assert reader.partitions_for_topic(TOPIC) == reader.partitions_for_topic(LABELS_TOPIC) == {0}


def test_a_missing_broker_is_an_error(prepared: Callable[[], Path]) -> None:
    """No daemon is started."""
    folder = prepared()
    with demo(folder, "--kafka", "127.0.0.1:1") as running:
        assert running.process.wait(LIMIT) == 1
        assert "cpcmon: --kafka 127.0.0.1:1: expected a broker" in running.output
    assert not (folder / "cpcmon.log").exists()
