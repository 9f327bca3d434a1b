"""The health of a model's input, which the estimate does not show: rejected share, one-hot outputs, constant outputs.

If many records are rejected, the others may not be representative. If an argmax was logged instead of probabilities, every
estimator based on confidence returns 100%. A stuck model returns the same vector for every record.
"""

import struct
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Self
from zlib import crc32

import numpy as np

from monitor.core.scores import Booleans, Singles

LAST_RECORDS = 1000
"""Records, accepted or rejected, over which the rejected share is computed."""

LAST_ACCEPTED = 500
"""Accepted records whose vectors are checked."""

FEWEST = 100
"""The minimum of records for any result.

A decision tree has few different outputs: one shared by nine records in ten occurs twenty times in a row in one start of
eight, and a hundred times in one of 38,000.
"""

MOST_REJECTED = 0.05
MOST_ONE_HOT = 0.95

_DIGEST_BYTES = 16
# Version; counts of records, accepted records and equal vectors; digest of the last vector; then bits and a checksum.
_HEAD = struct.Struct(f"<4sHHH{_DIGEST_BYTES}s")
_MARK = b"IHv1"
_RECORD_BYTES = -(-LAST_RECORDS // 8)
_ACCEPTED_BYTES = -(-LAST_ACCEPTED // 8)
_CHECKSUM = struct.Struct("<I")
_SIZE = _HEAD.size + _RECORD_BYTES + _ACCEPTED_BYTES + _CHECKSUM.size

_NONE: Booleans = np.zeros(0, dtype=np.bool_)


@dataclass(frozen=True, slots=True, eq=False)
class InputHealth:
    """The last 1,000 records and the last 500 accepted ones of a model, as flags. Immutable.

    The positions of rejected records in a batch are unknown, so they are spread evenly. A batch within the last 1,000
    records counts exactly; of one that reaches beyond, the share counts, rounded up.
    """

    _rejected: Booleans = field(default_factory=lambda: _NONE)
    _one_hot: Booleans = field(default_factory=lambda: _NONE)
    _equal: int = 0
    """The number of equal accepted vectors at the end."""
    _digest: bytes = bytes(_DIGEST_BYTES)
    """Of the last of them."""

    @property
    def records(self) -> int:
        """Records considered, up to 1,000."""
        return len(self._rejected)

    @property
    def rejected_share(self) -> float | None:
        """The rejected share of the last 1,000 records; None without records."""
        return int(np.count_nonzero(self._rejected)) / self.records if self.records else None

    @property
    def degraded(self) -> bool:
        """Whether more than 5% of the last 1,000 records were rejected."""
        return self.records >= FEWEST and _exceeds(self._rejected, MOST_REJECTED)

    @property
    def one_hot(self) -> bool:
        """Whether more than 95% of the last 500 accepted records are one-hot: all classes but one exactly 0.

        A largest probability of 1 is not enough: in float32 that of a very confident model is 1 too.
        """
        return len(self._one_hot) >= FEWEST and _exceeds(self._one_hot, MOST_ONE_HOT)

    @property
    def constant(self) -> bool:
        """Whether the last 500 accepted records all have the same vector."""
        return self._equal >= max(FEWEST, len(self._one_hot))

    def added(self, vectors: Singles, rejected: int) -> "InputHealth":
        """Return the health after a batch: its accepted vectors, and its number of rejected records."""
        if vectors.ndim != 2 or rejected < 0:
            found = f"shape {vectors.shape} and {rejected!r}"
            raise ValueError(f"batch: expected rows of vectors and a number of rejected records, found {found}")
        flags = np.concatenate([self._rejected, _spread(rejected, len(vectors) + rejected)])[-LAST_RECORDS:]
        if not len(vectors):
            return replace(self, _rejected=flags)
        latest = vectors[-LAST_ACCEPTED:]
        one_hot = np.count_nonzero(latest, axis=1) == 1
        equal, digest = _equal_at_end(latest)
        if equal == len(latest) and digest == self._digest:
            equal = min(self._equal + equal, LAST_ACCEPTED)
        return InputHealth(flags, np.concatenate([self._one_hot, one_hot])[-LAST_ACCEPTED:], equal, digest)

    def to_bytes(self) -> bytes:
        """Serialise to a fixed number of bytes."""
        counts = len(self._rejected), len(self._one_hot), self._equal
        content = _HEAD.pack(_MARK, *counts, self._digest)
        content += _packed(self._rejected, _RECORD_BYTES) + _packed(self._one_hot, _ACCEPTED_BYTES)
        return content + _CHECKSUM.pack(crc32(content))

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Deserialise; damaged bytes, or another version, give an empty object."""
        if len(content) != _SIZE or content[-_CHECKSUM.size :] != _CHECKSUM.pack(crc32(content[: -_CHECKSUM.size])):
            return cls()
        mark, records, accepted, equal, digest = _HEAD.unpack_from(content)
        # Checked even with a valid checksum: the state must not be able to stop the daemon.
        if mark != _MARK or records > LAST_RECORDS or not equal <= accepted <= LAST_ACCEPTED:
            return cls()
        bits = content[_HEAD.size :]
        rejected, one_hot = bits[:_RECORD_BYTES], bits[_RECORD_BYTES:][:_ACCEPTED_BYTES]
        return cls(_unpacked(rejected, records), _unpacked(one_hot, accepted), equal, digest)


def _equal_at_end(latest: Singles) -> tuple[int, bytes]:
    """Return the length of the run of equal vectors at the end, and the digest of its vector."""
    last = latest[-1]
    others = np.flatnonzero((latest != last).any(axis=1))
    equal = len(latest) - 1 - int(others[-1]) if len(others) else len(latest)
    # Turns -0.0 into 0.0.
    return equal, blake2b((last + np.float32(0.0)).tobytes(), digest_size=_DIGEST_BYTES).digest()


def _spread(rejected: int, records: int) -> Booleans:
    """Return flags for the last records of a batch, with the rejected ones spread evenly."""
    until = np.arange(max(0, records - LAST_RECORDS), records + 1) * rejected // max(records, 1)
    return np.diff(until).astype(np.bool_)


def _exceeds(flags: Booleans, share: float) -> bool:
    return int(np.count_nonzero(flags)) > share * len(flags)


def _packed(flags: Booleans, size: int) -> bytes:
    return np.packbits(flags).tobytes().ljust(size, b"\0")


def _unpacked(bits: bytes, count: int) -> Booleans:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=count).astype(np.bool_)
