"""Predictions that may still get a label, and labels: logs of rows that are found by the keyed hash of an id.

Rows are appended, and the oldest ones dropped. Both logs are stored as they are. Which prediction has which label follows
from the two, so that it does not matter which came first, or how often the process was restarted.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.scores import Floats, Integers
from monitor.core.segments import ALL, Chunk, Segment

_PREDICTION = np.dtype(
    [("id", "<u8"), ("at", "<f8"), ("confidence", "<f4"), ("decided", "<u2"), ("place", "<u2")], align=True
)
_LABEL = np.dtype([("id", "<u8"), ("at", "<f8"), ("came", "<f8"), ("label", "<i8")], align=True)
WORDS_PER_PREDICTION, WORDS_PER_LABEL = _PREDICTION.itemsize // 8, _LABEL.itemsize // 8
"""Of 8 bytes, as they are stored; the first is the hash."""
BYTES_PER_PREDICTION, BYTES_PER_LABEL = 140, 100
"""The most memory, with the index, room to grow, and what an evaluation takes for a moment: 137 as measured."""
NO_LABEL = -1
PICKED = 1 << 15
"""A bit of `decided`: whether the record was audited when it came. No model has so many classes."""
MOST_PLACES = 1 << 16
FORGOTTEN_PREDICTION, FORGOTTEN_LABEL = NO_ID, 2**64 - 1
"""In place of the hash of a forgotten id. They differ, so that they are not joined, and a prediction without an id is not audited."""
_FEWEST_ROWS = 1024
_RUN_RATIO = 2
"""A run of the index is merged with the one before it, unless that is so many times longer."""
_SPARSE = 8
"""Values that are so many times larger than there are of them are not looked up in a table."""


class _Index:
    """Finds the rows with a hash: sorted runs, merged like those of a log-structured merge tree."""

    def __init__(self) -> None:
        self._runs: list[tuple[Hashes, Integers]] = []
        self.end = 0
        """The number of the first row that is not in it."""

    def add(self, hashes: Hashes, first: int) -> None:
        """Add the next rows; rows before number `first` have been dropped."""
        run = hashes, np.arange(self.end, self.end + len(hashes))
        self.end += len(hashes)
        while True:
            order = np.argsort(run[0], kind="stable")
            run = run[0][order], run[1][order]
            if not self._runs or len(self._runs[-1][0]) > _RUN_RATIO * len(run[0]):
                break
            before, rows = self._runs.pop()
            kept = rows >= first
            run = np.concatenate([before[kept], run[0]]), np.concatenate([rows[kept], run[1]])
        self._runs.append(run)

    def find(self, hashes: Hashes) -> tuple[Integers, Integers]:
        """Return every match: the place of the hash among those given, and the number of the row."""
        places, rows = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        for sorted_, numbers in self._runs:
            begin = np.searchsorted(sorted_, hashes)
            hit = np.flatnonzero(sorted_[np.minimum(begin, len(sorted_) - 1)] == hashes)
            if not len(hit):
                continue
            begin = begin[hit]
            counts = np.searchsorted(sorted_, hashes[hit], side="right") - begin
            within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            places.append(np.repeat(hit, counts))
            rows.append(numbers[np.repeat(begin, counts) + within])
        return np.concatenate(places), np.concatenate(rows)


class RowLog:
    """The last `most` rows, as columns.

    It is stored like the ids of `RecentIds`: batches of 8-byte words under ascending numbers. Batches below `first_needed`
    may be deleted at any time, and consecutive ones merged under the number of the last.
    """

    forgotten: int
    """In place of the hash of a forgotten id."""

    def __init__(self, dtype: np.dtype[np.void], most: int, derived: Mapping[str, DTypeLike] | None = None) -> None:
        self.most, self.dtype = most, dtype
        self.next_batch = 0
        """The number of the next batch."""
        names = dtype.names or ()
        types: dict[str, DTypeLike] = {name: dtype[name] for name in names} | dict(derived or {})
        self._columns = {name: np.empty(0, dtype=type_) for name, type_ in types.items()}
        self._stored = names
        self._begin = self._end = 0
        """Where the rows are in the columns."""
        self.first = 0
        """The number of the first row, counted since the start of the process."""
        self._batches: deque[tuple[int, int]] = deque()
        """The number of each batch, and that of the row behind it."""
        self._needed_from = 0
        """Behind the last batch without rows here. A batch that was read may be several, under the number of the last."""
        self._index = _Index()

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._end - self._begin

    @property
    def end(self) -> int:
        """The number behind the last row."""
        return self.first + len(self)

    @property
    def first_needed(self) -> int:
        """The lowest batch number that is still needed."""
        return self._needed_from if self._batches else self.next_batch

    @property
    def bytes(self) -> int:
        """The memory of the columns."""
        return sum(column.nbytes for column in self._columns.values())

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column of the rows, to be changed in place."""
        return self._columns[name][self._begin : self._end]

    def words(self, **columns: NDArray[Any] | float) -> Hashes:
        """Return new rows as they are stored and remembered."""
        rows = np.zeros(len(np.asarray(columns["id"])), dtype=self.dtype)
        for name, column in columns.items():
            rows[name] = column
        return rows.view(np.uint64)

    def remember(self, words: Hashes, batch: int | None = None) -> None:
        """Append rows, stored under the number of a batch."""
        number = self.next_batch if batch is None else batch
        self.next_batch = max(self.next_batch, number + 1)
        rows = np.ascontiguousarray(words).view(self.dtype)[-self.most :]
        self._make_room(len(rows))
        place = slice(self._end, self._end + len(rows))
        for name in self._stored:
            self._columns[name][place] = rows[name]
        self._fill(place)
        self._end += len(rows)
        self._batches.append((number, self.end))
        self.drop(len(self) - self.most)

    def _fill(self, place: slice) -> None:
        """Set the derived columns of new rows."""

    def drop(self, rows: int) -> None:
        """Drop the oldest rows."""
        if rows <= 0:
            return
        self._begin += rows
        self.first += rows
        while self._batches and self._batches[0][1] <= self.first:
            self._needed_from = self._batches.popleft()[0] + 1

    def drop_before(self, at: float, column: str = "at") -> None:
        """Drop the oldest rows as long as they are before a time. Later ones may be, too: clocks are set back."""
        live = self[column] >= at
        self.drop(int(np.argmax(live)) if live.any() else len(live))

    def clear(self) -> None:
        """Drop all rows."""
        self.drop(len(self))

    def find(self, hashes: Hashes) -> tuple[Integers, Integers]:
        """Return every match: the place of the hash among those given, and the place of the row in the columns."""
        new = max(self._index.end, self.first)
        # Rows that came and went in between are left out.
        self._index.end = new
        if self.end > new:
            self._index.add(self._columns["id"][self._begin + new - self.first : self._end].copy(), self.first)
        places, rows = self._index.find(hashes)
        held = rows >= self.first
        places, rows = places[held], rows[held] - self.first
        same = self["id"][rows] == hashes[places]
        return places[same], rows[same]

    def forget(self, hashes: Hashes) -> int:
        """Forget the ids of rows, which stay without them; return how many there were."""
        _, rows = self.find(hashes)
        self["id"][rows] = np.uint64(self.forgotten)
        return len(rows)

    def _make_room(self, count: int) -> None:
        capacity = len(self._columns["id"])
        if self._end + count <= capacity:
            return
        live = len(self)
        if 2 * (live + count) > capacity:
            capacity = max(_FEWEST_ROWS, min(2 * (live + count), self.most + self.most // 8 + count))
        for name, column in self._columns.items():
            moved = np.empty(capacity, dtype=column.dtype)
            moved[:live] = column[self._begin : self._end]
            self._columns[name] = moved
        self._begin, self._end = 0, live


class UnusedLog:
    """In place of a log that is not wanted any more: what was stored of it is deleted."""

    next_batch = 0

    def remember(self, words: Hashes, batch: int | None = None) -> None:  # noqa: ARG002 - as the others
        """Note the number of a batch."""
        self.next_batch = max(self.next_batch, (self.next_batch if batch is None else batch) + 1)


@dataclass(frozen=True, slots=True)
class NewLabels:
    """What is new in a batch of labels."""

    words: Hashes
    """The rows to store."""
    ids: Hashes
    """Those of ids without a label so far."""
    repeated: int
    """Labels that say what was known, or are older than what was known."""
    corrected: int
    """Labels of another class than the one before."""


class Labels(RowLog):
    """The labels of a model: the latest one of an id counts, by its time, then by its arrival."""

    forgotten = FORGOTTEN_LABEL

    def __init__(self, most: int) -> None:
        super().__init__(_LABEL, most)
        self.dropped: list[Hashes] = []
        """The ids of dropped rows since the last join."""

    def drop(self, rows: int) -> None:
        """Drop the oldest rows."""
        if rows > 0:
            self.dropped.append(self["id"][:rows].astype(np.uint64))
        super().drop(rows)

    def forget(self, hashes: Hashes) -> int:
        """Forget the labels of ids; return how many there were."""
        self.dropped.append(hashes)
        return super().forget(hashes)

    def latest(self, hashes: Hashes) -> Integers:
        """Return the place of the last row of each id; -1 without one."""
        found = np.full(len(hashes), -1)
        places, rows = self.find(hashes)
        np.maximum.at(found, places, rows)
        return found

    def new(self, ids: Hashes, labels: Integers, at: Floats, now: float) -> NewLabels:
        """Return what is new in a batch of labels, whose times may be NaN. Changes nothing."""
        times = np.where(np.isnan(at), now, at)
        order = np.lexsort((times, ids))
        last = np.flatnonzero(np.append(ids[order][1:] != ids[order][:-1], True))[: len(ids)]
        kept = np.sort(order[last])
        known = self.latest(ids[kept])
        is_known = known >= 0
        before, said = (self["at"][known], self["label"][known]) if len(self) else (times[kept], labels[kept])
        differs = is_known & (said != labels[kept])
        # One without a time is later than all before it, also if the clock was set back since.
        times[kept] = np.where(is_known & np.isnan(at[kept]), np.maximum(times[kept], before), times[kept])
        newer = ~is_known | (times[kept] > before) | (differs & (times[kept] == before))
        # In a batch, all but the last one of an id: repetitions, or corrected at once.
        winner = np.full(len(ids), -1)
        winner[order] = np.repeat(order[last], np.diff(last, prepend=-1))
        corrected = int(np.count_nonzero(labels != labels[winner])) + int(np.count_nonzero(differs & newer))
        rows = kept[newer]
        repeated = len(ids) - int(np.count_nonzero(~is_known)) - corrected
        words = self.words(id=ids[rows], at=times[rows], came=now, label=labels[rows])
        return NewLabels(words, ids[kept[~is_known]], repeated, corrected)


class KeptPredictions(RowLog):
    """The predictions of a model and shard that may still get a label, with the label that each has."""

    forgotten = FORGOTTEN_PREDICTION

    def __init__(self, most: int) -> None:
        super().__init__(_PREDICTION, most, {"label": np.int16, "delay": np.float32})
        self._joined_rows = self._joined_labels = 0
        """The numbers of the first row, and of the first label, that were not compared yet."""

    def _fill(self, place: slice) -> None:
        self._columns["label"][place] = NO_LABEL

    def forget(self, hashes: Hashes) -> int:
        """Forget the ids and labels of predictions; return how many there were."""
        _, rows = self.find(hashes)
        self["label"][rows] = NO_LABEL
        return super().forget(hashes)

    def join(self, labels: Labels) -> None:
        """Take the labels that came since the last call, and those of the predictions that came since."""
        for gone in labels.dropped:
            self._take(labels, gone)
        new = max(0, self._joined_labels - labels.first)
        if new < len(labels):
            self._take(labels, labels["id"][new:].astype(np.uint64))
        begin = max(0, self._joined_rows - self.first)
        if begin < len(self) and len(labels):
            known = labels.latest(self["id"][begin:].astype(np.uint64))
            rows = np.flatnonzero(known >= 0)
            self._set(begin + rows, labels, known[rows])
        self._joined_rows, self._joined_labels = self.end, labels.end

    def _take(self, labels: Labels, ids: Hashes) -> None:
        """Set the labels of some ids as they are now."""
        if not len(self) or not len(ids):
            return
        places, rows = self.find(ids)
        known = labels.latest(ids[places])
        self["label"][rows[known < 0]] = NO_LABEL
        self._set(rows[known >= 0], labels, known[known >= 0])

    def _set(self, rows: Integers, labels: Labels, known: Integers) -> None:
        self["label"][rows] = labels["label"][known]
        self["delay"][rows] = labels["at"][known] - self["at"][rows]


class Places:
    """The combinations of segments that predictions are in. A prediction names one by its number; 0 is none."""

    def __init__(self, combinations: tuple[tuple[Segment, ...], ...] = ((),)) -> None:
        self._numbers: dict[tuple[Segment, ...], int] = {}
        self._of: dict[Segment, list[int]] = {}
        """The numbers of each segment: there may be many more combinations than windows now."""
        for one in combinations:
            self._add(one)

    @property
    def combinations(self) -> tuple[tuple[Segment, ...], ...]:
        """All of them, by number. For any thread."""
        return tuple(self._numbers)

    def of(self, chunk: Chunk) -> Integers:
        """Return the number of each record of a chunk; new combinations get new numbers, up to MOST_PLACES."""
        found: Integers = np.zeros(len(chunk.at), dtype=np.int64)
        for column in chunk.codes.T:
            found *= len(chunk.segments) + 1
            found += column + 1
            if found.max(initial=0) > _SPARSE * len(found):
                # Renumbered, so that many splits of many segments do not overflow, or need a large table.
                found = np.unique(found, return_inverse=True)[1]
        rows = np.full(int(found.max(initial=0)) + 1, -1)
        rows[found] = np.arange(len(found))
        used, numbers = np.flatnonzero(rows >= 0), np.zeros(len(rows), dtype=np.int64)
        numbers[used] = [self._number(chunk, row) for row in rows[used].tolist()]
        return numbers.take(found)

    def _number(self, chunk: Chunk, row: int) -> int:
        combination = tuple(chunk.segments[code] for code in chunk.codes[row].tolist() if code >= 0)
        if combination in self._numbers:
            return self._numbers[combination]
        return self._add(combination) if len(self._numbers) < MOST_PLACES else 0

    def _add(self, combination: tuple[Segment, ...]) -> int:
        number = self._numbers[combination] = len(self._numbers)
        for segment in combination:
            self._of.setdefault(segment, []).append(number)
        return number

    def windows(self, segments: Mapping[Segment, int]) -> list[Integers]:
        """Return for each split the window of each number, given those of the segments; -1 for none. The first is all records."""
        held = [(segment, np.array(self._of[segment])) for segment in segments if segment in self._of]
        # After that: the ingestion thread may add some at any time.
        count, splits = len(self._numbers), dict[tuple[str, ...], Integers]()
        for segment, numbers in held:
            split = tuple(name for name, _ in segment)
            if split not in splits:
                splits[split] = np.full(count, -1)
            splits[split][numbers] = segments[segment]
        return [np.full(count, segments[ALL]), *splits.values()]
