"""Static members: real replicas with an `instance_id` on a real broker."""

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import (
    KafkaSite,
    payloads,
    produce,
    records_read,
    wait_for_evaluation,
    wait_until_not_ready,
    window_records,
)
from tests.daemon.process import Process, one, running
from tests.kafka.topics import Topics
from tests.strategies import synthetic
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

VECTORS = synthetic(900, 3, seed=5, sharpness=2.6)[0]
PARTITIONS = 4
_LIMIT = 90.0
"""Longer than a session, and than the longest backoff of a fenced process."""
_EVALUATIONS = 5.0
"""One per second; within these, a member has polled the group for changes."""


def _install(site: Site, name: str, kafka_site: KafkaSite, instance_id: str, assignor: str = "cooperative") -> Path:
    """Create a site of the group with its own state; return its configuration."""
    folder = site.folder / name
    folder.mkdir()
    shutil.copy(site.folder / "density.ref", folder)
    own = Site(folder, site.reference_vectors, site.labels, site.temperature)
    KafkaSite(own, kafka_site.bootstrap, kafka_site.topic, kafka_site.window, kafka_site.group).configure(
        f"    instance_id: {instance_id}\n    assignor: {assignor}"
    )
    text = own.config.read_text("utf-8")
    own.config.write_text(text.replace("session_timeout: 6s", "session_timeout: 30s"), encoding="utf-8")
    return own.config


@contextmanager
def _two_replicas(first: Path, second: Path) -> Iterator[tuple[Process, Process]]:
    """Start two replicas in turn, so that the first leads the group; wait until each has half of the partitions."""
    with ExitStack() as stack:
        earlier = stack.enter_context(running(first))
        earlier.wait_for('cpcmon_kafka_assigned_partitions{source="stream"}', PARTITIONS)
        later = stack.enter_context(running(second))
        _wait_until(
            lambda: [len(_partitions(one)) for one in (earlier, later)] == [PARTITIONS // 2] * 2, earlier, later
        )
        yield earlier, later


def _wait_until(condition: Callable[[], bool], *processes: Process) -> None:
    wait_until(condition, lambda: "\n\n".join(process.log for process in processes), _LIMIT, 0.1)


def _partitions(process: Process) -> set[str]:
    """Return the partitions with an exported lag."""
    name = "cpcmon_kafka_partition_lag_records{"
    found = (re.search(r'partition="(\d+)"', key) for key in process.metrics() if key.startswith(name))
    return {match.group(1) for match in found if match}


def _window_records(process: Process) -> float:
    return one(process.metrics(), "cpcmon_window_records", segment="all") or 0.0


def _rebalances(process: Process) -> float:
    found = one(process.metrics(), "cpcmon_kafka_rebalances_total", source="stream")
    assert found is not None
    return found


def _event(process: Process, name: str) -> float:
    return one(process.metrics(), "cpcmon_source_events_total", source="stream", event=name) or 0.0


def _evaluated(process: Process) -> float:
    return one(process.metrics(), "cpcmon_evaluations_total", model="density") or 0.0


@pytest.mark.parametrize(
    ("assignor", "leads"), [("cooperative", True), ("range", False)], ids=["cooperative leader", "range follower"]
)
def test_a_replica_restarted_within_its_session_keeps_its_partitions(
    site: Site, kafka: Topics, assignor: str, *, leads: bool
) -> None:
    """Without a rebalance for the other replica; every record counts once."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic)
    configs = {name: _install(site, name, kafka_site, name, assignor) for name in ("a", "b")}
    messages = payloads(VECTORS)
    order = ("a", "b") if leads else ("b", "a")
    with _two_replicas(configs[order[0]], configs[order[1]]) as replicas:
        started = dict(zip(order, replicas, strict=True))
        killed, other = started["a"], started["b"]
        produce(kafka, topic, PARTITIONS, messages[:300])
        _wait_until(lambda: _window_records(killed) == _window_records(other) == 150.0, killed, other)
        mine, others, rebalances = _partitions(killed), _partitions(other), _rebalances(other)
        assert not mine & others
        killed.kill()
        produce(kafka, topic, PARTITIONS, messages[300:600])
        other.wait_for(*window_records(300))
        with running(configs["a"]) as back:
            _wait_until(lambda: _window_records(back) + _window_records(other) == 600.0, back, other)
            produce(kafka, topic, PARTITIONS, messages[600:])
            _wait_until(lambda: _window_records(back) + _window_records(other) == 900.0, back, other)
            done = _evaluated(other) + _EVALUATIONS
            _wait_until(lambda: _evaluated(other) >= done, other)
            assert (_partitions(back), _partitions(other)) == (mine, others), f"{back.log}\n\n{other.log}"
            assert _rebalances(other) == rebalances, other.log
            for process in (back, other):
                page = wait_for_evaluation(process, 450)
                assert one(page, "cpcmon_window_records", segment="all") == 450.0
                assert one(page, "cpcmon_records_rejected_total", reason="duplicate_id") in {None, 0.0}
                assert one(page, "cpcmon_kafka_assigned_partitions", source="stream") == PARTITIONS // 2
                assert one(page, "cpcmon_kafka_unassigned_partitions", source="stream") == 0.0
                assert _event(process, "partitions_rewound") == 0.0
                assert process.stop() == 0


def test_a_duplicate_instance_id_is_reported_and_no_record_counts_twice(site: Site, kafka: Topics) -> None:
    """The fenced process drops its windows; once alone again, it resumes from its own state."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    kafka_site = KafkaSite(site, kafka.bootstrap, topic)
    configs = [_install(site, name, kafka_site, "same") for name in ("first", "second")]
    message = f"expected to be the only process with instance_id same in group {kafka_site.group}"
    messages = payloads(VECTORS)
    produce(kafka, topic, PARTITIONS, messages[:300])
    with running(configs[0]) as first:
        first.wait_for(*records_read(300))
        with running(configs[1]) as second:
            assert wait_until_not_ready(first, message).count(message) == 1
            first.wait_for_line(message)
            assert _event(first, "errors_fenced") >= 1.0
            first.wait_for('cpcmon_source_ready{source="stream"}', 0.0)
            produce(kafka, topic, PARTITIONS, messages[300:600])
            _wait_until(lambda: _window_records(first) + _window_records(second) == 600.0, first, second)
            assert first.ask("/-/healthy")[0] == second.ask("/-/healthy")[0] == 200
            assert second.stop() == 0
        produce(kafka, topic, PARTITIONS, messages[600:])
        first.send_signal(signal.SIGHUP)
        _wait_until(lambda: _window_records(first) == 900.0, first)
        page = wait_for_evaluation(first, 900)
        assert one(page, "cpcmon_window_records", segment="all") == 900.0
        assert one(page, "cpcmon_records_rejected_total", reason="duplicate_id") in {None, 0.0}
        assert first.ask("/-/ready")[0] == 200
        assert first.stop() == 0
