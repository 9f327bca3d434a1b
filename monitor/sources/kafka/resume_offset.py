"""Resolves where an assigned partition is resumed: by its checkpoint, the group's committed offset, or the settings."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from monitor.sources.kafka.consumer import Consumer
from monitor.sources.kafka.events import KafkaEvent
from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from monitor.sources.kafka.partition import CommittedOffset, Partition
from monitor.sources.kafka.partition_checkpoint import (
    PartitionCheckpoint,
    StoredPositions,
    TrackedPartition,
    position_at,
)
from monitor.sources.kafka.rewind_index import Note, understood

_ASK_SECONDS = 1.0
"""Timeout of one request to the cluster. It blocks the ingestion thread."""


class Doubt(StrEnum):
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
    def note(self) -> Note | None:
        return None if self.committed is None else understood(self.committed.metadata)


class OffsetResolver:
    """Resolves resume offsets. Sends requests, so it may only be used between polls."""

    def __init__(self, options: KafkaOptions, stored: StoredPositions, fingerprint: str) -> None:
        self._options = options
        self._stored = stored
        self._fingerprint = fingerprint

    def place(
        self, consumer: Consumer, doubts: dict[Partition, Doubt], now: float, go_on: Callable[[], bool]
    ) -> Iterator[ResumeOffset]:
        """Yield resume offsets one by one, as long as time allows. Raises KafkaFailure."""
        for log in self._asked(consumer, list(doubts), go_on):
            stored = self._stored.get(log.partition)
            if stored is None:
                placed = self._from_group(consumer, log, doubts[log.partition], now)
                placed.reset = log.partition in self._stored.damaged
            else:
                placed = self._from_state(log, stored, doubts[log.partition])
            placed.end = log.end
            yield placed

    def _asked(self, consumer: Consumer, partitions: Iterable[Partition], go_on: Callable[[], bool]) -> Iterator[_Log]:
        partitions = list(partitions)
        beginnings = consumer.beginnings(partitions, _ASK_SECONDS)
        ends = consumer.ends(partitions, _ASK_SECONDS)
        for partition in partitions:
            committed = consumer.committed(partition, _ASK_SECONDS)
            yield _Log(partition, consumer.topic_id(partition.topic), beginnings[partition], ends[partition], committed)
            if not go_on():
                return

    def _from_state(self, log: _Log, stored: PartitionCheckpoint, doubt: Doubt) -> ResumeOffset:
        shard = log.partition.shard
        if stored.topic_id and log.topic_id and stored.topic_id != log.topic_id:
            return self._anew(log, KafkaEvent.TOPICS_RECREATED, f"{shard}: topic was deleted and created again")
        # Only the broker knows: after a leader election, or a change of isolation, the end may seem to be before the checkpoint.
        if doubt is Doubt.TRUNCATED or (doubt is Doubt.OUT_OF_RANGE and stored.next_offset > log.end):
            return self._anew(
                log, KafkaEvent.PARTITIONS_TRUNCATED, f"{shard}: log was truncated before the checkpoint"
            )
        note = log.note
        if note is not None and note.rewind > stored.next_offset and self._is_ours(note, log):
            # Others have read it for so long that no window contains anything stored here.
            placed = self._rewound(log, log.committed or CommittedOffset(note.rewind), note)
            placed.reset = True
            return placed
        placed = ResumeOffset(TrackedPartition(log.partition, stored))
        placed.tracked.topic_id = log.topic_id or stored.topic_id
        if stored.next_offset < log.beginning:
            self._lost(placed, log, stored.next_offset)
        else:
            placed.counted[KafkaEvent.PARTITIONS_RESUMED] += 1
            placed.events.append(f"{shard}: resumed at offset {stored.next_offset} from its checkpoint")
        if log.committed is not None and log.committed.offset <= log.end:
            placed.tracked.restored_to = max(stored.restored_to, log.committed.offset)
        return placed

    def _lost(self, placed: ResumeOffset, log: _Log, next_offset: int) -> None:
        lost = log.beginning - next_offset
        tracked = placed.tracked
        tracked.next_offset, tracked.leader_epoch = log.beginning, -1
        if tracked.rewind.entries:
            tracked.gap_at = tracked.rewind.newest
        placed.counted[KafkaEvent.RECORDS_LOST] += lost
        placed.warnings.append(
            f"{log.partition.shard}: expected offset {next_offset}, found the log start at {log.beginning} because of retention:"
            f" up to {lost:,} records lost; use a retention longer than the longest downtime"
        )

    def _anew(self, log: _Log, why: KafkaEvent, said: str) -> ResumeOffset:
        placed = ResumeOffset(self._tracked(log, log.beginning), reset=True)
        placed.counted[why] += 1
        placed.warnings.append(f"{said}; its windows are deleted, and it is read from the start")
        return placed

    def _from_group(self, consumer: Consumer, log: _Log, doubt: Doubt, now: float) -> ResumeOffset:
        committed = log.committed
        if committed is None:
            return self._started(consumer, log, now)
        if doubt is Doubt.TRUNCATED or committed.offset > log.end:
            placed = self._anew(
                log,
                KafkaEvent.PARTITIONS_TRUNCATED,
                f"{log.partition.shard}: log was truncated before the group's offset",
            )
            placed.reset = False
            return placed
        note = log.note
        if note is not None and note.topic_id and log.topic_id and note.topic_id != log.topic_id:
            placed = self._anew(
                log, KafkaEvent.TOPICS_RECREATED, f"{log.partition.shard}: topic was deleted and created again"
            )
            placed.reset = False
            return placed
        return self._rewound(log, committed, note)

    def _is_ours(self, note: Note, log: _Log) -> bool:
        """Return whether the metadata is of the same settings and the same log."""
        return note.fingerprint == self._fingerprint and note.topic_id == log.topic_id and note.rewind <= log.end

    def _rewound(self, log: _Log, committed: CommittedOffset, note: Note | None) -> ResumeOffset:
        """Rewind to rebuild windows, as recorded by another member of the group; without metadata resume at the group's offset."""
        shard = log.partition.shard
        rewind = committed.offset if note is None else min(note.rewind, committed.offset)
        placed = ResumeOffset(self._tracked(log, max(rewind, log.beginning), restored_to=committed.offset))
        if rewind < committed.offset:
            placed.counted[KafkaEvent.PARTITIONS_REWOUND] += 1
            placed.events.append(
                f"{shard}: rebuilding windows from offset {placed.tracked.next_offset} to {committed.offset}"
            )
        else:
            placed.counted[KafkaEvent.PARTITIONS_RESUMED] += 1
            placed.events.append(f"{shard}: resumed at offset {committed.offset}, committed by the group")
        if rewind < log.beginning:
            placed.counted[KafkaEvent.REWINDS_CUT_SHORT] += 1
            placed.counted[KafkaEvent.RECORDS_LOST] += max(0, log.beginning - committed.offset)
            placed.warnings.append(
                f"{shard}: expected to rebuild windows from offset {rewind}, found the log start at {log.beginning} because of"
                " retention: windows are filled only in part; use a retention longer than the longest window"
            )
        else:
            # With the epoch the broker detects a log that was truncated and grew past the group's offset.
            placed.tracked.leader_epoch = committed.leader_epoch
        if note is not None and note.fingerprint != self._fingerprint:
            placed.events.append(f"{shard}: last read with other settings; windows may be filled only in part")
        return placed

    def _started(self, consumer: Consumer, log: _Log, now: float) -> ResumeOffset:
        offset = {Start.EARLIEST: log.beginning, Start.LATEST: log.end}.get(self._options.start)
        if offset is None:
            since = now - (self._options.since_seconds or 0.0)
            found = consumer.offset_at(log.partition, since, _ASK_SECONDS)
            offset = log.end if found is None else max(found, log.beginning)
        placed = ResumeOffset(self._tracked(log, offset))
        placed.counted[KafkaEvent.PARTITIONS_STARTED] += 1
        placed.events.append(f"{log.partition.shard}: started at offset {offset}")
        return placed

    def _tracked(self, log: _Log, offset: int, restored_to: int = 0) -> TrackedPartition:
        return TrackedPartition(log.partition, position_at(offset, log.topic_id, self._fingerprint, restored_to))
