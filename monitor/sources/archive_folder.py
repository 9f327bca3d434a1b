"""The folders that finished files move to, opened so that nobody can lead us elsewhere."""

import errno
import json
import os
from contextlib import suppress

from monitor.sources.ledger import Row
from monitor.sources.opening import Folder
from monitor.sources.options import DirectoryOptions

_SUFFIXES = 10_000


def open_place(folder: Folder, options: DirectoryOptions, parts: list[str]) -> int:
    """Open a folder of the archive, made if need be.

    Whoever may write to the watched directory could put a link in the archive's place, and have us move files through
    it. So within the directory no link is followed; the path to an archive elsewhere is the operator's.
    """
    if options.archive is None:
        current = os.dup(folder.file)
    else:
        try:
            parts = [*options.archive.absolute().relative_to(options.path.absolute()).parts, *parts]
            current = os.dup(folder.file)
        except ValueError:
            options.archive.mkdir(mode=0o700, parents=True, exist_ok=True)
            current = os.open(options.archive, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=current)
            following = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = following
    except BaseException:
        os.close(current)
        raise
    return current


def free_name(base: str, folder: int) -> str:
    """Return the name, or the name with the first number, that no file in the folder has."""
    for number in range(_SUFFIXES):
        name = f"{base}.{number}" if number else base
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return name
    raise OSError(errno.EEXIST, "too many files of the same name")


def write_reason(target: str, folder: int, row: Row, now: float) -> None:
    """Write beside a failed file why it failed."""
    said = json.dumps({"reason": row.reason, "size": row.size, "at": now})
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(f"{target}.reason.json", flags, 0o600, dir_fd=folder)
    try:
        os.write(file, said.encode())
    finally:
        os.close(file)
