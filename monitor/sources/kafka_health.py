"""Whether the cluster is still there, and whether partitions move: asked once in a while, since silence is no answer."""

from collections.abc import Callable, Mapping

from monitor.sources.kafka_consumer import Consumer
from monitor.sources.kafka_lag import LagMeter
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.kafka_partition import Partition, Progress
from monitor.sources.kafka_stall import StallWatch
from monitor.sources.kafka_trouble import Broken, Kind, Trouble

CHECK_SECONDS = 5.0
_ASK_SECONDS = 1.0
_JOIN_SECONDS = 330.0
"""The group waits for a member that is busy for up to five minutes; who is not let in after that never will be."""


class Stalled(Broken):
    """Partitions do not move although the cluster says that there is more."""

    def __init__(self, partitions: frozenset[Partition]) -> None:
        shards = ", ".join(sorted(one.shard for one in partitions))
        super().__init__(Kind.OTHER, f"that {shards} did not move although there is more to read")


class HealthCheck:
    """Asks the cluster when nothing has come for a while: a client without a broker waits without a word."""

    def __init__(self, options: KafkaOptions, meter: LagMeter, monotonic: Callable[[], float]) -> None:
        self._meter = meter
        self._monotonic = monotonic
        self._watch = StallWatch(options.stall_after_seconds)
        self._pause = min(CHECK_SECONDS, options.stall_after_seconds / 2)
        self._checked = float("-inf")
        self._joined = False
        self._last_joined = 0.0

    def begin(self) -> None:
        """There is a new connection."""
        self._watch.cleared()
        self._checked = self._last_joined = self._monotonic()
        self._joined = False

    @property
    def joined(self) -> bool:
        """Whether the group has let us in, ever since there is a connection."""
        return self._joined

    def topics(self, consumer: Consumer) -> Trouble | None:
        """Return which topics are not there, or not for us; asks nobody."""
        standing = consumer.standing()
        if standing.forbidden_topics:
            return Trouble(Kind.AUTHORIZATION, "a refusal", topics=standing.forbidden_topics)
        if standing.missing_topics:
            return Trouble(Kind.UNKNOWN_TOPIC, "none", topics=standing.missing_topics)
        return None

    def check(self, consumer: Consumer, moving: Mapping[Partition, Progress], *, quiet: bool) -> bool:
        """Return whether it was time to look, and all is well. Raises Trouble; Stalled when partitions do not move.

        `moving` are the partitions that are read and not paused; `quiet` says that the last poll brought nothing.
        """
        clock = self._monotonic()
        behind = {one: at.position for one, at in moving.items() if self._meter.behind(one, at.position)}
        suspects = self._watch.suspects(behind, clock)
        self._look_at_membership(consumer, clock)
        if clock - self._checked < self._pause:
            return False
        self._checked = clock
        if not quiet and not suspects:
            return True
        try:
            self._ask(consumer, moving, suspects)
        except Trouble as trouble:
            # A broker that is asked again after it refused us is one that does not answer, as the library sees it.
            refused = consumer.standing().refused if trouble.kind is Kind.UNREACHABLE else None
            raise refused or trouble from trouble
        return True

    def _look_at_membership(self, consumer: Consumer, clock: float) -> None:
        if consumer.standing().joined:
            self._joined, self._last_joined = True, clock
        elif clock - self._last_joined > _JOIN_SECONDS:
            raise Broken(Kind.OTHER, "that the group does not let us in")

    def _ask(self, consumer: Consumer, moving: Mapping[Partition, Progress], suspects: frozenset[Partition]) -> None:
        if not consumer.standing().has_coordinator:
            raise Trouble(Kind.UNREACHABLE, "no coordinator of the group")
        ends = consumer.ends(moving, _ASK_SECONDS)
        self._meter.found_ends(ends)
        # The end that fetches tell counts open transactions, which may not be read yet. The one asked for does not.
        stalled = frozenset(one for one in suspects if ends.get(one, 0) > moving[one].position)
        if stalled:
            raise Stalled(stalled)
