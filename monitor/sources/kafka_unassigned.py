"""Partitions of the subscribed topics that are assigned to no member of the group: nobody reads them.

Static members are the known cause. To one that is back within its session the broker returns the stored assignment,
without a rebalance. If it was killed after it was told to give up partitions and before it rejoined, nobody gets them. If
it led the group it is not told so, and nobody looks for new partitions.
"""

from collections.abc import Callable

from monitor.sources.kafka_consumer import Consumer, Group
from monitor.sources.kafka_counted import Counted
from monitor.sources.kafka_notes import Notes
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.kafka_partition import Partition
from monitor.sources.kafka_trouble import Trouble, sentence

CHECK_SECONDS = 10.0
_VALID_SECONDS = 60.0
"""How long an answer counts. During a rebalance there is none."""
_MOST_CHECKS = 64
_NAMED = 5
_NONE: frozenset[Partition] = frozenset()


class UnassignedCheck:
    """Compares the assignments of the group with the partitions of its topics, and rejoins where some are left over."""

    def __init__(self, options: KafkaOptions, notes: Notes, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._notes = notes
        self._monotonic = monotonic
        self.begin()

    def begin(self) -> None:
        """There is a new connection."""
        self._asked_at = self._answered_at = float("-inf")
        self._latest: frozenset[Partition] = _NONE
        self._lasting: frozenset[Partition] = _NONE
        self._generation: int | None = None
        self._wait = self._left = 1

    @property
    def count(self) -> int | None:
        """How many had no member in the last answer; None when it is too old, or there was none."""
        return len(self._latest) if self._is_valid else None

    @property
    def waits_for(self) -> str | None:
        """Which had no member in the last two answers; None when all had one.

        One answer may come between the two steps of a cooperative rebalance.
        """
        lasting = sorted(self._lasting)
        if not lasting or not self._is_valid:
            return None
        named = ", ".join(one.shard for one in lasting[:_NAMED]) + (", …" if len(lasting) > _NAMED else "")
        return (
            f"kafka {self._options.address}: expected every partition to be assigned to a member of group"
            f" {self._options.group}, found {len(lasting)} that no member reads: {named}"
        )

    @property
    def _is_valid(self) -> bool:
        return self._monotonic() - self._answered_at < _VALID_SECONDS

    def check(self, consumer: Consumer) -> None:
        """Ask once in a while, and act on the answer when it has come. Waits for nothing."""
        clock = self._monotonic()
        if clock - self._asked_at >= CHECK_SECONDS:
            self._asked_at = clock
            consumer.ask_for_group()
        try:
            group = consumer.group()
        except Trouble as trouble:
            if trouble.kind.needs_people:
                said = f"partitions that no member reads cannot be found: {sentence(trouble, self._options)}"
                self._notes.warn_once("unassigned", said)
            return
        if group is not None:
            self._answered(group, consumer, clock)

    def _answered(self, group: Group, consumer: Consumer, clock: float) -> None:
        unassigned = group.partitions - group.assigned
        self._lasting, self._latest, self._answered_at = self._latest & unassigned, unassigned, clock
        if (said := self.waits_for) is not None:
            self._notes.warn_once("unassigned", said)
        elif not unassigned:
            self._notes.over("unassigned", f"every partition is assigned to a member of group {self._options.group}")
        # A member that still has to give up partitions makes the group share them when it rejoins, or when its session
        # ends. To rejoin before that would only make everybody wait for it.
        if not self._lasting - group.revoking:
            self._generation, self._wait = None, 1
            return
        if group.generation != self._generation:
            # Every rebalance that did not help doubles the wait, whichever member asked for it.
            self._generation, self._left, self._wait = group.generation, self._wait, min(2 * self._wait, _MOST_CHECKS)
        self._left -= 1
        if self._left <= 0:
            self._notes.counted[Counted.REJOINS] += 1
            consumer.rejoin()
