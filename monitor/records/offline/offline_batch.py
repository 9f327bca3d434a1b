"""The batch builder of the offline commands: blocks of any format in, outputs, labels and rejections out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from monitor.errors import InvalidInput, UsageError
from monitor.records.hints import Tally
from monitor.records.labels import Indices, LabelRules, Labels
from monitor.records.layout import MAX_CLASSES, Layout, OutputKind, numbered
from monitor.records.outputs import Vector, arrange
from monitor.records.rejections import DETAILS, Reason, RejectionProblem, Rejections
from monitor.records.vectors import ACCEPTED, Codes, Floats, Singles, check_vectors, code_of, explain, reason_of

MAX_NUMBERS = 1 << 30
"""The limit on numbers in one file: 4 GiB of float32."""


@dataclass(frozen=True)
class Batch:
    """Accepted outputs and labels."""

    probabilities: Singles
    """Shape (records, classes); rows are normalised."""
    labels: Indices | None
    """The index of each record's true class; None without labels."""
    classes: tuple[str, ...]
    """Class names; empty if unknown."""
    normalised: int
    """Accepted vectors whose sum differed from 1 by more than rounding."""


@dataclass(frozen=True)
class Decoded:
    """The decoded content of a file or array."""

    batch: Batch
    rejections: Rejections
    hints: tuple[str, ...]
    """Probable causes of rejections."""
    unusable: str | None = None
    """Why even the accepted records must not be used; None if they may."""


