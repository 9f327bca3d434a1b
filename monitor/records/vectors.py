"""Output vectors: from decoded values to matrices, the rules, and float32 probabilities."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.records.record_schema import ModelFormat, OutputKind
from monitor.records.rejections import EXPECTED, Reason, RejectionProblem, preview

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.uint8]
Indices = NDArray[np.int64]

ACCEPTED = 0
"""The code of an accepted row; any other code is that of a Reason."""

EDGE_TOLERANCE = 1e-6
"""The tolerance below 0 and above 1; such probabilities are clipped."""

ROUNDING = 1e-5
"""The error of a sum from float32 rounding; vectors with a larger error count as normalised."""

# Larger than any logit: a corrupt number.
_ABSURD = 2.0**63

_REASONS = tuple(Reason)


@dataclass(frozen=True, slots=True)
class CheckedVectors:
    """The result of the rules for each row."""

    codes: Codes
    probabilities: Singles
    """One row per checked row; undefined for rejected rows."""
    normalised: Booleans
    """Whether the sum differed from 1 by more than rounding."""


def code_of(reason: Reason) -> int:
    """Return the code of a reason."""
    return _REASONS.index(reason) + 1


def reason_of(code: int) -> Reason:
    """Return the reason of a code."""
    return _REASONS[code - 1]


def mark(codes: Codes, where: Booleans, reason: Reason) -> None:
    """Set the reason of the rows that have none yet."""
    codes[where & (codes == ACCEPTED)] = code_of(reason)


def mark_all(codes: Codes, others: Codes) -> None:
    """Set other codes in the rows that are accepted so far."""
    np.copyto(codes, others, where=codes == ACCEPTED)


def any_in_row(marks: Booleans) -> Booleans:
    """Return which rows have any mark."""
    some: Booleans = np.logical_or.reduce(marks, axis=1)
    return some


def sum_tolerance(classes: int) -> float:
    """Return the tolerance of a sum, which covers vectors rounded to three decimals."""
    return max(0.01, 0.002 * float(np.sqrt(classes)))


def check_vectors(rows: NDArray[Any], kind: OutputKind, *, spend: bool = False) -> CheckedVectors:
    """Apply the rules of an output kind to rows of shape (records, numbers); `spend` allows overwriting them."""
    codes = np.zeros(len(rows), dtype=np.uint8)
    if not rows.shape[1]:  # labels
        return CheckedVectors(codes, rows.astype(np.float32), np.zeros(len(rows), dtype=np.bool_))
    # Always in C order, so that sums are reproducible to the last bit.
    numbers: Floats = np.array(rows, dtype=np.float64, order="C", copy=None if spend else True)
    with np.errstate(all="ignore"):
        match kind:
            case OutputKind.LOGITS:
                mark(codes, any_in_row(~np.isfinite(numbers)), Reason.NOT_FINITE)
                numbers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
                return CheckedVectors(codes, _divide(numbers, numbers.sum(axis=1)), np.zeros(len(rows), dtype=np.bool_))
            case OutputKind.LOGPROB:
                # Minus infinity is a probability of 0.
                mark(codes, any_in_row(np.isnan(numbers) | np.isposinf(numbers)), Reason.NOT_FINITE)
                mark(codes, any_in_row(numbers > EDGE_TOLERANCE), Reason.ABOVE_ONE)
                np.exp(numbers, out=numbers)
            case OutputKind.PERCENT:
                numbers /= 100.0
            case OutputKind.SCORE:
                numbers = np.concatenate([1.0 - numbers, numbers], axis=1)
            case OutputKind.PROBS:
                pass
        return _check_probabilities(numbers, codes, kind)


def _check_probabilities(numbers: Floats, codes: Codes, kind: OutputKind) -> CheckedVectors:
    # Of a score's two numbers only the second was given; the first is 1 - s.
    given = numbers[:, 1:] if kind is OutputKind.SCORE else numbers
    # Fast path: all values within 0 and 1. NaN is not.
    if not (given.size and given.min() >= 0.0 and given.max() <= 1.0):
        low, high = given.min(axis=1), given.max(axis=1)
        mark(codes, ~(np.isfinite(low) & np.isfinite(high)), Reason.NOT_FINITE)
        mark(codes, (low < -_ABSURD) | (high > _ABSURD), Reason.OUT_OF_RANGE)
        mark(codes, low < -EDGE_TOLERANCE, Reason.NEGATIVE)
        mark(codes, high > 1.0 + EDGE_TOLERANCE, Reason.ABOVE_ONE)
        np.clip(numbers, 0.0, 1.0, out=numbers)
    total = numbers.sum(axis=1)
    off = np.abs(total - 1.0)
    mark(codes, ~(off <= sum_tolerance(numbers.shape[1])), Reason.BAD_SUM)
    return CheckedVectors(codes, _divide(numbers, total), off > ROUNDING)


def _divide(numbers: Floats, total: Floats) -> Singles:
    numbers /= total[:, np.newaxis]
    probabilities = numbers.astype(np.float32)
    # Turns -0.0 into 0.0.
    probabilities += 0.0
    return probabilities


def expected_of(reason: Reason, kind: OutputKind) -> str:
    """Return what the rule that a record breaks expects of an output kind."""
    most = {OutputKind.PERCENT: 100, OutputKind.LOGPROB: 0}.get(kind, 1)
    what = {
        OutputKind.LOGITS: "logits",
        OutputKind.SCORE: "a score",
        OutputKind.PERCENT: "percentages",
        OutputKind.LOGPROB: "log-probabilities",
    }.get(kind, "probabilities")
    match reason:
        case Reason.NOT_FINITE:
            return "finite numbers"
        case Reason.OUT_OF_RANGE | Reason.ABOVE_ONE:
            return f"{what} of at most {most}"
        case Reason.NEGATIVE:
            return f"{what} of at least 0"
        case Reason.BAD_SUM:
            of = "probabilities" if kind is OutputKind.LOGPROB else what
            return f"{of} that sum to {100 if kind is OutputKind.PERCENT else 1}"
        case _:
            return EXPECTED[reason]


def explain(row: Floats, reason: Reason, kind: OutputKind) -> RejectionProblem:
    """Return the problem with a rejected row."""
    with np.errstate(all="ignore"):
        match reason:
            case Reason.NOT_FINITE:
                odd = row[~np.isfinite(row)]
                # Minus infinity is a valid log-probability.
                odd = odd[~np.isneginf(odd)] if kind is OutputKind.LOGPROB else odd
                found = preview(float(odd[0]))
            case Reason.OUT_OF_RANGE:
                found = preview(float(row[np.argmax(np.abs(row))]))
            case Reason.NEGATIVE:
                found = preview(float(row.min()))
            case Reason.ABOVE_ONE:
                found = preview(float(row.max()))
            case _:
                total = float((np.exp(row) if kind is OutputKind.LOGPROB else row).sum())
                found = f"a sum of {preview(total)}"
    return RejectionProblem(reason, expected_of(reason, kind), found)


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
    before = size_of_head(count)
    head = _encode([None] * width)[: size_of_head(width)]
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
    before = size_of_head(count)
    if len(encoded) != before + 9 * count:
        return None
    # If every ninth byte is the type byte of a float, all values are floats.
    if (np.ndarray(count, np.uint8, encoded, before, 9) != _FLOAT).any():
        return None
    return np.ndarray(count, ">f8", encoded, before + 1, 9).astype(np.float64)


def numbers_at(data: bytes | bytearray, places: Indices, kind: str) -> NDArray[Any]:
    """Return the numbers of a type that start at some places of a buffer; they may be a view of it.

    Evenly spaced ones, as in records of equal size, are read without a search for each.
    """
    if len(places) > 1:
        first, step = int(places[0]), int(places[1] - places[0])
        if places[-1] == first + step * (len(places) - 1) and (places[1:] - places[:-1] == step).all():
            return np.ndarray(places.shape, kind, data, first, (step,))
    return np.ndarray((len(data) - np.dtype(kind).itemsize + 1,), kind, data, 0, (1,))[places]


def size_of_head(count: int) -> int:
    """Return the size of MessagePack's header of an array or object."""
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


