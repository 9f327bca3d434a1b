"""Rows of a CSV file with the lines they start at; a broken quote costs its own line and not those after it."""

import csv
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from monitor.decode.rejections import Problem, Reason
from monitor.decode.text import MAX_LINE_BYTES, NOT_UTF8, NUL_BYTES, PIECE_BYTES, TOO_LONG, Lines, read_lines

Rows = tuple[list[int], list[list[str]]]
"""The lines at which some rows start, and their cells."""

_MAX_LINES_A_ROW = 100
"""Lines that a quoted cell may span; a quote left open would otherwise swallow the rest of the file."""

_BAD_QUOTES = Problem(Reason.BAD_CSV, "quotes in pairs around whole cells", "others")


class CsvRows:
    """The header of a CSV file, and its rows chunk by chunk."""

    def __init__(self, path: Path) -> None:
        self._feed = _Feed(path)
        self._reader = csv.reader(self._feed, strict=True)
        self.header = self._read_header(path)

    def chunks(self, reject: Callable[[int, Problem], None]) -> Iterator[Rows]:
        """Yield all rows that have as many cells as the header, and reject the others."""
        more = True
        while more:
            numbers: list[int] = []
            rows: list[list[str]] = []
            self._feed.characters = 0
            with wide_cells():
                more = self._collect(numbers, rows, reject)
            if rows:
                yield numbers, rows

    def _read_header(self, path: Path) -> list[str]:
        with wide_cells():
            while True:
                row = self._next()
                if isinstance(row, Problem):
                    raise row.of_file(f"{path}, line {self._feed.first}")
                if row is None:
                    raise Problem(Reason.BAD_HEADER, "a header line", "an empty file").of_file(path)
                if any(cell.strip() for cell in row):
                    return row

    def _collect(self, numbers: list[int], rows: list[list[str]], reject: Callable[[int, Problem], None]) -> bool:
        while self._feed.characters < PIECE_BYTES:
            row = self._next()
            if row is None:
                return False
            if isinstance(row, Problem):
                reject(self._feed.first, row)
                self._feed.give_back()
            elif is_blank(row):
                continue
            elif len(row) != len(self.header):
                reject(self._feed.first, self._ragged(row))
                self._feed.give_back()
            elif row != self.header:  # exports appended to one another repeat it
                numbers.append(self._feed.first)
                rows.append(row)
        return True

    def _next(self) -> list[str] | Problem | None:
        """Return the next row, what is wrong with it, or None at the end."""
        self._feed.begin_row()
        try:
            return next(self._reader)
        except StopIteration:
            return None
        except csv.Error:
            return _BAD_QUOTES
        except _UnusableLine as unusable:
            # Only the first line is at fault for itself; when a later one is, a quote should have closed before it.
            return unusable.problem if unusable.is_first else _BAD_QUOTES

    def _ragged(self, row: list[str]) -> Problem:
        cells = str(len(row))
        return Problem(Reason.BAD_CSV, f"{len(self.header)} cells, as in the header", cells)


def is_blank(row: list[str]) -> bool:
    """Tell whether a row is a line with nothing in it."""
    return len(row) < 2 and not "".join(row).strip()


class _UnusableLine(Exception):
    def __init__(self, problem: Problem, *, is_first: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_first = is_first


class _Feed:
    """Gives lines to the csv module, remembers those of the current row, and can take them back."""

    def __init__(self, path: Path) -> None:
        self._lines = _texts(path)
        self._waiting: deque[tuple[int, str | Problem]] = deque()
        self._taken: list[tuple[int, str | Problem]] = []
        self.characters = 0

    @property
    def first(self) -> int:
        """The line at which the current row starts."""
        return self._taken[0][0]

    def begin_row(self) -> None:
        """Forget the lines of the row before."""
        self._taken = []

    def give_back(self) -> None:
        """Let the lines of the current row, except its first, be read again as rows of their own."""
        self._waiting.extendleft(reversed(self._taken[1:]))

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        """Return the next line; called by the csv module."""
        if len(self._taken) >= _MAX_LINES_A_ROW:
            raise _UnusableLine(_BAD_QUOTES, is_first=False)
        line = self._waiting.popleft() if self._waiting else next(self._lines)
        self._taken.append(line)
        if isinstance(line[1], Problem):
            raise _UnusableLine(line[1], is_first=len(self._taken) == 1)
        self.characters += len(line[1])
        return line[1]


def _texts(path: Path) -> Iterator[tuple[int, str | Problem]]:
    for piece in read_lines(path):
        yield from _decoded(piece)


def _decoded(piece: Lines) -> Iterator[tuple[int, str | Problem]]:
    for number, line in enumerate(piece.lines, piece.first):
        if number in piece.too_long:
            yield number, TOO_LONG
        elif b"\0" in line:
            yield number, NUL_BYTES
        else:
            try:
                yield number, line.decode()
            except UnicodeDecodeError:
                yield number, NOT_UTF8


@contextmanager
def wide_cells() -> Iterator[None]:
    """Let the csv module read cells of any length that a line may have."""
    # The limit belongs to the whole process, so it is put back as soon as a chunk is read.
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)
