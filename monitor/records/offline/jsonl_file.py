"""JSON Lines for the offline commands: one object per line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from monitor.records.formats.json_problems import load, problem_of_record
from monitor.records.formats.text import NOT_UTF8, NUL_BYTES, TOO_LONG, TextLines, read_lines
from monitor.records.labels import Indices
from monitor.records.layout import ClassColumns, Layout, OutputKind, find_class_columns
from monitor.records.offline.offline_batch import Decoded, OfflineBatchBuilder, add_vectors
from monitor.records.outputs import Vector
from monitor.records.rejections import Reason, RejectionProblem

_MAX_NON_JSON_LINES = 100
"""Lines without a JSON object after which a file is rejected."""

_NO_OBJECTS = RejectionProblem(
    Reason.NOT_JSONL, "one JSON object per line", "none so far (pretty-printed JSON, or one array?)"
)

# ValueError: decode errors and invalid UTF-8.
_DECODE_ERRORS = (ValueError, RecursionError)


def read_jsonl(path: Path, layout: Layout) -> Decoded:
    """Read a whole JSON Lines file."""
    reader = _Reader(path, layout)
    for piece in read_lines(path):
        reader.take(piece)
    return reader.finish()


class _Reader:
    def __init__(self, path: Path, layout: Layout) -> None:
        self._path = path
        self._layout = layout
        self._builder = OfflineBatchBuilder(layout, str(path), "line", labelled=layout.label_field is not None)
        self._columns = layout.class_columns
        # With a prefix, the class columns are known after the first object that has some.
        self._decode = None if layout.prefix is not None else _typed_decoder(layout, self._columns)
        self._objects = 0
        self._others = 0

    def take(self, piece: TextLines) -> None:
        """Decode some lines."""
        for number in piece.too_long:
            self._builder.reject(number, TOO_LONG)
        filled = [place for place, line in enumerate(piece.lines) if line and not line.isspace()]
        lines = [piece.lines[place] for place in filled]
        numbers = np.array(filled, dtype=np.int64) + piece.first
        if self._decode is None:
            self._find_columns(lines)
        records = self._decoded(lines)
        if records is None:
            records, numbers = self._decoded_one_by_one(numbers, lines)
        self._objects += len(records)
        if records:
            self._take_records(numbers, records)

    def finish(self) -> Decoded:
        """Return the decoded file."""
        hints = (
            ()
            if self._objects or not self._others
            else (f"expected {_NO_OBJECTS.expected}, found {_NO_OBJECTS.found}",)
        )
        return self._builder.finish(*hints)

    def _find_columns(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                record = msgspec.json.decode(line)
            except _DECODE_ERRORS:
                continue
            found = find_class_columns(self._layout, tuple(record)) if isinstance(record, dict) else None
            if isinstance(found, ClassColumns):
                if found.classes is not None:
                    self._builder.fix_classes(found.classes)
                self._columns = found.columns
                self._decode = _typed_decoder(self._layout, found.columns)
                return

    def _decoded(self, lines: list[bytes]) -> list[Any] | None:
        """Return all lines as records; None if one of them is invalid."""
        decode = self._decode
        if decode is None:
            return None
        try:
            for line in lines:
                if not line.isascii():
                    line.decode()  # the typed decoder does not check fields that it skips
            return [decode(line) for line in lines]
        except _DECODE_ERRORS:
            return None

    def _decoded_one_by_one(self, numbers: Indices, lines: list[bytes]) -> tuple[list[Any], Indices]:
        records, kept = [], []
        for place, line in enumerate(lines):
            if one := self._decoded([line]):
                records.extend(one)
                kept.append(place)
            else:
                self._builder.reject(int(numbers[place]), self._problem_of(line))
                self._others += 1
                if not (self._objects or kept) and self._others >= _MAX_NON_JSON_LINES:
                    raise _NO_OBJECTS.of_file(self._path)
        return records, numbers[kept]

    def _problem_of(self, line: bytes) -> RejectionProblem:
        if b"\0" in line:
            return NUL_BYTES
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return NOT_UTF8
        value = load(text, "a JSON object")
        if isinstance(value, RejectionProblem):
            return value
        columns = self._columns
        if isinstance(value, dict):
            self._objects += 1
            if self._decode is None:
                found = find_class_columns(self._layout, tuple(value))
                if isinstance(found, RejectionProblem):
                    return found
                columns = found.columns
        problem = problem_of_record(value, self._layout, columns)
        return problem or RejectionProblem(
            Reason.BAD_JSON, "a JSON object", "one with a NaN or Infinity in another field"
        )

    def _take_records(self, numbers: Indices, records: list[Any]) -> None:
        labels = None if self._layout.label_field is None else [record.label for record in records]
        if self._columns is not None:
            width = len(self._columns)
            matrix = np.array([msgspec.structs.astuple(record)[:width] for record in records], dtype=np.float64)
            self._builder.add_matrix(numbers, matrix, labels)
        elif self._layout.kind is OutputKind.SCORE:
            scores = np.array([record.output_0 for record in records], dtype=np.float64)
            self._builder.add_matrix(numbers, scores[:, np.newaxis], labels)
        else:
            add_vectors(self._builder, numbers, [record.output_0 for record in records], labels)


def _typed_decoder(layout: Layout, columns: tuple[str, ...] | None) -> Callable[[bytes], Any]:
    """Return a typed decoder of the wanted fields, which skips all others."""
    output: Any = float if columns is not None or layout.kind is OutputKind.SCORE else Vector
    wanted = (layout.field or "",) if columns is None else columns
    names = {f"output_{place}": name for place, name in enumerate(wanted)}
    fields: list[tuple[str, Any]] = [(name, output) for name in names]
    if layout.label_field is not None:
        fields.append(("label", str | int | float))
        names["label"] = layout.label_field
    record = msgspec.defstruct("Record", fields, rename=names, gc=False)
    return msgspec.json.Decoder(record).decode
