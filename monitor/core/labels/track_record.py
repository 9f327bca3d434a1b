"""The track record of a window: what every estimator said of blocks of records, and what their labels say now.

Blocks do not overlap and are as large as the window, so each is one more test of the estimators. Values are kept in single
precision: 41 bytes a block and 12 for each estimator, so 281 bytes with 20, and at most 17 kB for a window.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isnan
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from monitor.core.estimate import HEADLINE
from monitor.core.intervals import DEFAULT_LEVEL
from monitor.core.labels.audit import AuditSums, prediction_powered, share_columns
from monitor.core.scores import Booleans, Floats, Integers, Singles
from monitor.core.window import Bounds

MOST_BLOCKS = 60
FEWEST_LABELS = 30
"""A block with fewer labels is not judged."""
WRONG_MARGIN = 1.75
"""How many times further than intervals allow the headline must be off to be wrong. By chance at most one block in 900 is."""

_NEARLY_ALL = 0.9
_FIRST_BLOCK = 0.9
"""A window limited by age gives its first block when it covers this share of the age: its beginning is not known."""
_FACTS = np.dtype(
    [
        ("began_at", "<f8"),
        ("ended_at", "<f8"),
        ("records", "<u4"),
        ("mean_confidence", "<f4"),
        ("labels", "<u4"),
        ("value", "<f4"),
        ("lower", "<f4"),
        ("upper", "<f4"),
        ("audited", "?"),
    ]
)
_VALUE, _LOWER, _UPPER = range(3)
# Version, length of the names, number of names, number of blocks; then names, facts, answers and a checksum.
_HEAD = struct.Struct("<4sIHH")
_MARK = b"TRv1"
_CHECKSUM = struct.Struct("<I")

Answer = tuple[float, float | None, float | None]
"""An estimate with the bounds of its interval; None without one."""


class BlockTruth(NamedTuple):
    """What labels say of the accuracy of a block."""

    labels: int
    value: float
    lower: float
    upper: float
    audited: bool
    """Whether it is the audited accuracy of all records; else it is that of labelled cases, usually a biased choice."""


@dataclass(frozen=True, slots=True)
class Block:
    """As many consecutive records as a window holds, with every estimator's answer."""

    began_at: float
    """The time of the oldest record."""
    ended_at: float
    """The time of the newest record."""
    records: int
    mean_confidence: float
    """The mean calibrated confidence of all records."""
    answers: Mapping[str, Answer]
    """By estimator, of those that have an estimate."""
    truth: BlockTruth | None = None
    """None without labels."""

    @property
    def speaks_for_all(self) -> bool:
        """Whether its labels are those of a random sample, or of nearly all records: not those of cases that somebody chose."""
        truth = self.truth
        return truth is not None and (truth.audited or truth.labels >= _NEARLY_ALL * self.records)


class EstimatorRecord(NamedTuple):
    """How far off an estimator has been, over the judged blocks for which it had an estimate."""

    mean_absolute_error: float
    mean_error: float
    """Of estimate minus truth: above 0 if it was too high."""
    coverage: float | None
    """The share of intervals that held; None without intervals."""
    blocks: int


class TrackSummary(NamedTuple):
    """What the judged blocks of a window say of its estimators."""

    blocks: int
    """Judged blocks."""
    estimators: Mapping[str, EstimatorRecord]
    best: str | None
    """The smallest mean absolute error, among estimators with an estimate for every judged block."""
    latest: Block | None
    """The latest judged block."""
    wrong: bool
    """Whether the headline of the latest judged block was off by more than WRONG_MARGIN times what intervals allow.

    Only labels that speak for all records can say so.
    """


def blocks_due(ended_at: Floats, records: Integers, oldest_at: Floats, now: float, bounds: Bounds) -> Booleans:
    """Return which windows give a block: they are full, and all their records are newer than the last block.

    `ended_at` is the time of the newest record of the last block, NaN without one; `oldest_at` that of the oldest record of
    the window. Nothing is counted, so restarts and replayed records make no difference.
    """
    first = np.isnan(ended_at)
    new = first | (oldest_at > ended_at)
    full: Booleans = records >= bounds.capacity
    if bounds.age_seconds is not None:
        # The records since the last block: that one has left the window by age, unless the window was emptied.
        since = np.where(first, oldest_at, ended_at)
        full |= now - since >= np.where(first, _FIRST_BLOCK, 1.0) * bounds.age_seconds
    return np.asarray(new & full & (records > 0))


