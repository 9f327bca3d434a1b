"""What all parts of a watched directory share while it is polled: settings, checkpoints, clock, budget and tallies."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from monitor.records.record_batch import Decoder, RecordBatch
from monitor.records.rejections import RefusedFile
from monitor.sources.base import Delivery
from monitor.sources.directory.crash_guard import CrashGuard
from monitor.sources.directory.directory_options import DirectoryEvent, DirectoryOptions
from monitor.sources.directory.file_checkpoint import (
    CRASH,
    DECODER_ERROR,
    VERSION,
    Failure,
    FileCheckpoint,
    FileCheckpoints,
    FileState,
    called,
)
from monitor.sources.directory.file_identity import FileLook, PrefixCheck
from monitor.sources.directory.open_files import OpenRefusal, error_name
from monitor.sources.directory.system_calls import System
from monitor.sources.directory.tracked_file import TrackedFile

_Decoded = TypeVar("_Decoded")

_SLOWEST_RETRY_SECONDS = 300.0
_EVENTS = 20


@dataclass(slots=True)
class PollContext:
    """The state of one poll after another."""

    options: DirectoryOptions
    decoder: Decoder
    checkpoints: FileCheckpoints
    system: System
    guard: CrashGuard | None
    monotonic: Callable[[], float]
    now: float = 0.0
    """The present, in Unix seconds, as whoever polls says."""
    clock: float = 0.0
    """The present, by the monotonic clock."""
    left: int = 0
    """Bytes that may still be read in this poll."""
    until: float = 0.0
    """When to stop reading in this poll, by the monotonic clock."""
    counted: Counter[str] = field(default_factory=Counter)
    """What happened and has not been delivered yet."""
    events: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    noted: set[int] = field(default_factory=set)
    """What has been counted once and is not to be counted again."""
    unacknowledged: list[int] = field(default_factory=list)
    """What of that has not been committed."""

    def begin(self, now: float) -> None:
        """Start a poll."""
        self.now, self.clock = now, self.monotonic()
        self.left = self.options.bytes_per_tick
        self.allow_time()

    def allow_time(self) -> None:
        """Let reading begin now. Listing a million names takes longer than a tick, and must not use up its time."""
        self.until = self.monotonic() + self.options.seconds_per_tick

    @property
    def time_is_up(self) -> bool:
        """Whether what is left has to wait for the next poll."""
        return self.monotonic() >= self.until

    def step(self, check: PrefixCheck, file: int) -> bool | None:
        """Go on comparing a file for one turn, or as long as there is time; return whether it matches once known."""
        before, result = check.done, None
        end = before + self.options.bytes_per_file
        while result is None and check.done < end:
            result = check.step(self.system, file, 1)
            if self.time_is_up:
                break
        self.left -= check.done - before
        return result

    def tell(self, sentence: str) -> None:
        """Say something in the log: of a flood of sentences the first few."""
        if len(self.events) < _EVENTS:
            self.events.append(sentence)

    def warn(self, sentence: str) -> None:
        """Say something in the log that somebody should read."""
        if len(self.warnings) < _EVENTS:
            self.warnings.append(sentence)

    def once(self, what: object) -> bool:
        """Tell whether something happens for the first time, so that it is counted once."""
        # A million of them may come; a number each is enough.
        number = hash(what)
        if number in self.noted:
            return False
        self.noted.add(number)
        self.unacknowledged.append(number)
        return True

    def deliver(
        self,
        tracked: TrackedFile,
        row: FileCheckpoint,
        arrived: RecordBatch | None = None,
        counted: Mapping[DirectoryEvent, int] | None = None,
    ) -> Delivery:
        """Return records of a file together with its new row, and with what else happened."""
        tracked.row = row
        return self.delivery(
            called(tracked.key), {tracked.key: self.checkpoints.put(tracked.key, row)}, arrived, counted
        )

    def delivery(
        self,
        origin: str = "",
        positions: dict[bytes, bytes | None] | None = None,
        arrived: RecordBatch | None = None,
        counted: Mapping[DirectoryEvent, int] | None = None,
    ) -> Delivery:
        """Return a delivery that also carries what happened since the one before."""
        tally: Counter[str] = Counter(
            {str(name): count for name, count in self.counted.items()} if self.counted else None
        )
        self.counted.clear()
        for name, count in (counted or {}).items():
            tally[str(name)] += count
        events, self.events = tuple(self.events), []
        warnings, self.warnings = tuple(self.warnings), []
        return Delivery(origin, arrived or RecordBatch(), positions or {}, tally, events, warnings)

    def rest(self) -> Delivery | None:
        """Return what has been counted or said and not yet delivered, if anything."""
        return self.delivery() if self.counted or self.events or self.warnings else None

    def new_row(self, tracked: TrackedFile, look: FileLook) -> FileCheckpoint:
        """Return the row of a file of which nothing has been read."""
        return FileCheckpoint(
            VERSION,
            tracked.format,
            FileState.READING,
            look.device,
            look.inode,
            look.size,
            look.modified_ns,
            changed_at=self.now,
        )

    def seen_row(self, row: FileCheckpoint, look: FileLook) -> FileCheckpoint:
        """Return a row brought up to what a file looks like now."""
        return msgspec.structs.replace(
            row,
            device=look.device,
            inode=look.inode,
            size=look.size,
            modified_ns=look.modified_ns,
            # How a file begins of which no line was read was true of another size: it is found out again.
            head=row.head if row.offset else 0,
            gone_at=None,
        )

    def fail(self, tracked: TrackedFile, row: FileCheckpoint, look: FileLook, failure: Failure) -> Delivery:
        """Record that a file cannot be used as it is. Counted once, however often it changes and fails again."""
        again = row.state is FileState.FAILED and row.reason == failure.reason
        failed = msgspec.structs.replace(
            self.seen_row(row, look),
            state=FileState.FAILED,
            reason=failure.reason,
            explanation=failure.explanation,
            changed_at=self.now,
        )
        tracked.unread = False
        if not again:
            self.counted[DirectoryEvent.FILES_FAILED] += 1
            self.warn(f"{called(tracked.key)}: failed, and left aside until it changes: {failure}")
        return self.deliver(tracked, failed)

    def decoded(
        self, key: bytes, place: int, decode: Callable[[], _Decoded], trial: Callable[[], object]
    ) -> _Decoded | Failure:
        """Decode some of a file, whose place tells it from the rest of it; what it does to the decoder is its own failure.

        Where the process died several times on this very place, `trial` is run in a child first.
        """
        guard = self.guard
        if guard is not None:
            if guard.kills(key, place, trial):
                return CRASH
            guard.note(key, place)
        try:
            return decode()
        except RefusedFile as refused:
            return Failure.of(refused, key)
        except OSError:
            raise
        except MemoryError:
            # The process ends here. The note stays, as after a kill: if it is the file's fault, it comes again.
            guard = None
            raise
        except Exception:  # noqa: BLE001 - one file must not stop the others, whatever it does to the decoder
            return DECODER_ERROR
        finally:
            if guard is not None:
                guard.clear(key, place)

    def unreadable(self, tracked: TrackedFile, error: OSError) -> None:
        """Count a file that cannot be read, and try it again later, ever more slowly."""
        name = error_name(error)
        if self.once(("unreadable", tracked.key, name)):
            self.counted[DirectoryEvent.FILES_UNREADABLE] += 1
            self.warn(f"{called(tracked.key)}: cannot be read ({name}), and is tried again now and then")
        wait = min(_SLOWEST_RETRY_SECONDS, self.options.poll_seconds * 2**tracked.failures)
        tracked.failures = min(tracked.failures + 1, 20)
        tracked.wait_until = self.clock + wait

    def refuse(self, key: bytes, entry: int, refusal: OpenRefusal) -> None:
        """Count something that is never read."""
        if self.once(("refused", key, entry)):
            self.counted[DirectoryEvent.FILES_REFUSED] += 1
            self.warn(f"{called(key)}: refused: {refusal}")
