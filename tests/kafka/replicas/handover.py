"""A static member that is killed after it was told to give up partitions, before it rejoins, and is back in time.

The broker answers its join with the stored assignment, without a rebalance: what it had to give up has no member.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.daemon.process import write_reference
from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.group import EVERYTHING, Group
from tests.kafka.replicas.oracle import Verdict
from tests.kafka.replicas.records import PAYLOADS
from tests.kafka.replicas.replica import MODEL, Setting
from tests.kafka.topics import Topics, unique

PARTITIONS = 6
_KILLED = "tests.kafka.replicas.killed_on_revoke"
_RATE = 200
_SESSION_SECONDS = 45.0
_LIMIT_SECONDS = 90.0
"""Twice as long as a session: whatever its end would mend is mended by then."""


@dataclass(frozen=True)
class Outcome:
    """What became of it."""

    seconds: float
    """From the restart until every partition had a member that reads it."""
    told: int
    """How often a replica said that no member reads some partitions."""
    verdict: Verdict
    last_words: str


def hand_over(broker: Topics, folder: Path) -> Outcome:
    """Let a replica with all partitions be killed when a second one joins, restart it, and compare what is read."""
    topic = broker.create_topic(partitions=PARTITIONS)
    write_reference(folder, MODEL)
    reference = folder / f"{MODEL}.ref"
    setting = Setting(
        folder,
        broker.bootstrap,
        unique("cpcmon"),
        topic,
        "cooperative",
        EVERYTHING,
        reference,
        _SESSION_SECONDS,
        static=True,
    )
    group = Group(setting, 2)
    killed, other = group.replicas
    with EndlessProducer(broker.bootstrap, topic, PARTITIONS, _RATE, folder, PAYLOADS) as producer:
        try:
            killed.start(_KILLED)
            _until(lambda: killed.partitions() == PARTITIONS, group)
            other.start()
            killed.wait_killed()
            killed.start()
            began = time.monotonic()
            _until(lambda: killed.partitions() == other.partitions() == PARTITIONS // 2, group)
            seconds = time.monotonic() - began
            truth = producer.stop()
            group.settle(truth)
            told = sum(replica.said("that no member reads") for replica in group.replicas)
            return Outcome(seconds, told, group.judge(truth), group.last_words())
        finally:
            for replica in group.replicas:
                if replica.running:
                    replica.forget()


def _until(holds: Callable[[], bool], group: Group) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, group.last_words()
        time.sleep(0.1)
