"""CSV: a header line first, then one line per record; for the offline commands, rows may have several lines."""

import csv
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.records.batch_builder import (
    NO_OUTPUTS,
    BatchBuilder,
    ColumnBlock,
    ModelRouter,
    ModelRules,
    take_classes,
)
from monitor.records.columns import Values
from monitor.records.formats.json_problems import load, problem_of_output
from monitor.records.formats.text import (
    MAX_OFFLINE_LINE_BYTES,
    NOT_UTF8,
    NUL_BYTES,
    PIECE_BYTES,
    TOO_LONG,
    LineBlock,
    without_mark,
)
from monitor.records.hints import Wording
from monitor.records.record_batch import RecordBatch, TextPiece, bare_pointer
from monitor.records.record_schema import ModelFormat, OutputKind, RecordSchema
from monitor.records.rejections import Reason, RejectionProblem, listed
from monitor.records.vectors import (
    Floats,
    Indices,
    Vectors,
    decode_vector,
    matrix_at_once,
    matrix_one_by_one,
    vectors_one_by_one,
)

Row = list[str]
Rows = list[tuple[int, Row]]
"""Indexes of lines, and their cells."""

_MAX_LINES_A_ROW = 100
"""The limit on lines of a quoted cell: an unclosed quote would swallow the rest of the file."""

_BAD_QUOTES = RejectionProblem(Reason.BAD_CSV, "quotes in pairs around whole cells", "unbalanced quotes")


@dataclass(frozen=True, slots=True)
class Header:
    """The column names of a file."""

    names: tuple[str, ...]

    def place(self, name: str | None) -> int | None:
        """Return the index of a column; None if it is absent."""
        return self.names.index(name) if name in self.names else None

    def problem_of_cells(self, row: Row) -> RejectionProblem | None:
        """Return the problem if a row has more or fewer cells."""
        if len(row) == len(self.names):
            return None
        return RejectionProblem(Reason.BAD_CSV, f"{len(self.names)} cells, as in the header", str(len(row)))


