"""Reads whole files once they are complete: NumPy arrays, Parquet, Arrow, gzip."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import msgspec

from monitor.records.record_batch import RecordBatch
from monitor.sources.base import Delivery
from monitor.sources.directory.directory_access import FileStat, SafeDirectory
from monitor.sources.directory.directory_options import DirectoryEvent
from monitor.sources.directory.file_checkpoint import (
    CRASH,
    DECODER_ERROR,
    Failure,
    FileCheckpoint,
    FileState,
    PrefixCheck,
    TrackedFile,
    display_name,
)
from monitor.sources.directory.poll_context import PollContext
from monitor.sources.directory.tailer import FILE_COST_BYTES

_OPEN_FILES = 4
"""Files being decoded at a time, so that one of them does not block the others.

The one opened last is a guest: it is closed when another file waits, so that long files do not block short ones. The
others stay open until done, because resuming a file may mean decompressing everything before.
"""
_GUEST_TURNS = 2
"""Budgets that a guest gets before it is closed."""
_ROW_BYTES = 128
"""The cost of a row in the budget."""


@dataclass(slots=True)
class _Decoding:
    """A file being decoded."""

    tracked: TrackedFile
    file: BinaryIO
    stat: FileStat
    blocks: Iterator[RecordBatch]
    ahead: RecordBatch | Failure | None
    """The block after those delivered, None at the end: needed to know which block is the last."""
    check: PrefixCheck
    """The checksum of the whole file, kept in case it is closed and opened again."""
    turns: int = 0
    """How often some of it was delivered since it was opened."""


class WholeFileReader:
    """Decides when files are complete, and reads them."""

    def __init__(self, context: PollContext) -> None:
        self._context = context
        self._open: dict[bytes, _Decoding] = {}

    def close(self) -> None:
        """Close all files being decoded; they resume at their checkpoint."""
        for key in list(self._open):
            self.drop(key)

    def drop(self, key: bytes) -> None:
        """Close one file."""
        if (decoding := self._open.pop(key, None)) is not None:
            decoding.file.close()

    def examine(self, tracked: TrackedFile, stat: FileStat, *, marked: bool) -> None:
        """Update the metadata of a file, and decide whether it can be read."""
        context, checkpoint = self._context, tracked.checkpoint
        changed = tracked.observe(stat, context.clock)
        if changed:
            tracked.failed_at = tracked.check = None
            self.drop(tracked.key)
        tracked.settling = False
        if checkpoint is not None and checkpoint.state is not FileState.READING and stat.same(checkpoint):
            tracked.unread = False
            return
        if tracked.failed_at is not None:
            tracked.unread = context.clock - tracked.failed_at >= context.options.retry_incomplete_seconds
        elif context.options.completion_marker:
            tracked.unread = marked
        else:
            patience = context.options.settle_seconds * 2 ** min(tracked.failures, 4)
            still = not changed and context.clock - tracked.since >= patience
            tracked.unread = stat.size > 0 and (still or tracked.known_complete)
        # Without a marker only time decides, so it is just a matter of waiting.
        tracked.settling = stat.size > 0 and not tracked.unread and not context.options.completion_marker

    def read(self, folder: SafeDirectory, tracked: TrackedFile) -> Iterator[Delivery]:
        """Deliver what the budget of one file allows. Raises OSError or OpenRefused."""
        context = self._context
        context.bytes_left -= FILE_COST_BYTES
        if tracked.failed_at is not None and tracked.checkpoint is not None and tracked.stat is not None:
            tracked.failed_at = None
            yield context.fail(tracked, tracked.checkpoint, tracked.stat, tracked.failure or DECODER_ERROR)
            return
        opened = tracked.key not in self._open
        if opened and (delivery := self._begin(folder, tracked)) is not None:
            yield delivery
        decoding = self._open.get(tracked.key)
        # Its first block was decoded, which may have used up the time.
        if decoding is not None and not (opened and context.time_is_up):
            yield from self._deliver_blocks(tracked, decoding)

    def _begin(self, folder: SafeDirectory, tracked: TrackedFile) -> Delivery | None:
        """Compute the checksum of a file, which may take several polls, then open it for decoding."""
        context = self._context
        file, stat = folder.open(tracked.name)
        try:
            if tracked.stat is None or not stat.same(tracked.stat):
                # Changed again: the next poll starts a new wait.
                tracked.unread, tracked.settling = False, True
                return None
            check = tracked.check = tracked.check or PrefixCheck(stat.size, None)
            if check.done < check.length:
                done = context.step(check, file)
                if done is False:
                    tracked.unread, tracked.settling, tracked.check = False, True, None
                    return None
                if done is None or context.time_is_up:
                    return None
            if not self._has_room():
                return None
            tracked.check = None
            checkpoint, delivery = self._resume_checkpoint(tracked, stat, check.checksum)
            tracked.checkpoint = checkpoint
            if checkpoint.state is FileState.READING:
                stream = os.fdopen(file, "rb")
                file = -1
                blocks = self._decoded(tracked, stream, checkpoint.rows)
                self._open[tracked.key] = _Decoding(tracked, stream, stat, blocks, None, check)
                self._open[tracked.key].ahead = self._next(tracked, checkpoint.rows)
        finally:
            if file >= 0:
                os.close(file)
        return delivery

    def _has_room(self) -> bool:
        """Return whether one more file may be opened, closing the guest if necessary."""
        if len(self._open) < _OPEN_FILES:
            return True
        key, guest = next(reversed(self._open.items()))
        if guest.turns < _GUEST_TURNS:
            return False
        guest.tracked.check = guest.check
        self.drop(key)
        return True

    def _resume_checkpoint(
        self, tracked: TrackedFile, stat: FileStat, checksum: int
    ) -> tuple[FileCheckpoint, Delivery | None]:
        """Return the checkpoint to resume from if the content is unchanged, else a new one."""
        context, old = self._context, tracked.checkpoint
        if old is not None and (old.checksum, old.offset) == (checksum, stat.size):
            checkpoint = context.with_stat(old, stat)
            if checkpoint.state is FileState.READING:
                return checkpoint, None
            tracked.unread = False
            return checkpoint, context.deliver(tracked, checkpoint)
        checkpoint = msgspec.structs.replace(context.new_checkpoint(tracked, stat), checksum=checksum, offset=stat.size)
        if old is None or (old.state is FileState.READING and not old.rows):
            if old is not None and old.skip_to:
                checkpoint = msgspec.structs.replace(checkpoint, state=FileState.COMPLETE)
                tracked.unread = False
                return checkpoint, context.deliver(
                    tracked, checkpoint, counted={DirectoryEvent.BYTES_SKIPPED: stat.size}
                )
            return checkpoint, None
        checkpoint = msgspec.structs.replace(checkpoint, generation=old.generation + 1)
        return checkpoint, context.deliver(tracked, checkpoint, counted={DirectoryEvent.FILES_REPLACED: 1})

    def _deliver_blocks(self, tracked: TrackedFile, decoding: _Decoding) -> Iterator[Delivery]:
        context = self._context
        turn = context.options.bytes_per_file
        decoding.turns += 1
        while True:
            checkpoint, block = tracked.checkpoint, decoding.ahead
            if checkpoint is None or not FileStat.of(os.fstat(decoding.file.fileno())).same(decoding.stat):
                # Changed while it was read: it must settle and be compared again.
                self.drop(tracked.key)
                tracked.unread, tracked.settling = False, True
                return
            if isinstance(block, Failure):
                self.drop(tracked.key)
                yield from self._failed(tracked, checkpoint, block)
                return
            rows = 0 if block is None else block.rows
            decoding.ahead = None if block is None else self._next(tracked, checkpoint.rows + rows)
            complete = decoding.ahead is None
            checkpoint = msgspec.structs.replace(
                checkpoint,
                rows=checkpoint.rows + rows,
                state=FileState.COMPLETE if complete else FileState.READING,
                non_json_lines=None,
                changed_at=context.now,
            )
            tally: dict[str, int] = {DirectoryEvent.BYTES_READ: decoding.stat.size} if complete else {}
            if complete:
                self.drop(tracked.key)
                tracked.unread, tracked.failures, tracked.backoff = False, 0, None
            turn -= rows * _ROW_BYTES
            context.bytes_left -= rows * _ROW_BYTES
            yield context.deliver(tracked, checkpoint, block, tally)
            if complete or turn <= 0 or context.time_is_up or self._open.get(tracked.key) is not decoding:
                return

    def _failed(self, tracked: TrackedFile, checkpoint: FileCheckpoint, failure: Failure) -> Iterator[Delivery]:
        """Wait whether the file still changes. Input that crashes the decoder gets no second chance."""
        context = self._context
        tracked.unread = False
        if failure is CRASH and tracked.stat is not None:
            yield context.fail(tracked, checkpoint, tracked.stat, failure)
            return
        tracked.settling = True
        tracked.checkpoint = checkpoint
        tracked.failed_at, tracked.failure = context.clock, failure
        tracked.failures = min(tracked.failures + 1, 20)

    def _next(self, tracked: TrackedFile, rows: int) -> RecordBatch | Failure | None:
        decoding = self._open[tracked.key]
        return self._context.decoded(
            tracked.key,
            rows,
            lambda: next(decoding.blocks, None),
            lambda: self._first_block(tracked, decoding, rows),
        )

    def _decoded(self, tracked: TrackedFile, file: BinaryIO, rows: int) -> Iterator[RecordBatch]:
        """Decode from a given row on; raises nothing before the first block is requested."""
        yield from self._context.decoder.settled(display_name(tracked.key), file, tracked.format, skip=rows)

    def _first_block(self, tracked: TrackedFile, decoding: _Decoding, rows: int) -> None:
        """Decode one block in a child process. It opens the file again, to have its own file position."""
        with open(f"/proc/self/fd/{decoding.file.fileno()}", "rb") as file:  # noqa: PTH123 - no path, a descriptor
            next(self._decoded(tracked, file, rows), None)
