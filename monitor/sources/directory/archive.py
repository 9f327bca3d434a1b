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

from monitor.core.backoff import Backoff
from monitor.sources.base import Delivery
from monitor.sources.directory.directory_access import (
    MARKER,
    FileStat,
    OpenRefusal,
    OpenRefused,
    SafeDirectory,
    System,
    error_name,
    is_ignored,
    is_missing,
)
from monitor.sources.directory.directory_options import DirectoryEvent, DirectoryOptions, OnFinish
from monitor.sources.directory.file_checkpoint import FileCheckpoint, FileState, Keys, TrackedFile
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.tailer import Tailer

log = logging.getLogger("cpcmon")

_GRACE_SECONDS = 60.0
"""How long a finished file is held open: its writer may still add to it."""
_GRACE_FILES = 16
"""Files held open at a time; for one more, the oldest without unread bytes is released."""
_RETRY_SECONDS = 300.0
"""Delay after a failed attempt; files stay in place meanwhile."""
_BATCH = 500
"""Files finished at a time, so that reading continues in between."""
_COPY_BYTES = 1 << 20
_SUFFIXES = 10_000
_PRIVATE_PREFIX = ".cpcmon-"
_LONGEST_NAME_BYTES = 255
_RANDOM_BYTES = 4


class Replaced(Exception):
    """The file changed, or is another one. It has its name again."""


@contextmanager
def private_name(system: System, directory: int, base: str, checkpoint: FileCheckpoint) -> Iterator[str]:
    """Give a file a private name while it is moved or deleted, and rename it back on failure.

    Between the check of a name and the action, another file may be renamed over it, which nobody has read. So the file
    gets a private name first, and is checked once more.
    """
    start = f"{_PRIVATE_PREFIX}{secrets.token_hex(_RANDOM_BYTES)}-"
    # If the name gets too long, keep its end: the extension shows the format.
    private = start + os.fsdecode(os.fsencode(base)[len(start) - _LONGEST_NAME_BYTES :])
    system.rename(base, directory, private, directory)
    try:
        _check(directory, private, checkpoint)
        yield private
    except BaseException:
        _restore_name(directory, private, base)
        raise


def _check(directory: int, name: str, checkpoint: FileCheckpoint) -> None:
    if not FileStat.of(os.stat(name, dir_fd=directory, follow_symlinks=False)).same(checkpoint):
        raise Replaced


def restore_names(folder: SafeDirectory, options: DirectoryOptions) -> None:
    """Rename files back that had a private name when the process was killed."""
    waiting = [""]
    while waiting:
        subfolder = waiting.pop()
        prefix = f"{subfolder}/" if subfolder else ""
        with suppress(OSError):
            for entry in list(folder.entries(subfolder)):
                if entry.name.startswith(_PRIVATE_PREFIX):
                    directory, private = folder.parent(prefix + entry.name)
                    base = private[len(_PRIVATE_PREFIX) :].partition("-")[2]
                    if base and entry.is_file(follow_symlinks=False):
                        _restore_name(directory, private, base)
                elif options.recursive and not is_ignored(entry.name) and entry.is_dir(follow_symlinks=False):
                    waiting.append(prefix + entry.name)


