"""Lists the directory and selects the files to examine; excludes our own folders."""

import fnmatch
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from monitor.records.record_batch import Format, format_of
from monitor.sources.directory.directory_options import DirectoryOptions, is_ignored
from monitor.sources.directory.file_identity import TrackedFile
from monitor.sources.directory.open_files import SafeDirectory

_DEEPEST = 8
MARKER = ".ok"


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
        active: Mapping[str, TrackedFile],
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
                active[name].entry = number
            elif token in was_ignored and not (again and name.startswith(again)):
                self._ignored.add(token)
                # Folders are never idle: they must be listed each time.
                return self._options.recursive
            else:
                return self._take_fresh(entry, ListedFile(name, number), listing, was_temporary)
            return False

        listing.entries = _walk(folder, take)
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

    def holders(self, folder: SafeDirectory, inodes: "set[int]") -> list[str]:
        """List again; return the names of relevant files with these inodes."""
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
        """Return the keys of idle files that are no longer listed. Rarely needed, so it lists again."""
        left = dict(self._idle)

        def take(entry: "os.DirEntry[str]", prefix: str) -> bool:
            left.pop(hash((prefix + entry.name, entry.inode())), None)
            return self._options.recursive and not is_ignored(entry.name)

        _walk(folder, take)
        return list(left.values())


def _walk(folder: SafeDirectory, take: Callable[["os.DirEntry[str]", str], bool]) -> int:
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