Reject = Callable[[int, RejectionProblem | None], None]
"""Called with the row of a rejected record and the problem; None if it must be diagnosed."""


def matrix_at_once(model: ModelFormat, outputs: Sequence[Sequence[Any]], count: int) -> Floats | None:
    """Return the numbers of all records; None unless all have the right type and length.

    `outputs` is one column of vectors or scores, or one column per class; none for labels.
    """
    if not outputs:
        return np.zeros((count, 0))
    try:
        if len(outputs) == 1 and model.kind is not OutputKind.SCORE:
            return matrix_of(outputs[0], model.width)
        if all(set(map(type, column)) == {float} for column in outputs):
            return np.array(outputs, dtype=np.float64).T
    except (TypeError, ValueError):
        pass  # a type that MessagePack cannot encode
    return None


def matrix_one_by_one(
    model: ModelFormat, outputs: Sequence[Sequence[Any]], reject: Reject
) -> tuple[Floats, Indices] | None:
    """Return the numbers of the valid records, and their rows; None if there are none.

    A problem in the first column rejects the record.
    """
    rows, kept = [], []
    for place, values in enumerate(zip(*outputs, strict=True)):
        row = _row(model, values)
        if row is None or isinstance(row, RejectionProblem):
            reject(place, row)
        else:
            rows.append(row)
            kept.append(place)
    return (np.array(rows, dtype=np.float64), np.array(kept, dtype=np.int64)) if kept else None


