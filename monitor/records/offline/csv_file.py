"""CSV for the offline commands: a column of JSON arrays, or one column per class."""

import csv
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from monitor.records.formats.json_problems import load, problem_of_output
from monitor.records.formats.text import (
    MAX_LINE_BYTES,
    NOT_UTF8,
    NUL_BYTES,
    PIECE_BYTES,
    TOO_LONG,
    TextLines,
    read_lines,
)
from monitor.records.labels import Indices
from monitor.records.layout import Layout, OutputKind, find_class_columns
from monitor.records.offline.offline_batch import Decoded, OfflineBatchBuilder, add_vectors
from monitor.records.outputs import decode_vector
from monitor.records.rejections import Reason, RejectionProblem, listed

Rows = tuple[list[int], list[list[str]]]
"""The first line of each row, and its cells."""

_MAX_LINES_A_ROW = 100
"""The limit on lines of a quoted cell: an unclosed quote would swallow the rest of the file."""

_BAD_QUOTES = RejectionProblem(Reason.BAD_CSV, "quotes in pairs around whole cells", "unbalanced quotes")


class CsvRows:
    """The header of a CSV file, and its rows in chunks."""

    def __init__(self, path: Path) -> None:
        self._feed = _Feed(path)
        self._reader = csv.reader(self._feed, strict=True)
        self.header = self._read_header(path)

    def chunks(self, reject: Callable[[int, RejectionProblem], None]) -> Iterator[Rows]:
        """Yield the rows with as many cells as the header; reject the others."""
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
                if isinstance(row, RejectionProblem):
                    raise row.of_file(f"{path}, line {self._feed.first}")
                if row is None:
                    raise RejectionProblem(Reason.BAD_HEADER, "a header line", "an empty file").of_file(path)
                if any(cell.strip() for cell in row):
                    return row

    def _collect(
        self, numbers: list[int], rows: list[list[str]], reject: Callable[[int, RejectionProblem], None]
    ) -> bool:
        while self._feed.characters < PIECE_BYTES:
            row = self._next()
            if row is None:
                return False
            if isinstance(row, RejectionProblem):
                reject(self._feed.first, row)
                self._feed.give_back()
            elif is_blank(row):
                continue
            elif len(row) != len(self.header):
                reject(self._feed.first, self._ragged(row))
                self._feed.give_back()
            elif row != self.header:  # concatenated exports repeat it
                numbers.append(self._feed.first)
                rows.append(row)
        return True

    def _next(self) -> list[str] | RejectionProblem | None:
        """Return the next row, its problem, or None at the end."""
        self._feed.begin_row()
        try:
            return next(self._reader)
        except StopIteration:
            return None
        except csv.Error:
            return _BAD_QUOTES
        except _UnusableLine as unusable:
            # A bad line that is not the first of its row means an unclosed quote before it.
            return unusable.problem if unusable.is_first else _BAD_QUOTES

    def _ragged(self, row: list[str]) -> RejectionProblem:
        cells = str(len(row))
        return RejectionProblem(Reason.BAD_CSV, f"{len(self.header)} cells, as in the header", cells)


def is_blank(row: list[str]) -> bool:
    """Return whether a row is a blank line."""
    return len(row) < 2 and not "".join(row).strip()


