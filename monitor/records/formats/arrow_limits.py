"""Keeps Parquet and Arrow files from taking the monitor's memory, or its life: each is first read on trial elsewhere."""

import atexit
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from json import loads
from threading import Lock
from typing import Any, BinaryIO

from monitor.records.formats import arrow_trial
from monitor.records.formats.text import HARMLESS_BYTES, SUSPECT_RATIO
from monitor.records.rejections import Reason, RejectionProblem

MAX_ROWS = 10_000_000

MAX_ROW_BYTES = 256 << 10
"""What a row may take: more than 20,000 classes do. A few bytes of a Parquet file may stand for rows of any length."""

TRIAL_BYTES = 256 << 20
"""What reading a file may take, beside the file itself."""

TRIAL_SECONDS = 60
"""Seconds of a processor that reading a file may take."""

_WAIT_SECONDS = 3.0 * TRIAL_SECONDS

_PROBLEMS = {
    Reason.BAD_FILE: ("a Parquet or Arrow file, as its name says", "something else"),
    Reason.TOO_LARGE: (
        f"at most {MAX_ROWS:,} rows of {MAX_ROW_BYTES >> 10} KiB, read with {TRIAL_BYTES >> 20} MiB in {TRIAL_SECONDS} s",
        "more",
    ),
}


def widest_rows(where: str, file: BinaryIO, usual_numbers: int, **wanted: Any) -> int:  # noqa: ANN401 - plain JSON
    """Read a whole file on trial, and return how many bytes its widest rows take each; or raise why it is refused.

    `wanted` says what to read: see `arrow_trial`. `usual_numbers` is how many numbers a row should have.
    """
    request = {
        "most_rows": MAX_ROWS,
        "row_bytes": MAX_ROW_BYTES,
        "most_bytes": TRIAL_BYTES,
        "most_seconds": TRIAL_SECONDS,
        "harmless": HARMLESS_BYTES,
        "ratio": SUSPECT_RATIO,
        # Four times what it should be, with room for texts; this is for all rows together.
        "usual_row_bytes": 4 * 8 * usual_numbers + 1024,
        **wanted,
    }
    answer = _asked(file, request)
    if "problem" in answer:
        reason = Reason(answer["problem"])
        raise RejectionProblem(reason, *_PROBLEMS[reason]).of_file(where)
    return int(answer["widest"])


def _asked(file: BinaryIO, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send a request to the process beside us, and return its answer."""
    number, is_copy = _file_number(file)
    try:
        with _LOCK:
            # It ends by itself when it has nothing to do, so it may have to be started anew.
            answer = _BESIDE.ask(number, request) or _BESIDE.ask(number, request)
        if answer is None:
            # Nothing that a file can do: the process could not be started, or somebody ended it.
            raise OSError(errno.ECHILD, "no answer from the process that reads Parquet and Arrow files on trial")
        return answer
    finally:
        if is_copy:
            os.close(number)


def _file_number(file: BinaryIO) -> tuple[int, bool]:
    try:
        return file.fileno(), False
    except OSError:
        # Not a file of the system's.
        number = os.memfd_create("records")
        file.seek(0)
        with os.fdopen(number, "wb", closefd=False) as copy:
            shutil.copyfileobj(file, copy)
        return number, True


class _Beside:
    """The process beside us, when there is one."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, number: int, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the answer; None when there is none, and then the process has been ended."""
        try:
            if self._socket is None:
                self._socket = self._started()
            text = arrow_trial.message(request)
            socket.send_fds(self._socket, [text[:4]], [number])
            self._socket.sendall(text[4:])
            (size,) = struct.unpack("<I", self._received(4))
            answer: Mapping[str, Any] = loads(self._received(size))
        except TimeoutError:
            self.end()
            return {"problem": Reason.TOO_LARGE}
        except (ConnectionError, EOFError):
            self.end()
            return None
        return answer

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size and self._socket is not None:
            if not (more := self._socket.recv(size - len(data))):
                raise EOFError
            data += more
        return data

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(_WAIT_SECONDS)
        with theirs:
            # Not as a module: what it needs of the monitor stands in that one file. Not its folder either, where
            # modules are named like the system's.
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", arrow_trial.__file__],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"},
            )
        return ours

    def end(self) -> None:
        """End the process."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a group of its own, with the file that it reads
            self._process.wait()
        self._socket = self._process = None


_LOCK = Lock()
_BESIDE = _Beside()
atexit.register(_BESIDE.end)
