"""A watched directory as a source: tailed files and whole files.

Polling, not notification: a watcher that falls behind loses events silently, and network file systems have none. Each
poll lists the directory, examines the files that may have changed, identifies them, and reads on from their
checkpoints.
"""

import bisect
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from monitor.errors import UsageError
from monitor.records.record_batch import Decoder, Format
from monitor.sources.base import NOTHING_HELD, Delivery, Lag, LagMeter, SourceStatus
from monitor.sources.directory.archive import Archiver
from monitor.sources.directory.directory_access import (
    FileIndex,
    ListedFile,
    OpenRefused,
    SafeDirectory,
    System,
    error_name,
    is_missing,
)
from monitor.sources.directory.directory_options import DirectoryEvent, DirectoryOptions, OnFinish, StartAt
from monitor.sources.directory.file_checkpoint import (
    VERSION,
    FileCheckpoint,
    FileCheckpoints,
    FileState,
    Keys,
    TrackedFile,
)
from monitor.sources.directory.poll_context import CrashGuard, PollContext
from monitor.sources.directory.tailer import Tailer
from monitor.sources.directory.tracker import FileTracker
from monitor.sources.directory.whole_files import WholeFileReader

_SAMPLE = 1_000
MANY_ENTRIES = 10_000
_BUSY_SHARE = 0.2
_NEW_FILES = b""
"""All new files as one unit of the lag meter."""
_WATCHED_BEFORE = FileCheckpoint(VERSION, Format.JSONL, FileState.COMPLETE, 0, 0, 0, 0)
"""Its presence is its only meaning."""


