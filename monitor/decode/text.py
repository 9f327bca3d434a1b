"""Lines of a text file, read in pieces: bounded memory whatever the file holds, and no line lost or misnumbered."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from monitor.decode.gzip_text import GzipText
from monitor.decode.rejections import Problem, Reason

MAX_LINE_BYTES = 16 << 20
PIECE_BYTES = 2 << 20

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")

TOO_LONG = Problem(Reason.LINE_TOO_LONG, f"a line of at most {MAX_LINE_BYTES >> 20} MiB", "a longer one")
NOT_UTF8 = Problem(Reason.BAD_ENCODING, "text in UTF-8", "bytes that are not")
NUL_BYTES = Problem(Reason.NUL_BYTES, "text", "zero bytes")


class Readable(Protocol):
    """What text is read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes, and none only at the end."""


def read_fully(file: Readable, size: int) -> bytes:
    """Return so many bytes, or fewer only at the end."""
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines of a file, without their newlines."""

    first: int
    """The number of the first of them; a file starts with line 1."""
    lines: list[bytes]
    too_long: tuple[int, ...] = ()
    """Numbers of lines that were not kept: an empty one stands in their place."""


def read_lines(path: Path) -> Iterator[Lines]:
    """Read a file piece by piece; the last line needs no newline."""
    with path.open("rb") as file:
        is_packed = path.suffix.lower() == ".gz"
        yield from _pieces(path, GzipText(str(path), file) if is_packed else file)


def without_mark(data: bytes, where: Path | str) -> bytes:
    """Return the start of a text without its byte-order mark; refuse UTF-16 and UTF-32."""
    _refuse_utf16(where, data[:4])
    return data.removeprefix(_UTF8_MARK)


def _refuse_utf16(path: Path | str, start: bytes) -> None:
    # Text whose second, or first and third, bytes are zero is UTF-16 or UTF-32 without a mark.
    if start.startswith(_UTF16_MARKS) or (len(start) == 4 and start.count(0) in {2, 3}):
        raise Problem(Reason.BAD_ENCODING, "a text file in UTF-8", "UTF-16 or UTF-32").of_file(path)


def _pieces(path: Path, file: Readable) -> Iterator[Lines]:
    number = 1
    parts: list[bytes] = []
    held = 0
    skipping = False
    # However little is read at once, the start of a file is looked at as a whole.
    start = without_mark(read_fully(file, max(4, PIECE_BYTES)), path)
    while piece := start or file.read(PIECE_BYTES):
        start = b""
        whole, newline, rest = piece.rpartition(b"\n")
        if newline:
            lines = whole.split(b"\n")
            lines[0] = b"".join([*parts, lines[0]])
            too_long: tuple[int, ...] = ()
            if skipping or len(lines[0]) > MAX_LINE_BYTES:
                lines[0], too_long = b"", (number,)
            yield Lines(number, lines, too_long)
            number += len(lines)
            parts, held, skipping = [], 0, False
        if not skipping:
            parts.append(rest)
            held += len(rest)
        if held > MAX_LINE_BYTES:
            parts, held, skipping = [], 0, True
    if skipping:
        yield Lines(number, [b""], (number,))
    elif held:
        yield Lines(number, [b"".join(parts)])
