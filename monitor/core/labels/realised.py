"""What labels say of windows: sums over kept predictions, and what reports show of them.

Labels outside the audit are usually a biased choice: accuracies of all labels are those "of labelled cases". Only audited
records, a random sample, speak for all records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isnan
from typing import NamedTuple

import numpy as np

from monitor.core.labels.audit import AuditedColumns, AuditSums, audited, prediction_powered, share_columns
from monitor.core.labels.kept_predictions import NO_LABEL, PICKED, KeptPredictions
from monitor.core.recent_ids import Hashes
from monitor.core.scores import Booleans, Floats, Integers

LEVEL = 0.95
"""Of the intervals."""
FEWEST_CASES = 10
"""For the sensitivity or predictive value of a class."""
ENOUGH_CAME = 0.9
"""With a smaller share of the labels of audited records, those that are missing may bias the audited accuracy."""
MOST_CLASSES = 50
"""With more classes, only the whole model has counts by class."""


_AT_ONCE = 1 << 15
"""Rows that are summed at a time."""


class Scope(StrEnum):
    """Which records an accuracy is about."""

    WINDOW = "window"
    """Those in the sliding window now."""
    HORIZON = "horizon"
    """All that may still get a label."""


SCOPES = tuple(Scope)


class LabelScope(NamedTuple):
    """What the labels of one model are used for."""

    horizon_seconds: float
    delay_seconds: float
    """Audited records younger than this are not expected to have labels yet."""
    share: float | None
    """Of records that are audited; None without an audit."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The kept predictions of a shard at one time, and its windows."""

    id: Hashes
    at: Floats
    confidence: Floats
    decided: Integers
    place: Integers
    label: Integers
    """The class; NO_LABEL without one."""
    delay: Floats
    """From the prediction to its label, in seconds."""
    oldest_at: Floats
    """By window of the model, the time of its oldest record in this shard; NaN without records."""
    in_window: Integers
    """By window of the model, its records in this shard."""
    audited_from: int = 0
    """The first row of the audit. Before it, fewer were picked, or none: their labels may be a choice of somebody."""

    @classmethod
    def of(
        cls, kept: KeptPredictions, oldest_at: Floats, in_window: Integers, share: float | None = None
    ) -> "KeptRows":
        """Return the rows as they are now; `share` is that of audited ones."""
        ids, decided = kept["id"].copy(), kept["decided"]
        audited_from = 0
        if share is not None:
            missed = np.flatnonzero(audited(ids, share) & (decided < PICKED))
            audited_from = int(missed[-1]) + 1 if len(missed) else 0
        # Only labels and ids may change later: they are copied.
        return cls(
            ids,
            kept["at"],
            kept["confidence"],
            decided & np.uint16(PICKED - 1),
            kept["place"],
            kept["label"].copy(),
            kept["delay"].copy(),
            oldest_at,
            in_window,
            audited_from,
        )

    def since(self, at: float) -> "KeptRows":
        """Return the rows that are not before a time; the same if all are."""
        live = self.at >= at
        if live.all():
            return self
        return replace(
            self,
            id=self.id[live],
            at=self.at[live],
            confidence=self.confidence[live],
            decided=self.decided[live],
            place=self.place[live],
            label=self.label[live],
            delay=self.delay[live],
            audited_from=int(np.count_nonzero(live[: self.audited_from])),
        )

    def audited(self, share: float | None) -> Booleans:
        """Return which are audited."""
        found = np.zeros(len(self.id), dtype=np.bool_)
        if share is not None:
            found[self.audited_from :] = audited(self.id[self.audited_from :], share)
        return found

    def inside(self, rows: Integers, windows: Integers) -> Booleans:
        """Return which of some rows, in order of arrival, are in their sliding windows.

        A window has the latest records by time, then by arrival: of those with the time of the oldest one, the last ones.
        """
        at, oldest = self.at[rows], self.oldest_at[windows]
        found: Booleans = at > oldest
        ties = np.flatnonzero(at == oldest)
        if len(ties):
            above = np.bincount(windows[found], minlength=len(self.in_window))
            backwards = ties[::-1]
            order = np.argsort(windows[backwards], kind="stable")
            sorted_ = windows[backwards][order]
            rank = np.arange(len(sorted_)) - np.searchsorted(sorted_, sorted_)
            found[backwards[order[rank < (self.in_window - above)[sorted_]]]] = True
        return found


