"""NumPy files of a stream: outputs only (NPY), or arrays by field name (NPZ). Nothing is unpickled."""

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from monitor.records.batch_builder import BATCH_ROWS, ModelRules, RowColumns, RowFiles, Vectors, rows_per_batch
from monitor.records.columns import Values, shortest
from monitor.records.formats.text import HARMLESS_BYTES, SUSPECT_RATIO
from monitor.records.layout import MAX_CLASSES, Layout, OutputKind
from monitor.records.offline.npy_file import (
    DAMAGED,
    Archive,
    Description,
    check_directory,
    class_names,
    order_in,
    read_description,
)
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields, unknown_class_columns
from monitor.records.rejections import Reason, RejectedFile, RejectionProblem, library_message, listed

MAX_NPY_BYTES = 1 << 30
"""The limit on arrays that are read in slices."""

MAX_WHOLE_BYTES = 256 << 20
"""The limit on arrays that are read at once: in Fortran order, or in NPZ files."""

MAX_TEXT_BYTES = 4 << 10
"""The limit on the item size of string arrays."""


class ArrayFiles:
    """Decodes NumPy files in batches."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields, rules: Mapping[str, ModelRules]) -> None:
        self._models = models
        self._fields = fields
        self._rows = RowFiles(models, rules)

    def npy(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode an NPY file: outputs without other fields."""
        if len(self._models) > 1:
            raise RejectionProblem(Reason.MISSING_FIELD, "a file that names the model", "an .npy file").of_file(where)
        if self._fields.class_columns is not None:
            found = f"the class columns {listed(self._fields.class_columns)}"
            raise RejectionProblem(Reason.BAD_HEADER, "no class columns for an .npy file", found).of_file(where)
        with _without_content(where):
            described = self._describe(where, file)
        width = described.shape[1] if len(described.shape) == 2 else 1
        (model,) = self._models
        for start, rows in _slices(file, described, skip, rows_per_batch(width), where):
            matrix = np.asarray(rows, dtype=np.float64).reshape(len(rows), width)
            outputs = {model.name: Vectors.of(matrix)}
            yield self._rows.batch(where, start + 1, RowColumns(len(matrix), outputs))

    def _describe(self, where: str, file: BinaryIO) -> Description:
        described = read_description(file, _size_of(file), where)
        if (problem := _problem_of_size(described) or _problem_of_shape(described, self._models[0])) is not None:
            raise problem.of_file(where)
        return described

    def npz(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode an NPZ file: arrays by field name."""
        with _without_content(where):
            columns = self._read_npz(where, file)
        step = rows_per_batch(columns.width)
        for start in range(skip, columns.count, step):
            yield self._rows.batch(where, start + 1, columns.rows(start, min(start + step, columns.count)))

    def _read_npz(self, where: str, file: BinaryIO) -> "_Columns":
        try:
            check_directory(where, file)
            with zipfile.ZipFile(file) as opened:
                archive = Archive(where, opened, MAX_WHOLE_BYTES)
                if archive.total > max(HARMLESS_BYTES, SUSPECT_RATIO * _size_of(file)):
                    expected = f"arrays at most {SUSPECT_RATIO} times larger than compressed"
                    raise RejectionProblem(Reason.TOO_LARGE, expected, "larger ones").of_file(where)
                return _Columns(archive, self._models, self._fields)
        except DAMAGED as error:
            raise RejectionProblem(Reason.BAD_FILE, "an .npz file", f"a damaged one: {library_message(error)}").of_file(
                where
            ) from error


class _Columns:
    """The configured arrays of an NPZ file."""

    def __init__(self, archive: Archive, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        self._archive = archive
        self._outputs = {}
        wanted = [fields.model, fields.version, fields.id, fields.time, fields.predicted or "", "classes"]
        wanted += [name for model in models for name in fields.outputs(model)]
        wanted += [fields.segment(name) for model in models for name in model.segment_fields]
        if (problem := unknown_class_columns(models, fields.prefix, archive.names, wanted)) is not None:
            raise problem.of_file(archive.path)
        for model in models:
            names = fields.outputs(model)
            if set(names) <= set(archive.names):
                self._outputs[model.name] = self._read_outputs(names, model, fields)
        if not self._outputs:
            archive.array(next(name for name in fields.outputs(models[0]) if name not in archive.names))
        if len(models) > 1 and fields.model not in archive.names:
            archive.array(fields.model)
        lengths = {len(matrix) for matrix in self._outputs.values()}
        self.count = min(lengths)
        self.width = max(matrix.shape[1] for matrix in self._outputs.values())
        if len(lengths) > 1:
            raise RejectionProblem(Reason.BAD_HEADER, "outputs of one length", f"{sorted(lengths)}").of_file(
                archive.path
            )
        self._models = self._read(fields.model, Reason.UNKNOWN_MODEL)
        self._times = self._read(fields.time, Reason.BAD_TIMESTAMP)
        self._ids = self._read(fields.id, Reason.WRONG_TYPE)
        self._versions = self._read(fields.version, Reason.WRONG_TYPE)
        self._predicted = None if fields.predicted is None else self._read(fields.predicted, Reason.WRONG_TYPE)
        self._segments = {
            name: self._read(fields.segment(name), Reason.BAD_SEGMENT)
            for model in models
            for name in model.segment_fields
        }

    def rows(self, start: int, end: int) -> RowColumns:
        """Return the columns of some rows."""
        outputs = {
            name: Vectors.of(np.asarray(matrix[start:end], dtype=np.float64)) for name, matrix in self._outputs.items()
        }
        return RowColumns(
            end - start,
            outputs,
            _values(self._models, start, end),
            _values(self._times, start, end, as_texts=False),
            _values(self._ids, start, end),
            _values(self._versions, start, end),
            _values(self._predicted, start, end),
            {name: _values(array, start, end) for name, array in self._segments.items()},
        )

    def _read_outputs(self, names: tuple[str, ...], model: ModelFormat, fields: RecordFields) -> NDArray[Any]:
        archive = self._archive
        arrays = [archive.array(name) for name in names]
        if fields.class_columns is not None:
            if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
                sizes = listed([str(array.shape) for array in arrays])
                expected = "class columns of one length"
                raise RejectionProblem(Reason.BAD_HEADER, expected, f"shapes {sizes}").of_file(archive.path)
            return np.column_stack(arrays)
        (matrix,) = arrays
        described = Description(matrix.dtype, matrix.shape, fortran=False)
        if (problem := _problem_of_shape(described, model)) is not None:
            raise problem.of_file(archive.path)
        found = class_names(archive, names)
        if found is not None:
            order = order_in(found, matrix, Layout(model.kind, classes=model.classes))
            if isinstance(order, RejectionProblem):
                raise order.of_file(archive.path)
            matrix = matrix if model.kind is OutputKind.SCORE else matrix[:, list(order)]
        return matrix[:, np.newaxis] if matrix.ndim == 1 else matrix

    def _read(self, name: str, reason: Reason) -> NDArray[Any] | None:
        """Read a column, or a single value for all rows."""
        if name not in self._archive.names:
            return None
        array = self._archive.array(name, of_labels=True)
        if array.shape not in {(), (self.count,)}:
            expected = f"an array {name} of {self.count:,} values, or a single one"
            raise RejectionProblem(reason, expected, f"shape {array.shape}").of_file(self._archive.path)
        if (problem := _problem_of_texts(array)) is not None:
            raise problem.of_file(self._archive.path)
        return array


@contextmanager
def _without_content(where: str) -> Iterator[None]:
    """Replace messages that quote names of arrays, classes or types by generic ones."""
    try:
        yield
    except RejectedFile as rejected:
        reason, problem = rejected.reason, rejected.problem
    else:
        return
    if reason in _GENERIC:
        raise RejectionProblem(reason, *_GENERIC[reason]).of_file(where)
    raise RejectedFile(reason, problem)


# Messages for other reasons contain only sizes, shapes, and configured names.
_GENERIC = {
    Reason.BAD_FILE: ("an .npz file", "a damaged file"),
    Reason.BAD_HEADER: ("headers that match the file and each other", "other headers"),
    Reason.MISSING_FIELD: ("an array for each required field", "a missing array"),
    Reason.UNKNOWN_CLASS: ("the classes of the reference", "other classes"),
    Reason.WRONG_TYPE: ("arrays of numbers or strings", "arrays of another type"),
}


def _problem_of_texts(array: NDArray[Any]) -> RejectionProblem | None:
    if array.dtype.kind not in "US":
        return None
    if array.dtype.itemsize > MAX_TEXT_BYTES:
        found = f"{array.dtype.itemsize >> 10:,} KiB"
        return RejectionProblem(Reason.TOO_LARGE, f"strings of at most {MAX_TEXT_BYTES >> 10} KiB", found)
    try:
        # In slices; invalid code points are found only on conversion.
        for start in range(0, array.size, BATCH_ROWS):
            for text in array.reshape(-1)[start : start + BATCH_ROWS].tolist():
                text.decode() if isinstance(text, bytes) else text.encode()
    except ValueError:
        return RejectionProblem(Reason.BAD_ENCODING, "strings in UTF-8", "other bytes")
    return None


def _values(array: NDArray[Any] | None, start: int, end: int, *, as_texts: bool = True) -> Values | None:
    if array is None:
        return None
    # A single value is converted once, not per row.
    some = array.reshape(1) if not array.shape else array[start:end]
    values: list[object] = some.tolist()
    if array.dtype.kind == "S":
        values = [one.decode() for one in some.tolist()]
    elif as_texts and array.dtype.kind == "f" and array.dtype.itemsize < 8:
        values = [shortest(one) for one in some]
    return values if array.shape else values * (end - start)


def _slices(
    file: BinaryIO, described: Description, skip: int, step: int, where: str
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield slices of an array, with the index of their first row."""
    count = described.shape[0]
    if described.fortran:
        whole = np.frombuffer(_read(file, described.size, where), described.dtype).reshape(described.shape, order="F")
        for start in range(skip, count, step):
            yield start, whole[start : start + step]
        return
    row = described.size // count if count else 0
    file.seek(min(skip, count) * row, os.SEEK_CUR)
    for start in range(skip, count, step):
        rows = min(step, count - start)
        shape = (rows, *described.shape[1:])
        yield start, np.frombuffer(_read(file, rows * row, where), described.dtype).reshape(shape)


def _read(file: BinaryIO, size: int, where: str) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise RejectionProblem(Reason.BAD_FILE, f"{size:,} bytes", f"{len(data):,}").of_file(where)
    return data


def _size_of(file: BinaryIO) -> int:
    place = file.tell()
    size = file.seek(0, os.SEEK_END)
    file.seek(place)
    return size


def _problem_of_size(described: Description) -> RejectionProblem | None:
    most = MAX_WHOLE_BYTES if described.fortran else MAX_NPY_BYTES
    if described.size <= most:
        return None
    order = "column by column" if described.fortran else "row by row"
    return RejectionProblem(Reason.TOO_LARGE, f"at most {most >> 20:,} MiB {order}", f"{described.size >> 20:,} MiB")


def _problem_of_shape(described: Description, model: ModelFormat) -> RejectionProblem | None:
    shape = described.shape
    found = f"an array of shape {shape}"
    if model.kind is OutputKind.SCORE:
        fits = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        return None if fits else RejectionProblem(Reason.NOT_A_VECTOR, "one score per row", found)
    if len(shape) != 2:
        return RejectionProblem(Reason.NOT_A_VECTOR, "one row per record and one column per class", found)
    # Empty rows take no bytes, so a small file could declare any number of them.
    if not shape[1]:
        return RejectionProblem(Reason.EMPTY, "one number per class", found)
    if shape[1] > MAX_CLASSES:
        return RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_CLASSES:,} classes", found)
    return None
