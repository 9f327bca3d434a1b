"""The health of a model's input, which the estimate does not show: rejected, one-hot and constant outputs, input problems.

If many records are rejected, the others may not be representative. If an argmax was logged instead of probabilities, every
estimator based on confidence returns 100%. A stuck model returns the same vector for every record. An input problem means
that records are not what the configuration and the reference expect, so that a quiet alert is no all-clear.
"""

import math
import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Self
from zlib import crc32

import numpy as np

from monitor.core.baselines.output_drift import jensen_shannon
from monitor.core.scores import Booleans, Integers, Singles

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


class InputProblem(StrEnum):
    """Problems with the input of a model. The names are public: label values and API."""

    SEGMENT_NEVER_SEEN = "segment_never_seen"
    """No record has the fields of a configured segment."""
    SEGMENT_MISSING = "segment_missing"
    """Some records lack the fields of a configured segment."""
    GROUP_MISSING = "group_missing"
    """Some records lack the field of their group, so that each counts as evidence of a change."""
    ALERT_MATCHES_NOTHING = "alert_matches_nothing"
    """An alert is for segments that do not exist."""
    CLASS_MIX = "class_mix"
    """The predicted classes are far from those of the reference."""
    TIME_AHEAD = "time_ahead"
    """Times are in the future."""
    TIME_BEHIND = "time_behind"
    """Times are more than a day before the arrival."""
    ARGMAX_MISMATCH = "argmax_mismatch"
    """Records name another class than the one decided from their probabilities."""
    DUPLICATES = "duplicates"
    """Nearly all records have an id that was counted before."""
    LATE = "late"
    """Nearly all records are older than the window."""
    OTHER_VERSION = "other_version"
    """Nearly all records are of another version of the model."""


FAR_BEHIND_SECONDS = 86400.0
"""Times are far behind from here on. A nightly batch is not."""

RECENT_RECORDS = 400
"""Records over which the shares of problems are taken; older ones fade."""

_LIMITS = {
    InputProblem.SEGMENT_MISSING: 0.05,
    InputProblem.GROUP_MISSING: 0.05,
    InputProblem.TIME_AHEAD: 0.5,
    InputProblem.TIME_BEHIND: 0.5,
    InputProblem.ARGMAX_MISMATCH: 0.05,
    InputProblem.DUPLICATES: 0.9,
    InputProblem.LATE: 0.9,
    InputProblem.OTHER_VERSION: 0.9,
}
"""The share of recent records above which a problem begins."""
_ENDS_AT = 0.8
"""A problem ends below this part of its limit, so that a share near the limit does not begin and end all the time."""

FAR_MIX = 0.3
"""The Jensen-Shannon distance of predicted classes above which they are far from those of the reference."""
_CHANCE_FACTOR = 2.0
_SAME_MIX = 0.1
"""Below this distance, two sorted class mixes are alike."""

_IN_BACKLOG = frozenset({InputProblem.TIME_BEHIND, InputProblem.LATE})
"""What a backlog explains."""

Count = tuple[int, int]
"""How many records could have a problem, and how many have it."""


def count_key(problem: InputProblem, fields: Sequence[str] = ()) -> str:
    """Return the key of a count: a problem has one, or one for each set of segment fields."""
    return f"{problem}:{','.join(fields)}" if fields else str(problem)


@dataclass(frozen=True, slots=True)
class FoundProblem:
    """A problem with the input of a model, in numbers; `web.pages.wording` has the words."""

    problem: InputProblem
    names: tuple[str, ...] = ()
    """Sets of segment fields, such as `site,scanner`; alerts; or the class whose share changed most."""
    value: float | None = None
    """The largest share of recent records; the distance of the class mix; None for alerts."""
    class_shares: tuple[float, float] | None = None
    """For `class_mix`, the share of the class now and on the reference."""
    reordered: bool = False
    """For `class_mix`, whether the shares are those of the reference, of other classes."""
    since: float = 0.0
    """When it began, in Unix seconds."""


@dataclass(slots=True)
class RecentShare:
    """The share of recent records that have a problem."""

    records: int = 0
    concerned: int = 0

    def add(self, records: int, concerned: int) -> None:
        """Count records; older ones fade."""
        self.records, self.concerned = self.records + records, self.concerned + concerned
        if self.records > RECENT_RECORDS:
            self.concerned = self.concerned * RECENT_RECORDS // self.records
            self.records = RECENT_RECORDS

    @property
    def value(self) -> float | None:
        """The share; None with too few records."""
        return self.concerned / self.records if self.records >= FEWEST else None


