"""Resolves where an assigned partition is resumed: by its checkpoint, the group's committed offset, or the settings."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from monitor.sources.kafka.consumer import Consumer
from monitor.sources.kafka.kafka_options import KafkaEvent, KafkaOptions, Start
from monitor.sources.kafka.partition_checkpoint import (
    CommitMetadata,
    CommittedOffset,
    Partition,
    PartitionCheckpoint,
    StoredCheckpoints,
    TrackedPartition,
    checkpoint_at,
    decode_metadata,
)

_QUERY_SECONDS = 1.0
"""Timeout of one request to the cluster. It blocks the ingestion thread."""


class OffsetProblem(StrEnum):
    """Why the resume offset of a partition must be resolved again."""

    NONE = "none"
    OUT_OF_RANGE = "out_of_range"
    """The broker rejected the offset."""
    TRUNCATED = "truncated"
    """The log was truncated."""


@dataclass(slots=True)
class ResumeOffset:
    """Where a partition is resumed, and what to report."""

    tracked: TrackedPartition
    reset: bool = False
    """Whether its stored data is invalid."""
    counted: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    end: int = 0


@dataclass(frozen=True, slots=True)
class _Log:
    """What the cluster knows of a partition."""

    partition: Partition
    topic_id: str
    beginning: int
    end: int
    committed: CommittedOffset | None

    @property
    def metadata(self) -> CommitMetadata | None:
        return None if self.committed is None else decode_metadata(self.committed.metadata)


class OffsetResolver:
    """Resolves resume offsets. Sends requests, so it may only be used between polls."""

    def __init__(self, options: KafkaOptions, stored: StoredCheckpoints, fingerprint: str) -> None:
        self._options = options
        self._stored = stored
        self._fingerprint = fingerprint

    def resolve(
        self, consumer: Consumer, unresolved: dict[Partition, OffsetProblem], now: float, has_time: Callable[[], bool]
    ) -> Iterator[ResumeOffset]:
        """Yield resume offsets one by one, as long as time allows. Raises KafkaFailure."""
        for log in self._logs(consumer, list(unresolved), has_time):
            stored = self._stored.get(log.partition)
            if stored is None:
                resume = self._from_group(consumer, log, unresolved[log.partition], now)
                resume.reset = log.partition in self._stored.damaged
            else:
                resume = self._from_state(log, stored, unresolved[log.partition])
            resume.end = log.end
            yield resume

    def _logs(
        self, consumer: Consumer, partitions: Iterable[Partition], has_time: Callable[[], bool]
    ) -> Iterator[_Log]:
        partitions = list(partitions)
        beginnings = consumer.beginnings(partitions, _QUERY_SECONDS)
        ends = consumer.ends(partitions, _QUERY_SECONDS)
        for partition in partitions:
            committed = consumer.committed(partition, _QUERY_SECONDS)
            yield _Log(partition, consumer.topic_id(partition.topic), beginnings[partition], ends[partition], committed)
            if not has_time():
                return

    def _from_state(self, log: _Log, stored: PartitionCheckpoint, problem: OffsetProblem) -> ResumeOffset:
        shard = log.partition.shard
        if stored.topic_id and log.topic_id and stored.topic_id != log.topic_id:
            return self._restart(log, KafkaEvent.TOPICS_RECREATED, f"{shard}: topic was deleted and created again")
        # Only the broker knows: after a leader election, or a change of isolation, the end may seem to be before the
        # checkpoint.
        if problem is OffsetProblem.TRUNCATED or (
            problem is OffsetProblem.OUT_OF_RANGE and stored.next_offset > log.end
        ):
            return self._restart(
                log,
                KafkaEvent.PARTITIONS_TRUNCATED,
                f"{shard}: log was truncated before the checkpoint",
                read_to=stored.next_offset,
            )
        metadata = log.metadata
        if metadata is not None and metadata.rewind > stored.next_offset and self._is_ours(metadata, log):
            # Others have read it for so long that no window contains anything stored here.
            resume = self._rewind(log, log.committed or CommittedOffset(metadata.rewind), metadata)
            resume.reset = True
            return resume
        resume = ResumeOffset(TrackedPartition(log.partition, stored))
        resume.tracked.topic_id = log.topic_id or stored.topic_id
        if stored.next_offset < log.beginning:
            self._lost(resume, log, stored.next_offset)
        else:
            resume.counted[KafkaEvent.PARTITIONS_RESUMED] += 1
            resume.events.append(f"{shard}: resumed at offset {stored.next_offset} from its checkpoint")
        if log.committed is not None and log.committed.offset <= log.end:
            resume.tracked.restored_to = max(stored.restored_to, log.committed.offset)
        return resume

    def _lost(self, resume: ResumeOffset, log: _Log, next_offset: int) -> None:
        lost = log.beginning - next_offset
        tracked = resume.tracked
        tracked.next_offset, tracked.leader_epoch = log.beginning, -1
        if tracked.rewind.entries:
            tracked.gap_at = tracked.rewind.newest
        resume.counted[KafkaEvent.RECORDS_LOST] += lost
        resume.warnings.append(
            f"{log.partition.shard}: expected offset {next_offset}, found the log start at {log.beginning} because of retention:"
            f" up to {lost:,} records lost; use a retention longer than the longest downtime"
        )

    def _restart(self, log: _Log, why: KafkaEvent, message: str, read_to: int = 0) -> ResumeOffset:
        """Restart at the log start. Of a truncated log, what is left before `read_to` was mostly read before."""
        resume = ResumeOffset(self._tracked(log, log.beginning, min(read_to, log.end)), reset=True)
        resume.counted[why] += 1
        resume.warnings.append(f"{message}; its windows are deleted, and it is read from the start")
        return resume

    def _from_group(self, consumer: Consumer, log: _Log, problem: OffsetProblem, now: float) -> ResumeOffset:
        committed = log.committed
        if committed is None:
            return self._first_start(consumer, log, now)
        if problem is OffsetProblem.TRUNCATED or committed.offset > log.end:
            resume = self._restart(
                log,
                KafkaEvent.PARTITIONS_TRUNCATED,
                f"{log.partition.shard}: log was truncated before the group's offset",
                read_to=committed.offset,
            )
            resume.reset = False
            return resume
        metadata = log.metadata
        if metadata is not None and metadata.topic_id and log.topic_id and metadata.topic_id != log.topic_id:
            resume = self._restart(
                log, KafkaEvent.TOPICS_RECREATED, f"{log.partition.shard}: topic was deleted and created again"
            )
            resume.reset = False
            return resume
        return self._rewind(log, committed, metadata)

    def _is_ours(self, metadata: CommitMetadata, log: _Log) -> bool:
        """Return whether the metadata is of the same settings and the same log."""
        return (
            metadata.fingerprint == self._fingerprint
            and metadata.topic_id == log.topic_id
            and metadata.rewind <= log.end
        )

    def _rewind(self, log: _Log, committed: CommittedOffset, metadata: CommitMetadata | None) -> ResumeOffset:
        """Rewind to rebuild windows, as recorded by another member of the group; without metadata resume at the group's offset."""
        shard = log.partition.shard
        rewind = committed.offset if metadata is None else min(metadata.rewind, committed.offset)
        resume = ResumeOffset(self._tracked(log, max(rewind, log.beginning), restored_to=committed.offset))
        if rewind < committed.offset:
            resume.counted[KafkaEvent.PARTITIONS_REWOUND] += 1
            resume.events.append(
                f"{shard}: rebuilding windows from offset {resume.tracked.next_offset} to {committed.offset}"
            )
        else:
            resume.counted[KafkaEvent.PARTITIONS_RESUMED] += 1
            resume.events.append(f"{shard}: resumed at offset {committed.offset}, committed by the group")
        if rewind < log.beginning:
            resume.counted[KafkaEvent.REWINDS_CUT_SHORT] += 1
            resume.counted[KafkaEvent.RECORDS_LOST] += max(0, log.beginning - committed.offset)
            resume.warnings.append(
                f"{shard}: expected to rebuild windows from offset {rewind}, found the log start at {log.beginning} because of"
                " retention: windows are filled only in part; use a retention longer than the longest window"
            )
        else:
            # With the epoch the broker detects a log that was truncated and grew past the group's offset.
            resume.tracked.leader_epoch = committed.leader_epoch
        if metadata is not None and metadata.fingerprint != self._fingerprint:
            resume.events.append(f"{shard}: last read with other settings; windows may be filled only in part")
        return resume

    def _first_start(self, consumer: Consumer, log: _Log, now: float) -> ResumeOffset:
        offset = {Start.EARLIEST: log.beginning, Start.LATEST: log.end}.get(self._options.start)
        if offset is None:
            since = now - (self._options.since_seconds or 0.0)
            found = consumer.offset_at(log.partition, since, _QUERY_SECONDS)
            offset = log.end if found is None else max(found, log.beginning)
        # With a damaged checkpoint it was read before, nobody knows how far.
        damaged = log.partition in self._stored.damaged
        resume = ResumeOffset(self._tracked(log, offset, log.end if damaged else 0))
        resume.counted[KafkaEvent.PARTITIONS_STARTED] += 1
        resume.events.append(f"{log.partition.shard}: started at offset {offset}")
        return resume

    def _tracked(self, log: _Log, offset: int, restored_to: int = 0) -> TrackedPartition:
        return TrackedPartition(log.partition, checkpoint_at(offset, log.topic_id, self._fingerprint, restored_to))
