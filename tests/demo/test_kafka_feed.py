"""The demo on a real broker."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.demo.demo_folder import TOPIC
from monitor.demo.story import SHIFTED
from tests.demo.process import LIMIT, demo
from tests.kafka.consuming import consumer
from tests.kafka.topics import Topics

pytestmark = pytest.mark.slow


def test_with_a_broker_the_topic_is_made_and_fed_and_read(kafka: Topics, prepared: Callable[[], Path]) -> None:
    """The page says the same as with a directory, which stays empty. A second run begins anew, by a group of its own."""
    folder, groups = prepared(), set()
    for _ in range(2):
        with demo(folder, "--web.listen-address", "127.0.0.1:0", "--kafka", kafka.bootstrap, "--speed", "2") as running:
            running.hear("N2 at Northlake estimated 0")
            assert SHIFTED in running.segments()
            assert list((folder / "arriving").iterdir()) == []
            groups.add((folder / "config.yaml").read_text())
            assert running.interrupt() == 0
    assert len(groups) == 2
    with consumer(kafka.bootstrap) as looking:
        assert looking.partitions_for_topic(TOPIC) == {0}


def test_a_broker_that_is_not_there_is_named_in_a_sentence(prepared: Callable[[], Path]) -> None:
    """The command fails; no daemon is started."""
    folder = prepared()
    with demo(folder, "--kafka", "127.0.0.1:1") as running:
        assert running.process.wait(LIMIT) == 1
        assert "cpcmon: --kafka 127.0.0.1:1: expected a broker" in running.said
    assert not (folder / "cpcmon.log").exists()
