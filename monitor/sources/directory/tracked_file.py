"""A tracked file: its checkpoint, what this process knows of it, and its whole lines."""

from dataclasses import dataclass

from monitor.records.record_batch import Format
from monitor.sources.directory.file_checkpoint import Failure, FileCheckpoint
from monitor.sources.directory.file_identity import FileLook, PrefixCheck
from monitor.sources.directory.system_calls import System, read_fully

BLOCK_BYTES = 1 << 20
HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TailLines:
    """What stands at a place in a file."""

    data: bytes = b""
    """Whole lines."""
    skipped: int = 0
    """Bytes of a line that is too long to be kept; it goes on after them."""
    unfinished: int = 0
    """Bytes of a line that has no newline yet; more than these may be there."""
    zeros: bool = False
    """Whether the next line holds zero bytes: its writer has not written it yet, or never will."""


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
    """Return the whole lines that stand at a place, at most about a block of them.

    `skipping` says that the place lies within a line that is too long. Zero bytes before `zeros_until` are taken as
    they are. A block starts at the start of a line; for a line that is longer, more than a block is read.
    """
    # One more byte than a line may have: its newline.
    longest = max_line_bytes + 1
    length = min(block_bytes, longest)
    data = read_fully(system, file, length, offset)
    end = data.rfind(b"\n") + 1
    while not end and not skipping and len(data) == length < longest:
        length = min(4 * length, longest)
        data = read_fully(system, file, length, offset)
        end = data.rfind(b"\n") + 1
    # The rest of a line that is too long is refused whatever it holds; the lines after it are looked at.
    start = data.find(b"\n") + 1 if skipping else 0
    zero = data.find(0, max(start, zeros_until - offset))
    if zero >= 0 and (zero < end or not end) and not (skipping and not end):
        # Holes are filled in later by writers that write out of order, and by file systems that recover from a crash.
        end = data.rfind(b"\n", 0, zero) + 1
        return TailLines(data[:end]) if end else TailLines(unfinished=len(data), zeros=True)
    if end:
        return TailLines(data[:end] if end < len(data) else data)
    if skipping or len(data) >= longest:
        return _skip(system, file, offset, data)
    return TailLines(unfinished=len(data))


def _skip(system: System, file: int, offset: int, data: bytes) -> TailLines:
    # Nothing but zeros up to the end of the file is room that was reserved for lines to come, not a line.
    if data and not data.strip(b"\0") and not read_fully(system, file, BLOCK_BYTES, offset + len(data)).strip(b"\0"):
        return TailLines(unfinished=len(data), zeros=True)
    return TailLines(skipped=len(data))


def header_of(system: System, file: int, max_line_bytes: int) -> bytes:
    """Return the first bytes of a file, which hold its header: the first line that is not blank."""
    start = read_fully(system, file, min(HEADER_BYTES, max_line_bytes + 1), 0)
    if b"\n" in start.lstrip() or len(start) > max_line_bytes:
        return start
    return read_fully(system, file, max_line_bytes + 1, 0)


@dataclass(slots=True)
class TrackedFile:
    """A file that is looked at in each poll. Nothing here needs to survive: a restart finds it out again."""

    name: str
    """Its path relative to the directory. Never leaves the source."""
    key: bytes
    format: Format
    entry: int = 0
    """The number of its inode as the listing gives it, which on some file systems is not that of a stat."""
    row: FileCheckpoint | None = None
    look: FileLook | None = None
    """The latest look at it."""
    since: float = 0.0
    """Since when it has looked like that, by the monotonic clock."""
    unread: bool = False
    """Whether there is something to read."""
    settling: bool = False
    """Whether it will be read, or given up, once it has stayed the same for long enough."""
    refused: bool = False
    """Whether it turned out to be something that is never read."""
    unfinished: int = 0
    """Bytes after the last newline that has been read."""
    doubtful: bool = False
    """Whether its content must be compared although nothing seems to have changed."""
    check: PrefixCheck | None = None
    """A comparison of its content that is under way."""
    adopts: bytes | None = None
    """The key of the row that it continues, should the comparison say so."""
    wait_until: float = 0.0
    """When it may be tried again, by the monotonic clock."""
    failures: int = 0
    """How often in a row it could not be read."""
    failed_at: float | None = None
    """When decoding it failed, by the monotonic clock, as long as it may still turn out to be incomplete."""
    failure: Failure | None = None
    proven: bool = False
    """Whether it is known to be complete: it was renamed into the directory."""
    piece_bytes: int = BLOCK_BYTES
    """How much to read of it at a time: less when decoding is slow."""
    unread_since: float | None = None
    """Since when there has been something to read, in Unix seconds by our own clock."""
    zeros_at: int = -1
    """Where zero bytes are waited for to be filled in."""
    zeros_since: float = 0.0
    zeros_until: int = 0
    """How long the file was when waiting began."""

    @property
    def grows(self) -> bool:
        """Whether it is read while it is written."""
        return self.format.grows

    @property
    def unread_bytes(self) -> int:
        """How much of it has not been read, as far as is known."""
        if not (self.unread or self.settling) or self.look is None:
            return 0
        if self.row is None:
            return self.look.size
        return max(0, self.look.size - self.row.offset) if self.grows else self.look.size

    def sees(self, look: FileLook, now: float) -> bool:
        """Take a new look, and tell whether it differs from the one before."""
        changed = self.look is None or not look.same(self.look)
        if changed:
            self.since = now
        self.look = look
        return changed
