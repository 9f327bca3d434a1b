"""Deduplication: the latest record ids as 64-bit hashes, in bounded memory.

No I/O. Not thread-safe. The hashes must be keyed, as those of `records.id_hash` are: chosen hashes could make every search
slow.
"""

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Booleans

Hashes = NDArray[np.uint64]
_Places = NDArray[np.int64]

NO_ID = 0
"""The hash of a record without an id."""

_FORGOTTEN = 1
"""In the slot of a forgotten hash; no id has it, but by a chance of 2 to the -63."""
_FEWEST_SLOTS = 1 << 10
# At most half of the slots are used, to keep searches short.
_SLOTS_PER_ID = 2
# Every search takes some steps, however few the ids; more of them would not fit in the CPU cache.
_AT_ONCE = 1 << 16


class RecentIds:
    """Remembers at least the last `most` distinct ids, and at most twice as many.

    Ids are added to the newer of two generations, even if the older one has them. When the newer one has `most`, it becomes
    the older one, which is dropped. The result does not depend on how ids are split into batches.

    A store keeps batches of ids across restarts, by three rules:

    - Store the batch, without NO_ID and repetitions, under the number `next_batch`:
      `new = hashes[ids.fresh(hashes) & (hashes != NO_ID)]`; commit `new`; `ids.remember(new)`.
    - Batches below `first_needed` may be deleted at any time. The others have at most twice `most` ids and one batch.
      Consecutive batches may be merged, under the number of the last.
    - To restore, remember the remaining batches in order, with their numbers: `ids.remember(batch, number)`. The last
      `most` ids are then known as before.
    """

    def __init__(self, most: int = 1_000_000) -> None:
        self.most = most
        self.next_batch = 0
        """The number of the next batch, unless it is given another."""
        self._newer, self._older = _Table(most), _Table(most)
        self._newer_from = self._older_from = 0

    def __len__(self) -> int:
        """Return the number of ids; an id in both generations counts twice."""
        return self._newer.held + self._older.held

    @property
    def first_needed(self) -> int:
        """The lowest batch number with an id of either generation; earlier batches may be deleted."""
        return min(self._newer_from, self._older_from)

    @property
    def bytes(self) -> int:
        """The current memory, up to `bytes_at_most`."""
        return self._newer.slots.nbytes + self._older.slots.nbytes

    def fresh(self, hashes: Hashes) -> Booleans:
        """Return which hashes are new: neither remembered nor earlier in the batch. NO_ID always is. Changes nothing."""
        given = hashes != NO_ID
        if not given.all():
            fresh: Booleans = ~given
            fresh[given] = self.fresh(hashes[given])
            return fresh
        known: Booleans = self._newer.holds(hashes) | self._older.holds(hashes) | _repeated(hashes)
        return ~known

    def remember(self, hashes: Hashes, batch: int | None = None) -> None:
        """Remember ids in arrival order, except NO_ID; `batch` is the number under which they were stored."""
        number = self.next_batch if batch is None else batch
        self.next_batch = max(self.next_batch, number + 1)
        # A lower number only makes the store keep more.
        self._newer_from = min(self._newer_from, number)
        ids = hashes[hashes != NO_ID]
        # No piece is larger than a generation.
        step = min(self.most, _AT_ONCE)
        for start in range(0, len(ids), step):
            self._enter(ids[start : start + step], number)

    def forget(self, hashes: Hashes) -> None:
        """Forget some ids. In stored batches, replace them by NO_ID."""
        for table in (self._newer, self._older):
            table.forget(hashes)

    def _enter(self, ids: Hashes, number: int) -> None:
        room = self.most - self._newer.held
        if len(ids) < room:
            self._newer.add(ids[~_repeated(ids)])
            return
        new = np.flatnonzero(~(self._newer.holds(ids) | _repeated(ids)))
        self._newer.add(ids[new[:room]])
        if len(new) >= room:
            self._turn(number)
            # Including those in the previous generation: recent ids count.
            rest = ids[new[room - 1] + 1 :]
            self._newer.add(rest[~_repeated(rest)])

    def _turn(self, number: int) -> None:
        """Start a new generation; drop the older one."""
        self._newer, self._older = self._older, self._newer
        self._newer.clear()
        self._older_from, self._newer_from = self._newer_from, number


