"""Parquet and Arrow files of a stream, read batch by batch: once to see that all of it can be read, then for its records."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from monitor.decode.arrived import Arrived
from monitor.decode.arrow import library
from monitor.decode.arrow_columns import ArrowColumns
from monitor.decode.field_paths import Path, join_path
from monitor.decode.gathering import ModelRules
from monitor.decode.record_format import ModelFormat, RecordFields
from monitor.decode.rejections import Problem, Reason
from monitor.decode.row_files import RowColumns, RowFiles, rows_a_piece

MAX_ROWS = 10_000_000

MAX_ROW_BYTES = 256 << 10
"""What a row may take: more than 20,000 classes do. A few bytes of a Parquet file may stand for rows of any length."""

# Rows that are first read together, while nobody knows yet how long they are.
_CHECKED_ROWS = 128


class ArrowFiles:
    """Decodes Parquet and Arrow files in pieces."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields, rules: Mapping[str, ModelRules]) -> None:
        self._models = models
        self._fields = fields
        self._rows = RowFiles(models, rules)
        self._outputs = {model.name: fields.output_paths(model) for model in models}
        self._step = rows_a_piece(max(len(model.classes) for model in models))

    def parquet(self, where: str, file: BinaryIO, skip: int) -> Iterator[Arrived]:
        """Decode a Parquet file."""
        arrow, parquet = library(where, "pyarrow"), library(where, "pyarrow.parquet")
        with _our_errors(where, arrow):
            opened = parquet.ParquetFile(file)
            # The sizes that a Parquet file declares say little: a few bytes may stand for millions of rows.
            if opened.metadata.num_rows > MAX_ROWS:
                found = f"{opened.metadata.num_rows:,}"
                raise Problem(Reason.TOO_LARGE, f"at most {MAX_ROWS:,} rows", found).of_file(where)
            wanted = _Wanted(where, ArrowColumns(arrow, opened.schema_arrow), self)
            # Texts that repeat are kept once, as the file keeps them.
            opened = parquet.ParquetFile(file, read_dictionary=[".".join(path) for path in wanted.texts])
            wanted = _Wanted(where, ArrowColumns(arrow, opened.schema_arrow), self)

            def batches(rows: int) -> Iterator[Any]:
                yield from opened.iter_batches(batch_size=rows, columns=wanted.tops, use_threads=False)

            # What the file's own metadata say on its columns is not asked for: pyarrow ends the process when it is
            # damaged. So the first row is read by itself, and then a few at a time.
            for batch in itertools.chain(itertools.islice(batches(1), 1), batches(_CHECKED_ROWS)):
                _check(where, batch)
            yield from self._arrived(where, batches(self._step), wanted, skip)

    def ipc(self, where: str, file: BinaryIO, skip: int) -> Iterator[Arrived]:
        """Decode an Arrow IPC file or stream; Feather is another name for the file."""
        arrow, ipc = library(where, "pyarrow"), library(where, "pyarrow.ipc")
        with _our_errors(where, arrow):
            rows = 0
            for batch in _ipc_batches(file, ipc):
                _check(where, batch)
                rows += batch.num_rows
                if rows > MAX_ROWS:
                    raise Problem(Reason.TOO_LARGE, f"at most {MAX_ROWS:,} rows", "more").of_file(where)
            schema = _open_ipc(file, ipc).schema
            wanted = _Wanted(where, ArrowColumns(arrow, schema), self)
            yield from self._arrived(where, _ipc_batches(file, ipc), wanted, skip)

    def _arrived(self, where: str, batches: Iterable[Any], wanted: "_Wanted", skip: int) -> Iterator[Arrived]:
        row = 0
        for whole in batches:
            for start in range(0, whole.num_rows, self._step):
                batch = whole.slice(start, self._step)
                left_out = min(batch.num_rows, max(0, skip - row))
                if left_out < batch.num_rows:
                    columns = wanted.rows(batch.slice(left_out))
                    yield self._rows.arrived(where, row + left_out + 1, columns)
                row += batch.num_rows

    @property
    def models(self) -> Sequence[ModelFormat]:
        """The models whose records may come."""
        return self._models

    @property
    def fields(self) -> RecordFields:
        """Where things stand in a record."""
        return self._fields