def _size_of(folder: SafeDirectory, new: Sequence[ListedFile]) -> int:
    # Statting every one of a hundred thousand new files would cost more than reading some of them.
    sample = new[:: max(1, len(new) // _SAMPLE)]
    sizes = []
    for found in sample:
        try:
            sizes.append(folder.stat(found.name).size)
        except (OSError, OpenRefused):
            continue
    return round(sum(sizes) * len(new) / len(sample)) if sizes else 0


class DirectorySource:
    """Reads a directory. See `Source` for the contract; single-threaded, never blocks."""

    sharded: ClassVar[bool] = DirectoryOptions.sharded

    def __init__(
        self,
        name: str,
        options: DirectoryOptions,
        decoder: Decoder,
        *,
        key: bytes,
        guard: CrashGuard | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        system: System | None = None,
    ) -> None:
        if not key:
            raise UsageError("key: expected the key for hashing file names, found none")
        self.name = name
        self._options = options
        self._keys = Keys(key)
        self._checkpoints = FileCheckpoints()
        self._context = PollContext(options, decoder, self._checkpoints, system or System(), guard, monotonic)
        self._index = FileIndex(options)
        self._tailer = Tailer(self._context)
        self._whole_files = WholeFileReader(self._context)
        self._tracker = FileTracker(self._context, self._index, self._keys, self._whole_files)
        self._archiver = Archiver(self._context, self._keys, self._tailer)
        self._poll_number = 0
        self._cut_short = False
        """Whether the last poll ended before it had read all files."""
        self._has_unacknowledged = False
        """Whether a delivery has not been acknowledged."""
        self._epoch = 0
        self._last_read = self._last_committed = ""
        self._seconds_listing = 0.0
        self._last_restat = float("-inf")
        self._identity: tuple[int, int] | None = None
        self._waits_for: str | None = "not polled yet"
        self._meter = LagMeter[bytes]()
        self._lag = Lag()
        self._watched_before = self._keys("")
        """The key of the entry that records that the directory has been watched before."""

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Load the committed checkpoints; called once, before the first poll."""
        damaged = self._checkpoints.restore(checkpoints)
        if damaged:
            self._context.counted[DirectoryEvent.POSITIONS_DAMAGED] += damaged
            self._context.warn(f"{damaged} damaged checkpoints; their files are read as new")
        self._tracker.missing_files.restore()

    def poll(self, now: float) -> Generator[Delivery, None, None]:
        """Yield what is available, at most the budget of one poll."""
        context, epoch = self._context, self._epoch
        context.begin(now)
        self._poll_number += 1
        self._cut_short = False
        folder = self._open_folder()
        try:
            if folder is not None:
                for delivery in self._poll(folder):
                    self._has_unacknowledged = True
                    yield delivery
                    if self._epoch != epoch:
                        return  # rolled back: later deliveries would build on it
        finally:
            if folder is not None:
                self._lag = self._measured(folder)
                folder.close()
        if context.pending:
            self._has_unacknowledged = True
            yield context.delivery()

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:  # noqa: ARG002 - files have no shards
        """Everything delivered so far is committed: finished files may be archived or deleted."""
        self._checkpoints.commit()
        self._last_committed = self._last_read
        self._context.unacknowledged.clear()
        self._has_unacknowledged = False
        if self._options.on_finish is OnFinish.KEEP:
            self._tracker.finishable.clear()
        elif self._tracker.finishable and (folder := self._open_folder()) is not None:
            try:
                self._finish(folder)
            finally:
                folder.close()

    def _finish(self, folder: SafeDirectory) -> None:
        for name, entry in self._archiver.finish(folder, self._tracker.finishable):
            self._index.set_active(name, entry)

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement was not committed: deliver it again."""
        self._epoch += 1
        self._has_unacknowledged = False
        changed = set(self._checkpoints.roll_back())
        self._last_read = self._last_committed
        self._tracker.reload(changed)
        self._archiver.reload(changed)
        self._context.counted_once.difference_update(self._context.unacknowledged)
        self._context.unacknowledged.clear()

    def status(self) -> SourceStatus:
        """Return the status. It is ready if the directory can be listed; the lag of very many new files is an estimate."""
        return SourceStatus(self.name, DirectoryOptions.type_name, self._waits_for, self._lag)

    def close(self) -> None:
        """Release everything."""
        self._epoch += 1
        self._whole_files.close()
        self._archiver.close()
        if self._context.guard is not None:
            self._context.guard.close()

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll: 0 if more is available; longer if listing is slow."""
        if self._cut_short:
            return 0.0
        return self._interval()

    def _interval(self) -> float:
        return max(self._options.poll_seconds, self._seconds_listing / _BUSY_SHARE)

    # One poll

    def _open_folder(self) -> SafeDirectory | None:
        try:
            folder = SafeDirectory(self._options, self._context.system)
        except OSError as error:
            self._listing_failed(error)
            return None
        return folder

    def _listing_failed(self, error: OSError) -> None:
        self._context.counted[DirectoryEvent.POLL_ERRORS] += 1
        message = f"waiting for its directory {str(self._options.path)!r} ({error_name(error)})"
        if self._waits_for != message:
            self._context.warn(message)
        self._waits_for = message

    def _poll(self, folder: SafeDirectory) -> Iterator[Delivery]:
        context, options = self._context, self._options
        if self._options.on_finish is not OnFinish.KEEP:
            # Without deliveries there are no acknowledgements, and finished files must be archived all the same.
            if not self._has_unacknowledged:
                self._finish(folder)
            yield from self._archiver.read_late_writes()
        turns = max(1, round(options.restat_seconds / self._interval()))
        began = context.monotonic()
        try:
            listing = self._index.scan(
                folder, self._tracker.active, self._poll_number, turns, self._tracker.prefixes_to_examine()
            )
        except OSError as error:
            self._listing_failed(error)
            return
        self._seconds_listing = context.monotonic() - began
        self._update_directory(folder, listing.entries)
        if options.start_at is StartAt.END and self._watched_before not in self._checkpoints:
            yield from self._skip_existing(folder, listing.fresh)
        yield from self._tracker.examine(folder, listing)
        if context.clock - self._last_restat >= options.restat_seconds:
            self._last_restat = context.clock
            yield from self._tracker.missing_files.forget(folder.identity[0])
        yield from self._read_unread(folder)

    def _measured(self, folder: SafeDirectory) -> Lag:
        """Return the lag of the tracked files and of new ones that have not been opened."""
        context, new = self._context, self._tracker.new
        active = self._tracker.active.values()
        # By our own clock: file times are set by writers and copies.
        since = self._meter.measure(
            [*(tracked.key for tracked in active if tracked.unread), *([_NEW_FILES] if new else [])], context.now
        )
        # Files that settle or cannot be opened are not late: we wait for them.
        late = [since[tracked.key] for tracked in active if tracked.unread and tracked.wait_until <= context.clock]
        behind = [one for one in active if one.stat is not None and (one.unread or one.settling)]
        return Lag(
            sum(tracked.unread_bytes for tracked in behind) + _size_of(folder, new),
            len(behind) + len(new),
            min([*late, *([since[_NEW_FILES]] if new else [])], default=None),
        )

    def _update_directory(self, folder: SafeDirectory, entries: int) -> None:
        context = self._context
        if self._waits_for is not None and self._identity is not None:
            context.info("its directory is available again")
        elif self._identity not in {None, folder.identity}:
            context.warn("its directory was replaced or remounted")
        self._identity, self._waits_for = folder.identity, None
        if entries > MANY_ENTRIES and context.first_time("many"):
            context.info(
                f"its directory has {entries:,} entries, which makes every poll slow: "
                "archive files, or use one folder per day"
            )

    def _read_unread(self, folder: SafeDirectory) -> Iterator[Delivery]:
        """Read the files with unread data in name order, starting after the one read last."""
        tracker, context = self._tracker, self._context
        new = {found.name: found for found in tracker.new}
        waiting = [
            tracked.name
            for tracked in tracker.active.values()
            if tracked.unread and tracked.wait_until <= context.clock and tracked.name not in new
        ]
        names = sorted([*waiting, *new])
        start = bisect.bisect_right(names, self._last_read)
        context.start_time_budget()
        for name in [*names[start:], *names[:start]]:
            if context.bytes_left <= 0 or context.time_is_up:
                self._cut_short = True
                break
            self._last_read = name
            tracked = tracker.active.get(name)
            if tracked is None:
                found = new[name]
                format_ = self._index.format_of(name)
                if format_ is None:
                    continue
                tracked = TrackedFile(name, self._keys(name), format_, found.entry)
            new.pop(name, None)
            yield from self._read(folder, tracked)
            self._keep_tracking(tracked)
            self._cut_short = tracked.unread and context.time_is_up
        else:
            self._last_read = ""
        tracker.new = list(new.values())

    def _read(self, folder: SafeDirectory, tracked: TrackedFile) -> Iterator[Delivery]:
        if tracked.check is not None and tracked.grows:
            yield from self._tracker.resolver.verify(folder, tracked, tracked.check)
            return
        try:
            yield from (self._tailer if tracked.grows else self._whole_files).read(folder, tracked)
        except OpenRefused as refused:
            tracked.unread, tracked.refused = False, True
            self._context.refuse(tracked.key, tracked.entry, refused.refusal)
        except OSError as error:
            self._whole_files.drop(tracked.key)
            # If it disappeared since the listing, the next poll notices.
            if is_missing(error):
                tracked.unread = False
            else:
                self._context.unreadable(tracked, error)

    def _keep_tracking(self, tracked: TrackedFile) -> None:
        """Keep watching a file that was just read, as often as necessary."""
        tracker = self._tracker
        if tracked.refused:
            tracker.active.pop(tracked.name, None)
            self._index.ignore(tracked.name, tracked.entry)
        elif not tracker.try_idle(tracked) and (tracked.stat is not None or tracked.wait_until):
            tracker.active[tracked.name] = tracked

    def _skip_existing(self, folder: SafeDirectory, fresh: list[ListedFile]) -> Iterator[Delivery]:
        """With `start_at: end`, mark all files as read when the directory is watched for the first time."""
        context = self._context
        changes: dict[bytes, bytes | None] = {}
        for found in fresh:
            format_ = self._index.format_of(found.name)
            try:
                stat = folder.stat(found.name)
            except (OSError, OpenRefused):
                continue
            if format_ is not None and stat.size:
                tracked = TrackedFile(found.name, self._keys(found.name), format_)
                checkpoint = msgspec.structs.replace(context.new_checkpoint(tracked, stat), skip_to=stat.size)
                changes[tracked.key] = self._checkpoints.put(tracked.key, checkpoint)
        yield context.delivery(
            checkpoints=changes | {self._watched_before: self._checkpoints.put(self._watched_before, _WATCHED_BEFORE)}
        )
