"""The way past a damaged batch: nobody says where it ends, so it is found by trying, and nothing behind it is lost.

It is fetched some more times first: what was damaged on its way, or on one replica, may be whole the next time.

From an offset within the batch every fetch fails. First the steps grow, until one lands behind the batch; then the place
between the last that failed and the first that worked is halved, until they are neighbours.
"""

from dataclasses import dataclass

from monitor.sources.kafka_partition import Partition

FETCHED_AGAIN = 5


@dataclass(slots=True)
class _Search:
    start: int
    failed: int
    tried: int
    again: int = FETCHED_AGAIN
    worked: int | None = None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Skipped:
    """Offsets that were passed over, from one up to another."""

    start: int
    end: int


class Skipping:
    """Searches under way, one for each partition that has a damaged batch."""

    def __init__(self) -> None:
        self._searches: dict[Partition, _Search] = {}

    def __contains__(self, partition: Partition) -> bool:
        """Tell whether a search is under way."""
        return partition in self._searches

    def failed(self, partition: Partition, offset: int, end: int) -> int:
        """Return where to try next, after a fetch at an offset failed; never behind the end of the log."""
        search = self._searches.get(partition)
        if search is None or offset != search.tried:
            search = self._searches[partition] = _Search(offset, offset, offset)
        search.failed = offset
        if search.again:
            search.again -= 1
            return offset
        if search.worked is None:
            search.tried = max(offset + 1, min(offset + search.step, end))
            search.step *= 2
        else:
            search.tried = max(offset + 1, (offset + search.worked) // 2)
        return search.tried

    def worked(self, partition: Partition) -> int | Skipped:
        """Return where to try next, after a fetch brought messages where we tried; or what was passed over."""
        search = self._searches[partition]
        if search.tried == search.start:
            del self._searches[partition]
            return Skipped(search.start, search.start)
        if search.tried - search.failed > 1:
            search.worked = search.tried
            search.tried = (search.failed + search.worked) // 2
            return search.tried
        del self._searches[partition]
        return Skipped(search.start, search.tried)

    def forget(self, partition: Partition) -> None:
        """The partition is placed anew, or others have it."""
        self._searches.pop(partition, None)
