"""A tracked file and its complete lines."""

from dataclasses import dataclass

from monitor.records.decoder import Format
from monitor.sources.directory.file_checkpoint import Failure, FileCheckpoint
from monitor.sources.directory.file_identity import FileLook, PrefixCheck
from monitor.sources.directory.system_calls import System, read_fully

BLOCK_BYTES = 1 << 20
HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TailLines:
    """The data at an offset of a tailed file."""

    data: bytes = b""
    """Complete lines."""
    skipped: int = 0
    """Bytes of a line that is too long, and continues after them."""
    unfinished: int = 0
    """Bytes of a line without a newline; there may be more of it."""
    zeros: bool = False
    """Whether the next line contains zero bytes: not written yet, or never."""


def lines_at(
    system: System,
    file: int,
    offset: int,
    *,
    skipping: bool,
    max_line_bytes: int,
    zeros_until: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> TailLines:
    """Return the complete lines at an offset, at most about one block.

    `skipping` means that the offset is within a line that is too long. Zero bytes before `zeros_until` are accepted. A block
    starts at a line start; for a longer line more than a block is read.
    """
    # One more than the longest line: its newline.
    longest = max_line_bytes + 1
    length = min(block_bytes, longest)
    data = read_fully(system, file, length, offset)
    end = data.rfind(b"\n") + 1
    while not end and not skipping and len(data) == length < longest:
        length = min(4 * length, longest)
        data = read_fully(system, file, length, offset)
        end = data.rfind(b"\n") + 1
    # The rest of a line that is too long is rejected whatever it contains; only the lines after it matter.
    start = data.find(b"\n") + 1 if skipping else 0
    zero = data.find(0, max(start, zeros_until - offset))
    if zero >= 0 and (zero < end or not end) and not (skipping and not end):
        # Holes are filled in later by writers that write out of order, and by file systems after a crash.
        end = data.rfind(b"\n", 0, zero) + 1
        return TailLines(data[:end]) if end else TailLines(unfinished=len(data), zeros=True)
    if end:
        return TailLines(data[:end] if end < len(data) else data)
    if skipping or len(data) >= longest:
        return _skip(system, file, offset, data)
    return TailLines(unfinished=len(data))


def _skip(system: System, file: int, offset: int, data: bytes) -> TailLines:
    # Only zeros up to the end of the file: preallocated space, not a line.
    if data and not data.strip(b"\0") and not read_fully(system, file, BLOCK_BYTES, offset + len(data)).strip(b"\0"):
        return TailLines(unfinished=len(data), zeros=True)
    return TailLines(skipped=len(data))


def header_of(system: System, file: int, max_line_bytes: int) -> bytes:
    """Return the first bytes of a file with its header, the first line that is not blank."""
    start = read_fully(system, file, min(HEADER_BYTES, max_line_bytes + 1), 0)
    if b"\n" in start.lstrip() or len(start) > max_line_bytes:
        return start
    return read_fully(system, file, max_line_bytes + 1, 0)


@dataclass(slots=True)
class TrackedFile:
    """A file that is examined in each poll. Not stored: a restart finds it out again."""

    name: str
    """The relative path. Never leaves the source."""
    key: bytes
    format: Format
    entry: int = 0
    """The inode number from the listing, which may differ from that of a stat on some file systems."""
    row: FileCheckpoint | None = None
    look: FileLook | None = None
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
    doubtful: bool = False
    """Whether its content must be compared although its metadata did not change."""
    check: PrefixCheck | None = None
    """A comparison in progress."""
    adopts: bytes | None = None
    """The key of the checkpoint that it continues if the comparison succeeds."""
    wait_until: float = 0.0
    """The time of the next attempt, on the monotonic clock."""
    failures: int = 0
    """Consecutive failures to read it."""
    failed_at: float | None = None
    """When decoding failed, on the monotonic clock, as long as the file may be incomplete."""
    failure: Failure | None = None
    proven: bool = False
    """Whether it is known to be complete: it was renamed into the directory."""
    piece_bytes: int = BLOCK_BYTES
    """Bytes to read at a time: fewer if decoding is slow."""
    unread_since: float | None = None
    """Since when it has had unread data, in Unix seconds by our own clock."""
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
    def unread_bytes(self) -> int:
        """The number of unread bytes, as far as known."""
        if not (self.unread or self.settling) or self.look is None:
            return 0
        if self.row is None:
            return self.look.size
        return max(0, self.look.size - self.row.offset) if self.grows else self.look.size

    def sees(self, look: FileLook, now: float) -> bool:
        """Update the metadata; return whether it changed."""
        changed = self.look is None or not look.same(self.look)
        if changed:
            self.since = now
        self.look = look
        return changed