def vectors_one_by_one(vectors: Sequence[Any], reject: Reject) -> "tuple[Vectors, Indices]":
    """Return vectors of any length, and their rows, while the classes are unknown."""
    rows, kept = [], []
    for place, value in enumerate(vectors):
        vector = arrange(value, None) if isinstance(value, dict) else value
        if isinstance(vector, RejectionProblem):
            reject(place, vector)
        else:
            rows.append(vector)
            kept.append(place)
    flat: Floats = np.fromiter(chain.from_iterable(rows), dtype=np.float64)
    return Vectors(flat, np.fromiter(map(len, rows), dtype=np.int64)), np.array(kept, dtype=np.int64)


def _row(model: ModelFormat, values: tuple[Any, ...]) -> list[float] | RejectionProblem | None:
    value = values[0]
    if isinstance(value, RejectionProblem):
        return value
    if len(values) > 1 or model.kind is OutputKind.SCORE:
        return list(values) if all(isinstance(one, float) for one in values) else None
    if isinstance(value, dict):
        return arrange(value, model.classes)
    if not isinstance(value, list | tuple):
        return None
    return model.problem_of_length(len(value)) or list(value)


@dataclass(frozen=True, slots=True)
class Vectors:
    """The outputs of some rows, concatenated."""

    flat: Floats
    lengths: Indices
    wrong: Booleans | None = None
    """Which rows contain something other than numbers."""

    @classmethod
    def of(cls, matrix: Floats) -> "Vectors":
        """Return the outputs of a matrix."""
        return cls(matrix.reshape(-1), np.full(len(matrix), matrix.shape[1], dtype=np.int64))

    def taken(self, rows: Indices, width: int) -> Floats:
        """Return rows of one length as a matrix."""
        if len(rows) == len(self.lengths):
            return self.flat.reshape(len(rows), width)
        starts = np.cumsum(self.lengths) - self.lengths
        some: Floats = self.flat[starts[rows][:, np.newaxis] + np.arange(width)]
        return some

    def some(self, rows: Indices) -> "Vectors":
        """Return the outputs of some rows."""
        owners = np.isin(np.repeat(np.arange(len(self.lengths)), self.lengths), rows)
        return Vectors(self.flat[owners], self.lengths[rows], None if self.wrong is None else self.wrong[rows])
