"""The exact interval of a share, without scipy: the daemon shows it, and would load 18 MB for nothing else."""

from functools import lru_cache
from math import exp, lgamma, log, log1p

from monitor.core.estimate import Interval

_TINY = 1e-300
_EXACT = 1e-15
_MOST_TERMS = 1_000_000
_HALVINGS = 48
"""Of the way from 0 to 1: what is left is under 4e-15."""


@lru_cache(maxsize=256)
def share_interval(right: int, records: int, level: float) -> Interval:
    """Return the exact (Clopper-Pearson) interval of a share. Remembered, since pages ask again and again."""
    tail = (1.0 - level) / 2.0
    lower = _quantile(tail, right, records - right + 1) if right > 0 else 0.0
    upper = _quantile(1.0 - tail, right + 1, records - right) if right < records else 1.0
    return Interval(lower, upper)


def _quantile(probability: float, a: int, b: int) -> float:
    """Return where the beta distribution reaches a probability, by halving: it always ends, and needs no derivative."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if _beta(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _beta(x: float, a: int, b: int) -> float:
    """Return the regularised incomplete beta function, on the side where its fraction converges fast."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: int, b: int) -> float:
    """Return the continued fraction of the function (DLMF 8.17.22), by the way of Lentz."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MOST_TERMS):
        before = value
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away(1.0 + term * d)
            c = _away(1.0 + term / c)
            value *= c * d
        if abs(value - before) <= _EXACT * abs(value):
            break
    return value


def _away(value: float) -> float:
    """Return a value that can be divided by."""
    return value if abs(value) > _TINY else _TINY
