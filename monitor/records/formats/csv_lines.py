"""CSV of a stream: a header line first, then exactly one line per record."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.records.batch_builder import BatchBuilder, ColumnBlock, ModelRouter
from monitor.records.columns import Values
from monitor.records.formats.text import LineBlock, without_mark
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.labels import Indices
from monitor.records.layout import OutputKind
from monitor.records.offline.csv_file import (
    are_plain,
    is_blank,
    is_number,
    missing_columns,
    no_number,
    problem_of_array,
    wide_cells,
)
from monitor.records.outputs import decode_vector, matrix_at_once, matrix_one_by_one
from monitor.records.record_schema import ModelFormat, RecordFields, unknown_class_columns
from monitor.records.rejections import Reason, RejectionProblem

Row = list[str]
Rows = list[tuple[int, Row]]
"""Indexes of lines in a block, and their cells."""


@dataclass(frozen=True, slots=True)
class Header:
    """The column names of a file."""

    names: tuple[str, ...]

    def place(self, name: str) -> int | None:
        """Return the index of a column; None if it is absent."""
        return self.names.index(name) if name in self.names else None


class CsvLines:
    """Decodes blocks of CSV lines into column blocks."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields, wording: Wording = CONFIG_FILE) -> None:
        self._wording = wording
        self._models = models
        self._fields = fields
        self._router = ModelRouter(models)
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
        if isinstance(cells, Reason):
            return RejectionProblem(cells, "a header line", "another first line")
        header = Header(_stripped(cells))
        return self._problem_of_header(header) or header

    def _problem_of_header(self, header: Header) -> RejectionProblem | None:
        times = Counter(header.names)
        absent = [self._absent(model, header) for model in self._models]
        if all(absent):
            alike = sum(name.startswith("prob_") for name in header.names)
            if alike > 1 and absent[0] == ("probs",):
                found = f"{alike} columns named prob_…: {self._wording.verb} {self._wording.class_columns}"
                return RejectionProblem(Reason.BAD_HEADER, "a header with the column probs", found)
            return missing_columns(absent[0], header.names, None)
        if len(self._models) > 1 and not times[self._fields.model]:
            return missing_columns((self._fields.model,), header.names, None)
        if twice := [name for name in self._wanted() if times[name] > 1]:
            return RejectionProblem(Reason.BAD_HEADER, f"one column named {twice[0]}", f"{times[twice[0]]}")
        return self._unknown_class_columns(header)

    def _absent(self, model: ModelFormat, header: Header) -> tuple[str, ...]:
        return tuple(name for name in self._fields.outputs(model) if name not in header.names)

    def _wanted(self) -> list[str]:
        fields = self._fields
        single = [fields.model, fields.version, fields.id, fields.time, fields.predicted or ""]
        outputs = [name for model in self._models for name in fields.outputs(model)]
        segments = [fields.segment(name) for model in self._models for name in model.segment_fields]
        return list(dict.fromkeys(name for name in [*single, *outputs, *segments] if name))

    def _unknown_class_columns(self, header: Header) -> RejectionProblem | None:
        return unknown_class_columns(self._models, self._fields.prefix, header.names, self._wanted())

    def decode(self, block: LineBlock, builder: BatchBuilder, header: Header) -> None:
        """Decode a block."""
        rows: Rows = []
        with wide_cells():
            cells = _all_cells(block)
            for place in range(len(block)):
                row = _cells(block.line(place)) if cells is None else cells[place]
                if isinstance(row, Reason):
                    builder.reject("", place, row, block)
                elif is_blank(row) or (row[0].strip() == header.names[0] and _stripped(row) == header.names):
                    builder.ignored += 1  # concatenated exports repeat the header
                elif len(row) != len(header.names):
                    builder.reject("", place, Reason.BAD_CSV, block)
                else:
                    rows.append((place, row))
        if rows:
            self._route(rows, header, block, builder)

    def _route(self, rows: Rows, header: Header, block: LineBlock, builder: BatchBuilder) -> None:
        names = _column(rows, header, self._fields.model)
        for model, places in self._router.split(names, len(rows)):
            some = [rows[place] for place in places.tolist()]
            if isinstance(model, ModelFormat) and self._absent(model, header):
                model = Reason.MISSING_FIELD  # noqa: PLW2901
            if isinstance(model, Reason):
                for place, _ in some:
                    builder.reject("", place, model, block)
            else:
                self._add_records(model, some, header, block, builder)

    def _add_records(
        self, model: ModelFormat, rows: Rows, header: Header, block: LineBlock, builder: BatchBuilder
    ) -> None:
        outputs = self._outputs(model, rows, header)
        matrix = matrix_at_once(model, outputs)
        if matrix is None:

            def reject(row: int, reason: Reason | None) -> None:
                builder.reject(model.name, rows[row][0], reason or Reason.WRONG_TYPE, block)

            some = matrix_one_by_one(model, outputs, reject)
            if some is None:
                return
            matrix, kept = some
            rows = [rows[row] for row in kept.tolist()]
        fields = self._fields
        times = _column(rows, header, fields.time)
        numbers: Indices = np.array([place for place, _ in rows], dtype=np.int64)
        builder.add(
            model.name,
            ColumnBlock(
                numbers,
                matrix,
                None if times is None else [_time(cell) for cell in times],
                _column(rows, header, fields.id),
                _column(rows, header, fields.version),
                None if fields.predicted is None else _column(rows, header, fields.predicted),
                tuple(_column(rows, header, fields.segment(name)) for name in model.segment_fields),
            ),
        )

    def _outputs(self, model: ModelFormat, rows: Rows, header: Header) -> Sequence[Sequence[Any]]:
        places = [header.names.index(name) for name in self._fields.outputs(model)]
        if self._fields.class_columns is None and model.kind is not OutputKind.SCORE:
            return [[_vector(row[places[0]], model.kind) for _, row in rows]]
        try:
            columns = [[row[place] for _, row in rows] for place in places]
            if all(are_plain("".join(column)) for column in columns):
                return [list(map(float, column)) for column in columns]
        except ValueError:
            pass
        # A row with a non-number gets its reason in the first column.
        checked: list[list[Any]] = [[] for _ in places]
        for _, row in rows:
            odd = next((row[place] for place in places if not is_number(row[place])), None)
            for column, place in zip(checked, places, strict=True):
                column.append(float(row[place]) if odd is None else no_number(odd).reason)
        return checked


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


def _cells(line: bytes) -> Row | Reason:
    if b"\0" in line:
        return Reason.NUL_BYTES
    try:
        text = line.decode()
        if text.count('"') % 2:
            return Reason.BAD_CSV  # part of a cell with a newline
        with wide_cells():
            return next(csv.reader([text], strict=True), [])
    except UnicodeDecodeError:
        return Reason.BAD_ENCODING
    except csv.Error:
        return Reason.BAD_CSV


def _stripped(row: Row) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row)


def _column(rows: Rows, header: Header, name: str) -> Values | None:
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
        return problem_of_array(cell, kind).reason
