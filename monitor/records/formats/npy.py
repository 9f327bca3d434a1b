"""NumPy files: outputs only (NPY), or arrays by field name (NPZ). Nothing is unpickled, and every header is checked."""

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tokenize import TokenError
from typing import IO, Any, BinaryIO, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from monitor.records.batch_builder import BATCH_ROWS, ModelRules, RowColumns, RowFiles, rows_per_batch
from monitor.records.columns import Labels, Values, shortest
from monitor.records.formats.text import HARMLESS_BYTES, SUSPECT_RATIO
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import MAX_CLASSES, Carries, ModelFormat, OutputKind, RecordSchema, order_of
from monitor.records.rejections import Reason, RejectedFile, RejectionProblem, library_message, listed
from monitor.records.vectors import Vectors

MAX_NPY_BYTES = 1 << 30
"""The limit on arrays that are read in slices."""

MAX_WHOLE_BYTES = 256 << 20
"""The limit on arrays that are read at once: in Fortran order, or in NPZ files."""

MAX_OFFLINE_BYTES = 4 << 30
"""The limit on the arrays of a file for the offline commands."""

MAX_TEXT_BYTES = 4 << 10
"""The limit on the item size of string arrays."""

MAX_DIRECTORY_BYTES = 1 << 20
"""Enough for 10,000 arrays with names of usual length."""

# The end record; before it, in large files, the ZIP64 locator and end record.
_END, _END_SIZE = b"PK\5\6", 22
_LOCATOR_64, _LOCATOR_64_SIZE = b"PK\6\7", 20
_END_64, _END_64_SIZE = b"PK\6\6", 56
_LONGEST_COMMENT = 1 << 16


