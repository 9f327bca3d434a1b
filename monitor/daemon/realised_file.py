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


class RealisedFiles:
    """The files of all models. A file is parsed again only when it has changed. Thread-safe."""

    def __init__(self) -> None:
        self._parsed: dict[Path, tuple[tuple[int, ...], RealisedContent]] = {}
        self._lock = threading.Lock()
        """One for all files, so that a dead network share blocks one thread only."""

    def read(self, path: Path | None) -> RealisedContent:
        """Return the current content of a file; empty without a path, and while the file does not exist."""
        if path is None:
            return RealisedContent()
        if not self._lock.acquire(timeout=_PATIENCE_SECONDS):
            slow = RealisedContent(remark="realised: expected a file, found one that is slow to open")
            return self._parsed.get(path, ((), slow))[1]
        try:
            return self._load(path)
        except (OSError, ValueError) as error:
            self._parsed.pop(path, None)
            if isinstance(error, FileNotFoundError):
                return RealisedContent()
            why = getattr(error, "strerror", None) or "a path that cannot be read"
            return RealisedContent(remark=f"realised: expected a file, found {why}")
        finally:
            self._lock.release()

    def _load(self, path: Path) -> RealisedContent:
        # Opened every time, so that revoked permissions are noticed.
        with open_file(path) as file:
            found = os.fstat(file.fileno())
            stat = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if path in self._parsed and self._parsed[path][0] == stat:
                return self._parsed[path][1]
            start = max(0, found.st_size - MOST_BYTES)
            file.seek(start)
            raw = file.read(MOST_BYTES)
        if len(self._parsed) >= _MOST_FILES:
            # Files of earlier configurations.
            self._parsed.clear()
        # The stat was taken before reading, so a write in between causes another read.
        self._parsed[path] = stat, _parse(raw, is_whole=start == 0)
        return self._parsed[path][1]


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
