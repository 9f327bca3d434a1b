"""Lists and opens the files of a directory: follows no link by accident and never blocks."""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from monitor.records.record_batch import Format, format_of
from monitor.sources.directory.directory_options import DirectoryOptions

_LATEST_NS = 1 << 62


class System:
    """The real system. A test overrides one method to inject an error."""

    def open(self, path: str, flags: int, directory: int | None = None) -> int:
        """Open a file relative to an open directory."""
        return os.open(path, flags, dir_fd=directory)

    def stat(self, name: str, directory: int) -> os.stat_result:
        """Stat a name in an open directory, without following links."""
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def read(self, file: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at an offset."""
        return os.pread(file, length, offset)

    def entries(self, directory: int) -> Iterator["os.DirEntry[str]"]:
        """List an open directory."""
        with os.scandir(directory) as listed:
            yield from listed

    def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
        """Rename a file between open directories."""
        os.rename(name, target, src_dir_fd=directory, dst_dir_fd=target_directory)

    def write(self, file: int, data: bytes) -> int:
        """Write some bytes; return how many."""
        return os.write(file, data)


def read_fully(system: System, file: int, length: int, offset: int) -> bytes:
    """Read `length` bytes at an offset, fewer only at the end of the file."""
    data = system.read(file, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    done = len(data)
    while done < length and (data := system.read(file, length - done, offset + done)):
        parts.append(data)
        done += len(data)
    return b"".join(parts)


class FileMetadata(Protocol):
    """The metadata by which a change is noticed; a checkpoint has it too."""

    @property
    def inode(self) -> int:
        """The inode number."""

    @property
    def size(self) -> int:
        """The size in bytes."""

    @property
    def modified_ns(self) -> int:
        """The modification time."""


@dataclass(frozen=True, slots=True)
class FileStat:
    """File metadata."""

    device: int
    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStat":
        """Return the relevant fields of a stat result. Absurd times are clipped, so that they can be stored."""
        modified = max(-_LATEST_NS, min(_LATEST_NS, status.st_mtime_ns))
        return cls(status.st_dev, status.st_ino, status.st_size, modified)

    def same(self, other: FileMetadata) -> bool:
        """Return whether nothing changed. Device numbers may change on a remount and are ignored."""
        return self.inode == other.inode and self.size == other.size and self.modified_ns == other.modified_ns


# NONBLOCK: opening a FIFO without a writer would block.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class OpenRefusal(StrEnum):
    """Why a file is never read."""

    LINK = "a symbolic link"
    LINK_OUTSIDE = "a symbolic link that leads outside the roots"
    NOT_A_FILE = "no regular file"
    FOREIGN_LINK = "a hard link to a file of another owner"


class OpenRefused(Exception):
    """A file that is never read. Carries no name."""

    def __init__(self, refusal: OpenRefusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Forbidden(PermissionError):
    """A folder that is never read."""


def is_missing(error: OSError) -> bool:
    """Return whether an error means that the file does not exist."""
    return error.errno in {errno.ENOENT, errno.ENOTDIR}


def error_name(error: OSError) -> str:
    """Return the symbolic name of an error. Its text might contain a path."""
    return errno.errorcode.get(error.errno or 0, "an unknown error")


class SafeDirectory:
    """The watched directory, open during one poll only, so that it can be unmounted in between."""

    def __init__(self, options: DirectoryOptions, system: System) -> None:
        self.system = system
        self._options = options
        self.file = system.open(os.fspath(options.path), _FOLDER)
        try:
            status = _permitted(self.file, options)
        except BaseException:
            os.close(self.file)
            raise
        self.identity = (status.st_dev, status.st_ino)
        self._owner = status.st_uid
        # Files are read in name order, so one open subfolder suffices.
        self._inner: tuple[str, int] | None = None

    def close(self) -> None:
        """Close the directory."""
        self._close_inner()
        os.close(self.file)

    def entries(self, subfolder: str = "") -> Iterator["os.DirEntry[str]"]:
        """List the directory, or a folder in it."""
        return self.system.entries(self.parent(f"{subfolder}/")[0] if subfolder else self.file)

    def stat(self, name: str) -> FileStat:
        """Return the metadata of a file; raises OSError, or OpenRefused if it is never read."""
        directory, base = self.parent(name)
        status = self.system.stat(base, directory)
        if stat.S_ISLNK(status.st_mode) and self._options.follow_symlinks:
            with self.opened(name) as (_, file_stat):
                return file_stat
        self._check(status)
        return FileStat.of(status)

    def is_link(self, name: str) -> bool:
        """Return whether a name is a symbolic link."""
        directory, base = self.parent(name)
        return stat.S_ISLNK(self.system.stat(base, directory).st_mode)

    @contextmanager
    def opened(self, name: str) -> Iterator[tuple[int, FileStat]]:
        """Open a file for reading."""
        file, file_stat = self.open(name)
        try:
            yield file, file_stat
        finally:
            os.close(file)

    def open(self, name: str) -> tuple[int, FileStat]:
        """Open a file for reading; the caller closes it."""
        directory, base = self.parent(name)
        try:
            file = self.system.open(base, _FILE, directory)
        except OSError as error:
            if error.errno == errno.ELOOP:
                file = self._open_link(name)
            elif error.errno in {errno.ENXIO, errno.ENODEV}:
                raise OpenRefused(OpenRefusal.NOT_A_FILE) from None  # a socket, or a device without driver
            else:
                raise
        try:
            status = os.fstat(file)
            self._check(status)
        except BaseException:
            os.close(file)
            raise
        return file, FileStat.of(status)

    def parent(self, name: str) -> tuple[int, str]:
        """Return the open folder of a file, and its name there."""
        folder, slash, base = name.rpartition("/")
        if not slash:
            return self.file, name
        if self._inner is None or self._inner[0] != folder:
            self._close_inner()
            self._inner = folder, _walk(self.system, self.file, folder.split("/"), self._options)
        return self._inner[1], base

    def _close_inner(self) -> None:
        if self._inner is not None:
            os.close(self._inner[1])
            self._inner = None

    def _check(self, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            raise OpenRefused(OpenRefusal.LINK)
        if not stat.S_ISREG(status.st_mode):
            raise OpenRefused(OpenRefusal.NOT_A_FILE)
        # Someone with write access to the directory could link to a file that only we may read.
        if status.st_nlink > 1 and status.st_uid != self._owner:
            raise OpenRefused(OpenRefusal.FOREIGN_LINK)

    def _open_link(self, name: str) -> int:
        if not self._options.follow_symlinks:
            raise OpenRefused(OpenRefusal.LINK)
        real = Path(os.path.realpath(self._options.path / name))
        for root in self._options.symlink_roots:
            real_root = Path(os.path.realpath(root))
            with suppress(ValueError):
                parts = real.relative_to(real_root).parts
                if not parts:
                    break
                # The real path has no links. If one appears meanwhile, it is not followed.
                folder = self.system.open(os.fspath(real_root), _FOLDER)
                try:
                    _permitted(folder, self._options)
                    inner = _walk(self.system, folder, list(parts[:-1]), self._options)
                    try:
                        return self.system.open(parts[-1], _FILE, inner)
                    finally:
                        os.close(inner)
                except Forbidden:
                    raise OpenRefused(OpenRefusal.LINK_OUTSIDE) from None
                except OSError as error:
                    if error.errno == errno.ELOOP:
                        raise OpenRefused(OpenRefusal.LINK) from None
                    raise
                finally:
                    os.close(folder)
        raise OpenRefused(OpenRefusal.LINK_OUTSIDE)


def _permitted(folder: int, options: DirectoryOptions) -> os.stat_result:
    """Return the stat of an open folder, unless it is never read."""
    status = os.fstat(folder)
    if (status.st_dev, status.st_ino) in options.never:
        raise Forbidden(errno.EPERM, os.strerror(errno.EPERM))
    return status


def _walk(system: System, folder: int, parts: list[str], options: DirectoryOptions) -> int:
    """Open a nested folder one step at a time, so that no step can be a link."""
    current = os.dup(folder)
    try:
        for part in parts:
            following = system.open(part, _FOLDER | os.O_NOFOLLOW, current)
            os.close(current)
            current = following
            _permitted(current, options)
    except BaseException:
        os.close(current)
        raise
    return current


_DEEPEST = 8
MARKER = ".ok"
_UNFINISHED_SUFFIXES = (".tmp", ".part", ".partial", ".crdownload", ".filepart", "~")


def is_ignored(base: str) -> bool:
    """Return whether a name marks its file as not meant to be read, or not yet."""
    return base.startswith((".", "_")) or base.endswith(_UNFINISHED_SUFFIXES)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A name in the directory."""

    name: str
    entry: int
    """The inode number from the listing."""


@dataclass(slots=True)
class Listing:
    """The result of listing the directory."""

    entries: int = 0
    fresh: list[ListedFile] = field(default_factory=list)
    """Unknown names, and known names with another inode."""
    active: list[ListedFile] = field(default_factory=list)
    """Files that are examined in each poll."""
    due: list[ListedFile] = field(default_factory=list)
    """Idle files that are due for a check."""
    missing: list[bytes] = field(default_factory=list)
    """Keys of idle files that were not listed."""
    renamed: set[str] = field(default_factory=set)
    """Fresh names of files that had an ignored name in the last listing."""
    markers: set[str] = field(default_factory=set)
    """Names of the files with a completion marker."""


class FileIndex:
    """The names that need no examination now.

    An idle name is one 64-bit number: the hash of name and inode. So a million of them are compared in the time it
    takes to list them, and a file that replaces another is noticed at once.
    """

    def __init__(self, options: DirectoryOptions) -> None:
        self._options = options
        self._pattern = re.compile(fnmatch.translate(options.pattern)).match
        self._idle: dict[int, bytes] = {}
        self._ignored: set[int] = set()
        self._temporary: set[int] = set()

    def format_of(self, name: str) -> Format | None:
        """Return the format of a file; None if it is not to be read."""
        base = name.rpartition("/")[2]
        if self._pattern(base) is None:
            return None
        return self._options.format or format_of(base)

    def matches_pattern(self, name: str) -> bool:
        """Return whether a name matches the pattern."""
        return self._pattern(name.rpartition("/")[2]) is not None

    def set_idle(self, name: str, entry: int, key: bytes) -> None:
        """Examine a file only from time to time."""
        self._idle[hash((name, entry))] = key

    def set_active(self, name: str, entry: int) -> None:
        """Examine a file in each poll."""
        self._idle.pop(hash((name, entry)), None)

    def ignore(self, name: str, entry: int) -> None:
        """Never examine a file, as long as its name does not change."""
        self._ignored.add(hash((name, entry)))

    def forget(self, keys: "set[bytes]") -> None:
        """Forget that these files were listed."""
        if keys:
            self._idle = {token: key for token, key in self._idle.items() if key not in keys}

    def scan(
        self,
        folder: SafeDirectory,
        active: Collection[str],
        turn: int,
        turns: int,
        again: tuple[str, ...] = (),
    ) -> Listing:
        """List everything; raises OSError if the directory itself cannot be listed.

        Each idle file is due once in `turns` polls. Names starting with one in `again` are fresh even if they were
        ignored.
        """
        listing = Listing()
        slot, met, idle = turn % turns, 0, self._idle
        was_ignored, self._ignored = self._ignored, set()
        was_temporary, self._temporary = self._temporary, set()

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            """Classify one name; return whether it may be a folder to list."""
            nonlocal met
            name = prefix + entry.name
            number = entry.inode()
            token = hash((name, number))
            if token in idle:
                met += 1
                if token % turns == slot:
                    listing.due.append(ListedFile(name, number))
            elif name in active:
                listing.active.append(ListedFile(name, number))
            elif token in was_ignored and not (again and name.startswith(again)):
                self._ignored.add(token)
                # Folders are never idle: they must be listed each time.
                return self._options.recursive
            else:
                return self._take_fresh(entry, ListedFile(name, number), listing, was_temporary)
            return False

        listing.entries = _visit(folder, take)
        if met < len(idle):
            listing.missing = self._missing(folder)
        return listing

    def _take_fresh(
        self, entry: "os.DirEntry[str]", found: ListedFile, listing: Listing, was_temporary: set[int]
    ) -> bool:
        if is_ignored(entry.name):
            self._temporary.add(found.entry)
        elif self._options.completion_marker and entry.name.endswith(MARKER):
            listing.markers.add(found.name.removesuffix(MARKER))
        elif entry.is_dir(follow_symlinks=False) and (self._options.recursive or format_of(entry.name) is None):
            return self._options.recursive
        else:
            listing.fresh.append(found)
            if found.entry in was_temporary:
                listing.renamed.add(found.name)
        return False

    def holders(self, folder: SafeDirectory, inodes: "set[int]") -> dict[str, int]:
        """List again; return the names of relevant files with these inodes."""
        names: dict[str, int] = {}

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            if is_ignored(entry.name):
                return False
            if entry.inode() in inodes:
                names[prefix + entry.name] = entry.inode()
            return self._options.recursive

        if inodes:
            _visit(folder, take)
        return names

    def _missing(self, folder: SafeDirectory) -> list[bytes]:
        """Return the keys of idle files that are no longer listed. Rarely needed, so it lists again."""
        left = dict(self._idle)

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            left.pop(hash((prefix + entry.name, entry.inode())), None)
            return self._options.recursive and not is_ignored(entry.name)

        _visit(folder, take)
        return list(left.values())


def _visit(folder: SafeDirectory, take: Callable[["os.DirEntry[str]", str], bool]) -> int:
    """Visit every entry of the directory, and of the folders that `take` selects; return their number."""
    entries = 0
    waiting: list[str] = [""]
    while waiting:
        subfolder = waiting.pop()
        prefix = f"{subfolder}/" if subfolder else ""
        inner: list[str] = []
        try:
            for entry in folder.entries(subfolder):
                entries += 1
                if take(entry, prefix) and prefix.count("/") < _DEEPEST and entry.is_dir(follow_symlinks=False):
                    inner.append(prefix + entry.name)
        except OSError:
            # A subfolder may disappear or become unreadable at any time; for the directory itself the caller decides.
            if not subfolder:
                raise
        waiting.extend(sorted(inner, reverse=True))
    return entries


def identity_of(folder: Path) -> tuple[int, int]:
    """Return the device and inode of a folder, for `DirectoryOptions.never`."""
    status = folder.stat()
    return status.st_dev, status.st_ino


def would_be_read(folder: Path, options: DirectoryOptions) -> bool:
    """Return whether files in a folder, which need not exist yet, would be read as records."""
    watched = os.path.realpath(options.path)
    inner = Path(os.path.realpath(folder))
    names: list[str] = []
    for place in (inner, *inner.parents):
        if _is_same(place, watched):
            # Nothing is read in folders with an ignored name.
            return not names or (options.recursive and not any(is_ignored(name) for name in names))
        names.append(place.name)
    return False


def _is_same(place: Path, watched: str) -> bool:
    if os.fspath(place) == watched:
        return True
    try:
        # The same folder may be mounted twice.
        return place.samefile(watched)
    except OSError:
        return False
