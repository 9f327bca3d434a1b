"""Whether a file is still the one that was read: cheap signs first, its content when they leave a doubt.

The number of an inode proves nothing, since ext4 gives the number of a deleted file to the next new one. A name proves
nothing, since files are rotated and rewritten. What proves it is that the bytes before our offset are those that we
read. Reading them all again at each poll would cost too much, so:

- up to 64 KiB they are all compared, at each read that follows a change;
- beyond that the first 1 KiB and the last 4 KiB before the offset are, which finds a file that was truncated and has
  grown past our offset between two polls;
- all of them are when there is a cause for suspicion: another inode, or another time of change without growth.
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
    """What the file system says of a file."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileLook":
        """Return what matters of a stat; absurd times are cut, so that they can be kept."""
        modified = max(-_LATEST_NS, min(_LATEST_NS, status.st_mtime_ns))
        return cls(status.st_dev, status.st_ino, status.st_size, modified)

    def same(self, other: "FileLook | FileCheckpoint") -> bool:
        """Tell whether nothing has changed. A device's number may change when it is mounted again; that is nothing."""
        return self.inode == other.inode and self.size == other.size and self.modified_ns == other.modified_ns


class FileChange(Enum):
    """What a look at a file means for what was read of it."""

    NONE = auto()
    GROWN = auto()
    """It is longer: a quick comparison is enough."""
    SHRUNK = auto()
    """It is shorter than what was read: it began anew."""
    OTHER_INODE = auto()
    """Another file has its name: renamed, replaced, or mounted anew."""
    TOUCHED = auto()
    """It was written without growing: only its content can tell."""


def change(row: FileCheckpoint, before: FileLook | FileCheckpoint, look: FileLook) -> FileChange:
    """Return what changed in a file that grows, since it was looked at before."""
    if look.same(before):
        return FileChange.NONE
    if look.inode != before.inode:
        return FileChange.OTHER_INODE
    if look.size < row.offset:
        return FileChange.SHRUNK
    return FileChange.GROWN if look.size > before.size else FileChange.TOUCHED


def quickly_matches(system: System, file: int, row: FileCheckpoint) -> bool:
    """Tell whether a file seems to begin with what was read of it."""
    if row.offset <= SMALL_BYTES:
        return crc32(read_fully(system, file, row.offset, 0)) == row.checksum if row.offset else True
    return head_of(system, file) == row.head and tail_of(system, file, row.offset) == row.tail


def begun(system: System, file: int, row: FileCheckpoint) -> FileCheckpoint:
    """Return the row of a file of which nothing has been read, with the checksum of how it begins."""
    return msgspec.structs.replace(row, head=crc32(read_fully(system, file, min(HEAD_BYTES, row.size), 0)))


def begins_like(system: System, file: int, row: FileCheckpoint) -> bool:
    """Tell whether a file of another name begins with what a row knows."""
    if row.offset:
        return quickly_matches(system, file, row)
    return row.head != 0 and begun(system, file, row).head == row.head


def head_of(system: System, file: int) -> int:
    """Return the checksum of the first bytes."""
    return crc32(read_fully(system, file, HEAD_BYTES, 0))


def tail_of(system: System, file: int, offset: int) -> int:
    """Return the checksum of the last bytes before an offset that is large."""
    return crc32(read_fully(system, file, TAIL_BYTES, offset - TAIL_BYTES))


@dataclass(slots=True)
class PrefixCheck:
    """Compares everything before an offset with its checksum, a part at a time: the file may be large."""

    length: int
    expected: int | None
    """None just computes."""
    done: int = 0
    checksum: int = 0

    def step(self, system: System, file: int, budget: int) -> bool | None:
        """Go on for so many bytes, and return whether all of them match once that is known."""
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
    """Tell whether a file of another name may be the one that a row speaks of, renamed.

    Its content still has to match. A new file that got the number of a deleted one, and holds the same, is told apart by
    its time: renaming changes neither that nor the size, and appending makes it longer.
    """
    if look.inode != row.inode or look.size < row.offset:
        return False
    return look.size > row.size or look.modified_ns == row.modified_ns