def check_directory(where: str, file: BinaryIO) -> None:
    """Raise `RejectedFile` if the ZIP directory is too large. Other files are not checked."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _LONGEST_COMMENT - _END_SIZE - _LOCATOR_64_SIZE - _END_64_SIZE))
    tail = file.read()
    file.seek(0)
    # The record that Python's zipfile finds.
    without_comment = tail[-_END_SIZE:].startswith(_END) and tail.endswith(b"\0\0")
    place = len(tail) - _END_SIZE if without_comment else tail.rfind(_END)
    if place < 0 or len(tail) < place + _END_SIZE:
        return
    (found,) = struct.unpack_from("<I", tail, place + 12)
    larger = place - _LOCATOR_64_SIZE - _END_64_SIZE
    if larger >= 0 and tail.startswith(_LOCATOR_64, larger + _END_64_SIZE) and tail.startswith(_END_64, larger):
        (found,) = struct.unpack_from("<Q", tail, larger + 40)
    if found > MAX_DIRECTORY_BYTES:
        expected = f"a directory of at most {MAX_DIRECTORY_BYTES >> 20} MiB"
        raise RejectionProblem(Reason.TOO_LARGE, expected, f"{found / (1 << 20):,.1f} MiB").of_file(where)


_CLASS_NAMES = "classes"

# The exceptions of NumPy's header parser.
_BAD_HEADER = (ValueError, EOFError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError)
_DAMAGED = (ValueError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)


class Description(NamedTuple):
    """The checked header of an array."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    """Whether the array is in Fortran order."""

    @property
    def size(self) -> int:
        """The size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class ArrayFiles:
    """Decodes NumPy files in batches."""

    def __init__(self, schema: RecordSchema, rules: Mapping[str, ModelRules]) -> None:
        self._schema = schema
        self._rules = rules
        self._rows = RowFiles(schema, rules)

    def npy(self, where: str, file: BinaryIO, skip: int, labels: BinaryIO | None = None) -> Iterator[RecordBatch]:
        """Decode an NPY file: outputs without other fields, but for labels in another file."""
        fields = self._schema.fields
        if self._schema.carries is Carries.LABELS:
            raise RejectionProblem(Reason.MISSING_FIELD, "ids and labels, as in an .npz", "an .npy file").of_file(where)
        if len(self._schema.models) > 1:
            raise RejectionProblem(Reason.MISSING_FIELD, "a file that names the model", "an .npy file").of_file(where)
        if fields.class_columns is not None:
            found = f"the class columns {listed(fields.class_columns)}"
            raise RejectionProblem(Reason.BAD_HEADER, "no class columns for an .npy file", found).of_file(where)
        if fields.label is not None and labels is None:
            expected = (
                "a second .npy file with the labels (--labels; for evaluate --source-labels, --target-labels), or an"
                " .npz"
            )
            raise RejectionProblem(Reason.MISSING_FIELD, expected, "outputs only").of_file(where)
        with self._generic_messages(where):
            described = self._describe(where, file)
            named = None if labels is None else _read_array(labels, _size_of(labels), labels.name, of_labels=True)
            if named is not None and (problem := problem_of_labels(named, described.shape[0])) is not None:
                raise problem.of_file(where)
        width = described.shape[1] if len(described.shape) == 2 else 1
        for start, rows in _slices(file, described, skip, rows_per_batch(width), where):
            matrix = np.asarray(rows, dtype=np.float64).reshape(len(rows), width)
            yield self.batch(where, start, matrix, None if named is None else named[start : start + len(rows)])

    def batch(self, where: str, start: int, matrix: NDArray[Any], labels: Labels | None = None) -> RecordBatch:
        """Return the batch of some rows of an array; `start` is the index of the first."""
        (model,) = self._schema.models
        columns = RowColumns(len(matrix), {model.name: Vectors.of(matrix)}, labels=labels)
        return self._rows.batch(where, start + 1, columns)

    def _describe(self, where: str, file: BinaryIO) -> Description:
        described = read_description(file, _size_of(file), where)
        if (
            problem := self._problem_of_size(described) or problem_of_shape(described, self._schema.models[0])
        ) is not None:
            raise problem.of_file(where)
        return described

    def _problem_of_size(self, described: Description) -> RejectionProblem | None:
        most = MAX_WHOLE_BYTES if described.fortran else MAX_NPY_BYTES
        most = MAX_OFFLINE_BYTES if self._schema.from_file else most
        if described.size <= most:
            return None
        order = "column by column" if described.fortran else "row by row"
        found = f"{described.size >> 20:,} MiB"
        return RejectionProblem(Reason.TOO_LARGE, f"at most {most >> 20:,} MiB {order}", found)

    def npz(self, where: str, file: BinaryIO, skip: int) -> Iterator[RecordBatch]:
        """Decode an NPZ file: arrays by field name."""
        with self._generic_messages(where):
            columns = self._read_npz(where, file)
        if columns.classes is not None:
            self._rules[self._schema.models[0].name].set_classes(columns.classes)
        step = rows_per_batch(columns.width)
        for start in range(skip, columns.count, step):
            yield self._rows.batch(where, start + 1, columns.rows(start, min(start + step, columns.count)))

    def _read_npz(self, where: str, file: BinaryIO) -> "_Columns":
        try:
            check_directory(where, file)
            with zipfile.ZipFile(file) as opened:
                most = MAX_OFFLINE_BYTES if self._schema.from_file else MAX_WHOLE_BYTES
                archive = Archive(where, opened, most)
                if archive.total > max(HARMLESS_BYTES, SUSPECT_RATIO * _size_of(file)):
                    expected = f"arrays at most {SUSPECT_RATIO} times larger than compressed"
                    raise RejectionProblem(Reason.TOO_LARGE, expected, "larger ones").of_file(where)
                return _Columns(archive, self._schema)
        except _DAMAGED as error:
            raise RejectionProblem(Reason.BAD_FILE, "an .npz file", f"a damaged one: {library_message(error)}").of_file(
                where
            ) from error

    @contextmanager
    def _generic_messages(self, where: str) -> Iterator[None]:
        """In a stream, replace messages that quote names of arrays, classes or types by generic ones."""
        try:
            yield
        except RejectedFile as rejected:
            if self._schema.from_file:
                raise
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


