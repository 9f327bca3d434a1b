"""Parquet and Arrow files, in batches: a trial read of the whole file first, then the records.

Pyarrow is an optional extra and imported on use.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np

from monitor.errors import InvalidInput, Problem
from monitor.records.batch_builder import ModelRules, RowColumns, RowFiles, rows_per_batch, take_classes
from monitor.records.columns import Values, shortest
from monitor.records.formats.arrow_limits import MAX_ROWS, widest_rows
from monitor.records.formats.arrow_trial import ipc_batches, open_ipc
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import (
    MAX_CLASSES,
    Carries,
    FieldPath,
    ModelFormat,
    OutputKind,
    RecordFields,
    RecordSchema,
    join_path,
)
from monitor.records.rejections import Reason, RejectionProblem, library_message, listed
from monitor.records.vectors import Booleans, Floats, Indices, Vectors, any_in_row

# Without it, a whole column chunk is read at once.
_BUFFER_BYTES = 1 << 20

LONGEST_TEXT = 4_096
"""Longer strings are truncated: a small file can repeat a huge one many times."""


class ArrowFiles:
    """Decodes Parquet and Arrow files in batches."""

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
        self._schema = schema
        self._rules = rules
        self._rows = RowFiles(schema, rules)
        # While the number of classes is unknown, the trial limits the rows.
        self._usual_numbers = sum(model.width or MAX_CLASSES for model in schema.models)
        self._step = rows_per_batch(max(len(model.classes or ()) for model in schema.models))

    def parquet(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode a Parquet file."""
        arrow, parquet = _library(where, "pyarrow"), _library(where, "pyarrow.parquet")
        with self._our_errors(where, arrow):
            opened = parquet.ParquetFile(file)
            # Declared sizes say little: a few bytes of Parquet can encode millions of rows.
            if opened.metadata.num_rows > MAX_ROWS:
                found = f"{opened.metadata.num_rows:,}"
                raise RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_ROWS:,} rows", found).of_file(where)
            wanted = self._wanted(where, ArrowColumns(arrow, opened.schema_arrow))
            # Strings stay dictionary-encoded.
            paths = [".".join(path) for path in wanted.texts]
            opened = parquet.ParquetFile(file, read_dictionary=paths, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            wanted = self._wanted(where, ArrowColumns(arrow, opened.schema_arrow))
            step = self._rows_together(where, file, parquet=True, columns=wanted.tops, texts=paths)
            batches = opened.iter_batches(batch_size=step, columns=wanted.tops, use_threads=False)
            yield from self._decoded(where, batches, wanted, skip, step)

    def ipc(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode an Arrow IPC file (Feather) or stream."""
        arrow, _ = _library(where, "pyarrow"), _library(where, "pyarrow.ipc")
        with self._our_errors(where, arrow):
            schema = open_ipc(file).schema
            wanted = self._wanted(where, ArrowColumns(arrow, schema))
            places = [schema.get_field_index(name) for name in wanted.tops]
            step = self._rows_together(where, file, parquet=False, places=places)
            yield from self._decoded(where, ipc_batches(file, places), wanted, skip, step)

    @contextmanager
    def _our_errors(self, where: str, arrow: Any) -> Iterator[None]:  # noqa: ANN401
        """Raise `RejectedFile` for pyarrow's errors."""
        try:
            yield
        except OSError as error:
            # Pyarrow raises OSError for damaged files too; only those with an errno come from the system.
            if error.errno is not None:
                raise
            message = library_message(error)
        except (arrow.ArrowException, ValueError, LookupError, MemoryError, OverflowError, RecursionError) as error:
            message = library_message(error)
        else:
            return
        # In a stream without pyarrow's message, which may quote the file.
        found = message if self._schema.from_file else "another file"
        raise RejectionProblem(Reason.BAD_FILE, "a Parquet or Arrow file, as its name says", found).of_file(where)

    def _wanted(self, where: str, columns: "ArrowColumns") -> "_Wanted":
        schema = self._schema
        if schema.needs_columns:
            above, _ = schema.prefix_path()
            found = schema.with_columns(columns.names_in(above), above)
            if isinstance(found, RejectionProblem):
                raise found.of_file(where)
            take_classes(found, self._rules)
            schema = found
        return _Wanted(where, columns, schema)

    def _rows_together(self, where: str, file: BinaryIO, **wanted: Any) -> int:  # noqa: ANN401
        """Read the whole file on trial; return how many rows to read per batch."""
        widest = widest_rows(where, file, self._usual_numbers, **wanted)
        return min(self._step, rows_per_batch(widest // 8))

    def _decoded(
        self, where: str, batches: Iterable[Any], wanted: "_Wanted", skip: int, step: int
    ) -> Iterator[RecordBatch]:
        row = 0
        for whole in batches:
            # Again: the file may have changed.
            whole.validate(full=True)
            for start in range(0, whole.num_rows, step):
                batch = whole.slice(start, step)
                left_out = min(batch.num_rows, max(0, skip - row))
                if left_out < batch.num_rows:
                    columns = wanted.rows(batch.slice(left_out))
                    yield self._rows.batch(where, row + left_out + 1, columns)
                row += batch.num_rows


class _Wanted:
    """The configured columns of one file."""

    def __init__(self, where: str, columns: "ArrowColumns", schema: RecordSchema) -> None:
        fields, models = schema.fields, schema.models
        self._columns = columns
        self._schema = schema
        self._formats = {model.name: model for model in models}
        paths = {model.name: schema.output_paths(model) for model in models}
        self._outputs = {name: some for name, some in paths.items() if some and all(map(columns.has, some))}
        if not self._outputs and schema.carries is Carries.PREDICTIONS:
            raise self._missing(next(path for path in paths[models[0].name] if not columns.has(path)), where)
        single = schema.single_paths()
        self._label = single.pop("label", None)
        if self._label is not None and not columns.has(self._label):
            raise self._missing(self._label, where)
        if self._label is not None and schema.carries is Carries.LABELS:
            # In a stream, no other type becomes Python values: a dictionary repeats a huge one at no cost.
            self._has(self._label, Reason.WRONG_TYPE, where)
        for name, some in self._outputs.items():
            if (problem := columns.check_outputs(some, self._formats[name], schema)) is not None:
                raise problem.of_file(where)
        self._single = {
            name: path for name, path in single.items() if self._has(path, _REASONS.get(name, Reason.WRONG_TYPE), where)
        }
        if "model" not in self._single and len(models) > 1:
            raise self._missing(single["model"], where)
        named = {name: (fields.segment_path(name), reason) for name, reason in schema.named_fields().items()}
        self._segments = {name: path for name, (path, reason) in named.items() if self._has(path, reason, where)}
        self._groups = {model.group_by for model in models}
        self._refuse_strange_classes(where)

    def _missing(self, path: FieldPath, where: str) -> Exception:
        # Only offline, column names are shown.
        found = f"columns {listed(self._columns.names_in(()))}" if self._schema.from_file else "none, or several"
        return RejectionProblem(Reason.MISSING_FIELD, f"one column named {join_path(path)}", found).of_file(where)

    def _refuse_strange_classes(self, where: str) -> None:
        if self._schema.fields.prefix is None:
            return
        above, start = self._schema.prefix_path()
        outputs = [path for paths in self._outputs.values() for path in paths]
        known = [path[-1] for path in [*outputs, *self.texts] if path[:-1] == above]
        names = self._columns.names_in(above)
        if (problem := self._schema.unknown_class_columns(start, names, known)) is not None:
            raise problem.of_file(where)

    def _has(self, path: FieldPath, reason: Reason, where: str) -> bool:
        if not self._columns.has(path):
            return False
        if (problem := self._columns.check_values(path, reason)) is not None:
            raise problem.of_file(where)
        return True

    @property
    def texts(self) -> list[FieldPath]:
        """Paths of columns that may contain strings."""
        labels = [] if self._label is None or not self._columns.is_text(self._label) else [self._label]
        return [*self._single.values(), *self._segments.values(), *labels]

    @property
    def tops(self) -> list[str]:
        """The top-level columns to read."""
        outputs = [path for paths in self._outputs.values() for path in paths]
        labels = [] if self._label is None else [self._label]
        return list(dict.fromkeys(path[0] for path in [*outputs, *self.texts, *labels]))

    def rows(self, batch: Any) -> RowColumns:  # noqa: ANN401 - pyarrow has no types
        """Return the columns of a batch."""
        columns, single = self._columns, self._single

        def values(name: str) -> Any:  # noqa: ANN401
            return columns.values(batch, single[name]) if name in single else None

        return RowColumns(
            batch.num_rows,
            {name: columns.outputs(batch, paths, self._formats[name]) for name, paths in self._outputs.items()},
            values("model"),
            columns.times(batch, single["time"], self._schema.fields) if "time" in single else None,
            columns.values(batch, single["id"], whole=True) if "id" in single else None,
            values("version"),
            values("predicted"),
            {name: columns.values(batch, path, whole=name in self._groups) for name, path in self._segments.items()},
            None if self._label is None else columns.labels(batch, self._label),
        )


_REASONS = {"model": Reason.UNKNOWN_MODEL, "time": Reason.BAD_TIMESTAMP}


def _library(where: str, name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Import a module of pyarrow; raises InvalidInput if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        expected = "pyarrow to be installed (pip install 'cpcmon[parquet]')"
        raise InvalidInput(Problem(where, expected, "none")) from error


class ArrowColumns:
    """Finds and reads the configured columns of one file."""

    def __init__(self, arrow: Any, schema: Any) -> None:  # noqa: ANN401 - pyarrow has no types
        self._arrow = arrow
        self._types = arrow.types
        self._schema = schema

    def has(self, path: FieldPath) -> bool:
        """Return whether a path leads to exactly one column."""
        return self._type_at(path) is not None

    def names_in(self, path: FieldPath) -> list[str]:
        """Return the names of all columns, or of the fields of one."""
        kind = self._type_at(path)
        if kind is self._schema:
            return list(kind.names)
        if kind is None or not self._types.is_struct(kind):
            return []
        return [kind.field(place).name for place in range(kind.num_fields)]

    def check_outputs(
        self, paths: Sequence[FieldPath], model: ModelFormat, schema: RecordSchema
    ) -> RejectionProblem | None:
        """Return the problem if columns are not outputs of a model."""
        for path in paths:
            kind = self._type_at(path)
            is_single = schema.fields.class_columns is not None or model.kind is OutputKind.SCORE
            if is_single and is_number(self._types, kind):
                continue
            if not is_single and is_list(self._types, kind) and is_number(self._types, kind.value_type):
                continue
            if not is_single and self._types.is_struct(kind):
                return self._problem_of_struct(kind, model)
            wanted = "a column of numbers" if is_single else "a column of lists of numbers"
            found = str(kind)[:40] if schema.from_file else _type_name(kind)
            return RejectionProblem(Reason.WRONG_TYPE, f"{wanted} {join_path(path)}", found)
        return None

    def is_text(self, path: FieldPath) -> bool:
        """Return whether a column is of strings."""
        types, kind = self._types, self._type_at(path)
        if types.is_dictionary(kind):
            kind = kind.value_type
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

    def check_values(self, path: FieldPath, reason: Reason) -> RejectionProblem | None:
        """Return the problem if a column is not of strings, numbers or times."""
        kind = self._type_at(path)
        types = self._types
        texts = self.is_text(path)
        if types.is_dictionary(kind):
            kind = kind.value_type
        times = types.is_timestamp(kind) and reason is Reason.BAD_TIMESTAMP
        if texts or times or types.is_null(kind) or is_number(types, kind):
            return None
        return RejectionProblem(reason, f"a column of strings or numbers {join_path(path)}", _type_name(kind))

    def outputs(self, batch: Any, paths: Sequence[FieldPath], model: ModelFormat) -> Vectors:  # noqa: ANN401
        """Return the outputs of a model in a batch."""
        columns = [self._column(batch, path) for path in paths]
        if is_list(self._types, columns[0].type):
            flat, lengths, null = vectors_in(columns[0])
            return Vectors(flat, lengths, null)
        null = nulls_in(columns[0])
        if self._types.is_struct(columns[0].type):
            columns = [self._inside(columns[0], name) for name in model.classes or ()]
        matrix = np.column_stack([floats_in(column) for column in columns])
        null = null | any_in_row(np.column_stack([nulls_in(column) for column in columns]))
        return Vectors(matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64), null)

    def values(self, batch: Any, path: FieldPath, *, whole: bool = False) -> Values:  # noqa: ANN401
        """Return a column as strings and numbers. With `whole`, strings that are too long become invalid values."""
        column = self._column(batch, path)
        compute = import_module("pyarrow.compute")
        if self._types.is_dictionary(column.type):
            # Truncated before they are repeated.
            texts = self._listed(self._cut(column.dictionary, compute))
            values = [None if place is None else texts[place] for place in column.indices.to_pylist()]
        else:
            values = self._listed(self._cut(column, compute))
        if whole:
            return [() if isinstance(one, str) and len(one) > LONGEST_TEXT else one for one in values]
        return values

    def labels(self, batch: Any, path: FieldPath) -> Values:  # noqa: ANN401
        """Return a column of labels, of any type."""
        if self.is_text(path):
            return self.values(batch, path)
        labels: list[object] = self._column(batch, path).to_pylist()
        return labels

    def times(self, batch: Any, path: FieldPath, fields: RecordFields) -> Values:  # noqa: ANN401
        """Return a column of times; Arrow timestamps as numbers in the declared unit."""
        column = self._column(batch, path)
        if not self._types.is_timestamp(column.type):
            return self.values(batch, path)
        compute = import_module("pyarrow.compute")
        if column.type.tz is None and fields.time_zone is None:
            return ["a time without a zone"] * len(column)
        if column.type.tz is None:
            column = compute.assume_timezone(column, fields.time_zone, ambiguous="earliest", nonexistent="latest")
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        counts = column.cast(self._arrow.int64()).to_pylist()
        factor = fields.time_unit.per_second / per_second
        return [None if count is None else count * factor for count in counts]

    def _cut(self, column: Any, compute: Any) -> Any:  # noqa: ANN401
        if is_number(self._types, column.type) or self._types.is_null(column.type):
            return column
        return compute.utf8_slice_codeunits(column, 0, LONGEST_TEXT + 1)

    def _listed(self, column: Any) -> list[object]:  # noqa: ANN401
        values: list[object] = column.to_pylist()
        if not (self._types.is_float32(column.type) or self._types.is_float16(column.type)):
            return values
        single = np.float32 if self._types.is_float32(column.type) else np.float16
        return [None if value is None else shortest(single(value)) for value in values]  # type: ignore[arg-type]

    def _type_at(self, path: FieldPath) -> Any:  # noqa: ANN401
        kind = self._schema
        for depth, name in enumerate(path):
            if depth and not self._types.is_struct(kind):
                return None
            names = kind.names if not depth else [kind.field(place).name for place in range(kind.num_fields)]
            if names.count(name) != 1:
                return None
            kind = kind.field(names.index(name)).type
        return kind

    def _column(self, batch: Any, path: FieldPath) -> Any:  # noqa: ANN401
        column = batch.column(path[0])
        for name in path[1:]:
            column = self._inside(column, name)
        return column

    def _inside(self, column: Any, name: str) -> Any:  # noqa: ANN401
        # The fields of a null struct are null.
        place = column.type.get_field_index(name)
        return import_module("pyarrow.compute").struct_field(column, [place])

    def _problem_of_struct(self, kind: Any, model: ModelFormat) -> RejectionProblem | None:  # noqa: ANN401
        fields = [kind.field(place) for place in range(kind.num_fields)]
        if model.classes is None:
            return RejectionProblem(
                Reason.UNKNOWN_CLASS, "known class names (set them with --classes)", "named columns"
            )
        expected = f"one column of numbers for each of the {len(model.classes)} classes"
        if sorted(field.name for field in fields) != sorted(model.classes):
            return RejectionProblem(Reason.UNKNOWN_CLASS, expected, f"{len(fields)} others")
        if not all(is_number(self._types, field.type) for field in fields):
            return RejectionProblem(Reason.WRONG_TYPE, expected, "another type in one of them")
        return None


def _type_name(kind: Any) -> str:  # noqa: ANN401
    # Truncated: a struct type contains field names, a timestamp any text as its time zone.
    return "none" if kind is None else re.split(r"[<\[]", str(kind), maxsplit=1)[0][:40]


def vectors_in(column: Any) -> tuple[Floats, Indices, Booleans]:  # noqa: ANN401
    """Return the numbers of a list column, the list lengths, and which lists are null or contain a null."""
    compute = import_module("pyarrow.compute")
    # `flatten` skips null lists.
    lengths: Indices = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    values = column.flatten()
    null = nulls_in(column).copy()
    owners = np.repeat(np.arange(len(column)), lengths)
    null[owners[nulls_in(values)]] = True
    return floats_in(values), lengths.astype(np.int64), null


def is_number(types: Any, kind: Any) -> bool:  # noqa: ANN401
    """Return whether an Arrow type is numeric."""
    return bool(types.is_floating(kind) or types.is_integer(kind))


def is_list(types: Any, kind: Any) -> bool:  # noqa: ANN401
    """Return whether an Arrow type is a list."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def floats_in(column: Any) -> Floats:  # noqa: ANN401
    """Return the numbers of a column."""
    numbers: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def nulls_in(column: Any) -> Booleans:  # noqa: ANN401
    """Return which values of a column are null."""
    null: Booleans = column.is_null().to_numpy(zero_copy_only=False)
    return null
