"""The batch builder of the offline commands: blocks of any format in, accepted outputs and rejections out."""

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
from monitor.records.rejections import DETAILS, Reason, Rejection, RejectionProblem, Rejections
from monitor.records.vectors import ACCEPTED, Codes, Floats, Singles, code_of, explain, judge, reason_of

MAX_NUMBERS = 1 << 30
"""Numbers that one file may bring in: 4 GiB of float32."""


@dataclass(frozen=True)
class Batch:
    """Columns of accepted outputs."""

    probabilities: Singles
    """Shape (records, classes); each row was divided by its own sum."""
    labels: Indices | None
    """The index of each record's true class; None when labels were not read."""
    classes: tuple[str, ...]
    """The names of the classes; empty when no record was accepted and nothing else names them."""
    normalised: int
    """Accepted vectors whose sum was further from 1 than float32 rounding explains."""


@dataclass(frozen=True)
class Decoded:
    """What a file or array held."""

    batch: Batch
    rejections: Rejections
    hints: tuple[str, ...]
    """What probably went wrong, and what to do about it."""
    unusable: str | None = None
    """Why not even the accepted records may be used, and what to do; None when they may."""


class Intake:
    """Takes the candidates of one file in file order and keeps those that pass the rules.

    A reader gives it numbers that are already floats, and rejects by itself what is no number. Not shared by threads.
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
        """The names of the classes, once they are known."""
        return None if self._rules is None else self._rules.classes

    def fix_classes(self, classes: tuple[str, ...]) -> None:
        """Say what the classes are; without this the first acceptable record does."""
        self._rules = LabelRules(classes)

    def reject(self, number: int, problem: RejectionProblem) -> None:
        """Refuse the record at a line or row."""
        self._rejections.add(number, problem.at(f"{self._unit} {number}"))

    def add(self, numbers: Indices, flat: Floats, lengths: Indices, labels: Labels | None) -> None:
        """Take candidates at ascending lines or rows, whose vectors stand one after the other in `flat`."""
        piece = _Piece(numbers, flat, lengths, np.cumsum(lengths) - lengths, labels)
        rows = np.arange(len(numbers))
        if self._rules is None:
            first = self._first_acceptable(piece)
            # What comes before the first acceptable record is refused for what it is, not for its length.
            self._take(piece, rows[:first])
            rows = rows[first:]
            if len(rows):
                self.fix_classes(numbered(int(lengths[first])))
        self._take(piece, rows)

    def add_matrix(self, numbers: Indices, matrix: Floats, labels: Labels | None) -> None:
        """Take candidates whose vectors all have the same length."""
        self.add(numbers, matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64), labels)

    def finish(self, *hints: str) -> Decoded:
        """Return everything that was taken, with the reader's own hints after ours."""
        classes = self.classes or ()
        probabilities = np.concatenate([np.empty((0, len(classes)), dtype=np.float32), *self._pieces])
        labels = np.concatenate([np.empty(0, dtype=np.int64), *self._labels])
        batch = Batch(probabilities, labels if self._labelled else None, classes, self._normalised)
        return Decoded(
            batch, self._rejections, self._tally.hints(probabilities) + hints, self._unusable(probabilities, labels)
        )

    def _unusable(self, probabilities: Singles, labels: Indices) -> str | None:
        """Say that labels count from 1, where there is a K and no 0 and, less one, they fit the outputs better."""
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
                codes = judge(piece.matrix(rows), self._layout.kind).codes
                _judge_labels(codes, piece.labels_of(rows), LabelRules(numbered(length)))
                first = min([first, *rows[codes == ACCEPTED][:1].tolist()])
        return first

    def _take(self, piece: "_Piece", rows: Indices) -> None:
        # One length at a time. All accepted rows have the same length, so they stay in file order.
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
            return RejectionProblem(Reason.EMPTY, "one number a class", "an empty vector")
        if length > MAX_CLASSES:
            return RejectionProblem(Reason.OUT_OF_RANGE, f"at most {MAX_CLASSES:,} classes", f"a vector of {length:,}")
        if expected is None and length == 1:
            return RejectionProblem(Reason.WRONG_K, "a vector of 2 or more", "a vector of 1")
        if expected not in {None, length}:
            return RejectionProblem(Reason.WRONG_K, f"a vector of {expected}", f"a vector of {length}")
        return None

    def _take_rows(self, piece: "_Piece", rows: Indices) -> None:
        matrix, labels = piece.matrix(rows), piece.labels_of(rows)
        judged = judge(matrix, self._layout.kind)
        self._tally.add(matrix, judged.codes)
        rules = self._rules or LabelRules(numbered(matrix.shape[1]))
        codes = judged.codes.copy()
        indices = _judge_labels(codes, labels, rules)
        self._one_past_the_last |= rules.one_past_the_last

        def problem_of(row: int) -> RejectionProblem:
            if judged.codes[row] == ACCEPTED and labels is not None:
                answer = rules.index(labels[row])
                if isinstance(answer, RejectionProblem):
                    return answer
            return explain(matrix[row], reason_of(int(codes[row])), self._layout.kind)

        self._reject_rows(piece.numbers[rows], codes, problem_of)
        kept = codes == ACCEPTED
        self._keep(judged.probabilities[kept], None if indices is None else indices[kept])
        self._normalised += int(np.count_nonzero(judged.normalised & kept))

    def _reject_rows(self, numbers: Indices, codes: Codes, problem_of: Callable[[int], RejectionProblem]) -> None:
        refused = np.flatnonzero(codes)
        for row in refused[:DETAILS].tolist():
            self.reject(int(numbers[row]), problem_of(row))
        for code, count in zip(*np.unique(codes[refused[DETAILS:]], return_counts=True), strict=True):
            self._rejections.counts[reason_of(int(code))] += int(count)

    def _keep(self, probabilities: Singles, indices: Indices | None) -> None:
        self._room -= probabilities.size
        if self._room < 0:
            problem = RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_NUMBERS:,} numbers", "more")
            raise problem.of_file(self._where)
        if not len(probabilities):
            return  # refused rows may be of any length, and an empty piece would remember theirs
        self._pieces.append(probabilities)
        if indices is not None:
            self._labels.append(indices)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some candidates of a file."""

    numbers: Indices
    flat: Floats
    lengths: Indices
    starts: Indices
    labels: Labels | None

    def matrix(self, rows: Indices) -> Floats:
        """Return the vectors of rows that all have the same length."""
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


def _judge_labels(codes: Codes, labels: Labels | None, rules: LabelRules) -> Indices | None:
    """Find the classes of the labels; rows that broke no rule yet, but whose label does, get its code."""
    if labels is None:
        return None
    indices, of_labels = rules.indices(labels)
    np.copyto(codes, of_labels, where=codes == ACCEPTED)
    return indices


__all__ = ["Batch", "Decoded", "Layout", "OutputKind", "Reason", "Rejection", "Rejections", "accept"]

# A block of rows, with what the rules derive from it, stays small beside the array itself.
_BLOCK_NUMBERS = 1 << 20


def accept(matrix: NDArray[Any], layout: Layout, labels: Labels | None = None, *, where: str = "outputs") -> Decoded:
    """Apply the rules to the rows of an array, which is not modified; `where` names it in messages.

    The array has shape (records, classes), or for scores (records,). Its labels, if any, are used whether or not the
    layout names a field for them: an array has no fields.
    """
    problem = _problem_of_matrix(matrix, layout) or (None if labels is None else _problem_of_labels(labels, matrix))
    if problem is not None:
        raise problem.of_file(where)
    rows = matrix[:, np.newaxis] if matrix.ndim == 1 else matrix
    intake = Intake(layout, where, "row", labelled=labels is not None)
    step = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = np.ascontiguousarray(rows[start : start + step], dtype=np.float64)
        numbers = np.arange(start + 1, start + 1 + len(block))
        intake.add_matrix(numbers, block, None if labels is None else labels[start : start + step])
    return intake.finish()


def problem_of_dtype(dtype: np.dtype[Any]) -> RejectionProblem | None:
    """Say why an array of this type holds no outputs."""
    if dtype.hasobject:
        return RejectionProblem(Reason.PICKLE, "an array of numbers", "an array of Python objects")
    if dtype.kind not in "iuf":
        return RejectionProblem(Reason.WRONG_TYPE, "an array of real numbers", f"an array of type {dtype}")
    return None


def problem_of_label_dtype(dtype: np.dtype[Any]) -> RejectionProblem | None:
    """Say why an array of this type holds no labels."""
    if dtype.hasobject:
        return RejectionProblem(Reason.PICKLE, "an array of integers or texts", "an array of Python objects")
    if dtype.kind not in "iufUS":
        return RejectionProblem(Reason.WRONG_TYPE, "labels that are integers or texts", f"an array of type {dtype}")
    return None


def _problem_of_matrix(matrix: NDArray[Any], layout: Layout) -> RejectionProblem | None:
    shape = matrix.shape
    found = f"an array of shape {shape}"
    if (problem := problem_of_dtype(matrix.dtype)) is not None:
        return problem
    if layout.kind is OutputKind.SCORE:
        fits = matrix.ndim == 1 or (matrix.ndim == 2 and shape[1] == 1)
        return None if fits else RejectionProblem(Reason.NOT_A_VECTOR, "one score a row", found)
    if matrix.ndim == 1:
        return RejectionProblem(Reason.NOT_A_VECTOR, "a row a record and a column a class (or --kind score)", found)
    if matrix.ndim != 2:
        return RejectionProblem(Reason.NOT_A_VECTOR, "a row a record and a column a class", found)
    if shape[1] > MAX_CLASSES:
        return RejectionProblem(Reason.TOO_LARGE, f"at most {MAX_CLASSES:,} classes", found)
    return None


def _problem_of_labels(labels: Labels, matrix: NDArray[Any]) -> RejectionProblem | None:
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1:
            return RejectionProblem(Reason.NOT_A_VECTOR, "one label a row", f"labels of shape {labels.shape}")
        # Objects made by a Python caller are judged one by one; only in a file would they be pickles.
        if labels.dtype.kind != "O" and (problem := problem_of_label_dtype(labels.dtype)) is not None:
            return problem
    if len(labels) != len(matrix):
        return RejectionProblem(Reason.MISSING_FIELD, f"{len(matrix):,} labels, one a row", f"{len(labels):,}")
    return None


def as_kind(kind: str) -> OutputKind:
    """Return the kind of numbers that a caller names."""
    try:
        return OutputKind(kind)
    except ValueError:
        raise UsageError(f"kind: expected one of {', '.join(OutputKind)}, found {kind!r}") from None


def accept_array(outputs: ArrayLike, layout: Layout, labels: ArrayLike | None = None) -> Batch:
    """Return the accepted vectors of an array of shape (records, classes), or raise InvalidInput naming the rows."""
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


def add_vectors(intake: Intake, numbers: Indices, vectors: list[Vector], labels: list[object] | None) -> None:
    """Hand decoded vectors to the rules; those with one key a class are first put in the order of the classes."""
    if dict in set(map(type, vectors)):
        arranged = [arrange(vector, intake.classes) if isinstance(vector, dict) else vector for vector in vectors]
        kept = []
        vectors = []
        for place, vector in enumerate(arranged):
            if isinstance(vector, RejectionProblem):
                intake.reject(int(numbers[place]), vector)
            else:
                kept.append(place)
                vectors.append(vector)
        numbers = numbers[kept]
        labels = None if labels is None else [labels[place] for place in kept]
    flat: Floats = np.fromiter(chain.from_iterable(vectors), dtype=np.float64)
    lengths: Indices = np.fromiter(map(len, vectors), dtype=np.int64)
    intake.add(numbers, flat, lengths, labels)
