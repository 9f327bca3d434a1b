"""Whether a file is still the one that was read: metadata first, content in case of doubt.

An inode number proves nothing: ext4 reuses them. A name proves nothing: files are rotated and rewritten. The proof is that
the bytes before the offset are those that were read. To compare all of them at each poll would be too slow, so:

- up to 64 KiB, all are compared at each read after a change;
- beyond that, the first 1 KiB and the last 4 KiB before the offset, which detects a file that was truncated and grew past
  the offset between two polls;
- all of them if the inode differs, or the modification time changed without growth.
"""

import os
from dataclasses import dataclass
from enum import Enum, auto
from zlib import crc32

import msgspec

from monitor.sources.directory.file_checkpoint import FileCheckpoint
from monitor.sources.directory.system_calls import System, read_fully

SMALL_BYTES = 64 << 10
HEAD_BYTES = 1 << 10
TAIL_BYTES = 4 << 10
_BLOCK_BYTES = 1 << 20
_LATEST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class FileLook:
    """File metadata."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileLook":
        """Return the relevant fields of a stat result. Absurd times are clipped, so that they can be stored."""
        modified = max(-_LATEST_NS, min(_LATEST_NS, status.st_mtime_ns))
        return cls(status.st_dev, status.st_ino, status.st_size, modified)

    def same(self, other: "FileLook | FileCheckpoint") -> bool:
        """Return whether nothing changed. Device numbers may change on a remount and are ignored."""
        return self.inode == other.inode and self.size == other.size and self.modified_ns == other.modified_ns


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


def change(row: FileCheckpoint, before: FileLook | FileCheckpoint, look: FileLook) -> FileChange:
    """Return how a tailed file changed."""
    if look.same(before):
        return FileChange.NONE
    if look.inode != before.inode:
        return FileChange.OTHER_INODE
    if look.size < row.offset:
        return FileChange.SHRUNK
    return FileChange.GROWN if look.size > before.size else FileChange.TOUCHED


def quickly_matches(system: System, file: int, row: FileCheckpoint) -> bool:
    """Return whether a file seems to start with what was read of it."""
    if row.offset <= SMALL_BYTES:
        return crc32(read_fully(system, file, row.offset, 0)) == row.checksum if row.offset else True
    return head_of(system, file) == row.head and tail_of(system, file, row.offset) == row.tail


def begun(system: System, file: int, row: FileCheckpoint) -> FileCheckpoint:
    """Return the checkpoint of an unread file with the checksum of its first bytes."""
    return msgspec.structs.replace(row, head=crc32(read_fully(system, file, min(HEAD_BYTES, row.size), 0)))


def begins_like(system: System, file: int, row: FileCheckpoint) -> bool:
    """Return whether a file of another name starts like the file of a checkpoint."""
    if row.offset:
        return quickly_matches(system, file, row)
    return row.head != 0 and begun(system, file, row).head == row.head


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
            data = read_fully(system, file, min(_BLOCK_BYTES, self.length - self.done), self.done)
            if not data:
                return False
            self.checksum = crc32(data, self.checksum)
            self.done += len(data)
            budget -= len(data)
        return self.expected is None or self.checksum == self.expected


def may_continue(row: FileCheckpoint, look: FileLook) -> bool:
    """Return whether a file of another name may be the renamed file of a checkpoint.

    Its content must still match. A new file with a reused inode and equal content differs in its time: a rename changes
    neither time nor size, and appending makes the file longer.
    """
    if look.inode != row.inode or look.size < row.offset:
        return False
    return look.size > row.size or look.modified_ns == row.modified_ns