class CsvLines:
    """Decodes CSV into column blocks."""

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules], wording: Wording) -> None:
        self._schema = schema
        self._wording = wording
        self._rules = rules
        self._router = ModelRouter(rules)
        self._known: tuple[bytes, Header] | None = None

    def header(self, head: bytes, where: str) -> Header | None:
        """Return the header of a file from its first bytes; raises `RejectedFile` if it lacks required columns.

        None if there are only blank lines so far.
        """
        first = _first_line(without_mark(head, where))
        if first is None:
            return None
        if self._known is None or self._known[0] != first:
            header = self._read_header(first)
            if isinstance(header, RejectionProblem):
                raise header.of_file(where)
            self._known = first, header
        return self._known[1]

    def _read_header(self, line: bytes) -> Header | RejectionProblem:
        cells = _cells(line)
        if isinstance(cells, RejectionProblem):
            return RejectionProblem(cells.reason, "a header line", "another first line")
        return self._checked(_stripped(cells))

    def _checked(self, names: tuple[str, ...]) -> Header | RejectionProblem:
        """Return the header with these column names, or the problem."""
        fields = self._schema.fields
        if self._schema.needs_columns:
            found = self._schema.with_columns(names)
            if isinstance(found, RejectionProblem):
                is_missing = found.reason is Reason.MISSING_FIELD
                return self._missing(fields.class_columns or (), names, found.expected) if is_missing else found
            take_classes(found, self._rules)
            self._schema = found
        header = Header(names)
        absent = [self._absent(model, header) for model in self._schema.models]
        if all(absent):
            return self._missing(absent[0], names)
        required = [fields.label] if len(absent) == 1 else [fields.label, fields.model]
        if missing := tuple(name for name in required if name is not None and name not in names):
            return self._missing(missing, names)
        times = Counter(names)
        if twice := [name for name in self._wanted() if times[name] > 1]:
            return RejectionProblem(Reason.BAD_HEADER, f"one column named {twice[0]}", f"{times[twice[0]]}")
        return self._schema.unknown_class_columns(fields.prefix, names, self._wanted()) or header

    def _missing(self, wanted: tuple[str, ...], header: Sequence[str], expected: str | None = None) -> RejectionProblem:
        """Return the problem of missing columns."""
        expected = expected or f"a header with the column{'s' if len(wanted) > 1 else ''} {listed(wanted)}"
        for separator, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if any(separator in cell for cell in header):
                return RejectionProblem(Reason.BAD_HEADER, "commas between the cells", f"{name}: save it with commas")
        if all(is_number(cell) for cell in header):
            return RejectionProblem(Reason.BAD_HEADER, expected, "a first line of numbers")
        alike = sum(name.startswith("prob_") for name in header)
        if alike > 1 and wanted == ("probs",):
            found = f"{alike} columns named prob_…: {self._wording.verb} {self._wording.class_columns}"
            return RejectionProblem(Reason.BAD_HEADER, expected, found)
        # Without the names: in a file without a header they are values.
        return RejectionProblem(Reason.BAD_HEADER, expected, f"a first line of {len(header)} other cells")

    def _absent(self, model: ModelFormat, header: Header) -> tuple[str, ...]:
        return tuple(name for name in self._schema.outputs(model) if name not in header.names)

    def _wanted(self) -> list[str]:
        fields, models = self._schema.fields, self._schema.models
        single = [getattr(fields, name) for name in self._schema.single_paths()]
        outputs = [name for model in models for name in self._schema.outputs(model)]
        return list(dict.fromkeys([*single, *outputs, *map(fields.segment, self._schema.named_fields())]))

    def whole_file(self, where: str, pieces: Iterator[TextPiece]) -> Iterator[RecordBatch]:
        """Decode a file whose rows may have several lines."""
        feed = _Feed(pieces)
        reader = _RowReader(feed)
        header = self._checked(_stripped(reader.header(where)))
        if isinstance(header, RejectionProblem):
            raise header.of_file(where)
        more = True
        while more:
            builder = BatchBuilder(where, self._rules, 0, explained="line")
            rows: Rows = []
            feed.characters = 0
            with wide_cells():
                more = reader.collect(rows, header, builder)
            if rows:
                self._route(rows, header, None, builder)
            builder.end_block()
            yield builder.finish(len(rows), lambda: bare_pointer)

    def decode(self, block: LineBlock, builder: BatchBuilder, header: Header) -> None:
        """Decode a block."""
        rows: Rows = []
        with wide_cells():
            cells = _all_cells(block)
            for place in range(len(block)):
                row = _cells(block.line(place)) if cells is None else cells[place]
                if isinstance(row, RejectionProblem):
                    builder.reject("", place, row, block)
                elif is_blank(row) or (row[0].strip() == header.names[0] and _stripped(row) == header.names):
                    builder.ignored += 1  # concatenated exports repeat the header
                elif (problem := header.problem_of_cells(row)) is not None:
                    builder.reject("", place, problem, block)
                else:
                    rows.append((place, row))
        if rows:
            self._route(rows, header, block, builder)

    def _route(self, rows: Rows, header: Header, block: LineBlock | None, builder: BatchBuilder) -> None:
        names = _column(rows, header, self._schema.fields.model)
        for model, places in self._router.split(names, len(rows)):
            some = [rows[place] for place in places.tolist()]
            problem = model if isinstance(model, Reason) else NO_OUTPUTS
            if isinstance(model, Reason) or self._absent(model, header):
                for place, _ in some:
                    builder.reject("", place, problem, block)
            else:
                self._add_records(model, some, header, block, builder)

    def _add_records(
        self, model: ModelFormat, rows: Rows, header: Header, block: LineBlock | None, builder: BatchBuilder
    ) -> None:
        outputs = self._outputs(model, rows, header)
        matrix: Floats | Vectors | None = matrix_at_once(model, outputs, len(rows))
        if matrix is None:

            def reject(row: int, problem: RejectionProblem | None) -> None:
                builder.reject(model.name, rows[row][0], problem or Reason.WRONG_TYPE, block)

            some = matrix_one_by_one(model, outputs, reject) if model.width else vectors_one_by_one(outputs[0], reject)
            if some is None or not len(some[1]):
                return
            matrix, kept = some
            rows = [rows[row] for row in kept.tolist()]
        fields = self._schema.fields
        times, label = _column(rows, header, fields.time), header.place(fields.label)
        numbers: Indices = np.array([place for place, _ in rows], dtype=np.int64)
        columns = ColumnBlock(
            numbers,
            matrix,
            None if times is None else [_time(cell) for cell in times],
            _column(rows, header, fields.id),
            _column(rows, header, fields.version),
            _column(rows, header, fields.predicted),
            tuple(_column(rows, header, fields.segment(name)) for name in model.segment_fields),
            None if label is None else [row[label].strip() for _, row in rows],
            None if model.group_by is None else _column(rows, header, fields.segment(model.group_by)),
        )
        builder.add(model.name, columns, block)

    def _outputs(self, model: ModelFormat, rows: Rows, header: Header) -> Sequence[Sequence[Any]]:
        places = [header.names.index(name) for name in self._schema.outputs(model)]
        if places and self._schema.fields.class_columns is None and model.kind is not OutputKind.SCORE:
            return [[_vector(row[places[0]], model.kind) for _, row in rows]]
        try:
            columns = [[row[place] for _, row in rows] for place in places]
            if all(are_plain("".join(column)) for column in columns):
                return [list(map(float, column)) for column in columns]
        except ValueError:
            pass
        # A row with a non-number gets its problem in the first column.
        checked: list[list[Any]] = [[] for _ in places]
        for _, row in rows:
            odd = next((row[place] for place in places if not is_number(row[place])), None)
            for column, place in zip(checked, places, strict=True):
                column.append(float(row[place]) if odd is None else no_number(odd))
        return checked