class OfflineBatchBuilder:
    """Collects the records of one file in file order, and applies the rules.

    Readers pass floats, and reject everything else themselves. Not thread-safe.
    """

    def __init__(self, layout: Layout, where: str, unit: str, *, labelled: bool) -> None:
        self._layout = layout
        self._where = where
        self._unit = unit
        self._labelled = labelled
        self._rules: LabelRules | None = None
        self._pieces: list[Singles] = []
        self._labels: list[Indices] = []
        self._one_past_the_last = False
        self._normalised = 0
        self._room = MAX_NUMBERS
        self._rejections = Rejections()
        self._tally = Tally(layout.kind)
        if layout.classes is not None:
            self.fix_classes(layout.classes)
        elif layout.kind is OutputKind.SCORE:
            self.fix_classes(numbered(2))

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The class names, once they are known."""
        return None if self._rules is None else self._rules.classes

    def fix_classes(self, classes: tuple[str, ...]) -> None:
        """Set the classes; otherwise the first accepted record does."""
        self._rules = LabelRules(classes)

    def reject(self, number: int, problem: RejectionProblem) -> None:
        """Reject the record at a line or row."""
        self._rejections.add(number, problem.at(f"{self._unit} {number}"))

    def add(self, numbers: Indices, flat: Floats, lengths: Indices, labels: Labels | None) -> None:
        """Add records at ascending lines or rows; `flat` is their concatenated vectors."""
        piece = _Piece(numbers, flat, lengths, np.cumsum(lengths) - lengths, labels)
        rows = np.arange(len(numbers))
        if self._rules is None:
            first = self._first_acceptable(piece)
            # Records before the first acceptable one are not rejected for their length.
            self._take(piece, rows[:first])
            rows = rows[first:]
            if len(rows):
                self.fix_classes(numbered(int(lengths[first])))
        self._take(piece, rows)

    def add_matrix(self, numbers: Indices, matrix: Floats, labels: Labels | None) -> None:
        """Add records whose vectors all have the same length."""
        self.add(numbers, matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64), labels)

    def finish(self, *hints: str) -> Decoded:
        """Return the result; `hints` are those of the reader."""
        classes = self.classes or ()
        probabilities = np.concatenate([np.empty((0, len(classes)), dtype=np.float32), *self._pieces])
        labels = np.concatenate([np.empty(0, dtype=np.int64), *self._labels])
        batch = Batch(probabilities, labels if self._labelled else None, classes, self._normalised)
        return Decoded(
            batch, self._rejections, self._tally.hints(probabilities) + hints, self._unusable(probabilities, labels)
        )

    def _unusable(self, probabilities: Singles, labels: Indices) -> str | None:
        """Return the message that labels count from 1, if a K occurs, no 0 does, and the labels minus 1 fit better."""
        if self._rules is None or not self._one_past_the_last or not labels.size or labels.min() == 0:
            return None
        predicted = probabilities.argmax(axis=1)
        fits_as_is = np.count_nonzero(predicted == labels) > np.count_nonzero(predicted == labels - 1)
        return None if fits_as_is else self._rules.counted_from_one()

    def _first_acceptable(self, piece: "_Piece") -> int:
        first = len(piece.numbers)
        for length in np.unique(piece.lengths).tolist():
            if self._problem_of_length(length) is None:
                rows = np.flatnonzero(piece.lengths == length)
                codes = check_vectors(piece.matrix(rows), self._layout.kind).codes
                _check_labels(codes, piece.labels_of(rows), LabelRules(numbered(length)))
                first = min([first, *rows[codes == ACCEPTED][:1].tolist()])
        return first

    def _take(self, piece: "_Piece", rows: Indices) -> None:
        # By length. All accepted rows have the same length, so file order is kept.
        for length in np.unique(piece.lengths[rows]).tolist():
            some = rows[piece.lengths[rows] == length]
            problem = self._problem_of_length(length)
            if problem is None:
                self._take_rows(piece, some)
            else:
                codes = np.full(len(some), code_of(problem.reason), dtype=np.uint8)
                self._reject_rows(piece.numbers[some], codes, partial(_same, problem))

    def _problem_of_length(self, length: int) -> RejectionProblem | None:
        expected = (
            1 if self._layout.kind is OutputKind.SCORE else None if self._rules is None else len(self._rules.classes)
        )
        if length == 0:
            return RejectionProblem(Reason.EMPTY, "one number per class", "an empty vector")
        if length > MAX_CLASSES:
            return RejectionProblem(Reason.OUT_OF_RANGE, f"at most {MAX_CLASSES:,} classes", f"a vector of {length:,}")
        if expected is None and length == 1:
            return RejectionProblem(Reason.WRONG_K, "a vector of 2 or more", "a vector of 1")
        if expected not in {None, length}:
            return RejectionProblem(Reason.WRONG_K, f"a vector of {expected}", f"a vector of {length}")
        return None

    def _take_rows(self, piece: "_Piece", rows: Indices) -> None:
        matrix, labels = piece.matrix(rows), piece.labels_of(rows)
        checked = check_vectors(matrix, self._layout.kind)
        self._tally.add(matrix, checked.codes)
        rules = self._rules or LabelRules(numbered(matrix.shape[1]))
        codes = checked.codes.copy()
        indices = _check_labels(codes, labels, rules)
        self._one_past_the_last |= rules.one_past_the_last

        def problem_of(row: int) -> RejectionProblem:
            if checked.codes[row] == ACCEPTED and labels is not None:
                answer = rules.index(labels[row])
                if isinstance(answer, RejectionProblem):
                    return answer
            return explain(matrix[row], reason_of(int(codes[row])), self._layout.kind)

        self._reject_rows(piece.numbers[rows], codes, problem_of)
        kept = codes == ACCEPTED
        self._keep(checked.probabilities[kept], None if indices is None else indices[kept])
        self._normalised += int(np.count_nonzero(checked.normalised & kept))

    def _reject_rows(self, numbers: Indices, codes: Codes, problem_of: Callable[[int], RejectionProblem]) -> None:
        rejected = np.flatnonzero(codes)
        for row in rejected[:DETAILS].tolist():
            self.reject(int(numbers[row]), problem_of(row))
        for code, count in zip(*np.unique(codes[rejected[DETAILS:]], return_counts=True), strict=True):
            self._rejections.counts[reason_of(int(code))] += int(count)

    def _keep(self, probabilities: Singles, indices: Indices | None) -> None:
        self._room -= probabilities.size
        if self._room < 0:
            problem = RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_NUMBERS:,} numbers", "more")
            raise problem.of_file(self._where)
        if not len(probabilities):
            return  # an empty array may have the wrong number of columns
        self._pieces.append(probabilities)
        if indices is not None:
            self._labels.append(indices)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some records of a file."""

    numbers: Indices
    flat: Floats
    lengths: Indices
    starts: Indices
    labels: Labels | None

    def matrix(self, rows: Indices) -> Floats:
        """Return the vectors of rows of one length."""
        length = int(self.lengths[rows[0]])
        if len(rows) == len(self.lengths):
            return self.flat.reshape(len(rows), length)
        places = self.starts[rows][:, np.newaxis] + np.arange(length)
        return np.take(self.flat, places)

    def labels_of(self, rows: Indices) -> Labels | None:
        """Return the labels of some rows."""
        if self.labels is None or len(rows) == len(self.lengths):
            return self.labels
        if isinstance(self.labels, np.ndarray):
            return self.labels[rows]
        return [self.labels[row] for row in rows.tolist()]


def _same(problem: RejectionProblem, _row: int) -> RejectionProblem:
    return problem


