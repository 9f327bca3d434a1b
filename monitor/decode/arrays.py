"""The door for Python callers: arrays and options as people pass them, with our errors when they do not fit."""

import numpy as np
from numpy.typing import ArrayLike

from monitor.decode.records import Batch, Kind, Layout, accept
from monitor.errors import InvalidInput, UsageError


def as_kind(kind: str) -> Kind:
    """Return the kind of numbers that a caller names."""
    try:
        return Kind(kind)
    except ValueError:
        raise UsageError(f"kind: expected one of {', '.join(Kind)}, found {kind!r}") from None


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
