"""Keeps a folder of ours, such as the one for state, apart from what a watched directory reads."""

import os
from pathlib import Path

from monitor.sources.options import DirectoryOptions
from monitor.sources.scan import is_ignored


def identity_of(folder: Path) -> tuple[int, int]:
    """Return the device and inode of a folder, for `DirectoryOptions.never`."""
    status = folder.stat()
    return status.st_dev, status.st_ino


def would_be_read(folder: Path, options: DirectoryOptions) -> bool:
    """Tell whether files in a folder, which need not exist yet, would be taken for files of the watched directory."""
    watched = os.path.realpath(options.path)
    inner = Path(os.path.realpath(folder))
    names: list[str] = []
    for place in (inner, *inner.parents):
        if _is_same(place, watched):
            # In folders whose name says so nothing is read.
            return not names or (options.recursive and not any(is_ignored(name) for name in names))
        names.append(place.name)
    return False


def _is_same(place: Path, watched: str) -> bool:
    if os.fspath(place) == watched:
        return True
    try:
        # The same folder may be mounted in two places.
        return place.samefile(watched)
    except OSError:
        return False
