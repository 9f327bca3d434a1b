"""Which partitions are ours, as the group tells it.

The client library tells it on its own thread, in the middle of a poll, where nothing may be asked of the cluster. So it
is only noted here, and acted upon once the poll has returned.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from monitor.sources.kafka_partition import Partition


@dataclass(slots=True)
class Change:
    """What happened to the assignment since it was last asked for."""

    assigned: set[Partition] = field(default_factory=set)
    """Ours now, and to be placed anew, even if they were ours before."""
    revoked: int = 0
    lost: int = 0


class Ownership:
    """Notes of assignments, written by the library's thread and read by the one that ingests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owned: set[Partition] = set()
        self._change: Change | None = None

    @property
    def owned(self) -> frozenset[Partition]:
        """All partitions that are ours."""
        with self._lock:
            return frozenset(self._owned)

    def assigned(self, partitions: Iterable[Partition]) -> None:
        """The group gave us these, beside those that we have; there may be none."""
        with self._lock:
            change = self._noted()
            self._owned.update(given := set(partitions))
            change.assigned |= given

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """The group takes these away, in good order."""
        with self._lock:
            self._noted().revoked += self._gone(partitions)

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Others may have had these for a while."""
        with self._lock:
            self._noted().lost += self._gone(partitions)

    def lost_all(self) -> None:
        """There is no connection any more on which to own anything."""
        self.lost(self.owned)

    def take_change(self) -> Change | None:
        """Return what happened, once; None when nothing did."""
        with self._lock:
            change, self._change = self._change, None
            return change

    def _noted(self) -> Change:
        self._change = self._change or Change()
        return self._change

    def _gone(self, partitions: Iterable[Partition]) -> int:
        gone = set(partitions)
        before = len(self._owned)
        self._owned -= gone
        self._noted().assigned -= gone
        return before - len(self._owned)
