"""What the device decides: the most probable class, a class from a threshold on, or the class that a record names.

A record is right if its decision is, and its confidence is the probability of the decision. The decision is taken once, on
the probabilities before scaling.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from monitor.core.scores import Integers, Singles
from monitor.errors import Problem, UsageError


class DecidedBy(StrEnum):
    """Who or what decides."""

    ARGMAX = "argmax"
    """The first of the largest probabilities."""
    THRESHOLD = "threshold"
    """Of two classes, one from a threshold on, the other one below it: an operating point."""
    FIELD = "field"
    """The record itself."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How the decision follows from a record."""

    by: DecidedBy = DecidedBy.ARGMAX
    index: int = 0
    """The class with the threshold; 0 without one."""
    threshold: float = 0.0
    """From this probability on the class is decided; 0 without one."""

    def __post_init__(self) -> None:
        """Raise ValueError for what is not a decision."""
        if self.by is DecidedBy.THRESHOLD:
            if self.index not in {0, 1} or not 0.0 < self.threshold <= 1.0:
                raise ValueError(f"decision: expected class 0 or 1 and a threshold above 0 up to 1, found {self}")
        elif (self.index, self.threshold) != (0, 0.0):
            raise ValueError(f"decision: expected no threshold, found {self}")

    @classmethod
    def at(cls, index: int, threshold: float) -> Self:
        """Return the decision for a class from a threshold on."""
        return cls(DecidedBy.THRESHOLD, index, threshold)

    @classmethod
    def parsed(cls, where: str, text: str, classes: Sequence[str]) -> Self:
        """Return the decision `argmax`, `field`, or `CLASS=0.13`; raises UsageError."""
        if text in {DecidedBy.ARGMAX, DecidedBy.FIELD}:
            return cls(DecidedBy(text))
        # A name may contain the sign, a number does not.
        name, _, number = text.rpartition("=")
        if not name:
            raise UsageError(Problem(where, "argmax, field, or CLASS=THRESHOLD such as cancer=0.13", repr(text)))
        if len(classes) != 2:
            raise UsageError(Problem(where, "two classes for a threshold", f"{len(classes):,}"))
        if name not in classes:
            raise UsageError(Problem(where, f"one of the classes {' and '.join(classes)}", repr(name)))
        try:
            threshold = float(number)
        except ValueError:
            threshold = math.nan
        if not 0.0 < threshold <= 1.0:
            raise UsageError(Problem(where, "a threshold above 0 and up to 1", repr(number)))
        return cls.at(list(classes).index(name), threshold)

    def text(self, classes: Sequence[str]) -> str:
        """Return the decision as `parsed` reads it."""
        return f"{classes[self.index]}={self.threshold!r}" if self.by is DecidedBy.THRESHOLD else self.by.value

    def described(self, classes: Sequence[str]) -> str:
        """Return what follows 'decides', for people."""
        if self.by is DecidedBy.THRESHOLD:
            return f"{classes[self.index]} at {self.threshold!r} or above"
        return "the most probable class" if self.by is DecidedBy.ARGMAX else "what each record says"

    def decided(self, vectors: Singles) -> Integers:
        """Return the decided class of vectors, shape (records, classes)."""
        if self.by is DecidedBy.FIELD:
            raise ValueError("decided: expected the class that each record names, found none")
        if self.by is DecidedBy.ARGMAX:
            return np.asarray(np.argmax(vectors, axis=1))
        below = vectors[:, self.index].astype(np.float32) < np.float32(self.threshold)
        return np.asarray(below ^ np.int64(self.index))

    def taken(self, vectors: Singles, named: Integers | None = None) -> Integers:
        """Return the decided class of vectors; `named` are those that the records name, which count only if they decide."""
        return named if self.by is DecidedBy.FIELD and named is not None else self.decided(vectors)

    def column(self, vectors: Singles, named: Integers | None = None) -> Integers | None:
        """Return the same; None for argmax, where scores need no decided class."""
        return None if self.by is DecidedBy.ARGMAX else self.taken(vectors, named)
