"""Rotated, renamed and missing files: which file goes on under which name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf, isinf

import msgspec

from monitor.sources.base import Delivery
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import FileCheckpoint, FileState
from monitor.sources.directory.file_identity import SMALL_BYTES, FileLook, begins_like, may_continue
from monitor.sources.directory.open_files import OpenRefused, SafeDirectory
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.tracked_file import TrackedFile


@dataclass(frozen=True, slots=True)
class Loose:
    """A row whose file is no longer where it was."""

    key: bytes
    row: FileCheckpoint
    former: bool = False
    """Whether the file began anew, and this is the row from before."""


@dataclass(slots=True)
class Stray:
    """A file that no row of its own name speaks of."""

    name: str
    key: bytes
    entry: int
    look: FileLook
    tracked: TrackedFile | None = None
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

    def matches(self, folder: SafeDirectory, strays: Iterable[Stray]) -> list[Match]:
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


def _renamed(folder: SafeDirectory, stray: Stray, loose: Loose) -> bool:
    row, look = loose.row, stray.look
    if not may_continue(row, look):
        return False
    if not row.format.grows or row.state is FileState.FAILED:
        return look.same(row)
    return _begins(folder, stray, loose)


def _begins(folder: SafeDirectory, stray: Stray, loose: Loose) -> bool:
    """Tell whether a file seems to begin with what a row says has been read."""
    if stray.look.size < loose.row.offset:
        return False
    try:
        with folder.opened(stray.name) as (file, look):
            return look.inode == stray.look.inode and begins_like(folder.system, file, loose.row)
    except (OSError, OpenRefused):
        return False


_ADOPTION_SECONDS = 600.0
"""How long a row whose file went or began anew waits for a file of another name that continues it."""


class Absent:
    """Keeps account of rows without a file."""

    def __init__(self, context: PollContext) -> None:
        self._context = context
        self._unplaced: set[bytes] = set()
        """Rows whose file has not been seen since the start."""
        self._missed: set[bytes] = set()
        """Rows whose file one listing left out. A listing may miss a file while the directory changes."""
        self._gone: dict[bytes, float] = {}
        self._waiting: dict[bytes, float] = {}
        """Rows that hold a former row, and rows recently gone, and until when they wait for their file."""

    def restore(self) -> None:
        """Begin with the rows of the checkpoints."""
        self.reload(self._context.checkpoints)
        # There is no clock before the first poll, and no file to be found before the directory can be listed.
        self._waiting = dict.fromkeys(self._waiting, inf)

    def reload(self, keys: Iterable[bytes]) -> None:
        """Begin anew with some rows."""
        for key in keys:
            row = self._context.checkpoints.row(key)
            self._gone.pop(key, None)
            self._unplaced.discard(key)
            if row is None:
                continue
            if row.gone_at is None:
                self._unplaced.add(key)
            else:
                self._gone[key] = row.gone_at
            if row.gone_at is not None or row.previous is not None:
                self.wait(key)

    def is_waiting(self, key: bytes) -> bool:
        """Tell whether a row, or its former one, waits for a file of another name."""
        return key in self._waiting

    def wait(self, key: bytes) -> None:
        """Let a row wait for a file of another name."""
        self._waiting[key] = self._context.clock + _ADOPTION_SECONDS

    def placed(self, key: bytes) -> None:
        """Note that the file of a row has been found."""
        self._unplaced.discard(key)
        self._gone.pop(key, None)

    def adopted(self, key: bytes) -> None:
        """Note that a row has gone to another file."""
        self._waiting.pop(key, None)
        self.placed(key)

    def missing(self, unlisted: list[bytes]) -> list[bytes]:
        """Return the rows whose file was not listed, or has not been since the start."""
        return [*unlisted, *self._unplaced]

    def add_waiting(self, loose: LooseRows, missing: list[bytes]) -> None:
        """Add all rows that wait for their file."""
        checkpoints = self._context.checkpoints
        for key in missing:
            if (row := checkpoints.row(key)) is not None:
                loose.add(Loose(key, row))
        for key, until in list(self._waiting.items()):
            row = checkpoints.row(key)
            if isinf(until):
                self.wait(key)
            if row is None or until < self._context.clock:
                del self._waiting[key]
            elif row.previous is not None:
                loose.add_copied(Loose(key, row.previous, former=True))
            elif row.gone_at is not None:
                loose.add(Loose(key, row))

    def missed_twice(self, missing: list[bytes]) -> set[bytes]:
        """Return which of these were missing in the poll before, too."""
        twice = self._missed.intersection(missing)
        self._missed = set(missing) - twice
        self._unplaced -= twice
        return twice

    def note_gone(
        self, rows: Iterable[tuple[bytes, FileCheckpoint]], device: int, changes: dict[bytes, bytes | None]
    ) -> None:
        """Record that files are gone."""
        context = self._context
        for key, row in rows:
            # Under an empty mount point another device shows: the files are elsewhere, not gone.
            if row.device == device and row.gone_at is None:
                changes[key] = context.checkpoints.put(key, msgspec.structs.replace(row, gone_at=context.now))
                self._gone[key] = context.now
                self.wait(key)
                context.counted[DirectoryEvent.FILES_GONE] += 1

    def forget(self, device: int) -> Iterator[Delivery]:
        """Forget files that have been gone for long, from a directory that can be listed and is the one they were in."""
        context = self._context
        oldest = context.now - context.options.forget_after_seconds
        changes: dict[bytes, bytes | None] = {}
        for key in [key for key, gone_at in self._gone.items() if gone_at <= oldest]:
            row = context.checkpoints.row(key)
            if row is not None and row.device == device:
                del self._gone[key]
                changes[key] = context.checkpoints.put(key, None)
        if changes:
            context.counted[DirectoryEvent.FILES_FORGOTTEN] += len(changes)
            yield context.delivery(checkpoints=changes)
