"""The lines of a piece of text, found with numpy in blocks of bounded size."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from monitor.records.labels import Indices

BLOCK_BYTES = 1 << 20
"""Bytes that are decoded and judged together; what is kept of each line meanwhile stays small beside them."""

# What numpy looks at in one go stays in a core's cache.
_SEARCHED_BYTES = 1 << 17

_NEWLINE, _RETURN, _OPEN, _CLOSE, _QUOTE = b'\n\r{}"'


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Consecutive whole lines."""

    text: memoryview
    first: int
    """Which line of the piece the first one is, counting from 0."""
    start: int
    """Where it starts in the piece."""
    ends: Indices
    """Where each line's newline stands in the block."""

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.ends)

    @property
    def starts(self) -> Indices:
        """Where each line starts in the block."""
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
        """Return where a line starts and ends in the block."""
        return int(self.ends[place - 1]) + 1 if place else 0, int(self.ends[place])

    def has_odd_quotes(self) -> bool:
        """Tell whether some line has an odd number of quotes."""
        quotes = np.flatnonzero(np.frombuffer(self.text, dtype=np.uint8) == _QUOTE)
        return bool((np.searchsorted(quotes, self.ends) % 2).any())

    def braced(self) -> NDArray[np.bool_]:
        """Tell which lines start with an opening brace and end with a closing one."""
        characters = np.frombuffer(self.text, dtype=np.uint8)
        last = characters[self.ends - 1]
        closed = last == _CLOSE
        if not closed.all():
            before = characters[np.maximum(self.ends - 2, 0)]
            closed |= (last == _RETURN) & (before == _CLOSE)
        braced: NDArray[np.bool_] = closed & (characters[self.starts] == _OPEN)
        return braced


def line_blocks(data: bytes, *, skip_first: bool = False) -> Iterator[LineBlock]:
    """Yield the lines of a text; the last one should have a newline, and is read all the same if it has none."""
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
        block = LineBlock(text, first, start, _newlines(text))
        yield block
        start, first = end, first + len(block)


def _newlines(text: memoryview) -> Indices:
    characters = np.frombuffer(text, dtype=np.uint8)
    found = [
        np.flatnonzero(characters[start : start + _SEARCHED_BYTES] == _NEWLINE) + start
        for start in range(0, len(characters), _SEARCHED_BYTES)
    ]
    return np.concatenate(found)
