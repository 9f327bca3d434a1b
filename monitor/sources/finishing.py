"""Moves or deletes files that have been read. Whatever goes wrong, the file stays where it was."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from monitor.sources.archive_folder import Replaced, aside, free_name, open_place, put_all_back, write_reason
from monitor.sources.base import Delivery
from monitor.sources.counted import Counted
from monitor.sources.desk import Desk
from monitor.sources.growing import GrowingReader
from monitor.sources.identity import Look
from monitor.sources.ledger import Keys, Row, State
from monitor.sources.opening import Folder, Refusal, Refused, error_name, is_missing
from monitor.sources.options import OnFinish
from monitor.sources.scan import MARKER
from monitor.sources.tracked import Tracked

log = logging.getLogger("cpcmon")

_GRACE_SECONDS = 60.0
"""How long after finishing a file we look whether its writer, who may still hold it open, adds to it."""
_GRACE_FILES = 16
"""Files held open for that, at any time; for one more, the one finished first to which nothing was added is let go."""
_PAUSE_SECONDS = 300.0
"""How long to work as `keep` after an attempt failed."""
_BATCH = 500
"""Files finished at a time, so that the others are read meanwhile."""
_COPY_BYTES = 1 << 20


@dataclass(slots=True, eq=False)
class _Late:
    """A finished file whose writer may still add to it."""

    tracked: Tracked
    file: int
    until: float
    row: Row
    """What it was finished with."""

    @property
    def unread(self) -> int:
        """How many bytes have been added and not read."""
        row = self.tracked.row or self.row
        return os.fstat(self.file).st_size - row.offset


class Finisher:
    """Archives and deletes."""

    def __init__(self, desk: Desk, keys: Keys, reader: GrowingReader) -> None:
        self._desk = desk
        self._keys = keys
        self._reader = reader
        self._paused_until = 0.0
        self._forget: list[bytes] = []
        """Rows of finished files, to be forgotten with the next delivery."""
        self._late: list[_Late] = []
        """The files that are held, first those that were finished first."""
        self._reading: _Late | None = None
        """The one of them that is being read, and may not be let go of meanwhile."""
        self._recovered = False
        """Whether no file has been left aside, by a kill or by an error."""

    def close(self) -> None:
        """Let go of all finished files. No delivery follows, so what was added since the last one is only logged."""
        left = sum(max(0, late.unread) for late in self._late)
        if left:
            log.warning("%d bytes that writers added to finished files at the last moment have not been read", left)
        for late in self._late:
            os.close(late.file)
        self._late.clear()

    def reload(self, keys: set[bytes]) -> None:
        """Go back to the rows of the ledger."""
        for late in self._late:
            if late.tracked.key in keys:
                late.tracked.row = self._desk.ledger.row(late.tracked.key) or late.row

    def finish(self, folder: Folder, finishable: dict[str, tuple[bytes, int]]) -> list[tuple[str, int]]:
        """Finish some of these files, all of which have been committed, and take them out.

        Returns the names, with the inodes as listed, that are to be looked at again, whatever has them now.
        """
        if not self._recovered and self._desk.monotonic() >= self._paused_until:
            self._recovered = True
            put_all_back(folder, self._desk.options)
        awake: list[tuple[str, int]] = []
        for name, (key, entry) in list(islice(finishable.items(), _BATCH)):
            if self._desk.monotonic() < self._paused_until or not self._has_room():
                break
            del finishable[name]
            row = self._desk.ledger.row(key)
            # A file that failed holds records that nobody has read: it is never deleted.
            if row is None or (row.state is State.FAILED and self._desk.options.on_finish is OnFinish.DELETE):
                continue
            try:
                self._finish_one(folder, name, key, row)
            except Refused:
                continue
            except Replaced:
                pass
            except OSError as error:
                self._fails(error)
            awake.append((name, entry))
        return awake

    def _has_room(self) -> bool:
        """Tell whether one more file may be held, for which another may have to be let go."""
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
            self._desk.counted[Counted.LOST_BYTES] += left
        if late.tracked.key in self._desk.ledger:
            self._forget.append(late.tracked.key)

    def _fails(self, error: OSError) -> None:
        desk = self._desk
        desk.counted[Counted.FINISH_ERRORS] += 1
        self._paused_until = desk.monotonic() + _PAUSE_SECONDS
        self._recovered = False
        if desk.once(("finish", error.errno)):
            desk.warn(
                f"on_finish: {desk.options.on_finish} is not possible ({error_name(error)}): files stay where they are"
            )

    def _finish_one(self, folder: Folder, name: str, key: bytes, row: Row) -> None:
        desk = self._desk
        try:
            if folder.is_link(name):
                raise Refused(Refusal.LINK)
            file, look = folder.open(name)
        except OSError as error:
            if is_missing(error):
                return  # somebody else did it
            raise
        try:
            if not look.same(row) or (row.format.grows and row.state is State.READING and row.offset != look.size):
                os.close(file)
                return  # written since; the next look finds out
            if desk.options.on_finish is OnFinish.DELETE:
                self._unlink(folder, name, row)
            else:
                self._archive(folder, name, file, row)
        except BaseException:
            os.close(file)
            raise
        self._forget.append(key)
        desk.counted[Counted.FILES_FINISHED] += 1
        if not row.format.grows or row.state is State.FAILED:
            os.close(file)
            return
        # Its writer may have added to it just now, or may do so in a moment.
        tracked = Tracked(name, self._keys(f"\0{name}\0{look.inode}"), row.format, row=row, look=look)
        self._late.append(_Late(tracked, file, desk.monotonic() + _GRACE_SECONDS, row))

    def _unlink(self, folder: Folder, name: str, row: Row) -> None:
        directory, base = folder.parent(name)
        with aside(self._desk.system, directory, base, row) as private:
            os.unlink(private, dir_fd=directory)

    # Archiving

    def _archive(self, folder: Folder, name: str, file: int, row: Row) -> None:
        desk, options = self._desk, self._desk.options
        directory, base = folder.parent(name)
        parts = (
            [".failed"] if row.state is State.FAILED else [datetime.fromtimestamp(desk.now, UTC).strftime("%Y-%m-%d")]
        )
        if options.archive is None and row.state is not State.FAILED:
            parts.insert(0, ".done")
        target_folder = open_place(folder, options, parts)
        try:
            target = free_name(base, target_folder)
            if row.state is State.FAILED:
                write_reason(target, target_folder, row, desk.now)
            try:
                with aside(desk.system, directory, base, row) as private:
                    desk.system.rename(private, directory, target, target_folder)
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
                    desk.system.rename(f"{base}{MARKER}", directory, f"{target}{MARKER}", target_folder)
        except BaseException:
            if row.state is State.FAILED:
                with suppress(OSError):
                    os.unlink(f"{target}.reason.json", dir_fd=target_folder)
            raise
        finally:
            os.close(target_folder)

    def _copy(self, file: int, target: str, folder: int) -> None:
        """Copy a file to another device, so that it is either there as a whole or not at all."""
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
                        written += self._desk.system.write(copy, data[written:])
                    done += len(data)
                os.fsync(copy)
                if os.fstat(copy).st_size != os.fstat(file).st_size:
                    raise OSError(errno.EAGAIN, "written while it was copied")
            finally:
                os.close(copy)
            os.rename(temporary, target, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise

    # What writers add to finished files

    def look_again(self) -> Iterator[Delivery]:
        """Deliver what was added to files after they had been finished, and forget their rows."""
        desk = self._desk
        for late in list(self._late):
            # Whoever takes a delivery may acknowledge it at once, and more files are finished and let go of meanwhile.
            if late not in self._late:
                continue
            self._reading = late
            try:
                yield from self._read_late(late)
            finally:
                self._reading = None
            if desk.clock >= late.until:
                self._let_go(late)
        if self._forget:
            forgotten, self._forget = self._forget, []
            yield desk.delivery(positions={key: desk.ledger.put(key, None) for key in forgotten})

    def _read_late(self, late: _Late) -> Iterator[Delivery]:
        tracked = late.tracked
        if late.unread <= 0 or (tracked.row is not None and tracked.row.state is State.FAILED):
            return
        with suppress(OSError):
            for delivery in self._reader.lines(late.file, Look.of(os.fstat(late.file)), tracked):
                delivery.counted[Counted.LATE_BYTES] += delivery.counted[Counted.BYTES_READ]
                yield delivery
