"""Recent ids against plain Python: duplicates that must be found, memory, and what a store may delete."""

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.core.recent_ids import NO_ID, Hashes, RecentIds, bytes_at_most
from monitor.core.scores import Booleans

Batches = list[list[int]]


def batches_of(largest: int = 12) -> st.SearchStrategy[Batches]:
    """Batches with repetitions, zeros, and colliding hashes."""
    crowded = st.integers(0, 8).map(lambda number: number << 40)
    few = st.one_of(st.integers(0, 30), crowded, st.just(2**64 - 1))
    return st.lists(st.lists(few, max_size=largest), max_size=12)


def hashes_of(numbers: Iterable[int]) -> Hashes:
    """Return a column."""
    return np.array(list(numbers), dtype=np.uint64)


def many(count: int, seed: int = 0) -> Hashes:
    """Return distinct nonzero hashes, distributed like keyed hashes."""
    return np.random.default_rng(seed).permutation(np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(
        0x9E3779B97F4A7C15
    )


def known(ids: RecentIds, numbers: Iterable[int]) -> list[int]:
    """Return which of some distinct numbers are known."""
    queried = hashes_of(numbers)
    found: list[int] = queried[~ids.fresh(queried)].tolist()
    return found


class Last:
    """The last distinct ids, in the order of their last occurrence."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._ids: OrderedDict[int, None] = OrderedDict()

    def remember(self, numbers: Iterable[int]) -> None:
        """Add ids in order."""
        for number in filter(None, numbers):
            self._ids[number] = None
            self._ids.move_to_end(number)
            if len(self._ids) > self.most:
                self._ids.popitem(last=False)

    @property
    def ids(self) -> list[int]:
        """The ids, oldest first."""
        return list(self._ids)


class TwoSets:
    """The same two generations as sets, one id at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.newer: set[int] = set()
        self.older: set[int] = set()

    def fresh(self, numbers: list[int]) -> list[bool]:
        """Return which are first occurrences."""
        before = [set(numbers[:place]) | self.newer | self.older for place in range(len(numbers))]
        return [number == NO_ID or number not in seen for number, seen in zip(numbers, before, strict=True)]

    def remember(self, numbers: list[int]) -> None:
        """Add ids in order."""
        for number in filter(None, numbers):
            self.newer.add(number)
            if len(self.newer) == self.most:
                self.newer, self.older = set(), self.newer


@given(st.integers(1, 20), batches_of())
@example(1, [[1, 1, 2], [2, 1, 0]])
@example(2, [[1], [2, 3, 1], [4]])  # 1 was in the generation that turned, and came again after
@example(3, [list(range(1, 31))])
def test_it_equals_two_sets(most: int, batches: Batches) -> None:
    """With repetitions, zeros, and batches larger than the memory."""
    ids, sets = RecentIds(most), TwoSets(most)
    for batch in batches:
        assert ids.fresh(hashes_of(batch)).tolist() == sets.fresh(batch)
        ids.remember(hashes_of(batch))
        sets.remember(batch)
        assert len(ids) == len(sets.newer) + len(sets.older)


@given(st.integers(1, 20), batches_of())
@example(2, [[1], [2, 3, 1], [4]])
def test_the_last_ids_are_always_known(most: int, batches: Batches) -> None:
    """However ids are split into batches; and at most twice as many are stored."""
    ids, last = RecentIds(most), Last(most)
    for batch in batches:
        ids.remember(hashes_of(batch))
        last.remember(batch)
        expected = last.ids
        assert known(ids, expected) == expected
        assert len(ids) <= 2 * most
        assert len(known(ids, range(1, 31))) <= 2 * most


@given(st.integers(1, 20), batches_of())
def test_the_split_into_batches_makes_no_difference(most: int, batches: Batches) -> None:
    whole, single = RecentIds(most), RecentIds(most)
    numbers = [number for batch in batches for number in batch]
    whole.remember(hashes_of(numbers))
    for number in numbers:
        single.remember(hashes_of([number]))
    queried = hashes_of(sorted(set(numbers)))
    assert whole.fresh(queried).tolist() == single.fresh(queried).tolist()
    assert len(whole) == len(single)


@pytest.mark.parametrize(
    ("added", "batch", "fresh"),
    [
        pytest.param([], [], [], id="nothing"),
        pytest.param([], [7], [1], id="one"),
        pytest.param([7], [7], [0], id="one again"),
        pytest.param([7], [8, 7], [1, 0], id="two"),
        pytest.param([], [7, 7, 8, 7, 8], [1, 0, 1, 0, 0], id="repeated in the batch: the first counts"),
        pytest.param([0], [0, 7, 0, 0], [1, 1, 1, 1], id="no id is always fresh"),
        pytest.param([1, 2, 3], [1, 2, 3, 4], [0, 0, 0, 1], id="full"),
        pytest.param([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [1, 1, 1, 0, 0, 0], id="twice full"),
        pytest.param([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [0, 0, 0, 0, 0], id="nearly twice full"),
        pytest.param([1, 1, 1, 1, 1, 2], [1, 2], [0, 0], id="added often, stored once"),
    ],
)
def test_fresh_with_a_capacity_of_three(added: list[int], batch: list[int], fresh: list[int]) -> None:
    """Sizes 0, 1, 2 and full; a second query has the same result."""
    ids = RecentIds(3)
    ids.remember(hashes_of(added))
    for _ in range(2):
        found: Booleans = ids.fresh(hashes_of(batch))
        assert found.dtype == np.bool_
        assert found.tolist() == [bool(one) for one in fresh]


def test_input_columns_are_not_modified() -> None:
    """They may be read-only slices."""
    column = many(100)[::2]
    column.flags.writeable = False
    before = column.copy()
    ids = RecentIds(10)
    assert ids.fresh(column).all()
    ids.remember(column)
    assert np.array_equal(column, before)


def test_a_full_memory_keeps_its_guarantee_and_its_size() -> None:
    """Five times its capacity, in batches that do not divide it."""
    most, ids = 50_000, RecentIds(50_000)
    assert ids.bytes < bytes_at_most(most)
    column = many(5 * most)
    for start in range(0, len(column), 7_919):
        batch = column[start : start + 7_919]
        assert ids.fresh(batch).all()
        ids.remember(batch)
        end = start + len(batch)
        assert not ids.fresh(column[max(0, end - most) : end]).any()
        assert len(ids) <= 2 * most
        assert ids.bytes <= bytes_at_most(most)
    assert ids.bytes == bytes_at_most(most) == 2 * 8 * 131_072
    assert ids.fresh(column[: 2 * most]).all()


def test_the_end_of_a_batch_larger_than_the_memory_is_known() -> None:
    column = many(100_000)
    ids = RecentIds(10_000)
    ids.remember(column)
    assert not ids.fresh(column[-10_000:]).any()
    assert ids.fresh(column[:-20_000]).all()


class Store:
    """A store that follows the three rules, and deletes whatever it may."""

    def __init__(self, most: int) -> None:
        self.ids = RecentIds(most)
        self.kept: dict[int, Hashes] = {}

    def take(self, hashes: Hashes) -> None:
        """Store a batch by the rules."""
        new = hashes[self.ids.fresh(hashes) & (hashes != NO_ID)]
        self.kept[self.ids.next_batch] = new
        self.ids.remember(new)
        self.kept = {number: batch for number, batch in self.kept.items() if number >= self.ids.first_needed}

    def merge(self) -> None:
        """Merge all batches into one, with the number of the last."""
        if self.kept:
            self.kept = {max(self.kept): np.concatenate(list(self.kept.values()))}

    def restart(self) -> None:
        """Restore from the stored batches."""
        self.ids = RecentIds(self.ids.most)
        for number, batch in self.kept.items():
            self.ids.remember(batch, number)

    @property
    def stored(self) -> int:
        """The number of stored ids."""
        return sum(map(len, self.kept.values()))


@given(st.integers(1, 20), batches_of(), st.sets(st.integers(0, 11)))
@example(2, [[1, 2, 3], [4], [5], [6]], {2})
def test_a_restored_memory_keeps_the_guarantee(most: int, batches: Batches, restarts: set[int]) -> None:
    """After any batches, with a bounded store."""
    store, last = Store(most), Last(most)
    for place, batch in enumerate(batches):
        last.remember(hashes_of(batch)[store.ids.fresh(hashes_of(batch))].tolist())
        store.take(hashes_of(batch))
        numbers = list(store.kept)
        assert store.stored <= 2 * most + max(map(len, batches))
        if place in restarts:
            store.restart()
        assert store.ids.next_batch == place + 1
        assert numbers == sorted(numbers)
        expected = last.ids
        assert known(store.ids, expected) == expected


@given(st.integers(1, 20), batches_of(), st.sets(st.integers(0, 11)), st.sets(st.integers(0, 11)))
@example(2, [[1], [2, 3], [4], [5], [6]], {1, 3}, {3, 4})
def test_merged_batches_restore_the_same(most: int, batches: Batches, merges: set[int], restarts: set[int]) -> None:
    """A store may merge small batches."""
    store, last = Store(most), Last(most)
    for place, batch in enumerate(batches):
        last.remember(hashes_of(batch)[store.ids.fresh(hashes_of(batch))].tolist())
        store.take(hashes_of(batch))
        if place in merges:
            store.merge()
        if place in restarts:
            store.restart()
        assert known(store.ids, last.ids) == last.ids


def test_which_batches_a_store_may_delete() -> None:
    """A capacity of three: the older generation, the newer one, and batches in both.

    batch     0     1       2     3    4
    ids      1 2 | 3 4 5 | 6 7 | 8  | 9
    turns        ^3       ^6         ^9
    """
    store = Store(3)
    needed = []
    for batch in [[1, 2], [3, 4, 5], [6, 7], [8], [9]]:
        store.take(hashes_of(batch))
        needed.append(store.ids.first_needed)
    # Batch 1 holds 3, which turned with 1 and 2, and 4, which turned with 6.
    assert needed == [0, 0, 1, 1, 2]
    assert list(store.kept) == [2, 3, 4]
    assert known(store.ids, range(1, 10)) == [7, 8, 9]


def test_a_store_restored_without_its_numbers_deletes_nothing_needed() -> None:
    ids = RecentIds(2)
    ids.remember(hashes_of([1, 2, 3]), 7)
    ids.remember(hashes_of([4]), 3)
    ids.remember(hashes_of([5]), 8)
    assert ids.first_needed <= 3
    assert ids.next_batch == 9
