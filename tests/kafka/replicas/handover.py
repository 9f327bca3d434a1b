"""A static member that is killed between a revocation and its rejoin, and restarted within its session.

The broker answers its join with the stored assignment, without a rebalance: the revoked partitions have no member.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.process import write_reference
from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.group import UNBOUNDED, Group
from tests.kafka.replicas.oracle import Comparison
from tests.kafka.replicas.records import PAYLOADS
from tests.kafka.replicas.replica import MODEL, ReplicaOptions
from tests.kafka.topics import Topics, unique

PARTITIONS = 6
_KILLED = "tests.kafka.replicas.killed_on_revoke"
_RATE = 200
_SESSION_SECONDS = 45.0
_LIMIT_SECONDS = 90.0
"""Two sessions."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    seconds: float
    """From the restart until every partition was assigned."""
    reported: int
    """Log lines about partitions without a member."""
    comparison: Comparison
    log_tail: str


def hand_over(broker: Topics, folder: Path) -> Outcome:
    """Kill a replica when a second one joins, restart it, and compare the windows."""
    topic = broker.create_topic(partitions=PARTITIONS)
    write_reference(folder, MODEL)
    reference = folder / f"{MODEL}.ref"
    options = ReplicaOptions(
        folder,
        broker.bootstrap,
        unique("cpcmon"),
        topic,
        "cooperative",
        UNBOUNDED,
        reference,
        _SESSION_SECONDS,
        static=True,
    )
    group = Group(options, 2)
    killed, other = group.replicas
    with EndlessProducer(broker.bootstrap, topic, PARTITIONS, _RATE, folder, PAYLOADS) as producer:
        try:
            killed.start(_KILLED)
            _wait_until(lambda: killed.partitions() == PARTITIONS, group)
            other.start()
            killed.wait_killed()
            killed.start()
            began = time.monotonic()
            _wait_until(lambda: killed.partitions() == other.partitions() == PARTITIONS // 2, group)
            seconds = time.monotonic() - began
            truth = producer.stop()
            group.wait_until_caught_up(truth)
            reported = sum(replica.count_logged("that no member reads") for replica in group.replicas)
            return Outcome(seconds, reported, group.compare(truth), group.log_tail())
        finally:
            for replica in group.replicas:
                if replica.running:
                    replica.discard()


def _wait_until(condition: Callable[[], bool], group: Group) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, group.log_tail()
        time.sleep(0.1)
