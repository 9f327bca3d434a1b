"""The contract between sources and decoders: file formats, pieces of text, record batches and their rejections."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from monitor.core.record_columns import Records
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


MOST_POINTERS = 2_000
"""Places of refused records that are kept of each piece."""


class RejectedRecord(NamedTuple):
    """A refused record."""

    number: int
    """Its line or row in the whole file, counting from 1."""
    reason: Reason
    start: int = -1
    """Where its line starts and ends in the piece; negative where records are no lines."""
    end: int = -1


@dataclass(slots=True)
class StreamRejections:
    """The refused records of one piece."""

    counts: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    _last: list[RejectedRecord] = field(default_factory=list)

    def add(self, model: str, refused: RejectedRecord) -> None:
        """Count one refused record; the name of the model is empty where it could not be told."""
        self.counts[model, refused.reason] += 1
        self._last.append(refused)
        if len(self._last) > 4 * MOST_POINTERS:
            self._last = self._sorted()

    def count(self, model: str, reason: Reason, records: int) -> None:
        """Count refused records whose places are not kept, if there are any, since as many come after them."""
        if records > 0:
            self.counts[model, reason] += records

    def pointers(self, pointer: Callable[[RejectedRecord], Pointer]) -> tuple[Pointer, ...]:
        """Return where the last refused records stand, in the order of the file."""
        return tuple(map(pointer, self._sorted()))

    def _sorted(self) -> list[RejectedRecord]:
        # Not in order by themselves: some rules are applied line by line and others to many lines at once.
        return sorted(self._last)[-MOST_POINTERS:]


def bare_pointer(refused: RejectedRecord) -> Pointer:
    """Return the place of a record that is no line."""
    return Pointer(refused.reason, refused.number)


class Format(StrEnum):
    """How a file holds records. Chosen by its name, never by looking inside."""

    JSONL = "jsonl"
    CSV = "csv"
    JSONL_GZ = "jsonl.gz"
    CSV_GZ = "csv.gz"
    NPY = "npy"
    NPZ = "npz"
    PARQUET = "parquet"
    ARROW = "arrow"

    @property
    def grows(self) -> bool:
        """Whether a file may be read while it is written, up to its last newline."""
        return self in {Format.JSONL, Format.CSV}


SUFFIXES = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
    ".jsonl.gz": Format.JSONL_GZ,
    ".ndjson.gz": Format.JSONL_GZ,
    ".csv.gz": Format.CSV_GZ,
    ".npy": Format.NPY,
    ".npz": Format.NPZ,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
}
"""How the names of files of each format end."""


def format_of(name: str) -> Format | None:
    """Return the format that a file's name promises, or None."""
    lower = name.lower()
    return next((format_ for suffix, format_ in SUFFIXES.items() if lower.endswith(suffix)), None)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Whole lines of a text that may still grow."""

    where: str
    """What messages call the file."""
    format: Format
    """JSONL or CSV."""
    data: bytes
    """The lines, each with its newline."""
    offset: int = 0
    """Where they start in the file, in bytes."""
    line: int = 1
    """The number of the first of them."""
    head: bytes = b""
    """For CSV, the first bytes of the file, which hold its header line."""
    continues: bool = False
    """Whether the first line is the end of one that was too long to be kept."""
    unproven: int | None = 0
    """Lines of the file before these that were no JSON, as long as none was; None once one was. See `Arrived`."""


class Decoder(Protocol):
    """Turns what a source read into columns. `RefusedFile` means that a file as a whole cannot be used."""

    def text(self, piece: TextPiece) -> RecordBatch:
        """Decode whole lines."""

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[RecordBatch]:
        """Decode a file that is complete, in pieces of bounded size, leaving out its first `skip` rows or lines.

        A file that turns out to be damaged raises before its first piece is yielded.
        """
