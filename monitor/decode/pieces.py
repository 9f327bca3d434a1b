"""What a source hands to the decoder: the format of its files, and pieces of those that grow."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Protocol

from monitor.decode.arrived import Arrived


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

    def text(self, piece: TextPiece) -> Arrived:
        """Decode whole lines."""

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[Arrived]:
        """Decode a file that is complete, in pieces of bounded size, leaving out its first `skip` rows or lines.

        A file that turns out to be damaged raises before its first piece is yielded.
        """
