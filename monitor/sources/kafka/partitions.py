"""The assigned partitions: resumed at their offset, tracked while they are read, released when revoked.

The client library reports assignments on its own thread, during a poll, where requests to the cluster would fail. So
they are only recorded, and handled when the poll has returned.

A damaged batch is first fetched again a few times: it may have been damaged in transit, or on one replica only. Then
its end is searched: every fetch from an offset within the batch fails, so the steps grow until one lands behind it, and
then a binary search narrows down the first readable offset.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from monitor.sources.base import Delivery, EventBuffer
from monitor.sources.kafka.consumer import Consumer, UnreadableBatch
from monitor.sources.kafka.health import PartitionLags
from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions
from monitor.sources.kafka.partition_checkpoint import (
    Partition,
    PartitionCheckpoint,
    PartitionProgress,
    StoredCheckpoints,
    TrackedPartition,
    encoded,
)
from monitor.sources.kafka.resume_offset import OffsetProblem, OffsetResolver, ResumeOffset


@dataclass(slots=True)
class OwnershipChange:
    """Changes of the assignment since the last call."""

    assigned: set[Partition] = field(default_factory=set)
    """To be resumed, even if they were assigned before."""
    revoked: int = 0
    lost: int = 0


class Ownership:
    """The assignment, written by the library's thread and read by the ingestion thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owned: set[Partition] = set()
        self._change: OwnershipChange | None = None

    @property
    def owned(self) -> frozenset[Partition]:
        """All assigned partitions."""
        with self._lock:
            return frozenset(self._owned)

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """The group assigned these in addition; there may be none."""
        with self._lock:
            change = self._pending_change()
            self._owned.update(added := set(partitions))
            change.assigned |= added

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """The group revoked these."""
        with self._lock:
            self._pending_change().revoked += self._remove(partitions)

    def lost(self, partitions: Iterable[Partition]) -> None:
        """These may have been assigned to others a while ago."""
        with self._lock:
            self._pending_change().lost += self._remove(partitions)

    def lost_all(self) -> None:
        """The connection is gone, and the assignment with it."""
        self.lost(self.owned)

    def take_change(self) -> OwnershipChange | None:
        """Return the changes, once; None without any."""
        with self._lock:
            change, self._change = self._change, None
            return change

    def _pending_change(self) -> OwnershipChange:
        self._change = self._change or OwnershipChange()
        return self._change

    def _remove(self, partitions: Iterable[Partition]) -> int:
        gone = set(partitions)
        before = len(self._owned)
        self._owned -= gone
        self._pending_change().assigned -= gone
        return before - len(self._owned)


FETCHED_AGAIN = 5


