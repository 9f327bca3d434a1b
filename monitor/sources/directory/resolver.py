"""Resolves which file is which after all were examined: rotated, renamed, replaced and missing files.

All changes are one delivery, because a rotation moves several checkpoints: a crash between two of them would lose one.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isinf

import msgspec

from monitor.sources.base import Delivery
from monitor.sources.directory.directory_access import (
    FileIndex,
    FileStat,
    ListedFile,
    OpenRefused,
    SafeDirectory,
    is_missing,
)
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import (
    SMALL_BYTES,
    FileCheckpoint,
    FileState,
    Keys,
    Match,
    OrphanedCheckpoint,
    OrphanedCheckpoints,
    PrefixCheck,
    TrackedFile,
    UnmatchedFile,
    display_name,
    prefix_matches,
)
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.whole_files import WholeFileReader

CheckpointChanges = dict[bytes, bytes | None]

_SOME = 1_000
"""New files that are examined one by one if names changed during the examination."""
_ADOPTION_SECONDS = 600.0
"""How long a checkpoint waits for a file of another name that continues it."""


@dataclass(slots=True)
class FileFindings:
    """The results of examining all files once."""

    replaced: list[UnmatchedFile] = field(default_factory=list)
    """Names that denote another file now."""
    restarted: list[tuple[TrackedFile, FileStat, DirectoryEvent]] = field(default_factory=list)
    """Files that were truncated or rewritten in place."""
    changed: list[TrackedFile] = field(default_factory=list)
    """Files whose checkpoint changed without reading."""
    vanished: list[TrackedFile] = field(default_factory=list)
    unknown: list[UnmatchedFile] = field(default_factory=list)
    """Whole files without a checkpoint."""
    new: list[ListedFile] = field(default_factory=list)
    """Tailed files without a checkpoint."""
    irrelevant: list[ListedFile] = field(default_factory=list)
    """Files that are not to be read, unless they continue one that was."""
    missing: list[bytes] = field(default_factory=list)
    """Checkpoints whose file was not listed."""
    inodes: dict[str, int] = field(default_factory=dict)
    """The inode of each examined name."""

    @property
    def concern_identity(self) -> bool:
        """Whether some name seems to denote another file than before."""
        return bool(self.replaced or self.restarted or self.vanished)


class MissingFiles:
    """The checkpoints without a file."""

    def __init__(self, context: PollContext) -> None:
        self._context = context
        self._not_seen: set[bytes] = set()
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
            checkpoint = self._context.checkpoints.get(key)
            self._gone.pop(key, None)
            self._not_seen.discard(key)
            if checkpoint is None:
                continue
            if checkpoint.gone_at is None:
                self._not_seen.add(key)
            else:
                self._gone[key] = checkpoint.gone_at
            if checkpoint.gone_at is not None or checkpoint.previous is not None:
                self.wait(key)

    def is_waiting(self, key: bytes) -> bool:
        """Return whether a checkpoint, or its previous one, waits for a file of another name."""
        return key in self._waiting

    def wait(self, key: bytes) -> None:
        """Let a checkpoint wait for a file of another name."""
        self._waiting[key] = self._context.clock + _ADOPTION_SECONDS

    def found(self, key: bytes) -> None:
        """The file of a checkpoint was found."""
        self._not_seen.discard(key)
        self._gone.pop(key, None)

    def adopted(self, key: bytes) -> None:
        """A checkpoint was moved to another file."""
        self._waiting.pop(key, None)
        self.found(key)

    def missing(self, unlisted: list[bytes]) -> list[bytes]:
        """Return the checkpoints whose file was not listed, now or since the start."""
        return [*unlisted, *self._not_seen]

    def add_waiting(self, orphans: OrphanedCheckpoints, missing: list[bytes]) -> None:
        """Add all checkpoints that wait for their file."""
        checkpoints = self._context.checkpoints
        for key in missing:
            if (checkpoint := checkpoints.get(key)) is not None:
                orphans.add(OrphanedCheckpoint(key, checkpoint))
        for key, until in list(self._waiting.items()):
            checkpoint = checkpoints.get(key)
            if isinf(until):
                self.wait(key)
            if checkpoint is None or until < self._context.clock:
                del self._waiting[key]
            elif checkpoint.previous is not None:
                orphans.add_copied(OrphanedCheckpoint(key, checkpoint.previous, former=True))
            elif checkpoint.gone_at is not None:
                orphans.add(OrphanedCheckpoint(key, checkpoint))

    def missed_twice(self, missing: list[bytes]) -> set[bytes]:
        """Return which of these were missing in the previous poll, too."""
        twice = self._missed.intersection(missing)
        self._missed = set(missing) - twice
        self._not_seen -= twice
        return twice

    def mark_gone(
        self, rows: Iterable[tuple[bytes, FileCheckpoint]], device: int, changes: dict[bytes, bytes | None]
    ) -> None:
        """Record that files are gone."""
        context = self._context
        for key, checkpoint in rows:
            # An empty mount point shows another device: the files are not gone, only unmounted.
            if checkpoint.device == device and checkpoint.gone_at is None:
                changes[key] = context.checkpoints.put(key, msgspec.structs.replace(checkpoint, gone_at=context.now))
                self._gone[key] = context.now
                self.wait(key)
                context.counted[DirectoryEvent.FILES_GONE] += 1

    def forget(self, device: int) -> Iterator[Delivery]:
        """Delete the checkpoints of files gone for long, if this is the directory they were in."""
        context = self._context
        oldest = context.now - context.options.forget_after_seconds
        changes: dict[bytes, bytes | None] = {}
        for key in [key for key, gone_at in self._gone.items() if gone_at <= oldest]:
            checkpoint = context.checkpoints.get(key)
            if checkpoint is not None and checkpoint.device == device:
                del self._gone[key]
                changes[key] = context.checkpoints.put(key, None)
        if changes:
            context.counted[DirectoryEvent.FILES_FORGOTTEN] += len(changes)
            yield context.delivery(checkpoints=changes)


class Resolver:
    """Assigns checkpoints to files."""

    def __init__(
        self,
        context: PollContext,
        index: FileIndex,
        keys: Keys,
        whole_files: WholeFileReader,
        missing_files: MissingFiles,
        active: dict[str, TrackedFile],
    ) -> None:
        self._context = context
        self._index = index
        self._keys = keys
        self._whole_files = whole_files
        self._missing_files = missing_files
        self._active = active

    def resolve(self, folder: SafeDirectory, findings: FileFindings) -> Iterator[Delivery]:
        """Resolve which file is which. Names that turn out to be known are removed from `new`."""
        context = self._context
        changes: CheckpointChanges = {}
        orphans = self._orphans(findings)
        matches = self._matches(folder, findings, orphans)
        if (matches or findings.concern_identity) and not self._is_consistent(folder, findings, orphans):
            yield from self._postpone(folder, findings, orphans)
            return
        taken = {match.orphan.key for match in matches if match.certain and not match.orphan.former}
        gained = {match.unmatched.key for match in matches}
        self._resolve_replaced(folder, findings, taken, gained, changes)
        for tracked, stat, why in findings.restarted:
            if tracked.key not in gained:
                self._restart(tracked, stat, why, changes, keep=tracked.key not in taken)
        for tracked in findings.changed:
            if tracked.key not in gained | taken | changes.keys():
                changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.checkpoint)
        self._handle_vanished(folder, findings, taken, changes)
        for match in matches:
            self._adopt_match(match, changes)
        findings.new = (
            [found for found in findings.new if self._keys(found.name) not in gained] if gained else findings.new
        )
        for found in findings.irrelevant:
            if self._keys(found.name) not in gained:
                self._ignore(found)
        if changes:
            yield context.delivery(checkpoints=changes)

    def _is_consistent(self, folder: SafeDirectory, findings: FileFindings, orphans: OrphanedCheckpoints) -> bool:
        """Return whether all names still denote the files that were examined.

        Names are examined one after the other. A rotation in between shows one file under two names or none, and
        believing it would read the file twice or not at all. If a second pass over all names finds the same files,
        there was an instant at which all of it was true.
        """
        try:
            if any(folder.stat(name).inode != inode for name, inode in findings.inodes.items()):
                return False
        except (OSError, OpenRefused):
            return False
        for tracked in findings.vanished:
            with suppress(OSError, OpenRefused):
                folder.stat(tracked.name)
                return False
        try:
            holders = self._index.holders(folder, set(orphans.moved))
        except OSError:
            return False
        return all(name in findings.inodes or self._is_resolved(name, inode) for name, inode in holders.items())

    def _is_resolved(self, name: str, inode: int) -> bool:
        """Return whether a file that is not examined now has a checkpoint of its own.

        Inodes are reused: an idle file with the inode of a deleted one is not that file.
        """
        checkpoint = self._context.checkpoints.get(self._keys(name))
        return checkpoint is not None and checkpoint.gone_at is None and checkpoint.inode == inode

    def _postpone(
        self, folder: SafeDirectory, findings: FileFindings, orphans: OrphanedCheckpoints
    ) -> Iterator[Delivery]:
        """Resolve nothing: the next poll examines the directory again.

        New files that cannot be any of those in question are read, so that a directory that never rests starves nobody.
        """
        changes: CheckpointChanges = {}
        uncertain = [
            *(unmatched.tracked for unmatched in findings.replaced),
            *(tracked for tracked, _, _ in findings.restarted),
        ]
        for tracked in uncertain:
            if tracked is not None:
                self._index.set_active(tracked.name, tracked.entry)
                self._active[tracked.name] = tracked
                tracked.unread = False
        keys = {tracked.key for tracked in uncertain if tracked is not None}
        for tracked in findings.changed:
            if tracked.key not in keys:
                changes[tracked.key] = self._context.checkpoints.put(tracked.key, tracked.checkpoint)
        new = set() if orphans.copied else {found.name for found in findings.new[:_SOME]}
        known = {*orphans.moved, *(inode for name, inode in findings.inodes.items() if name not in new)}
        findings.new = [found for found in findings.new if found.name in new and _is_other(folder, found, known)]
        if changes:
            yield self._context.delivery(checkpoints=changes)

    def _orphans(self, findings: FileFindings) -> OrphanedCheckpoints:
        """Return the checkpoints whose file is no longer in its place."""
        orphans = OrphanedCheckpoints()
        for tracked in [*findings.vanished, *(unmatched.tracked for unmatched in findings.replaced)]:
            if tracked is not None and tracked.checkpoint is not None:
                orphans.add(OrphanedCheckpoint(tracked.key, tracked.checkpoint))
        for tracked, _, _ in findings.restarted:
            if tracked.checkpoint is not None:
                orphans.add_copied(OrphanedCheckpoint(tracked.key, tracked.checkpoint))
        self._missing_files.add_waiting(orphans, findings.missing)
        return orphans

    def _matches(self, folder: SafeDirectory, findings: FileFindings, orphans: OrphanedCheckpoints) -> list[Match]:
        """Find the files that continue checkpoints of other names. New files are examined only if a checkpoint waits."""
        if not orphans:
            return []
        unmatched_files = [*findings.replaced, *findings.unknown]
        for found in [*findings.new, *findings.irrelevant]:
            try:
                stat = folder.stat(found.name)
            except (OSError, OpenRefused):
                continue
            findings.inodes[found.name] = stat.inode
            unmatched_files.append(UnmatchedFile(found.name, self._keys(found.name), found.entry, stat))
        return orphans.matches(folder, unmatched_files)

    # The same name, another file

    def _resolve_replaced(
        self,
        folder: SafeDirectory,
        findings: FileFindings,
        taken: set[bytes],
        gained: set[bytes],
        changes: CheckpointChanges,
    ) -> None:
        context = self._context
        for unmatched in findings.replaced:
            tracked = unmatched.tracked
            if tracked is None or tracked.checkpoint is None or tracked.key in gained:
                continue
            checkpoint = tracked.checkpoint
            self._active[tracked.name] = tracked
            if tracked.key in taken:
                tracked.checkpoint = None
                changes[tracked.key] = context.checkpoints.put(tracked.key, None)
                tracked.observe(unmatched.stat, context.clock)
                tracked.unread, tracked.unfinished = tracked.grows and unmatched.stat.size > 0, 0
            elif not tracked.grows:
                self._whole_files.examine(tracked, unmatched.stat, marked=False)
            elif unmatched.stat.size < checkpoint.offset or not still_matches(folder, tracked, checkpoint):
                findings.restarted.append((tracked, unmatched.stat, DirectoryEvent.FILES_REPLACED))
            else:
                self.accept(tracked, checkpoint, unmatched.stat, thoroughly=True)
                tracked.checkpoint = context.with_stat(checkpoint, unmatched.stat)
                changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.checkpoint)

    def accept(self, tracked: TrackedFile, checkpoint: FileCheckpoint, stat: FileStat, *, thoroughly: bool) -> None:
        """Continue a file that seems to be the same; compare all of it first in case of doubt."""
        tracked.observe(stat, self._context.clock)
        tracked.needs_comparison = False
        if thoroughly and checkpoint.offset > SMALL_BYTES:
            tracked.check, tracked.adopts = PrefixCheck(checkpoint.offset, checkpoint.checksum), None
        tracked.unread = stat.size > checkpoint.offset or tracked.check is not None

    def _restart(
        self,
        tracked: TrackedFile,
        stat: FileStat,
        why: DirectoryEvent,
        changes: CheckpointChanges,
        *,
        keep: bool = True,
    ) -> None:
        """Read a file from the start; `keep` its checkpoint for a copy that may continue it."""
        context, old = self._context, tracked.checkpoint
        checkpoint = context.new_checkpoint(tracked, stat)
        if old is not None:
            former = msgspec.structs.replace(old, previous=None) if keep and old.offset else None
            checkpoint = msgspec.structs.replace(checkpoint, generation=old.generation + 1, previous=former)
        context.counted[why] += 1
        context.info(f"{display_name(tracked.key)}: {why.removeprefix('files_')}, read again from the start")
        tracked.checkpoint = checkpoint
        tracked.observe(stat, context.clock)
        tracked.unread, tracked.needs_comparison, tracked.check = stat.size > 0, False, None
        tracked.unfinished, tracked.zeros_at = 0, -1
        changes[tracked.key] = context.checkpoints.put(tracked.key, checkpoint)
        if checkpoint.previous is not None:
            self._missing_files.wait(tracked.key)
        self._index.set_active(tracked.name, tracked.entry)
        self._active[tracked.name] = tracked

    # Another name, the same file

    def _adopt_match(self, match: Match, changes: CheckpointChanges) -> None:
        """Continue the checkpoint of another name, at once or after a full comparison."""
        unmatched, orphan = match.unmatched, match.orphan
        tracked = unmatched.tracked or TrackedFile(
            unmatched.name, unmatched.key, orphan.checkpoint.format, unmatched.entry
        )
        tracked.format, tracked.stat = orphan.checkpoint.format, None
        tracked.observe(unmatched.stat, self._context.clock)
        self._index.set_active(unmatched.name, unmatched.entry)
        self._active[unmatched.name] = tracked
        if match.certain:
            self._adopt(tracked, unmatched.stat, orphan, changes)
        else:
            tracked.checkpoint, tracked.adopts, tracked.unread = None, orphan.key, True
            tracked.check = PrefixCheck(orphan.checkpoint.offset, orphan.checkpoint.checksum)

    def _adopt(
        self, tracked: TrackedFile, stat: FileStat, orphan: OrphanedCheckpoint, changes: CheckpointChanges
    ) -> None:
        """Move a checkpoint to the file that continues it."""
        context, key = self._context, orphan.key
        if orphan.former:
            own = context.checkpoints.get(key)
            if own is not None:
                own = msgspec.structs.replace(own, previous=None)
                changes[key] = context.checkpoints.put(key, own)
                for other in self._active.values():
                    if other.key == key:
                        other.checkpoint = own
        elif key not in changes:
            changes[key] = context.checkpoints.put(key, None)
        self._missing_files.adopted(key)
        tracked.checkpoint = msgspec.structs.replace(orphan.checkpoint, previous=None, gone_at=None)
        # The checksum of an unread file's first bytes holds for the size of that time, and has just been compared.
        if tracked.checkpoint.offset:
            tracked.checkpoint = context.with_stat(tracked.checkpoint, stat)
        tracked.unread = (
            stat.size > orphan.checkpoint.offset if tracked.grows else orphan.checkpoint.state is FileState.READING
        )
        tracked.unfinished, tracked.needs_comparison = 0, False
        changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.checkpoint)
        context.counted[DirectoryEvent.FILES_ADOPTED] += 1

    def verify(self, folder: SafeDirectory, tracked: TrackedFile, check: PrefixCheck) -> Iterator[Delivery]:
        """Continue the comparison of a file with what was read of it, and apply the result."""
        context = self._context
        try:
            with folder.opened(tracked.name) as (file, stat):
                if tracked.stat is None or stat.inode != tracked.stat.inode:
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
            self._end_adoption(tracked, tracked.stat, tracked.adopts, check, changes, matches=result)
        elif not result:
            self._restart(tracked, stat, DirectoryEvent.FILES_REPLACED, changes)
        elif tracked.checkpoint is not None:
            tracked.unread = stat.size > tracked.checkpoint.offset
            tracked.checkpoint = context.with_stat(tracked.checkpoint, tracked.stat)
            changes[tracked.key] = context.checkpoints.put(tracked.key, tracked.checkpoint)
        if changes:
            yield context.delivery(display_name(tracked.key), changes)

    def _end_adoption(
        self,
        tracked: TrackedFile,
        stat: FileStat,
        key: bytes,
        check: PrefixCheck,
        changes: CheckpointChanges,
        *,
        matches: bool,
    ) -> None:
        tracked.adopts = None
        own = self._context.checkpoints.get(key)
        former = None if own is None else own.previous
        if matches and former is not None and (former.offset, former.checksum) == (check.length, check.expected):
            self._adopt(tracked, stat, OrphanedCheckpoint(key, former, former=True), changes)
        elif self._index.format_of(tracked.name) is None:
            del self._active[tracked.name]
            self._ignore(ListedFile(tracked.name, tracked.entry))

    # No file

    def _handle_vanished(
        self, folder: SafeDirectory, findings: FileFindings, taken: set[bytes], changes: CheckpointChanges
    ) -> None:
        context = self._context
        gone: list[tuple[bytes, FileCheckpoint]] = []
        for tracked in findings.vanished:
            self._active.pop(tracked.name, None)
            self._whole_files.drop(tracked.key)
            self._index.set_active(tracked.name, tracked.entry)
            if tracked.key not in taken and tracked.checkpoint is not None:
                gone.append((tracked.key, tracked.checkpoint))
                if tracked.unread_bytes:
                    context.counted[DirectoryEvent.LOST_BYTES] += tracked.unread_bytes
        twice = self._missing_files.missed_twice(findings.missing)
        self._index.forget(twice | taken.intersection(findings.missing))
        gone += [(key, checkpoint) for key in twice - taken if (checkpoint := context.checkpoints.get(key)) is not None]
        self._missing_files.mark_gone(gone, folder.identity[0], changes)

    def _ignore(self, found: ListedFile) -> None:
        """Count a file that is not to be read, once."""
        self._index.ignore(found.name, found.entry)
        if self._index.matches_pattern(found.name) and self._context.first_time(("unknown", self._keys(found.name))):
            self._context.counted[DirectoryEvent.UNKNOWN_EXTENSION] += 1


def _is_other(folder: SafeDirectory, found: ListedFile, known: set[int]) -> bool:
    try:
        return folder.stat(found.name).inode not in known
    except (OSError, OpenRefused):
        return False


def still_matches(folder: SafeDirectory, tracked: TrackedFile, checkpoint: FileCheckpoint) -> bool:
    """Open a file and return whether it seems to start with what was read of it."""
    with folder.opened(tracked.name) as (file, _):
        return prefix_matches(folder.system, file, checkpoint)
