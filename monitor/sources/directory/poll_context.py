"""The state shared by all parts of a directory source during a poll, and the guard against input that crashes the process.

A crafted file can crash a decoder written in C, and a restarted daemon would read it again, for ever. So the block
being decoded is written down first. A note that is still there at the next start counts as one crash on that block.
Crashes have other causes too, so after three the block is tried in a child process: it is skipped only if it kills that
too.
"""

import os
import select
import signal
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from monitor.core.backoff import Backoff
from monitor.records.record_batch import Decoder, RecordBatch
from monitor.records.rejections import RejectedFile
from monitor.sources.base import Delivery, EventBuffer
from monitor.sources.directory.directory_access import FileStat, OpenRefusal, System, error_name
from monitor.sources.directory.directory_options import DirectoryEvent, DirectoryOptions
from monitor.sources.directory.file_checkpoint import (
    CRASH,
    DECODER_ERROR,
    VERSION,
    Failure,
    FileCheckpoint,
    FileCheckpoints,
    FileState,
    PrefixCheck,
    TrackedFile,
    display_name,
)

CRASHES = 3
CHILD_SECONDS = 60.0
_KEY_BYTES = 16
_SUSPECTS = 16

# Whether a block is in flight, its key and offset; then the suspects: key, offset, crashes; then their CRC-32.
_FLIGHT = struct.Struct(f"<?{_KEY_BYTES}sQ")
_SUSPECT = struct.Struct(f"<{_KEY_BYTES}sQI")
_CHECKSUM = struct.Struct("<I")
_TABLE_BYTES = _SUSPECTS * _SUSPECT.size

Batch = tuple[bytes, int]


class CrashGuard:
    """A small file that outlives the process. Not synced: it must survive a crash of the process, not of the machine."""

    def __init__(self, path: Path, *, child_seconds: float = CHILD_SECONDS) -> None:
        self._child_seconds = child_seconds
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._suspects: dict[Batch, int] = {}
        self._read()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def crashes(self, key: bytes, offset: int) -> int:
        """Return how often the process crashed on a block."""
        return self._suspects.get((key, offset), 0)

    def note(self, key: bytes, offset: int) -> None:
        """Note that a block is about to be decoded."""
        os.pwrite(self._file, _FLIGHT.pack(True, key, offset), 0)

    def clear(self, key: bytes, offset: int) -> None:
        """Note that it was decoded: it is no longer a suspect."""
        os.pwrite(self._file, b"\0", 0)
        if self._suspects and self._suspects.pop((key, offset), None) is not None:
            self._write_suspects()

    def kills(self, key: bytes, offset: int, attempt: Callable[[], object]) -> bool:
        """Return whether to skip a block: it is a suspect, and kills a child process too."""
        return self.crashes(key, offset) >= CRASHES and not survives(attempt, self._child_seconds)

    def _read(self) -> None:
        data = os.pread(self._file, _FLIGHT.size + _TABLE_BYTES + _CHECKSUM.size, 0)
        table = data[_FLIGHT.size : _FLIGHT.size + _TABLE_BYTES]
        checksum = data[_FLIGHT.size + _TABLE_BYTES :]
        if len(checksum) == _CHECKSUM.size and _CHECKSUM.unpack(checksum)[0] == crc32(table):
            for key, offset, crashes in _SUSPECT.iter_unpack(table):
                if crashes:
                    self._suspects[key, offset] = crashes
        if len(data) >= _FLIGHT.size:
            in_flight, key, offset = _FLIGHT.unpack_from(data)
            if in_flight:
                # Reinserted last: the newest suspect is dropped last.
                self._suspects[key, offset] = self._suspects.pop((key, offset), 0) + 1
        os.pwrite(self._file, b"\0", 0)
        self._write_suspects()

    def _write_suspects(self) -> None:
        while len(self._suspects) > _SUSPECTS:
            del self._suspects[next(iter(self._suspects))]
        packed = [_SUSPECT.pack(key, offset, crashes) for (key, offset), crashes in self._suspects.items()]
        table = b"".join(packed).ljust(_TABLE_BYTES, b"\0")
        os.pwrite(self._file, table + _CHECKSUM.pack(crc32(table)), _FLIGHT.size)


