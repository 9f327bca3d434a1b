"""The checkpoint of a partition: where to continue reading, and in which log."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from monitor.sources.kafka.partition import Partition
from monitor.sources.kafka.rewind_index import RewindIndex

_VERSION = 1

_Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]


class PartitionCheckpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The checkpoint of a partition. Committed in one transaction with the records before it."""

    version: int
    next_offset: _Offset
    leader_epoch: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Of the last message read, to detect a log that was truncated and grew again."""
    topic_id: str = ""
    """The id of the topic: one of the same name created later has another."""
    fingerprint: str = ""
    gap_at: float | None = None
    """The newest event time before messages that retention deleted unread."""
    stretches: list[tuple[_Offset, float]] = []
    """See `RewindIndex`."""
    restored_to: _Offset = 0
    """Windows are being rebuilt from the log up to here."""


def checkpoint_at(next_offset: int, topic_id: str, fingerprint: str, restored_to: int = 0) -> PartitionCheckpoint:
    """Return a checkpoint of which only the offset is known."""
    return PartitionCheckpoint(_VERSION, next_offset, -1, topic_id, fingerprint, None, [], restored_to)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PartitionCheckpoint)


def encoded(checkpoint: PartitionCheckpoint) -> bytes:
    """Return the stored form of a checkpoint."""
    return _encoder.encode(checkpoint)


def decoded(value: bytes) -> PartitionCheckpoint | None:
    """Return a stored checkpoint; None if it is damaged or of another version."""
    try:
        checkpoint = _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return checkpoint if checkpoint.version == _VERSION else None


def partition_of(key: bytes) -> Partition | None:
    """Return the partition of a checkpoint key; None for any other key."""
    topic, slash, number = key.decode(errors="replace").rpartition("/")
    if not slash or not topic or not (number.isascii() and number.isdecimal()):
        return None
    return Partition(topic, int(number))


class TrackedPartition:
    """An assigned partition: its state after the last delivery, and as last committed."""

    def __init__(self, partition: Partition, checkpoint: PartitionCheckpoint) -> None:
        self.partition = partition
        self.next_offset = checkpoint.next_offset
        self.leader_epoch = checkpoint.leader_epoch
        self.topic_id = checkpoint.topic_id
        self.gap_at = checkpoint.gap_at
        self.restored_to = checkpoint.restored_to
        self.rewind = RewindIndex(checkpoint.stretches)
        self._committed = checkpoint

    @property
    def committed(self) -> PartitionCheckpoint:
        """The last committed checkpoint, or the one it was resumed with."""
        return self._committed

    @property
    def restoring(self) -> bool:
        """Whether windows are being rebuilt from the log."""
        return self.next_offset < self.restored_to

    def checkpoint(self, fingerprint: str) -> PartitionCheckpoint:
        """Return the current checkpoint."""
        return PartitionCheckpoint(
            _VERSION,
            self.next_offset,
            self.leader_epoch,
            self.topic_id,
            fingerprint,
            self.gap_at,
            self.rewind.entries,
            self.restored_to if self.restoring else 0,
        )

    def advance(self, first_offset: int, next_offset: int, leader_epoch: int, newest: float | None) -> None:
        """Advance behind delivered messages; `newest` is the newest event time of their records, None without records."""
        self.next_offset, self.leader_epoch = next_offset, leader_epoch
        if newest is not None:
            self.rewind.add(first_offset, newest)

    def mark_committed(self, fingerprint: str) -> None:
        """Make the current state the one to roll back to."""
        self._committed = self.checkpoint(fingerprint)

    def acknowledged(self, checkpoint: PartitionCheckpoint) -> None:
        """A checkpoint was committed."""
        self._committed = checkpoint

    def forget_before(self, oldest: float) -> None:
        """Windows contain nothing older than this."""
        self.rewind.forget_before(oldest)
        if self.gap_at is not None and oldest > self.gap_at:
            self.gap_at = None

    def roll_back(self) -> None:
        """Return to the last committed checkpoint."""
        self.next_offset, self.leader_epoch = self._committed.next_offset, self._committed.leader_epoch
        self.gap_at, self.restored_to = self._committed.gap_at, self._committed.restored_to
        self.rewind = RewindIndex(self._committed.stretches)


class StoredCheckpoints:
    """The checkpoints on disk, of all partitions that this process ever owned."""

    def __init__(self) -> None:
        self._checkpoints: dict[Partition, PartitionCheckpoint] = {}
        self.damaged: set[Partition] = set()
        """Partitions with an unreadable checkpoint."""

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> int:
        """Load the committed checkpoints; return how many are damaged."""
        damaged = 0
        for key, value in checkpoints.items():
            partition, checkpoint = partition_of(key), decoded(value)
            if partition is not None and checkpoint is not None:
                self._checkpoints[partition] = checkpoint
                continue
            damaged += 1
            if partition is not None:
                self.damaged.add(partition)
        return damaged

    def get(self, partition: Partition) -> PartitionCheckpoint | None:
        """Return the checkpoint of a partition."""
        return self._checkpoints.get(partition)

    def put(self, partition: Partition, checkpoint: PartitionCheckpoint) -> None:
        """A checkpoint was committed."""
        self._checkpoints[partition] = checkpoint
        self.damaged.discard(partition)
