"""The rules on output vectors, and their conversion to float32 probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.records.layout import OutputKind
from monitor.records.rejections import Reason, RejectionProblem, preview

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.uint8]

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


def explain(row: Floats, reason: Reason, kind: OutputKind) -> RejectionProblem:
    """Return the problem with a rejected row."""
    most = {OutputKind.PERCENT: 100, OutputKind.LOGPROB: 0}.get(kind, 1)
    whole = 100 if kind is OutputKind.PERCENT else 1
    what = {
        OutputKind.LOGITS: "logits",
        OutputKind.SCORE: "a score",
        OutputKind.PERCENT: "percentages",
        OutputKind.LOGPROB: "log-probabilities",
    }.get(kind, "probabilities")
    with np.errstate(all="ignore"):
        match reason:
            case Reason.NOT_FINITE:
                odd = row[~np.isfinite(row)]
                # Minus infinity is a valid log-probability.
                odd = odd[~np.isneginf(odd)] if kind is OutputKind.LOGPROB else odd
                return RejectionProblem(reason, "finite numbers", preview(float(odd[0])))
            case Reason.OUT_OF_RANGE:
                return RejectionProblem(
                    reason, f"{what} of at most {most}", preview(float(row[np.argmax(np.abs(row))]))
                )
            case Reason.NEGATIVE:
                return RejectionProblem(reason, f"{what} of at least 0", preview(float(row.min())))
            case Reason.ABOVE_ONE:
                return RejectionProblem(reason, f"{what} of at most {most}", preview(float(row.max())))
            case _:
                total = float((np.exp(row) if kind is OutputKind.LOGPROB else row).sum())
                of = "probabilities" if kind is OutputKind.LOGPROB else what
                return RejectionProblem(reason, f"{of} that sum to {whole}", f"a sum of {preview(total)}")