def survives(attempt: Callable[[], object], seconds: float) -> bool:
    """Run something in a child process; return whether it survives. Exceptions count as surviving."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _run_child(attempt)
    os.close(write_end)
    try:
        # The child writes nothing: the pipe closes when it ends.
        ended, _, _ = select.select([read_end], [], [], seconds)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(read_end)
    return os.waitstatus_to_exitcode(status) == 0


def _run_child(attempt: Callable[[], object]) -> None:
    # Run nothing but the attempt: no exit handlers, no flushing of buffers shared with the parent.
    with suppress(BaseException):
        # If memory runs out, the child is killed first.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with suppress(BaseException):
        attempt()
    os._exit(0)


_Decoded = TypeVar("_Decoded")

_SLOWEST_RETRY_SECONDS = 300.0


@dataclass(slots=True)
class PollContext(EventBuffer):
    """The state of the current poll."""

    options: DirectoryOptions
    decoder: Decoder
    checkpoints: FileCheckpoints
    system: System
    guard: CrashGuard | None
    monotonic: Callable[[], float]
    now: float = 0.0
    """The current Unix time, given by the caller."""
    clock: float = 0.0
    """The current monotonic time."""
    bytes_left: int = 0
    """Bytes that may still be read in this poll."""
    deadline: float = 0.0
    """When to stop reading in this poll, on the monotonic clock."""
    counted_once: set[int] = field(default_factory=set)
    """Hashes of what was counted once and must not be counted again."""
    unacknowledged: list[int] = field(default_factory=list)
    """Those of them that are not committed yet."""

    def begin(self, now: float) -> None:
        """Start a poll."""
        self.now, self.clock = now, self.monotonic()
        self.bytes_left = self.options.bytes_per_tick
        self.start_time_budget()

    def start_time_budget(self) -> None:
        """Start the time budget now. Listing a million names takes long, and must not use it up."""
        self.deadline = self.monotonic() + self.options.seconds_per_tick

    @property
    def time_is_up(self) -> bool:
        """Whether the rest must wait for the next poll."""
        return self.monotonic() >= self.deadline

    def step(self, check: PrefixCheck, file: int) -> bool | None:
        """Continue a comparison within the budget of one file; return the result once known."""
        before, result = check.done, None
        end = before + self.options.bytes_per_file
        while result is None and check.done < end:
            result = check.step(self.system, file, 1)
            if self.time_is_up:
                break
        self.bytes_left -= check.done - before
        return result

    def first_time(self, what: object) -> bool:
        """Return whether this is the first occurrence."""
        # A million of them may come; a hash each suffices.
        number = hash(what)
        if number in self.counted_once:
            return False
        self.counted_once.add(number)
        self.unacknowledged.append(number)
        return True

    def deliver(
        self,
        tracked: TrackedFile,
        checkpoint: FileCheckpoint,
        batch: RecordBatch | None = None,
        counted: Mapping[str, int] | None = None,
    ) -> Delivery:
        """Return a delivery of a file's records with its new checkpoint."""
        tracked.checkpoint = checkpoint
        return self.delivery(
            display_name(tracked.key), {tracked.key: self.checkpoints.put(tracked.key, checkpoint)}, batch, counted
        )

    def new_checkpoint(self, tracked: TrackedFile, stat: FileStat) -> FileCheckpoint:
        """Return the checkpoint of an unread file."""
        return FileCheckpoint(
            VERSION,
            tracked.format,
            FileState.READING,
            stat.device,
            stat.inode,
            stat.size,
            stat.modified_ns,
            changed_at=self.now,
        )

    def with_stat(self, checkpoint: FileCheckpoint, stat: FileStat) -> FileCheckpoint:
        """Return a checkpoint with the present metadata of its file."""
        return msgspec.structs.replace(
            checkpoint,
            device=stat.device,
            inode=stat.inode,
            size=stat.size,
            modified_ns=stat.modified_ns,
            # The checksum of an unread file's first bytes depends on the size: it is computed again.
            head=checkpoint.head if checkpoint.offset else 0,
            gone_at=None,
        )

    def fail(self, tracked: TrackedFile, checkpoint: FileCheckpoint, stat: FileStat, failure: Failure) -> Delivery:
        """Record that a file is unusable. Counted once, however often it changes and fails again."""
        again = checkpoint.state is FileState.FAILED and checkpoint.reason == failure.reason
        failed = msgspec.structs.replace(
            self.with_stat(checkpoint, stat),
            state=FileState.FAILED,
            reason=failure.reason,
            explanation=failure.explanation,
            changed_at=self.now,
        )
        tracked.unread = False
        if not again:
            self.counted[DirectoryEvent.FILES_FAILED] += 1
            self.warn(f"{display_name(tracked.key)}: failed, not retried until it changes: {failure}")
        return self.deliver(tracked, failed)

    def decoded(
        self, key: bytes, place: int, decode: Callable[[], _Decoded], trial: Callable[[], object]
    ) -> _Decoded | Failure:
        """Decode part of a file, identified by `place`. Exceptions of the decoder become failures of the file.

        If the process crashed several times at this place, `trial` is run in a child process first.
        """
        guard = self.guard
        if guard is not None:
            if guard.kills(key, place, trial):
                return CRASH
            guard.note(key, place)
        try:
            return decode()
        except RejectedFile as rejected:
            return Failure.of(rejected)
        except OSError:
            raise
        except MemoryError:
            # The process ends here. The note stays, as after a kill: if the file is the cause, it happens again.
            guard = None
            raise
        except Exception:  # noqa: BLE001 - one file must not stop the others
            return DECODER_ERROR
        finally:
            if guard is not None:
                guard.clear(key, place)

    def unreadable(self, tracked: TrackedFile, error: OSError) -> None:
        """Count an unreadable file, and retry it with growing delays."""
        name = error_name(error)
        if self.first_time(("unreadable", tracked.key, name)):
            self.counted[DirectoryEvent.FILES_UNREADABLE] += 1
            self.warn(f"{display_name(tracked.key)}: cannot be read ({name}), will be retried")
        tracked.backoff = tracked.backoff or Backoff(self.options.poll_seconds, _SLOWEST_RETRY_SECONDS)
        tracked.backoff.failed(self.clock)

    def refuse(self, key: bytes, entry: int, refusal: OpenRefusal) -> None:
        """Count a file that is never read."""
        if self.first_time(("refused", key, entry)):
            self.counted[DirectoryEvent.FILES_REFUSED] += 1
            self.warn(f"{display_name(key)}: refused: {refusal}")
