"""Rotated, renamed and missing files: which file continues under which name."""

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
    """A checkpoint whose file is no longer in its place."""

    key: bytes
    row: FileCheckpoint
    former: bool = False
    """Whether this is the previous checkpoint of a restarted file."""


@dataclass(slots=True)
class Stray:
    """A file without a checkpoint under its own name."""

    name: str
    key: bytes
    entry: int
    look: FileLook
    tracked: TrackedFile | None = None
    """The tracked file, if the name had a checkpoint."""


@dataclass(frozen=True, slots=True)
class Match:
    """An unmatched file that continues an orphaned checkpoint, or may do so after a full comparison."""

    stray: Stray
    loose: Loose
    certain: bool = True


@dataclass(slots=True)
class LooseRows:
    """All checkpoints that wait for their file."""

    moved: dict[int, list[Loose]] = field(default_factory=dict)
    """By inode: the file may have been renamed."""
    copied: list[Loose] = field(default_factory=list)
    """Of files truncated or rewritten in place, whose old content may exist in a copy."""

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self.moved) or bool(self.copied)

    def add(self, loose: Loose) -> None:
        """Add a checkpoint whose file may have been renamed."""
        self.moved.setdefault(loose.row.inode, []).append(loose)

    def add_copied(self, loose: Loose) -> None:
        """Add a checkpoint whose file restarted in place."""
        self.add(loose)
        # Nothing was read, so a copy could not be recognised.
        if loose.row.offset and loose.row.format.grows:
            self.copied.append(loose)

    def matches(self, folder: SafeDirectory, strays: Iterable[Stray]) -> list[Match]:
        """Return which files continue which checkpoints, each at most once; renamed files before copies."""
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
    """Return whether a file seems to start with what was read according to a checkpoint."""
    if stray.look.size < loose.row.offset:
        return False
    try:
        with folder.opened(stray.name) as (file, look):
            return look.inode == stray.look.inode and begins_like(folder.system, file, loose.row)
    except (OSError, OpenRefused):
        return False


_ADOPTION_SECONDS = 600.0
"""How long a checkpoint waits for a file of another name that continues it."""


class Absent:
    """The checkpoints without a file."""

    def __init__(self, context: PollContext) -> None:
        self._context = context
        self._unplaced: set[bytes] = set()
        """Checkpoints whose file has not been seen since the start."""
        self._missed: set[bytes] = set()
        """Checkpoints whose file was missing in one listing, which may miss files while the directory changes."""
        self._gone: dict[bytes, float] = {}
        self._waiting: dict[bytes, float] = {}
        """Checkpoints with a previous one, and of files recently gone, with the end of their wait."""

    def restore(self) -> None:
        """Start with the loaded checkpoints."""
        self.reload(self._context.checkpoints)
        # There is no clock before the first poll, and no file before the directory can be listed.
        self._waiting = dict.fromkeys(self._waiting, inf)

    def reload(self, keys: Iterable[bytes]) -> None:
        """Reload some checkpoints."""
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
        """Return whether a checkpoint, or its previous one, waits for a file of another name."""
        return key in self._waiting

    def wait(self, key: bytes) -> None:
        """Let a checkpoint wait for a file of another name."""
        self._waiting[key] = self._context.clock + _ADOPTION_SECONDS

    def placed(self, key: bytes) -> None:
        """The file of a checkpoint was found."""
        self._unplaced.discard(key)
        self._gone.pop(key, None)

    def adopted(self, key: bytes) -> None:
        """A checkpoint was moved to another file."""
        self._waiting.pop(key, None)
        self.placed(key)

    def missing(self, unlisted: list[bytes]) -> list[bytes]:
        """Return the checkpoints whose file was not listed, now or since the start."""
        return [*unlisted, *self._unplaced]

    def add_waiting(self, loose: LooseRows, missing: list[bytes]) -> None:
        """Add all checkpoints that wait for their file."""
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
        """Return which of these were missing in the previous poll, too."""
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
            # An empty mount point shows another device: the files are not gone, only unmounted.
            if row.device == device and row.gone_at is None:
                changes[key] = context.checkpoints.put(key, msgspec.structs.replace(row, gone_at=context.now))
                self._gone[key] = context.now
                self.wait(key)
                context.counted[DirectoryEvent.FILES_GONE] += 1

    def forget(self, device: int) -> Iterator[Delivery]:
        """Delete the checkpoints of files gone for long, if this is the directory they were in."""
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
