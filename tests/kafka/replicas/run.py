"""One run: a topic, a producer that never pauses, three replicas, faults, and a verdict."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.faults import Faults
from tests.kafka.replicas.group import EVERYTHING, PARTITIONS, group_of_three
from tests.kafka.replicas.oracle import Verdict
from tests.kafka.replicas.records import PAYLOADS
from tests.kafka.topics import Topics

SMALL = 60
"""Records of a window that reaches back a few seconds."""
_RATE = 800


@dataclass(frozen=True)
class Plan:
    """What is done to whom. The same plan strikes alike; when exactly is up to the machine."""

    seed: int
    assignor: str
    keep_disk: bool
    most: int
    """Records that a window holds."""
    faults: int
    static: bool = False
    """Whether replicas have an `instance_id`."""

    def __str__(self) -> str:
        """Say all of it: a failure can be repeated with that."""
        disk = "with disk" if self.keep_disk else "without disk"
        static = ", static" if self.static else ""
        return f"{self.faults} faults, seed {self.seed}, {self.assignor}{static}, {disk}, windows of {self.most}"


PLANS = (
    Plan(1, "cooperative", True, SMALL, 6),
    Plan(2, "cooperative", False, EVERYTHING, 6),
    Plan(3, "range", True, EVERYTHING, 6),
    Plan(4, "range", False, SMALL, 6),
    Plan(5, "cooperative", True, SMALL, 6, static=True),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a run."""

    written: int
    """Messages."""
    faults: Counter[str]
    verdict: Verdict
    rebuilt: int
    """How often a replica rebuilt windows of a partition from the log."""
    last_words: str


def run(broker: Topics, folder: Path, plan: Plan, told: Callable[[str], None] = lambda _: None) -> Outcome:
    """Do what a plan says, let the replicas read the rest, and compare."""
    topic = broker.create_topic(partitions=PARTITIONS)
    with (
        EndlessProducer(broker.bootstrap, topic, PARTITIONS, _RATE, folder, PAYLOADS) as producer,
        group_of_three(folder, broker.bootstrap, topic, plan.assignor, plan.most, static=plan.static) as group,
    ):
        faults = Faults(group, plan.seed, plan.keep_disk)
        faults.strike(plan.faults, told)
        truth = producer.stop()
        group.settle(truth)
        verdict = group.judge(truth)
        rebuilt = sum(replica.said("rebuilding windows from offset") for replica in group.replicas)
        return Outcome(sum(map(len, truth.values())), faults.done, verdict, rebuilt, group.last_words())