class _Columns:
    """The configured arrays of an NPZ file."""

    def __init__(self, archive: "Archive", schema: RecordSchema) -> None:
        fields, names = schema.fields, archive.names
        self._archive = archive
        self.classes: tuple[str, ...] | None = None
        """Class names of the file, if they were not given."""
        labels = None if fields.label is None else archive.array(fields.label, of_labels=True)
        if schema.needs_columns:
            found = schema.with_columns(names)
            if isinstance(found, RejectionProblem):
                raise found.of_file(archive.path)
            schema, self.classes = found, found.models[0].classes
        self._schema = schema
        models = schema.models
        wanted = [getattr(fields, name) for name in schema.single_paths()]
        wanted += [_CLASS_NAMES, *(name for model in models for name in schema.outputs(model))]
        wanted += map(fields.segment, schema.named_fields())
        if (problem := schema.unknown_class_columns(fields.prefix, names, wanted)) is not None:
            raise problem.of_file(archive.path)
        self._outputs = {
            model.name: self._read_outputs(model)
            for model in models
            if schema.outputs(model) and set(schema.outputs(model)) <= set(names)
        }
        if not self._outputs and schema.carries is Carries.PREDICTIONS:
            archive.array(next(name for name in schema.outputs(models[0]) if name not in names))
        if len(models) > 1 and fields.model not in names:
            archive.array(fields.model or "")
        # The labels have the length of the file if there are no outputs.
        lengths = {len(matrix) for matrix in self._outputs.values()} or {
            len(one) for one in (labels,) if one is not None and one.ndim
        }
        self.count = min(lengths, default=0)
        self.width = max((matrix.shape[1] for matrix in self._outputs.values()), default=0)
        if len(lengths) > 1:
            raise RejectionProblem(Reason.BAD_HEADER, "outputs of one length", f"{sorted(lengths)}").of_file(
                archive.path
            )
        if labels is not None:
            problem = problem_of_labels(labels, self.count) or _problem_of_texts(labels)
            if problem is not None:
                raise problem.of_file(archive.path)
        self._labels = labels
        self._models = self._read(fields.model, Reason.UNKNOWN_MODEL)
        self._times = self._read(fields.time, Reason.BAD_TIMESTAMP)
        self._ids = self._read(fields.id, Reason.WRONG_TYPE)
        self._versions = self._read(fields.version, Reason.WRONG_TYPE)
        self._predicted = self._read(fields.predicted, Reason.WRONG_TYPE)
        self._segments = {
            name: self._read(fields.segment(name), reason) for name, reason in schema.named_fields().items()
        }

    def rows(self, start: int, end: int) -> RowColumns:
        """Return the columns of some rows."""
        outputs = {
            name: Vectors.of(np.ascontiguousarray(matrix[start:end], dtype=np.float64))
            for name, matrix in self._outputs.items()
        }
        return RowColumns(
            end - start,
            outputs,
            _values(self._models, start, end),
            _values(self._times, start, end, as_texts=False),
            _values(self._ids, start, end),
            _values(self._versions, start, end),
            _nullable(_values(self._predicted, start, end)),
            {name: _values(array, start, end) for name, array in self._segments.items()},
            None if self._labels is None else self._labels[start:end],
        )

    def _read_outputs(self, model: ModelFormat) -> NDArray[Any]:
        archive, names = self._archive, self._schema.outputs(model)
        arrays = [archive.array(name) for name in names]
        if self._schema.fields.class_columns is not None:
            if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1:
                sizes = listed([str(array.shape) for array in arrays])
                expected = "class columns of one length"
                raise RejectionProblem(Reason.BAD_HEADER, expected, f"shapes {sizes}").of_file(archive.path)
            return np.column_stack(arrays)
        (matrix,) = arrays
        described = Description(matrix.dtype, matrix.shape, fortran=False)
        if (problem := problem_of_shape(described, model)) is not None:
            raise problem.of_file(archive.path)
        if names[0] != _CLASS_NAMES and self._schema.fields.label != _CLASS_NAMES and _CLASS_NAMES in archive.names:
            matrix = self._in_class_order(matrix, model)
        return matrix[:, np.newaxis] if matrix.ndim == 1 else matrix

    def _in_class_order(self, matrix: NDArray[Any], model: ModelFormat) -> NDArray[Any]:
        """Return an array in class order, from the class names of the file."""
        found = _class_names(self._archive)
        order = _order_in(found, matrix, model)
        if isinstance(order, RejectionProblem):
            raise order.of_file(self._archive.path)
        if self._schema.from_file:
            given = self._schema.models[0].classes
            self.classes = found if given is None else given
        return matrix if model.kind is OutputKind.SCORE else matrix[:, list(order)]

    def _read(self, name: str | None, reason: Reason) -> NDArray[Any] | None:
        """Read a column, or a single value for all rows."""
        if name is None or name not in self._archive.names:
            return None
        array = self._archive.array(name, of_labels=True)
        if array.shape not in {(), (self.count,)}:
            expected = f"an array {name} of {self.count:,} values, or a single one"
            raise RejectionProblem(reason, expected, f"shape {array.shape}").of_file(self._archive.path)
        if (problem := _problem_of_texts(array)) is not None:
            raise problem.of_file(self._archive.path)
        return array


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


