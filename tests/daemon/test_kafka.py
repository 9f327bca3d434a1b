"""`cpcmon run`, the real process on topics of a real broker."""

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
    assert_equals_the_oracle,
    everything_said,
    holds,
    judged,
    payloads,
    taken,
    wait_until_not_ready,
    written,
)
from tests.daemon.process import LIMIT, one, running, write_records
from tests.kafka.consuming import consumer
from tests.kafka.endless import EndlessProducer
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

HEALTHY = synthetic(1500, 3, seed=5, sharpness=2.6)[0]


def test_every_exported_estimate_equals_the_slow_oracle_over_the_latest_of_each_partition(
    site: Site, kafka: Topics
) -> None:
    """After many evictions, for the whole and for each site. A window is that of a partition, and they add up."""
    topic = kafka.create_topic(partitions=4)
    reading = KafkaSite(site, kafka.bootstrap, topic, window=60)
    reading.configure()
    # Not as many sites as partitions, so that each partition has records of every site.
    truth = written(kafka, topic, 4, payloads(HEALTHY))
    with running(site.config) as process:
        page = judged(process, 1500)
        for segment, where in {"all": {}, "site=A": {"site": "A"}}.items():
            held = reading.held(truth, where)
            assert len(held) == one(page, "cpcmon_window_records", segment=segment) == 240
            assert_equals_the_oracle(page, segment, reading.oracle().estimates(held))
        assert process.ask("/-/ready")[0] == 200
        assert process.stop() == 0


def test_killed_again_and_again_while_records_come_it_loses_and_repeats_nothing(site: Site, kafka: Topics) -> None:
    """With kill -9 in the middle of a stream that never pauses, what is held in the end is what the producer wrote last."""
    topic = kafka.create_topic(partitions=3)
    reading = KafkaSite(site, kafka.bootstrap, topic, window=200)
    reading.configure("    instance_id: cpcmon-0")
    with EndlessProducer(kafka.bootstrap, topic, 3, 1500.0, site.folder) as producer:
        for _ in range(4):
            with running(site.config) as process:
                before = _came(process.metrics())
                deadline = time.monotonic() + LIMIT
                while _came(process.metrics()) < before + 800:
                    assert time.monotonic() < deadline, process.log
                process.kill()
        truth = producer.stop()
    count = sum(map(len, truth.values()))
    with running(site.config) as process:
        page = judged(process, count)
        assert one(page, "cpcmon_window_records", segment="all") == 600
        assert_equals_the_oracle(page, "all", reading.oracle().estimates(reading.held(truth)))
        assert one(page, "cpcmon_records_rejected_total", source="stream", reason="duplicate_id") in {None, 0.0}
        assert process.stop() == 0


def _came(page: dict[str, float]) -> float:
    return one(page, "cpcmon_records_total", source="stream") or 0.0


def test_sigterm_tells_the_group_how_far_it_is_and_leaves_it(site: Site, kafka: Topics) -> None:
    """Another member is given the partitions at once, without waiting for a timeout, at the offset that was reached."""
    topic = kafka.create_topic(partitions=2)
    reading = KafkaSite(site, kafka.bootstrap, topic)
    reading.configure()
    text = site.config.read_text("utf-8").replace("session_timeout: 6s", "session_timeout: 5m")
    site.config.write_text(text.replace("commit_every: 1s", "commit_every: 1h"), encoding="utf-8")
    written(kafka, topic, 2, payloads(HEALTHY[:400]))
    with running(site.config) as process:
        process.wait_for(*taken(400))
        assert process.stop() == 0
    assert "cpcmon has stopped" in process.log
    # Its session would last far longer than this test waits.
    # Of a topic that it does not know yet it would be given nothing, until it asks again.
    with consumer(kafka.bootstrap, group_id=reading.group, metadata_max_age_ms=500) as other:
        other.subscribe([topic])
        deadline = time.monotonic() + LIMIT
        while len(other.assignment()) < 2:
            assert time.monotonic() < deadline, "the group still waits for the member that left"
            preserve_join(other)
            other.poll(100)
        assert [other.committed(partition) for partition in sorted(other.assignment())] == [200, 200]


def test_an_unknown_topic_is_told_by_name_and_read_when_it_comes(site: Site, kafka: Topics) -> None:
    topic = unique("later")
    reading = KafkaSite(site, kafka.bootstrap, topic)
    reading.configure()
    with running(site.config) as process:
        said = f"expected topic {topic}, found none; create it, or grant Describe on it"
        body = wait_until_not_ready(process, said)
        assert body.count("expected topic") == 1
        process.wait_for_line(said)
        assert one(process.metrics(), "cpcmon_source_ready", source="stream") == 0.0
        kafka.create_topic(topic)
        written(kafka, topic, 1, payloads(HEALTHY[:120]))
        process.wait_for(*taken(120))
        process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
        assert process.ask("/-/ready")[0] == 200


