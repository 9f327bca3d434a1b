"""JSON Lines: many lines decoded at once if each is provably one record, otherwise one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import msgspec
import numpy as np

from monitor.records.batch_builder import BatchBuilder, ColumnBlock, ModelRouter, ModelRules, take_classes
from monitor.records.formats.json_problems import DECODE_ERRORS, LineDiagnosis, LineDiagnostics, columns_of
from monitor.records.formats.text import LineBlock
from monitor.records.record_schema import FieldPath, ModelFormat, OutputKind, RecordSchema
from monitor.records.rejections import Reason, RejectionProblem
from monitor.records.vectors import (
    Floats,
    Indices,
    Vector,
    Vectors,
    matrix_at_once,
    matrix_one_by_one,
    vectors_one_by_one,
)

MAX_NON_JSON_LINES = 100
"""Lines without a JSON object after which a file is rejected."""

NO_OBJECTS = RejectionProblem(
    Reason.NOT_JSONL, "one JSON object per line", "none so far (pretty-printed JSON, or one array?)"
)

# Decoded objects of this size stay in the CPU cache until they become columns.
_TOGETHER_BYTES = 3 << 15

# The cache of diagnoses, for short lines that repeat.
_REMEMBERED_BYTES, _REMEMBERED_LINES = 256, 256

_TEXT = str | int | float | None

_SINGLE_TYPES: dict[str, Any] = {
    "model": _TEXT,
    "version": _TEXT,
    "id": str | int | None,
    "time": float | str | None,
    # Any value: an invalid one counts as a mismatch.
    "predicted": Any,
    "label": str | int | float,
}

_MOST_IN_A_TUPLE = 1_000

Columns = Mapping[FieldPath, Sequence[Any]]
"""Values by path: None for a missing optional field, UNSET for missing outputs."""


@dataclass(slots=True)
class _Node:
    """A field with a value, or with nested fields."""

    types: list[Any] = field(default_factory=list)
    required: bool = False
    inside: dict[str, "_Node"] = field(default_factory=dict)


class JsonStruct:
    """The typed decoder of records, nested fields too, and the conversion of records into columns."""

    def __init__(self, schema: RecordSchema) -> None:
        self._root = _Level(_tree(schema))
        decoder = msgspec.json.Decoder[Any](self._root.struct)
        self.decode = decoder.decode
        self.decode_lines = decoder.decode_lines

    def columns(self, records: Sequence[Any]) -> Columns:
        """Return the values of records by path."""
        found: dict[FieldPath, Sequence[Any]] = {}
        self._root.add_columns((), records, found)
        return found


class _Level:
    """The struct for one level of nesting."""

    def __init__(self, node: _Node) -> None:
        self._below = {name: _Level(child) for name, child in node.inside.items() if child.inside}
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        renamed = {}
        # Required fields come first.
        self._names = tuple(sorted(node.inside, key=lambda name: not node.inside[name].required))
        for place, name in enumerate(self._names):
            child = node.inside[name]
            own = f"field_{place}"
            renamed[own] = name
            kind = self._below[name].struct if name in self._below else reduce(or_, child.types)
            if child.required:
                fields.append((own, kind))
            elif name in self._below:
                fields.append((own, kind | None, None))
            else:
                is_output = msgspec.UnsetType in child.types
                fields.append((own, kind, msgspec.UNSET if is_output else None))
        self.struct: type[Any] = msgspec.defstruct("Record", fields, rename=renamed, gc=False)

    def add_columns(self, path: FieldPath, records: Sequence[Any], found: dict[FieldPath, Sequence[Any]]) -> None:
        """Add the values of records to `found`."""
        columns = zip(*map(msgspec.structs.astuple, records), strict=True)
        for name, column in zip(self._names, columns, strict=True):
            here = (*path, name)
            if name not in self._below:
                found[here] = column
                continue
            below = self._below[name]
            absent = None if None not in column else below.struct()
            below.add_columns(here, [absent if one is None else one for one in column], found)


def _tree(schema: RecordSchema) -> _Node:
    root = _Node()
    for name, path in schema.single_paths().items():
        _place(root, path, _SINGLE_TYPES[name], required=name == "label")
    for model in schema.models:
        for path in schema.segment_paths(model):
            _place(root, path, _TEXT, required=False)
    # Required only if all models have the same output fields.
    required = len({schema.output_paths(model) for model in schema.models}) == 1
    for model in schema.models:
        kind = _output_type(model, schema)
        for path in schema.output_paths(model):
            _place(root, path, kind if required else kind | msgspec.UnsetType, required=required)
            if not required:
                _place(root, path, msgspec.UnsetType, required=False)
    return root


def _output_type(model: ModelFormat, schema: RecordSchema) -> Any:  # noqa: ANN401 - a type
    if model.kind is OutputKind.SCORE or schema.fields.class_columns is not None:
        return float
    # A tuple of known length decodes faster than a list, but a union of two lengths is not possible.
    if len(schema.models) == 1 and 0 < model.width <= _MOST_IN_A_TUPLE:
        return tuple.__class_getitem__((float,) * model.width) | dict[str, float]
    return Vector


def _place(root: _Node, path: FieldPath, kind: Any, *, required: bool) -> None:  # noqa: ANN401 - a type, or a union of some
    node = root
    for name in path:
        node = node.inside.setdefault(name, _Node())
        node.required |= required
    node.types.append(kind)


class JsonLines:
    """Decodes blocks of JSON Lines into column blocks."""

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
        self._router = ModelRouter(rules)
        self._rules = rules
        self._diagnoses: dict[bytes, LineDiagnosis] = {}
        self._use(schema)

    def _use(self, schema: RecordSchema) -> None:
        self._schema = schema
        self._struct = JsonStruct(schema)
        self._diagnostics = LineDiagnostics(schema, self._router)
        self._outputs = {model.name: schema.output_paths(model) for model in schema.models}
        self._single = schema.single_paths()
        self._segments = {model.name: schema.segment_paths(model) for model in schema.models}

    def _find_columns(self, block: LineBlock) -> None:
        """Take the class columns from the first object that has some."""
        for line in block.lines(range(len(block))):
            try:
                record = msgspec.json.decode(line)
            except DECODE_ERRORS:
                continue
            found = columns_of(self._schema, record) if isinstance(record, dict) else None
            if isinstance(found, RecordSchema):
                take_classes(found, self._rules)
                self._use(found)
                return

    def decode(self, block: LineBlock, builder: BatchBuilder, non_json_lines: int | None) -> int | None:
        """Decode a block; return the number of lines of the file that are not JSON, None after the first object."""
        if self._schema.needs_columns:
            self._find_columns(block)
        self.forget()
        braced = block.braced()
        for first, after in _cuts(block):
            together = braced[first:after].all() and not self._schema.needs_columns
            records = self.decode_together(block, first, after, builder) if together else None
            if records is not None:
                non_json_lines = None
                self.add(np.arange(first, after), records, block, builder)
            else:
                non_json_lines = self.decode_one_by_one(range(first, after), block, builder, non_json_lines)
        return non_json_lines

    def forget(self) -> None:
        """Keep no content beyond a block."""
        self._diagnoses.clear()

    def decode_together(self, block: LineBlock, first: int, after: int, builder: BatchBuilder) -> list[Any] | None:
        """Return the records of lines that all start and end with a brace; None unless each line is one record.

        The decoder allows whitespace between and within records, but no newline in a string. Everywhere else `}`, newline
        and `{` can only separate two records. So as many records as lines means one record per line.
        """
        text = block.text[block.bounds(first)[0] : block.bounds(after - 1)[1]]
        try:
            records = self._struct.decode_lines(text)
            if len(records) == after - first and (builder.is_ascii or is_utf8(text)):
                return records
        except DECODE_ERRORS:
            pass
        return None

    def decode_one_by_one(
        self, places: range, block: LineBlock, builder: BatchBuilder, non_json_lines: int | None
    ) -> int | None:
        """Decode lines that may be anything; return as `decode` does."""
        records, kept = [], []
        rejected: dict[LineDiagnosis, list[int]] = {}
        for place, line in zip(places, block.lines(places), strict=True):
            diagnosis = self._diagnoses.get(line)
            if diagnosis is None:
                if not line or line.isspace():
                    builder.ignored += 1
                    continue
                record = self._decoded(line)
                if record is not None:
                    non_json_lines = None
                    records.append(record)
                    kept.append(place)
                    continue
                diagnosis = self._diagnosis(line)
            rejected.setdefault(diagnosis, []).append(place)
            if diagnosis.is_object:
                non_json_lines = None
            elif non_json_lines is not None:
                non_json_lines += 1
                if non_json_lines >= MAX_NON_JSON_LINES:
                    raise NO_OBJECTS.of_file(builder.where)
        for diagnosis, some in rejected.items():
            builder.reject_all(diagnosis.model, some, diagnosis.problem, block)
        if records:
            self.add(np.array(kept, dtype=np.int64), records, block, builder)
        return non_json_lines

    def _diagnosis(self, line: bytes) -> LineDiagnosis:
        """Return why a line is rejected, cached for equal lines."""
        diagnosis = self._diagnostics.diagnosis(line)
        if len(line) <= _REMEMBERED_BYTES:
            if len(self._diagnoses) >= _REMEMBERED_LINES:
                self._diagnoses.clear()
            self._diagnoses[line] = diagnosis
        return diagnosis

    def _decoded(self, line: bytes) -> Any | None:  # noqa: ANN401 - a struct made at run time
        if self._schema.needs_columns:
            return None
        try:
            if not line.isascii():
                line.decode()  # the typed decoder does not check fields that it skips
            return self._struct.decode(line)
        except DECODE_ERRORS:
            return None

    def add(self, numbers: Indices, records: list[Any], block: LineBlock, builder: BatchBuilder) -> None:
        """Add decoded records to the batch, by model."""
        columns = self._struct.columns(records)
        named = columns[self._single["model"]] if "model" in self._single else None
        for model, rows in self._router.split(named, len(records)):
            if isinstance(model, Reason):
                for row in rows.tolist():
                    builder.reject("", int(numbers[row]), model, block)
            elif len(rows) == len(records):
                self._add_records(model, numbers, columns, block, builder)
            else:
                some = self._struct.columns([records[row] for row in rows.tolist()])
                self._add_records(model, numbers[rows], some, block, builder)

    def _add_records(
        self, model: ModelFormat, numbers: Indices, columns: Columns, block: LineBlock, builder: BatchBuilder
    ) -> None:
        outputs = [columns[path] for path in self._outputs[model.name]]
        matrix: Floats | Vectors | None = matrix_at_once(model, outputs)
        rows: list[int] | None = None
        if matrix is None:
            rejected: dict[RejectionProblem | Reason, list[int]] = {}

            def reject(row: int, problem: RejectionProblem | None) -> None:
                place = int(numbers[row])
                rejected.setdefault(problem or self._diagnosis(block.line(place)).problem, []).append(place)

            some = matrix_one_by_one(model, outputs, reject) if model.width else vectors_one_by_one(outputs[0], reject)
            for problem, places in rejected.items():
                builder.reject_all(model.name, places, problem, block)
            if some is None or not len(some[1]):
                return
            matrix, kept = some
            numbers, rows = numbers[kept], kept.tolist()

        def column(path: FieldPath) -> Sequence[object]:
            return columns[path] if rows is None else [columns[path][row] for row in rows]

        single = {name: column(path) for name, path in self._single.items()}
        columns_of_model = ColumnBlock(
            numbers,
            matrix,
            single.get("time"),
            single.get("id"),
            single.get("version"),
            single.get("predicted"),
            tuple(column(path) for path in self._segments[model.name]),
            single.get("label"),
        )
        builder.add(model.name, columns_of_model, block)


def is_utf8(text: memoryview) -> bool:
    """Return whether a text is UTF-8, which the typed decoder does not check in fields that it skips."""
    try:
        str(text, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _cuts(block: LineBlock) -> Iterator[tuple[int, int]]:
    """Yield which lines to decode together."""
    limits = np.arange(_TOGETHER_BYTES, len(block.text), _TOGETHER_BYTES)
    edges = [0, *np.unique(np.searchsorted(block.ends, limits)).tolist(), len(block)]
    for first, after in pairwise(edges):
        if first < after:
            yield first, after
