"""Decoded outputs as matrices: all records at once where they are well-formed, one by one otherwise."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from monitor.records.labels import Indices
from monitor.records.layout import OutputKind
from monitor.records.record_schema import ModelFormat, reason_of_length
from monitor.records.rejections import Reason, RejectionProblem, shown
from monitor.records.vectors import Floats

Vector = list[float] | dict[str, float]

decode_vector = msgspec.json.Decoder[Vector](Vector).decode
"""Decodes the JSON text of one vector; raises ValueError or RecursionError."""

_encode = msgspec.msgpack.Encoder().encode

_FLOAT = 0xCB
"""MessagePack's mark of a float of eight bytes."""


def matrix_of(vectors: Sequence[object], width: int) -> Floats | None:
    """Return decoded vectors as a matrix; None when one of them is no list of this length.

    Much faster than going through Python's floats: MessagePack writes each as a mark and eight bytes, so that rows of
    equal length stand at equal distances.
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
    # A row that starts where it should, and with this length, ends where the next one should start. So if all start
    # alike, all have this length; an object with one key a class starts differently.
    heads = np.ndarray((count, len(head)), np.uint8, encoded, before, (stride, 1))
    if (heads != np.frombuffer(head, np.uint8)).any():
        return None
    numbers = np.ndarray((count, width), ">f8", encoded, before + len(head) + 1, (stride, 9))
    return numbers.astype(np.float64)


def floats_of(values: Sequence[object]) -> Floats | None:
    """Return decoded numbers as an array; None when one of them is something else than a float."""
    count = len(values)
    if not count:
        return None
    encoded = _encode(values)
    before = _size_of_head(count)
    if len(encoded) != before + 9 * count:
        return None
    # The first one stands where it should; if it is marked as a float it has nine bytes, and so the next one does too.
    if (np.ndarray(count, np.uint8, encoded, before, 9) != _FLOAT).any():
        return None
    return np.ndarray(count, ">f8", encoded, before + 1, 9).astype(np.float64)


def _size_of_head(count: int) -> int:
    # How many bytes MessagePack spends on saying how long an array is.
    return 1 if count < 1 << 4 else 3 if count < 1 << 16 else 5


def arrange(vector: dict[str, float], classes: tuple[str, ...] | None) -> list[float] | RejectionProblem:
    """Put the numbers of an object with one key a class in the order of the classes."""
    if classes is None:
        expected = "the class names to be known (give them with --classes)"
        return RejectionProblem(Reason.UNKNOWN_CLASS, expected, "a vector with names")
    if len(vector) == len(classes):
        in_order = [vector[name] for name in classes if name in vector]
        if len(in_order) == len(classes):
            return in_order
    known = set(classes)
    odd = next((name for name in vector if name not in known), None)
    missing = next((name for name in classes if name not in vector), None)
    found = f"no class {shown(missing)}" if odd is None else f"the class {shown(odd)}"
    return RejectionProblem(Reason.UNKNOWN_CLASS, f"one number for each of the {len(classes)} classes", found)


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
