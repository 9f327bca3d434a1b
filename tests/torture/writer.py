"""A writer that appends lines in parts, rotates files, and adds whole files."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.torture.records import WriteLog, gzip_of, line_of, npz_of, seeded

Seen = Callable[[], tuple[int, int]]
"""Returns the number of starts, and of reports since the last one."""


@dataclass
class _Growing:
    """A tailed file."""

    path: Path
    handle: int
    pending: bytes = b""
    """The rest of a line that was written in part."""
    mark: tuple[int, int] | None = None
    """What `Seen` returned when the first complete line was written."""


class Writer:
    """Writes to a directory in its own thread; completes all lines at the end of its context."""

    def __init__(
        self,
        inbox: Path,
        write_log: WriteLog,
        *,
        seed: int,
        seen: Seen = lambda: (0, 0),
        pause_seconds: float = 0.004,
        files: int = 4,
        rotate: bool = True,
    ) -> None:
        self._inbox, self._write_log, self._seen = inbox, write_log, seen
        self._random = seeded(seed)
        self._pause, self._rotates = pause_seconds, rotate
        self._serial = 0
        self._growing = [self._open(f"stream{which}.jsonl") for which in range(files)]
        self._labels = inbox.parent / "labels"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None
        self.rotated = 0

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and complete the last line."""
        self._stop.set()
        self._thread.join()
        for file in self._growing:
            os.write(file.handle, file.pending)
            os.close(file.handle)
        if self.failure is not None and error is None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
                time.sleep(self._random.random() * 2 * self._pause)
        except BaseException as failure:  # noqa: BLE001 - raised again in __exit__
            self.failure = failure

    def step(self) -> None:
        """Perform one random action."""
        action = self._random.random()
        if action < 0.1:
            self._label()
        elif action < 0.93:
            self._append(self._random.choice(self._growing))
        elif action < 0.975 and self._rotates:
            self._rotate(self._random.randrange(len(self._growing)))
        elif action < 0.98:
            self._drop(".jsonl.gz", gzip_of(self._lines(self._random.randint(1, 40))))
        elif action < 0.985:
            self._drop(".npz", npz_of(self._write_log.next_numbers(self._random.randint(1, 40))))
        else:
            # A short file that is never written to again.
            path = self._inbox / self._name(".jsonl")
            path.write_bytes(b"".join(self._lines(self._random.randint(1, 5))))

    def _lines(self, count: int) -> list[bytes]:
        """Return new records, sometimes with an invalid or repeated line."""
        lines = [line_of(number) for number in self._write_log.next_numbers(count)]
        if self._random.random() < 0.05:
            lines.append(self._write_log.bad_line(self._random.randrange(1000)))
        if self._random.random() < 0.1:
            lines.append(self._write_log.repeated_line(self._random.randrange(1 << 30)))
        self._random.shuffle(lines)
        return lines

    def _append(self, file: _Growing) -> None:
        data = file.pending + b"".join(self._lines(self._random.randint(1, 25)))
        # The last line often stays incomplete until the next append to this file.
        keep = self._random.randint(1, 40) if self._random.random() < 0.33 else 0
        end = max(len(file.pending), len(data) - keep)
        cuts = sorted(self._random.randint(0, end) for _ in range(self._random.choice([0, 0, 1, 3, 9])))
        for start, stop in zip([0, *cuts], [*cuts, end], strict=True):
            os.write(file.handle, data[start:stop])
        file.pending = data[end:]
        if file.mark is None and b"\n" in data[:end]:
            file.mark = self._seen()

    def _label(self) -> None:
        """Append labels to a file, or add a file of them."""
        timed, seed = self._random.random() < 0.7, self._random.randrange(1 << 30)
        lines = self._write_log.next_labels(self._random.randint(1, 15), seed, timed=timed)
        if self._random.random() < 0.05:
            lines.append(self._write_log.bad_label(seed))
        if timed and self._random.random() < 0.1:
            temporary, name = self._labels / ".labels.tmp", self._name(".jsonl.gz")
            temporary.write_bytes(gzip_of(lines))
            temporary.rename(self._labels / name)
            return
        data = b"".join(lines)
        cut = self._random.randint(0, len(data))
        with (self._labels / ("timed.jsonl" if timed else "untimed.jsonl")).open("ab", buffering=0) as file:
            file.write(data[:cut])
            file.write(data[cut:])

    def _rotate(self, which: int) -> None:
        """Rename `f` to `f.1` and start a new `f`, once the old one is known.

        The name `f.1` has no known format: it is read only as the former `f`. A file is known after two reports of one
        process since its first line.
        """
        file = self._growing[which]
        process, reports = self._seen()
        if file.mark is None or file.mark[0] != process:
            file.mark = None if file.mark is None else (process, reports)
            return
        if reports < file.mark[1] + 2:
            return
        name = file.path.name
        older = sorted(self._inbox.glob(f"{name}.*"), key=lambda path: int(path.suffix[1:]), reverse=True)
        for path in older:
            path.rename(self._inbox / f"{name}.{int(path.suffix[1:]) + 1}")
        file.path.rename(self._inbox / f"{name}.1")
        # The writer of a log notices the rename later.
        os.write(file.handle, file.pending + b"".join(self._lines(2)))
        os.close(file.handle)
        self._growing[which] = self._open(name)
        self.rotated += 1

    def _drop(self, suffix: str, content: bytes) -> None:
        """Write a whole file: renamed into place, or copied slowly."""
        name = self._name(suffix)
        if self._random.random() < 0.5:
            temporary = self._inbox / f".{name}.tmp"
            temporary.write_bytes(content)
            temporary.rename(self._inbox / name)
            return
        half = len(content) // 2
        with (self._inbox / name).open("wb", buffering=0) as file:
            file.write(content[:half])
            time.sleep(self._random.choice([0.0, 0.01]))
            file.write(content[half:])

    def _name(self, suffix: str) -> str:
        self._serial += 1
        return f"part{self._serial:05}{suffix}"

    def _open(self, name: str) -> _Growing:
        path = self._inbox / name
        return _Growing(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o644))
