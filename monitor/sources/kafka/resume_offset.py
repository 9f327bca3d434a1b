"""Where a partition that was just assigned is read on: by our own state, by what the group knows, or by the settings."""

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
"""How long one question to the cluster may take. The thread that ingests waits for it."""


class Doubt(StrEnum):
    """Why a partition that was being read has to be placed anew."""

    NONE = "none"
    OUT_OF_RANGE = "out_of_range"
    """The broker refused its offset."""
    TRUNCATED = "truncated"
    """The broker's log is another one than what was read."""


@dataclass(slots=True)
class ResumeOffset:
    """Where a partition goes on, and what there is to say about it."""

    tracked: TrackedPartition
    reset: bool = False
    """Whether what is stored of it is of another log, or of no use."""
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
    """Decides where partitions go on. Asks the cluster, so that it may only be used between polls."""

    def __init__(self, options: KafkaOptions, stored: StoredPositions, fingerprint: str) -> None:
        self._options = options
        self._stored = stored
        self._fingerprint = fingerprint

    def place(
        self, consumer: Consumer, doubts: dict[Partition, Doubt], now: float, go_on: Callable[[], bool]
    ) -> Iterator[ResumeOffset]:
        """Yield where partitions go on, one after the other, as long as there is time. Raises Trouble."""
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
            return self._anew(log, KafkaEvent.TOPICS_RECREATED, f"{shard}: its topic was deleted and made anew")
        # Only the broker knows: after a change of leader, or of isolation, the end may seem to lie before the position.
        if doubt is Doubt.TRUNCATED or (doubt is Doubt.OUT_OF_RANGE and stored.next_offset > log.end):
            return self._anew(
                log, KafkaEvent.PARTITIONS_TRUNCATED, f"{shard}: its log no longer holds what was read of it"
            )
        note = log.note
        if note is not None and note.rewind > stored.next_offset and self._is_ours(note, log):
            # Others have read it for so long that nothing stored here is in any window now.
            placed = self._rewound(log, log.committed or CommittedOffset(note.rewind), note)
            placed.reset = True
            return placed
        placed = ResumeOffset(TrackedPartition(log.partition, stored))
        placed.tracked.topic_id = log.topic_id or stored.topic_id
        if stored.next_offset < log.beginning:
            self._lost(placed, log, stored.next_offset)
        else:
            placed.counted[KafkaEvent.PARTITIONS_RESUMED] += 1
            placed.events.append(f"{shard}: goes on at offset {stored.next_offset}, where its stored windows end")
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
            f"{log.partition.shard}: expected offset {next_offset}, found that retention has deleted up to "
            f"{log.beginning}: at most {lost:,} records are lost; keep messages longer than this process may be away"
        )

    def _anew(self, log: _Log, why: KafkaEvent, said: str) -> ResumeOffset:
        placed = ResumeOffset(self._tracked(log, log.beginning), reset=True)
        placed.counted[why] += 1
        placed.warnings.append(f"{said}; its windows are forgotten, and it is read from its beginning")
        return placed

    def _from_group(self, consumer: Consumer, log: _Log, doubt: Doubt, now: float) -> ResumeOffset:
        committed = log.committed
        if committed is None:
            return self._started(consumer, log, now)
        if doubt is Doubt.TRUNCATED or committed.offset > log.end:
            placed = self._anew(
                log,
                KafkaEvent.PARTITIONS_TRUNCATED,
                f"{log.partition.shard}: its log no longer holds what its group read",
            )
            placed.reset = False
            return placed
        note = log.note
        if note is not None and note.topic_id and log.topic_id and note.topic_id != log.topic_id:
            placed = self._anew(
                log, KafkaEvent.TOPICS_RECREATED, f"{log.partition.shard}: its topic was deleted and made anew"
            )
            placed.reset = False
            return placed
        return self._rewound(log, committed, note)

    def _is_ours(self, note: Note, log: _Log) -> bool:
        """Tell whether a note is of the same settings and the same log."""
        return note.fingerprint == self._fingerprint and note.topic_id == log.topic_id and note.rewind <= log.end

    def _rewound(self, log: _Log, committed: CommittedOffset, note: Note | None) -> ResumeOffset:
        """Read again what windows hold, as another member of the group noted it; without a note go on at its offset."""
        shard = log.partition.shard
        rewind = committed.offset if note is None else min(note.rewind, committed.offset)
        placed = ResumeOffset(self._tracked(log, max(rewind, log.beginning), restored_to=committed.offset))
        if rewind < committed.offset:
            placed.counted[KafkaEvent.PARTITIONS_REWOUND] += 1
            placed.events.append(
                f"{shard}: rebuilds its windows from offset {placed.tracked.next_offset} on, "
                f"and has caught up at {committed.offset}"
            )
        else:
            placed.counted[KafkaEvent.PARTITIONS_RESUMED] += 1
            placed.events.append(f"{shard}: goes on at offset {committed.offset}, where its group was")
        if rewind < log.beginning:
            placed.counted[KafkaEvent.REWINDS_CUT_SHORT] += 1
            placed.counted[KafkaEvent.RECORDS_LOST] += max(0, log.beginning - committed.offset)
            placed.warnings.append(
                f"{shard}: expected to rebuild its windows from offset {rewind}, found that retention has deleted up to "
                f"{log.beginning}: they are filled only in part; keep messages longer than the longest window"
            )
        else:
            # So that the broker says if its log was truncated, and has grown again past the group's offset.
            placed.tracked.leader_epoch = committed.leader_epoch
        if note is not None and note.fingerprint != self._fingerprint:
            placed.events.append(f"{shard}: was last read under other settings; its windows may be filled only in part")
        return placed

    def _started(self, consumer: Consumer, log: _Log, now: float) -> ResumeOffset:
        offset = {Start.EARLIEST: log.beginning, Start.LATEST: log.end}.get(self._options.start)
        if offset is None:
            since = now - (self._options.since_seconds or 0.0)
            found = consumer.offset_at(log.partition, since, _ASK_SECONDS)
            offset = log.end if found is None else max(found, log.beginning)
        placed = ResumeOffset(self._tracked(log, offset))
        placed.counted[KafkaEvent.PARTITIONS_STARTED] += 1
        placed.events.append(f"{log.partition.shard}: is read for the first time, from offset {offset} on")
        return placed

    def _tracked(self, log: _Log, offset: int, restored_to: int = 0) -> TrackedPartition:
        return TrackedPartition(log.partition, position_at(offset, log.topic_id, self._fingerprint, restored_to))