@dataclass(slots=True)
class VersionCounts:
    """Recent records with the version of the reference, and with others."""

    right: int = 0
    other: int = 0
    of: str = ""
    """The version of the reference; empty when any is accepted."""

    def add(self, right: int, other: int) -> None:
        """Count records; older ones fade."""
        self.right, self.other = self.right + right, self.other + other
        total = self.right + self.other
        if total > RECENT_RECORDS:
            self.right = self.right * RECENT_RECORDS // total
            self.other = self.other * RECENT_RECORDS // total

    @property
    def mismatch(self) -> bool:
        """Whether most recent records have another version."""
        return self.right + self.other >= FEWEST and self.other > self.right


@dataclass(slots=True)
class RecentInput:
    """The problems of a model's input between evaluations; kept across restarts."""

    shares: dict[str, RecentShare] = field(default_factory=dict)
    """See `count_key`."""
    since: dict[str, float] = field(default_factory=dict)
    """By problem that holds, when it began, in Unix seconds."""
    unseen: list[str] = field(default_factory=list)
    """The sets of segment fields that no record has."""

    def add(self, before: Mapping[str, Count], counts: Mapping[str, Count], *, catching_up: bool) -> None:
        """Add the records between two counts. What is no longer counted is forgotten."""
        self.shares = {key: self.shares.get(key) or RecentShare() for key in counts}
        for key, now in counts.items():
            if not (catching_up and key in _IN_BACKLOG):
                records, concerned = (max(0, new - old) for new, old in zip(now, before.get(key, (0, 0)), strict=True))
                # Records that a shard takes along may be fewer now, and those of concern more.
                self.shares[key].add(records, min(concerned, records))

    def problems(
        self, seen: Container[str], unmatched: Sequence[str], mix: FoundProblem | None, now: float
    ) -> tuple[FoundProblem, ...]:
        """Return the problems at `now`: of the shares, of alerts that match no segment, of the class mix.

        `seen` are the sets of segment fields that some window has.
        """
        found: dict[InputProblem, FoundProblem] = {}
        for one in (*self._of_shares(seen), *_of_alerts(unmatched), *([] if mix is None else [mix])):
            other = found.get(one.problem, FoundProblem(one.problem))
            value = one.value if other.value is None else max(other.value, one.value or 0.0)
            found[one.problem] = replace(one, names=(*other.names, *one.names), value=value)
        self.since = {str(problem): min(self.since.get(problem, now), now) for problem in found}
        return tuple(replace(found[one], since=self.since[one]) for one in InputProblem if one in found)

    def _of_shares(self, seen: Container[str]) -> Iterator[FoundProblem]:
        unseen = []
        for key in self.shares:
            name, _, fields = key.partition(":")
            if fields in self.unseen and fields in seen:
                # The cause was fixed: records from before would be blamed on those that follow.
                self.shares[key] = RecentShare()
            problem, value, names = InputProblem(name), self.shares[key].value, (fields,) if fields else ()
            if value is None:
                continue
            if fields and fields not in seen and value == 1.0:
                unseen.append(fields)
                yield FoundProblem(InputProblem.SEGMENT_NEVER_SEEN, names, value)
            elif value > _LIMITS[problem] * (_ENDS_AT if name in self.since else 1.0):
                yield FoundProblem(problem, names, value)
        self.unseen = unseen


def _of_alerts(unmatched: Sequence[str]) -> Iterator[FoundProblem]:
    if unmatched:
        yield FoundProblem(InputProblem.ALERT_MATCHES_NOTHING, tuple(unmatched))


def far_mix(classes: Sequence[str], now: Integers, reference: Sequence[int]) -> FoundProblem | None:
    """Return the problem of a window's predictions per class, if they are far from those of the reference."""
    counts = np.array([now, reference], dtype=np.float64) if len(now) == len(reference) else np.zeros((2, 1))
    totals = counts.sum(axis=1)
    if not (totals >= FEWEST).all():
        return None
    shares = counts / totals[:, None]
    distance = float(jensen_shannon(shares[0], shares[1]))
    # The mean of the squared distance of two samples of one mix is about this, in bits.
    chance = math.sqrt((len(classes) - 1) / (8.0 * math.log(2.0)) * float((1.0 / totals).sum()))
    if distance <= max(FAR_MIX, _CHANCE_FACTOR * chance):
        return None
    most = int(np.argmax(np.abs(shares[0] - shares[1])))
    return FoundProblem(
        InputProblem.CLASS_MIX,
        (classes[most],),
        distance,
        (float(shares[0, most]), float(shares[1, most])),
        bool(jensen_shannon(np.sort(shares[0]), np.sort(shares[1])) < _SAME_MIX),
    )
