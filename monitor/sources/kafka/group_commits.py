"""Commits offsets to the group: for lag tools, and for members without our disk."""

from collections.abc import Callable, Iterable, Mapping

from monitor.sources.kafka.consumer import Consumer
from monitor.sources.kafka.events import EventLog, KafkaEvent
from monitor.sources.kafka.failures import KafkaFailure
from monitor.sources.kafka.partition import CommittedOffset, Partition, PartitionProgress
from monitor.sources.kafka.partition_checkpoint import TrackedPartition
from monitor.sources.kafka.rewind_index import encode_metadata

_CLOSE_SECONDS = 1.0


class OffsetCommitter:
    """Commits offsets at intervals. A failure is counted; the next commit covers it."""

    def __init__(
        self, every_seconds: float, fingerprint: str, event_log: EventLog, monotonic: Callable[[], float]
    ) -> None:
        self._every = every_seconds
        self._fingerprint = fingerprint
        self._event_log = event_log
        self._monotonic = monotonic
        self._last = float("-inf")
        self._last_committed: dict[Partition, CommittedOffset] = {}

    @property
    def is_due(self) -> bool:
        """Whether a commit is due."""
        return self._monotonic() - self._last >= self._every

    def commit(
        self, consumer: Consumer, tracked: Iterable[TrackedPartition], progress: Mapping[Partition, PartitionProgress]
    ) -> None:
        """Commit what is new, asynchronously.

        `progress` has the partitions of which everything fetched was delivered.
        """
        offsets = self._new(tracked, progress)
        if not offsets:
            return
        self._last = self._monotonic()

        def done(worked: bool) -> None:  # noqa: FBT001 - the consumer calls it
            self._event_log.counted[KafkaEvent.OFFSET_COMMITS if worked else KafkaEvent.OFFSET_COMMIT_ERRORS] += 1
            if worked:
                self._last_committed |= offsets

        try:
            consumer.commit(offsets, done)
        except KafkaFailure:
            self._event_log.counted[KafkaEvent.OFFSET_COMMIT_ERRORS] += 1

    def commit_now(self, consumer: Consumer, tracked: Iterable[TrackedPartition]) -> None:
        """Commit what is new before leaving; blocks for a moment."""
        offsets = self._new(tracked, {})
        if offsets:
            try:
                consumer.commit_now(offsets, _CLOSE_SECONDS)
            except KafkaFailure:
                self._event_log.counted[KafkaEvent.OFFSET_COMMIT_ERRORS] += 1

    def forget(self) -> None:
        """Forget what was committed: after a rebalance others may have committed since."""
        self._last_committed.clear()

    def _new(
        self, tracked: Iterable[TrackedPartition], progress: Mapping[Partition, PartitionProgress]
    ) -> dict[Partition, CommittedOffset]:
        offsets = {}
        for one in tracked:
            checkpoint = one.committed
            # While windows are rebuilt the group's offset is ahead of us, and must not be moved back.
            if one.restoring:
                continue
            rewind = min(one.rewind.first_needed(checkpoint.next_offset), checkpoint.next_offset)
            offset = checkpoint.next_offset
            if (at := progress.get(one.partition)) is not None and offset == one.next_offset:
                # A transaction marker may follow the last record; it is no record and needs no wait.
                offset = max(offset, at.position)
            committed = CommittedOffset(
                offset, encode_metadata(rewind, self._fingerprint, one.topic_id), checkpoint.leader_epoch
            )
            if self._last_committed.get(one.partition) != committed:
                offsets[one.partition] = committed
        return offsets
