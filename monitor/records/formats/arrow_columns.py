"""Columns of Parquet and Arrow tables. Pyarrow is an optional extra and imported on use."""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from monitor.errors import InvalidInput
from monitor.records.batch_builder import Vectors
from monitor.records.columns import Values, shortest
from monitor.records.labels import Indices
from monitor.records.layout import Layout, OutputKind, find_class_columns
from monitor.records.offline.offline_batch import MAX_NUMBERS, Decoded, OfflineBatchBuilder
from monitor.records.record_schema import FieldPath, ModelFormat, RecordFields, join_path
from monitor.records.rejections import Reason, RejectionProblem, library_message, listed
from monitor.records.vectors import Booleans, Floats, any_in_row

_BATCH_ROWS = 4096

_NULL = RejectionProblem(Reason.WRONG_TYPE, "a number", "null")


def read_parquet(path: Path, layout: Layout) -> Decoded:
    """Read a whole Parquet file."""
    arrow, parquet = library(path, "pyarrow"), library(path, "pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            # Declared sizes say little: a few bytes of Parquet can encode millions of rows.
            if file.metadata.num_rows > MAX_NUMBERS // 2:
                found = f"{file.metadata.num_rows:,}"
                raise RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_NUMBERS // 2:,} rows", found).of_file(path)
            reader = _Reader(path, layout, arrow, file.schema_arrow)
            return reader.read(file.iter_batches(batch_size=_BATCH_ROWS, columns=reader.columns))
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise failure(path, error) from error


def read_ipc(path: Path, layout: Layout) -> Decoded:
    """Read a whole Arrow IPC file (Feather) or stream."""
    arrow, ipc = library(path, "pyarrow"), library(path, "pyarrow.ipc")
    try:
        with arrow.OSFile(str(path)) as file:
            if file.read(6) == b"ARROW1":
                opened = ipc.open_file(file)
                batches: Iterable[Any] = (opened.get_batch(place) for place in range(opened.num_record_batches))
            else:
                file.seek(0)
                batches = opened = ipc.open_stream(file)
            return _Reader(path, layout, arrow, opened.schema).read(batches)
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise failure(path, error) from error


def library(path: Path | str, name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Import a module of pyarrow; raises InvalidInput if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"{path}: expected pyarrow to be installed (pip install 'cpcmon[parquet]'), found none"
        ) from error


def failure(path: Path | str, error: Exception) -> Exception:
    """Return an error of pyarrow as a rejected file."""
    # Pyarrow raises OSError for damaged files too; only those with an errno come from the system.
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return RejectionProblem(
        Reason.BAD_FILE, "a Parquet or Arrow file, as its name says", library_message(error)
    ).of_file(path)


class _Reader:
    def __init__(self, path: Path, layout: Layout, arrow: Any, schema: Any) -> None:  # noqa: ANN401
        self._path = path
        self._layout = layout
        self._arrow = arrow
        self._builder = OfflineBatchBuilder(layout, str(path), "row", labelled=layout.label_field is not None)
        self._row = 1
        names = tuple(schema.names)
        self._outputs = self._output_columns(names)
        labels = () if layout.label_field is None else (layout.label_field,)
        self.columns = [*self._outputs, *labels]
        times = Counter(names)
        for name in self.columns:
            if times[name] != 1:
                found = f"columns {listed(names)}"
                raise RejectionProblem(Reason.MISSING_FIELD, f"one column named {name}", found).of_file(path)
        for name in self._outputs:
            self._check_type(name, schema.field(name).type)

    def _output_columns(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self._layout.field is not None:
            return (self._layout.field,)
        found = find_class_columns(self._layout, names)
        if isinstance(found, RejectionProblem):
            raise found.of_file(self._path)
        if found.classes is not None:
            self._builder.fix_classes(found.classes)
        return found.columns

    def _check_type(self, name: str, kind: Any) -> None:  # noqa: ANN401
        types = self._arrow.types
        expected, found = "a column of numbers", kind
        if self._is_vector:
            expected = "a column of lists of numbers"
            found = kind.value_type if is_list(types, kind) else None
        if found is None or not is_number(types, found):
            raise RejectionProblem(Reason.WRONG_TYPE, f"{expected} {name}", str(kind)[:40]).of_file(self._path)

    @property
    def _is_vector(self) -> bool:
        return self._layout.class_columns is None and self._layout.kind is not OutputKind.SCORE

    def read(self, batches: Iterable[Any]) -> Decoded:
        """Decode all batches."""
        for batch in batches:
            whole = batch.select(self.columns)
            # Checks that offsets are within their buffers.
            whole.validate(full=True)
            for start in range(0, whole.num_rows, _BATCH_ROWS):
                self._take(whole.slice(start, _BATCH_ROWS))
        return self._builder.finish()

    def _take(self, batch: Any) -> None:  # noqa: ANN401
        numbers: Indices = np.arange(self._row, self._row + batch.num_rows)
        self._row += batch.num_rows
        flat, lengths, null = self._vectors(batch) if self._is_vector else self._matrix(batch)
        for row in np.flatnonzero(null).tolist():
            self._builder.reject(int(numbers[row]), _NULL)
        kept = ~null
        labels = None
        if self._layout.label_field is not None:
            values = batch.column(self._layout.label_field).to_pylist()
            labels = [value for value, keep in zip(values, kept.tolist(), strict=True) if keep]
        self._builder.add(numbers[kept], flat[np.repeat(kept, lengths)], lengths[kept], labels)

    def _matrix(self, batch: Any) -> tuple[Floats, Indices, Booleans]:  # noqa: ANN401
        columns = [batch.column(name) for name in self._outputs]
        matrix: Floats = np.column_stack([floats_in(column) for column in columns])
        null = any_in_row(np.column_stack([nulls_in(column) for column in columns]))
        return matrix.reshape(-1), np.full(len(matrix), matrix.shape[1]), null

    def _vectors(self, batch: Any) -> tuple[Floats, Indices, Booleans]:  # noqa: ANN401
        return vectors_in(batch.column(self._outputs[0]))


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


LONGEST_TEXT = 4_096
"""Longer strings are truncated: a small file can repeat a huge one many times."""


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
        return [kind.field(place).name for place in range(kind.num_fields)]

    def check_outputs(
        self, paths: Sequence[FieldPath], model: ModelFormat, fields: RecordFields
    ) -> RejectionProblem | None:
        """Return the problem if columns are not outputs of a model."""
        for path in paths:
            kind = self._type_at(path)
            is_single = fields.class_columns is not None or model.kind is OutputKind.SCORE
            if is_single and is_number(self._types, kind):
                continue
            if not is_single and is_list(self._types, kind) and is_number(self._types, kind.value_type):
                continue
            if not is_single and self._types.is_struct(kind):
                return self._problem_of_struct(kind, model)
            wanted = "a column of numbers" if is_single else "a column of lists of numbers"
            return RejectionProblem(Reason.WRONG_TYPE, f"{wanted} {join_path(path)}", _type_name(kind))
        return None

    def check_values(self, path: FieldPath, reason: Reason) -> RejectionProblem | None:
        """Return the problem if a column is not of strings, numbers or times."""
        kind = self._type_at(path)
        types = self._types
        if types.is_dictionary(kind):
            kind = kind.value_type
        texts = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
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
            columns = [self._inside(columns[0], name) for name in model.classes]
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
        expected = f"one column of numbers for each of the {len(model.classes)} classes"
        if sorted(field.name for field in fields) != sorted(model.classes):
            return RejectionProblem(Reason.UNKNOWN_CLASS, expected, f"{len(fields)} others")
        if not all(is_number(self._types, field.type) for field in fields):
            return RejectionProblem(Reason.WRONG_TYPE, expected, "another type in one of them")
        return None


def _type_name(kind: Any) -> str:  # noqa: ANN401
    # Truncated: a struct type contains field names.
    return "none" if kind is None else str(kind).partition("<")[0][:40]
