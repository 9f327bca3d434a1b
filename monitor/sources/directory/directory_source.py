"""A watched directory as a source: tailed files and whole files.

Polling, not notification: a watcher that falls behind loses events silently, and network file systems have none. Each
poll lists the directory, examines the files that may have changed, identifies them, and reads on from their checkpoints.
"""

import bisect
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from monitor.errors import UsageError
from monitor.records.decoder import Decoder, Format
from monitor.sources.base import NOTHING_HELD, Delivery, Lag
from monitor.sources.directory.archive import Archiver
from monitor.sources.directory.crash_guard import CrashGuard
from monitor.sources.directory.directory_options import DirectoryEvent, DirectoryOptions, OnFinish, StartAt
from monitor.sources.directory.file_checkpoint import VERSION, FileCheckpoint, FileCheckpoints, FileState, Keys
from monitor.sources.directory.open_files import OpenRefused, SafeDirectory, error_name
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.scan import Found, Roster
from monitor.sources.directory.system_calls import System
from monitor.sources.directory.tailer import Tailer
from monitor.sources.directory.tracked_file import TrackedFile
from monitor.sources.directory.tracker import FileTracker
from monitor.sources.directory.whole_files import WholeFileReader

_SAMPLE = 1_000


class DirectoryLagMeter:
    """Measures the backlog by our own clock: file times are set by writers and copies."""

    def __init__(self, context: PollContext) -> None:
        self._context = context
        self._backlog_since: float | None = None
        """Since when there have been unopened new files."""

    def measure(self, folder: SafeDirectory, active: Iterable[TrackedFile], new: Sequence[Found]) -> Lag:
        """Return the lag of the tracked files and of new ones that have not been opened."""
        context = self._context
        size = files = 0
        self._backlog_since = (self._backlog_since or context.now) if new else None
        since = [] if self._backlog_since is None else [self._backlog_since]
        for tracked in active:
            if not tracked.unread:
                tracked.unread_since = None
            elif tracked.unread_since is None:
                tracked.unread_since = context.now
            if tracked.look is None or not (tracked.unread or tracked.settling):
                continue
            files += 1
            size += tracked.unread_bytes
            # Files that settle or cannot be opened are not late: we wait for them.
            if tracked.unread_since is not None and tracked.wait_until <= context.clock:
                since.append(tracked.unread_since)
        return Lag(size + _size_of(folder, new), files + len(new), min(since, default=None))