def _nullable(values: Values | None) -> Values | None:
    """Return a column with None for empty texts and NaN: arrays have no null."""
    # NaN differs from itself.
    return values and [None if value in {"", None} or value != value else value for value in values]  # noqa: PLR0124


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


def problem_of_shape(described: Description, model: ModelFormat) -> RejectionProblem | None:
    """Return the problem if an array of this shape cannot be outputs of a model."""
    shape = described.shape
    found = f"an array of shape {shape}"
    if model.kind is OutputKind.SCORE:
        fits = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
        return None if fits else RejectionProblem(Reason.NOT_A_VECTOR, "one score per row", found)
    if len(shape) != 2:
        other = " (or kind score)" if len(shape) == 1 else ""
        return RejectionProblem(Reason.NOT_A_VECTOR, f"one row per record and one column per class{other}", found)
    # Empty rows take no bytes, so a small file could declare any number of them.
    if not shape[1]:
        return RejectionProblem(Reason.EMPTY, "one number per class", found)
    if shape[1] > MAX_CLASSES:
        return RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_CLASSES:,} classes", found)
    return None


def problem_of_labels(labels: Labels, rows: int) -> RejectionProblem | None:
    """Return the problem if these cannot be the labels of so many rows."""
    if isinstance(labels, np.ndarray):
        # Empty strings take no bytes, so a small file could declare any number of them.
        if not labels.itemsize:
            return RejectionProblem(Reason.EMPTY, "one label per row", "empty strings")
        if labels.ndim != 1:
            return RejectionProblem(Reason.NOT_A_VECTOR, "one label per row", f"labels of shape {labels.shape}")
        # Objects from a Python caller are checked one by one; in a file they would be pickles.
        if labels.dtype.kind != "O" and (problem := problem_of_label_dtype(labels.dtype)) is not None:
            return problem
    if len(labels) != rows:
        return RejectionProblem(Reason.MISSING_FIELD, f"{rows:,} labels, one per row", f"{len(labels):,}")
    return None


def problem_of_dtype(dtype: np.dtype[Any]) -> RejectionProblem | None:
    """Return the problem if an array of this type cannot be outputs."""
    if dtype.hasobject:
        return RejectionProblem(Reason.PICKLE, "an array of numbers", "an array of Python objects")
    if dtype.kind not in "iuf":
        return RejectionProblem(Reason.WRONG_TYPE, "an array of real numbers", f"an array of type {dtype}")
    return None


def problem_of_label_dtype(dtype: np.dtype[Any]) -> RejectionProblem | None:
    """Return the problem if an array of this type cannot be labels."""
    if dtype.hasobject:
        return RejectionProblem(Reason.PICKLE, "an array of integers or strings", "an array of Python objects")
    if dtype.kind not in "iufUS":
        return RejectionProblem(Reason.WRONG_TYPE, "labels that are integers or strings", f"an array of type {dtype}")
    return None


