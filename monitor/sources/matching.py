"""Which file goes on under which name: rotation, renaming, and copies made before a file is truncated."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from monitor.sources.identity import SMALL_BYTES, Look, begins_like, may_continue
from monitor.sources.ledger import Row, State
from monitor.sources.opening import Folder, Refused
from monitor.sources.tracked import Tracked


@dataclass(frozen=True, slots=True)
class Loose:
    """A row whose file is no longer where it was."""

    key: bytes
    row: Row
    former: bool = False
    """Whether the file began anew, and this is the row from before."""


@dataclass(slots=True)
class Stray:
    """A file that no row of its own name speaks of."""

    name: str
    key: bytes
    entry: int
    look: Look
    tracked: Tracked | None = None
    """What is known of the name, if it had a row."""


@dataclass(frozen=True, slots=True)
class Match:
    """A stray file that continues a loose row, or may do so once more than a few bytes have been compared."""

    stray: Stray
    loose: Loose
    certain: bool = True


@dataclass(slots=True)
class LooseRows:
    """All rows that wait for their file."""

    moved: dict[int, list[Loose]] = field(default_factory=dict)
    """By inode: files renamed while they stay the same files."""
    copied: list[Loose] = field(default_factory=list)
    """Of files truncated or rewritten in place, whose old content may live on in a copy."""

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.moved) or bool(self.copied)

    def add(self, loose: Loose) -> None:
        """Add a row whose file may have been renamed."""
        self.moved.setdefault(loose.row.inode, []).append(loose)

    def add_copied(self, loose: Loose) -> None:
        """Add a row whose file began anew in place."""
        self.add(loose)
        # Nothing read, nothing to know the copy by.
        if loose.row.offset and loose.row.format.grows:
            self.copied.append(loose)

    def matches(self, folder: Folder, strays: Iterable[Stray]) -> list[Match]:
        """Return which stray files continue which rows, each at most once; renamed files come before copies."""
        taken: set[tuple[bytes, bool]] = set()
        found: list[Match] = []
        left: list[Stray] = []
        for stray in strays:
            for loose in self.moved.get(stray.look.inode, ()):
                if (loose.key, loose.former) not in taken and loose.key != stray.key and _renamed(folder, stray, loose):
                    taken.add((loose.key, loose.former))
                    found.append(Match(stray, loose))
                    break
            else:
                left.append(stray)
        for stray in left:
            for loose in self.copied:
                if (loose.key, loose.former) not in taken and loose.key != stray.key and _begins(folder, stray, loose):
                    taken.add((loose.key, loose.former))
                    found.append(Match(stray, loose, certain=loose.row.offset <= SMALL_BYTES))
                    break
        return found


def _renamed(folder: Folder, stray: Stray, loose: Loose) -> bool:
    row, look = loose.row, stray.look
    if not may_continue(row, look):
        return False
    if not row.format.grows or row.state is State.FAILED:
        return look.same(row)
    return _begins(folder, stray, loose)


def _begins(folder: Folder, stray: Stray, loose: Loose) -> bool:
    """Tell whether a file seems to begin with what a row says has been read."""
    if stray.look.size < loose.row.offset:
        return False
    try:
        with folder.opened(stray.name) as (file, look):
            return look.inode == stray.look.inode and begins_like(folder.system, file, loose.row)
    except (OSError, Refused):
        return False