def _restore_name(directory: int, private: str, base: str) -> None:
    """Rename a file back, or to a similar name if that is taken. Never overwrites another file."""
    stem, dot, rest = base.partition(".")
    for number in range(_SUFFIXES):
        name = f"{stem}-{number}{dot}{rest}" if number else base
        try:
            os.link(private, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
        except FileExistsError:
            if not _is_same_file(directory, private, name):
                continue
        except OSError:
            # No hard links here, or not to other users' files: check and rename instead.
            if free_name(name, directory) != name:
                continue
            os.rename(private, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        os.unlink(private, dir_fd=directory)
        return


def _is_same_file(directory: int, name: str, other: str) -> bool:
    """Return whether two names are links to one file: the process was killed during `_restore_name`."""
    one, two = (os.stat(each, dir_fd=directory, follow_symlinks=False) for each in (name, other))
    return os.path.samestat(one, two)


def open_archive_folder(folder: SafeDirectory, options: DirectoryOptions, parts: list[str]) -> int:
    """Open a folder of the archive, creating it if necessary.

    Someone with write access to the directory could replace the archive by a link, to have us move files elsewhere. So
    no link is followed within the directory; the path of an archive elsewhere is the operator's.
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


def write_reason(target: str, folder: int, checkpoint: FileCheckpoint, now: float) -> None:
    """Write a `.reason.json` next to a failed file."""
    text = json.dumps(
        {"reason": checkpoint.reason, "explanation": checkpoint.explanation, "size": checkpoint.size, "at": now}
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(f"{target}.reason.json", flags, 0o600, dir_fd=folder)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


@dataclass(slots=True, eq=False)
class _HeldFile:
    """A finished file that is held open for late writes."""

    tracked: TrackedFile
    file: int
    until: float
    checkpoint: FileCheckpoint
    """Its checkpoint when it was finished."""

    @property
    def unread(self) -> int:
        """The number of unread bytes."""
        checkpoint = self.tracked.checkpoint or self.checkpoint
        return os.fstat(self.file).st_size - checkpoint.offset


class Archiver:
    """Archives and deletes finished files."""

    def __init__(self, context: PollContext, keys: Keys, reader: Tailer) -> None:
        self._context = context
        self._keys = keys
        self._reader = reader
        self._backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS)
        self._forget: list[bytes] = []
        """Checkpoints of finished files, to be deleted with the next delivery."""
        self._held: list[_HeldFile] = []
        """The files held open, oldest first."""
        self._reading: _HeldFile | None = None
        """The one being read, which must not be released."""
        self._names_restored = False
        """Whether no file has a private name left from a kill or an error."""

    def close(self) -> None:
        """Release all held files. No delivery follows, so unread bytes are only logged."""
        left = sum(max(0, held.unread) for held in self._held)
        if left:
            log.warning("%d bytes written to finished files at the last moment were not read", left)
        for held in self._held:
            os.close(held.file)
        self._held.clear()

    def reload(self, keys: set[bytes]) -> None:
        """Reload checkpoints after a rollback."""
        for held in self._held:
            if held.tracked.key in keys:
                held.tracked.checkpoint = self._context.checkpoints.get(held.tracked.key) or held.checkpoint

    def finish(self, folder: SafeDirectory, finishable: dict[str, tuple[bytes, int]]) -> list[tuple[str, int]]:
        """Finish some of these files, all of them committed, and remove them from `finishable`.

        Returns the names, with the listed inodes, that must be examined again, whatever file they denote now.
        """
        if not self._names_restored and not self._backoff.left(self._context.monotonic()):
            self._names_restored = True
            restore_names(folder, self._context.options)
        to_examine: list[tuple[str, int]] = []
        for name, (key, entry) in list(islice(finishable.items(), _BATCH)):
            if self._backoff.left(self._context.monotonic()) or not self._has_room():
                break
            del finishable[name]
            checkpoint = self._context.checkpoints.get(key)
            # A failed file contains unread records: never delete it.
            if checkpoint is None or (
                checkpoint.state is FileState.FAILED and self._context.options.on_finish is OnFinish.DELETE
            ):
                continue
            try:
                self._finish_one(folder, name, key, checkpoint)
            except OpenRefused:
                continue
            except Replaced:
                pass
            except OSError as error:
                self._failed(error)
            to_examine.append((name, entry))
        return to_examine

    def _has_room(self) -> bool:
        """Return whether one more file can be held, releasing another if necessary."""
        if len(self._held) < _GRACE_FILES:
            return True
        for held in self._held:
            if held is not self._reading and held.unread <= 0:
                self._release(held)
                return True
        return False

    def _release(self, held: _HeldFile) -> None:
        self._held.remove(held)
        left = held.unread
        os.close(held.file)
        if left > 0:
            self._context.counted[DirectoryEvent.LOST_BYTES] += left
        if held.tracked.key in self._context.checkpoints:
            self._forget.append(held.tracked.key)

    def _failed(self, error: OSError) -> None:
        context = self._context
        context.counted[DirectoryEvent.FINISH_ERRORS] += 1
        self._backoff.failed(context.monotonic())
        self._names_restored = False
        if context.first_time(("finish", error.errno)):
            context.warn(f"on_finish: {context.options.on_finish} failed ({error_name(error)}): files stay in place")

    def _finish_one(self, folder: SafeDirectory, name: str, key: bytes, checkpoint: FileCheckpoint) -> None:
        context = self._context
        try:
            if folder.is_link(name):
                raise OpenRefused(OpenRefusal.LINK)
            file, stat = folder.open(name)
        except OSError as error:
            if is_missing(error):
                return  # already gone
            raise
        try:
            if not stat.same(checkpoint) or (
                checkpoint.format.grows and checkpoint.state is FileState.READING and checkpoint.offset != stat.size
            ):
                os.close(file)
                return  # changed since; the next poll handles it
            if context.options.on_finish is OnFinish.DELETE:
                self._unlink(folder, name, checkpoint)
            else:
                self._archive(folder, name, file, checkpoint)
        except BaseException:
            os.close(file)
            raise
        self._forget.append(key)
        context.counted[DirectoryEvent.FILES_FINISHED] += 1
        if not checkpoint.format.grows or checkpoint.state is FileState.FAILED:
            os.close(file)
            return
        # The writer may be adding to it right now.
        tracked = TrackedFile(
            name, self._keys(f"\0{name}\0{stat.inode}"), checkpoint.format, checkpoint=checkpoint, stat=stat
        )
        self._held.append(_HeldFile(tracked, file, context.monotonic() + _GRACE_SECONDS, checkpoint))

    def _unlink(self, folder: SafeDirectory, name: str, checkpoint: FileCheckpoint) -> None:
        directory, base = folder.parent(name)
        with private_name(self._context.system, directory, base, checkpoint) as private:
            os.unlink(private, dir_fd=directory)

    # Archiving

    def _archive(self, folder: SafeDirectory, name: str, file: int, checkpoint: FileCheckpoint) -> None:
        context, options = self._context, self._context.options
        directory, base = folder.parent(name)
        parts = (
            [".failed"]
            if checkpoint.state is FileState.FAILED
            else [datetime.fromtimestamp(context.now, UTC).strftime("%Y-%m-%d")]
        )
        if options.archive is None and checkpoint.state is not FileState.FAILED:
            parts.insert(0, ".done")
        target_folder = open_archive_folder(folder, options, parts)
        try:
            target = free_name(base, target_folder)
            if checkpoint.state is FileState.FAILED:
                write_reason(target, target_folder, checkpoint, context.now)
            try:
                with private_name(context.system, directory, base, checkpoint) as private:
                    context.system.rename(private, directory, target, target_folder)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(file, target, target_folder)
                try:
                    self._unlink(folder, name, checkpoint)
                except BaseException:
                    os.unlink(target, dir_fd=target_folder)
                    raise
            if options.completion_marker:
                with suppress(OSError):
                    context.system.rename(f"{base}{MARKER}", directory, f"{target}{MARKER}", target_folder)
        except BaseException:
            if checkpoint.state is FileState.FAILED:
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

    def read_late_writes(self) -> Iterator[Delivery]:
        """Deliver late writes to finished files, and delete their checkpoints."""
        context = self._context
        for held in list(self._held):
            # The caller may acknowledge each delivery, which may finish and release other files.
            if held not in self._held:
                continue
            self._reading = held
            try:
                yield from self._read_held(held)
            finally:
                self._reading = None
            if context.clock >= held.until:
                self._release(held)
        if self._forget:
            forgotten, self._forget = self._forget, []
            yield context.delivery(checkpoints={key: context.checkpoints.put(key, None) for key in forgotten})

    def _read_held(self, held: _HeldFile) -> Iterator[Delivery]:
        tracked = held.tracked
        if held.unread <= 0 or (tracked.checkpoint is not None and tracked.checkpoint.state is FileState.FAILED):
            return
        with suppress(OSError):
            for delivery in self._reader.lines(held.file, FileStat.of(os.fstat(held.file)), tracked):
                delivery.counted[DirectoryEvent.LATE_BYTES] += delivery.counted[DirectoryEvent.BYTES_READ]
                yield delivery