class _UnusableLine(Exception):
    def __init__(self, problem: RejectionProblem, *, is_first: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_first = is_first


class _Feed:
    """Feeds lines to the csv module; the lines of the current row can be read again."""

    def __init__(self, path: Path) -> None:
        self._lines = _texts(path)
        self._waiting: deque[tuple[int, str | RejectionProblem]] = deque()
        self._taken: list[tuple[int, str | RejectionProblem]] = []
        self.characters = 0

    @property
    def first(self) -> int:
        """The first line of the current row."""
        return self._taken[0][0]

    def begin_row(self) -> None:
        """Forget the lines of the previous row."""
        self._taken = []

    def give_back(self) -> None:
        """Read the lines of the current row again, except its first, as separate rows."""
        self._waiting.extendleft(reversed(self._taken[1:]))

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        """Return the next line; called by the csv module."""
        if len(self._taken) >= _MAX_LINES_A_ROW:
            raise _UnusableLine(_BAD_QUOTES, is_first=False)
        line = self._waiting.popleft() if self._waiting else next(self._lines)
        self._taken.append(line)
        if isinstance(line[1], RejectionProblem):
            raise _UnusableLine(line[1], is_first=len(self._taken) == 1)
        self.characters += len(line[1])
        return line[1]


def _texts(path: Path) -> Iterator[tuple[int, str | RejectionProblem]]:
    for piece in read_lines(path):
        yield from _decoded(piece)


def _decoded(piece: TextLines) -> Iterator[tuple[int, str | RejectionProblem]]:
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
    """Raise the csv module's field size limit to the limit on lines."""
    # The limit is global to the process, so it is restored after each chunk.
    before = csv.field_size_limit(MAX_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The cells to read."""

    numbers: tuple[int, ...]
    """Cells with one number each; empty if a single cell holds an array."""
    array: int | None
    label: int | None


def read_csv(path: Path, layout: Layout) -> Decoded:
    """Read a whole CSV file."""
    rows = CsvRows(path)
    builder = OfflineBatchBuilder(layout, str(path), "line", labelled=layout.label_field is not None)
    plan = _plan([name.strip() for name in rows.header], layout, builder)
    if isinstance(plan, RejectionProblem):
        raise plan.of_file(path)
    for chunk in rows.chunks(builder.reject):
        if plan.array is None:
            _take_numbers(chunk, plan, builder)
        else:
            _take_arrays(chunk, plan.array, plan, layout, builder)
    return builder.finish()


def _plan(header: list[str], layout: Layout, builder: OfflineBatchBuilder) -> _Plan | RejectionProblem:
    if layout.class_columns is not None:
        found = find_class_columns(layout, header)
        if isinstance(found, RejectionProblem):
            is_missing = found.reason is Reason.MISSING_FIELD
            return missing_columns(layout.class_columns, header, found) if is_missing else found
        if found.classes is not None:
            builder.fix_classes(found.classes)
        wanted = found.columns
    else:
        wanted = (layout.field or "",)
    labels = () if layout.label_field is None else (layout.label_field,)
    times = Counter(header)
    if absent := tuple(name for name in (*wanted, *labels) if not times[name]):
        return missing_columns(absent, header, None)
    if twice := [name for name in (*wanted, *labels) if times[name] > 1]:
        return RejectionProblem(Reason.BAD_HEADER, f"one column named {twice[0]}", f"{times[twice[0]]}")
    place_of = {name: place for place, name in enumerate(header)}
    places = tuple(place_of[name] for name in wanted)
    label = None if layout.label_field is None else place_of[layout.label_field]
    is_array = layout.class_columns is None and layout.kind is not OutputKind.SCORE
    return _Plan(() if is_array else places, places[0] if is_array else None, label)


def missing_columns(
    wanted: tuple[str, ...], header: Sequence[str], otherwise: RejectionProblem | None
) -> RejectionProblem:
    """Return the problem of missing columns."""
    expected = f"a header with the column{'s' if len(wanted) > 1 else ''} {listed(wanted)}"
    for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if any(separator in cell for cell in header):
            return RejectionProblem(Reason.BAD_HEADER, "commas between the cells", f"{name}: save it with commas")
    if all(is_number(cell) for cell in header):
        return RejectionProblem(Reason.BAD_HEADER, expected, "a first line of numbers")
    alike = tuple(name for name in header if name.startswith("prob_"))
    if otherwise is None and len(alike) > 1 and wanted[0] == "probs":
        return RejectionProblem(Reason.BAD_HEADER, expected, f"columns {listed(alike)}: add --class-columns 'prob_*'")
    # Without the names: in a file without a header they are values.
    found = f"a first line of {len(header)} other cells"
    return RejectionProblem(Reason.BAD_HEADER, expected if otherwise is None else otherwise.expected, found)


def _take_numbers(chunk: Rows, plan: _Plan, builder: OfflineBatchBuilder) -> None:
    numbers, rows = chunk
    cells = [[row[place] for place in plan.numbers] for row in rows]
    try:
        if not all(are_plain("".join(row)) for row in cells):
            raise ValueError  # noqa: TRY301
        matrix = np.array(cells, dtype=np.float64)
        kept: Sequence[int] = range(len(rows))
    except ValueError:
        kept = []
        for place, row in enumerate(cells):
            odd = next((cell for cell in row if not is_number(cell)), None)
            if odd is None:
                kept.append(place)
            else:
                builder.reject(numbers[place], no_number(odd))
        matrix = np.array([cells[place] for place in kept], dtype=np.float64).reshape(-1, len(plan.numbers))
    builder.add_matrix(np.array(numbers, dtype=np.int64)[list(kept)], matrix, _labels(rows, kept, plan))


def _take_arrays(chunk: Rows, array: int, plan: _Plan, layout: Layout, builder: OfflineBatchBuilder) -> None:
    numbers, rows = chunk
    kept: list[int] = []
    vectors = []
    for place, row in enumerate(rows):
        try:
            vectors.append(decode_vector(row[array]))
            kept.append(place)
        except (ValueError, RecursionError):
            builder.reject(numbers[place], problem_of_array(row[array], layout.kind))
    lines: Indices = np.array(numbers, dtype=np.int64)[kept]
    add_vectors(builder, lines, vectors, _labels(rows, kept, plan))


def _labels(rows: list[list[str]], kept: Sequence[int], plan: _Plan) -> list[object] | None:
    return None if plan.label is None else [rows[place][plan.label].strip() for place in kept]


def problem_of_array(cell: str, kind: OutputKind) -> RejectionProblem:
    """Return the problem with a vector cell."""
    expected = "a JSON array of numbers"
    if not cell.strip():
        return RejectionProblem(Reason.WRONG_TYPE, expected, "an empty cell")
    value = load(cell, expected)
    problem = value if isinstance(value, RejectionProblem) else problem_of_output(value, kind)
    return problem or RejectionProblem(Reason.BAD_JSON, expected, "something else")


def is_number(cell: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return are_plain(cell)


def are_plain(cells: str) -> bool:
    """Return whether cells are free of Python's own number syntax: underscores and other digits."""
    return cells.isascii() and "_" not in cells


def no_number(cell: str) -> RejectionProblem:
    """Return the problem with a number cell."""
    if not cell.strip():
        return RejectionProblem(Reason.WRONG_TYPE, "a number", "an empty cell")
    if is_number(cell.replace(",", ".")):
        return RejectionProblem(Reason.WRONG_TYPE, "a number with a decimal point", "a decimal comma")
    return RejectionProblem(Reason.WRONG_TYPE, "a number", f"a string of {len(cell)} characters")
