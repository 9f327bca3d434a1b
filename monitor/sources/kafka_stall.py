"""A watch over partitions that hold something unread and do not move."""

from collections.abc import Mapping

from monitor.sources.kafka_partition import Partition


class StallWatch:
    """Remembers when each partition last moved. Clients have been known to stop fetching without a word."""

    def __init__(self, after_seconds: float) -> None:
        self._after = after_seconds
        self._moved: dict[Partition, tuple[int, float]] = {}

    def suspects(self, behind: Mapping[Partition, int], clock: float) -> frozenset[Partition]:
        """Return the partitions that have not moved for too long.

        `behind` has the position of each partition that holds something unread and is not paused.
        """
        moved = {}
        for partition, position in behind.items():
            before = self._moved.get(partition)
            moved[partition] = before if before is not None and before[0] == position else (position, clock)
        self._moved = moved
        return frozenset(one for one, (_, since) in moved.items() if clock - since >= self._after)

    def cleared(self) -> None:
        """Begin anew: the connection was made anew, or nothing was wrong."""
        self._moved.clear()
