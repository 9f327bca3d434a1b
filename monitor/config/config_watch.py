"""Whether the configuration on disk is another one than that which was read: for those who cannot send a signal.

Kubernetes puts a changed ConfigMap in place by letting a symbolic link, `..data`, point elsewhere. So files are looked
at through whatever links lead to them, and by what they hold, whoever wrote them and however.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from monitor.settings.setting_files import open_file

EVERY_SECONDS = 2.0
"""Often enough for whoever waits for a change, and next to nothing to do."""
_MOST_BYTES = 2 << 20
"""More than a configuration may have; what is longer is refused when it is read."""

Seen = tuple[object, ...]


class ConfigWatch:
    """Looks at a configuration and at the references it names. Used by one thread; `now` is a steady clock's."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._references: tuple[Path, ...] = ()
        self._taken = self._before = self._look()
        self._looked = 0.0

    def taken(self) -> None:
        """Note, right before the configuration is read, that it is read as it stands now."""
        self._taken = self._before = self._look()

    def names(self, references: Iterable[Path | None]) -> None:
        """Note, right before they are opened, which references were named: one that is replaced is a change too."""
        self._references = tuple(path for path in references if path is not None)
        self._taken = self._before = (self._taken[0], *self._looks_of_references())

    def changed(self, now: float) -> bool:
        """Tell, once for each change, that something else stands there than was taken, and stands still."""
        if now - self._looked < EVERY_SECONDS:
            return False
        self._looked = now
        before, self._before = self._before, self._look()
        # Twice the same: what an editor has written half is not taken for a configuration with fewer models.
        if self._before == self._taken or self._before != before:
            return False
        self._taken = self._before
        return True

    def _look(self) -> Seen:
        return (_content(self._file), *self._looks_of_references())

    def _looks_of_references(self) -> Iterable[object]:
        return (_identity(path) for path in self._references)


def _content(path: Path) -> object:
    try:
        with open_file(path) as file:
            return hashlib.sha256(file.read(_MOST_BYTES)).digest()
    except OSError as error:
        return error.errno


def _identity(path: Path) -> object:
    """Return what changes when a file is replaced or written to; references are too long to be read every time."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
