"""Reads files while they are written: whole lines, from where we stand, as much as one turn allows."""

import os
from collections.abc import Iterator
from zlib import crc32

import msgspec

from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.sources.base import Delivery
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import Failure, FileCheckpoint, FileState, called
from monitor.sources.directory.file_identity import (
    SMALL_BYTES,
    TAIL_BYTES,
    FileLook,
    begins_like,
    begun,
    head_of,
    quickly_matches,
    tail_of,
)
from monitor.sources.directory.open_files import OpenRefused, SafeDirectory, is_missing
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.system_calls import read_fully
from monitor.sources.directory.tracked_file import (
    BLOCK_BYTES,
    HEADER_BYTES,
    TailLines,
    TrackedFile,
    header_of,
    lines_at,
)

FILE_COST_BYTES = 4 << 10
"""What opening a file counts for in the budget, so that a tick of tiny files is short too."""
_SLOW_SECONDS = 0.5
"""A piece that takes longer to decode is followed by a smaller one, so that a poll can end in time."""
_QUICK_SECONDS = 0.1
_SMALLEST_PIECE_BYTES = 64 << 10


class Tailer:
    """Reads JSON Lines and CSV files."""

    def __init__(self, context: PollContext) -> None:
        self._context = context

    def read(self, folder: SafeDirectory, tracked: TrackedFile) -> Iterator[Delivery]:
        """Deliver what is there to be read, at most one turn's worth."""
        context = self._context
        context.left -= FILE_COST_BYTES
        try:
            with folder.opened(tracked.name) as (file, look):
                yield from self.lines(file, look, tracked)
            tracked.failures = 0
        except OpenRefused as refused:
            tracked.unread, tracked.refused = False, True
            context.refuse(tracked.key, tracked.entry, refused.refusal)
        except OSError as error:
            # One that has gone since it was listed is noticed by the next poll.
            if is_missing(error):
                tracked.unread = False
            else:
                context.unreadable(tracked, error)

    def lines(self, file: int, look: FileLook, tracked: TrackedFile) -> Iterator[Delivery]:
        """Deliver what is there to be read in an open file."""
        context = self._context
        row = tracked.row
        if row is None:
            row = context.new_row(tracked, look)
        elif not self._still_is(file, look, tracked, row):
            return
        tracked.sees(look, context.clock)
        turn = min(context.options.bytes_per_file, max(context.left, FILE_COST_BYTES))
        end = 0
        while look.size:
            lines = self._next_lines(file, tracked, row)
            taken = len(lines.data) or lines.skipped
            if not taken:
                yield from self._wait(file, look, tracked, row, lines)
                return
            if row.offset + taken > look.size:  # it has grown since it was opened
                look = FileLook.of(os.fstat(file))
                tracked.sees(look, context.clock)
            yield self._take(file, look, tracked, row, lines)
            if tracked.row is None or tracked.row.state is FileState.FAILED:
                return
            row = tracked.row
            turn -= taken
            context.left -= taken
            if turn > 0 and not context.time_is_up:
                continue
            # A file that was deleted while we read it cannot be opened again: its turn lasts to its end. Its writer may
            # go on for ever, so beyond where its end is now only as long as this poll may read.
            status = os.fstat(file)
            end = end or status.st_size
            if status.st_nlink or (row.offset >= end and (context.left <= 0 or context.time_is_up)):
                tracked.sees(FileLook.of(status), context.clock)
                tracked.unread = row.offset < status.st_size
                return
        tracked.unread = False

    def _next_lines(self, file: int, tracked: TrackedFile, row: FileCheckpoint) -> TailLines:
        return lines_at(
            self._context.system,
            file,
            row.offset,
            skipping=row.skipping,
            max_line_bytes=self._context.options.max_line_bytes,
            zeros_until=self._zeros_until(tracked, row),
            block_bytes=tracked.piece_bytes,
        )

    def _wait(
        self, file: int, look: FileLook, tracked: TrackedFile, row: FileCheckpoint, lines: TailLines
    ) -> Iterator[Delivery]:
        """Leave a file until more is written to it."""
        tracked.unread, tracked.unfinished = False, lines.unfinished
        if lines.zeros:
            self._wait_for_zeros(tracked, row, look)
        context = self._context
        if not row.offset and not begins_like(context.system, file, row):
            # Not a line yet, but should the file be rotated now, it is known again by how it begins.
            row = msgspec.structs.replace(context.seen_row(row, look), changed_at=context.now)
            yield context.deliver(tracked, begun(context.system, file, row))

    def _still_is(self, file: int, look: FileLook, tracked: TrackedFile, row: FileCheckpoint) -> bool:
        """Tell whether the file just opened is the one that was looked at; if not, the next poll sorts it out."""
        before = tracked.look or row
        if look.inode != before.inode or look.size < row.offset:
            return False
        if look.size <= before.size and not look.same(before):
            return False
        if not quickly_matches(self._context.system, file, row):
            tracked.doubtful = True
            return False
        return True

    def _take(self, file: int, look: FileLook, tracked: TrackedFile, row: FileCheckpoint, lines: TailLines) -> Delivery:
        context, data = self._context, lines.data
        if lines.skipped:
            data = read_fully(context.system, file, lines.skipped, row.offset)
            row = msgspec.structs.replace(self._after(file, look, row, data, row.unproven), skipping=True)
            return context.deliver(tracked, row, counted={DirectoryEvent.BYTES_READ: len(data)})
        if row.offset < row.skip_to:
            old = data[: data.rfind(b"\n", 0, row.skip_to - row.offset) + 1]
            if old:
                tally = {DirectoryEvent.BYTES_READ: len(old), DirectoryEvent.BYTES_SKIPPED: len(old)}
                return context.deliver(tracked, self._after(file, look, row, old, row.unproven), counted=tally)
        head = b""
        if row.format is Format.CSV:
            head = (
                header_of(context.system, file, context.options.max_line_bytes) if row.offset else data[:HEADER_BYTES]
            )
        piece = TextPiece(called(tracked.key), row.format, data, row.offset, row.line, head, row.skipping, row.unproven)
        began = context.monotonic()
        arrived = self._decoded(tracked.key, piece)
        tracked.piece_bytes = _next_size(tracked.piece_bytes, context.monotonic() - began)
        if isinstance(arrived, Failure):
            return context.fail(tracked, row, look, arrived)
        row = self._after(file, look, row, data, arrived.unproven)
        return context.deliver(tracked, row, arrived, {DirectoryEvent.BYTES_READ: len(data)})

    def _decoded(self, key: bytes, piece: TextPiece) -> RecordBatch | Failure:
        text = self._context.decoder.text
        return self._context.decoded(key, piece.offset, lambda: text(piece), lambda: text(piece))

    def _after(
        self, file: int, look: FileLook, row: FileCheckpoint, data: bytes, unproven: int | None
    ) -> FileCheckpoint:
        """Return the row once these bytes are taken."""
        system = self._context.system
        offset = row.offset + len(data)
        head = tail = 0
        if offset > SMALL_BYTES:
            head = row.head if row.offset > SMALL_BYTES else head_of(system, file)
            tail = crc32(data[-TAIL_BYTES:]) if len(data) >= TAIL_BYTES else tail_of(system, file, offset)
        return FileCheckpoint(
            row.version,
            row.format,
            FileState.READING,
            look.device,
            look.inode,
            max(look.size, offset),
            look.modified_ns,
            offset,
            crc32(data, row.checksum),
            head,
            tail,
            row.line + data.count(b"\n"),
            generation=row.generation,
            unproven=unproven,
            skip_to=row.skip_to if offset < row.skip_to else 0,
            changed_at=self._context.now,
            previous=row.previous,
        )

    def _zeros_until(self, tracked: TrackedFile, row: FileCheckpoint) -> int:
        """Return up to where zero bytes have been waited for long enough."""
        if tracked.zeros_at < 0:
            return 0
        waited = self._context.clock - tracked.zeros_since
        if waited < self._context.options.partial_timeout_seconds:
            return 0
        return tracked.zeros_until if row.offset < tracked.zeros_until else 0

    def _wait_for_zeros(self, tracked: TrackedFile, row: FileCheckpoint, look: FileLook) -> None:
        waited = self._context.clock - tracked.zeros_since
        if tracked.zeros_at != row.offset or waited >= self._context.options.partial_timeout_seconds:
            tracked.zeros_at, tracked.zeros_since = row.offset, self._context.clock
            tracked.zeros_until = look.size


def _next_size(size: int, seconds: float) -> int:
    """Return how much to read next, after a piece took so long to decode."""
    if seconds > _SLOW_SECONDS:
        return max(_SMALLEST_PIECE_BYTES, size // 4)
    return min(BLOCK_BYTES, size * 2) if seconds < _QUICK_SECONDS else size