class _Wanted:
    """The columns of one file that are wanted."""

    def __init__(self, where: str, columns: ArrowColumns, files: ArrowFiles) -> None:
        fields, models = files.fields, files.models
        self._columns = columns
        self._fields = fields
        self._formats = {model.name: model for model in models}
        paths = {model.name: fields.output_paths(model) for model in models}
        self._outputs = {name: some for name, some in paths.items() if all(map(columns.has, some))}
        if not self._outputs:
            raise _missing(next(path for path in paths[models[0].name] if not columns.has(path)), where)
        for name, some in self._outputs.items():
            if (problem := columns.check_outputs(some, self._formats[name], fields)) is not None:
                raise problem.of_file(where)
        self._model = self._optional(fields.path("model"), Reason.UNKNOWN_MODEL, where)
        if self._model is None and len(models) > 1:
            raise _missing(fields.path("model"), where)
        self._time = self._optional(fields.path("time"), Reason.BAD_TIMESTAMP, where)
        self._id = self._optional(fields.path("id"), Reason.WRONG_TYPE, where)
        self._version = self._optional(fields.path("version"), Reason.WRONG_TYPE, where)
        self._predicted = (
            None if fields.predicted is None else self._optional(fields.path("predicted"), Reason.WRONG_TYPE, where)
        )
        self._segments = {
            name: self._optional(fields.segment_path(name), Reason.BAD_SEGMENT, where)
            for model in models
            for name in model.segment_fields
        }

    def _optional(self, path: Path, reason: Reason, where: str) -> Path | None:
        if not self._columns.has(path):
            return None
        if (problem := self._columns.check_values(path, reason)) is not None:
            raise problem.of_file(where)
        return path

    @property
    def texts(self) -> list[Path]:
        """Paths to columns that may hold texts."""
        single = [self._model, self._time, self._id, self._version, self._predicted, *self._segments.values()]
        return [path for path in single if path is not None]

    @property
    def tops(self) -> list[str]:
        """The columns of the file in which all that is wanted stands."""
        outputs = [path for paths in self._outputs.values() for path in paths]
        return list(dict.fromkeys(path[0] for path in [*outputs, *self.texts]))

    def rows(self, batch: Any) -> RowColumns:  # noqa: ANN401 - pyarrow has no types
        """Return the columns of a batch."""
        columns = self._columns

        def values(path: Path | None) -> Any:  # noqa: ANN401
            return None if path is None else columns.values(batch, path)

        return RowColumns(
            batch.num_rows,
            {name: columns.outputs(batch, paths, self._formats[name]) for name, paths in self._outputs.items()},
            values(self._model),
            None if self._time is None else columns.times(batch, self._time, self._fields),
            None if self._id is None else columns.values(batch, self._id, whole=True),
            values(self._version),
            values(self._predicted),
            {name: values(path) for name, path in self._segments.items()},
        )


def _missing(path: Path, where: str) -> Exception:
    return Problem(Reason.MISSING_FIELD, f"one column named {join_path(path)}", "none, or several").of_file(where)


def _check(where: str, batch: Any) -> None:  # noqa: ANN401
    # Offsets that point outside their buffers would otherwise be followed.
    batch.validate(full=True)
    if sum(map(_size_of, batch.columns)) > MAX_ROW_BYTES * max(4, batch.num_rows):
        raise Problem(Reason.TOO_LARGE, f"rows of at most {MAX_ROW_BYTES >> 10} KiB", "larger ones").of_file(where)


def _size_of(column: Any) -> int:  # noqa: ANN401
    """Return what a column takes, but for texts that stand once for many rows."""
    if hasattr(column, "dictionary"):
        return int(column.indices.nbytes)
    if hasattr(column, "field"):  # an object with fields
        return sum(map(_size_of, column.flatten()))
    return int(column.nbytes)


def _open_ipc(file: BinaryIO, ipc: Any) -> Any:  # noqa: ANN401
    file.seek(0)
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    return ipc.open_file(file) if is_file else ipc.open_stream(file)


def _ipc_batches(file: BinaryIO, ipc: Any) -> Iterator[Any]:  # noqa: ANN401
    opened = _open_ipc(file, ipc)
    if hasattr(opened, "get_batch"):
        for place in range(opened.num_record_batches):
            yield opened.get_batch(place)
    else:
        yield from opened


@contextmanager
def _our_errors(where: str, arrow: Any) -> Iterator[None]:  # noqa: ANN401
    try:
        yield
    except OSError as error:
        # Pyarrow raises OSError for damage too; only one with a number is the system's.
        if error.errno is not None:
            raise
    except (arrow.ArrowException, ValueError, LookupError, MemoryError, OverflowError, RecursionError):
        pass
    else:
        return
    # Without pyarrow's own words, which may quote the file.
    raise Problem(Reason.BAD_FILE, "a Parquet or Arrow file, as its name says", "something else").of_file(where)
