"""Detects input that crashes the process, and skips it.

A crafted file can crash a decoder written in C, and a restarted daemon would read it again, for ever. So the block
being decoded is written down first. A note that is still there at the next start counts as one crash on that block.
Crashes have other causes too, so after three the block is tried in a child process: it is skipped only if it kills that
too.
"""

import os
import select
import signal
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from zlib import crc32

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
