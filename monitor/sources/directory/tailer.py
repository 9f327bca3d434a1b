"""Tails files: reads complete lines from the checkpoint on, as many as the budget allows."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

import msgspec

from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.sources.base import Delivery
from monitor.sources.directory.directory_access import (
    FileStat,
    SafeDirectory,
    System,
    read_fully,
)
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import (
    BLOCK_BYTES,
    SMALL_BYTES,
    TAIL_BYTES,
    Failure,
    FileCheckpoint,
    FileState,
    TrackedFile,
    display_name,
    head_of,
    prefix_matches,
    starts_like,
    tail_of,
    with_head,
)
from monitor.sources.directory.poll_context import PollContext

HEADER_BYTES = 64 << 10
FILE_COST_BYTES = 4 << 10
"""The cost of opening a file in the budget, so that a poll of tiny files is short too."""
_SLOW_SECONDS = 0.5
"""After a block that takes longer to decode, the next one is smaller, so that a poll ends in time."""
_QUICK_SECONDS = 0.1
_SMALLEST_BLOCK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TailLines:
    """The data at an offset of a tailed file."""

    data: bytes = b""
    """Complete lines."""
    skipped: int = 0
    """Bytes of a line that is too long, and continues after them."""
    unfinished: int = 0
    """Bytes of a line without a newline; there may be more of it."""
    zeros: bool = False
    """Whether the next line contains zero bytes: not written yet, or never."""


def lines_at(
    system: System,
    file: int,
    offset: int,
    *,
    skipping: bool,
    max_line_bytes: int,
    zeros_until: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> TailLines:
    """Return the complete lines at an offset, at most about one block.

    `skipping` means that the offset is within a line that is too long. Zero bytes before `zeros_until` are accepted. A
    block starts at a line start; for a longer line more than a block is read.
    """
    # One more than the longest line: its newline.
    longest = max_line_bytes + 1
    length = min(block_bytes, longest)
    data = read_fully(system, file, length, offset)
    end = data.rfind(b"\n") + 1
    while not end and not skipping and len(data) == length < longest:
        length = min(4 * length, longest)
        data = read_fully(system, file, length, offset)
        end = data.rfind(b"\n") + 1
    # The rest of a line that is too long is rejected whatever it contains; only the lines after it matter.
    start = data.find(b"\n") + 1 if skipping else 0
    zero = data.find(0, max(start, zeros_until - offset))
    if zero >= 0 and (zero < end or not end) and not (skipping and not end):
        # Holes are filled in later by writers that write out of order, and by file systems after a crash.
        end = data.rfind(b"\n", 0, zero) + 1
        return TailLines(data[:end]) if end else TailLines(unfinished=len(data), zeros=True)
    if end:
        return TailLines(data[:end] if end < len(data) else data)
    if skipping or len(data) >= longest:
        return _skip(system, file, offset, data)
    return TailLines(unfinished=len(data))


def _skip(system: System, file: int, offset: int, data: bytes) -> TailLines:
    # Only zeros up to the end of the file: preallocated space, not a line.
    if data and not data.strip(b"\0") and not read_fully(system, file, BLOCK_BYTES, offset + len(data)).strip(b"\0"):
        return TailLines(unfinished=len(data), zeros=True)
    return TailLines(skipped=len(data))


def header_of(system: System, file: int, max_line_bytes: int) -> bytes:
    """Return the first bytes of a file with its header, the first line that is not blank."""
    start = read_fully(system, file, min(HEADER_BYTES, max_line_bytes + 1), 0)
    if b"\n" in start.lstrip() or len(start) > max_line_bytes:
        return start
    return read_fully(system, file, max_line_bytes + 1, 0)


class Tailer:
    """Reads JSON Lines and CSV files."""

    def __init__(self, context: PollContext) -> None:
        self._context = context

    def read(self, folder: SafeDirectory, tracked: TrackedFile) -> Iterator[Delivery]:
        """Deliver what is unread, at most the budget of one file. Raises OSError or OpenRefused."""
        self._context.bytes_left -= FILE_COST_BYTES
        with folder.opened(tracked.name) as (file, stat):
            yield from self.lines(file, stat, tracked)
        tracked.backoff = None

    def lines(self, file: int, stat: FileStat, tracked: TrackedFile) -> Iterator[Delivery]:
        """Deliver what is unread in an open file."""
        context = self._context
        checkpoint = tracked.checkpoint
        if checkpoint is None:
            checkpoint = context.new_checkpoint(tracked, stat)
        elif not self._is_same_file(file, stat, tracked, checkpoint):
            return
        tracked.observe(stat, context.clock)
        turn = min(context.options.bytes_per_file, max(context.bytes_left, FILE_COST_BYTES))
        end = 0
        while stat.size:
            lines = self._next_lines(file, tracked, checkpoint)
            taken = len(lines.data) or lines.skipped
            if not taken:
                yield from self._wait(file, stat, tracked, checkpoint, lines)
                return
            if checkpoint.offset + taken > stat.size:  # grew since it was opened
                stat = FileStat.of(os.fstat(file))
                tracked.observe(stat, context.clock)
            yield self._deliver_lines(file, stat, tracked, checkpoint, lines)
            if tracked.checkpoint is None or tracked.checkpoint.state is FileState.FAILED:
                return
            checkpoint = tracked.checkpoint
            turn -= taken
            context.bytes_left -= taken
            if turn > 0 and not context.time_is_up:
                continue
            # A file that was deleted meanwhile cannot be opened again, so it is read to its present end now. Its writer
            # may go on for ever: beyond that end the budget of the poll applies.
            status = os.fstat(file)
            end = end or status.st_size
            if status.st_nlink or (checkpoint.offset >= end and (context.bytes_left <= 0 or context.time_is_up)):
                tracked.observe(FileStat.of(status), context.clock)
                tracked.unread = checkpoint.offset < status.st_size
                return
        tracked.unread = False

    def _next_lines(self, file: int, tracked: TrackedFile, checkpoint: FileCheckpoint) -> TailLines:
        return lines_at(
            self._context.system,
            file,
            checkpoint.offset,
            skipping=checkpoint.skipping,
            max_line_bytes=self._context.options.max_line_bytes,
            zeros_until=self._zeros_until(tracked, checkpoint),
            block_bytes=tracked.block_bytes,
        )

    def _wait(
        self, file: int, stat: FileStat, tracked: TrackedFile, checkpoint: FileCheckpoint, lines: TailLines
    ) -> Iterator[Delivery]:
        """Leave a file until it grows."""
        tracked.unread, tracked.unfinished = False, lines.unfinished
        if lines.zeros:
            self._wait_for_zeros(tracked, checkpoint, stat)
        context = self._context
        if not checkpoint.offset and not starts_like(context.system, file, checkpoint):
            # No complete line yet, but if the file is rotated now, it is recognised by its first bytes.
            checkpoint = msgspec.structs.replace(context.with_stat(checkpoint, stat), changed_at=context.now)
            yield context.deliver(tracked, with_head(context.system, file, checkpoint))

    def _is_same_file(self, file: int, stat: FileStat, tracked: TrackedFile, checkpoint: FileCheckpoint) -> bool:
        """Return whether the opened file is the one that was examined; if not, the next poll resolves it."""
        before = tracked.stat or checkpoint
        if stat.inode != before.inode or stat.size < checkpoint.offset:
            return False
        if stat.size <= before.size and not stat.same(before):
            return False
        if not prefix_matches(self._context.system, file, checkpoint):
            tracked.needs_comparison = True
            return False
        return True

    def _deliver_lines(
        self, file: int, stat: FileStat, tracked: TrackedFile, checkpoint: FileCheckpoint, lines: TailLines
    ) -> Delivery:
        context, data = self._context, lines.data
        if lines.skipped:
            data = read_fully(context.system, file, lines.skipped, checkpoint.offset)
            checkpoint = msgspec.structs.replace(
                self._advanced(file, stat, checkpoint, data, data.count(b"\n"), checkpoint.non_json_lines),
                skipping=True,
            )
            return context.deliver(tracked, checkpoint, counted={DirectoryEvent.BYTES_READ: len(data)})
        if checkpoint.offset < checkpoint.skip_to:
            old = data[: data.rfind(b"\n", 0, checkpoint.skip_to - checkpoint.offset) + 1]
            if old:
                tally: dict[str, int] = {DirectoryEvent.BYTES_READ: len(old), DirectoryEvent.BYTES_SKIPPED: len(old)}
                passed = self._advanced(file, stat, checkpoint, old, old.count(b"\n"), checkpoint.non_json_lines)
                return context.deliver(tracked, passed, counted=tally)
        head = b""
        if checkpoint.format is Format.CSV:
            head = (
                header_of(context.system, file, context.options.max_line_bytes)
                if checkpoint.offset
                else data[:HEADER_BYTES]
            )
        block = TextPiece(
            display_name(tracked.key),
            checkpoint.format,
            data,
            checkpoint.offset,
            checkpoint.line,
            head,
            checkpoint.skipping,
            checkpoint.non_json_lines,
        )
        began = context.monotonic()
        batch = self._decoded(tracked.key, block)
        tracked.block_bytes = _next_size(tracked.block_bytes, context.monotonic() - began)
        if isinstance(batch, Failure):
            return context.fail(tracked, checkpoint, stat, batch)
        checkpoint = self._advanced(file, stat, checkpoint, data, batch.rows, batch.non_json_lines)
        return context.deliver(tracked, checkpoint, batch, {DirectoryEvent.BYTES_READ: len(data)})

    def _decoded(self, key: bytes, block: TextPiece) -> RecordBatch | Failure:
        text = self._context.decoder.text
        return self._context.decoded(key, block.offset, lambda: text(block), lambda: text(block))

    def _advanced(
        self, file: int, stat: FileStat, checkpoint: FileCheckpoint, data: bytes, lines: int, non_json_lines: int | None
    ) -> FileCheckpoint:
        """Return the checkpoint behind these bytes, which hold so many lines."""
        system = self._context.system
        offset = checkpoint.offset + len(data)
        head = tail = 0
        if offset > SMALL_BYTES:
            head = checkpoint.head if checkpoint.offset > SMALL_BYTES else head_of(system, file)
            tail = crc32(data[-TAIL_BYTES:]) if len(data) >= TAIL_BYTES else tail_of(system, file, offset)
        return FileCheckpoint(
            checkpoint.version,
            checkpoint.format,
            FileState.READING,
            stat.device,
            stat.inode,
            max(stat.size, offset),
            stat.modified_ns,
            offset,
            crc32(data, checkpoint.checksum),
            head,
            tail,
            checkpoint.line + lines,
            generation=checkpoint.generation,
            non_json_lines=non_json_lines,
            skip_to=checkpoint.skip_to if offset < checkpoint.skip_to else 0,
            changed_at=self._context.now,
            previous=checkpoint.previous,
        )

    def _zeros_until(self, tracked: TrackedFile, checkpoint: FileCheckpoint) -> int:
        """Return the offset up to which zero bytes have been waited for long enough."""
        if tracked.zeros_at < 0:
            return 0
        waited = self._context.clock - tracked.zeros_since
        if waited < self._context.options.partial_timeout_seconds:
            return 0
        return tracked.zeros_until if checkpoint.offset < tracked.zeros_until else 0

    def _wait_for_zeros(self, tracked: TrackedFile, checkpoint: FileCheckpoint, stat: FileStat) -> None:
        waited = self._context.clock - tracked.zeros_since
        if tracked.zeros_at != checkpoint.offset or waited >= self._context.options.partial_timeout_seconds:
            tracked.zeros_at, tracked.zeros_since = checkpoint.offset, self._context.clock
            tracked.zeros_until = stat.size


def _next_size(size: int, seconds: float) -> int:
    """Return the size of the next block, after one took this long to decode."""
    if seconds > _SLOW_SECONDS:
        return max(_SMALLEST_BLOCK_BYTES, size // 4)
    return min(BLOCK_BYTES, size * 2) if seconds < _QUICK_SECONDS else size
