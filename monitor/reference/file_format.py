"""The file format of a reference.

The first line is `cpcmon-reference FORMAT SHA256`, the rest is a JSON document with that SHA-256. Arrays are base64 of
little-endian numbers. Nothing in the file is executed. The fingerprint detects damage; it is not a signature.
"""

import base64
import hashlib
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.core.decisions import DecidedBy
from monitor.errors import InvalidReference, Problem
from monitor.reference.summary import BINS, ReferenceSummary

FORMAT = 3
"""Since format 2 it says how the device decides; before, by argmax.

Since format 3 it has what `adaptive` needs, and may have baselines of segments.
"""
READ = "a reference of format 1, 2 or 3"
_MAGIC = "cpcmon-reference"
MAX_BYTES = 1 << 30
"""Ten times the size of a reference of a million records."""


class Array(msgspec.Struct, forbid_unknown_fields=True):
    """A one-dimensional array."""

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


class PerformanceTables(msgspec.Struct, forbid_unknown_fields=True):
    """What the estimates of performance need. The level is that of the intervals."""

    starts: Array
    scores: Array
    values: Array
    cases: Array
    right: Array
    decided: Array
    auroc: float | None
    edges: Array
    profiles: Array
    low: Array
    high: Array


class OutputTables(msgspec.Struct, forbid_unknown_fields=True):
    """The outputs of the reference, for drift. Sizes are those of the intervals."""

    edges: Array
    confidence: Array
    decided: Array
    class_mix_chance: Array
    confidence_chance: Array


class SegmentTables(msgspec.Struct, forbid_unknown_fields=True):
    """The labelled baselines of segments."""

    segments: tuple[tuple[tuple[str, str], ...], ...]
    """Fields and values of each."""
    records: Array
    right: Array
    bias: dict[str, Array]
    """By estimator, of each segment."""
    decided: Array
    """By segment, then class."""
    confidence: Array
    """By segment, then cell."""


class SampleTables(msgspec.Struct, forbid_unknown_fields=True):
    """What a change detector watches of some labelled records, for `cpcmon plan`."""

    values: Array
    """By member, then record; the right decisions come first."""
    right: int


class ReferenceDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a reference file."""

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
    decision: str = DecidedBy.ARGMAX.value
    """As `Decision.parsed` reads it."""
    performance: PerformanceTables | None = None
    """None in a file of format 1."""
    adaptive_weight: float | None = None
    """None in a file of format 1 or 2."""
    outputs: OutputTables | None = None
    """None in a file of format 1 or 2."""
    segments: SegmentTables | None = None
    """None before format 3, and without labelled baselines."""
    sample: SampleTables | None = None
    """None in a file of an older release."""


def to_bytes(document: ReferenceDocument) -> tuple[bytes, str]:
    """Serialise a document; return the bytes and the fingerprint."""
    content = msgspec.json.format(msgspec.json.encode(document), indent=1)
    fingerprint = hashlib.sha256(content).hexdigest()
    return f"{_MAGIC} {FORMAT} {fingerprint}\n".encode() + content, fingerprint


def from_bytes(where: str, raw: bytes) -> tuple[ReferenceDocument, str]:
    """Verify and deserialise a file; return the document and the fingerprint."""
    header, _, content = raw.partition(b"\n")
    words = header.split(b" ") if len(header) < 200 else []
    if len(raw) > MAX_BYTES or len(words) != 3 or words[0] != _MAGIC.encode() or not words[1].isdigit():
        raise InvalidReference(
            Problem(where, f"a file made by `cpcmon calibrate`, which starts with {_MAGIC!r}", "another file")
        )
    if not 1 <= int(words[1]) <= FORMAT:
        raise InvalidReference(
            Problem(
                where,
                READ,
                f"format {int(words[1])}: it was written by another release of cpcmon; upgrade cpcmon or calibrate again",
            )
        )
    fingerprint = hashlib.sha256(content).hexdigest()
    if fingerprint.encode() != words[2]:
        raise InvalidReference(
            Problem(
                where,
                f"content with fingerprint {words[2][:12].decode('ascii', 'replace')}…",
                f"{fingerprint[:12]}…: the file is damaged or truncated; copy it again or calibrate again",
            )
        )
    try:
        return msgspec.json.decode(content, type=ReferenceDocument), fingerprint
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidReference(Problem(where, READ, str(error))) from error


def check_reliability(document: ReferenceDocument) -> None:
    """Raise ValueError for bins that contradict the reference. Older releases wrote none."""
    for bins in (document.summary.reliability, document.summary.reliability_scaled):
        if not bins:
            continue
        if len(bins) != BINS or any(not 0 <= one.right <= one.records or not 0 <= one.confidence <= 1 for one in bins):
            raise ValueError("invalid reliability bins")
        if (sum(one.records for one in bins), sum(one.right for one in bins)) != (document.records, document.right):
            raise ValueError("reliability bins of another number of records")


def pack(array: NDArray[Any]) -> Array:
    """Encode an array."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return Array(array.dtype.name, base64.b64encode(little.tobytes()).decode("ascii"))


def unpack(packed: Array) -> NDArray[Any]:
    """Decode an array; raises ValueError."""
    if packed.dtype not in {"float32", "float64", "int64"}:
        raise ValueError(f"numbers of type {packed.dtype!r}")
    raw = base64.b64decode(packed.data, validate=True)
    return np.frombuffer(raw, dtype=np.dtype(packed.dtype).newbyteorder("<")).astype(packed.dtype)
