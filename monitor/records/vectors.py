"""The rules on vectors: which rows of numbers are probabilities, and what float32 columns they become."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.records.layout import OutputKind
from monitor.records.rejections import Reason, RejectionProblem, shown

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Booleans = NDArray[np.bool_]
Codes = NDArray[np.uint8]

ACCEPTED = 0
"""The code of a row that breaks no rule; any other code stands for a Reason."""

EDGE_TOLERANCE = 1e-6
"""How far below 0 or above 1 a probability may lie; it is then moved to the edge."""

ROUNDING = 1e-5
"""How far float32 rounding alone takes a sum from 1; what is further off counts as normalised."""

# No probability, score or percentage comes near this: such a number is a mistake of another sort than a logit is.
_ABSURD = 2.0**63

_REASONS = tuple(Reason)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say on each row."""

    codes: Codes
    probabilities: Singles
    """One row for each row judged; those of refused rows mean nothing."""
    normalised: Booleans
    """Whether the sum was further from 1 than rounding explains."""


def code_of(reason: Reason) -> int:
    """Return the number that stands for a reason in an array of codes."""
    return _REASONS.index(reason) + 1


def reason_of(code: int) -> Reason:
    """Return the reason that a number in an array of codes stands for."""
    return _REASONS[code - 1]


def mark(codes: Codes, where: Booleans, reason: Reason) -> None:
    """Give a reason to the rows that have none yet."""
    codes[where & (codes == ACCEPTED)] = code_of(reason)


def any_in_row(marks: Booleans) -> Booleans:
    """Return which rows have a mark."""
    some: Booleans = np.logical_or.reduce(marks, axis=1)
    return some


def sum_tolerance(classes: int) -> float:
    """Return how far a sum may be from 1: it covers vectors rounded to three decimals."""
    return max(0.01, 0.002 * float(np.sqrt(classes)))


def judge(rows: NDArray[Any], kind: OutputKind, *, spend: bool = False) -> Judged:
    """Apply the rules of a kind to rows of shape (records, numbers); they are not modified, unless they may be spent."""
    codes = np.zeros(len(rows), dtype=np.uint8)
    # Always an array in C order: sums then have the same last bits, whatever the file's own order was.
    numbers: Floats = np.array(rows, dtype=np.float64, order="C", copy=None if spend else True)
    with np.errstate(all="ignore"):
        match kind:
            case OutputKind.LOGITS:
                mark(codes, any_in_row(~np.isfinite(numbers)), Reason.NOT_FINITE)
                numbers = np.exp(numbers - numbers.max(axis=1, keepdims=True))
                return Judged(codes, _divide(numbers, numbers.sum(axis=1)), np.zeros(len(rows), dtype=np.bool_))
            case OutputKind.LOGPROB:
                # A logarithm of minus infinity is a probability of 0.
                mark(codes, any_in_row(np.isnan(numbers) | np.isposinf(numbers)), Reason.NOT_FINITE)
                mark(codes, any_in_row(numbers > EDGE_TOLERANCE), Reason.ABOVE_ONE)
                np.exp(numbers, out=numbers)
            case OutputKind.PERCENT:
                numbers /= 100.0
            case OutputKind.SCORE:
                numbers = np.concatenate([1.0 - numbers, numbers], axis=1)
            case OutputKind.PROBS:
                pass
        return _judge_probabilities(numbers, codes, kind)


def _judge_probabilities(numbers: Floats, codes: Codes, kind: OutputKind) -> Judged:
    # Of a score's two numbers the first is our own: 1 - s is below 0 exactly when s is above 1.
    given = numbers[:, 1:] if kind is OutputKind.SCORE else numbers
    # Nearly always all is well, and then the whole need only be looked at once. NaN is not within.
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
    return Judged(codes, _divide(numbers, total), off > ROUNDING)


def _divide(numbers: Floats, total: Floats) -> Singles:
    numbers /= total[:, np.newaxis]
    probabilities = numbers.astype(np.float32)
    # Adding zero turns minus zero, which JSON allows, into zero.
    probabilities += 0.0
    return probabilities


def explain(row: Floats, reason: Reason, kind: OutputKind) -> RejectionProblem:
    """Say what a refused row breaks."""
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
                # Minus infinity is allowed among logarithms, so it is not what is wrong with them.
                odd = odd[~np.isneginf(odd)] if kind is OutputKind.LOGPROB else odd
                return RejectionProblem(reason, "finite numbers", shown(float(odd[0])))
            case Reason.OUT_OF_RANGE:
                return RejectionProblem(reason, f"{what} of at most {most}", shown(float(row[np.argmax(np.abs(row))])))
            case Reason.NEGATIVE:
                return RejectionProblem(reason, f"{what} of at least 0", shown(float(row.min())))
            case Reason.ABOVE_ONE:
                return RejectionProblem(reason, f"{what} of at most {most}", shown(float(row.max())))
            case _:
                total = float((np.exp(row) if kind is OutputKind.LOGPROB else row).sum())
                of = "probabilities" if kind is OutputKind.LOGPROB else what
                return RejectionProblem(reason, f"{of} that sum to {whole}", f"a sum of {shown(total)}")
