"""The numbers of a model's records as a matrix: all at once where all are of the right sort, else record by record."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from monitor.records.formats.json_vectors import arrange, matrix_of
from monitor.records.labels import Indices
from monitor.records.layout import OutputKind
from monitor.records.record_schema import ModelFormat, reason_of_length
from monitor.records.rejections import Reason, RejectionProblem
from monitor.records.vectors import Floats

Refuse = Callable[[int, Reason | None], None]
"""Takes the place of a record among others and why it is refused; None when that needs a careful look."""


def matrix_at_once(model: ModelFormat, outputs: Sequence[Sequence[Any]]) -> Floats | None:
    """Return the numbers of all records; None when not all of them are of the right sort and length.

    There is one column of vectors, or of scores, or one column a class.
    """
    try:
        if len(outputs) == 1 and model.kind is not OutputKind.SCORE:
            return matrix_of(outputs[0], model.width)
        if all(set(map(type, column)) == {float} for column in outputs):
            return np.array(outputs, dtype=np.float64).T
    except (TypeError, ValueError):
        pass  # something among them that MessagePack does not know
    return None


def matrix_one_by_one(
    model: ModelFormat, outputs: Sequence[Sequence[Any]], refuse: Refuse
) -> tuple[Floats, Indices] | None:
    """Return the numbers of those records that have them, and their places; None when there are none.

    A reason in the first column refuses its record.
    """
    rows, kept = [], []
    for place, values in enumerate(zip(*outputs, strict=True)):
        row = _row(model, values)
        if row is None or isinstance(row, Reason):
            refuse(place, row)
        else:
            rows.append(row)
            kept.append(place)
    return (np.array(rows, dtype=np.float64), np.array(kept, dtype=np.int64)) if kept else None


def _row(model: ModelFormat, values: tuple[Any, ...]) -> list[float] | Reason | None:
    value = values[0]
    if isinstance(value, Reason):
        return value
    if any(one is msgspec.UNSET for one in values):
        return None
    if len(values) > 1:
        return list(values)
    if model.kind is OutputKind.SCORE:
        return [value] if isinstance(value, float) else None
    return _vector(model, value)


def _vector(model: ModelFormat, value: object) -> list[float] | Reason | None:
    if isinstance(value, dict):
        arranged = arrange(value, model.classes)
        return arranged.reason if isinstance(arranged, RejectionProblem) else arranged
    if not isinstance(value, list | tuple):
        return None
    return reason_of_length(len(value), model) or list(value)
