"""Protects the daemon from hostile Parquet and Arrow files: each is first read on trial in another process."""

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
"""The limit on the size of a row, enough for 20,000 classes."""

TRIAL_BYTES = 256 << 20
"""The memory limit of a trial, beside the file itself."""

TRIAL_SECONDS = 60
"""The CPU limit of a trial."""

_WAIT_SECONDS = 3.0 * TRIAL_SECONDS

_PROBLEMS = {
    Reason.BAD_FILE: ("a Parquet or Arrow file, as its name says", "another file"),
    Reason.TOO_LARGE: (
        f"at most {MAX_ROWS:,} rows of {MAX_ROW_BYTES >> 10} KiB, read with {TRIAL_BYTES >> 20} MiB in {TRIAL_SECONDS} s",
        "more",
    ),
}


def widest_rows(where: str, file: BinaryIO, usual_numbers: int, **wanted: Any) -> int:  # noqa: ANN401 - plain JSON
    """Read a whole file on trial; return the size of its widest rows, or raise `RejectedFile`.

    `wanted` is passed to `arrow_trial`; `usual_numbers` is the expected count of numbers per row.
    """
    request = {
        "most_rows": MAX_ROWS,
        "row_bytes": MAX_ROW_BYTES,
        "most_bytes": TRIAL_BYTES,
        "most_seconds": TRIAL_SECONDS,
        "harmless": HARMLESS_BYTES,
        "ratio": SUSPECT_RATIO,
        # The mean over all rows: four times the usual size, plus strings.
        "usual_row_bytes": 4 * 8 * usual_numbers + 1024,
        **wanted,
    }
    answer = _ask(file, request)
    if "problem" in answer:
        reason = Reason(answer["problem"])
        raise RejectionProblem(reason, *_PROBLEMS[reason]).of_file(where)
    return int(answer["widest"])


def _ask(file: BinaryIO, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Send a request to the trial process; return its answer."""
    number, is_copy = _file_number(file)
    try:
        with _LOCK:
            # The process exits when idle, so it may have to be started again.
            answer = _TRIAL.ask(number, request) or _TRIAL.ask(number, request)
        if answer is None:
            # Not caused by the file: the process could not be started, or was killed.
            raise OSError(errno.ECHILD, "no answer from the trial process for Parquet and Arrow files")
        return answer
    finally:
        if is_copy:
            os.close(number)


def _file_number(file: BinaryIO) -> tuple[int, bool]:
    try:
        return file.fileno(), False
    except OSError:
        # Not a file with a descriptor.
        number = os.memfd_create("records")
        file.seek(0)
        with os.fdopen(number, "wb", closefd=False) as copy:
            shutil.copyfileobj(file, copy)
        return number, True


class _TrialProcess:
    """The trial process, started on demand."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, number: int, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the answer; None if there is none, after which the process is gone."""
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
            # As a script, which starts faster than a module. -P: some modules beside it have names of the standard
            # library.
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
        """Kill the process."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with its forks
            self._process.wait()
        self._socket = self._process = None


_LOCK = Lock()
_TRIAL = _TrialProcess()
atexit.register(_TRIAL.end)