class _RowReader:
    """Reads rows of one or more lines."""

    def __init__(self, feed: "_Feed") -> None:
        self._feed = feed
        self._reader = csv.reader(feed, strict=True)

    def header(self, where: str) -> Row:
        """Return the first row that is not blank."""
        with wide_cells():
            while True:
                row = self._next()
                if isinstance(row, RejectionProblem):
                    raise row.of_file(f"{where}, line {self._feed.first}")
                if row is None:
                    raise RejectionProblem(Reason.BAD_HEADER, "a header line", "an empty file").of_file(where)
                if any(cell.strip() for cell in row):
                    return row

    def collect(self, rows: Rows, header: Header, builder: BatchBuilder) -> bool:
        """Add the next rows with as many cells as the header, and reject others; return whether there are more."""
        while self._feed.characters < PIECE_BYTES:
            row = self._next()
            if row is None:
                return False
            problem = row if isinstance(row, RejectionProblem) else None
            if not isinstance(row, RejectionProblem):
                if is_blank(row) or _stripped(row) == header.names:  # concatenated exports repeat it
                    continue
                problem = header.problem_of_cells(row)
                if problem is None:
                    rows.append((self._feed.first, row))
            if problem is not None:
                builder.reject("", self._feed.first, problem)
                self._feed.give_back()
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

    def __init__(self, pieces: Iterator[TextPiece]) -> None:
        self._lines = (line for piece in pieces for line in _decoded(piece))
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


def _decoded(piece: TextPiece) -> Iterator[tuple[int, str | RejectionProblem]]:
    data = piece.data if piece.offset else without_mark(piece.data, piece.where)
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n"), piece.line):
        if piece.continues and number == piece.line:
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
    before = csv.field_size_limit(MAX_OFFLINE_LINE_BYTES)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _first_line(head: bytes) -> bytes | None:
    """Return the first line that is not blank."""
    start = 0
    while start < len(head):
        end = head.find(b"\n", start)
        end = len(head) if end < 0 else end
        if line := head[start:end].strip():
            return line
        start = end + 1
    return None


def _all_cells(block: LineBlock) -> list[Row] | None:
    """Return the cells of all lines; None unless each line is one row."""
    text = bytes(block.text)
    if b"\0" in text or block.has_odd_quotes():
        return None
    try:
        lines = text.decode().split("\n")[:-1]
        rows = list(csv.reader(lines, strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    # As many rows as lines: each row is one line.
    return rows if len(rows) == len(lines) else None


def _cells(line: bytes) -> Row | RejectionProblem:
    if b"\0" in line:
        return NUL_BYTES
    try:
        text = line.decode()
        if text.count('"') % 2:
            return _BAD_QUOTES  # part of a cell with a newline
        with wide_cells():
            return next(csv.reader([text], strict=True), [])
    except UnicodeDecodeError:
        return NOT_UTF8
    except csv.Error:
        return _BAD_QUOTES


def _stripped(row: Row) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row)


def _column(rows: Rows, header: Header, name: str | None) -> Values | None:
    place = header.place(name)
    return None if place is None else [row[place].strip() or None for _, row in rows]


def _time(cell: object) -> object:
    try:
        return float(cell) if isinstance(cell, str) and are_plain(cell) else cell
    except ValueError:
        return cell


def _vector(cell: str, kind: OutputKind) -> object:
    try:
        return decode_vector(cell)
    except (ValueError, RecursionError):
        return problem_of_array(cell, kind)


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
