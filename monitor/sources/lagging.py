"""How far behind a watched directory is."""

from collections.abc import Iterable, Sequence

from monitor.sources.base import Lag
from monitor.sources.opening import Folder, Refused
from monitor.sources.scan import Found
from monitor.sources.tracked import Tracked

_SAMPLE = 1_000


def measure_lag(folder: Folder, active: Iterable[Tracked], new: Sequence[Found]) -> Lag:
    """Add up what is unread in files that are followed, and in new ones that have not been opened yet."""
    waiting = (tracked for tracked in active if tracked.unread or tracked.settling)
    unread = [(tracked.unread_bytes, tracked.look) for tracked in waiting if tracked.look is not None]
    size = sum(some for some, _ in unread)
    written = [look.modified_ns / 1e9 for _, look in unread]
    # Looking at a hundred thousand new files would cost more than reading some of them.
    sample = new[:: max(1, len(new) // _SAMPLE)]
    sizes = []
    for found in sample:
        try:
            look = folder.look(found.name)
        except (OSError, Refused):
            continue
        sizes.append(look.size)
        written.append(look.modified_ns / 1e9)
    if sizes:
        size += round(sum(sizes) * len(new) / len(sample))
    return Lag(size, len(unread) + len(new), min(written, default=None))