def bytes_at_most(most: int) -> int:
    """Return the maximum memory for `most` ids."""
    return 2 * 8 * _most_slots(most)


def _most_slots(most: int) -> int:
    return max(_FEWEST_SLOTS, 1 << (_SLOTS_PER_ID * most - 1).bit_length())


class _Table:
    """A set of hashes with open addressing; zero marks a free slot.

    Probes 1, 2, 3 … slots further each time, which reaches all slots as their number is a power of two.
    """

    def __init__(self, most: int) -> None:
        self.held = 0
        self.slots: Hashes = np.zeros(_FEWEST_SLOTS, dtype=np.uint64)
        self._most_slots = _most_slots(most)

    def clear(self) -> None:
        """Remove all, keep the allocation."""
        self.slots.fill(0)
        self.held = 0

    def holds(self, hashes: Hashes) -> Booleans:
        """Return which hashes are in the set."""
        if not self.held:
            return np.zeros(len(hashes), dtype=np.bool_)
        places = self._first_places(hashes)
        seen = self.slots.take(places)
        held: Booleans = seen == hashes
        open_ = np.flatnonzero(~held & (seen != 0))
        places, wanted, step = places[open_], hashes[open_], 0
        while len(open_):
            step += 1
            places = (places + step) & (len(self.slots) - 1)
            seen = self.slots.take(places)
            found = seen == wanted
            held[open_[found]] = True
            going_on = np.flatnonzero(~found & (seen != 0))
            open_, places, wanted = open_[going_on], places[going_on], wanted[going_on]
        return held

    def forget(self, hashes: Hashes) -> None:
        """Remove hashes. Their slots stay used, so that others are found behind them. Reads all slots."""
        self.slots[np.isin(self.slots, hashes[hashes != NO_ID])] = _FORGOTTEN

    def add(self, hashes: Hashes) -> None:
        """Add distinct hashes."""
        self._make_room(len(hashes))
        self.held += self._put(hashes)

    def _put(self, hashes: Hashes) -> int:
        """Add hashes; return how many were new."""
        places, step, new = self._first_places(hashes), 0, 0
        while len(hashes):
            step += 1
            seen = self.slots.take(places)
            # Of several for the same free slot, one wins.
            self.slots[places] = np.where(seen == 0, hashes, seen)
            left = np.flatnonzero(self.slots.take(places) != hashes)
            new += len(hashes) - len(left) - int(np.count_nonzero(seen == hashes))
            hashes, places = hashes[left], (places[left] + step) & (len(self.slots) - 1)
        return new

    def _first_places(self, hashes: Hashes) -> _Places:
        return hashes.view(np.int64) & np.int64(len(self.slots) - 1)

    def _make_room(self, count: int) -> None:
        wanted = _SLOTS_PER_ID * (self.held + count)
        if wanted <= len(self.slots) or len(self.slots) == self._most_slots:
            return
        # A quarter full at most: small sets stay small, and large ones move rarely.
        held = self.slots[self.slots != 0]
        self.slots = np.zeros(min(self._most_slots, 2 << (wanted - 1).bit_length()), dtype=np.uint64)
        for start in range(0, len(held), _AT_ONCE):
            self._put(held[start : start + _AT_ONCE])


def _repeated(hashes: Hashes) -> Booleans:
    """Return which hashes occur earlier in the same batch.

    Nearly always none does. Each hash claims a slot by its low bits: equal hashes claim the same slot, so only those that
    lost their slot are compared. Three times as fast as sorting.
    """
    repeated = np.zeros(len(hashes), dtype=np.bool_)
    slots = 1 << (4 * len(hashes)).bit_length()
    places = hashes.view(np.int64) & np.int64(slots - 1)
    order = np.arange(len(hashes), dtype=np.int32)
    # Uninitialised: read only where written.
    winners = np.empty(slots, dtype=np.int32)
    winners[places] = order
    winner = winners[places]
    losers = np.flatnonzero(winner != order)
    lost = np.sort(hashes[losers])
    if (hashes[winner[losers]] == hashes[losers]).any() or (lost[1:] == lost[:-1]).any():
        _, first = np.unique(hashes, return_index=True)
        repeated[:] = True
        repeated[first] = False
    return repeated
