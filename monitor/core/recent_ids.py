"""The latest ids of records, as 64-bit hashes in bounded memory, so that a record that is sent twice counts once.

A plain object without I/O: numbers in, numbers out. Not safe for two threads at once; its owner holds a lock. The hashes
must be keyed, as those of `decode.id_hash` are: whoever could choose them could make every search a long one.
"""

import numpy as np
from numpy.typing import NDArray

from monitor.core.scores import Booleans

Hashes = NDArray[np.uint64]
_Places = NDArray[np.int64]

NO_ID = 0

_FEWEST_SLOTS = 1 << 10
# At most half of the slots are taken, so that a search is short.
_SLOTS_PER_ID = 2
# What is entered at once stays in a core's cache.
_AT_ONCE = 1 << 14


class RecentIds:
    """Knows the last `most` distinct ids again, and at most twice as many.

    Two generations: ids enter the newer one, whether or not the older one holds them. When the newer one holds `most`,
    it becomes the older one, and what was the older one is forgotten. How ids were cut into batches makes no difference.

    A store that is to survive a restart keeps batches of ids and follows three rules:

    - Store the batch that will be remembered, without zeros and repetitions, under the number `next_batch`:
      `new = hashes[ids.fresh(hashes) & (hashes != NO_ID)]`; commit `new`; `ids.remember(new)`.
    - Batches with numbers below `first_needed` may be deleted at any time. The others hold at most twice `most` ids and
      one batch, as long as only fresh ids are remembered. Neighbours may be merged, under the number of the last.
    - To restore, remember the batches that are left in the order they were stored, each with its number:
      `ids.remember(batch, number)`. The last `most` ids are then known as before. Of older ones, fewer or more may be.
    """

    def __init__(self, most: int = 1_000_000) -> None:
        if most < 1:
            raise ValueError(f"most: expected 1 id or more, found {most!r}")
        self.most = most
        self.next_batch = 0
        """The number of the batch that is remembered next, unless it is given another."""
        self._newer, self._older = _Table(most), _Table(most)
        self._newer_from = self._older_from = 0

    def __len__(self) -> int:
        """Return the number of ids held; one that came again in a later generation counts in both."""
        return self._newer.held + self._older.held

    @property
    def first_needed(self) -> int:
        """The lowest number of a batch that holds an id of either generation; batches before it may be forgotten."""
        return min(self._newer_from, self._older_from)

    @property
    def bytes(self) -> int:
        """What the memory takes now; grows with what it holds, up to `bytes_at_most`."""
        return self._newer.slots.nbytes + self._older.slots.nbytes

    def fresh(self, hashes: Hashes) -> Booleans:
        """Tell which are neither remembered nor earlier in the same batch; NO_ID always is. Changes nothing."""
        given = hashes != NO_ID
        ids = hashes[given]
        fresh = np.ones(len(hashes), dtype=np.bool_)
        fresh[given] = ~(self._newer.holds(ids) | self._older.holds(ids) | _repeated(ids))
        return fresh

    def remember(self, hashes: Hashes, batch: int | None = None) -> None:
        """Take in ids in the order they came; NO_ID is passed over. `batch` is the number it was stored under."""
        number = self.next_batch if batch is None else batch
        self.next_batch = max(self.next_batch, number + 1)
        # Numbers that went back only make a store keep more.
        self._newer_from = min(self._newer_from, number)
        ids = hashes[hashes != NO_ID]
        # No piece is larger than a generation, so none fills more than one.
        step = min(self.most, _AT_ONCE)
        for start in range(0, len(ids), step):
            self._enter(ids[start : start + step], number)

    def _enter(self, ids: Hashes, number: int) -> None:
        room = self.most - self._newer.held
        if len(ids) < room:
            self._newer.add(ids[~_repeated(ids)])
            return
        new = np.flatnonzero(~(self._newer.holds(ids) | _repeated(ids)))
        self._newer.add(ids[new[:room]])
        if len(new) >= room:
            self._turn(number)
            # Also those that were in the newer generation a moment ago: to have come lately is what counts.
            rest = ids[new[room - 1] + 1 :]
            self._newer.add(rest[~_repeated(rest)])

    def _turn(self, number: int) -> None:
        """Let the newer generation become the older one."""
        self._newer, self._older = self._older, self._newer
        self._newer.clear()
        self._older_from, self._newer_from = self._newer_from, number


def bytes_at_most(most: int) -> int:
    """Return the most memory that so many recent ids take, batches in flight aside."""
    return 2 * 8 * _most_slots(most)


def _most_slots(most: int) -> int:
    return max(_FEWEST_SLOTS, 1 << (_SLOTS_PER_ID * most - 1).bit_length())


class _Table:
    """A set of hashes with open addressing; zero marks a free slot.

    A search goes on 1, 2, 3 … slots further each time, which reaches all slots as their number is a power of two.
    """

    def __init__(self, most: int) -> None:
        self.held = 0
        self.slots: Hashes = np.zeros(_FEWEST_SLOTS, dtype=np.uint64)
        self._most_slots = _most_slots(most)

    def clear(self) -> None:
        """Forget all, and keep the room."""
        self.slots.fill(0)
        self.held = 0

    def holds(self, hashes: Hashes) -> Booleans:
        """Tell which hashes are in the set."""
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

    def add(self, hashes: Hashes) -> None:
        """Add hashes that are all different; those in the set already change nothing."""
        self._make_room(len(hashes))
        self.held += self._put(hashes)

    def _put(self, hashes: Hashes) -> int:
        """Enter hashes and return how many were new."""
        places, step, new = self._first_places(hashes), 0, 0
        while len(hashes):
            step += 1
            seen = self.slots.take(places)
            free = np.flatnonzero(seen == 0)
            claimed, claims = places[free], hashes[free]
            # Of several that want the same free slot, one gets it.
            self.slots[claimed] = claims
            won = self.slots.take(claimed) == claims
            new += int(np.count_nonzero(won))
            homeless = seen != hashes
            homeless[free[won]] = False
            left = np.flatnonzero(homeless)
            hashes, places = hashes[left], (places[left] + step) & (len(self.slots) - 1)
        return new

    def _first_places(self, hashes: Hashes) -> _Places:
        return hashes.view(np.int64) & np.int64(len(self.slots) - 1)

    def _make_room(self, count: int) -> None:
        wanted = _SLOTS_PER_ID * (self.held + count)
        if wanted <= len(self.slots) or len(self.slots) == self._most_slots:
            return
        # Doubling, so that a model with few records takes little, and one with many moves them a few times only.
        held = self.slots[self.slots != 0]
        self.slots = np.zeros(min(self._most_slots, 1 << (wanted - 1).bit_length()), dtype=np.uint64)
        for start in range(0, len(held), _AT_ONCE):
            self._put(held[start : start + _AT_ONCE])


def _repeated(hashes: Hashes) -> Booleans:
    """Tell which hashes came earlier in the same batch.

    Nearly always none did. To find that out, each claims a slot by its last digits: equal ones claim the same slot, so
    only those whose slot went to another need a closer look. Three times as fast as sorting all.
    """
    repeated = np.zeros(len(hashes), dtype=np.bool_)
    slots = 1 << (4 * len(hashes)).bit_length()
    places = hashes.view(np.int64) & np.int64(slots - 1)
    order = np.arange(len(hashes), dtype=np.int32)
    # Read only where it was written.
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
