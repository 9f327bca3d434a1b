"""The checkpoint of each file, and whether a file is still the one of its checkpoint.

An inode number proves nothing: ext4 reuses them. A name proves nothing: files are rotated and rewritten. The proof is
that the bytes before the offset are those that were read. To compare all of them at each poll would be too slow, so:

- up to 64 KiB, all are compared at each read after a change;
- beyond that, the first 1 KiB and the last 4 KiB before the offset, which detects a file that was truncated and grew past
  the offset between two polls;
- all of them if the inode differs, or the modification time changed without growth.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from pathlib import PurePath
from typing import Annotated
from zlib import crc32

import msgspec

from monitor.core.backoff import Backoff
from monitor.records.record_batch import Format
from monitor.records.rejections import RejectedFile
from monitor.sources.directory.directory_access import FileStat, OpenRefused, SafeDirectory, System, read_fully

_LONGEST = 300
KEY_BYTES = 16
VERSION = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a file cannot be used."""

    reason: str
    explanation: str = ""
    """The decoder's explanation. Quotes nothing of the file."""

    @classmethod
    def of(cls, rejected: RejectedFile) -> "Failure":
        """Return the failure of a rejected file. The message adds the file's name."""
        text = f"expected {rejected.problem.expected}, found {rejected.problem.found}"
        return cls(str(rejected.reason), text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")

    def __str__(self) -> str:
        """Return the text for the log."""
        return f"{self.explanation} ({self.reason})" if self.explanation else self.reason


CRASH = Failure("crash")
"""Decoding the file kills the process."""
DECODER_ERROR = Failure("decoder_error")
"""The decoder raised an unexpected exception."""


_Natural = Annotated[int, msgspec.Meta(ge=0)]
_Checksum = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class FileState(IntEnum):
    """The state of a file."""

    READING = 0
    """Read up to the offset; more may follow."""
    COMPLETE = 1
    """A whole file, read to its end."""
    FAILED = 2
    """Unusable as it is; see `reason`."""


class FileCheckpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The stored facts about one file. Contains neither its name nor its content."""

    version: _Natural
    format: Format
    state: FileState
    device: _Natural
    inode: _Natural
    """Hints only: inode numbers are reused."""
    size: _Natural
    modified_ns: int
    """Size and modification time when the checkpoint was made."""
    offset: _Natural = 0
    """The next unread byte."""
    checksum: _Checksum = 0
    """CRC-32 of everything before the offset; of the whole file for whole files."""
    head: _Checksum = 0
    """CRC-32 of the first bytes, once the offset is large; see above."""
    tail: _Checksum = 0
    """CRC-32 of the last bytes before the offset, once it is large."""
    line: _Natural = 1
    """Number of the next unread line."""
    rows: _Natural = 0
    """For whole files: rows delivered."""
    generation: _Natural = 0
    """How often the file restarted from offset 0."""
    skipping: bool = False
    """Whether the offset is within a line that is too long."""
    partial: bool = False
    """Whether its incomplete last line has been counted."""
    non_json_lines: _Natural | None = 0
    """See `TextPiece.non_json_lines`."""
    skip_to: _Natural = 0
    """Bytes before this are not decoded: they were there before the directory was watched."""
    changed_at: float = 0.0
    """Time of the last observed change, in Unix seconds by our own clock."""
    gone_at: float | None = None
    """When it was first missing."""
    reason: str = ""
    """Why it failed."""
    previous: "FileCheckpoint | None" = None
    """The checkpoint before a restart, as long as a file of another name may continue it."""
    explanation: str = ""
    """The decoder's explanation of the failure."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FileCheckpoint)


def encoded(checkpoint: FileCheckpoint) -> bytes:
    """Return the stored form of a checkpoint."""
    return _encoder.encode(checkpoint)


def decoded(value: bytes) -> FileCheckpoint | None:
    """Return a stored checkpoint; None if it is damaged or of another version."""
    try:
        checkpoint = _decoder.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return checkpoint if checkpoint.version == VERSION else None


class Keys:
    """Keyed hashes of relative paths: they identify files without revealing names."""

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(key=key[:64], digest_size=KEY_BYTES)

    def __call__(self, name: str) -> bytes:
        """Return the key of a file."""
        state = self._hash.copy()
        state.update(os.fsencode(name))
        return state.digest()


def file_key(name: PurePath | str, key: bytes) -> bytes:
    """Return the key of one file, by its relative path."""
    return Keys(key)(os.fspath(name))


def display_name(key: bytes) -> str:
    """Return the name of a file in messages."""
    return f"file#{key[:4].hex()}"


class FileCheckpoints:
    """The checkpoints of all files: as of the last delivery, and as last committed.

    They stay encoded: 100 bytes each instead of 500, for up to a million files.
    """

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._committed: dict[bytes, bytes | None] = {}
        """By changed key, the committed value."""

    def __contains__(self, key: bytes) -> bool:
        """Return whether there is a checkpoint."""
        return key in self._values

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over all keys."""
        return iter(self._values)

    def restore(self, values: Mapping[bytes, bytes]) -> int:
        """Load committed values; return how many were damaged."""
        good = {key: value for key, value in values.items() if len(key) == KEY_BYTES and decoded(value) is not None}
        self._values = good
        self._committed.clear()
        return len(values) - len(good)

    def get(self, key: bytes) -> FileCheckpoint | None:
        """Return a checkpoint."""
        value = self._values.get(key)
        return None if value is None else decoded(value)

    def put(self, key: bytes, checkpoint: FileCheckpoint | None) -> bytes | None:
        """Change or delete a checkpoint; return the value to commit."""
        self._committed.setdefault(key, self._values.get(key))
        if checkpoint is None:
            self._values.pop(key, None)
            return None
        value = encoded(checkpoint)
        self._values[key] = value
        return value

    def commit(self) -> None:
        """Accept all changes."""
        self._committed.clear()

    def roll_back(self) -> Iterable[bytes]:
        """Undo all changes since the last commit; return their keys."""
        changed, self._committed = self._committed, {}
        for key, value in changed.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
        return changed.keys()


SMALL_BYTES = 64 << 10
HEAD_BYTES = 1 << 10
TAIL_BYTES = 4 << 10
BLOCK_BYTES = 1 << 20


class FileChange(Enum):
    """How a file changed since it was last examined."""

    NONE = auto()
    GROWN = auto()
    """Longer: a quick comparison suffices."""
    SHRUNK = auto()
    """Shorter than what was read: it restarted."""
    OTHER_INODE = auto()
    """Another file has this name: renamed, replaced or remounted."""
    TOUCHED = auto()
    """Modified without growth: the content must be compared."""


def change(checkpoint: FileCheckpoint, before: FileStat | FileCheckpoint, stat: FileStat) -> FileChange:
    """Return how a tailed file changed."""
    if stat.same(before):
        return FileChange.NONE
    if stat.inode != before.inode:
        return FileChange.OTHER_INODE
    if stat.size < checkpoint.offset:
        return FileChange.SHRUNK
    return FileChange.GROWN if stat.size > before.size else FileChange.TOUCHED


def prefix_matches(system: System, file: int, checkpoint: FileCheckpoint) -> bool:
    """Return whether a file seems to start with what was read of it."""
    if checkpoint.offset <= SMALL_BYTES:
        return (
            crc32(read_fully(system, file, checkpoint.offset, 0)) == checkpoint.checksum if checkpoint.offset else True
        )
    return head_of(system, file) == checkpoint.head and tail_of(system, file, checkpoint.offset) == checkpoint.tail


def with_head(system: System, file: int, checkpoint: FileCheckpoint) -> FileCheckpoint:
    """Return the checkpoint of an unread file with the checksum of its first bytes."""
    return msgspec.structs.replace(
        checkpoint, head=crc32(read_fully(system, file, min(HEAD_BYTES, checkpoint.size), 0))
    )


def starts_like(system: System, file: int, checkpoint: FileCheckpoint) -> bool:
    """Return whether a file of another name starts like the file of a checkpoint."""
    if checkpoint.offset:
        return prefix_matches(system, file, checkpoint)
    return checkpoint.head != 0 and with_head(system, file, checkpoint).head == checkpoint.head


def head_of(system: System, file: int) -> int:
    """Return the checksum of the first bytes."""
    return crc32(read_fully(system, file, HEAD_BYTES, 0))


def tail_of(system: System, file: int, offset: int) -> int:
    """Return the checksum of the last bytes before a large offset."""
    return crc32(read_fully(system, file, TAIL_BYTES, offset - TAIL_BYTES))


@dataclass(slots=True)
class PrefixCheck:
    """Compares everything before an offset with its checksum, step by step: the file may be large."""

    length: int
    expected: int | None
    """None: only compute it."""
    done: int = 0
    checksum: int = 0

    def step(self, system: System, file: int, budget: int) -> bool | None:
        """Process this many bytes; return whether the content matches once known, else None."""
        while self.done < self.length:
            if budget <= 0:
                return None
            data = read_fully(system, file, min(BLOCK_BYTES, self.length - self.done), self.done)
            if not data:
                return False
            self.checksum = crc32(data, self.checksum)
            self.done += len(data)
            budget -= len(data)
        return self.expected is None or self.checksum == self.expected


def may_be_renamed(checkpoint: FileCheckpoint, stat: FileStat) -> bool:
    """Return whether a file of another name may be the renamed file of a checkpoint.

    Its content must still match. A new file with a reused inode and equal content differs in its time: a rename changes
    neither time nor size, and appending makes the file longer.
    """
    if stat.inode != checkpoint.inode or stat.size < checkpoint.offset:
        return False
    return stat.size > checkpoint.size or stat.modified_ns == checkpoint.modified_ns


@dataclass(slots=True)
class TrackedFile:
    """A file that is examined in each poll. Not stored: a restart finds it out again."""

    name: str
    """The relative path. Never leaves the source."""
    key: bytes
    format: Format
    entry: int = 0
    """The inode number from the listing, which may differ from that of a stat on some file systems."""
    checkpoint: FileCheckpoint | None = None
    stat: FileStat | None = None
    """The latest metadata."""
    since: float = 0.0
    """Since when it has not changed, on the monotonic clock."""
    unread: bool = False
    """Whether there is something to read."""
    settling: bool = False
    """Whether it waits to be unchanged for long enough."""
    refused: bool = False
    """Whether it turned out to be a file that is never read."""
    unfinished: int = 0
    """Bytes after the last newline that was read."""
    needs_comparison: bool = False
    """Whether its content must be compared although its metadata did not change."""
    check: PrefixCheck | None = None
    """A comparison in progress."""
    adopts: bytes | None = None
    """The key of the checkpoint that it continues if the comparison succeeds."""
    backoff: Backoff | None = None
    """The delay after a failure to open or read it."""
    failures: int = 0
    """Consecutive failures to decode it."""
    failed_at: float | None = None
    """When decoding failed, on the monotonic clock, as long as the file may be incomplete."""
    failure: Failure | None = None
    known_complete: bool = False
    """Whether it is known to be complete: it was renamed into the directory."""
    block_bytes: int = BLOCK_BYTES
    """Bytes to read at a time: fewer if decoding is slow."""
    zeros_at: int = -1
    """The offset of zero bytes that may be filled in."""
    zeros_since: float = 0.0
    zeros_until: int = 0
    """The size of the file when the wait began."""

    @property
    def grows(self) -> bool:
        """Whether it is tailed."""
        return self.format.grows

    @property
    def wait_until(self) -> float:
        """The time of the next attempt, on the monotonic clock."""
        return 0.0 if self.backoff is None else self.backoff.until

    @property
    def unread_bytes(self) -> int:
        """The number of unread bytes, as far as known."""
        if not (self.unread or self.settling) or self.stat is None:
            return 0
        if self.checkpoint is None:
            return self.stat.size
        return max(0, self.stat.size - self.checkpoint.offset) if self.grows else self.stat.size

    def observe(self, stat: FileStat, now: float) -> bool:
        """Update the metadata; return whether it changed."""
        changed = self.stat is None or not stat.same(self.stat)
        if changed:
            self.since = now
        self.stat = stat
        return changed


@dataclass(frozen=True, slots=True)
class OrphanedCheckpoint:
    """A checkpoint whose file is no longer in its place."""

    key: bytes
    checkpoint: FileCheckpoint
    former: bool = False
    """Whether this is the previous checkpoint of a restarted file."""


@dataclass(slots=True)
class UnmatchedFile:
    """A file without a checkpoint under its own name."""

    name: str
    key: bytes
    entry: int
    stat: FileStat
    tracked: TrackedFile | None = None
    """The tracked file, if the name had a checkpoint."""


@dataclass(frozen=True, slots=True)
class Match:
    """An unmatched file that continues an orphaned checkpoint, or may do so after a full comparison."""

    unmatched: UnmatchedFile
    orphan: OrphanedCheckpoint
    certain: bool = True


@dataclass(slots=True)
class OrphanedCheckpoints:
    """All checkpoints that wait for their file."""

    moved: dict[int, list[OrphanedCheckpoint]] = field(default_factory=dict)
    """By inode: the file may have been renamed."""
    copied: list[OrphanedCheckpoint] = field(default_factory=list)
    """Of files truncated or rewritten in place, whose old content may exist in a copy."""

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self.moved) or bool(self.copied)

    def add(self, orphan: OrphanedCheckpoint) -> None:
        """Add a checkpoint whose file may have been renamed."""
        self.moved.setdefault(orphan.checkpoint.inode, []).append(orphan)

    def add_copied(self, orphan: OrphanedCheckpoint) -> None:
        """Add a checkpoint whose file restarted in place."""
        self.add(orphan)
        # Nothing was read, so a copy could not be recognised.
        if orphan.checkpoint.offset and orphan.checkpoint.format.grows:
            self.copied.append(orphan)

    def matches(self, folder: SafeDirectory, unmatched_files: Iterable[UnmatchedFile]) -> list[Match]:
        """Return which files continue which checkpoints, each at most once; renamed files before copies."""
        taken: set[tuple[bytes, bool]] = set()
        found: list[Match] = []
        left: list[UnmatchedFile] = []

        def first(
            unmatched: UnmatchedFile,
            orphans: Iterable[OrphanedCheckpoint],
            fits: Callable[[SafeDirectory, UnmatchedFile, OrphanedCheckpoint], bool],
        ) -> OrphanedCheckpoint | None:
            for orphan in orphans:
                who = orphan.key, orphan.former
                if who not in taken and orphan.key != unmatched.key and fits(folder, unmatched, orphan):
                    taken.add(who)
                    return orphan
            return None

        for unmatched in unmatched_files:
            if (orphan := first(unmatched, self.moved.get(unmatched.stat.inode, ()), _renamed)) is not None:
                found.append(Match(unmatched, orphan))
            else:
                left.append(unmatched)
        found.extend(
            Match(unmatched, orphan, certain=orphan.checkpoint.offset <= SMALL_BYTES)
            for unmatched in left
            if (orphan := first(unmatched, self.copied, _starts_like)) is not None
        )
        return found


def _renamed(folder: SafeDirectory, unmatched: UnmatchedFile, orphan: OrphanedCheckpoint) -> bool:
    checkpoint, stat = orphan.checkpoint, unmatched.stat
    if not may_be_renamed(checkpoint, stat):
        return False
    if not checkpoint.format.grows or checkpoint.state is FileState.FAILED:
        return stat.same(checkpoint)
    return _starts_like(folder, unmatched, orphan)


def _starts_like(folder: SafeDirectory, unmatched: UnmatchedFile, orphan: OrphanedCheckpoint) -> bool:
    """Return whether a file seems to start with what was read according to a checkpoint."""
    if unmatched.stat.size < orphan.checkpoint.offset:
        return False
    try:
        with folder.opened(unmatched.name) as (file, stat):
            return stat.inode == unmatched.stat.inode and starts_like(folder.system, file, orphan.checkpoint)
    except (OSError, OpenRefused):
        return False
