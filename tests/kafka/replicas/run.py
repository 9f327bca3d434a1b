"""One run: a topic, a continuous producer, three replicas and faults; then a comparison."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.endless import EndlessProducer
from tests.kafka.replicas.faults import Faults
from tests.kafka.replicas.group import PARTITIONS, UNBOUNDED, group_of_three
from tests.kafka.replicas.oracle import Comparison
from tests.kafka.replicas.records import PAYLOADS
from tests.kafka.topics import Topics

SMALL = 60
"""The size of a window that covers a few seconds."""
_RATE = 400


@dataclass(frozen=True)
class Plan:
    """The parameters of a run."""

    seed: int
    assignor: str
    keep_state: bool
    window_size: int
    """In records."""
    faults: int
    static: bool = False
    """Whether replicas have an `instance_id`."""

    def __str__(self) -> str:
        """Return all parameters, to repeat a failure."""
        state = "with state" if self.keep_state else "without state"
        static = ", static" if self.static else ""
        return (
            f"{self.faults} faults, seed {self.seed}, {self.assignor}{static}, {state}, windows of {self.window_size}"
        )


PLANS = (
    Plan(1, "cooperative", True, SMALL, 6),
    Plan(2, "cooperative", False, UNBOUNDED, 6),
    Plan(3, "range", True, UNBOUNDED, 6),
    Plan(4, "range", False, SMALL, 6),
    Plan(5, "cooperative", True, SMALL, 6, static=True),
)


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    messages: int
    faults: Counter[str]
    comparison: Comparison
    rebuilt: int
    """Log lines about windows rebuilt from the topic."""
    log_tail: str


def run(broker: Topics, folder: Path, plan: Plan, progress: Callable[[str], None] = lambda _: None) -> Outcome:
    """Inject the faults of a plan, wait until the replicas have caught up, and compare."""
    topic = broker.create_topic(partitions=PARTITIONS)
    with (
        EndlessProducer(broker.bootstrap, topic, PARTITIONS, _RATE, folder, PAYLOADS) as producer,
        group_of_three(folder, broker.bootstrap, topic, plan.assignor, plan.window_size, static=plan.static) as group,
    ):
        faults = Faults(group, plan.seed, plan.keep_state)
        faults.inject(plan.faults, progress)
        truth = producer.stop()
        group.wait_until_caught_up(truth)
        comparison = group.compare(truth)
        rebuilt = sum(replica.count_logged("rebuilding windows from offset") for replica in group.replicas)
        return Outcome(sum(map(len, truth.values())), faults.done, comparison, rebuilt, group.log_tail())
