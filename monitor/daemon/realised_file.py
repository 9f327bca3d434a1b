"""Accuracies that others found out later, read from a file of JSON lines that they append to or replace.

Only pages ask for them: nothing that takes records in, estimates or alerts reads this file, so whatever stands in its
place can at worst leave a page without them. `docs/realised.md` describes the format.
"""

import math
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec

from monitor.core.report import Realised
from monitor.settings.setting_files import open_file

MOST_BYTES = 1 << 20
"""Of the end of a file; what stands before is of the past."""
MOST_KEPT = 4_000
"""Of one model, the latest ones: more than anybody can see on a chart."""
LONGEST_SEGMENT = 512
_LATEST = 253_402_300_799.0
"""The end of the year 9999: what comes after cannot be written as a date."""
_MOST_RECORDS = 10**15
_MOST_FILES = 100
_PATIENCE_SECONDS = 1.0
"""How long one reader waits for another. A share that went away may hold up whoever opens a file on it for ever."""


class _Line(msgspec.Struct):
    """A line, as far as its form goes; keys beside these are passed over."""

    at: float
    segment: str
    records: int
    right: int


@dataclass(frozen=True, slots=True)
class RealisedProblem:
    """What a file says."""

    accuracies: tuple[Realised, ...] = ()
    """Oldest first."""
    remark: str | None = None
    """What is wrong with the file, in a sentence that repeats nothing of it; None when all is well."""


class RealisedFile:
    """One file, read again only when it has changed. May be asked on several threads at once."""

    def __init__(self, path: Path, lock: "threading.Lock | None" = None) -> None:
        self._path = path
        self._lock = lock or threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._told: RealisedProblem | None = None

    def read(self) -> RealisedProblem:
        """Return what the file says now. One that is not there says nothing, and may come later."""
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            return self._told or RealisedProblem(remark="realised: expected a file, found one that takes long to open")
        try:
            return self._read()
        finally:
            self._lock.release()

    def _read(self) -> RealisedProblem:
        try:
            self._told = self._look()
        except FileNotFoundError:
            self._seen, self._told = None, RealisedProblem()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "a path that cannot be read"
            self._seen, self._told = None, RealisedProblem(remark=f"realised: expected a file, found {why}")
        return self._told

    def _look(self) -> RealisedProblem:
        # Opened at every look, so that a right to read that was taken away is noticed, and so is what is no file.
        with open_file(self._path) as file:
            found = os.fstat(file.fileno())
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if seen == self._seen and self._told is not None:
                return self._told
            start = max(0, found.st_size - MOST_BYTES)
            file.seek(start)
            raw = file.read(MOST_BYTES)
        # Before it is read it was of this size: what is written meanwhile makes another one, and is read at the next look.
        told = _told(raw, is_whole=start == 0)
        self._seen = seen
        return told


class RealisedFiles:
    """The files of all models, by their paths."""

    def __init__(self) -> None:
        self._files: dict[Path, RealisedFile] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        """One for all: files that lie on the same share must not take a thread each."""

    def read(self, path: Path | None) -> RealisedProblem:
        """Return what a file says now; nothing without a path."""
        if path is None:
            return RealisedProblem()
        with self._lock:
            if path not in self._files and len(self._files) >= _MOST_FILES:
                # Left over from configurations of before: those that are still asked for are read again.
                self._files.clear()
            file = self._files.setdefault(path, RealisedFile(path, self._reading))
        return file.read()


def _told(raw: bytes, *, is_whole: bool) -> RealisedProblem:
    lines = raw.split(b"\n")
    if not is_whole:
        # It begins somewhere in the middle.
        del lines[:1]
    # By time and segment: who corrects a line writes it again.
    found: dict[tuple[float, str], Realised] = {}
    bad = 0
    for place, line in enumerate(lines):
        if not line.strip():
            continue
        one = _realised(line)
        if one is not None:
            found.pop((one.at, one.segment), None)
            found[one.at, one.segment] = one
        elif place < len(lines) - 1:
            # What no newline ends may still be being written.
            bad += 1
    latest = sorted(found.values(), key=lambda one: one.at)[-MOST_KEPT:]
    remark = None
    if bad:
        remark = f"realised: {bad:,} {'line' if bad == 1 else 'lines'} could not be understood"
    return RealisedProblem(tuple(latest), remark)


def _realised(line: bytes) -> Realised | None:
    try:
        one = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if not math.isfinite(one.at) or not 0.0 <= one.at <= _LATEST:
        return None
    if not 1 <= one.records <= _MOST_RECORDS or not 0 <= one.right <= one.records:
        return None
    if not 1 <= len(one.segment) <= LONGEST_SEGMENT or not one.segment.isprintable():
        return None
    return Realised(one.at, one.segment, one.records, one.right)


_DECODER = msgspec.json.Decoder(_Line)