class LabelSnapshot(NamedTuple):
    """The kept predictions of a model at one time."""

    shards: tuple[KeptRows, ...]
    places: tuple[Integers, ...]
    """For each split, the window of each place; -1 for none."""
    scope: LabelScope
    held: int
    """Labels in memory."""
    joined: int
    """Predictions with a label."""
    now: float
    version: tuple[int, int]
    """Changes when a label does."""

    @property
    def since(self) -> float:
        """The time from which on predictions are kept."""
        oldest = min((float(one.at.min()) for one in self.shards), default=self.now)
        return max(oldest, self.now - self.scope.horizon_seconds)

    def columns(self, windows: int, classes: int) -> "LabelColumns":
        """Return what labels say of windows."""
        sums = label_sums(self.shards, self.places, windows, classes, self.scope, self.now)
        return LabelColumns.of(sums, self.held, self.joined, self.scope.share)


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Labelled predictions, one row for each window that they are in; sorted by window, then by time."""

    window: Integers
    at: Floats
    right: Booleans
    confidence: Floats
    audited: Booleans

    def between(self, windows: Integers, began: Floats, ended: Floats, *, of_audit: bool) -> AuditSums:
        """Return the sums of the labels of periods, each of one window, both ends included; without those over all records."""
        rows = np.flatnonzero(self.audited) if of_audit else np.arange(len(self.at))
        window, at = self.window[rows], self.at[rows]
        f, y = self.confidence[rows], self.right[rows].astype(np.float64)
        # A number for window and time together would lose digits of the time: the rows of a window first, then the times.
        first = _places(window, at, windows, began, after=False)
        last = _places(window, at, windows, ended, after=True)

        def summed(values: Floats) -> Floats:
            sums = np.concatenate([[0.0], np.cumsum(values)])
            return np.asarray(sums[last] - sums[first])

        count, nothing = (last - first).astype(np.int64), np.zeros(len(windows))
        right = np.rint(summed(y)).astype(np.int64)
        return AuditSums(count, right, summed(f), summed(f * f), summed(f * y), nothing.astype(np.int64), nothing)


def _places(window: Integers, at: Floats, windows: Integers, times: Floats, *, after: bool) -> Integers:
    """Return where times of windows are among rows that are sorted by window, then by time."""
    keys = np.concatenate([window, windows])
    # Sorted together: a time is before equal ones, or behind them.
    side = np.concatenate([np.zeros(len(window)), np.full(len(windows), 1.0 if after else -1.0)])
    order = np.lexsort((side, np.concatenate([at, times]), keys))
    is_row = order < len(window)
    before = np.cumsum(is_row)
    found = np.empty(len(windows), dtype=np.int64)
    asked = np.flatnonzero(~is_row)
    found[order[asked] - len(window)] = before[asked]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class LabelSums:
    """Sums over the kept predictions of a model. Of two axes, the first is that of SCOPES, the second that of windows."""

    records: Integers
    labels: Integers
    right: Integers
    newest_at: Floats
    """By window, the time of the newest labelled prediction; NaN without one."""
    delay: Floats
    """By window, the mean time from a prediction to its label; NaN without one."""
    classes: Integers
    """By window (or only of the first), then cases, decisions and right ones, then class: of labelled predictions."""
    audit: AuditSums | None
    """Of audited and labelled predictions until `audited_to`; None without an audit."""
    picked: Integers
    """Audited predictions, labelled or not: until `audited_to`, with a delay all that are older than it."""
    audited_from: Floats
    audited_to: Floats
    """By window, the period of the audited accuracy; NaN without labels."""
    rows: LabelledRows


def label_sums(
    shards: Sequence[KeptRows], places: Sequence[Integers], windows: int, classes: int, scope: LabelScope, now: float
) -> LabelSums:
    """Sum kept predictions; `places` has for each split the window of each place, -1 for none."""
    shape = len(SCOPES), windows
    records, picked, all_records = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    all_confidence, began = np.zeros(shape), np.full(windows, np.inf)
    until, parts = _audited_until(shards, places, windows, scope, now), [_NOTHING]
    # With a delay it is known when labels are expected, also if none came.
    expected = np.maximum(until, now - scope.delay_seconds) if scope.delay_seconds > 0.0 else until
    for shard in shards:
        one = shard.since(now - scope.horizon_seconds)
        chosen = one.audited(scope.share)
        audited_rows, labelled = np.flatnonzero(chosen), np.flatnonzero(one.label != NO_LABEL)
        for split, of in zip(places, _by_place(one, places, until, audits=len(audited_rows) > 0), strict=True):
            known = np.flatnonzero(split >= 0)
            np.add.at(records[1], split[known], of.records[known])
            np.add.at(all_records[1], split[known], of.in_period[known])
            np.add.at(all_confidence[1], split[known], of.confidence[known])
            # The newest labelled one is in the period, so the oldest is.
            np.minimum.at(began, split[known], of.oldest_at[known])
            rows = of.recent[one.inside(of.recent, split[one.place[of.recent]])]
            records[0] += np.bincount(split[one.place[rows]], minlength=windows)
            inside = np.zeros(len(one.at), dtype=np.bool_)
            inside[rows] = True
            early = rows[(rows >= one.audited_from) & (one.at[rows] <= until[split[one.place[rows]]])]
            number = split[one.place[early]]
            all_records[0] += np.bincount(number, minlength=windows)
            all_confidence[0] += np.bincount(number, one.confidence[early], minlength=windows)
            for which, some in enumerate((audited_rows[inside[audited_rows]], audited_rows)):
                number = split[one.place[some]]
                here = (number >= 0) & (one.at[some] <= expected[number])
                picked[which] += np.bincount(number[here], minlength=windows)
            has = labelled[split[one.place[labelled]] >= 0]
            parts.append(
                _Labelled(
                    split[one.place[has]],
                    one.at[has],
                    one.label[has].astype(np.int64),
                    one.decided[has].astype(np.int64),
                    one.confidence[has].astype(np.float64),
                    chosen[has],
                    inside[has],
                    one.delay[has],
                )
            )
    found = _Labelled(*map(np.concatenate, zip(*parts, strict=True)))
    window, at, f, y = found.window, found.at, found.confidence, (found.label == found.decided).astype(np.float64)
    used = found.audited & (at <= until[window])

    def summed(which: Booleans, values: Floats) -> Floats:
        """Return sums by scope and window."""
        scopes = (which & found.inside, which)
        return np.stack([np.bincount(window[some], values[some], minlength=windows) for some in scopes])

    each, ones = np.ones(len(at), dtype=np.bool_), np.ones(len(at))
    labels, right = (summed(each, values).astype(np.int64) for values in (ones, y))
    audit = None
    if scope.share is not None:
        count, count_right = (summed(used, values).astype(np.int64) for values in (ones, y))
        audit = AuditSums(
            count,
            count_right,
            summed(used, f),
            summed(used, f * f),
            summed(used, f * y),
            all_records,
            all_confidence,
        )
    newest = np.full(windows, -np.inf)
    np.maximum.at(newest, window, at)
    order = np.lexsort((at, window))
    return LabelSums(
        records,
        labels,
        right,
        np.where(labels[1] > 0, newest, np.nan),
        np.where(labels[1] > 0, summed(each, found.delay)[1] / np.maximum(1, labels[1]), np.nan),
        _by_class(found, windows, classes),
        audit,
        picked,
        np.where(np.isfinite(until), began, np.nan),
        np.where(np.isfinite(until), until, np.nan),
        LabelledRows(window[order], at[order], y[order] > 0.0, f[order], found.audited[order]),
    )


class _PlaceSums(NamedTuple):
    """Sums over the rows of a shard, by place: there are few."""

    records: Integers
    oldest_at: Floats
    in_period: Integers
    """Records in the period of the audited accuracy of their window."""
    confidence: Floats
    """The sum of their confidences."""
    recent: Integers
    """Rows that may be in their window."""


def _by_place(one: KeptRows, places: Sequence[Integers], until: Floats, *, audits: bool) -> list[_PlaceSums]:
    """Return sums for each split, in one pass over the rows. In pieces, which are faster and need little memory."""
    size = len(places[0])
    records, oldest = np.zeros(size, dtype=np.int64), np.full(size, np.inf)
    # NaN without a window, or without records in it: no time is after that.
    begins = [np.append(one.oldest_at, np.nan)[split] for split in places]
    ends = [np.append(until, np.nan)[split] for split in places]
    sums, recent = np.zeros((len(places), 2, size)), [[np.empty(0, dtype=np.int64)] for _ in places]
    for start in range(0, len(one.at), _AT_ONCE):
        piece = slice(start, start + _AT_ONCE)
        at, place, confidence = one.at[piece], one.place[piece].astype(np.int64), one.confidence[piece]
        records += np.bincount(place, minlength=size)
        before = max(0, one.audited_from - start)
        np.minimum.at(oldest, place[before:], at[before:])
        for begin, end, of, rows in zip(begins, ends, sums, recent, strict=True):
            rows.append(start + np.flatnonzero(at >= begin.take(place)))
            if audits:
                in_period = at <= end.take(place)
                in_period[:before] = False
                of[0] += np.bincount(place, in_period, size)
                of[1] += np.bincount(place, confidence * in_period, size)
    return [
        _PlaceSums(records, oldest, of[0].astype(np.int64), of[1], np.concatenate(rows))
        for of, rows in zip(sums, recent, strict=True)
    ]


def _audited_until(
    shards: Sequence[KeptRows], places: Sequence[Integers], windows: int, scope: LabelScope, now: float
) -> Floats:
    """Return by window the time of its newest audited prediction whose label came; -inf without one."""
    until = np.full(windows, -np.inf)
    for one in shards:
        live = (one.at >= now - scope.horizon_seconds) & (one.at <= now - scope.delay_seconds)
        rows = np.flatnonzero(live & (one.label != NO_LABEL) & one.audited(scope.share))
        for split in places:
            number = split[one.place[rows]]
            np.maximum.at(until, number[number >= 0], one.at[rows[number >= 0]])
    return until


class _Labelled(NamedTuple):
    """Labelled predictions, one row for each window that they are in."""

    window: Integers
    at: Floats
    label: Integers
    decided: Integers
    confidence: Floats
    audited: Booleans
    inside: Booleans
    delay: Floats


_NO_INTEGERS, _NO_FLOATS, _NO_FLAGS = np.empty(0, dtype=np.int64), np.empty(0), np.empty(0, dtype=np.bool_)
_NOTHING = _Labelled(_NO_INTEGERS, _NO_FLOATS, _NO_INTEGERS, _NO_INTEGERS, _NO_FLOATS, _NO_FLAGS, _NO_FLAGS, _NO_FLOATS)


def _by_class(found: _Labelled, windows: int, classes: int) -> Integers:
    """Return counts by class of labelled predictions; with many classes only those of the first window."""
    most = windows if classes <= MOST_CLASSES else 1
    some = found.window < most
    key, label, decided = found.window[some] * classes, found.label[some], found.decided[some]
    right = label == decided
    parts = (key + label, key + decided, (key + label)[right])
    columns = [np.bincount(part, minlength=most * classes).reshape(most, classes) for part in parts]
    return np.stack(columns, axis=1)


class RealisedAccuracy(NamedTuple):
    """The accuracy of labelled cases, with its exact interval."""

    value: float
    lower: float
    upper: float
    labels: int


class AuditedAccuracy(NamedTuple):
    """The accuracy of all records of a period, from the labels of a random sample."""

    value: float
    lower: float
    upper: float
    labels: int
    """Of audited records."""
    records: int
    """All records of the period."""
    picked: int
    """The audited ones, labelled or not."""
    powered: bool
    """Whether the confidences of all records made it narrower; otherwise the labels alone are used."""
    began_at: float
    ended_at: float

    @property
    def came(self) -> float:
        """The share of labels that came."""
        return self.labels / max(1, self.picked)

    @property
    def is_complete(self) -> bool:
        """Whether enough labels came."""
        return self.came >= ENOUGH_CAME


class RealisedClass(NamedTuple):
    """A class among labelled cases; None where there are fewer than FEWEST_CASES."""

    cases: int
    """Labelled cases of the class."""
    decided: int
    """Labelled cases that were decided to be of the class."""
    sensitivity: RealisedAccuracy | None
    ppv: RealisedAccuracy | None


class ScopeLabels(NamedTuple):
    """What labels say of the records of one scope."""

    records: int
    """Predictions that may have a label."""
    labels: int
    realised: RealisedAccuracy | None
    """Of labelled cases; None without labels."""
    audited: AuditedAccuracy | None
    """None without labels of audited records."""


@dataclass(frozen=True, slots=True)
class SegmentLabels:
    """What labels say of one window."""

    window: ScopeLabels
    horizon: ScopeLabels
    newest_at: float | None
    """The time of the newest labelled prediction; None without labels."""
    delay_seconds: float | None
    """The mean time from a prediction to its label."""
    classes: tuple[RealisedClass, ...] = ()
    """In the order of the reference; empty if there are many."""

    def scope(self, scope: Scope) -> ScopeLabels:
        """Return what labels say of one scope."""
        return self.window if scope is Scope.WINDOW else self.horizon


@dataclass(frozen=True, slots=True, eq=False)
class LabelColumns:
    """What labels say of windows. Of two axes, the first is that of SCOPES, the second that of windows."""

    sums: LabelSums
    accuracy: Floats
    """Of labelled cases; NaN without labels."""
    lower: Floats
    upper: Floats
    audited: AuditedColumns | None
    """None without an audit."""
    held: int = 0
    """Labels in memory, of all shards."""
    joined: int = 0
    """Predictions with a label."""
    share: float | None = None
    """Of records that are audited; None without an audit."""

    @classmethod
    def of(cls, sums: LabelSums, held: int = 0, joined: int = 0, share: float | None = None) -> "LabelColumns":
        """Return the accuracies of sums."""
        found = None if sums.audit is None else prediction_powered(sums.audit, LEVEL)
        return cls(sums, *share_columns(sums.right, sums.labels, LEVEL), found, held, joined, share)

    def __len__(self) -> int:
        """Return the number of windows. A report may have more behind them, which have no records now."""
        return int(self.accuracy.shape[1])

    def without_classes(self) -> "LabelColumns":
        """Return them for a reader who looks at all windows: intervals of each class are costly to make."""
        return replace(self, sums=replace(self.sums, classes=self.sums.classes[:0]))

    def window(self, index: int) -> SegmentLabels | None:
        """Return what labels say of one window; None if it has no records now."""
        if index >= len(self):
            return None
        sums = self.sums
        newest, delay = float(sums.newest_at[index]), float(sums.delay[index])
        return SegmentLabels(
            self._scope(0, index),
            self._scope(1, index),
            None if np.isnan(newest) else newest,
            None if np.isnan(delay) else delay,
            self._classes(index) if index < len(sums.classes) else (),
        )

    def _classes(self, index: int) -> tuple[RealisedClass, ...]:
        cases, decided, right = self.sums.classes[index]
        # An interval alone would take as long as all together.
        among = np.stack([cases, decided])
        found = share_columns(np.stack([right, right]), among, LEVEL, among=among >= FEWEST_CASES)
        rows = [
            [
                None if isnan(value) else RealisedAccuracy(value, lower, upper, int(count))
                for value, lower, upper, count in row
            ]
            for row in np.stack([*found, among], axis=2).tolist()
        ]
        return tuple(map(RealisedClass, cases.tolist(), decided.tolist(), *rows))

    def _scope(self, scope: int, index: int) -> ScopeLabels:
        sums, place = self.sums, (scope, index)
        labels, realised, found = int(sums.labels[place]), None, None
        if labels:
            ends = float(self.accuracy[place]), float(self.lower[place]), float(self.upper[place])
            realised = RealisedAccuracy(*ends, labels)
        if self.audited is not None and sums.audit is not None and not np.isnan(self.audited.value[place]):
            found = AuditedAccuracy(
                float(self.audited.value[place]),
                float(self.audited.lower[place]),
                float(self.audited.upper[place]),
                int(sums.audit.labels[place]),
                int(sums.audit.records[place]),
                int(sums.picked[place]),
                bool(self.audited.powered[place]),
                float(sums.audited_from[index]),
                float(sums.audited_to[index]),
            )
        return ScopeLabels(int(sums.records[place]), labels, realised, found)
