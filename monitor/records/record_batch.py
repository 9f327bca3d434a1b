"""The contract between sources and the decoder: file formats, pieces of text, record batches."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, Protocol

from monitor.core.record_columns import Records
from monitor.records.rejections import Reason, RejectedRecord, Rejection

MAX_LINE_BYTES = 1 << 20
"""Longer lines are skipped without being held in memory; a source may have another limit."""
MAX_MESSAGE_BYTES = 8 << 20
"""Longer messages are rejected; a source may have another limit."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The location of a rejected record, without its content."""

    reason: Reason
    number: int
    """The line or row in the file, from 1."""
    offset: int | None = None
    """The byte offset of its line; None if records are not lines."""
    length: int | None = None
    """The length of its line in bytes, without the newline."""
    digest: str | None = None
    """A keyed hash of the line, truncated, to recognise the line later."""
    shape: str | None = None
    """Types and lengths of the configured fields, such as `probs: list[9], time: str`; no values."""
    raw: bytes | None = None
    """The line, truncated; only with `store_raw`."""
    expected: str | None = None
    """What the broken rule expects, as the offline commands say it: from the configuration, never from the record."""


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The decoded records of some lines, rows or messages."""

    models: Mapping[str, Records] = field(default_factory=dict)
    """Accepted records by model."""
    rejected: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    """Number of rejected records by model (empty if unknown) and reason."""
    pointers: tuple[Pointer, ...] = ()
    """Locations of rejected records: the last few thousand of each piece."""
    ignored: int = 0
    """Blank lines and headers."""
    rows: int = 0
    """Lines or rows that were read: accepted, rejected and ignored."""
    non_json_lines: int | None = None
    """Lines of the file so far that are not JSON; None after the first JSON object. Passed to the next piece."""
    hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Hints by model, from its latest few hundred records."""
    explained: tuple[tuple[int, Rejection], ...] = ()
    """The first rejected records of the piece with their line or row; only for the offline commands."""

    @property
    def accepted(self) -> int:
        """Number of accepted records."""
        return sum(len(one) for one in self.models.values())


PointerTo = Callable[[RejectedRecord], Pointer]
"""Returns the pointer to a rejected record."""


def bare_pointer(rejected: RejectedRecord) -> Pointer:
    """Return the location of a record that is not a line."""
    return Pointer(rejected.reason, rejected.number, expected=rejected.expected)


class Format(StrEnum):
    """File formats. Chosen by the file name, never by the content."""

    JSONL = "jsonl"
    CSV = "csv"
    JSONL_GZ = "jsonl.gz"
    CSV_GZ = "csv.gz"
    NPY = "npy"
    NPZ = "npz"
    PARQUET = "parquet"
    ARROW = "arrow"


TAILED = frozenset({Format.JSONL, Format.CSV})
"""Formats of files that can be read up to their last newline while they are written."""

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
"""File name suffixes of each format."""


def format_of(name: str) -> Format | None:
    """Return the format of a file name, or None."""
    lower = name.lower()
    return next((format_ for suffix, format_ in SUFFIXES.items() if lower.endswith(suffix)), None)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Complete lines of a text file that may still grow."""

    where: str
    """The name of the file in messages."""
    format: Format
    """JSONL or CSV."""
    data: bytes
    """The lines, each with its newline."""
    offset: int = 0
    """Their byte offset in the file."""
    line: int = 1
    """The number of the first line."""
    head: bytes = b""
    """For CSV, the first bytes of the file, with the header line."""
    continues: bool = False
    """Whether the first line is the end of one that was too long."""
    non_json_lines: int | None = 0
    """See `RecordBatch.non_json_lines`."""


class Decoder(Protocol):
    """What a source of files needs of the decoder. Raises `RejectedFile` if a whole file cannot be used."""

    def text(self, piece: TextPiece) -> RecordBatch:
        """Decode complete lines."""

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[RecordBatch]:
        """Decode a complete file in pieces of bounded size, after its first `skip` rows or lines.

        Raises before the first piece if the file is damaged.
        """
