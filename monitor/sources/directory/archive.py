"""Archives or deletes files that have been read. On any failure the file stays in place."""

import errno
import json
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from monitor.sources.base import Delivery
from monitor.sources.directory.directory_options import DirectoryEvent, DirectoryOptions, OnFinish
from monitor.sources.directory.file_checkpoint import FileCheckpoint, FileState, Keys
from monitor.sources.directory.file_identity import FileLook
from monitor.sources.directory.open_files import OpenRefusal, OpenRefused, SafeDirectory, error_name, is_missing
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.scan import MARKER, is_ignored
from monitor.sources.directory.system_calls import System
from monitor.sources.directory.tailer import Tailer
from monitor.sources.directory.tracked_file import TrackedFile

_SUFFIXES = 10_000
_ASIDE = ".cpcmon-"
_LONGEST_NAME_BYTES = 255
_RANDOM_BYTES = 4


class Replaced(Exception):
    """The file changed, or is another one. It has its name again."""


@contextmanager
def aside(system: System, directory: int, base: str, row: FileCheckpoint) -> Iterator[str]:
    """Give a file a private name while it is moved or deleted, and rename it back on failure.

    Between the check of a name and the action, another file may be renamed over it, which nobody has read. So the file gets
    a private name first, and is checked once more.
    """
    start = f"{_ASIDE}{secrets.token_hex(_RANDOM_BYTES)}-"
    # If the name gets too long, keep its end: the extension shows the format.
    private = start + os.fsdecode(os.fsencode(base)[len(start) - _LONGEST_NAME_BYTES :])
    system.rename(base, directory, private, directory)
    try:
        _check(directory, private, row)
        yield private
    except BaseException:
        _put_back(directory, private, base)
        raise


def _check(directory: int, name: str, row: FileCheckpoint) -> None:
    if not FileLook.of(os.stat(name, dir_fd=directory, follow_symlinks=False)).same(row):
        raise Replaced


