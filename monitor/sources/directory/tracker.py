"""Tracks the files of a directory from poll to poll: examines those that may have changed, and leaves the others idle."""

from collections.abc import Iterator

import msgspec

from monitor.sources.base import Delivery
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import FileCheckpoint, FileState, Keys
from monitor.sources.directory.file_identity import FileChange, FileLook, PrefixCheck, change
from monitor.sources.directory.open_files import OpenRefused, SafeDirectory, is_missing
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.resolver import FileFindings, Resolver, seems_the_same
from monitor.sources.directory.rotation import Absent, Stray
from monitor.sources.directory.scan import Found, Listing, Roster
from monitor.sources.directory.tracked_file import TrackedFile
from monitor.sources.directory.whole_files import WholeFileReader

CROWD = 5_000
"""Files examined in each poll for an hour after a change. One examination takes about 10 µs.

Beyond this number a file is examined for a minute after a change; beyond twice this number it becomes idle at once, so
that a hundred thousand files need little memory and time.
"""
_ATTENTION_SECONDS = 3600.0
_ATTENTION_IN_A_CROWD_SECONDS = 60.0


class FileTracker:
    """The tracked files."""

    def __init__(self, context: PollContext, roster: Roster, keys: Keys, settled: WholeFileReader) -> None:
        self.active: dict[str, TrackedFile] = {}
        self.new: list[Found] = []
        """New files to tail: opened when it is their turn."""
        self.finishable: dict[str, tuple[bytes, int]] = {}
        """Files that were read and no longer change: keys, and inodes from the listing."""
        self._context = context
        self._roster = roster
        self._keys = keys
        self._settled = settled
        self._absent = Absent(context)
        self._resolver = Resolver(context, roster, keys, settled, self._absent, self.active)

    def restore(self) -> None:
        """Start with the loaded checkpoints."""
        self._absent.restore()

    def reload(self, keys: set[bytes]) -> None:
        """Discard conclusions from checkpoints that were rolled back."""
        self._roster.forget(keys)
        self._settled.close()
        self.finishable.clear()
        for name, tracked in list(self.active.items()):
            if tracked.key in keys:
                del self.active[name]
        self._absent.reload(keys)

    def again(self) -> tuple[str, ...]:
        """Return the prefixes of names that are examined even if they were ignored.

        Rotation copies `f` to `f.1` before it truncates `f`, so the copy may have been listed when it was irrelevant.
        """
        return tuple(tracked.name for tracked in self.active.values() if self._absent.is_waiting(tracked.key))

    def verify(self, folder: SafeDirectory, tracked: TrackedFile, check: PrefixCheck) -> Iterator[Delivery]:
        """Continue the comparison of a file with what was read of it."""
        return self._resolver.verify(folder, tracked, check)

    def forget_gone(self, folder: SafeDirectory) -> Iterator[Delivery]:
        """Delete the checkpoints of files gone for long."""
        return self._absent.forget(folder.identity[0])

    # Examining

    def examine(self, folder: SafeDirectory, listing: Listing) -> Iterator[Delivery]:
        """Examine all files that may have changed, and deliver the resulting changes of checkpoints."""
        findings = FileFindings()
        followed = list(self.active.values())
        self._place(folder, listing, findings)
        findings.missing = self._absent.missing(listing.missing)
        for tracked in followed:
            self._look_at(folder, tracked, findings, marked=tracked.name in listing.markers)
        for found in listing.due:
            key = self._keys(found.name)
            row = self._context.checkpoints.row(key)
            format_ = row.format if row is not None else self._roster.format_of(found.name)
            if format_ is not None:
                tracked = TrackedFile(found.name, key, format_, found.entry, row)
                self._look_at(folder, tracked, findings, marked=found.name in listing.markers, quiet=True)
        yield from self._resolver.resolve(folder, findings)
        self.new = findings.new

    def _place(self, folder: SafeDirectory, listing: Listing, findings: FileFindings) -> None:
        """Sort fresh names into files with a checkpoint, new files, and irrelevant ones."""
        for found in listing.fresh:
            key = self._keys(found.name)
            row = self._context.checkpoints.row(key)
            format_ = row.format if row is not None else self._roster.format_of(found.name)
            if format_ is None:
                findings.foreign.append(found)
            elif row is None and format_.grows:
                findings.new.append(found)
            else:
                tracked = TrackedFile(found.name, key, format_, found.entry, row)
                tracked.proven = found.name in listing.renamed
                self._absent.placed(key)
                if row is not None and row.gone_at is not None:
                    tracked.row = msgspec.structs.replace(row, gone_at=None)
                    findings.changed.append(tracked)
                self._look_at(folder, tracked, findings, marked=found.name in listing.markers, quiet=True)

    def _look_at(
        self, folder: SafeDirectory, tracked: TrackedFile, findings: FileFindings, *, marked: bool, quiet: bool = False
    ) -> None:
        """Examine one file; a `quiet` one is tracked only if there is a reason."""
        context = self._context
        if tracked.wait_until > context.clock:
            return
        try:
            look = folder.look(tracked.name)
            findings.inodes[tracked.name] = look.inode
            self._compare(folder, tracked, look, findings, marked=marked)
        except OpenRefused as refused:
            context.refuse(tracked.key, tracked.entry, refused.refusal)
            self._roster.ignore(tracked.name, tracked.entry)
            findings.vanished.append(tracked)
            return
        except OSError as error:
            if is_missing(error):
                findings.vanished.append(tracked)
                return
            context.unreadable(tracked, error)
        if not self.rest(tracked, quiet=quiet):
            self._roster.wake(tracked.name, tracked.entry)
            self.active[tracked.name] = tracked

    def _compare(
        self, folder: SafeDirectory, tracked: TrackedFile, look: FileLook, findings: FileFindings, *, marked: bool
    ) -> None:
        context, row = self._context, tracked.row
        before = tracked.look or row
        if before is not None and look.inode != before.inode and row is not None:
            findings.strangers.append(Stray(tracked.name, tracked.key, tracked.entry, look, tracked))
        elif not tracked.grows:
            if row is None and tracked.look is None:
                findings.unknown.append(Stray(tracked.name, tracked.key, tracked.entry, look, tracked))
            self._settled.examine(tracked, look, marked=marked)
        elif row is None or before is None:
            if tracked.sees(look, context.clock):
                tracked.unread = look.size > 0
            self._watch_tail(tracked, look, findings)
        else:
            self._compare_growing(folder, tracked, row, before, look, findings)

    def _compare_growing(
        self,
        folder: SafeDirectory,
        tracked: TrackedFile,
        row: FileCheckpoint,
        before: FileLook | FileCheckpoint,
        look: FileLook,
        findings: FileFindings,
    ) -> None:
        what = change(row, before, look)
        if what is FileChange.SHRUNK:
            findings.anew.append((tracked, look, DirectoryEvent.FILES_TRUNCATED))
        elif what is FileChange.NONE and not tracked.doubtful:
            if tracked.look is None:
                tracked.sees(look, self._context.clock)
                tracked.unread = row.offset < look.size and row.state is not FileState.FAILED
            self._watch_tail(tracked, look, findings)
        elif not seems_the_same(folder, tracked, row):
            findings.anew.append((tracked, look, DirectoryEvent.FILES_REPLACED))
        else:
            self._resolver.accept(tracked, row, look, thoroughly=what is not FileChange.GROWN)
            if what is FileChange.TOUCHED and tracked.check is None:
                tracked.row = self._context.seen_row(row, look)
                findings.changed.append(tracked)

    def _watch_tail(self, tracked: TrackedFile, look: FileLook, findings: FileFindings) -> None:
        """Detect an incomplete last line, or zero bytes, that have been there for long."""
        context = self._context
        timeout = context.options.partial_timeout_seconds
        if tracked.zeros_at >= 0 and context.clock - tracked.zeros_since >= timeout:
            tracked.unread = True
        if not tracked.unfinished or tracked.unread or context.clock - tracked.since < timeout:
            return
        row = tracked.row or context.new_row(tracked, look)
        if not row.partial:
            tracked.row = msgspec.structs.replace(row, partial=True)
            findings.changed.append(tracked)
            context.counted[DirectoryEvent.PARTIAL_TAIL] += 1

    # Becoming idle

    def rest(self, tracked: TrackedFile, *, quiet: bool = False) -> bool:
        """Stop examining a file in each poll unless there is a reason to continue; return whether it became idle."""
        if self._is_busy(tracked, quiet=quiet):
            return False
        if tracked.row is not None and self._is_finished(tracked, tracked.row):
            self.finishable[tracked.name] = tracked.key, tracked.entry
        self._roster.settle(tracked.name, tracked.entry, tracked.key)
        self.active.pop(tracked.name, None)
        return True

    def _is_busy(self, tracked: TrackedFile, *, quiet: bool) -> bool:
        """Return whether a file must be examined in the next poll."""
        context, row, look = self._context, tracked.row, tracked.look
        waits = tracked.check is not None or tracked.failed_at is not None or tracked.wait_until > context.clock
        if look is None or waits or tracked.unread or tracked.doubtful:
            return True
        if row is None:
            return look.size > 0 or (not quiet and context.clock - tracked.since < context.options.restat_seconds)
        if not tracked.grows:
            return row.state is FileState.READING or not look.same(row)
        if row.state is FileState.FAILED or self._is_finished(tracked, row):
            return False
        if tracked.unfinished and not row.partial:
            return True
        attention = _ATTENTION_SECONDS if len(self.active) < CROWD else _ATTENTION_IN_A_CROWD_SECONDS
        return context.now - row.changed_at < attention and len(self.active) < 2 * CROWD

    def _is_finished(self, tracked: TrackedFile, row: FileCheckpoint) -> bool:
        return (
            tracked.look is not None
            and (row.state is not FileState.READING or row.offset == tracked.look.size)
            and self._context.now - row.changed_at >= self._context.options.finish_after_seconds
        )
