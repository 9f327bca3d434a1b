"""How far behind a watched directory is."""

from collections.abc import Iterable, Sequence

from monitor.sources.base import Lag
from monitor.sources.desk import Desk
from monitor.sources.opening import Folder, Refused
from monitor.sources.scan import Found
from monitor.sources.tracked import Tracked

_SAMPLE = 1_000


class LagMeter:
    """Adds up what is unread, and knows since when.

    By our own clock: the times of files are those of their writers, and a copy may keep one of years ago.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._backlog_since: float | None = None
        """Since when there have been new files that nobody has opened."""

    def measure(self, folder: Folder, active: Iterable[Tracked], new: Sequence[Found]) -> Lag:
        """Add up what is unread in files that are followed, and in new ones that have not been opened yet."""
        desk = self._desk
        size = files = 0
        self._backlog_since = (self._backlog_since or desk.now) if new else None
        since = [] if self._backlog_since is None else [self._backlog_since]
        for tracked in active:
            if not tracked.unread:
                tracked.unread_since = None
            elif tracked.unread_since is None:
                tracked.unread_since = desk.now
            if tracked.look is None or not (tracked.unread or tracked.settling):
                continue
            files += 1
            size += tracked.unread_bytes
            # What settles, or cannot be opened, is waited for: we are not late with it.
            if tracked.unread_since is not None and tracked.wait_until <= desk.clock:
                since.append(tracked.unread_since)
        return Lag(size + _size_of(folder, new), files + len(new), min(since, default=None))


def _size_of(folder: Folder, new: Sequence[Found]) -> int:
    # Looking at a hundred thousand new files would cost more than reading some of them.
    sample = new[:: max(1, len(new) // _SAMPLE)]
    sizes = []
    for found in sample:
        try:
            sizes.append(folder.look(found.name).size)
        except (OSError, Refused):
            continue
    return round(sum(sizes) * len(new) / len(sample)) if sizes else 0
