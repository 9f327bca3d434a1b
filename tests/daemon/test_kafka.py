"""The real process with topics of a real broker."""

import signal
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from monitor.sources.kafka.internals import preserve_join
from tests.conftest import Ran
from tests.daemon.conftest import Site
from tests.daemon.kafka_site import (
    KafkaSite,
    all_output,
    assert_matches_oracle,
    payloads,
    produce,
    records_read,
    wait_for_evaluation,
    window_records,
)
from tests.daemon.process import LIMIT, one, running, write_records
from tests.kafka.consuming import consumer
from tests.kafka.endless import EndlessProducer
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

VECTORS = synthetic(1500, 3, seed=5, sharpness=2.6)[0]


def test_c19_exported_estimates_match_the_oracle(site: Site, kafka: Topics) -> None:
    """After evictions; each partition has its own windows, which are added up."""
    topic = kafka.create_topic(partitions=4)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic, window=60)
    kafka_site.configure()
    # Three sites and four partitions, so that each partition has records of every site.
    truth = produce(kafka, topic, 4, payloads(VECTORS))
    with running(site.config) as process:
        page = wait_for_evaluation(process, 1500)
        for segment, where in {"all": {}, "site=A": {"site": "A"}}.items():
            expected = kafka_site.expected_vectors(truth, where)
            assert len(expected) == one(page, "cpcmon_window_records", segment=segment) == 240
            assert_matches_oracle(page, segment, kafka_site.oracle().estimates(expected))
        assert process.ask("/-/ready")[0] == 200
        assert process.stop() == 0


def test_kills_under_load_lose_and_repeat_no_record(site: Site, kafka: Topics) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic, window=200)
    kafka_site.configure("    instance_id: cpcmon-0")
    with EndlessProducer(kafka.bootstrap, topic, 3, 1500.0, site.folder) as producer:
        for _ in range(3):
            with running(site.config) as process:
                before = _records_read(process.metrics())
                deadline = time.monotonic() + LIMIT
                while _records_read(process.metrics()) < before + 800:
                    assert time.monotonic() < deadline, process.log
                    time.sleep(0.05)
                process.kill()
        truth = producer.stop()
    count = sum(map(len, truth.values()))
    with running(site.config) as process:
        page = wait_for_evaluation(process, count)
        assert one(page, "cpcmon_window_records", segment="all") == 600
        assert_matches_oracle(page, "all", kafka_site.oracle().estimates(kafka_site.expected_vectors(truth)))
        assert one(page, "cpcmon_records_rejected_total", source="stream", reason="duplicate_id") in {None, 0.0}
        assert process.stop() == 0


def _records_read(page: dict[str, float]) -> float:
    return one(page, "cpcmon_records_total", source="stream") or 0.0


def test_sigterm_commits_the_offsets_and_leaves_the_group(site: Site, kafka: Topics) -> None:
    """Another member gets the partitions at once, without a session timeout."""
    topic = kafka.create_topic(partitions=2)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic)
    kafka_site.configure()
    text = site.config.read_text("utf-8").replace("session_timeout: 6s", "session_timeout: 5m")
    site.config.write_text(text.replace("commit_every: 1s", "commit_every: 1h"), encoding="utf-8")
    produce(kafka, topic, 2, payloads(VECTORS[:400]))
    with running(site.config) as process:
        process.wait_for(*records_read(400))
        assert process.stop() == 0
    assert "cpcmon has stopped" in process.log
    # A member is assigned no partitions of a topic that its metadata does not contain yet.
    with consumer(kafka.bootstrap, group_id=kafka_site.group, metadata_max_age_ms=500) as other:
        other.subscribe([topic])
        deadline = time.monotonic() + LIMIT
        while len(other.assignment()) < 2:
            assert time.monotonic() < deadline, "the group still waits for the old member"
            preserve_join(other)
            other.poll(100)
        assert [other.committed(partition) for partition in sorted(other.assignment())] == [200, 200]


