"""The stored chunks of a model: whatever is added, evicted, merged and rewritten, a restart finds every held record, in order."""

import random
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest

from monitor.core.scores import Integers
from monitor.core.segments import ALL, Chunk, Segment
from monitor.state import commit_plan
from monitor.state.commit_plan import ChunkLog, CommitPlan, Maintenance
from monitor.state.record_tables import joined
from monitor.state.store import State

MODEL = "density"
A: Segment = (("site", "A"),)
B: Segment = (("site", "B"),)
A1: Segment = (("site", "A"), ("scanner", "1"))
SPLITS: tuple[tuple[Segment | None, ...], ...] = ((A, B, None), (A1, None))

Row = tuple[float, frozenset[Segment]]
"""Event time, which identifies a record, and its windows."""


def chunk_of(rows: list[Row], arrived: float) -> Chunk:
    """Return records as a chunk, in the general form if one is not in the window of all records."""
    explicit = any(ALL not in segments for _, segments in rows)
    names = sorted(
        {one for _, segments in rows for one in segments if one != ALL or explicit} | ({ALL} if explicit else set())
    )
    splits = sorted({tuple(name for name, _ in one) for one in names})
    codes = np.full((len(rows), len(splits)), -1, dtype=np.int32)
    for row, (_, segments) in enumerate(rows):
        for one in segments & set(names):
            codes[row, splits.index(tuple(name for name, _ in one))] = names.index(one)
    at = np.array([time for time, _ in rows])
    return Chunk(arrived, at, np.repeat(at[:, np.newaxis], 3, axis=1).astype(np.float32), tuple(names), codes)


def rows_of(chunk: Chunk) -> list[Row]:
    """Return the records of a chunk."""
    everywhere = set() if ALL in chunk.segments else {ALL}
    assert (chunk.vectors == chunk.at[:, np.newaxis].astype(np.float32)).all()
    return [
        (float(at), frozenset(everywhere | {chunk.segments[code] for code in codes if code >= 0}))
        for at, codes in zip(chunk.at, chunk.codes.tolist() if chunk.segments else [()] * len(chunk.at), strict=True)
    ]


@dataclass
class Windows:
    """What the log asks of the windows, with lists."""

    held: dict[int, Row] = field(default_factory=dict)
    next_arrival: int = 0
    freed: list[int] = field(default_factory=list)

    def enter(self, rows: list[Row]) -> int:
        """Hold more records."""
        first = self.next_arrival
        self.held.update(enumerate(rows, first))
        self.next_arrival += len(rows)
        return first

    def free(self, numbers: list[int]) -> None:
        """Evict records from all windows."""
        for number in numbers:
            del self.held[number]
        self.freed += numbers

    def take_freed(self) -> Integers:
        """Return what was evicted."""
        freed, self.freed = np.array(self.freed, dtype=np.int64), []
        return freed

    def live(self, first: int, stop: int, without: Container[Segment] = ()) -> Chunk:
        """Return held records."""
        assert without == set()
        return chunk_of([self.held[number] for number in sorted(self.held) if first <= number < stop], 0.0)

    def last_seen(self, segment: Segment) -> float:
        """Return any time."""
        return float(len(segment))


@contextmanager
def limits(fan: int, most: int, spare: int) -> Iterator[None]:
    """Merge early."""
    with (
        patch.object(commit_plan, "_FAN", fan),
        patch.object(commit_plan, "_MOST_RECORDS", most),
        patch.object(commit_plan, "_SPARE_RECORDS", spare),
    ):
        yield


class Story:
    """A log, its state, and the windows."""

    def __init__(self, folder: Path) -> None:
        # Writing 8 MB for each state would take most of the time.
        (folder / "ballast").touch()
        self.state, self.windows, self.log = State.open(folder), Windows(), ChunkLog(MODEL, 3)

    def commit(self, rows: list[Row], *, fails: bool = False) -> Maintenance:
        """Commit a batch, as ingestion does; a failed commit is only planned. Return the maintenance."""
        plan, arrived = CommitPlan(), float(self.windows.next_arrival)
        self.log.maintain(cast("Any", self.windows), plan)
        if fails:
            return Maintenance()
        if rows:
            plan.chunks.append((MODEL, chunk_of(rows, arrived)))
        ids = self.state.commit(plan, 1.0)
        for change in plan.maintenance.values():
            self.log.maintained(change)
        for number in ids:
            self.log.added(number, self.windows.enter(rows), len(rows), arrived)
        return plan.maintenance.get(MODEL, Maintenance())

    def stored(self) -> list[Row]:
        """Return the stored records, in the order in which a restart reads them."""
        return [row for one in self.state.chunks(MODEL) for row in rows_of(one.chunk)]

    def check(self) -> None:
        """Compare with the windows."""
        stored = self.stored()
        assert sorted(stored) == stored, "in order of arrival: times ascend here"
        assert len(set(stored)) == len(stored)
        assert set(self.windows.held.values()) <= set(stored)


