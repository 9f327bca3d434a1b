"""Cuts a text that is complete into pieces as a growing one would give them."""

from collections.abc import Iterator

from monitor.decode.pieces import Format, TextPiece
from monitor.decode.text import Readable, read_fully

PIECE_BYTES = 1 << 20

MAX_LINE_BYTES = 1 << 20
"""What a line may have; a longer one is skipped to its newline, and never held as a whole."""


def text_pieces(where: str, text: Readable, format_: Format, skip: int) -> Iterator[TextPiece]:
    """Yield the lines of a text from after its first `skip` ones; the last one needs no newline."""
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
                # Whether the file is JSON Lines was settled by the lines that are left out.
                unproven = 0 if first == 1 else None
                yield TextPiece(where, format_, data[start:end], offset + start, first, head, tail, unproven)
            line += data.count(b"\n", 0, end)
            offset, continues = offset + end, False
        held = data[end:]
        if len(held) > MAX_LINE_BYTES:
            offset, held, continues = offset + len(held), b"", True
        if not more:
            if continues:
                yield TextPiece(where, format_, b"\n", offset, line, head, continues)
            return


def _after_lines(data: bytes, end: int, lines: int) -> tuple[int, int]:
    """Return where the text after some lines starts, and how many of these lines there were."""
    start = 0
    for count in range(lines):
        if start >= end:
            return end, count
        start = data.find(b"\n", start, end) + 1 or end
    return start, lines
