"""Text files, plain or gzip: lines and blocks of lines in bounded memory."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from monitor.records.record_batch import MAX_LINE_BYTES, Format, TextPiece
from monitor.records.rejections import Reason, RejectionProblem
from monitor.records.vectors import Indices

PIECE_BYTES = 1 << 20

MAX_OFFLINE_LINE_BYTES = 16 << 20
"""As `MAX_LINE_BYTES`, for the offline commands."""

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

TOO_LONG = RejectionProblem(
    Reason.LINE_TOO_LONG, f"a line of at most {MAX_OFFLINE_LINE_BYTES >> 20} MiB", "a longer one"
)
NOT_UTF8 = RejectionProblem(Reason.BAD_ENCODING, "text in UTF-8", "other bytes")
NUL_BYTES = RejectionProblem(Reason.NUL_BYTES, "text", "NUL bytes")


class Readable(Protocol):
    """A binary file."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none only at the end."""


def read_fully(file: Readable, size: int) -> bytes:
    """Return `size` bytes; fewer only at the end."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def without_mark(data: bytes, where: Path | str) -> bytes:
    """Return the start of a text without its byte-order mark; raises `RejectedFile` for UTF-16 and UTF-32."""
    _refuse_utf16(where, data[:4])
    return data.removeprefix(_UTF8_MARK)


def _refuse_utf16(path: Path | str, start: bytes) -> None:
    # Two or three NUL bytes among the first four: UTF-16 or UTF-32 without a mark.
    if start.startswith(_UTF16_MARKS) or (len(start) == 4 and start.count(0) in {2, 3}):
        raise RejectionProblem(Reason.BAD_ENCODING, "a text file in UTF-8", "UTF-16 or UTF-32").of_file(path)


MAX_EXPANDED_BYTES = 1 << 30
"""The limit on the unpacked size."""

SUSPECT_RATIO = 200
"""The limit on the compression ratio."""

HARMLESS_BYTES = 16 << 20
"""Below this size the ratio is not checked: constant records compress very well too."""

_READ_BYTES = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS

_CUT_SHORT = RejectionProblem(Reason.BAD_FILE, "a whole gzip file", "a truncated one")
_DAMAGED = RejectionProblem(Reason.BAD_FILE, "a gzip file", "a damaged one")


class GzipText:
    """The content of a gzip file. The constructor checks the whole file and raises `RejectedFile`."""

    def __init__(self, where: str, file: BinaryIO) -> None:
        self._where = where
        self._file = file
        self._start()
        while self.read(_READ_BYTES):
            pass
        self._start()

    def _start(self) -> None:
        self._file.seek(0)
        self._inflate = zlib.decompressobj(_GZIP)
        self._packed = b""
        self._taken = 0
        self._given = 0
        # An empty file is not a gzip file.
        self._inside = True

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes of the content; none only at the end."""
        while True:
            if not self._packed and not self._inflate.unconsumed_tail:
                self._packed = self._file.read(_READ_BYTES)
                self._taken += len(self._packed)
            given = self._inflate.unconsumed_tail or self._packed
            if not given and not self._inside:
                return b""
            self._packed = b""
            try:
                text = self._inflate.decompress(given, size)
            except zlib.error as error:
                raise _DAMAGED.of_file(self._where) from error
            if not given and not text:
                raise _CUT_SHORT.of_file(self._where)
            self._inside = True
            if self._inflate.eof:
                self._next_member()
            if text:
                self._count(text)
                return text

    def _next_member(self) -> None:
        # Gzip members may be concatenated and zero-padded.
        rest = self._inflate.unused_data
        while rest and not rest.strip(b"\0"):
            rest = self._file.read(_READ_BYTES)
            self._taken += len(rest)
        self._packed = rest.lstrip(b"\0")
        self._inflate = zlib.decompressobj(_GZIP)
        self._inside = False

    def _count(self, text: bytes) -> None:
        self._given += len(text)
        if self._given > MAX_EXPANDED_BYTES:
            expected = f"at most {MAX_EXPANDED_BYTES >> 30} GiB uncompressed"
            raise RejectionProblem(Reason.TOO_LARGE, expected, "more").of_file(self._where)
        if self._given > HARMLESS_BYTES and self._given > SUSPECT_RATIO * self._taken:
            expected = f"text at most {SUSPECT_RATIO} times larger than compressed"
            raise RejectionProblem(Reason.TOO_LARGE, expected, "more").of_file(self._where)