def batch(dice: random.Random, first: int) -> list[Row]:
    """Return up to nine records in some windows."""
    rows: list[Row] = []
    for number in range(dice.randrange(10)):
        segments = frozenset(one for one in map(dice.choice, SPLITS) if one is not None)
        rows.append((float(first + number), segments if segments and dice.random() < 0.1 else segments | {ALL}))
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_finds_every_held_record_once_and_in_order(tmp_path: Path, seed: int) -> None:
    """Evictions from the old end and anywhere, failed commits, changed times; limits so small that all happens."""
    dice = random.Random(seed)  # noqa: S311
    story, merged, dropped = Story(tmp_path), 0, 0
    with limits(fan=3, most=20, spare=4):
        story.log = ChunkLog(MODEL, 3)
        for _ in range(150):
            held, what = sorted(story.windows.held), dice.random()
            if what < 0.6:
                change = story.commit(batch(dice, story.windows.next_arrival), fails=dice.random() < 0.1)
                merged += len(change.rewritten)
                dropped += len(change.deleted)
            elif what < 0.75:
                story.windows.free(held[: dice.randrange(12)])
            elif what < 0.98:
                story.windows.free(dice.sample(held, min(dice.randrange(9), len(held))))
            else:
                story.windows.held = {n: (time - 0.25, segments) for n, (time, segments) in story.windows.held.items()}
                story.log.restamped = True
                story.commit([])
                assert set(story.windows.held.values()) == set(story.stored())
            story.check()
    story.state.close()
    assert merged > 5
    assert dropped > 20


def test_chunks_stay_few_and_mostly_needed(tmp_path: Path) -> None:
    """One record a commit, in a window of a thousand; a hundredth of them is needed much longer."""
    with limits(fan=8, most=512, spare=100):
        story, most_chunks, written, seen = Story(tmp_path), 0, 0, 3000
        for number in range(seen):
            change = story.commit([(float(number), frozenset({ALL}))])
            written += sum(len(one.chunk.at) for one in change.rewritten)
            if number >= 1000 and (number - 1000) % 100:
                story.windows.free([number - 1000])
            if number % 500 == 499:
                chunks = list(story.state.chunks(MODEL))
                most_chunks = max(most_chunks, len(chunks))
                assert sum(len(one.chunk.at) for one in chunks) <= 2 * len(story.windows.held) + 100 + 512
                story.check()
        assert most_chunks < 60
        assert written < 5 * seen
        story.state.close()


def test_an_unchanged_log_plans_nothing(tmp_path: Path) -> None:
    """Whatever its length: a commit costs what changed."""
    story = Story(tmp_path)
    story.commit([(1.0, frozenset({ALL}))])
    for _ in range(2):
        plan = CommitPlan()
        story.log.maintain(cast("Any", story.windows), plan)
        assert plan.maintenance == {}
    story.state.close()


def test_chunks_of_different_windows_are_joined_in_order() -> None:
    """Of an old state too: such records are not in the window of all records."""
    rows: list[Row] = [
        (1.0, frozenset({ALL, A})),
        (2.0, frozenset({B})),
        (3.0, frozenset({ALL, A, A1})),
        (4.0, frozenset({ALL})),
    ]
    chunks = [chunk_of(some, float(number)) for number, some in enumerate(([rows[0]], [rows[1]], rows[2:]))]
    together = joined(chunks)
    assert rows_of(together) == rows
    assert together.arrived == 2.0
    assert joined(chunks[2:]) is chunks[2]
    assert rows_of(joined([chunks[0], chunks[2]])) == [rows[0], *rows[2:]]


def test_deleted_windows_are_left_out_and_arrivals_stay(tmp_path: Path) -> None:
    """Their ids are still in the chunks, and are not used again."""
    state = State.open(tmp_path)
    both = [(1.0, frozenset({ALL, A})), (2.0, frozenset({ALL, B}))]
    state.commit(CommitPlan(chunks=[(MODEL, chunk_of(both, 7.0))]), 1.0)
    state.commit(CommitPlan(deleted_windows=[(MODEL, A)]), 1.0)
    state.commit(CommitPlan(chunks=[(MODEL, chunk_of([(3.0, frozenset({ALL, A}))], 8.0))]), 1.0)
    first, second = state.chunks(MODEL)
    assert rows_of(first.chunk) == [(1.0, frozenset({ALL})), (2.0, frozenset({ALL, B}))]
    assert (first.chunk.segments, first.arrivals.tolist()) == ((B,), [7.0])
    assert rows_of(second.chunk) == [(3.0, frozenset({ALL, A}))]
    (without,) = [one for one in state.chunks(MODEL, {A}) if one.number == second.number]
    assert rows_of(without.chunk) == [(3.0, frozenset({ALL}))]
    state.close()


@pytest.mark.slow
def test_more_windows_than_two_bytes_can_number(tmp_path: Path) -> None:
    """In one chunk."""
    rows: list[Row] = [(float(n), frozenset({ALL, (("site", str(n)),)})) for n in range(66_000)]
    state = State.open(tmp_path)
    at = np.array([time for time, _ in rows])
    segments = tuple((("site", str(n)),) for n in range(len(rows)))
    codes = np.arange(len(rows), dtype=np.int32)[:, np.newaxis]
    vectors = np.repeat(at[:, np.newaxis], 3, axis=1).astype(np.float32)
    state.commit(CommitPlan(chunks=[(MODEL, Chunk(1.0, at, vectors, segments, codes))]), 1.0)
    (one,) = state.chunks(MODEL)
    assert rows_of(one.chunk) == rows
    state.close()
