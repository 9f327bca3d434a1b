"""What the latest records of one model look like, accepted or not: what a good-looking estimate would not tell.

Where many records are refused, those that are left may be of another kind. Where an argmax was logged in place of
probabilities, every estimator that goes by confidence says 100%. Where a model is stuck, it says the same of everyone.
"""

import struct
from hashlib import blake2b
from typing import Self
from zlib import crc32

import numpy as np

from monitor.core.scores import Booleans, Singles

LAST_RECORDS = 1000
"""Records, accepted or refused, over which the share of refused ones is taken."""

LAST_ACCEPTED = 500
"""Accepted records whose vectors are looked at."""

FEWEST = 100
"""Records below which nothing is said.

Twenty would do where outputs are fine-grained. But a decision tree or a vote has few different outputs, and one that
nine records in ten share comes twenty times running in one start of eight, and a hundred times in one of 38,000.
"""

MOST_REJECTED = 0.05
MOST_ONE_HOT = 0.95

_DIGEST_BYTES = 16
# Version; how many records, accepted records and equal vectors; the last vector's digest; then bits, and a checksum.
_HEAD = struct.Struct(f"<4sHHH{_DIGEST_BYTES}s")
_MARK = b"IHv1"
_RECORD_BYTES = -(-LAST_RECORDS // 8)
_ACCEPTED_BYTES = -(-LAST_ACCEPTED // 8)
_CHECKSUM = struct.Struct("<I")
_SIZE = _HEAD.size + _RECORD_BYTES + _ACCEPTED_BYTES + _CHECKSUM.size

_NONE: Booleans = np.zeros(0, dtype=np.bool_)


class InputHealth:
    """The last 1,000 records and the last 500 accepted ones of a model, in a few hundred bytes.

    A plain object without I/O. Not safe for two threads at once; its owner holds a lock. Batches follow each other in
    the order they are added. Inside a batch accepted vectors are in order; where the refused ones stood among them is
    not known, so they are taken as spread evenly, the last record being one of them. A batch that is within the last
    1,000 records as a whole therefore counts exactly, and of one that reaches beyond, its share, rounded up. Unlike the
    vectors' run and their one-hot share, the share of refused records so depends a little on how batches were cut.
    """

    def __init__(self) -> None:
        self._refused = _NONE
        self._one_hot = _NONE
        # How many accepted vectors at the end are equal, as far back as is looked, and what tells the last of them.
        self._equal = 0
        self._digest = bytes(_DIGEST_BYTES)

    @property
    def records(self) -> int:
        """Records that are looked at, accepted or refused: 1,000 once so many have come."""
        return len(self._refused)

    @property
    def rejected_share(self) -> float | None:
        """The share of the last 1,000 records that was refused; None before any came."""
        return int(np.count_nonzero(self._refused)) / self.records if self.records else None

    @property
    def degraded(self) -> bool:
        """Whether more than 5% of the last 1,000 records were refused."""
        return self.records >= FEWEST and _exceeds(self._refused, MOST_REJECTED)

    @property
    def one_hot(self) -> bool:
        """Whether more than 95% of the last 500 accepted records give one class everything and all others exactly 0.

        Not whether the largest is 1: in float32 that of a very sure model is, beside others that are tiny.
        """
        return len(self._one_hot) >= FEWEST and _exceeds(self._one_hot, MOST_ONE_HOT)

    @property
    def constant(self) -> bool:
        """Whether the last 500 accepted records all hold the same vector."""
        return self._equal >= max(FEWEST, len(self._one_hot))

    def add(self, vectors: Singles, rejected: int) -> None:
        """Take in a batch: its accepted vectors, one in each row, and how many records were refused."""
        if vectors.ndim != 2 or rejected < 0:
            found = f"shape {vectors.shape} and {rejected!r}"
            raise ValueError(f"batch: expected rows of vectors and a number of refused records, found {found}")
        self._refused = np.concatenate([self._refused, _spread(rejected, len(vectors) + rejected)])[-LAST_RECORDS:]
        if len(vectors):
            latest = vectors[-LAST_ACCEPTED:]
            one_hot = np.count_nonzero(latest, axis=1) == 1
            self._one_hot = np.concatenate([self._one_hot, one_hot])[-LAST_ACCEPTED:]
            self._count_equal(latest)

    def to_bytes(self) -> bytes:
        """Return all of it in a few hundred bytes, always the same number; `from_bytes` of it is a copy."""
        counts = len(self._refused), len(self._one_hot), self._equal
        content = _HEAD.pack(_MARK, *counts, self._digest)
        content += _packed(self._refused, _RECORD_BYTES) + _packed(self._one_hot, _ACCEPTED_BYTES)
        return content + _CHECKSUM.pack(crc32(content))

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return what was made into bytes; from damaged bytes, or those of another version, a fresh start."""
        health = cls()
        if len(content) != _SIZE or content[-_CHECKSUM.size :] != _CHECKSUM.pack(crc32(content[: -_CHECKSUM.size])):
            return health
        mark, records, accepted, equal, digest = _HEAD.unpack_from(content)
        # Also when the checksum fits: whoever can write the state must not be able to stop the monitor.
        if mark != _MARK or records > LAST_RECORDS or not equal <= accepted <= LAST_ACCEPTED:
            return health
        bits = content[_HEAD.size :]
        health._refused = _unpacked(bits[:_RECORD_BYTES], records)
        health._one_hot = _unpacked(bits[_RECORD_BYTES:][:_ACCEPTED_BYTES], accepted)
        health._equal, health._digest = equal, digest
        return health

    def _count_equal(self, latest: Singles) -> None:
        """Go on counting equal vectors, or start anew; vectors of another number of classes are never equal."""
        last = latest[-1]
        others = np.flatnonzero((latest != last).any(axis=1))
        equal = len(latest) - 1 - int(others[-1]) if len(others) else len(latest)
        # Adding zero, as -0.0 is another pattern of bits.
        digest = blake2b((last + np.float32(0.0)).tobytes(), digest_size=_DIGEST_BYTES).digest()
        before = self._equal if equal == len(latest) and digest == self._digest else 0
        self._equal, self._digest = min(before + equal, LAST_ACCEPTED), digest


def _spread(rejected: int, records: int) -> Booleans:
    """Return for the last records of a batch which ones are taken for refused: of the first n, n parts of the whole."""
    until = np.arange(max(0, records - LAST_RECORDS), records + 1) * rejected // max(records, 1)
    return np.diff(until).astype(np.bool_)


def _exceeds(flags: Booleans, share: float) -> bool:
    return int(np.count_nonzero(flags)) > share * len(flags)


def _packed(flags: Booleans, size: int) -> bytes:
    return np.packbits(flags).tobytes().ljust(size, b"\0")


def _unpacked(bits: bytes, count: int) -> Booleans:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=count).astype(np.bool_)