def _check_labels(codes: Codes, labels: Labels | None, rules: LabelRules) -> Indices | None:
    """Return the class indices of labels; set the code of rows with an invalid label."""
    if labels is None:
        return None
    indices, of_labels = rules.indices(labels)
    np.copyto(codes, of_labels, where=codes == ACCEPTED)
    return indices


# Bounds the memory of the rules.
_BLOCK_NUMBERS = 1 << 20


def accept(matrix: NDArray[Any], layout: Layout, labels: Labels | None = None, *, where: str = "outputs") -> Decoded:
    """Apply the rules to the rows of an array; `where` is its name in messages.

    The array has shape (records, classes), or (records,) for scores.
    """
    problem = _problem_of_matrix(matrix, layout) or (None if labels is None else _problem_of_labels(labels, matrix))
    if problem is not None:
        raise problem.of_file(where)
    rows = matrix[:, np.newaxis] if matrix.ndim == 1 else matrix
    builder = OfflineBatchBuilder(layout, where, "row", labelled=labels is not None)
    step = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = np.ascontiguousarray(rows[start : start + step], dtype=np.float64)
        numbers = np.arange(start + 1, start + 1 + len(block))
        builder.add_matrix(numbers, block, None if labels is None else labels[start : start + step])
    return builder.finish()


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


def _problem_of_matrix(matrix: NDArray[Any], layout: Layout) -> RejectionProblem | None:
    shape = matrix.shape
    found = f"an array of shape {shape}"
    if (problem := problem_of_dtype(matrix.dtype)) is not None:
        return problem
    if layout.kind is OutputKind.SCORE:
        fits = matrix.ndim == 1 or (matrix.ndim == 2 and shape[1] == 1)
        return None if fits else RejectionProblem(Reason.NOT_A_VECTOR, "one score per row", found)
    if matrix.ndim == 1:
        return RejectionProblem(
            Reason.NOT_A_VECTOR, "one row per record and one column per class (or --kind score)", found
        )
    if matrix.ndim != 2:
        return RejectionProblem(Reason.NOT_A_VECTOR, "one row per record and one column per class", found)
    if shape[1] > MAX_CLASSES:
        return RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_CLASSES:,} classes", found)
    return None


def _problem_of_labels(labels: Labels, matrix: NDArray[Any]) -> RejectionProblem | None:
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1:
            return RejectionProblem(Reason.NOT_A_VECTOR, "one label per row", f"labels of shape {labels.shape}")
        # Objects from a Python caller are checked one by one; in a file they would be pickles.
        if labels.dtype.kind != "O" and (problem := problem_of_label_dtype(labels.dtype)) is not None:
            return problem
    if len(labels) != len(matrix):
        return RejectionProblem(Reason.MISSING_FIELD, f"{len(matrix):,} labels, one per row", f"{len(labels):,}")
    return None


def as_kind(kind: str) -> OutputKind:
    """Return the output kind of a name; raises UsageError."""
    try:
        return OutputKind(kind)
    except ValueError:
        raise UsageError(f"kind: expected one of {', '.join(OutputKind)}, found {kind!r}") from None


def accept_array(outputs: ArrayLike, layout: Layout, labels: ArrayLike | None = None) -> Batch:
    """Return the vectors of an array of shape (records, classes); raises InvalidInput that names the bad rows."""
    try:
        matrix = np.asarray(outputs)
        named = None if labels is None else np.asarray(labels)
    except ValueError as error:
        raise InvalidInput(
            "outputs: expected an array of shape (records, classes), found rows of unequal length"
        ) from error
    decoded = accept(matrix, layout, labels=named)
    if decoded.unusable:
        raise InvalidInput(f"outputs: {decoded.unusable}")
    if decoded.rejections.total:
        raise InvalidInput(f"outputs: {decoded.rejections}")
    return decoded.batch


def add_vectors(
    builder: OfflineBatchBuilder, numbers: Indices, vectors: list[Vector], labels: list[object] | None
) -> None:
    """Add decoded vectors; objects with one key per class are put in class order first."""
    if dict in set(map(type, vectors)):
        arranged = [arrange(vector, builder.classes) if isinstance(vector, dict) else vector for vector in vectors]
        kept = []
        vectors = []
        for place, vector in enumerate(arranged):
            if isinstance(vector, RejectionProblem):
                builder.reject(int(numbers[place]), vector)
            else:
                kept.append(place)
                vectors.append(vector)
        numbers = numbers[kept]
        labels = None if labels is None else [labels[place] for place in kept]
    flat: Floats = np.fromiter(chain.from_iterable(vectors), dtype=np.float64)
    lengths: Indices = np.fromiter(map(len, vectors), dtype=np.int64)
    builder.add(numbers, flat, lengths, labels)