BLOCK_BYTES = 1 << 20
"""Bytes that are decoded and checked at once."""

_NEWLINE, _RETURN, _OPEN, _CLOSE, _QUOTE = b'\n\r{}"'


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive complete lines."""

    text: memoryview
    first: int
    """The index of the first line in the piece."""
    start: int
    """The offset of the first line in the piece."""
    ends: Indices
    """The offset of each newline in the block."""

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.ends)

    @property
    def starts(self) -> Indices:
        """The offset of each line in the block."""
        return np.concatenate([np.zeros(min(1, len(self.ends)), dtype=np.int64), self.ends[:-1] + 1])

    def line(self, place: int) -> bytes:
        """Return a line without its newline."""
        start, end = self.bounds(place)
        return bytes(self.text[start:end])

    def lines(self, places: range) -> Iterator[bytes]:
        """Yield consecutive lines without their newlines."""
        text = self.text
        start = self.bounds(places.start)[0] if places else 0
        for end in self.ends[places.start : places.stop].tolist():
            yield bytes(text[start:end])
            start = end + 1

    def bounds(self, place: int) -> tuple[int, int]:
        """Return the start and end of a line in the block."""
        return int(self.ends[place - 1]) + 1 if place else 0, int(self.ends[place])

    def has_odd_quotes(self) -> bool:
        """Return whether any line has an odd number of quotes."""
        quotes = np.flatnonzero(np.frombuffer(self.text, dtype=np.uint8) == _QUOTE)
        return bool((np.searchsorted(quotes, self.ends) % 2).any())

    def braced(self) -> NDArray[np.bool_]:
        """Return which lines start with `{` and end with `}`."""
        characters = np.frombuffer(self.text, dtype=np.uint8)
        last = characters[self.ends - 1]
        closed: NDArray[np.bool_] = last == _CLOSE
        if not closed.all():
            before = characters[np.maximum(self.ends - 2, 0)]
            closed |= (last == _RETURN) & (before == _CLOSE)
        closed[:1] &= characters[:1] == _OPEN
        closed[1:] &= characters[self.ends[:-1] + 1] == _OPEN
        return closed


def line_blocks(data: bytes, *, skip_first: bool = False) -> Iterator[LineBlock]:
    """Yield the lines of a text in blocks; the last line may lack its newline."""
    if data and not data.endswith(b"\n"):
        data += b"\n"
    view = memoryview(data)
    start = first = 0
    if skip_first:
        start, first = data.find(b"\n") + 1, 1
    while start < len(data):
        end = data.rfind(b"\n", start, start + BLOCK_BYTES) + 1
        if not end:  # a line longer than a block
            end = data.index(b"\n", start) + 1
        text = view[start:end]
        block = LineBlock(text, first, start, np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _NEWLINE))
        yield block
        start, first = end, first + len(block)


def text_pieces(
    where: str, text: Readable, format_: Format, skip: int, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[TextPiece]:
    """Yield the lines of a text after the first `skip`; the last one needs no newline."""
    head = b""
    held = b""
    offset, line = 0, 1
    continues = False
    while True:
        more = read_fully(text, PIECE_BYTES)
        data = held + more
        if format_ is Format.CSV and not offset:
            head = data
        end = data.rfind(b"\n") + 1 if more else len(data)
        if end:
            first, start, tail = line, 0, continues
            if line <= skip:
                start, lines = _after_lines(data, end, skip + 1 - line)
                first, tail = line + lines, False if start else continues
            if start < end:
                # The skipped lines have shown whether the file is JSON Lines.
                non_json_lines = 0 if first == 1 else None
                yield TextPiece(where, format_, data[start:end], offset + start, first, head, tail, non_json_lines)
            line += data.count(b"\n", 0, end)
            offset, continues = offset + end, False
        held = data[end:]
        if len(held) > max_line_bytes:
            offset, held, continues = offset + len(held), b"", True
        if not more:
            if continues:
                yield TextPiece(where, format_, b"\n", offset, line, head, continues)
            return


def _after_lines(data: bytes, end: int, lines: int) -> tuple[int, int]:
    """Return the offset after some lines, and the number of lines before it."""
    start = 0
    for count in range(lines):
        if start >= end:
            return end, count
        start = data.find(b"\n", start, end) + 1 or end
    return start, lines
