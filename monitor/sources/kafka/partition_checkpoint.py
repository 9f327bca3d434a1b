"""Partitions, their checkpoints, and the commit metadata from which another member can rebuild windows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import msgspec

MOST_ENTRIES = 128
"""More entries would shorten a rewind a little, and enlarge every checkpoint."""
_METADATA_VERSION = 1
_LONGEST_METADATA = 1_000
"""Brokers store 4,096 bytes of metadata per offset. Ours are about 120; longer ones are not ours."""
_VERSION = 1


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    @property
    def shard(self) -> str:
        """Its name as a shard, and in messages."""
        return f"{self.topic}/{self.number}"

    @property
    def key(self) -> bytes:
        """The key of its checkpoint."""
        return self.shard.encode()


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages of one partition in offset order, as columns."""

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    """None is a tombstone."""
    times_ms: Sequence[int]
    """Set by the producer or the broker; negative without one."""
    leader_epoch: int = -1
    """Of the last message; -1 if unknown."""

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.offsets)

    def from_offset(self, offset: int) -> "Fetched":
        """Return the messages from this offset on."""
        skip = next((i for i, one in enumerate(self.offsets) if one >= offset), len(self.offsets))
        if not skip:
            return self
        return Fetched(self.offsets[skip:], self.values[skip:], self.times_ms[skip:], self.leader_epoch)


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The group's committed offset of a partition."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Of the last message before the offset; -1 if unknown."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The consumer's position in a partition."""

    position: int
    end: int | None
    """The log end of the last fetch; None before the first."""


_Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]


class CommitMetadata(
    msgspec.Struct, frozen=True, rename={"version": "v", "rewind": "r", "fingerprint": "c", "topic_id": "t"}
):
    """The metadata of an offset committed to the group."""

    version: int
    rewind: _Offset
    """Where a member without stored windows starts reading."""
    fingerprint: str = ""
    """Of the settings that determine the content of windows."""
    topic_id: str = ""


_metadata_decoder = msgspec.json.Decoder(CommitMetadata)
_metadata_encoder = msgspec.json.Encoder()


def encode_metadata(rewind: int, fingerprint: str, topic_id: str) -> str:
    """Return the metadata to commit with an offset."""
    return _metadata_encoder.encode(CommitMetadata(_METADATA_VERSION, rewind, fingerprint, topic_id)).decode()


def decode_metadata(text: str) -> CommitMetadata | None:
    """Return the metadata of another process; None if it is not from cpcmon, or of another version."""
    if not text or len(text) > _LONGEST_METADATA:
        return None
    try:
        metadata = _metadata_decoder.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return metadata if metadata.version == _METADATA_VERSION else None


class RewindIndex:
    """The first offset and the newest event time of each stretch of a partition.

    The first stretch is dropped once all its records are older than the oldest in any window. Event times within a
    partition are not sorted: a stretch that is still needed keeps all later ones.
    """

    def __init__(self, entries: list[tuple[int, float]] | None = None) -> None:
        self._entries = list(entries or [])

    @property
    def entries(self) -> list[tuple[int, float]]:
        """First offsets, ascending, with the newest time up to the next."""
        return list(self._entries)

    @property
    def newest(self) -> float:
        """The newest event time; -inf without entries."""
        return max((time for _, time in self._entries), default=-math.inf)

    def first_needed(self, next_offset: int) -> int:
        """Return where a rewind must start; `next_offset` without entries."""
        return self._entries[0][0] if self._entries else next_offset

    def add(self, first_offset: int, newest: float) -> None:
        """Append a stretch."""
        self._entries.append((first_offset, newest))
        if len(self._entries) > MOST_ENTRIES:
            self._entries = [_joined(self._entries[i : i + 2]) for i in range(0, len(self._entries), 2)]

    def forget_before(self, oldest: float) -> None:
        """Drop the stretches before the oldest record in any window."""
        gone = next((i for i, (_, newest) in enumerate(self._entries) if newest >= oldest), len(self._entries))
        del self._entries[:gone]


def _joined(entries: list[tuple[int, float]]) -> tuple[int, float]:
    return entries[0][0], max(newest for _, newest in entries)


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
