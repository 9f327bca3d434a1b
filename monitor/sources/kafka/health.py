"""Lag, stall detection, partitions assigned to no member, and whether the cluster still answers.

Static members are the known cause of unassigned partitions. To a static member that returns within its session timeout
the broker returns the stored assignment, without a rebalance. If it was killed after it was told to revoke partitions
and before it rejoined, no member gets them. If it led the group it is not told so, and no member looks for new
partitions.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitor.sources.base import EventBuffer, Lag, LagMeter, ShardLag
from monitor.sources.kafka.consumer import (
    ConnectionBroken,
    Consumer,
    ConsumerGroup,
    FailureKind,
    KafkaFailure,
    describe,
)
from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions
from monitor.sources.kafka.partition_checkpoint import Partition, PartitionProgress

GROUP_CHECK_SECONDS = 10.0
_VALID_SECONDS = 60.0
"""How long an answer is valid. There is none during a rebalance."""
_MOST_CHECKS = 64
_NAMED = 5
CHECK_SECONDS = 5.0
_QUERY_SECONDS = 1.0
_JOIN_SECONDS = 330.0
"""The group waits up to five minutes for a busy member; after that a join will not succeed any more."""


@dataclass(slots=True)
class _Log:
    end: int
    """The log end, as far as it may be read."""
    started_at: float
    fetched_end: int | None = None
    """The log end of the last fetch; it may include open transactions."""


class PartitionLags:
    """Tracks log ends and message timestamps, and computes the lag of each partition."""

    def __init__(self) -> None:
        self._logs: dict[Partition, _Log] = {}
        self._meter = LagMeter[Partition]()
        self.lags: Mapping[str, ShardLag] = {}
        """The lag of each shard, as of the last measurement."""
        self.lag = Lag()
        """The lag of the source."""

    def start(self, partition: Partition, end: int, now: float) -> None:
        """Start with a partition and its log end."""
        self._logs[partition] = _Log(end, now)
        self._meter.start(partition)

    def retain(self, partitions: frozenset[Partition]) -> None:
        """Drop all others."""
        self._logs = {one: log for one, log in self._logs.items() if one in partitions}

    def read(self, partition: Partition, newest: float, now: float) -> None:
        """Messages were read; a timestamp in the future says nothing about lag."""
        self._meter.read(partition, min(newest, now))

    def found_ends(self, ends: Mapping[Partition, int]) -> None:
        """Update the requested log ends."""
        for partition, end in ends.items():
            if partition in self._logs:
                self._logs[partition].end = end

    def behind(self, partition: Partition, position: int) -> int:
        """Return the number of offsets between a position and the end."""
        log = self._logs.get(partition)
        return 0 if log is None else max(0, log.end - position)

    def measure(
        self, progress: Mapping[Partition, PartitionProgress], restored_to: Mapping[Partition, int], now: float
    ) -> None:
        """Compute the lag of each partition."""
        unread: dict[Partition, int] = {}
        for partition, log in self._logs.items():
            if (at := progress.get(partition)) is not None:
                if at.end is not None and at.end != log.fetched_end:
                    log.end = log.fetched_end = at.end
                unread[partition] = max(0, log.end - at.position)
        since = self._meter.measure([one for one in self._logs if unread.get(one, 1)], now)
        lags, oldest = {}, []
        for partition, records in unread.items():
            seconds = 0.0
            if not records:
                # What arrives from now on is unread since now.
                self._meter.start(partition, now)
            else:
                # Before the first read, the time of the assignment is all that is known.
                start = since[partition] if math.isfinite(since[partition]) else self._logs[partition].started_at
                oldest.append(start)
                seconds = max(0.0, now - start)
            restoring = min(records, max(0, restored_to.get(partition, 0) - progress[partition].position))
            lags[partition.shard] = ShardLag(records, seconds, restoring)
        self.lags = lags
        self.lag = Lag(
            files=len(oldest),
            oldest_unread=min(oldest, default=None),
            rebuilding=any(one.restoring for one in lags.values()),
        )


class StallDetector:
    """Detects partitions that do not advance: clients have been known to stop fetching silently."""

    def __init__(self, after_seconds: float) -> None:
        self._after = after_seconds
        self._moved: dict[Partition, tuple[int, float]] = {}

    def suspects(self, behind: Mapping[Partition, int], clock: float) -> frozenset[Partition]:
        """Return the partitions that have not advanced for too long.

        `behind` has the position of each partition with unread messages that is not paused.
        """
        moved = {}
        for partition, position in behind.items():
            before = self._moved.get(partition)
            moved[partition] = before if before is not None and before[0] == position else (position, clock)
        self._moved = moved
        return frozenset(one for one, (_, since) in moved.items() if clock - since >= self._after)

    def reset(self) -> None:
        """Start again: there is a new connection, or no stall."""
        self._moved.clear()


_NO_PARTITIONS: frozenset[Partition] = frozenset()


class UnassignedCheck:
    """Compares the assignments of the group with the partitions of its topics, and rejoins if some are unassigned."""

    def __init__(self, options: KafkaOptions, event_log: EventBuffer, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._event_log = event_log
        self._monotonic = monotonic
        self.begin()

    def begin(self) -> None:
        """There is a new connection."""
        self._requested_at = self._answered_at = float("-inf")
        self._latest: frozenset[Partition] = _NO_PARTITIONS
        self._lasting: frozenset[Partition] = _NO_PARTITIONS
        self._generation: int | None = None
        self._wait = self._left = 1

    @property
    def count(self) -> int | None:
        """Unassigned partitions in the last answer; None if it is outdated or missing."""
        return len(self._latest) if self._is_valid else None

    @property
    def waits_for(self) -> str | None:
        """Which partitions were unassigned in the last two answers; None if all were assigned.

        A single answer may fall between the two steps of a cooperative rebalance.
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
        """Request the assignments at intervals, and handle the answer. Never blocks."""
        clock = self._monotonic()
        if clock - self._requested_at >= GROUP_CHECK_SECONDS:
            self._requested_at = clock
            consumer.request_group()
        try:
            group = consumer.group()
        except KafkaFailure as failure:
            if failure.kind.needs_operator:
                message = f"cannot check for unassigned partitions: {describe(failure, self._options)}"
                self._event_log.warn_once("unassigned", message)
            return
        if group is not None:
            self._answered(group, consumer, clock)

    def _answered(self, group: ConsumerGroup, consumer: Consumer, clock: float) -> None:
        unassigned = group.partitions - group.assigned
        self._lasting, self._latest, self._answered_at = self._latest & unassigned, unassigned, clock
        if (message := self.waits_for) is not None:
            self._event_log.warn_once("unassigned", message)
        elif not unassigned:
            self._event_log.resolved(
                "unassigned", f"every partition is assigned to a member of group {self._options.group}"
            )
        # A member that must still revoke partitions triggers a rebalance when it rejoins, or when its session times
        # out. An earlier rejoin would only make the whole group wait for it.
        if not self._lasting - group.revoking:
            self._generation, self._wait = None, 1
            return
        if group.generation != self._generation:
            # Every rebalance that did not help doubles the wait, whichever member requested it.
            self._generation, self._left, self._wait = group.generation, self._wait, min(2 * self._wait, _MOST_CHECKS)
        self._left -= 1
        if self._left <= 0:
            self._event_log.counted[KafkaEvent.REJOINS] += 1
            consumer.rejoin()


