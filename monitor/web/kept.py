"""Pages that are made once for all who ask within a second: ten open browsers cost as much as one."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.core.report import ModelReport
from monitor.web.messages import Response
from monitor.web.site import Site

Framed = Callable[[Site, Mapping[str, str]], Response | None]
"""Makes a page for people from the site and the query; None where what the query names is not known."""

SECONDS = 1.0
"""The times on a page are told to the second, so nobody sees that it is this old."""
MOST_KEPT = 16
"""Each may hold a megabyte."""
_ASKED = ("name", "segment", "span")
"""What a page may read of the query; the rest makes no other page."""

_Standing = tuple[tuple[ModelReport, ...], Sequence[str], Sequence[str]]


@dataclass(slots=True)
class _Entry:
    """The last answer to one question. Under its lock, one makes it and the others wait for that."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: float = 0.0
    standing: _Standing | None = None
    response: Response | None = None


class Kept:
    """A page that remembers what it answered, until something is evaluated, begins to wait or fails, or a second is over."""

    def __init__(self, page: Framed, clock: Callable[[], float] = time.monotonic) -> None:
        self._page = page
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[tuple[str | None, ...], _Entry] = {}

    def __call__(self, site: Site, query: Mapping[str, str]) -> Response | None:
        """Return the page; on any thread."""
        key = tuple(map(query.get, _ASKED))
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            # Asked before the page is made: what changes meanwhile makes it anew for the next one.
            standing: _Standing = (tuple(site.reports().values()), list(site.healthy()), list(site.ready()))
            if entry.response is None or not self._is_fresh(entry, standing):
                made = self._clock()
                entry.response = self._page(site, query)
                entry.made, entry.standing = made, standing
            response = entry.response
        with self._lock:
            self._tidy(key, known=response is not None)
        return response

    def __len__(self) -> int:
        """Return how many answers are remembered."""
        return len(self._entries)

    def _is_fresh(self, entry: _Entry, standing: _Standing) -> bool:
        if entry.standing is None or self._clock() - entry.made >= SECONDS:
            return False
        (before, *told_before), (now, *told) = entry.standing, standing
        # By identity: an evaluation makes new reports, and to compare their content would cost as much as the page.
        same = len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))
        return same and told_before == told

    def _tidy(self, key: tuple[str | None, ...], *, known: bool) -> None:
        """Forget the oldest of too many, and at once what has no page: anybody can make up names."""
        if not known:
            self._entries.pop(key, None)
        while len(self._entries) > MOST_KEPT:
            del self._entries[next(iter(self._entries))]
