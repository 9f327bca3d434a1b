"""JSON Lines: many lines decoded at once if each is provably one record, otherwise one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import pairwise
from operator import or_
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.core.record_columns import Texts
from monitor.records.batch_builder import BatchBuilder, ColumnBlock, ModelRouter, ModelRules, take_classes
from monitor.records.columns import SPARE_BYTES, TextSlices, Values
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
    numbers_at,
    size_of_head,
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
_ID = str | int | None

_SINGLE_TYPES: dict[str, Any] = {
    "model": _TEXT,
    "version": _TEXT,
    "id": _ID,
    "time": float | str | None,
    # Any value: an invalid one counts as a mismatch.
    "predicted": Any,
    "label": str | int | float,
}

_MOST_IN_A_TUPLE = 1_000

Columns = Mapping[FieldPath, Sequence[Any]]
"""Values by path: None for a missing optional field, UNSET for missing outputs and decisions."""


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
        struct = self._root.struct
        decoder = msgspec.json.Decoder[Any](struct)
        self.decode = decoder.decode
        self.decode_lines = decoder.decode_lines
        self.decode_list = msgspec.json.Decoder[Any](list[struct]).decode  # type: ignore[valid-type]
        self.struct = struct
        self.encoding = _encoding(schema, self._root.names)
        """None for records whose encoding varies."""

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
        # Required fields come first, those of any type last.
        children = node.inside
        self.names = tuple(
            sorted(children, key=lambda name: (not children[name].required, Any in children[name].types))
        )
        for place, name in enumerate(self.names):
            child = node.inside[name]
            own = f"field_{place}"
            renamed[own] = name
            kind = self._below[name].struct if name in self._below else reduce(or_, child.types)
            if child.required:
                fields.append((own, kind))
            elif name in self._below:
                fields.append((own, kind | None, None))
            else:
                told_apart = msgspec.UnsetType in child.types
                fields.append((own, kind, msgspec.UNSET if told_apart else None))
        self.struct: type[Any] = msgspec.defstruct("Record", fields, rename=renamed, gc=False)

    def add_columns(self, path: FieldPath, records: Sequence[Any], found: dict[FieldPath, Sequence[Any]]) -> None:
        """Add the values of records to `found`."""
        columns = zip(*map(msgspec.structs.astuple, records), strict=True)
        for name, column in zip(self.names, columns, strict=True):
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
    if any(model.decided_by_record for model in schema.models):
        # A decision that is missing is not one that is null.
        _place(root, schema.single_paths()["predicted"], msgspec.UnsetType, required=False)
    for model in schema.models:
        for path in schema.segment_paths(model):
            _place(root, path, _TEXT, required=False)
        if (group := schema.group_path(model)) is not None:
            _place(root, group, _ID, required=False)
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


_FEWEST_ENCODED = 32
_RUNS_WITHOUT = 32
"""Runs that are not encoded after one that was in vain."""

# MessagePack: type bytes, and the size of a value with its type byte; 0 for types that do not occur.
_NONE, _FLOAT, _STRING, _LIST = 0xC0, 0xCB, 0xD9, b"\xdd"
_SIZES = np.zeros(256, dtype=np.int64)
_SIZES[:0x80] = _SIZES[0xE0:] = _SIZES[[_NONE, 0xC2, 0xC3]] = 1
_SIZES[0xA0:0xC0] = 1 + np.arange(0x20)
_SIZES[[0xCC, 0xD0, _STRING]], _SIZES[[0xCD, 0xD1]], _SIZES[[0xCA, 0xCE, 0xD2]], _SIZES[[_FLOAT, 0xCF, 0xD3]] = (
    2,
    3,
    5,
    9,
)

# So that no eight bytes that are compared begin before the first record; they are also room for the header of a list.
_BEFORE = 8

_encoder = msgspec.msgpack.Encoder()
_Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RecordEncoding:
    """How MessagePack encodes records without nested fields: first the vector, then the others, which may be None."""

    names: tuple[str, ...]
    width: int

    def heads(self) -> tuple[bytes, bytes]:
        """Return what comes before the numbers of a record: its start, and the header of the vector."""
        names, width = self.names, self.width
        start = _encoder.encode(dict.fromkeys(names))[: size_of_head(len(names))] + _encoder.encode(names[0])
        return start, _encoder.encode([None] * width)[: size_of_head(width)]


@cache
def _only(name: str) -> type[Any]:
    """Return a struct of one field."""
    return msgspec.defstruct("Field", [("value", Any, None)], rename={"value": name}, gc=False)


def _encoding(schema: RecordSchema, names: tuple[str, ...]) -> RecordEncoding | None:
    models, single = schema.models, schema.single_paths()
    outputs = {path for model in models for path in schema.output_paths(model)}
    paths = outputs | set(single.values()) | set(map(schema.fields.segment_path, schema.named_fields()))
    widths = {model.width for model in models}
    if (
        len(outputs) != 1
        or len(widths) != 1
        or 0 in widths
        or "label" in single
        or any(len(path) > 1 for path in paths)
    ):
        return None
    return None if any(model.kind is OutputKind.SCORE for model in models) else RecordEncoding(names, *widths)


class EncodedRecords:
    """Decoded records as MessagePack, one after the other, whose columns numpy reads without a step of Python per value.

    A float is a type byte and eight bytes, so that from the start of its vector all of a record is found.
    """

    def __init__(self, encoding: RecordEncoding | None) -> None:
        self._encoding = encoding or RecordEncoding((), 0)
        self._data = bytearray(_BEFORE)
        self.count = 0
        """The number of records."""
        self._end = _BEFORE
        self._bytes: _Bytes = np.zeros(0, dtype=np.uint8)
        self._starts: Indices = np.zeros(0, dtype=np.int64)
        self._fields: dict[str, tuple[Indices, _Bytes]] = {}

    @property
    def is_open(self) -> bool:
        """Whether it takes records."""
        return bool(self._encoding.names)

    def add(self, records: list[Any] | None) -> int:
        """Add records, if there are any; return how many, 0 if they cannot be encoded."""
        if not records or not self.is_open:
            return 0
        # The header of the list is written over the end of the last record, which is then restored.
        start = self._end - size_of_head(len(records))
        overwritten = self._data[start:]
        try:
            _encoder.encode_into(records, self._data, start)
        except (ValueError, OverflowError, RecursionError):
            self._data[start:] = overwritten
            return 0
        self._data[start : self._end] = overwritten
        self._end = len(self._data)
        self.count += len(records)
        return len(records)

    def mark(self) -> tuple[int, int]:
        """Return a mark to return to."""
        return self.count, self._end

    def return_to(self, mark: tuple[int, int]) -> None:
        """Remove what was added since."""
        self.count, self._end = mark
        del self._data[self._end :]

    def find_fields(self) -> bool:
        """Find the fields of all records; return False if one is odd: a vector with names, a long or a nested value."""
        self._data += bytes(SPARE_BYTES)
        self._bytes = np.frombuffer(self._data, dtype=np.uint8)
        start, header = self._encoding.heads()
        before = start + header
        # The last bytes before a vector, at most eight.
        last = before[-8:]

        def may_begin(places: Indices) -> NDArray[np.bool_]:
            words = numbers_at(self._data, places - 8, "<u8")
            begin: NDArray[np.bool_] = words >> np.uint64(64 - 8 * len(last)) == int.from_bytes(last, "little")
            return begin

        # Without texts, or with texts of one length, all records have the same size.
        size = (self._end - _BEFORE) // self.count
        found = np.arange(self.count) * size + (_BEFORE + len(before))
        if not may_begin(found).all():
            found = np.flatnonzero(self._bytes == header[0]) + len(header)
            found = found[may_begin(found)]
            if len(found) != self.count:
                return False
        self._starts = found
        distance: Any = 9 * self._encoding.width
        try:
            for name in self._encoding.names[1:]:
                distance = distance + len(_encoder.encode(name))
                at = found + distance
                types = self._bytes[at]
                self._fields[name] = at, types
                # One size for all, if they are of one type.
                types = types[:1] if (types == types[0]).all() else types
                sizes = _SIZES[types]
                if not sizes.all():
                    return False
                if (is_long := types == _STRING).any():
                    sizes = sizes + np.where(is_long, self._bytes[at + 1], 0)
                distance = distance + sizes
        except IndexError:
            return False
        # Numbers may contain the same bytes, by chance or on purpose. So each record must begin where the one before ends.
        begins, ends = found - len(before), found + distance
        return bool(begins[0] == _BEFORE and (begins[1:] == ends[:-1]).all() and ends[-1] == self._end)

    def matrix(self, rows: Indices) -> Floats:
        """Return the vectors of some records."""
        width = self._encoding.width
        size = 9 * width
        starts = self._starts if len(rows) == self.count else self._starts[rows]
        vectors = np.ndarray((len(self._data) - size + 1,), f"V{size}", self._data, 0, (1,))[starts]
        return np.ndarray((len(rows), width), ">f8", vectors, 1, (size, 9)).astype(np.float64)

    def floats(self, name: str, rows: Indices) -> Floats | Values | None:
        """Return a column as floats, NaN where missing, if it has nothing else; None if it is empty."""
        at, types = self._field(name, rows)
        given = types == _FLOAT
        if given.all():
            return self._floats(at)
        if not (given | (types == _NONE)).all():
            return self.values(name, rows)
        if not given.any():
            return None
        floats = np.full(len(rows), np.nan)
        floats[given] = self._floats(at[given])
        return floats

    def strings(self, name: str, rows: Indices) -> TextSlices | Values | None:
        """Return a column as strings, empty where missing, if it has nothing else; None if it is empty."""
        at, types = self._field(name, rows)
        short = (types & 0xE0) == 0xA0
        if short.all():
            return TextSlices(self._data, at + 1, (types & 0x1F).astype(np.int64))
        long, missing = types == _STRING, types == _NONE
        if missing.all():
            return None
        if not (short | long | missing).all():
            return self.values(name, rows)
        lengths = np.where(short, types & 0x1F, np.where(long, self._bytes[at + 1], 0)).astype(np.int64)
        return TextSlices(self._data, at + 1 + long, lengths)

    def texts(self, name: str, rows: Indices) -> Texts | Values | None:
        """Return a column as `strings` does, dictionary-encoded."""
        column = self.strings(name, rows)
        return (column.texts() or self.values(name, rows)) if isinstance(column, TextSlices) else column

    def models(self, name: str) -> str | Values | None:
        """Return the models that the records name, or one if all name the same; None if none is named."""
        column = self.texts(name, rows := np.arange(self.count))
        if not isinstance(column, Texts):
            return column
        return column.values[0] if len(column.values) == 1 and column.values[0] else self.values(name, rows)

    def any(self, name: str, rows: Indices) -> Values:
        """Return a column of any values."""
        is_empty = (self._field(name, rows)[1] == _NONE).all()
        return [None] * len(rows) if is_empty else self.values(name, rows)

    def values(self, name: str, rows: Indices) -> Values:
        """Return a column as Python values."""
        found = [record.value for record in self.records(_only(name))]
        return found if len(rows) == self.count else [found[row] for row in rows.tolist()]

    def records(self, struct: type[Any]) -> list[Any]:
        """Return the records as they were."""
        self._data[_BEFORE - 5 : _BEFORE] = _LIST + self.count.to_bytes(4)
        decoder = msgspec.msgpack.Decoder[list[Any]](list[struct])  # type: ignore[valid-type]
        return decoder.decode(memoryview(self._data)[_BEFORE - 5 : self._end])

    def _field(self, name: str, rows: Indices) -> tuple[Indices, _Bytes]:
        at, types = self._fields[name]
        return (at, types) if len(rows) == self.count else (at[rows], types[rows])

    def _floats(self, at: Indices) -> Floats:
        return numbers_at(self._data, at + 1, ">f8").astype(np.float64)


class JsonLines:
    """Decodes blocks of JSON Lines into column blocks."""

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
        self._router = ModelRouter(rules)
        self._rules = rules
        self._diagnoses: dict[bytes, LineDiagnosis] = {}
        self._irregular = 0
        self._use(schema)

    def _use(self, schema: RecordSchema) -> None:
        self._schema = schema
        self._struct = JsonStruct(schema)
        self._diagnostics = LineDiagnostics(schema, self._router)
        self._outputs = {model.name: schema.output_paths(model) for model in schema.models}
        self._single = schema.single_paths()
        self._segments = {model.name: schema.segment_paths(model) for model in schema.models}
        self._groups = {model.name: schema.group_path(model) for model in schema.models}

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
        all_braced = braced.all()
        run = self.new_run(len(block))
        for first, after in _cuts(block):
            together = (all_braced or braced[first:after].all()) and not self._schema.needs_columns
            records = self.decode_together(block, first, after, is_ascii=builder.is_ascii) if together else None
            if records is not None:
                non_json_lines = None
                if run.add(records):
                    # Freed before the next ones are made, to stay in the CPU cache.
                    del records
                    continue
            self._end_run(run, first, block, builder)
            run = self.new_run(len(block))
            if records is not None:
                self.add(np.arange(first, after), records, block, builder)
            else:
                non_json_lines = self.decode_one_by_one(range(first, after), block, builder, non_json_lines)
        self._end_run(run, len(block), block, builder)
        return non_json_lines

    def new_run(self, expected: int) -> "EncodedRecords":
        """Return an empty run of records, which takes none if it is not worth it."""
        self._irregular = max(0, self._irregular - 1)
        worth = expected >= _FEWEST_ENCODED and not self._irregular
        return EncodedRecords(self._struct.encoding if worth else None)

    def _end_run(self, run: "EncodedRecords", after: int, block: LineBlock, builder: BatchBuilder) -> None:
        """Add the records of the lines before one."""
        numbers = np.arange(after - run.count, after)
        if run.count and not self.add_run(numbers, run, builder, block):
            self.add(numbers, run.records(self._struct.struct), block, builder)

    def add_run(
        self, numbers: Indices, run: "EncodedRecords", builder: BatchBuilder, block: LineBlock | None = None
    ) -> bool:
        """Add a run of records to the batch, by model; return False, without effect, if they are not alike."""
        if not run.find_fields():
            self._irregular = _RUNS_WITHOUT
            return False
        models = run.models(self._single["model"][0]) if "model" in self._single else None
        for model, rows in self._router.split(models, run.count):
            if isinstance(model, Reason):
                builder.reject_all("", numbers[rows].tolist(), model, block)
            else:
                self._add_columns(model, numbers, run, rows, builder)
        return True

    def forget(self) -> None:
        """Keep no content beyond a block."""
        self._diagnoses.clear()

    def decode_together(self, block: LineBlock, first: int, after: int, *, is_ascii: bool) -> list[Any] | None:
        """Return the records of lines that all start and end with a brace; None unless each line is one record.

        The decoder allows whitespace between and within records, but no newline in a string. Everywhere else `}`, newline
        and `{` can only separate two records. So as many records as lines means one record per line.
        """
        text = block.text[block.bounds(first)[0] : block.bounds(after - 1)[1]]
        try:
            records: list[Any] = self._struct.decode_lines(text)
        except DECODE_ERRORS:
            return None
        return records if len(records) == after - first and (is_ascii or is_utf8(text)) else None

    def decode_array(self, text: bytes) -> list[Any] | None:
        """Return the records of an array; None unless all are valid."""
        try:
            records: list[Any] = self._struct.decode_list(text)
        except DECODE_ERRORS:
            return None
        return records if text.isascii() or is_utf8(memoryview(text)) else None

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
        matrix: Floats | Vectors | None = matrix_at_once(model, outputs, len(numbers))
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
        group = self._groups[model.name]
        columns_of_model = ColumnBlock(
            numbers,
            matrix,
            single.get("time"),
            single.get("id"),
            single.get("version"),
            single.get("predicted"),
            tuple(column(path) for path in self._segments[model.name]),
            single.get("label"),
            None if group is None else column(group),
        )
        builder.add(model.name, columns_of_model, block)

    def _add_columns(
        self, model: ModelFormat, numbers: Indices, run: EncodedRecords, rows: Indices, builder: BatchBuilder
    ) -> None:
        names = {name: path[0] for name, path in self._single.items()}
        group = self._groups[model.name]
        columns = ColumnBlock(
            numbers if len(rows) == run.count else numbers[rows],
            run.matrix(rows),
            run.floats(names["time"], rows) if "time" in names else None,
            run.strings(names["id"], rows) if "id" in names else None,
            run.texts(names["version"], rows) if "version" in names else None,
            run.any(names["predicted"], rows) if "predicted" in names else None,
            tuple(run.texts(path[0], rows) for path in self._segments[model.name]),
            groups=None if group is None else run.strings(group[0], rows),
        )
        builder.add(model.name, columns)


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
    for first, after in pairwise([0, *np.searchsorted(block.ends, limits).tolist(), len(block)]):
        if first < after:
            yield first, after
