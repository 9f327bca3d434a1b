"""Replicas with an `instance_id`, the real processes on a real broker: one that is back in time disturbs nobody."""

import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import KafkaSite, holds, judged, payloads, taken, wait_until_not_ready, written
from tests.daemon.process import Process, one, running
from tests.kafka.topics import Topics
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

HEALTHY = synthetic(900, 3, seed=5, sharpness=2.6)[0]
PARTITIONS = 4
_LIMIT = 90.0
"""Longer than the longest wait of a process that was put out, and than a session lasts."""
_EVALUATIONS = 5.0
"""A second apart: whoever has done so many has asked the group since whether anything has changed."""


def _installed(site: Site, name: str, reading: KafkaSite, instance_id: str, assignor: str = "cooperative") -> Path:
    """Make an installation with a state of its own in the group, and return its configuration."""
    folder = site.folder / name
    folder.mkdir()
    shutil.copy(site.folder / "density.ref", folder)
    own = Site(folder, site.reference_vectors, site.labels, site.temperature)
    KafkaSite(own, reading.bootstrap, reading.topic, reading.window, reading.group).configure(
        f"    instance_id: {instance_id}\n    assignor: {assignor}"
    )
    text = own.config.read_text("utf-8")
    own.config.write_text(text.replace("session_timeout: 6s", "session_timeout: 30s"), encoding="utf-8")
    return own.config


@contextmanager
def _two_sharing(first: Path, second: Path) -> Iterator[tuple[Process, Process]]:
    """Start two replicas one after the other, so that the first leads the group, and wait until each has its half."""
    with ExitStack() as stack:
        earlier = stack.enter_context(running(first))
        earlier.wait_for('cpcmon_kafka_assigned_partitions{source="stream"}', PARTITIONS)
        later = stack.enter_context(running(second))
        _until(lambda: [len(_partitions(one)) for one in (earlier, later)] == [PARTITIONS // 2] * 2, earlier, later)
        yield earlier, later


def _until(is_so: Callable[[], bool], *processes: Process) -> None:
    deadline = time.monotonic() + _LIMIT
    while not is_so():
        assert time.monotonic() < deadline, "\n\n".join(process.log for process in processes)
        time.sleep(0.1)


def _partitions(process: Process) -> set[str]:
    """Return the numbers of the partitions that it exports a lag of."""
    name = "cpcmon_kafka_partition_lag_records{"
    found = (re.search(r'partition="(\d+)"', key) for key in process.metrics() if key.startswith(name))
    return {match.group(1) for match in found if match}


def _held(process: Process) -> float:
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
def test_a_replica_that_is_killed_and_back_in_time_finds_its_partitions_and_the_other_notices_nothing(
    site: Site, kafka: Topics, assignor: str, *, leads: bool
) -> None:
    """What was written while it was away is read by it alone, and every record counts once."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    reading = KafkaSite(site, kafka.bootstrap, topic)
    configs = {name: _installed(site, name, reading, name, assignor) for name in ("a", "b")}
    messages = payloads(HEALTHY)
    order = ("a", "b") if leads else ("b", "a")
    with _two_sharing(configs[order[0]], configs[order[1]]) as sharing:
        started = dict(zip(order, sharing, strict=True))
        killed, other = started["a"], started["b"]
        written(kafka, topic, PARTITIONS, messages[:300])
        _until(lambda: _held(killed) == _held(other) == 150.0, killed, other)
        mine, others, rebalances = _partitions(killed), _partitions(other), _rebalances(other)
        assert not mine & others
        killed.kill()
        written(kafka, topic, PARTITIONS, messages[300:600])
        other.wait_for(*holds(300))
        with running(configs["a"]) as back:
            _until(lambda: _held(back) + _held(other) == 600.0, back, other)
            written(kafka, topic, PARTITIONS, messages[600:])
            _until(lambda: _held(back) + _held(other) == 900.0, back, other)
            done = _evaluated(other) + _EVALUATIONS
            _until(lambda: _evaluated(other) >= done, other)
            assert (_partitions(back), _partitions(other)) == (mine, others), f"{back.log}\n\n{other.log}"
            assert _rebalances(other) == rebalances, other.log
            for process in (back, other):
                page = judged(process, 450)
                assert one(page, "cpcmon_window_records", segment="all") == 450.0
                assert one(page, "cpcmon_records_rejected_total", reason="duplicate_id") in {None, 0.0}
                assert one(page, "cpcmon_kafka_assigned_partitions", source="stream") == PARTITIONS // 2
                assert one(page, "cpcmon_kafka_unassigned_partitions", source="stream") == 0.0
                assert _event(process, "partitions_rewound") == 0.0
                assert process.stop() == 0


def test_of_two_processes_with_one_instance_id_one_says_so_and_lives_and_nothing_counts_twice(
    site: Site, kafka: Topics
) -> None:
    """Whoever is put out lets go of its windows, and when it is alone again reads on from its own state."""
    topic = kafka.create_topic(partitions=PARTITIONS)
    reading = KafkaSite(site, kafka.bootstrap, topic)
    configs = [_installed(site, name, reading, "same") for name in ("first", "second")]
    said = f"expected to be the only process with instance_id same in group {reading.group}"
    messages = payloads(HEALTHY)
    written(kafka, topic, PARTITIONS, messages[:300])
    with running(configs[0]) as first:
        first.wait_for(*taken(300))
        with running(configs[1]) as second:
            # Which also asks whether it is healthy.
            assert wait_until_not_ready(first, said).count(said) == 1
            first.wait_for_line(said)
            assert _event(first, "errors_fenced") >= 1.0
            first.wait_for('cpcmon_source_ready{source="stream"}', 0.0)
            written(kafka, topic, PARTITIONS, messages[300:600])
            _until(lambda: _held(first) + _held(second) == 600.0, first, second)
            assert first.ask("/-/healthy")[0] == second.ask("/-/healthy")[0] == 200
            assert second.stop() == 0
        written(kafka, topic, PARTITIONS, messages[600:])
        first.tell(signal.SIGHUP)
        _until(lambda: _held(first) == 900.0, first)
        page = judged(first, 900)
        assert one(page, "cpcmon_window_records", segment="all") == 900.0
        assert one(page, "cpcmon_records_rejected_total", reason="duplicate_id") in {None, 0.0}
        assert first.ask("/-/ready")[0] == 200
        assert first.stop() == 0
