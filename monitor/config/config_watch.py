"""Detects changes of the configuration on disk, for `--config.watch`.

Kubernetes replaces a ConfigMap by switching the symbolic link `..data`. So links are followed and contents compared.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from monitor.settings.setting_files import open_file

EVERY_SECONDS = 2.0
"""The interval between checks."""
_MOST_BYTES = 2 << 20
"""More than the limit on a configuration file."""

Stamp = tuple[object, ...]


class ConfigWatch:
    """Watches a configuration file and its references. For one thread; `now` is a monotonic time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._references: tuple[Path, ...] = ()
        self._loaded = self._previous = self._read()
        self._checked = 0.0

    def mark_read(self) -> None:
        """Call right before the configuration is read."""
        self._loaded = self._previous = self._read()

    def watch_references(self, references: Iterable[Path | None]) -> None:
        """Call right before the references are opened; watches them too."""
        self._references = tuple(path for path in references if path is not None)
        self._loaded = self._previous = (self._loaded[0], *self._reference_identities())

    def changed(self, now: float) -> bool:
        """Return True once per change, after two equal checks in a row."""
        if now - self._checked < EVERY_SECONDS:
            return False
        self._checked = now
        before, self._previous = self._previous, self._read()
        # Twice the same: a file half-written by an editor is not read.
        if self._previous == self._loaded or self._previous != before:
            return False
        self._loaded = self._previous
        return True

    def _read(self) -> Stamp:
        return (_content(self._file), *self._reference_identities())

    def _reference_identities(self) -> Iterable[object]:
        return (_identity(path) for path in self._references)


def _content(path: Path) -> object:
    try:
        with open_file(path) as file:
            return hashlib.sha256(file.read(_MOST_BYTES)).digest()
    except OSError as error:
        return error.errno


def _identity(path: Path) -> object:
    """Return the identity of a file, which changes when it is replaced or written. References are too large to hash."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
