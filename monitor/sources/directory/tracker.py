"""Tracks the files of a directory from poll to poll: examines those that may have changed, and leaves the others idle."""

from collections.abc import Iterator

import msgspec

from monitor.sources.base import Delivery
from monitor.sources.directory.directory_access import (
    FileIndex,
    FileStat,
    ListedFile,
    Listing,
    OpenRefused,
    SafeDirectory,
    is_missing,
)
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import (
    FileChange,
    FileCheckpoint,
    FileState,
    Keys,
    TrackedFile,
    UnmatchedFile,
    change,
)
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.resolver import FileFindings, MissingFiles, Resolver, still_matches
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

    def __init__(self, context: PollContext, index: FileIndex, keys: Keys, whole_files: WholeFileReader) -> None:
        self.active: dict[str, TrackedFile] = {}
        self.new: list[ListedFile] = []
        """New files to tail: opened when it is their turn."""
        self.finishable: dict[str, tuple[bytes, int]] = {}
        """Files that were read and no longer change: keys, and inodes from the listing."""
        self._context = context
        self._index = index
        self._keys = keys
        self._whole_files = whole_files
        self.missing_files = MissingFiles(context)
        self.resolver = Resolver(context, index, keys, whole_files, self.missing_files, self.active)

    def reload(self, keys: set[bytes]) -> None:
        """Discard conclusions from checkpoints that were rolled back."""
        self._index.forget(keys)
        self._whole_files.close()
        self.finishable.clear()
        for name, tracked in list(self.active.items()):
            if tracked.key in keys:
                del self.active[name]
        self.missing_files.reload(keys)

    def prefixes_to_examine(self) -> tuple[str, ...]:
        """Return the prefixes of names that are examined even if they were ignored.

        Rotation copies `f` to `f.1` before it truncates `f`, so the copy may have been listed when it was irrelevant.
        """
        return tuple(tracked.name for tracked in self.active.values() if self.missing_files.is_waiting(tracked.key))

    # Examining

    def examine(self, folder: SafeDirectory, listing: Listing) -> Iterator[Delivery]:
        """Examine all files that may have changed, and deliver the resulting changes of checkpoints."""
        findings = FileFindings()
        for found in listing.active:
            self.active[found.name].entry = found.entry
        followed = list(self.active.values())
        self._classify(folder, listing, findings)
        findings.missing = self.missing_files.missing(listing.missing)
        for tracked in followed:
            self._examine_one(folder, tracked, findings, marked=tracked.name in listing.markers)
        for found in listing.due:
            key = self._keys(found.name)
            checkpoint = self._context.checkpoints.get(key)
            format_ = checkpoint.format if checkpoint is not None else self._index.format_of(found.name)
            if format_ is not None:
                tracked = TrackedFile(found.name, key, format_, found.entry, checkpoint)
                self._examine_one(folder, tracked, findings, marked=found.name in listing.markers, idle=True)
        yield from self.resolver.resolve(folder, findings)
        self.new = findings.new

    def _classify(self, folder: SafeDirectory, listing: Listing, findings: FileFindings) -> None:
        """Sort fresh names into files with a checkpoint, new files, and irrelevant ones."""
        for found in listing.fresh:
            key = self._keys(found.name)
            checkpoint = self._context.checkpoints.get(key)
            format_ = checkpoint.format if checkpoint is not None else self._index.format_of(found.name)
            if format_ is None:
                findings.irrelevant.append(found)
            elif checkpoint is None and format_.grows:
                findings.new.append(found)
            else:
                tracked = TrackedFile(found.name, key, format_, found.entry, checkpoint)
                tracked.known_complete = found.name in listing.renamed
                self.missing_files.found(key)
                if checkpoint is not None and checkpoint.gone_at is not None:
                    tracked.checkpoint = msgspec.structs.replace(checkpoint, gone_at=None)
                    findings.changed.append(tracked)
                self._examine_one(folder, tracked, findings, marked=found.name in listing.markers, idle=True)

    def _examine_one(
        self, folder: SafeDirectory, tracked: TrackedFile, findings: FileFindings, *, marked: bool, idle: bool = False
    ) -> None:
        """Examine one file; an `idle` one is tracked only if there is a reason."""
        context = self._context
        if tracked.wait_until > context.clock:
            return
        try:
            stat = folder.stat(tracked.name)
            findings.inodes[tracked.name] = stat.inode
            self._compare(folder, tracked, stat, findings, marked=marked)
        except OpenRefused as refused:
            context.refuse(tracked.key, tracked.entry, refused.refusal)
            self._index.ignore(tracked.name, tracked.entry)
            findings.vanished.append(tracked)
            return
        except OSError as error:
            if is_missing(error):
                findings.vanished.append(tracked)
                return
            context.unreadable(tracked, error)
        if not self.try_idle(tracked, idle=idle):
            self._index.set_active(tracked.name, tracked.entry)
            self.active[tracked.name] = tracked

    def _compare(
        self, folder: SafeDirectory, tracked: TrackedFile, stat: FileStat, findings: FileFindings, *, marked: bool
    ) -> None:
        context, checkpoint = self._context, tracked.checkpoint
        before = tracked.stat or checkpoint
        if before is not None and stat.inode != before.inode and checkpoint is not None:
            findings.replaced.append(UnmatchedFile(tracked.name, tracked.key, tracked.entry, stat, tracked))
        elif not tracked.grows:
            if checkpoint is None and tracked.stat is None:
                findings.unknown.append(UnmatchedFile(tracked.name, tracked.key, tracked.entry, stat, tracked))
            self._whole_files.examine(tracked, stat, marked=marked)
        elif checkpoint is None or before is None:
            if tracked.observe(stat, context.clock):
                tracked.unread = stat.size > 0
            self._watch_tail(tracked, stat, findings)
        else:
            self._compare_tailed(folder, tracked, checkpoint, before, stat, findings)

    def _compare_tailed(
        self,
        folder: SafeDirectory,
        tracked: TrackedFile,
        checkpoint: FileCheckpoint,
        before: FileStat | FileCheckpoint,
        stat: FileStat,
        findings: FileFindings,
    ) -> None:
        what = change(checkpoint, before, stat)
        if what is FileChange.SHRUNK:
            findings.restarted.append((tracked, stat, DirectoryEvent.FILES_TRUNCATED))
        elif what is FileChange.NONE and not tracked.needs_comparison:
            if tracked.stat is None:
                tracked.observe(stat, self._context.clock)
                tracked.unread = checkpoint.offset < stat.size and checkpoint.state is not FileState.FAILED
            self._watch_tail(tracked, stat, findings)
        elif not still_matches(folder, tracked, checkpoint):
            findings.restarted.append((tracked, stat, DirectoryEvent.FILES_REPLACED))
        else:
            self.resolver.accept(tracked, checkpoint, stat, thoroughly=what is not FileChange.GROWN)
            if what is FileChange.TOUCHED and tracked.check is None:
                tracked.checkpoint = self._context.with_stat(checkpoint, stat)
                findings.changed.append(tracked)

    def _watch_tail(self, tracked: TrackedFile, stat: FileStat, findings: FileFindings) -> None:
        """Detect an incomplete last line, or zero bytes, that have been there for long."""
        context = self._context
        timeout = context.options.partial_timeout_seconds
        if tracked.zeros_at >= 0 and context.clock - tracked.zeros_since >= timeout:
            tracked.unread = True
        if not tracked.unfinished or tracked.unread or context.clock - tracked.since < timeout:
            return
        checkpoint = tracked.checkpoint or context.new_checkpoint(tracked, stat)
        if not checkpoint.partial:
            tracked.checkpoint = msgspec.structs.replace(checkpoint, partial=True)
            findings.changed.append(tracked)
            context.counted[DirectoryEvent.PARTIAL_TAIL] += 1

    # Becoming idle

    def try_idle(self, tracked: TrackedFile, *, idle: bool = False) -> bool:
        """Stop examining a file in each poll unless there is a reason to continue; return whether it became idle."""
        if self._is_busy(tracked, idle=idle):
            return False
        if tracked.checkpoint is not None and self._is_finished(tracked, tracked.checkpoint):
            self.finishable[tracked.name] = tracked.key, tracked.entry
        self._index.set_idle(tracked.name, tracked.entry, tracked.key)
        self.active.pop(tracked.name, None)
        return True

    def _is_busy(self, tracked: TrackedFile, *, idle: bool) -> bool:
        """Return whether a file must be examined in the next poll."""
        context, checkpoint, stat = self._context, tracked.checkpoint, tracked.stat
        waits = tracked.check is not None or tracked.failed_at is not None or tracked.wait_until > context.clock
        if stat is None or waits or tracked.unread or tracked.needs_comparison:
            return True
        if checkpoint is None:
            return stat.size > 0 or (not idle and context.clock - tracked.since < context.options.restat_seconds)
        if not tracked.grows:
            return checkpoint.state is FileState.READING or not stat.same(checkpoint)
        if checkpoint.state is FileState.FAILED or self._is_finished(tracked, checkpoint):
            return False
        if tracked.unfinished and not checkpoint.partial:
            return True
        attention = _ATTENTION_SECONDS if len(self.active) < CROWD else _ATTENTION_IN_A_CROWD_SECONDS
        return context.now - checkpoint.changed_at < attention and len(self.active) < 2 * CROWD

    def _is_finished(self, tracked: TrackedFile, checkpoint: FileCheckpoint) -> bool:
        return (
            tracked.stat is not None
            and (checkpoint.state is not FileState.READING or checkpoint.offset == tracked.stat.size)
            and self._context.now - checkpoint.changed_at >= self._context.options.finish_after_seconds
        )