class Archive:
    """The arrays of an NPZ file. The constructor checks the total size."""

    def __init__(self, path: str, archive: zipfile.ZipFile, most_bytes: int) -> None:
        self.total = sum(member.file_size for member in archive.infolist())
        if self.total > most_bytes:
            found = f"{self.total / (1 << 30):.1f} GiB"
            expected = f"at most {most_bytes / (1 << 30):.3g} GiB uncompressed"
            raise RejectionProblem(Reason.TOO_LARGE, expected, found).of_file(path)
        self.path = path
        self._archive = archive
        self._members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, in file order."""
        return tuple(self._members)

    def array(self, name: str, *, of_labels: bool = False) -> NDArray[Any]:
        """Read an array; labels may be strings."""
        if name not in self._members:
            found = f"the arrays {listed(self.names)}"
            raise RejectionProblem(Reason.MISSING_FIELD, f"an array named {name}", found).of_file(self.path)
        member = self._members[name]
        if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            found = f"compression of type {member.compress_type}"
            raise RejectionProblem(Reason.BAD_FILE, "arrays stored or deflated", found).of_file(self.path)
        with self._archive.open(member) as file:
            return _read_array(file, member.file_size, f"{self.path}, array {name}", of_labels=of_labels)


def _order_in(names: tuple[str, ...], outputs: NDArray[Any], model: ModelFormat) -> Sequence[int] | RejectionProblem:
    """Return the index of each class in an array with its own class names."""
    count = 2 if model.kind is OutputKind.SCORE else outputs.shape[1] if outputs.ndim == 2 else 0
    if not all(names):
        return RejectionProblem(Reason.BAD_HEADER, "a name for each class", "an empty name")
    if len(names) != count or len(set(names)) < count:
        return RejectionProblem(Reason.BAD_HEADER, f"{count} different class names", f"{len(names)}: {listed(names)}")
    order = order_of(names, model.classes)
    if model.kind is OutputKind.SCORE and not isinstance(order, RejectionProblem) and list(order) != [0, 1]:
        return RejectionProblem(
            Reason.UNKNOWN_CLASS, f"scores of the class {names[0]}", f"scores of the class {names[1]}"
        )
    return order


def _class_names(archive: Archive) -> tuple[str, ...]:
    """Return the class names of a file, in its own order."""
    names = archive.array(_CLASS_NAMES, of_labels=True)
    # Integers are names too.
    if names.dtype.kind not in "Uiu" or names.ndim != 1 or not 2 <= len(names) <= MAX_CLASSES:
        expected = f"an array {_CLASS_NAMES!r} of 2 to {MAX_CLASSES:,} names"
        raise RejectionProblem(Reason.BAD_HEADER, expected, f"shape {names.shape}, type {names.dtype}").of_file(
            archive.path
        )
    return tuple(str(name) for name in names.tolist())


def _read_array(file: IO[bytes], size: int, where: str, *, of_labels: bool) -> NDArray[Any]:
    described = read_description(file, size, where, of_labels=of_labels)
    data = file.read(described.size)
    if len(data) != described.size:
        raise RejectionProblem(Reason.BAD_FILE, f"{described.size:,} bytes", f"{len(data):,}").of_file(where)
    return np.ndarray(described.shape, described.dtype, buffer=data, order="F" if described.fortran else "C")


def read_description(file: IO[bytes], size: int, where: str, *, of_labels: bool = False) -> Description:
    """Read and check the header of an array in a file of `size` bytes."""
    try:
        with catch_warnings():
            simplefilter("ignore")  # NumPy warns about headers written by Python 2
            described = Description(*_read_header(file))
    except _BAD_HEADER as error:
        raise RejectionProblem(
            Reason.BAD_HEADER, "a NumPy array", f"a header that cannot be read: {library_message(error)}"
        ).of_file(where) from error
    problem = problem_of_label_dtype(described.dtype) if of_labels else problem_of_dtype(described.dtype)
    if problem is not None:
        raise problem.of_file(where)
    held = size - file.tell()
    # More data than declared is rejected too: a second array would be silently lost.
    if min(described.shape, default=0) < 0 or described.size != held:
        found = f"shape {described.shape}, which needs {described.size:,} bytes, and {held:,}"
        raise RejectionProblem(Reason.BAD_HEADER, "a header that matches the file", found).of_file(where)
    return described


def _read_header(file: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        # Version 3 is only for structured arrays.
        raise ValueError(f"version {version[0]}.{version[1]}")
    return dtype, shape, fortran
