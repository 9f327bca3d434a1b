"""Parquet and Arrow files of a stream, in batches: a trial read of the whole file first, then the records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from monitor.records.batch_builder import ModelRules, RowColumns, RowFiles, rows_per_batch
from monitor.records.formats.arrow_columns import ArrowColumns, library
from monitor.records.formats.arrow_limits import MAX_ROWS, widest_rows
from monitor.records.formats.arrow_trial import ipc_batches, open_ipc
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import (
    FieldPath,
    ModelFormat,
    RecordFields,
    join_path,
    split_path,
    unknown_class_columns,
)
from monitor.records.rejections import Reason, RejectionProblem

# Without it, a whole column chunk is read at once.
_BUFFER_BYTES = 1 << 20


class ArrowFiles:
    """Decodes Parquet and Arrow files in batches."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields, rules: Mapping[str, ModelRules]) -> None:
        self._models = models
        self._fields = fields
        self._rows = RowFiles(models, rules)
        self._outputs = {model.name: fields.output_paths(model) for model in models}
        self._step = rows_per_batch(max(len(model.classes) for model in models))

    def parquet(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode a Parquet file."""
        arrow, parquet = library(where, "pyarrow"), library(where, "pyarrow.parquet")
        with _our_errors(where, arrow):
            opened = parquet.ParquetFile(file)
            # Declared sizes say little: a few bytes of Parquet can encode millions of rows.
            if opened.metadata.num_rows > MAX_ROWS:
                found = f"{opened.metadata.num_rows:,}"
                raise RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_ROWS:,} rows", found).of_file(where)
            wanted = _Wanted(where, ArrowColumns(arrow, opened.schema_arrow), self)
            # Strings stay dictionary-encoded.
            paths = [".".join(path) for path in wanted.texts]
            opened = parquet.ParquetFile(file, read_dictionary=paths, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            wanted = _Wanted(where, ArrowColumns(arrow, opened.schema_arrow), self)
            step = self._rows_together(where, file, parquet=True, columns=wanted.tops, texts=paths)
            batches = opened.iter_batches(batch_size=step, columns=wanted.tops, use_threads=False)
            yield from self._decoded(where, batches, wanted, skip, step)

    def ipc(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode an Arrow IPC file (Feather) or stream."""
        arrow, _ = library(where, "pyarrow"), library(where, "pyarrow.ipc")
        with _our_errors(where, arrow):
            schema = open_ipc(file).schema
            wanted = _Wanted(where, ArrowColumns(arrow, schema), self)
            places = [schema.get_field_index(name) for name in wanted.tops]
            step = self._rows_together(where, file, parquet=False, places=places)
            yield from self._decoded(where, ipc_batches(file, places), wanted, skip, step)

    def _rows_together(self, where: str, file: BinaryIO, **wanted: Any) -> int:  # noqa: ANN401
        """Read the whole file on trial; return how many rows to read per batch."""
        usual = sum(model.width for model in self._models)
        return min(self._step, rows_per_batch(widest_rows(where, file, usual, **wanted) // 8))

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

    @property
    def models(self) -> Sequence[ModelFormat]:
        """The models of the stream."""
        return self._models

    @property
    def fields(self) -> RecordFields:
        """The fields of a record."""
        return self._fields


class _Wanted:
    """The configured columns of one file."""

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

        self._refuse_strange_classes(where, models)

    def _refuse_strange_classes(self, where: str, models: Sequence[ModelFormat]) -> None:
        if (prefix := self._fields.prefix) is None:
            return
        *above, start = split_path(f"{prefix}*", "fields.class_columns")
        outputs = [path for paths in self._outputs.values() for path in paths]
        known = [path[-1] for path in [*outputs, *self.texts] if path[:-1] == tuple(above)]
        names = self._columns.names_in(tuple(above))
        if (problem := unknown_class_columns(models, start[:-1], names, known)) is not None:
            raise problem.of_file(where)

    def _optional(self, path: FieldPath, reason: Reason, where: str) -> FieldPath | None:
        if not self._columns.has(path):
            return None
        if (problem := self._columns.check_values(path, reason)) is not None:
            raise problem.of_file(where)
        return path

    @property
    def texts(self) -> list[FieldPath]:
        """Paths of columns that may contain strings."""
        single = [self._model, self._time, self._id, self._version, self._predicted, *self._segments.values()]
        return [path for path in single if path is not None]

    @property
    def tops(self) -> list[str]:
        """The top-level columns to read."""
        outputs = [path for paths in self._outputs.values() for path in paths]
        return list(dict.fromkeys(path[0] for path in [*outputs, *self.texts]))

    def rows(self, batch: Any) -> RowColumns:  # noqa: ANN401 - pyarrow has no types
        """Return the columns of a batch."""
        columns = self._columns

        def values(path: FieldPath | None) -> Any:  # noqa: ANN401
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


def _missing(path: FieldPath, where: str) -> Exception:
    return RejectionProblem(Reason.MISSING_FIELD, f"one column named {join_path(path)}", "none, or several").of_file(
        where
    )


@contextmanager
def _our_errors(where: str, arrow: Any) -> Iterator[None]:  # noqa: ANN401
    try:
        yield
    except OSError as error:
        # Pyarrow raises OSError for damaged files too; only those with an errno come from the system.
        if error.errno is not None:
            raise
    except (arrow.ArrowException, ValueError, LookupError, MemoryError, OverflowError, RecursionError):
        pass
    else:
        return
    # Without pyarrow's message, which may quote the file.
    raise RejectionProblem(Reason.BAD_FILE, "a Parquet or Arrow file, as its name says", "another file").of_file(where)
