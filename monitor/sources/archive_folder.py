"""The folders that finished files move to, opened so that nobody can lead us elsewhere, and how files leave theirs."""

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from monitor.sources.identity import Look
from monitor.sources.ledger import Row
from monitor.sources.opening import Folder
from monitor.sources.options import DirectoryOptions
from monitor.sources.scan import is_ignored
from monitor.sources.system import System

_SUFFIXES = 10_000
_ASIDE = ".cpcmon-"
_LONGEST_NAME_BYTES = 255
_RANDOM_BYTES = 4


class Replaced(Exception):
    """Not the file that was read, or no longer as it was. It is back under its name."""


@contextmanager
def aside(system: System, directory: int, base: str, row: Row) -> Iterator[str]:
    """Take a file out of everyone's way while it is moved or deleted, and put it back if that fails.

    Between a look at a name and what is done to it, another file may be renamed over it, and nobody has read that one.
    So the file first gets a name that only we use, and is looked at once more.
    """
    start = f"{_ASIDE}{secrets.token_hex(_RANDOM_BYTES)}-"
    # Of a name that is too long with that, the end matters: it says what format the file has.
    private = start + os.fsdecode(os.fsencode(base)[len(start) - _LONGEST_NAME_BYTES :])
    system.rename(base, directory, private, directory)
    try:
        _check(directory, private, row)
        yield private
    except BaseException:
        _put_back(directory, private, base)
        raise


def _check(directory: int, name: str, row: Row) -> None:
    if not Look.of(os.stat(name, dir_fd=directory, follow_symlinks=False)).same(row):
        raise Replaced


def put_all_back(folder: Folder, options: DirectoryOptions) -> None:
    """Give files their names again that were aside when we were killed."""
    waiting = [""]
    while waiting:
        subfolder = waiting.pop()
        prefix = f"{subfolder}/" if subfolder else ""
        with suppress(OSError):
            for entry in list(folder.entries(subfolder)):
                if entry.name.startswith(_ASIDE):
                    directory, private = folder.parent(prefix + entry.name)
                    base = private[len(_ASIDE) :].partition("-")[2]
                    if base and entry.is_file(follow_symlinks=False):
                        _put_back(directory, private, base)
                elif options.recursive and not is_ignored(entry.name) and entry.is_dir(follow_symlinks=False):
                    waiting.append(prefix + entry.name)


def _put_back(directory: int, private: str, base: str) -> None:
    """Give a file its name again, or a similar one if that has been taken: it never takes the place of another."""
    stem, dot, rest = base.partition(".")
    for number in range(_SUFFIXES):
        name = f"{stem}-{number}{dot}{rest}" if number else base
        try:
            os.link(private, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            if not _are_one(directory, private, name):
                continue
        except OSError:
            # No hard links here, or not to the files of others: there is nothing better than to look first.
            if free_name(name, directory) != name:
                continue
            os.rename(private, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        os.unlink(private, dir_fd=directory)
        return


def _are_one(directory: int, name: str, other: str) -> bool:
    """Tell whether two names are of the same file: we were killed while one of them was given back."""
    one, two = (os.stat(each, dir_fd=directory, follow_symlinks=False) for each in (name, other))
    return os.path.samestat(one, two)


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
    said = json.dumps({"reason": row.reason, "explanation": row.explanation, "size": row.size, "at": now})
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(f"{target}.reason.json", flags, 0o600, dir_fd=folder)
    try:
        os.write(file, said.encode())
    finally:
        os.close(file)
