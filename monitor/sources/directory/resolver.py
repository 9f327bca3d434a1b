"""Resolves which file is which after all were examined, and changes their checkpoints in one delivery.

One delivery, because a rotation moves several checkpoints: a crash between two of them would lose one.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from monitor.sources.base import Delivery
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import FileCheckpoint, FileState, Keys, called
from monitor.sources.directory.file_identity import SMALL_BYTES, FileLook, PrefixCheck, quickly_matches
from monitor.sources.directory.open_files import OpenRefused, SafeDirectory, is_missing
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.rotation import Absent, Loose, LooseRows, Match, Stray
from monitor.sources.directory.scan import Found, Roster
from monitor.sources.directory.tracked_file import TrackedFile
from monitor.sources.directory.whole_files import WholeFileReader

CheckpointChanges = dict[bytes, bytes | None]

_SOME = 1_000
"""New files that are examined one by one if names changed during the examination."""


@dataclass(slots=True)
class FileFindings:
    """The results of examining all files once."""

    strangers: list[Stray] = field(default_factory=list)
    """Names that denote another file now."""
    anew: list[tuple[TrackedFile, FileLook, DirectoryEvent]] = field(default_factory=list)
    """Files that were truncated or rewritten in place."""
    changed: list[TrackedFile] = field(default_factory=list)
    """Files whose checkpoint changed without reading."""
    vanished: list[TrackedFile] = field(default_factory=list)
    unknown: list[Stray] = field(default_factory=list)
    """Whole files without a checkpoint."""
    new: list[Found] = field(default_factory=list)
    """Tailed files without a checkpoint."""
    foreign: list[Found] = field(default_factory=list)
    """Files that are not to be read, unless they continue one that was."""
    missing: list[bytes] = field(default_factory=list)
    """Checkpoints whose file was not listed."""
    inodes: dict[str, int] = field(default_factory=dict)
    """The inode of each examined name."""

    @property
    def concern_identity(self) -> bool:
        """Whether some name seems to denote another file than before."""
        return bool(self.strangers or self.anew or self.vanished)


class Resolver:
    """Assigns checkpoints to files."""

    def __init__(
        self,
        context: PollContext,
        roster: Roster,
        keys: Keys,
        settled: WholeFileReader,
        absent: Absent,
        active: dict[str, TrackedFile],
    ) -> None:
        self._context = context
        self._roster = roster
        self._keys = keys
        self._settled = settled
        self._absent = absent
        self._active = active

    def resolve(self, folder: SafeDirectory, findings: FileFindings) -> Iterator[Delivery]:
        """Resolve which file is which. Names that turn out to be known are removed from `new`."""
        context = self._context
        changes: CheckpointChanges = {}
        loose = self._loose(findings)
        matches = self._matches(folder, findings, loose)
        if (matches or findings.concern_identity) and not self._held_still(folder, findings, loose):
            yield from self._put_off(folder, findings, loose)
            return
        taken = {match.loose.key for match in matches if match.certain and not match.loose.former}
        gained = {match.stray.key for match in matches}
        self._resolve_strangers(folder, findings, taken, gained, changes)
        for tracked, look, why in findings.anew:
            if tracked.key not in gained:
                self._begin_anew(tracked, look, why, changes, keep=tracked.key not in taken)
        for tracked in findings.changed:
            if tracked.key not in gained | taken | changes.keys():
                changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.row)
        self._note_vanished(folder, findings, taken, changes)
        for match in matches:
            self._adopt_match(match, changes)
        findings.new = (
            [found for found in findings.new if self._keys(found.name) not in gained] if gained else findings.new
        )
        for found in findings.foreign:
            if self._keys(found.name) not in gained:
                self._ignore(found)
        if changes:
            yield context.delivery(checkpoints=changes)

    def _held_still(self, folder: SafeDirectory, findings: FileFindings, loose: LooseRows) -> bool:
        """Return whether all names still denote the files that were examined.

        Names are examined one after the other. A rotation in between shows one file under two names or none, and believing it
        would read the file twice or not at all. If a second pass over all names finds the same files, there was an instant at
        which all of it was true.
        """
        try:
            if any(folder.look(name).inode != inode for name, inode in findings.inodes.items()):
                return False
        except (OSError, OpenRefused):
            return False
        for tracked in findings.vanished:
            with suppress(OSError, OpenRefused):
                folder.look(tracked.name)
                return False
        try:
            holders = self._roster.holders(folder, set(loose.moved))
        except OSError:
            return False
        return all(name in findings.inodes for name in holders)

    def _put_off(self, folder: SafeDirectory, findings: FileFindings, loose: LooseRows) -> Iterator[Delivery]:
        """Resolve nothing: the next poll examines the directory again.

        New files that cannot be any of those in question are read, so that a directory that never rests starves nobody.
        """
        changes: CheckpointChanges = {}
        doubtful = [*(stray.tracked for stray in findings.strangers), *(tracked for tracked, _, _ in findings.anew)]
        for tracked in doubtful:
            if tracked is not None:
                self._roster.wake(tracked.name, tracked.entry)
                self._active[tracked.name] = tracked
                tracked.unread = False
        keys = {tracked.key for tracked in doubtful if tracked is not None}
        for tracked in findings.changed:
            if tracked.key not in keys:
                changes[tracked.key] = self._context.checkpoints.put(tracked.key, tracked.row)
        new = set() if loose.copied else {found.name for found in findings.new[:_SOME]}
        known = {*loose.moved, *(inode for name, inode in findings.inodes.items() if name not in new)}
        findings.new = [found for found in findings.new if found.name in new and _is_other(folder, found, known)]
        if changes:
            yield self._context.delivery(checkpoints=changes)

    def _loose(self, findings: FileFindings) -> LooseRows:
        """Return the checkpoints whose file is no longer in its place."""
        loose = LooseRows()
        for tracked in [*findings.vanished, *(stray.tracked for stray in findings.strangers)]:
            if tracked is not None and tracked.row is not None:
                loose.add(Loose(tracked.key, tracked.row))
        for tracked, _, _ in findings.anew:
            if tracked.row is not None:
                loose.add_copied(Loose(tracked.key, tracked.row))
        self._absent.add_waiting(loose, findings.missing)
        return loose

    def _matches(self, folder: SafeDirectory, findings: FileFindings, loose: LooseRows) -> list[Match]:
        """Find the files that continue checkpoints of other names. New files are examined only if a checkpoint waits."""
        if not loose:
            return []
        strays = [*findings.strangers, *findings.unknown]
        for found in [*findings.new, *findings.foreign]:
            try:
                look = folder.look(found.name)
            except (OSError, OpenRefused):
                continue
            findings.inodes[found.name] = look.inode
            strays.append(Stray(found.name, self._keys(found.name), found.entry, look))
        return loose.matches(folder, strays)

    # The same name, another file

    def _resolve_strangers(
        self,
        folder: SafeDirectory,
        findings: FileFindings,
        taken: set[bytes],
        gained: set[bytes],
        changes: CheckpointChanges,
    ) -> None:
        context = self._context
        for stray in findings.strangers:
            tracked = stray.tracked
            if tracked is None or tracked.row is None or tracked.key in gained:
                continue
            row = tracked.row
            self._active[tracked.name] = tracked
            if tracked.key in taken:
                tracked.row = None
                changes[tracked.key] = context.checkpoints.put(tracked.key, None)
                tracked.sees(stray.look, context.clock)
                tracked.unread, tracked.unfinished = tracked.grows and stray.look.size > 0, 0
            elif not tracked.grows:
                self._settled.examine(tracked, stray.look, marked=False)
            elif stray.look.size < row.offset or not seems_the_same(folder, tracked, row):
                findings.anew.append((tracked, stray.look, DirectoryEvent.FILES_REPLACED))
            else:
                self.accept(tracked, row, stray.look, thoroughly=True)
                tracked.row = context.seen_row(row, stray.look)
                changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.row)

    def accept(self, tracked: TrackedFile, row: FileCheckpoint, look: FileLook, *, thoroughly: bool) -> None:
        """Continue a file that seems to be the same; compare all of it first in case of doubt."""
        tracked.sees(look, self._context.clock)
        tracked.doubtful = False
        if thoroughly and row.offset > SMALL_BYTES:
            tracked.check, tracked.adopts = PrefixCheck(row.offset, row.checksum), None
        tracked.unread = look.size > row.offset or tracked.check is not None

    def _begin_anew(
        self,
        tracked: TrackedFile,
        look: FileLook,
        why: DirectoryEvent,
        changes: CheckpointChanges,
        *,
        keep: bool = True,
    ) -> None:
        """Read a file from the start; `keep` its checkpoint for a copy that may continue it."""
        context, old = self._context, tracked.row
        row = context.new_row(tracked, look)
        if old is not None:
            former = msgspec.structs.replace(old, previous=None) if keep and old.offset else None
            row = msgspec.structs.replace(row, generation=old.generation + 1, previous=former)
        context.counted[why] += 1
        context.info(f"{called(tracked.key)}: {why.removeprefix('files_')}, read again from the start")
        tracked.row = row
        tracked.sees(look, context.clock)
        tracked.unread, tracked.doubtful, tracked.check = look.size > 0, False, None
        tracked.unfinished, tracked.zeros_at = 0, -1
        changes[tracked.key] = context.checkpoints.put(tracked.key, row)
        if row.previous is not None:
            self._absent.wait(tracked.key)
        self._roster.wake(tracked.name, tracked.entry)
        self._active[tracked.name] = tracked

    # Another name, the same file

    def _adopt_match(self, match: Match, changes: CheckpointChanges) -> None:
        """Continue the checkpoint of another name, at once or after a full comparison."""
        stray, loose = match.stray, match.loose
        tracked = stray.tracked or TrackedFile(stray.name, stray.key, loose.row.format, stray.entry)
        tracked.format, tracked.look = loose.row.format, None
        tracked.sees(stray.look, self._context.clock)
        self._roster.wake(stray.name, stray.entry)
        self._active[stray.name] = tracked
        if match.certain:
            self._adopt(tracked, stray.look, loose, changes)
        else:
            tracked.row, tracked.adopts, tracked.unread = None, loose.key, True
            tracked.check = PrefixCheck(loose.row.offset, loose.row.checksum)

    def _adopt(self, tracked: TrackedFile, look: FileLook, loose: Loose, changes: CheckpointChanges) -> None:
        """Move a checkpoint to the file that continues it."""
        context, key = self._context, loose.key
        if loose.former:
            own = context.checkpoints.row(key)
            if own is not None:
                own = msgspec.structs.replace(own, previous=None)
                changes[key] = context.checkpoints.put(key, own)
                for other in self._active.values():
                    if other.key == key:
                        other.row = own
        elif key not in changes:
            changes[key] = context.checkpoints.put(key, None)
        self._absent.adopted(key)
        tracked.row = msgspec.structs.replace(loose.row, previous=None, gone_at=None)
        # The checksum of an unread file's first bytes holds for the size of that time, and has just been compared.
        if tracked.row.offset:
            tracked.row = context.seen_row(tracked.row, look)
        tracked.unread = look.size > loose.row.offset if tracked.grows else loose.row.state is FileState.READING
        tracked.unfinished, tracked.doubtful = 0, False
        changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.row)
        context.counted[DirectoryEvent.FILES_ADOPTED] += 1

    def verify(self, folder: SafeDirectory, tracked: TrackedFile, check: PrefixCheck) -> Iterator[Delivery]:
        """Continue the comparison of a file with what was read of it, and apply the result."""
        context = self._context
        try:
            with folder.opened(tracked.name) as (file, look):
                if tracked.look is None or look.inode != tracked.look.inode:
                    return
                result = context.step(check, file)
        except OpenRefused:
            return
        except OSError as error:
            if not is_missing(error):
                context.unreadable(tracked, error)
            return
        if result is None:
            return
        tracked.check = None
        changes: CheckpointChanges = {}
        if tracked.adopts is not None:
            self._end_adoption(tracked, tracked.look, tracked.adopts, check, changes, matches=result)
        elif not result:
            self._begin_anew(tracked, look, DirectoryEvent.FILES_REPLACED, changes)
        elif tracked.row is not None:
            tracked.unread = look.size > tracked.row.offset
            tracked.row = context.seen_row(tracked.row, tracked.look)
            changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.row)
        if changes:
            yield context.delivery(called(tracked.key), changes)

    def _end_adoption(
        self,
        tracked: TrackedFile,
        look: FileLook,
        key: bytes,
        check: PrefixCheck,
        changes: CheckpointChanges,
        *,
        matches: bool,
    ) -> None:
        tracked.adopts = None
        own = self._context.checkpoints.row(key)
        former = None if own is None else own.previous
        if matches and former is not None and (former.offset, former.checksum) == (check.length, check.expected):
            self._adopt(tracked, look, Loose(key, former, former=True), changes)
        elif self._roster.format_of(tracked.name) is None:
            del self._active[tracked.name]
            self._ignore(Found(tracked.name, tracked.entry))

    # No file

    def _note_vanished(
        self, folder: SafeDirectory, findings: FileFindings, taken: set[bytes], changes: CheckpointChanges
    ) -> None:
        context = self._context
        gone: list[tuple[bytes, FileCheckpoint]] = []
        for tracked in findings.vanished:
            self._active.pop(tracked.name, None)
            self._settled.drop(tracked.key)
            self._roster.wake(tracked.name, tracked.entry)
            if tracked.key not in taken and tracked.row is not None:
                gone.append((tracked.key, tracked.row))
                if tracked.unread_bytes:
                    context.counted[DirectoryEvent.LOST_BYTES] += tracked.unread_bytes
        twice = self._absent.missed_twice(findings.missing)
        self._roster.forget(twice | taken.intersection(findings.missing))
        gone += [(key, row) for key in twice - taken if (row := context.checkpoints.row(key)) is not None]
        self._absent.note_gone(gone, folder.identity[0], changes)

    def _ignore(self, found: Found) -> None:
        """Count a file that is not to be read, once."""
        self._roster.ignore(found.name, found.entry)
        if self._roster.is_meant(found.name) and self._context.once(("unknown", self._keys(found.name))):
            self._context.counted[DirectoryEvent.UNKNOWN_EXTENSION] += 1


def _is_other(folder: SafeDirectory, found: Found, known: set[int]) -> bool:
    try:
        return folder.look(found.name).inode not in known
    except (OSError, OpenRefused):
        return False


def seems_the_same(folder: SafeDirectory, tracked: TrackedFile, row: FileCheckpoint) -> bool:
    """Open a file and return whether it seems to start with what was read of it."""
    with folder.opened(tracked.name) as (file, _):
        return quickly_matches(folder.system, file, row)
