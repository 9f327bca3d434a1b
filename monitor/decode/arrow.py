"""Parquet and Arrow files, read batch by batch; the only file that knows pyarrow, which is an optional extra."""

from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from monitor.decode.batch import Decoded
from monitor.decode.intake import MAX_NUMBERS, Intake
from monitor.decode.labels import Indices
from monitor.decode.layout import Kind, Layout, find_class_columns
from monitor.decode.rejections import Problem, Reason, listed, said
from monitor.decode.vectors import Booleans, Floats, any_in_row
from monitor.errors import InvalidInput

_BATCH_ROWS = 4096

_NULL = Problem(Reason.WRONG_TYPE, "a number", "null")


def read_parquet(path: Path, layout: Layout) -> Decoded:
    """Read a whole Parquet file."""
    arrow, parquet = library(path, "pyarrow"), library(path, "pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            # The sizes that a Parquet file declares say little: a few bytes may stand for millions of rows.
            if file.metadata.num_rows > MAX_NUMBERS // 2:
                found = f"{file.metadata.num_rows:,}"
                raise Problem(Reason.TOO_LARGE, f"at most {MAX_NUMBERS // 2:,} rows", found).of_file(path)
            reader = _Reader(path, layout, arrow, file.schema_arrow)
            return reader.read(file.iter_batches(batch_size=_BATCH_ROWS, columns=reader.columns))
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise failure(path, error) from error


def read_ipc(path: Path, layout: Layout) -> Decoded:
    """Read a whole Arrow IPC file or stream; Feather is another name for the file."""
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
    """Return a module of pyarrow, or say how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidInput(
            f"{path}: expected pyarrow to be installed (pip install 'cpcmon[parquet]'), found none"
        ) from error


def failure(path: Path | str, error: Exception) -> Exception:
    """Return what pyarrow says of a file as our own error."""
    # Pyarrow raises OSError for damage too; only one with a number is the system's.
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return Problem(Reason.BAD_FILE, "a Parquet or Arrow file, as its name says", said(error)).of_file(path)


class _Reader:
    def __init__(self, path: Path, layout: Layout, arrow: Any, schema: Any) -> None:  # noqa: ANN401
        self._path = path
        self._layout = layout
        self._arrow = arrow
        self._intake = Intake(layout, str(path), "row", labelled=layout.label_field is not None)
        self._row = 1
        names = tuple(schema.names)
        self._outputs = self._output_columns(names)
        labels = () if layout.label_field is None else (layout.label_field,)
        self.columns = [*self._outputs, *labels]
        times = Counter(names)
        for name in self.columns:
            if times[name] != 1:
                found = f"columns {listed(names)}"
                raise Problem(Reason.MISSING_FIELD, f"one column named {name}", found).of_file(path)
        for name in self._outputs:
            self._check_type(name, schema.field(name).type)

    def _output_columns(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self._layout.field is not None:
            return (self._layout.field,)
        found = find_class_columns(self._layout, names)
        if isinstance(found, Problem):
            raise found.of_file(self._path)
        if found.classes is not None:
            self._intake.fix_classes(found.classes)
        return found.columns

    def _check_type(self, name: str, kind: Any) -> None:  # noqa: ANN401
        types = self._arrow.types
        expected, found = "a column of numbers", kind
        if self._is_vector:
            expected = "a column of lists of numbers"
            found = kind.value_type if is_list(types, kind) else None
        if found is None or not is_number(types, found):
            raise Problem(Reason.WRONG_TYPE, f"{expected} {name}", str(kind)[:40]).of_file(self._path)

    @property
    def _is_vector(self) -> bool:
        return self._layout.class_columns is None and self._layout.kind is not Kind.SCORE

    def read(self, batches: Iterable[Any]) -> Decoded:
        """Take all batches."""
        for batch in batches:
            whole = batch.select(self.columns)
            # Offsets that point outside their buffers would otherwise be followed.
            whole.validate(full=True)
            for start in range(0, whole.num_rows, _BATCH_ROWS):
                self._take(whole.slice(start, _BATCH_ROWS))
        return self._intake.finish()

    def _take(self, batch: Any) -> None:  # noqa: ANN401
        numbers: Indices = np.arange(self._row, self._row + batch.num_rows)
        self._row += batch.num_rows
        flat, lengths, null = self._vectors(batch) if self._is_vector else self._matrix(batch)
        for row in np.flatnonzero(null).tolist():
            self._intake.reject(int(numbers[row]), _NULL)
        kept = ~null
        labels = None
        if self._layout.label_field is not None:
            values = batch.column(self._layout.label_field).to_pylist()
            labels = [value for value, keep in zip(values, kept.tolist(), strict=True) if keep]
        self._intake.add(numbers[kept], flat[np.repeat(kept, lengths)], lengths[kept], labels)

    def _matrix(self, batch: Any) -> tuple[Floats, Indices, Booleans]:  # noqa: ANN401
        columns = [batch.column(name) for name in self._outputs]
        matrix: Floats = np.column_stack([floats_in(column) for column in columns])
        null = any_in_row(np.column_stack([nulls_in(column) for column in columns]))
        return matrix.reshape(-1), np.full(len(matrix), matrix.shape[1]), null

    def _vectors(self, batch: Any) -> tuple[Floats, Indices, Booleans]:  # noqa: ANN401
        return vectors_in(batch.column(self._outputs[0]))


def vectors_in(column: Any) -> tuple[Floats, Indices, Booleans]:  # noqa: ANN401
    """Return the numbers of a column of lists, how many each list has, and which are null or hold a null."""
    compute = import_module("pyarrow.compute")
    # Flattening leaves out the lists that are null, whatever lies beneath them.
    lengths: Indices = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    values = column.flatten()
    null = nulls_in(column).copy()
    owners = np.repeat(np.arange(len(column)), lengths)
    null[owners[nulls_in(values)]] = True
    return floats_in(values), lengths.astype(np.int64), null


def is_number(types: Any, kind: Any) -> bool:  # noqa: ANN401
    """Tell whether a type of Arrow is one of numbers."""
    return bool(types.is_floating(kind) or types.is_integer(kind))


def is_list(types: Any, kind: Any) -> bool:  # noqa: ANN401
    """Tell whether a type of Arrow is one of lists."""
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def floats_in(column: Any) -> Floats:  # noqa: ANN401
    """Return the numbers of a column."""
    numbers: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return numbers


def nulls_in(column: Any) -> Booleans:  # noqa: ANN401
    """Tell which values of a column are null."""
    null: Booleans = column.is_null().to_numpy(zero_copy_only=False)
    return null
