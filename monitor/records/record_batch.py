"""What a stream of records decodes into: columns for each model, what was refused, and where it stands."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from monitor.core.segments import Records
from monitor.records.rejections import Reason

Hashes = NDArray[np.uint64]

NO_ID = 0
"""Stands in a column of hashes where a record has no id."""


@dataclass(frozen=True, slots=True)
class ModelRecords:
    """Accepted records of one model, as columns in the order they came."""

    records: Records
    ids: Hashes | None = None
    """Keyed hashes of the records' ids, NO_ID where a record has none; None when none of them has one."""
    normalised: int = 0
    """Vectors whose sum was further from 1 than rounding explains."""
    argmax_mismatches: int = 0
    """Records whose own predicted class is not their most probable one; counted, and accepted all the same."""

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.records.at)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where a refused record stands, without anything of what it says."""

    reason: Reason
    number: int
    """The physical line of a text, or the row of an array; both count from 1 in the whole file."""
    offset: int | None = None
    """Where its line starts in the file, in bytes; None where records are no lines."""
    length: int | None = None
    """How many bytes its line has, without the newline."""
    digest: str | None = None
    """The first digits of a keyed hash of the line, to tell whether a line found later is the one that was refused."""
    shape: str | None = None
    """Types and lengths of the fields that were asked for: `probs: list[9], time: str`. No values."""
    raw: bytes | None = None
    """The line itself, cut short; only where the operator asked for it."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """What some lines, rows or messages of a stream held."""

    models: Mapping[str, ModelRecords] = field(default_factory=dict)
    """The accepted records by model."""
    rejected: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """How many were refused, by model (empty text where it could not be told) and reason."""
    pointers: tuple[Pointer, ...] = ()
    """Where refused records stand: of each piece the last few thousand."""
    ignored: int = 0
    """Blank lines and headers."""
    rows: int = 0
    """Lines or rows that were read: accepted, refused and ignored ones together."""
    unproven: int | None = None
    """Lines of the file so far that were no JSON, as long as none was; None once one was. Goes into the next piece."""
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By model, what probably is wrong with its records, as the latest few hundred look."""

    @property
    def accepted(self) -> int:
        """Number of accepted records."""
        return sum(len(one) for one in self.models.values())