def test_sighup_adds_and_removes_a_kafka_source(site: Site, kafka: Topics) -> None:
    """The records of a directory source stay."""
    topic = kafka.create_topic(partitions=2)
    truth = produce(kafka, topic, 2, payloads(VECTORS[:200]))
    write_records(site.inbox / "a.jsonl", VECTORS[200:400])
    kafka_site = KafkaSite(site, kafka.bootstrap, topic)
    with running(site.config) as process:
        process.wait_for(*window_records(200))
        kafka_site.configure(files=True)
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("configuration reloaded")
        page = wait_for_evaluation(process, 200)
        expected = [*VECTORS[200:400].tolist(), *kafka_site.expected_vectors(truth)]
        assert_matches_oracle(page, "all", kafka_site.oracle().estimates(expected))
        site.configure()
        process.send_signal(signal.SIGHUP)
        process.wait_for_line("configuration reloaded", 2)
        page = process.wait_for(*window_records(200))
        assert one(page, "cpcmon_source_ready", source="stream") is None
        assert process.stop() == 0


def test_rejected_messages_are_counted_and_listed_by_offset(
    site: Site, kafka: Topics, cpcmon: Callable[..., Ran]
) -> None:
    """Their content is neither logged nor shown."""
    topic, letters = kafka.create_topic(partitions=1), kafka.create_topic()
    KafkaSite(site, kafka.bootstrap, topic).configure(f"    dead_letters: {{topic: {letters}}}")
    good = payloads(VECTORS[:100])
    writer = Writer(kafka.bootstrap, topic)
    batch = b'[{"probs": [0.2, 0.3, 0.5]}, {"probs": [0.2, 0.3, 0.9], "id": "ZZPATIENT"}]'
    writer.write([*good[:50], b"ZZPATIENT", None, batch, *good[50:]])
    with running(site.config) as process:
        page = process.wait_for(*records_read(101))
        rejected = {
            reason: one(page, "cpcmon_records_rejected_total", source="stream", reason=reason)
            for reason in ("bad_json", "bad_sum")
        }
        assert rejected == {"bad_json": 1.0, "bad_sum": 1.0}
        assert one(page, "cpcmon_source_events_total", source="stream", event="tombstones") == 1.0
        process.wait_for('cpcmon_source_events_total{event="dead_letters_sent",source="stream"}', 2.0)
        assert "ZZPATIENT" not in all_output(process)
        assert process.stop() == 0
    shown = cpcmon("state", site.folder / "state").out
    assert f"{topic}/0, offset 50, record 1 of a message of 9 bytes" in shown
    assert f"{topic}/0, offset 52, record 2 of a message of {len(batch)} bytes [probs: list[3]" in shown
    assert f"density in {topic}/0 of stream all: 101 records" in shown


def test_partitions_beyond_the_memory_limit_are_read_with_a_warning(site: Site, kafka: Topics) -> None:
    topic = kafka.create_topic(partitions=4)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic, window=30)
    kafka_site.configure()
    with site.config.open("a", encoding="utf-8") as config:
        config.write("limits: {window_bytes: 16MiB}\n")
    produce(kafka, topic, 4, payloads(VECTORS[:120]))
    with running(site.config) as process:
        process.wait_for(*records_read(120))
        process.wait_for_line("to fit in limits.window_bytes, found 4: memory may exceed")
        assert one(process.metrics(), "cpcmon_source_events_total", source="stream", event="over_room") == 1.0
        assert process.stop() == 0


def test_messages_are_not_logged_individually(site: Site, kafka: Topics) -> None:
    topic = kafka.create_topic()
    KafkaSite(site, kafka.bootstrap, topic).configure()
    messages = payloads(VECTORS[:600])
    lines = []
    with running(site.config) as process:
        for start in range(0, 600, 100):
            produce(kafka, topic, 1, messages[start : start + 100])
            process.wait_for(*records_read(start + 100))
            lines.append(len(process.lines))
        assert process.stop() == 0
    assert [later - earlier for earlier, later in pairwise(lines[1:])] == [0] * 4
