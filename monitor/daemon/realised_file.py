"""Reads realised accuracies from a JSON Lines file that others append to or replace.

Used by pages only, never by estimates or alerts. `docs/realised.md` describes the format.
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
"""Only the end of a larger file is read."""
MOST_KEPT = 4_000
"""The latest ones of a model: more than a chart can show."""
LONGEST_SEGMENT = 512
_LATEST = 253_402_300_799.0
"""The end of the year 9999, the last date."""
_MOST_RECORDS = 10**15
_MOST_FILES = 100
_PATIENCE_SECONDS = 1.0
"""How long one reader waits for another: opening a file on a dead network share may hang."""


class _Line(msgspec.Struct):
    """A line; other keys are ignored."""

    at: float
    segment: str
    records: int
    right: int


@dataclass(frozen=True, slots=True)
class RealisedContent:
    """The content of a file."""

    accuracies: tuple[Realised, ...] = ()
    """Oldest first."""
    remark: str | None = None
    """A problem of the file; quotes nothing from it."""


class RealisedFile:
    """One file, read again only when it has changed. Thread-safe."""

    def __init__(self, path: Path, lock: "threading.Lock | None" = None) -> None:
        self._path = path
        self._lock = lock or threading.Lock()
        self._stat: tuple[int, ...] | None = None
        self._content: RealisedContent | None = None

    def read(self) -> RealisedContent:
        """Return the current content; empty while the file does not exist."""
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            return self._content or RealisedContent(remark="realised: expected a file, found one that is slow to open")
        try:
            return self._read()
        finally:
            self._lock.release()

    def _read(self) -> RealisedContent:
        try:
            self._content = self._load()
        except FileNotFoundError:
            self._stat, self._content = None, RealisedContent()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "a path that cannot be read"
            self._stat, self._content = None, RealisedContent(remark=f"realised: expected a file, found {why}")
        return self._content

    def _load(self) -> RealisedContent:
        # Opened every time, so that revoked permissions are noticed.
        with open_file(self._path) as file:
            found = os.fstat(file.fileno())
            stat = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if stat == self._stat and self._content is not None:
                return self._content
            start = max(0, found.st_size - MOST_BYTES)
            file.seek(start)
            raw = file.read(MOST_BYTES)
        # The stat was taken before reading, so a write in between causes another read.
        content = _parse(raw, is_whole=start == 0)
        self._stat = stat
        return content


class RealisedFiles:
    """The files of all models, by path."""

    def __init__(self) -> None:
        self._files: dict[Path, RealisedFile] = {}
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        """One for all files, so that a dead network share blocks one thread only."""

    def read(self, path: Path | None) -> RealisedContent:
        """Return the current content of a file; empty without a path."""
        if path is None:
            return RealisedContent()
        with self._lock:
            if path not in self._files and len(self._files) >= _MOST_FILES:
                # Files of earlier configurations.
                self._files.clear()
            file = self._files.setdefault(path, RealisedFile(path, self._reading))
        return file.read()


def _parse(raw: bytes, *, is_whole: bool) -> RealisedContent:
    lines = raw.split(b"\n")
    if not is_whole:
        # The first line is incomplete.
        del lines[:1]
    # A later line with the same time and segment replaces the earlier one.
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
            # A last line without newline may still be being written.
            bad += 1
    latest = sorted(found.values(), key=lambda one: one.at)[-MOST_KEPT:]
    remark = None
    if bad:
        remark = f"realised: {bad:,} invalid {'line' if bad == 1 else 'lines'}"
    return RealisedContent(tuple(latest), remark)


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
