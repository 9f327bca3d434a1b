"""The rules on records, for arrays handed in by Python callers; also the door to the names that callers need."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.decode.batch import Batch, Decoded
from monitor.decode.intake import Intake
from monitor.decode.labels import Labels
from monitor.decode.layout import MAX_CLASSES, Kind, Layout
from monitor.decode.rejections import Problem, Reason, Rejection, Rejections

__all__ = ["Batch", "Decoded", "Kind", "Layout", "Reason", "Rejection", "Rejections", "accept"]

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


def problem_of_dtype(dtype: np.dtype[Any]) -> Problem | None:
    """Say why an array of this type holds no outputs."""
    if dtype.hasobject:
        return Problem(Reason.PICKLE, "an array of numbers", "an array of Python objects")
    if dtype.kind not in "iuf":
        return Problem(Reason.WRONG_TYPE, "an array of real numbers", f"an array of type {dtype}")
    return None


def problem_of_label_dtype(dtype: np.dtype[Any]) -> Problem | None:
    """Say why an array of this type holds no labels."""
    if dtype.hasobject:
        return Problem(Reason.PICKLE, "an array of integers or texts", "an array of Python objects")
    if dtype.kind not in "iufUS":
        return Problem(Reason.WRONG_TYPE, "labels that are integers or texts", f"an array of type {dtype}")
    return None


def _problem_of_matrix(matrix: NDArray[Any], layout: Layout) -> Problem | None:
    shape = matrix.shape
    found = f"an array of shape {shape}"
    if (problem := problem_of_dtype(matrix.dtype)) is not None:
        return problem
    if layout.kind is Kind.SCORE:
        fits = matrix.ndim == 1 or (matrix.ndim == 2 and shape[1] == 1)
        return None if fits else Problem(Reason.NOT_A_VECTOR, "one score a row", found)
    if matrix.ndim == 1:
        return Problem(Reason.NOT_A_VECTOR, "a row a record and a column a class (or --kind score)", found)
    if matrix.ndim != 2:
        return Problem(Reason.NOT_A_VECTOR, "a row a record and a column a class", found)
    if shape[1] > MAX_CLASSES:
        return Problem(Reason.TOO_LARGE, f"at most {MAX_CLASSES:,} classes", found)
    return None


def _problem_of_labels(labels: Labels, matrix: NDArray[Any]) -> Problem | None:
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1:
            return Problem(Reason.NOT_A_VECTOR, "one label a row", f"labels of shape {labels.shape}")
        # Objects made by a Python caller are judged one by one; only in a file would they be pickles.
        if labels.dtype.kind != "O" and (problem := problem_of_label_dtype(labels.dtype)) is not None:
            return problem
    if len(labels) != len(matrix):
        return Problem(Reason.MISSING_FIELD, f"{len(matrix):,} labels, one a row", f"{len(labels):,}")
    return None
