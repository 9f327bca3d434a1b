"""NPY and NPZ for the offline commands. Nothing is unpickled, and every header is checked."""

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, BinaryIO, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from monitor.records.layout import MAX_CLASSES, ClassColumns, Layout, OutputKind, find_class_columns, order_of
from monitor.records.offline.offline_batch import Decoded, accept, problem_of_dtype, problem_of_label_dtype
from monitor.records.rejections import Reason, RejectionProblem, library_message, listed

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


MAX_NPZ_BYTES = 4 << 30
"""The limit on the uncompressed size of an NPZ file."""

_CLASS_NAMES = "classes"

# The exceptions of NumPy's header parser.
_BAD_HEADER = (ValueError, EOFError, TypeError, SyntaxError, RecursionError, MemoryError, TokenError)
DAMAGED = (ValueError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError)


def read_npy(path: Path, layout: Layout, labels: Path | None) -> Decoded:
    """Read outputs from an NPY file, and labels from another."""
    if layout.class_columns is not None:
        found = f"the class columns {listed(layout.class_columns)}"
        raise RejectionProblem(Reason.BAD_HEADER, "no class columns for an .npy file", found).of_file(path)
    if layout.label_field is not None and labels is None:
        expected = (
            "a second .npy file with the labels (--labels; for evaluate --source-labels, --target-labels), or an .npz"
        )
        raise RejectionProblem(Reason.MISSING_FIELD, expected, "outputs only").of_file(path)
    outputs = _read_array_file(path, of_labels=False)
    return accept(
        outputs, layout, None if labels is None else _read_array_file(labels, of_labels=True), where=str(path)
    )


def read_npz(path: Path, layout: Layout) -> Decoded:
    """Read outputs, labels and class names from an NPZ file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(Archive(path, archive, MAX_NPZ_BYTES), layout)
    except DAMAGED as error:
        raise RejectionProblem(Reason.BAD_FILE, "an .npz file", f"a damaged one: {library_message(error)}").of_file(
            path
        ) from error


class Archive:
    """The arrays of an NPZ file. The constructor checks the total size."""

    def __init__(self, path: Path | str, archive: zipfile.ZipFile, most_bytes: int) -> None:
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


def _read_archive(archive: Archive, layout: Layout) -> Decoded:
    labels = None if layout.label_field is None else archive.array(layout.label_field, of_labels=True)
    if layout.class_columns is not None:
        found = find_class_columns(layout, archive.names)
        if isinstance(found, RejectionProblem):
            raise found.of_file(archive.path)
        return accept(_stack(archive, found), replace(layout, classes=found.classes), labels, where=str(archive.path))
    outputs = archive.array(layout.field or "")
    names = class_names(archive, {layout.field, layout.label_field})
    if names is not None:
        order = order_in(names, outputs, layout)
        if isinstance(order, RejectionProblem):
            raise order.of_file(archive.path)
        layout = replace(layout, classes=layout.classes or names)
        outputs = outputs if layout.kind is OutputKind.SCORE else outputs[:, list(order)]
    return accept(outputs, layout, labels, where=str(archive.path))


def order_in(names: tuple[str, ...], outputs: NDArray[Any], layout: Layout) -> Sequence[int] | RejectionProblem:
    """Return the index of each class in an array with its own class names."""
    count = 2 if layout.kind is OutputKind.SCORE else outputs.shape[1] if outputs.ndim == 2 else 0
    if not all(names):
        return RejectionProblem(Reason.BAD_HEADER, "a name for each class", "an empty name")
    if len(names) != count or len(set(names)) < count:
        return RejectionProblem(Reason.BAD_HEADER, f"{count} different class names", f"{len(names)}: {listed(names)}")
    order = order_of(names, layout.classes)
    if layout.kind is OutputKind.SCORE and not isinstance(order, RejectionProblem) and list(order) != [0, 1]:
        return RejectionProblem(
            Reason.UNKNOWN_CLASS, f"scores of the class {names[0]}", f"scores of the class {names[1]}"
        )
    return order


def _stack(archive: Archive, found: ClassColumns) -> NDArray[Any]:
    columns = [archive.array(name) for name in found.columns]
    shapes = {column.shape for column in columns}
    if len(shapes) > 1 or columns[0].ndim != 1:
        sizes = listed([str(shape) for shape in sorted(shapes)])
        raise RejectionProblem(Reason.BAD_HEADER, "class columns of one length", f"shapes {sizes}").of_file(
            archive.path
        )
    return np.column_stack(columns)


def class_names(archive: Archive, taken: Container[str | None]) -> tuple[str, ...] | None:
    """Return the class names of a file, in its own order; None without them."""
    if _CLASS_NAMES not in archive.names or _CLASS_NAMES in taken:
        return None
    names = archive.array(_CLASS_NAMES, of_labels=True)
    # Integers are names too.
    if names.dtype.kind not in "Uiu" or names.ndim != 1 or not 2 <= len(names) <= MAX_CLASSES:
        expected = f"an array {_CLASS_NAMES!r} of 2 to {MAX_CLASSES:,} names"
        raise RejectionProblem(Reason.BAD_HEADER, expected, f"shape {names.shape}, type {names.dtype}").of_file(
            archive.path
        )
    return tuple(str(name) for name in names.tolist())


def _read_array_file(path: Path, *, of_labels: bool) -> NDArray[Any]:
    with path.open("rb") as file:
        return _read_array(file, path.stat().st_size, str(path), of_labels=of_labels)


def _read_array(file: IO[bytes], size: int, where: str, *, of_labels: bool) -> NDArray[Any]:
    described = read_description(file, size, where, of_labels=of_labels)
    data = file.read(described.size)
    if len(data) != described.size:
        raise RejectionProblem(Reason.BAD_FILE, f"{described.size:,} bytes", f"{len(data):,}").of_file(where)
    return np.ndarray(described.shape, described.dtype, buffer=data, order="F" if described.fortran else "C")


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