def test_sighup_adds_a_topic_to_a_directory_and_takes_it_away_again(site: Site, kafka: Topics) -> None:
    """What came from files stays, and both are counted together."""
    topic = kafka.create_topic(partitions=2)
    truth = written(kafka, topic, 2, payloads(HEALTHY[:200]))
    write_records(site.inbox / "a.jsonl", HEALTHY[200:400])
    reading = KafkaSite(site, kafka.bootstrap, topic)
    with running(site.config) as process:
        process.wait_for(*holds(200))
        reading.configure(files=True)
        process.tell(signal.SIGHUP)
        process.wait_for_line("configuration reloaded")
        page = judged(process, 200)
        held = [*HEALTHY[200:400].tolist(), *reading.held(truth)]
        assert_equals_the_oracle(page, "all", reading.oracle().estimates(held))
        site.configure()
        process.tell(signal.SIGHUP)
        process.wait_for_line("configuration reloaded", 2)
        page = process.wait_for(*holds(200))
        assert one(page, "cpcmon_source_ready", source="stream") is None
        assert process.stop() == 0


def test_refused_messages_are_counted_pointed_to_and_shown_by_their_offset(
    site: Site, kafka: Topics, cpcmon: Callable[..., Ran]
) -> None:
    """Beside good ones, a tombstone among them; nothing of what they say is in the log or on a page."""
    topic, letters = kafka.create_topic(partitions=1), kafka.create_topic()
    KafkaSite(site, kafka.bootstrap, topic).configure(f"    dead_letters: {{topic: {letters}}}")
    good = payloads(HEALTHY[:100])
    writer = Writer(kafka.bootstrap, topic)
    batch = b'[{"probs": [0.2, 0.3, 0.5]}, {"probs": [0.2, 0.3, 0.9], "id": "ZZPATIENT"}]'
    writer.write([*good[:50], b"ZZPATIENT", None, batch, *good[50:]])
    with running(site.config) as process:
        page = process.wait_for(*taken(101))
        rejected = {
            reason: one(page, "cpcmon_records_rejected_total", source="stream", reason=reason)
            for reason in ("bad_json", "bad_sum")
        }
        assert rejected == {"bad_json": 1.0, "bad_sum": 1.0}
        assert one(page, "cpcmon_source_events_total", source="stream", event="tombstones") == 1.0
        process.wait_for('cpcmon_source_events_total{event="dead_letters_sent",source="stream"}', 2.0)
        assert "ZZPATIENT" not in everything_said(process)
        assert process.stop() == 0
    shown = cpcmon("state", site.folder / "state").out
    assert f"{topic}/0, offset 50, record 1 of a message of 9 bytes" in shown
    assert f"{topic}/0, offset 52, record 2 of a message of {len(batch)} bytes [probs: list[3]" in shown
    assert f"density in {topic}/0 of stream all: 101 records" in shown


def test_records_lost_to_retention_while_it_was_away_are_counted_and_said(site: Site, kafka: Topics) -> None:
    """And it goes on with what is left."""
    topic = kafka.create_topic()
    KafkaSite(site, kafka.bootstrap, topic).configure()
    messages = payloads(HEALTHY[:300])
    written(kafka, topic, 1, messages[:100])
    with running(site.config) as process:
        process.wait_for(*taken(100))
        assert process.stop() == 0
    written(kafka, topic, 1, messages[100:])
    kafka.delete_records(topic, {0: 150})
    with running(site.config) as process:
        page = process.wait_for(*taken(250))
        assert one(page, "cpcmon_source_events_total", source="stream", event="records_lost") == 50.0
        process.wait_for_line(f"{topic}/0: expected offset 100, found the log start at 150")
        assert process.stop() == 0


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_and_said(site: Site, kafka: Topics) -> None:
    """The windows of the old one are forgotten: they are of another log."""
    topic = kafka.create_topic()
    KafkaSite(site, kafka.bootstrap, topic).configure()
    written(kafka, topic, 1, payloads(HEALTHY[:100]))
    with running(site.config) as process:
        process.wait_for(*taken(100))
        assert process.stop() == 0
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    written(kafka, topic, 1, payloads(HEALTHY[100:160], start=1000))
    with running(site.config) as process:
        process.wait_for(*taken(160))
        process.wait_for(*holds(60))
        process.wait_for_line("topic was deleted and created again")
        assert process.stop() == 0


def test_more_partitions_than_there_is_memory_for_are_read_and_warned_of(site: Site, kafka: Topics) -> None:
    topic = kafka.create_topic(partitions=4)
    reading = KafkaSite(site, kafka.bootstrap, topic, window=30)
    reading.configure()
    with site.config.open("a", encoding="utf-8") as config:
        config.write("limits: {window_bytes: 32MiB}\n")
    written(kafka, topic, 4, payloads(HEALTHY[:120]))
    with running(site.config) as process:
        process.wait_for(*taken(120))
        process.wait_for_line("to fit in limits.window_bytes, found 4: memory may exceed")
        assert one(process.metrics(), "cpcmon_source_events_total", source="stream", event="over_room") == 1.0
        assert process.stop() == 0


def test_no_line_of_the_log_is_said_for_every_message(site: Site, kafka: Topics) -> None:
    """A stream that goes well is silent after it began."""
    topic = kafka.create_topic()
    KafkaSite(site, kafka.bootstrap, topic).configure()
    messages = payloads(HEALTHY[:600])
    lines = []
    with running(site.config) as process:
        for start in range(0, 600, 100):
            written(kafka, topic, 1, messages[start : start + 100])
            process.wait_for(*taken(start + 100))
            lines.append(len(process.lines))
        assert process.stop() == 0
    assert [later - earlier for earlier, later in pairwise(lines[1:])] == [0] * 4
