"""Moves or deletes files that have been read. Whatever goes wrong, the file stays where it was."""

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from monitor.sources.archive_folder import free_name, open_place, write_reason
from monitor.sources.base import Delivery
from monitor.sources.counted import Counted
from monitor.sources.desk import Desk
from monitor.sources.growing import GrowingReader
from monitor.sources.identity import Look
from monitor.sources.ledger import Keys, Row, State
from monitor.sources.opening import Folder, Refused, error_name
from monitor.sources.options import OnFinish
from monitor.sources.scan import MARKER
from monitor.sources.tracked import Tracked

_GRACE_SECONDS = 60.0
"""How long after finishing a file we look whether its writer, who may still hold it open, adds to it."""
_GRACE_FILES = 16
"""Files held open for that; of more than these, the ones finished first are let go."""
_PAUSE_SECONDS = 300.0
"""How long to work as `keep` after an attempt failed."""
_BATCH = 500
"""Files finished at a time, so that the others are read meanwhile."""
_COPY_BYTES = 1 << 20


@dataclass(slots=True)
class _Late:
    """A finished file whose writer may still add to it."""

    tracked: Tracked
    file: int
    until: float
    row: Row
    """What it was finished with."""


class Finisher:
    """Archives and deletes."""

    def __init__(self, desk: Desk, keys: Keys, reader: GrowingReader) -> None:
        self._desk = desk
        self._keys = keys
        self._reader = reader
        self._paused_until = 0.0
        self._forget: list[bytes] = []
        """Rows of finished files, to be forgotten with the next delivery."""
        self._late: deque[_Late] = deque()

    def close(self) -> None:
        """Let go of all finished files."""
        for late in self._late:
            os.close(late.file)
        self._late.clear()

    def reload(self, keys: set[bytes]) -> None:
        """Go back to the rows of the ledger."""
        for late in self._late:
            if late.tracked.key in keys:
                late.tracked.row = self._desk.ledger.row(late.tracked.key) or late.row

    def finish(self, folder: Folder, finishable: dict[str, tuple[bytes, int]]) -> list[str]:
        """Finish some of these files, all of which have been committed; return the names of those dealt with."""
        done: list[str] = []
        for name, (key, _) in list(finishable.items())[:_BATCH]:
            if self._desk.monotonic() < self._paused_until:
                break
            done.append(name)
            row = self._desk.ledger.row(key)
            # A file that failed holds records that nobody has read: it is never deleted.
            if row is None or (row.state is State.FAILED and self._desk.options.on_finish is OnFinish.DELETE):
                continue
            try:
                self._finish_one(folder, name, key, row)
            except Refused:
                continue
            except OSError as error:
                self._fails(error)
        return done

    def _fails(self, error: OSError) -> None:
        desk = self._desk
        desk.counted[Counted.FINISH_ERRORS] += 1
        self._paused_until = desk.monotonic() + _PAUSE_SECONDS
        if desk.once(("finish", error.errno)):
            desk.tell(
                f"on_finish: {desk.options.on_finish} is not possible ({error_name(error)}): files stay where they are"
            )

    def _finish_one(self, folder: Folder, name: str, key: bytes, row: Row) -> None:
        desk = self._desk
        if folder.is_link(name):
            return
        file, look = folder.open(name)
        try:
            if not look.same(row) or (row.format.grows and row.state is State.READING and row.offset != look.size):
                return  # written since; the next look finds out
            if desk.options.on_finish is OnFinish.DELETE:
                directory, base = folder.parent(name)
                os.unlink(base, dir_fd=directory)
            else:
                self._archive(folder, name, file, row)
        except BaseException:
            os.close(file)
            raise
        self._forget.append(key)
        desk.counted[Counted.FILES_FINISHED] += 1
        # Its writer may have added to it just now, or may do so in a moment.
        tracked = Tracked(name, self._keys(f"\0{name}\0{look.inode}"), row.format, row=row, look=look)
        self._late.append(_Late(tracked, file, desk.monotonic() + _GRACE_SECONDS, row))

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
                desk.system.rename(base, directory, target, target_folder)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy(file, target, target_folder)
                if not Look.of(os.fstat(file)).same(row):
                    os.unlink(target, dir_fd=target_folder)
                    raise OSError(errno.EAGAIN, "written while it was copied") from None
                os.unlink(base, dir_fd=directory)
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
        if self._forget:
            forgotten, self._forget = self._forget, []
            yield desk.delivery(positions={key: desk.ledger.put(key, None) for key in forgotten})
        for _ in range(len(self._late)):
            late = self._late.popleft()
            yield from self._read_late(late)
            if desk.clock < late.until and len(self._late) < _GRACE_FILES:
                self._late.append(late)
                continue
            left = os.fstat(late.file).st_size - (late.tracked.row.offset if late.tracked.row else 0)
            os.close(late.file)
            if left > 0 and late.tracked.grows:
                desk.counted[Counted.LOST_BYTES] += left
            if late.tracked.key in desk.ledger:
                yield desk.delivery(positions={late.tracked.key: desk.ledger.put(late.tracked.key, None)})

    def _read_late(self, late: _Late) -> Iterator[Delivery]:
        tracked, row = late.tracked, late.tracked.row
        look = Look.of(os.fstat(late.file))
        if row is None or not tracked.grows or row.state is State.FAILED or look.size <= row.offset:
            return
        with suppress(OSError):
            for delivery in self._reader.lines(late.file, look, tracked):
                delivery.counted[Counted.LATE_BYTES] += delivery.counted[Counted.BYTES_READ]
                yield delivery
