"""A watched directory as a source: tailed files and whole files.

Polled, never notified: a watcher that falls behind loses events without saying so, and network file systems have none.
Each poll lists the directory, looks at the files that may have changed, finds out which of them are the ones it knows,
and reads on where it stands. Everything it delivers comes with the rows that make it read.
"""

import bisect
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import msgspec

from monitor.errors import UsageError
from monitor.records.record_batch import Decoder, Format
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
    """Adds up what is unread, and knows since when.

    By our own clock: the times of files are those of their writers, and a copy may keep one of years ago.
    """

    def __init__(self, context: PollContext) -> None:
        self._context = context
        self._backlog_since: float | None = None
        """Since when there have been new files that nobody has opened."""

    def measure(self, folder: SafeDirectory, active: Iterable[TrackedFile], new: Sequence[Found]) -> Lag:
        """Add up what is unread in files that are followed, and in new ones that have not been opened yet."""
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
            # What settles, or cannot be opened, is waited for: we are not late with it.
            if tracked.unread_since is not None and tracked.wait_until <= context.clock:
                since.append(tracked.unread_since)
        return Lag(size + _size_of(folder, new), files + len(new), min(since, default=None))


def _size_of(folder: SafeDirectory, new: Sequence[Found]) -> int:
    # Looking at a hundred thousand new files would cost more than reading some of them.
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
"""Says only that it is there."""


class DirectorySource:
    """Reads a directory. See `Source` for who calls what; all of it on one thread, and none of it waits."""

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
            raise UsageError("key: expected some bytes that hash file names, found none")
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
        """Whether the last poll ended before it had served all files."""
        self._owes = False
        """Whether something has been delivered and not acknowledged."""
        self._epoch = 0
        self._last_served = self._last_committed = ""
        self._seconds_listing = 0.0
        self._last_restat = float("-inf")
        self._identity: tuple[int, int] | None = None
        self._waits_for: str | None = "has not been polled yet"
        self._meter = DirectoryLagMeter(self._context)
        self._lag = Lag()
        self._started = self._keys("")
        """The key under which it is kept that the directory has been watched before."""

    def restore(self, positions: Mapping[bytes, bytes]) -> None:
        """Take over the positions that were committed; called once, before the first poll."""
        damaged = self._checkpoints.restore(positions)
        if damaged:
            self._context.counted[DirectoryEvent.POSITIONS_DAMAGED] += damaged
            self._context.warn(f"{damaged} positions are damaged; their files are read as if never seen")
        self._follower.restore()

    def poll(self, now: float) -> Generator[Delivery, None, None]:
        """Yield what is there to be read, at most as much as one tick may take."""
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
                        return  # rolled back: what follows stood on what was taken back
        finally:
            if folder is not None:
                self._lag = self._meter.measure(folder, self._follower.active.values(), self._follower.new)
                folder.close()
        if (rest := context.rest()) is not None:
            self._owes = True
            yield rest

    def acknowledge(self, oldest: Mapping[str, float] = NOTHING_HELD) -> None:  # noqa: ARG002 - files have no shards
        """Everything delivered so far has been committed: files that are done with may be archived or deleted."""
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
        """What was delivered since the last acknowledgement could not be committed: deliver it again."""
        self._epoch += 1
        self._owes = False
        changed = set(self._checkpoints.roll_back())
        self._last_served = self._last_committed
        self._follower.reload(changed)
        self._finisher.reload(changed)
        self._context.noted.difference_update(self._context.unacknowledged)
        self._context.unacknowledged.clear()

    def lag(self) -> Lag:
        """Return how much was unread as of the last poll. Of very many new files, the bytes are an estimate."""
        return self._lag

    def ready(self) -> str | None:
        """Return None when the directory can be listed, else a sentence that says what is waited for."""
        return self._waits_for

    def close(self) -> None:
        """Let go of everything that is open."""
        self._epoch += 1
        self._settled.close()
        self._finisher.close()
        if self._context.guard is not None:
            self._context.guard.close()

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next poll: longer when listing takes long, not at all when more is there."""
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
        sentence = f"waits for its directory {str(self._options.path)!r} ({error_name(error)})"
        if self._waits_for != sentence:
            self._context.warn(sentence)
        self._waits_for = sentence

    def _poll(self, folder: SafeDirectory) -> Iterator[Delivery]:
        context, options = self._context, self._options
        if self._options.on_finish is not OnFinish.KEEP and not self._owes:
            # Where nothing is delivered nothing is acknowledged, and files are to be tidied up all the same.
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
            context.tell("its directory is there again")
        elif self._identity not in {None, folder.identity}:
            context.warn("its directory has been replaced or mounted anew")
        self._identity, self._waits_for = folder.identity, None
        if entries > MANY_ENTRIES and context.once("many"):
            context.tell(
                f"its directory holds {entries:,} entries, and listing them takes ever longer: "
                "archive files, or use a folder a day"
            )

    def _serve(self, folder: SafeDirectory) -> Iterator[Delivery]:
        """Read the files that hold something unread, in name order, going on after the one that was read last."""
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
        """Go on looking at a file that has just been read, as often as it deserves."""
        follower = self._follower
        if tracked.refused:
            follower.active.pop(tracked.name, None)
            self._roster.ignore(tracked.name, tracked.entry)
        elif not follower.rest(tracked) and (tracked.look is not None or tracked.wait_until):
            follower.active[tracked.name] = tracked

    def _skip_what_is_there(self, folder: SafeDirectory, fresh: list[Found]) -> Iterator[Delivery]:
        """Count everything as read that is there when the directory is watched for the first time."""
        context = self._context
        positions: dict[bytes, bytes | None] = {}
        for found in fresh:
            format_ = self._roster.format_of(found.name)
            try:
                look = folder.look(found.name)
            except (OSError, OpenRefused):
                continue
            if format_ is not None and look.size:
                tracked = TrackedFile(found.name, self._keys(found.name), format_)
                row = msgspec.structs.replace(context.new_row(tracked, look), skip_to=look.size)
                positions[tracked.key] = self._checkpoints.put(tracked.key, row)
        yield context.delivery(positions=positions | {self._started: self._checkpoints.put(self._started, _STARTED)})
