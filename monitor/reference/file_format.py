"""The reference artefact as a document: its fields, its bytes, and the check that they are whole.

The first line is `cpcmon-reference FORMAT SHA256`; the rest is a JSON document whose bytes the SHA-256 is over. Arrays
are base64 of little-endian numbers. Nothing in the file is ever executed, and the fingerprint is against damage and
mix-ups: it is no signature.
"""

import base64
import hashlib
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.errors import InvalidReference
from monitor.reference.summary import BINS, ReferenceSummary

FORMAT = 1
_MAGIC = "cpcmon-reference"
MAX_BYTES = 1 << 30
"""The largest reference imaginable (a million records) is a tenth of this; a file beyond it is something else."""


class Array(msgspec.Struct, forbid_unknown_fields=True):
    """Numbers of one dimension."""

    dtype: str
    data: str


class Quantiles(msgspec.Struct, forbid_unknown_fields=True):
    """An estimator's bias and error quantiles."""

    bias: float
    low: Array
    high: Array


class Intervals(msgspec.Struct, forbid_unknown_fields=True):
    """The interval tables."""

    level: float
    sizes: Array
    disagreement: Array
    errors: dict[str, Quantiles]


class ReferenceDocument(msgspec.Struct, forbid_unknown_fields=True):
    """Everything a reference file holds."""

    written_by: str
    model: str
    version: str
    created: str
    classes: tuple[str, ...]
    records: int
    right: int
    accuracy: float
    temperature: float
    summary: ReferenceSummary
    intervals: Intervals
    estimators: dict[str, dict[str, float | Array]]


def to_bytes(document: ReferenceDocument) -> tuple[bytes, str]:
    """Return the file's bytes and the fingerprint of its content."""
    content = msgspec.json.format(msgspec.json.encode(document), indent=1)
    fingerprint = hashlib.sha256(content).hexdigest()
    return f"{_MAGIC} {FORMAT} {fingerprint}\n".encode() + content, fingerprint


def from_bytes(where: str, raw: bytes) -> tuple[ReferenceDocument, str]:
    """Verify a file's bytes and return what they hold, with the fingerprint."""
    header, _, content = raw.partition(b"\n")
    words = header.split(b" ") if len(header) < 200 else []
    if len(raw) > MAX_BYTES or len(words) != 3 or words[0] != _MAGIC.encode() or not words[1].isdigit():
        raise InvalidReference(
            f"{where}: expected a file made by `cpcmon calibrate`, which starts with {_MAGIC!r}, found one that does not"
        )
    if int(words[1]) != FORMAT:
        raise InvalidReference(
            f"{where}: expected a reference of format {FORMAT}, found format {int(words[1])}:"
            " it was written by another release of cpcmon; upgrade cpcmon or calibrate again"
        )
    fingerprint = hashlib.sha256(content).hexdigest()
    if fingerprint.encode() != words[2]:
        raise InvalidReference(
            f"{where}: expected content with fingerprint {words[2][:12].decode('ascii', 'replace')}…, found"
            f" {fingerprint[:12]}…: the file is damaged or cut short; copy it again or calibrate again"
        )
    try:
        return msgspec.json.decode(content, type=ReferenceDocument), fingerprint
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidReference(f"{where}: expected a reference of format {FORMAT}, found {error}") from error


def check_reliability(document: ReferenceDocument) -> None:
    """Raise ValueError for bins that cannot be those of this reference. None at all are those of an older release."""
    for bins in (document.summary.reliability, document.summary.reliability_scaled):
        if not bins:
            continue
        if len(bins) != BINS or any(not 0 <= one.right <= one.records or not 0 <= one.confidence <= 1 for one in bins):
            raise ValueError("impossible reliability")
        if (sum(one.records for one in bins), sum(one.right for one in bins)) != (document.records, document.right):
            raise ValueError("reliability of another number of records")


def pack(array: NDArray[Any]) -> Array:
    """Turn numbers into text."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return Array(array.dtype.name, base64.b64encode(little.tobytes()).decode("ascii"))


def unpack(packed: Array) -> NDArray[Any]:
    """Turn text into numbers, or raise ValueError."""
    if packed.dtype not in {"float32", "float64", "int64"}:
        raise ValueError(f"numbers of type {packed.dtype!r}")
    raw = base64.b64decode(packed.data, validate=True)
    return np.frombuffer(raw, dtype=np.dtype(packed.dtype).newbyteorder("<")).astype(packed.dtype)