def _size_of(folder: SafeDirectory, new: Sequence[Found]) -> int:
    # Statting every one of a hundred thousand new files would cost more than reading some of them.
    sample = new[:: max(1, len(new) // _SAMPLE)]
    sizes = []
    for found in sample:
        try:
            sizes.append(folder.look(found.name).size)
        except (OSError, OpenRefused):
            continue
    return round(sum(sizes) * len(new) / len(sample)) if sizes else 0


__all__ = ["DirectoryOptions", "DirectorySource", "OnFinish", "StartAt"]

MANY_ENTRIES = 10_000
_BUSY_SHARE = 0.2
_STARTED = FileCheckpoint(VERSION, Format.JSONL, FileState.COMPLETE, 0, 0, 0, 0)
"""Its presence is its only meaning."""


class DirectorySource:
    """Reads a directory. See `Source` for the contract; single-threaded, never blocks."""

    sharded: ClassVar[bool] = False

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
        self._roster = Roster(options)
        self._growing = Tailer(self._context)
        self._settled = WholeFileReader(self._context)
        self._follower = FileTracker(self._context, self._roster, self._keys, self._settled)
        self._finisher = Archiver(self._context, self._keys, self._growing)
        self._turn = 0
        self._cut_short = False
        """Whether the last poll ended before it had read all files."""
        self._owes = False
        """Whether a delivery has not been acknowledged."""
        self._epoch = 0
        self._last_served = self._last_committed = ""
        self._seconds_listing = 0.0
        self._last_restat = float("-inf")
        self._identity: tuple[int, int] | None = None
        self._waits_for: str | None = "not polled yet"
        self._meter = DirectoryLagMeter(self._context)
        self._lag = Lag()
        self._started = self._keys("")
        """The key of the entry that records that the directory has been watched before."""

    def restore(self, checkpoints: Mapping[bytes, bytes]) -> None:
        """Load the committed checkpoints; called once, before the first poll."""
        damaged = self._checkpoints.restore(checkpoints)
        if damaged:
            self._context.counted[DirectoryEvent.POSITIONS_DAMAGED] += damaged
            self._context.warn(f"{damaged} damaged checkpoints; their files are read as new")
        self._follower.restore()

    def poll(self, now: float) -> Generator[Delivery, None, None]:
        """Yield what is available, at most the budget of one poll."""
        context, epoch = self._context, self._epoch
        context.begin(now)
        self._turn += 1
        self._cut_short = False
        folder = self._open_folder()
        try:
            if folder is not None:
                for delivery in self._poll(folder):
                    self._owes = True
                    yield delivery
                    if self._epoch != epoch:
                        return  # rolled back: later deliveries would build on it
        finally:
            if folder is not None:
                self._lag = self._meter.measure(folder, self._follower.active.values(), self._follower.new)
                folder.close()
        if (rest := context.rest()) is not None:
            self._owes = True
            yield rest

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:  # noqa: ARG002 - files have no shards
        """Everything delivered so far is committed: finished files may be archived or deleted."""
        self._checkpoints.commit()
        self._last_committed = self._last_served
        self._context.unacknowledged.clear()
        self._owes = False
        if self._options.on_finish is OnFinish.KEEP:
            self._follower.finishable.clear()
        elif self._follower.finishable and (folder := self._open_folder()) is not None:
            try:
                self._finish(folder)
            finally:
                folder.close()

    def _finish(self, folder: SafeDirectory) -> None:
        for name, entry in self._finisher.finish(folder, self._follower.finishable):
            self._roster.wake(name, entry)

    def roll_back(self) -> None:
        """What was delivered since the last acknowledgement was not committed: deliver it again."""
        self._epoch += 1
        self._owes = False
        changed = set(self._checkpoints.roll_back())
        self._last_served = self._last_committed
        self._follower.reload(changed)
        self._finisher.reload(changed)
        self._context.noted.difference_update(self._context.unacknowledged)
        self._context.unacknowledged.clear()

    def lag(self) -> Lag:
        """Return the lag as of the last poll. With very many new files, the bytes are an estimate."""
        return self._lag

    def ready(self) -> str | None:
        """Return None if the directory can be listed, else what it waits for."""
        return self._waits_for

    def close(self) -> None:
        """Release everything."""
        self._epoch += 1
        self._settled.close()
        self._finisher.close()
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
            self._cannot_list(error)
            return None
        return folder

    def _cannot_list(self, error: OSError) -> None:
        self._context.counted[DirectoryEvent.POLL_ERRORS] += 1
        message = f"waiting for its directory {str(self._options.path)!r} ({error_name(error)})"
        if self._waits_for != message:
            self._context.warn(message)
        self._waits_for = message

    def _poll(self, folder: SafeDirectory) -> Iterator[Delivery]:
        context, options = self._context, self._options
        if self._options.on_finish is not OnFinish.KEEP and not self._owes:
            # Without deliveries there are no acknowledgements, and finished files must be archived all the same.
            self._finish(folder)
        yield from self._finisher.look_again()
        turns = max(1, round(options.restat_seconds / self._interval()))
        began = context.monotonic()
        try:
            listing = self._roster.scan(folder, self._follower.active, self._turn, turns, self._follower.again())
        except OSError as error:
            self._cannot_list(error)
            return
        self._seconds_listing = context.monotonic() - began
        self._note_directory(folder, listing.entries)
        if options.start_at is StartAt.END and self._started not in self._checkpoints:
            yield from self._skip_what_is_there(folder, listing.fresh)
        yield from self._follower.examine(folder, listing)
        if context.clock - self._last_restat >= options.restat_seconds:
            self._last_restat = context.clock
            yield from self._follower.forget_gone(folder)
        yield from self._serve(folder)

    def _note_directory(self, folder: SafeDirectory, entries: int) -> None:
        context = self._context
        if self._waits_for is not None and self._identity is not None:
            context.info("its directory is available again")
        elif self._identity not in {None, folder.identity}:
            context.warn("its directory was replaced or remounted")
        self._identity, self._waits_for = folder.identity, None
        if entries > MANY_ENTRIES and context.once("many"):
            context.info(
                f"its directory has {entries:,} entries, which makes every poll slow: "
                "archive files, or use one folder per day"
            )

    def _serve(self, folder: SafeDirectory) -> Iterator[Delivery]:
        """Read the files with unread data in name order, starting after the one read last."""
        follower, context = self._follower, self._context
        new = {found.name: found for found in follower.new}
        waiting = [
            tracked.name
            for tracked in follower.active.values()
            if tracked.unread and tracked.wait_until <= context.clock and tracked.name not in new
        ]
        names = sorted([*waiting, *new])
        start = bisect.bisect_right(names, self._last_served)
        context.allow_time()
        for name in [*names[start:], *names[:start]]:
            if context.left <= 0 or context.time_is_up:
                self._cut_short = True
                break
            self._last_served = name
            tracked = follower.active.get(name)
            if tracked is None:
                found = new[name]
                format_ = self._roster.format_of(name)
                if format_ is None:
                    continue
                tracked = TrackedFile(name, self._keys(name), format_, found.entry)
            new.pop(name, None)
            yield from self._read(folder, tracked)
            self._follow(tracked)
            self._cut_short = tracked.unread and context.time_is_up
        else:
            self._last_served = ""
        follower.new = list(new.values())

    def _read(self, folder: SafeDirectory, tracked: TrackedFile) -> Iterator[Delivery]:
        if tracked.check is not None and tracked.grows:
            yield from self._follower.verify(folder, tracked, tracked.check)
        elif tracked.grows:
            yield from self._growing.read(folder, tracked)
        else:
            yield from self._settled.read(folder, tracked)

    def _follow(self, tracked: TrackedFile) -> None:
        """Keep watching a file that was just read, as often as necessary."""
        follower = self._follower
        if tracked.refused:
            follower.active.pop(tracked.name, None)
            self._roster.ignore(tracked.name, tracked.entry)
        elif not follower.rest(tracked) and (tracked.look is not None or tracked.wait_until):
            follower.active[tracked.name] = tracked

    def _skip_what_is_there(self, folder: SafeDirectory, fresh: list[Found]) -> Iterator[Delivery]:
        """With `start_at: end`, mark all files as read when the directory is watched for the first time."""
        context = self._context
        changes: dict[bytes, bytes | None] = {}
        for found in fresh:
            format_ = self._roster.format_of(found.name)
            try:
                look = folder.look(found.name)
            except (OSError, OpenRefused):
                continue
            if format_ is not None and look.size:
                tracked = TrackedFile(found.name, self._keys(found.name), format_)
                row = msgspec.structs.replace(context.new_row(tracked, look), skip_to=look.size)
                changes[tracked.key] = self._checkpoints.put(tracked.key, row)
        yield context.delivery(checkpoints=changes | {self._started: self._checkpoints.put(self._started, _STARTED)})
