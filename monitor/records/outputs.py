"""Decoded outputs as matrices: all records at once where they are well-formed, one by one otherwise."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from monitor.records.labels import Indices
from monitor.records.layout import OutputKind
from monitor.records.record_schema import ModelFormat, reason_of_length
from monitor.records.rejections import Reason, RejectionProblem, preview
from monitor.records.vectors import Floats

Vector = list[float] | dict[str, float]

decode_vector = msgspec.json.Decoder[Vector](Vector).decode
"""Decodes the JSON text of one vector; raises ValueError or RecursionError."""

_encode = msgspec.msgpack.Encoder().encode

_FLOAT = 0xCB
"""MessagePack's type byte of a float64."""


def matrix_of(vectors: Sequence[object], width: int) -> Floats | None:
    """Return decoded vectors as a matrix; None unless all are lists of this length.

    Much faster than going through Python floats: MessagePack encodes each as a type byte and eight bytes, so that rows
    of equal length have equal strides.
    """
    count = len(vectors)
    if not count or not width:
        return None
    encoded = _encode(vectors)
    before = _size_of_head(count)
    head = _encode([None] * width)[: _size_of_head(width)]
    stride = len(head) + 9 * width
    if len(encoded) != before + count * stride:
        return None
    # If every row starts with the header of a list of this length, all rows have this length.
    heads = np.ndarray((count, len(head)), np.uint8, encoded, before, (stride, 1))
    if (heads != np.frombuffer(head, np.uint8)).any():
        return None
    numbers = np.ndarray((count, width), ">f8", encoded, before + len(head) + 1, (stride, 9))
    return numbers.astype(np.float64)


def floats_of(values: Sequence[object]) -> Floats | None:
    """Return decoded numbers as an array; None unless all are floats."""
    count = len(values)
    if not count:
        return None
    encoded = _encode(values)
    before = _size_of_head(count)
    if len(encoded) != before + 9 * count:
        return None
    # If every ninth byte is the type byte of a float, all values are floats.
    if (np.ndarray(count, np.uint8, encoded, before, 9) != _FLOAT).any():
        return None
    return np.ndarray(count, ">f8", encoded, before + 1, 9).astype(np.float64)


def _size_of_head(count: int) -> int:
    # The size of MessagePack's array header.
    return 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5


def arrange(vector: dict[str, float], classes: tuple[str, ...] | None) -> list[float] | RejectionProblem:
    """Return the numbers of an object with one key per class, in class order."""
    if classes is None:
        expected = "known class names (set them with --classes)"
        return RejectionProblem(Reason.UNKNOWN_CLASS, expected, "a vector with names")
    if len(vector) == len(classes):
        in_order = [vector[name] for name in classes if name in vector]
        if len(in_order) == len(classes):
            return in_order
    known = set(classes)
    odd = next((name for name in vector if name not in known), None)
    missing = next((name for name in classes if name not in vector), None)
    found = f"no class {preview(missing)}" if odd is None else f"the class {preview(odd)}"
    return RejectionProblem(Reason.UNKNOWN_CLASS, f"one number for each of the {len(classes)} classes", found)


Refuse = Callable[[int, Reason | None], None]
"""Called with the row of a rejected record and the reason; None if the reason must be diagnosed."""


def matrix_at_once(model: ModelFormat, outputs: Sequence[Sequence[Any]]) -> Floats | None:
    """Return the numbers of all records; None unless all have the right type and length.

    `outputs` is one column of vectors or scores, or one column per class.
    """
    try:
        if len(outputs) == 1 and model.kind is not OutputKind.SCORE:
            return matrix_of(outputs[0], model.width)
        if all(set(map(type, column)) == {float} for column in outputs):
            return np.array(outputs, dtype=np.float64).T
    except (TypeError, ValueError):
        pass  # a type that MessagePack cannot encode
    return None


def matrix_one_by_one(
    model: ModelFormat, outputs: Sequence[Sequence[Any]], reject: Refuse
) -> tuple[Floats, Indices] | None:
    """Return the numbers of the valid records, and their rows; None if there are none.

    A `Reason` in the first column rejects the record.
    """
    rows, kept = [], []
    for place, values in enumerate(zip(*outputs, strict=True)):
        row = _row(model, values)
        if row is None or isinstance(row, Reason):
            reject(place, row)
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
