"""Lists the directory and picks the files to look at; keeps our own folders out of it."""

import fnmatch
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from monitor.records.record_batch import Format, format_of
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.open_files import SafeDirectory
from monitor.sources.directory.tracked_file import TrackedFile

_UNFINISHED_SUFFIXES = (".tmp", ".part", ".partial", ".crdownload", ".filepart", "~")
_DEEPEST = 8
MARKER = ".ok"


def is_ignored(base: str) -> bool:
    """Tell whether a name says that its file is not, or not yet, meant to be read."""
    return base.startswith((".", "_")) or base.endswith(_UNFINISHED_SUFFIXES)


@dataclass(frozen=True, slots=True)
class Found:
    """A name in the directory."""

    name: str
    entry: int
    """The number of its inode, as the listing gives it."""


@dataclass(slots=True)
class Listing:
    """What a poll found."""

    entries: int = 0
    fresh: list[Found] = field(default_factory=list)
    """Names that are not known, or that another file has now."""
    due: list[Found] = field(default_factory=list)
    """Quiet files whose turn it is to be looked at again."""
    missing: list[bytes] = field(default_factory=list)
    """Keys of quiet files that were not listed."""
    renamed: set[str] = field(default_factory=set)
    """Fresh names of files that had an ignored name when last listed."""
    markers: set[str] = field(default_factory=set)
    """Names of the files for which there is a completion marker."""


class Roster:
    """Which names are known and need no look now.

    A quiet name is one 64-bit number: the hash of the name and its inode. So a million of them are compared in the
    time it takes to list them, and a file that takes another's name is noticed at once.
    """

    def __init__(self, options: DirectoryOptions) -> None:
        self._options = options
        self._pattern = re.compile(fnmatch.translate(options.pattern)).match
        self._quiet: dict[int, bytes] = {}
        self._foreign: set[int] = set()
        self._temporary: set[int] = set()

    def __len__(self) -> int:
        """Return the number of quiet files."""
        return len(self._quiet)

    def format_of(self, name: str) -> Format | None:
        """Return the format of a file, or None when it is not meant to be read."""
        base = name.rpartition("/")[2]
        if self._pattern(base) is None:
            return None
        return self._options.format or format_of(base)

    def is_meant(self, name: str) -> bool:
        """Tell whether a name fits the pattern."""
        return self._pattern(name.rpartition("/")[2]) is not None

    def settle(self, name: str, entry: int, key: bytes) -> None:
        """Look at a file only now and then."""
        self._quiet[hash((name, entry))] = key

    def wake(self, name: str, entry: int) -> None:
        """Look at a file in each poll again."""
        self._quiet.pop(hash((name, entry)), None)

    def ignore(self, name: str, entry: int) -> None:
        """Do not look at a file at all, as long as its name does not change."""
        self._foreign.add(hash((name, entry)))

    def forget(self, keys: "set[bytes]") -> None:
        """Treat these files as if they had never been listed."""
        if keys:
            self._quiet = {token: key for token, key in self._quiet.items() if key not in keys}

    def scan(
        self,
        folder: SafeDirectory,
        active: Mapping[str, TrackedFile],
        turn: int,
        turns: int,
        again: tuple[str, ...] = (),
    ) -> Listing:
        """List everything; raise OSError when the directory itself cannot be listed.

        Each quiet file gets its look once in `turns` polls. Names that start with one in `again` are given as fresh
        even if they were ignored so far.
        """
        listing = Listing()
        slot, met, quiet = turn % turns, 0, self._quiet
        known_foreign, self._foreign = self._foreign, set()
        was_temporary, self._temporary = self._temporary, set()

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            """Sort one name, and tell whether it may be a folder to go into."""
            nonlocal met
            name = prefix + entry.name
            number = entry.inode()
            token = hash((name, number))
            if token in quiet:
                met += 1
                if token % turns == slot:
                    listing.due.append(Found(name, number))
            elif name in active:
                active[name].entry = number
            elif token in known_foreign and not (again and name.startswith(again)):
                self._foreign.add(token)
                # A folder is never quiet: it has to be listed each time.
                return self._options.recursive
            else:
                return self._take_fresh(entry, Found(name, number), listing, was_temporary)
            return False

        listing.entries = _walk(folder, take)
        if met < len(quiet):
            listing.missing = self._missing(folder)
        return listing

    def _take_fresh(self, entry: "os.DirEntry[str]", found: Found, listing: Listing, was_temporary: set[int]) -> bool:
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

    def holders(self, folder: SafeDirectory, inodes: "set[int]") -> list[str]:
        """List once more, and return the names of files with these inodes that may be meant to be read."""
        names: list[str] = []

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            if is_ignored(entry.name):
                return False
            if entry.inode() in inodes:
                names.append(prefix + entry.name)
            return self._options.recursive

        if inodes:
            _walk(folder, take)
        return names

    def _missing(self, folder: SafeDirectory) -> list[bytes]:
        """Return the keys of quiet files that are no longer listed; rarely needed, so it may list once more."""
        left = dict(self._quiet)

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            left.pop(hash((prefix + entry.name, entry.inode())), None)
            return self._options.recursive and not is_ignored(entry.name)

        _walk(folder, take)
        return list(left.values())


def _walk(folder: SafeDirectory, take: Callable[["os.DirEntry[str]", str], bool]) -> int:
    """Show every entry of the directory, and of the folders in it that are asked for; return how many there are."""
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
            # A folder within may go, or be closed to us, at any time; the directory itself is the caller's to judge.
            if not subfolder:
                raise
        waiting.extend(sorted(inner, reverse=True))
    return entries


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