def truths_of(sums: AuditSums, *, audited: bool, level: float = DEFAULT_LEVEL) -> list[BlockTruth | None]:
    """Return what the labels of each block say: audited ones, or any; None without labels."""
    if audited:
        value, lower, upper, _ = prediction_powered(sums, level)
    else:
        value, lower, upper = share_columns(sums.right, sums.labels, level)
    rows = zip(sums.labels.tolist(), value.tolist(), lower.tolist(), upper.tolist(), strict=True)
    return [BlockTruth(*row, audited=audited) if row[0] else None for row in rows]


@dataclass(frozen=True, eq=False)
class TrackRecord:
    """The latest blocks of a window, at most 60, oldest first. Immutable."""

    names: tuple[str, ...] = ()
    """Of estimators."""
    _facts: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=_FACTS))
    _answers: Singles = field(default_factory=lambda: np.empty((0, 0, 3), dtype=np.float32))
    """Shape (blocks, estimators, 3): values and bounds; NaN without."""

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self._facts)

    def __getitem__(self, index: int) -> Block:
        """Return one block."""
        facts, truth = self._facts[index], None
        if facts["labels"]:
            truth = BlockTruth(*(facts[name].item() for name in ("labels", "value", "lower", "upper", "audited")))
        kept = zip(self.names, self._answers[index].tolist(), strict=True)
        found = {name: tuple(None if isnan(one) else one for one in answer) for name, answer in kept}
        answers = {name: (value, lower, upper) for name, (value, lower, upper) in found.items() if value is not None}
        began_at, ended_at, records, confidence = facts.item()[:4]
        return Block(began_at, ended_at, records, confidence, answers, truth)

    @property
    def began_at(self) -> Floats:
        """By block, the time of its oldest record."""
        return np.asarray(self._facts["began_at"])

    @property
    def ended_at(self) -> Floats:
        """By block, the time of its newest record."""
        return np.asarray(self._facts["ended_at"])

    @property
    def newest_at(self) -> float:
        """The end of the last block; NaN without blocks."""
        return float(self._facts["ended_at"][-1]) if len(self) else np.nan

    @property
    def records(self) -> Integers:
        """By block, the number of its records."""
        return np.asarray(self._facts["records"].astype(np.int64))

    @property
    def all_confidence(self) -> Floats:
        """By block, the sum of the calibrated confidences of its records."""
        return np.asarray(self._facts["mean_confidence"].astype(np.float64) * self._facts["records"])

    @property
    def nbytes(self) -> int:
        """The memory of the blocks."""
        return self._facts.nbytes + self._answers.nbytes

    def add(self, block: Block) -> "TrackRecord":
        """Return the record with one more block, without the oldest if there are too many."""
        if len(self) and block.began_at < self.newest_at:
            found = f"{block.began_at!r} after {self.newest_at!r}"
            raise ValueError(f"block: expected records newer than those of the last block, found {found}")
        answers = self._answers[-(MOST_BLOCKS - 1) :]
        # Estimators that are in no block any more are forgotten.
        kept = np.any(~np.isnan(answers[:, :, _VALUE]), axis=0)
        names = tuple(name for name, still in zip(self.names, kept.tolist(), strict=True) if still)
        new = tuple(name for name in block.answers if name not in names)
        more = np.full((len(answers) + 1, len(names) + len(new), 3), np.nan, dtype=np.float32)
        more[:-1, : len(names)] = answers[:, kept]
        names += new
        for place, name in enumerate(names):
            if name in block.answers:
                more[-1, place] = [np.nan if one is None else one for one in block.answers[name]]
        facts = np.zeros(1, dtype=_FACTS)
        truth = block.truth or (0, np.nan, np.nan, np.nan, False)
        facts[0] = block.began_at, block.ended_at, block.records, block.mean_confidence, *truth
        return TrackRecord(names, np.concatenate([self._facts[-(MOST_BLOCKS - 1) :], facts]), more)

    def until(self, at: float) -> "TrackRecord":
        """Return the record without blocks that end after a time."""
        count = int(np.count_nonzero(self._facts["ended_at"] <= at))
        # They ascend.
        return self if count == len(self) else TrackRecord(self.names, self._facts[:count], self._answers[:count])

    def judged(self, truths: Sequence[BlockTruth | None]) -> "TrackRecord":
        """Return the record with what labels say of each block now.

        None leaves what they said before: give None for blocks that are partly older than the horizon, whose labels are
        being deleted.
        """
        facts = self._facts.copy()
        known = [number for number, truth in enumerate(truths) if truth is not None]
        told = facts[list(BlockTruth._fields)]
        told[known] = [truth for truth in truths if truth is not None]
        # Without a change the summary need not be computed again.
        return self if facts.tobytes() == self._facts.tobytes() else replace(self, _facts=facts)

    def errors(self) -> tuple[Integers, Floats, Floats]:
        """Return the judged blocks; the errors of estimators and how far each may be off, shape (blocks, estimators).

        An estimate may be off by its interval and that of the labels together: the square root of the sum of the squares
        of the parts that face each other. NaN without an estimate, or without its interval.
        """
        judged = np.flatnonzero(self._facts["labels"] >= FEWEST_LABELS)
        truth, low, high = (self._facts[name][judged, None].astype(np.float64) for name in ("value", "lower", "upper"))
        value, lower, upper = np.moveaxis(self._answers[judged].astype(np.float64), 2, 0)
        error = value - truth
        own = np.where(error > 0.0, value - lower, upper - value)
        return judged, error, np.hypot(own, np.where(error > 0.0, high - truth, truth - low))

    @cached_property
    def _summaries(self) -> dict[str, TrackSummary]:
        """By headline."""
        return {}

    def summary(self, headline: str = HEADLINE) -> TrackSummary:
        """Return what the judged blocks say of the estimators; computed once."""
        if headline not in self._summaries:
            self._summaries[headline] = self._summary(headline)
        return self._summaries[headline]

    def _summary(self, headline: str) -> TrackSummary:
        judged, error, allowed = self.errors()
        if not len(judged):
            return TrackSummary(0, {}, None, None, wrong=False)
        # Comparisons with NaN are false.
        blocks, intervals = (np.count_nonzero(~np.isnan(one), axis=0) for one in (error, allowed))
        absolute = np.abs(error)
        sums = np.nansum(absolute, axis=0), np.nansum(error, axis=0), np.count_nonzero(absolute <= allowed, axis=0)
        columns = (column.tolist() for column in (blocks, intervals, *sums))
        found = {
            name: EstimatorRecord(size / count, total / count, held / known if known else None, count)
            for name, count, known, size, total, held in zip(self.names, *columns, strict=True)
            if count
        }
        always = [name for name, one in found.items() if one.blocks == len(judged)]
        best = min(always, key=lambda name: (found[name].mean_absolute_error, name != headline), default=None)
        place = self.names.index(headline) if headline in found else None
        latest = self[int(judged[-1])]
        off = place is not None and bool(absolute[-1, place] > WRONG_MARGIN * allowed[-1, place])
        return TrackSummary(len(judged), found, best, latest, wrong=off and latest.speaks_for_all)

    def to_bytes(self) -> bytes:
        """Serialise."""
        names = "\n".join(self.names).encode()
        content = _HEAD.pack(_MARK, len(names), len(self.names), len(self)) + names
        content += self._facts.tobytes() + self._answers.astype("<f4").tobytes()
        return content + _CHECKSUM.pack(crc32(content))

    @classmethod
    def from_bytes(cls, content: bytes) -> "TrackRecord":
        """Deserialise; damaged bytes, or another version, give an empty record."""
        if len(content) < _HEAD.size + _CHECKSUM.size:
            return cls()
        mark, length, estimators, blocks = _HEAD.unpack_from(content)
        facts, answers = _HEAD.size + length, _HEAD.size + length + blocks * _FACTS.itemsize
        end = answers + 12 * blocks * estimators
        if mark != _MARK or len(content) != end + _CHECKSUM.size or blocks > MOST_BLOCKS:
            return cls()
        if content[end:] != _CHECKSUM.pack(crc32(content[:end])):
            return cls()
        names = tuple(content[_HEAD.size : facts].decode().split("\n")) if length else ()
        values = np.frombuffer(content, dtype="<f4", count=3 * blocks * estimators, offset=answers)
        return cls(
            names,
            np.frombuffer(content, dtype=_FACTS, count=blocks, offset=facts),
            values.reshape(blocks, estimators, 3).astype(np.float32),
        )
