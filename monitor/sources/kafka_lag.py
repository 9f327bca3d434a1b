"""How far behind the partitions are, in records and in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.sources.base import Lag
from monitor.sources.kafka_partition import Partition, Progress


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far behind one partition is."""

    records: int
    """Offsets between where we are and the end: at most so many records."""
    seconds: float
    """How old the newest record is that was read, while there is more; 0 when there is not."""
    restoring: int = 0
    """Of those, the ones that only rebuild windows: another process had read them."""


@dataclass(slots=True)
class _Seen:
    end: int
    """Where the log ends, as far as it may be read."""
    fetched_end: int | None = None
    """The end that the last fetch saw; it may count what belongs to open transactions."""
    newest: float = float("-inf")
    """The time of the newest message that was read."""
    caught_up_at: float = float("-inf")
    placed_at: float = 0.0


class LagMeter:
    """Follows the ends of partitions and the times of messages."""

    def __init__(self) -> None:
        self._seen: dict[Partition, _Seen] = {}
        self._lags: dict[str, PartitionLag] = {}
        self._since: float | None = None

    def placed(self, partition: Partition, end: int, now: float) -> None:
        """A partition is to be read, and this is where its log ends."""
        self._seen[partition] = _Seen(end, placed_at=now)

    def keep(self, partitions: frozenset[Partition]) -> None:
        """Forget all others."""
        self._seen = {one: seen for one, seen in self._seen.items() if one in partitions}

    def read(self, partition: Partition, newest: float, now: float) -> None:
        """Messages were read; a time from the future says nothing about lag."""
        seen = self._seen.get(partition)
        if seen is not None:
            seen.newest = max(seen.newest, min(newest, now))

    def found_ends(self, ends: Mapping[Partition, int]) -> None:
        """The cluster was asked where logs end."""
        for partition, end in ends.items():
            if partition in self._seen:
                self._seen[partition].end = end

    def behind(self, partition: Partition, position: int) -> int:
        """Return how many offsets lie between a position and the end."""
        seen = self._seen.get(partition)
        return 0 if seen is None else max(0, seen.end - position)

    def measure(self, progress: Mapping[Partition, Progress], restored_to: Mapping[Partition, int], now: float) -> None:
        """Work out how far behind each partition is."""
        lags: dict[str, PartitionLag] = {}
        since: list[float] = []
        for partition, seen in self._seen.items():
            at = progress.get(partition)
            if at is None:
                continue
            if at.end is not None and at.end != seen.fetched_end:
                seen.end = seen.fetched_end = at.end
            records = max(0, seen.end - at.position)
            if not records:
                seen.caught_up_at = now
            start = max(seen.newest, seen.caught_up_at)
            # Where nothing has been read yet, all that is known is since when it could have been.
            start = seen.placed_at if start == float("-inf") else start
            seconds = max(0.0, now - start) if records else 0.0
            restoring = min(records, max(0, restored_to.get(partition, 0) - at.position))
            lags[partition.shard] = PartitionLag(records, seconds, restoring)
            if records:
                since.append(start)
        self._lags, self._since = lags, min(since, default=None)

    @property
    def lags(self) -> Mapping[str, PartitionLag]:
        """How far behind each shard is, as of the last measurement."""
        return self._lags

    @property
    def lag(self) -> Lag:
        """How far behind all of them are."""
        behind = sum(one.records > 0 for one in self._lags.values())
        rebuilding = any(one.restoring for one in self._lags.values())
        return Lag(files=behind, oldest_unread=self._since, rebuilding=rebuilding)
