"""A file that is being followed: what its row says, and what only this process knows of it."""

from dataclasses import dataclass

from monitor.decode.pieces import Format
from monitor.sources.failure import Failure
from monitor.sources.identity import Look, PrefixCheck
from monitor.sources.ledger import Row
from monitor.sources.tail import BLOCK_BYTES


@dataclass(slots=True)
class Tracked:
    """A file that is looked at in each poll. Nothing here needs to survive: a restart finds it out again."""

    name: str
    """Its path relative to the directory. Never leaves the source."""
    key: bytes
    format: Format
    entry: int = 0
    """The number of its inode as the listing gives it, which on some file systems is not that of a stat."""
    row: Row | None = None
    look: Look | None = None
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

    def sees(self, look: Look, now: float) -> bool:
        """Take a new look, and tell whether it differs from the one before."""
        changed = self.look is None or not look.same(self.look)
        if changed:
            self.since = now
        self.look = look
        return changed