def put_all_back(folder: SafeDirectory, options: DirectoryOptions) -> None:
    """Rename files back that had a private name when the process was killed."""
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
    """Rename a file back, or to a similar name if that is taken. Never overwrites another file."""
    stem, dot, rest = base.partition(".")
    for number in range(_SUFFIXES):
        name = f"{stem}-{number}{dot}{rest}" if number else base
        try:
            os.link(private, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            if not _are_one(directory, private, name):
                continue
        except OSError:
            # No hard links here, or not to other users' files: check and rename instead.
            if free_name(name, directory) != name:
                continue
            os.rename(private, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        os.unlink(private, dir_fd=directory)
        return


def _are_one(directory: int, name: str, other: str) -> bool:
    """Return whether two names are links to one file: the process was killed during `_put_back`."""
    one, two = (os.stat(each, dir_fd=directory, follow_symlinks=False) for each in (name, other))
    return os.path.samestat(one, two)


def open_place(folder: SafeDirectory, options: DirectoryOptions, parts: list[str]) -> int:
    """Open a folder of the archive, creating it if necessary.

    Someone with write access to the directory could replace the archive by a link, to have us move files elsewhere. So no
    link is followed within the directory; the path of an archive elsewhere is the operator's.
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
    """Return the name, or the name with the first free number."""
    for number in range(_SUFFIXES):
        name = f"{base}.{number}" if number else base
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return name
    raise OSError(errno.EEXIST, "too many files of the same name")


def write_reason(target: str, folder: int, row: FileCheckpoint, now: float) -> None:
    """Write a `.reason.json` next to a failed file."""
    said = json.dumps({"reason": row.reason, "explanation": row.explanation, "size": row.size, "at": now})
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(f"{target}.reason.json", flags, 0o600, dir_fd=folder)
    try:
        os.write(file, said.encode())
    finally:
        os.close(file)


log = logging.getLogger("cpcmon")

_GRACE_SECONDS = 60.0
"""How long a finished file is held open: its writer may still add to it."""
_GRACE_FILES = 16
"""Files held open at a time; for one more, the oldest without unread bytes is released."""
_PAUSE_SECONDS = 300.0
"""Delay after a failed attempt; files stay in place meanwhile."""
_BATCH = 500
"""Files finished at a time, so that reading continues in between."""
_COPY_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Late:
    """A finished file that is held open for late writes."""

    tracked: TrackedFile
    file: int
    until: float
    row: FileCheckpoint
    """Its checkpoint when it was finished."""

    @property
    def unread(self) -> int:
        """The number of unread bytes."""
        row = self.tracked.row or self.row
        return os.fstat(self.file).st_size - row.offset


class Archiver:
    """Archives and deletes finished files."""

    def __init__(self, context: PollContext, keys: Keys, reader: Tailer) -> None:
        self._context = context
        self._keys = keys
        self._reader = reader
        self._paused_until = 0.0
        self._forget: list[bytes] = []
        """Checkpoints of finished files, to be deleted with the next delivery."""
        self._late: list[_Late] = []
        """The files held open, oldest first."""
        self._reading: _Late | None = None
        """The one being read, which must not be released."""
        self._recovered = False
        """Whether no file has a private name left from a kill or an error."""

    def close(self) -> None:
        """Release all held files. No delivery follows, so unread bytes are only logged."""
        left = sum(max(0, late.unread) for late in self._late)
        if left:
            log.warning("%d bytes written to finished files at the last moment were not read", left)
        for late in self._late:
            os.close(late.file)
        self._late.clear()

    def reload(self, keys: set[bytes]) -> None:
        """Reload checkpoints after a rollback."""
        for late in self._late:
            if late.tracked.key in keys:
                late.tracked.row = self._context.checkpoints.row(late.tracked.key) or late.row

    def finish(self, folder: SafeDirectory, finishable: dict[str, tuple[bytes, int]]) -> list[tuple[str, int]]:
        """Finish some of these files, all of them committed, and remove them from `finishable`.

        Returns the names, with the listed inodes, that must be examined again, whatever file they denote now.
        """
        if not self._recovered and self._context.monotonic() >= self._paused_until:
            self._recovered = True
            put_all_back(folder, self._context.options)
        awake: list[tuple[str, int]] = []
        for name, (key, entry) in list(islice(finishable.items(), _BATCH)):
            if self._context.monotonic() < self._paused_until or not self._has_room():
                break
            del finishable[name]
            row = self._context.checkpoints.row(key)
            # A failed file contains unread records: never delete it.
            if row is None or (row.state is FileState.FAILED and self._context.options.on_finish is OnFinish.DELETE):
                continue
            try:
                self._finish_one(folder, name, key, row)
            except OpenRefused:
                continue
            except Replaced:
                pass
            except OSError as error:
                self._fails(error)
            awake.append((name, entry))
        return awake

    def _has_room(self) -> bool:
        """Return whether one more file can be held, releasing another if necessary."""
        if len(self._late) < _GRACE_FILES:
            return True
        for late in self._late:
            if late is not self._reading and late.unread <= 0:
                self._let_go(late)
                return True
        return False

    def _let_go(self, late: _Late) -> None:
        self._late.remove(late)
        left = late.unread
        os.close(late.file)
        if left > 0:
            self._context.counted[DirectoryEvent.LOST_BYTES] += left
        if late.tracked.key in self._context.checkpoints:
            self._forget.append(late.tracked.key)

    def _fails(self, error: OSError) -> None:
        context = self._context
        context.counted[DirectoryEvent.FINISH_ERRORS] += 1
        self._paused_until = context.monotonic() + _PAUSE_SECONDS
        self._recovered = False
        if context.once(("finish", error.errno)):
            context.warn(f"on_finish: {context.options.on_finish} failed ({error_name(error)}): files stay in place")

    def _finish_one(self, folder: SafeDirectory, name: str, key: bytes, row: FileCheckpoint) -> None:
        context = self._context
        try:
            if folder.is_link(name):
                raise OpenRefused(OpenRefusal.LINK)
            file, look = folder.open(name)
        except OSError as error:
            if is_missing(error):
                return  # already gone
            raise
        try:
            if not look.same(row) or (row.format.grows and row.state is FileState.READING and row.offset != look.size):
                os.close(file)
                return  # changed since; the next poll handles it
            if context.options.on_finish is OnFinish.DELETE:
                self._unlink(folder, name, row)
            else:
                self._archive(folder, name, file, row)
        except BaseException:
            os.close(file)
            raise
        self._forget.append(key)
        context.counted[DirectoryEvent.FILES_FINISHED] += 1
        if not row.format.grows or row.state is FileState.FAILED:
            os.close(file)
            return
        # The writer may be adding to it right now.
        tracked = TrackedFile(name, self._keys(f"\0{name}\0{look.inode}"), row.format, row=row, look=look)
        self._late.append(_Late(tracked, file, context.monotonic() + _GRACE_SECONDS, row))

    def _unlink(self, folder: SafeDirectory, name: str, row: FileCheckpoint) -> None:
        directory, base = folder.parent(name)
        with aside(self._context.system, directory, base, row) as private:
            os.unlink(private, dir_fd=directory)

    # Archiving

    def _archive(self, folder: SafeDirectory, name: str, file: int, row: FileCheckpoint) -> None:
        context, options = self._context, self._context.options
        directory, base = folder.parent(name)
        parts = (
            [".failed"]
            if row.state is FileState.FAILED
            else [datetime.fromtimestamp(context.now, UTC).strftime("%Y-%m-%d")]
        )
        if options.archive is None and row.state is not FileState.FAILED:
            parts.insert(0, ".done")
        target_folder = open_place(folder, options, parts)
        try:
            target = free_name(base, target_folder)
            if row.state is FileState.FAILED:
                write_reason(target, target_folder, row, context.now)
            try:
                with aside(context.system, directory, base, row) as private:
                    context.system.rename(private, directory, target, target_folder)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(file, target, target_folder)
                try:
                    self._unlink(folder, name, row)
                except BaseException:
                    os.unlink(target, dir_fd=target_folder)
                    raise
            if options.completion_marker:
                with suppress(OSError):
                    context.system.rename(f"{base}{MARKER}", directory, f"{target}{MARKER}", target_folder)
        except BaseException:
            if row.state is FileState.FAILED:
                with suppress(OSError):
                    os.unlink(f"{target}.reason.json", dir_fd=target_folder)
            raise
        finally:
            os.close(target_folder)

    def _copy(self, file: int, target: str, folder: int) -> None:
        """Copy a file to another file system, atomically."""
        temporary = f".{target}.tmp"[:255]
        copy = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder
        )
        try:
            try:
                done = 0
                while data := os.pread(file, _COPY_BYTES, done):
                    written = 0
                    while written < len(data):
                        written += self._context.system.write(copy, data[written:])
                    done += len(data)
                os.fsync(copy)
                if os.fstat(copy).st_size != os.fstat(file).st_size:
                    raise OSError(errno.EAGAIN, "changed during the copy")
            finally:
                os.close(copy)
            os.rename(temporary, target, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise

    # Late writes

    def look_again(self) -> Iterator[Delivery]:
        """Deliver late writes to finished files, and delete their checkpoints."""
        context = self._context
        for late in list(self._late):
            # The caller may acknowledge each delivery, which may finish and release other files.
            if late not in self._late:
                continue
            self._reading = late
            try:
                yield from self._read_late(late)
            finally:
                self._reading = None
            if context.clock >= late.until:
                self._let_go(late)
        if self._forget:
            forgotten, self._forget = self._forget, []
            yield context.delivery(checkpoints={key: context.checkpoints.put(key, None) for key in forgotten})

    def _read_late(self, late: _Late) -> Iterator[Delivery]:
        tracked = late.tracked
        if late.unread <= 0 or (tracked.row is not None and tracked.row.state is FileState.FAILED):
            return
        with suppress(OSError):
            for delivery in self._reader.lines(late.file, FileLook.of(os.fstat(late.file)), tracked):
                delivery.counted[DirectoryEvent.LATE_BYTES] += delivery.counted[DirectoryEvent.BYTES_READ]
                yield delivery
