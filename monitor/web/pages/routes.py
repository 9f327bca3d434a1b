"""The pages by path. Expensive ones are rendered once a second for all who ask."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from monitor.core.report import ModelReport
from monitor.web import api
from monitor.web.pages.configuration import configuration_page
from monitor.web.pages.model import model_page
from monitor.web.pages.overview import overview_page
from monitor.web.pages.reference_page import reference_page
from monitor.web.pages.rejects import rejects_page
from monitor.web.pages.rendering import asset_pages, not_found
from monitor.web.server.request import JSON, Page, Pages, Request, Response
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


METRICS = "text/plain; version=0.0.4; charset=utf-8"
"""What Prometheus wants to read; version 3 refuses a scrape without it."""
NOT_ENABLED = "lifecycle API is not enabled: start with --web.enable-lifecycle"
NOT_FOR_BROWSERS = "reload: expected a program that asks, found a page in a browser: use curl -X POST, or SIGHUP"
_RELOAD_SECONDS = 330.0

_FRAMED: Mapping[str, Framed] = {
    "/": overview_page,
    "/model": model_page,
    "/reference": reference_page,
    "/rejects": rejects_page,
    "/configuration": configuration_page,
}
_DEAR = {"/", "/model"}
"""Those that cost more the more there is to watch, and that are left open on a screen."""

Problems = Callable[[], Sequence[str]]
"""Says in sentences what is wrong; nothing when all is well."""


def standard_pages(
    site: Site,
    *,
    metrics: Callable[[], bytes],
    reload: Callable[[], str | None] | None,
    status: Callable[[], bytes],
) -> Pages:
    """Return the pages by path. All functions are called on the server's threads, several at once.

    `reload` returns what was wrong, None when nothing was; without it reloading over HTTP is not enabled.
    """
    return {
        **asset_pages(),
        **{path: Page(_for_people(site, Kept(page) if path in _DEAR else page)) for path, page in _FRAMED.items()},
        "/metrics": Page(lambda _: Response(metrics(), METRICS)),
        "/-/healthy": Page(_told(site.healthy, "cpcmon is healthy.")),
        "/-/ready": Page(_told(site.ready, "cpcmon is ready.")),
        "/-/reload": _reload_page(reload),
        "/api/v1/status": Page(lambda _: Response(status(), JSON)),
        "/api/v1/configuration": _document_page(site, api.configuration_document),
        "/api/v1/reference": _document_page(site, api.reference_document),
        "/api/v1/realised": _document_page(site, api.realised_document),
        "/api/v1/history": _document_page(site, api.history_document),
        "/api/v1/rejects": _document_page(site, api.rejects_document),
    }


def _document_page(site: Site, document: Callable[[Site, Mapping[str, str]], bytes | None]) -> Page:
    """Return a page of JSON; what was asked for and is not known is 404, and not repeated."""

    def answer(request: Request) -> Response:
        found = document(site, request.query)
        if found is None:
            return Response(b"not found\n", status=HTTPStatus.NOT_FOUND)
        return Response(found, JSON)

    return Page(answer)


def _for_people(site: Site, page: Framed) -> Callable[[Request], Response]:
    return lambda request: page(site, request.query) or not_found(site)


def _told(problems: Problems, well: str) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        found = problems()
        if found:
            return Response("".join(f"{one}\n" for one in found).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Response(f"{well}\n".encode())

    return answer


def _reload_page(reload: Callable[[], str | None] | None) -> Page:
    def refuse(_: Request) -> Response:
        return Response(f"{NOT_ENABLED}\n".encode(), status=HTTPStatus.FORBIDDEN)

    if reload is None:
        return Page(refuse, ("POST", "PUT"))

    def answer(request: Request) -> Response:
        # Browsers send it with every POST, programs never: any page that somebody on this machine looks at could ask.
        if "origin" in request.headers:
            return Response(f"{NOT_FOR_BROWSERS}\n".encode(), status=HTTPStatus.FORBIDDEN)
        problem = reload()
        if problem is not None:
            return Response(f"{problem}\n".encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        return Response(b"the configuration was read again\n")

    return Page(answer, ("POST", "PUT"), one_at_a_time=True, seconds=_RELOAD_SECONDS)