@dataclass(slots=True)
class _Search:
    start: int
    failed: int
    tried: int
    again: int = FETCHED_AGAIN
    worked: int | None = None
    step: int = 1


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Skipped offsets, end exclusive."""

    start: int
    end: int


class BatchSkipper:
    """The searches in progress, one for each partition with a damaged batch."""

    def __init__(self) -> None:
        self._searches: dict[Partition, _Search] = {}

    def __contains__(self, partition: Partition) -> bool:
        """Return whether a search is in progress."""
        return partition in self._searches

    def failed(self, partition: Partition, offset: int, end: int) -> int:
        """Return the next offset to try, after a fetch failed; never behind the end of the log."""
        search = self._searches.get(partition)
        if search is None or offset != search.tried:
            search = self._searches[partition] = _Search(offset, offset, offset)
        search.failed = offset
        if search.again:
            search.again -= 1
            return offset
        if search.worked is None:
            search.tried = max(offset + 1, min(offset + search.step, end))
            search.step *= 2
        else:
            search.tried = max(offset + 1, (offset + search.worked) // 2)
        return search.tried

    def worked(self, partition: Partition) -> int | SkippedRange:
        """Return the next offset to try, after a fetch succeeded; or the skipped range."""
        search = self._searches[partition]
        if search.tried == search.start:
            del self._searches[partition]
            return SkippedRange(search.start, search.start)
        if search.tried - search.failed > 1:
            search.worked = search.tried
            search.tried = (search.failed + search.worked) // 2
            return search.tried
        del self._searches[partition]
        return SkippedRange(search.start, search.tried)

    def forget(self, partition: Partition) -> None:
        """The partition is resolved again, or was revoked."""
        self._searches.pop(partition, None)


class Partitions:
    """The state of each assigned partition. Those without a resume offset are paused."""

    def __init__(
        self, options: KafkaOptions, fingerprint: str, meter: PartitionLags, monotonic: Callable[[], float]
    ) -> None:
        self.stored = StoredCheckpoints()
        self.tracked: dict[Partition, TrackedPartition] = {}
        self._fingerprint = fingerprint
        self._meter = meter
        self._monotonic = monotonic
        self._resolver = OffsetResolver(options, self.stored, fingerprint)
        self._unresolved: dict[Partition, OffsetProblem] = {}
        """Partitions that wait for their resume offset, and why."""
        self._rejected_offsets: dict[Partition, int] = {}
        """By partition, the latest offset that a broker rejected."""
        self._skipper = BatchSkipper()
        self._announced: dict[Partition, ResumeOffset] = {}
        """Resumed, in a delivery that is not acknowledged yet."""
        self._to_announce: dict[Partition, ResumeOffset] = {}
        self._delivered: dict[Partition, PartitionCheckpoint] = {}
        """Checkpoints in deliveries that are not acknowledged yet."""
        self._restoring_since: dict[Partition, float] = {}
        self._restored_seconds = 0.0

    # Assignment and resume offsets

    def update_assignment(self, owned: frozenset[Partition], assigned: Iterable[Partition]) -> None:
        """Release revoked partitions; newly assigned ones are resumed, even if they were assigned before."""
        again = set(assigned)
        for partition in [one for one in self.tracked if one not in owned or one in again]:
            self._release(partition)
        self._rejected_offsets = {one: at for one, at in self._rejected_offsets.items() if one in owned - again}
        self._unresolved = {one: problem for one, problem in self._unresolved.items() if one in owned}
        self._unresolved |= dict.fromkeys(again & owned, OffsetProblem.NONE)
        self._meter.retain(owned)

    def _release(self, partition: Partition) -> None:
        del self.tracked[partition]
        self._skipper.forget(partition)
        self._announced.pop(partition, None)
        self._to_announce.pop(partition, None)
        self._stop_clock(partition)

    def resolve_again(self, consumer: Consumer, partitions: Iterable[Partition], why: OffsetProblem) -> None:
        """Resolve the resume offset of partitions again; of all of them, if it is unknown which."""
        for partition in frozenset(partitions) or frozenset(self.tracked):
            if partition in self.tracked:
                self._unresolved[partition] = self._underlying(self.tracked[partition], why)
                self._release(partition)
                consumer.pause(partition)

    def _underlying(self, tracked: TrackedPartition, why: OffsetProblem) -> OffsetProblem:
        """Return the underlying problem.

        An offset within the log that is rejected twice was read under a leader epoch that the broker does not know, as
        after a cluster was restored from a copy: it would be rejected for ever.
        """
        if why is not OffsetProblem.OUT_OF_RANGE:
            return why
        again = self._rejected_offsets.get(tracked.partition) == tracked.next_offset
        self._rejected_offsets[tracked.partition] = tracked.next_offset
        return OffsetProblem.TRUNCATED if again and tracked.leader_epoch >= 0 else why

    def check_topics(self, consumer: Consumer) -> None:
        """Resolve partitions of recreated topics again."""
        ids = {topic: consumer.topic_id(topic) for topic in {one.topic for one in self.tracked}}
        for partition, tracked in list(self.tracked.items()):
            known = ids[partition.topic]
            if known and tracked.topic_id and known != tracked.topic_id:
                self.resolve_again(consumer, [partition], OffsetProblem.NONE)
            elif known:
                tracked.topic_id = known

    def resume_waiting(self, consumer: Consumer, now: float, seconds: float) -> Iterator[Delivery]:
        """Resume waiting partitions, as many as time allows, and deliver their checkpoints. Raises KafkaFailure."""
        if self._unresolved:
            until = self._monotonic() + seconds
            for one in self._resolver.resolve(consumer, self._unresolved, now, lambda: self._monotonic() < until):
                self._start(consumer, one, now)
        while self._to_announce:
            partition, one = self._to_announce.popitem()
            self._announced[partition] = one
            checkpoint = one.tracked.committed
            self._delivered[partition] = checkpoint
            yield Delivery(
                partition.shard,
                checkpoints={partition.key: encoded(checkpoint)},
                counted=one.counted,
                events=tuple(one.events),
                warnings=tuple(one.warnings),
                shard=partition.shard,
                reset=one.reset,
            )

    def _start(self, consumer: Consumer, resume: ResumeOffset, now: float) -> None:
        tracked = resume.tracked
        partition = tracked.partition
        self._unresolved.pop(partition, None)
        tracked.mark_committed(self._fingerprint)
        self.tracked[partition] = tracked
        self._to_announce[partition] = resume
        self._meter.start(partition, resume.end, now)
        if tracked.restoring:
            self._restoring_since[partition] = self._monotonic()
        self.seek(consumer, partition)
        consumer.resume(partition)

    def seek(self, consumer: Consumer, partition: Partition) -> None:
        """Continue a partition at its next offset."""
        tracked = self.tracked[partition]
        self._skipper.forget(partition)
        consumer.seek(partition, tracked.next_offset, tracked.leader_epoch)

    # Deliveries

    def delivered(self, partition: Partition, checkpoint: PartitionCheckpoint) -> None:
        """A delivery with this checkpoint is about to be returned."""
        self._delivered[partition] = checkpoint

    def acknowledge(self, oldest: Mapping[str, float]) -> None:
        """Everything delivered is committed."""
        for partition, checkpoint in self._delivered.items():
            self.stored.put(partition, checkpoint)
            if partition in self.tracked:
                self.tracked[partition].acknowledged(checkpoint)
        for partition, tracked in self.tracked.items():
            if (held := oldest.get(partition.shard)) is not None:
                tracked.forget_before(held)
        self._delivered.clear()
        self._announced.clear()

    def roll_back(self) -> set[Partition]:
        """Return to the last acknowledged state; return the partitions that changed."""
        changed = {one for one in self._delivered if one in self.tracked}
        for partition in changed:
            self.tracked[partition].roll_back()
        self._to_announce |= self._announced
        self._announced, self._delivered = {}, {}
        return changed

    # Damaged batches

    def skip(self, consumer: Consumer, unreadable: UnreadableBatch, event_log: EventBuffer) -> None:
        """Try behind an unreadable batch."""
        partition, at = unreadable.partition, unreadable.position
        if partition not in self._skipper:
            event_log.warn(f"{partition.shard}: the batch at offset {at} is damaged; retrying")
        end = at + self._meter.behind(partition, at)
        consumer.seek(partition, self._skipper.failed(partition, at, max(end, at + 1)))

    def may_deliver(self, consumer: Consumer, partition: Partition, event_log: EventBuffer) -> bool:
        """Return whether fetched messages may be delivered: not during a search for the end of a damaged batch."""
        if partition not in self._skipper:
            return True
        found = self._skipper.worked(partition)
        if not isinstance(found, SkippedRange):
            consumer.seek(partition, found)
            return False
        if found.end > found.start:
            event_log.counted[KafkaEvent.BATCHES_UNREADABLE] += 1
            event_log.counted[KafkaEvent.OFFSETS_UNREADABLE] += found.end - found.start
            event_log.warn(f"{partition.shard}: offsets {found.start} to {found.end - 1} are unreadable; skipped")
        return True

    # Status

    def moving(self, consumer: Consumer) -> Mapping[Partition, PartitionProgress]:
        """Return the progress of the partitions being read."""
        return {one: at for one, at in consumer.progress().items() if one in self.tracked}

    def detect_restored(self, moving: Mapping[Partition, PartitionProgress]) -> None:
        """Detect rebuilt windows. The group's offset may be behind a transaction marker, which is no record."""
        for partition in list(self._restoring_since):
            at = moving.get(partition)
            if at is not None and at.position >= self.tracked[partition].restored_to:
                self.tracked[partition].restored_to = 0
                self._stop_clock(partition)

    def restored_to(self) -> Mapping[Partition, int]:
        """Return by partition the offset up to which only windows are rebuilt."""
        return {one: tracked.restored_to for one, tracked in self.tracked.items()}

    @property
    def with_gap(self) -> int:
        """The number of partitions whose windows contain records from before a loss."""
        return sum(one.gap_at is not None for one in list(self.tracked.values()))

    @property
    def restore_seconds(self) -> float:
        """The total time spent rebuilding windows from the log."""
        clock = self._monotonic()
        return self._restored_seconds + sum(clock - since for since in list(self._restoring_since.values()))

    def _stop_clock(self, partition: Partition) -> None:
        since = self._restoring_since.pop(partition, None)
        if since is not None:
            self._restored_seconds += self._monotonic() - since