class Stalled(ConnectionBroken):
    """Partitions do not advance although the cluster has more messages."""

    def __init__(self, partitions: frozenset[Partition]) -> None:
        shards = ", ".join(sorted(one.shard for one in partitions))
        super().__init__(FailureKind.OTHER, f"that {shards} did not advance although there are unread messages")


class HealthCheck:
    """Queries the cluster after a quiet period: a client without a broker waits silently."""

    def __init__(self, options: KafkaOptions, meter: PartitionLags, monotonic: Callable[[], float]) -> None:
        self._meter = meter
        self._monotonic = monotonic
        self._watch = StallDetector(options.stall_after_seconds)
        self._pause = min(CHECK_SECONDS, options.stall_after_seconds / 2)
        self._checked = float("-inf")
        self._joined = False
        self._last_joined = 0.0

    def begin(self) -> None:
        """There is a new connection."""
        self._watch.reset()
        self._checked = self._last_joined = self._monotonic()
        self._joined = False

    @property
    def joined(self) -> bool:
        """Whether this process has joined the group since the connection was opened."""
        return self._joined

    def topics(self, consumer: Consumer) -> KafkaFailure | None:
        """Return the failure for missing or forbidden topics. Sends no request."""
        membership = consumer.membership()
        if membership.forbidden_topics:
            return KafkaFailure(FailureKind.AUTHORIZATION, "a refusal", topics=membership.forbidden_topics)
        if membership.missing_topics:
            return KafkaFailure(FailureKind.UNKNOWN_TOPIC, "none", topics=membership.missing_topics)
        return None

    def check(self, consumer: Consumer, moving: Mapping[Partition, PartitionProgress], *, quiet: bool) -> bool:
        """Return whether a check was due and succeeded. Raises KafkaFailure; Stalled if partitions do not advance.

        `moving` has the partitions that are read and not paused; `quiet` means that the last poll returned nothing.
        """
        clock = self._monotonic()
        behind = {one: at.position for one, at in moving.items() if self._meter.behind(one, at.position)}
        suspects = self._watch.suspects(behind, clock)
        self._check_membership(consumer, clock)
        if clock - self._checked < self._pause:
            return False
        self._checked = clock
        if not quiet and not suspects:
            return True
        try:
            self._query(consumer, moving, suspects)
        except KafkaFailure as failure:
            # After a refusal the library reports the broker as unreachable.
            refused = consumer.membership().refused if failure.kind is FailureKind.UNREACHABLE else None
            raise refused or failure from failure
        return True

    def _check_membership(self, consumer: Consumer, clock: float) -> None:
        if consumer.membership().joined:
            self._joined, self._last_joined = True, clock
        elif clock - self._last_joined > _JOIN_SECONDS:
            raise ConnectionBroken(FailureKind.OTHER, "no admission to the group")

    def _query(
        self, consumer: Consumer, moving: Mapping[Partition, PartitionProgress], suspects: frozenset[Partition]
    ) -> None:
        if not consumer.membership().has_coordinator:
            raise KafkaFailure(FailureKind.UNREACHABLE, "no coordinator of the group")
        ends = consumer.ends(moving, _QUERY_SECONDS)
        self._meter.found_ends(ends)
        # The end reported by fetches includes open transactions, which cannot be read yet. The requested one does not.
        stalled = frozenset(one for one in suspects if ends.get(one, 0) > moving[one].position)
        if stalled:
            raise Stalled(stalled)
