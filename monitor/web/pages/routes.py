"""The pages by path. Expensive ones are cached for a second."""

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from monitor.core.report import Report
from monitor.web import api
from monitor.web.pages.model import model_page
from monitor.web.pages.other_pages import configuration_page, reference_page, rejects_page
from monitor.web.pages.overview import overview_page
from monitor.web.pages.rendering import asset_pages, not_found
from monitor.web.server.request import JSON, Page, Pages, Request, Response
from monitor.web.site import Health, Site

PageFunction = Callable[[Site, Mapping[str, str]], Response | None]
"""Renders a page from the site and the query; None for an unknown name."""

SECONDS = 1.0
"""The cache lifetime. Pages show times to the second."""
MOST_CACHED = 16
"""Cached pages; each may take a megabyte."""
_PARAMETERS = ("name", "segment", "span")
"""The query parameters that pages read."""

_Inputs = tuple[tuple[Report, ...], Health]


@dataclass(slots=True)
class _Entry:
    """The last response to a query. Under its lock one thread renders while the others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: float = 0.0
    inputs: _Inputs | None = None
    response: Response | None = None


class CachedPage:
    """Caches a page for a second, or until reports, health or readiness change."""

    def __init__(self, page: PageFunction, clock: Callable[[], float] = time.monotonic) -> None:
        self._page = page
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[tuple[str | None, ...], _Entry] = {}

    def __call__(self, site: Site, query: Mapping[str, str]) -> Response | None:
        """Return the page; on any thread."""
        key = tuple(map(query.get, _PARAMETERS))
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            # Read before rendering: a change meanwhile invalidates the entry.
            inputs = (tuple(site.reports().values()), site.health())
            if entry.response is None or not self._is_fresh(entry, inputs):
                made = self._clock()
                entry.response = self._page(site, query)
                entry.made, entry.inputs = made, inputs
            response = entry.response
        with self._lock:
            self._tidy(key, known=response is not None)
        return response

    def __len__(self) -> int:
        """Return the number of cached responses."""
        return len(self._entries)

    def _is_fresh(self, entry: _Entry, inputs: _Inputs) -> bool:
        if entry.inputs is None or self._clock() - entry.made >= SECONDS:
            return False
        (before, health_before), (now, health) = entry.inputs, inputs
        # By identity: an evaluation creates new reports, and comparing their content would cost as much as rendering.
        same = len(before) == len(now) and all(one is other for one, other in zip(before, now, strict=True))
        return same and health_before == health

    def _tidy(self, key: tuple[str | None, ...], *, known: bool) -> None:
        """Evict the oldest entries, and unknown names at once: anybody can invent names."""
        if not known:
            self._entries.pop(key, None)
        while len(self._entries) > MOST_CACHED:
            del self._entries[next(iter(self._entries))]


METRICS = "text/plain; version=0.0.4; charset=utf-8"
"""The content type that Prometheus 3 requires."""
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_METRICS_TYPES: Mapping[str, tuple[str, set[str | None]]] = {
    "application/openmetrics-text": (OPENMETRICS, {None, "1.0.0"}),
    "text/plain": (METRICS, {None, "0.0.4"}),
    "text/*": (METRICS, {None}),
    "*/*": (METRICS, {None}),
}
"""What answers a type in an Accept header, if it asks for one of these versions."""
NOT_ENABLED = "lifecycle API is not enabled: start with --web.enable-lifecycle"
NOT_FOR_BROWSERS = "reload: expected a request without Origin, found one from a browser: use curl -X POST, or SIGHUP"
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?")
_RELOAD_SECONDS = 330.0
_NO_COMMAND = "command: expected a request without Origin, found one from a browser: use curl -X POST, or cpcmon"
_COMMAND_SECONDS = 120.0
MOST_COMMAND_BYTES = 4 << 10
"""The size of a command."""

_PAGES: Mapping[str, PageFunction] = {
    "/": overview_page,
    "/model": model_page,
    "/reference": reference_page,
    "/rejects": rejects_page,
    "/configuration": configuration_page,
}
_CACHED = {"/", "/model"}
"""Pages whose cost grows with the number of windows."""


def standard_pages(
    site: Site,
    *,
    metrics: Callable[[str], Response],
    reload: Callable[[], str | None] | None,
    status: Callable[[], bytes],
    command: Callable[[bytes], tuple[HTTPStatus, str]] | None = None,
) -> Pages:
    """Return the pages by path. All functions are called on the server's threads, several at once.

    `metrics` takes the content type: METRICS or OPENMETRICS. `reload` returns the problem, or None on success; without it, reloading over HTTP is disabled. So are commands without
    `command`, which returns a status and a sentence.
    """
    return {
        **asset_pages(),
        **{
            path: Page(_html_page(site, CachedPage(page) if path in _CACHED else page)) for path, page in _PAGES.items()
        },
        "/metrics": Page(_metrics_page(metrics)),
        **{path: Page(_problems_page(problems, well)) for path, (problems, well) in _checks(site).items()},
        "/-/reload": _reload_page(reload),
        "/-/command": _command_page(command),
        "/api/v1/status": Page(lambda _: Response(status(), JSON)),
        "/api/v1/configuration": _document_page(site, api.configuration_document),
        "/api/v1/reference": _document_page(site, api.reference_document),
        "/api/v1/history": _document_page(site, api.history_document),
        "/api/v1/performance": _document_page(site, api.performance_document),
        "/api/v1/labels": _document_page(site, api.labels_document),
        "/api/v1/alerts": _document_page(site, api.alerts_document),
        "/api/v1/rejects": _document_page(site, api.rejects_document),
    }


def probe_pages(site: Site) -> Pages:
    """Return the pages of the address for probes. Everybody may ask: they tell the status code and no reason."""

    def page(problems: Callable[[], Sequence[str]], well: str) -> Page:
        return Page(_problems_page(lambda: ["no"] if problems() else (), well))

    return {path: page(*check) for path, check in _checks(site).items()}


def _checks(site: Site) -> dict[str, tuple[Callable[[], Sequence[str]], str]]:
    """Return the problems that each check asks for, and the sentence if there are none."""
    return {
        "/-/healthy": (site.unhealthy, "cpcmon is healthy."),
        "/-/ready": (lambda: site.health().not_ready, "cpcmon is ready."),
    }


def _metrics_page(metrics: Callable[[str], Response]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        wanted = metrics_type(request.headers.get("accept", ""))
        return replace(metrics(wanted), content_type=wanted, headers={"Vary": "Accept"})

    return answer


def metrics_type(accepted: str) -> str:
    """Return the content type of the metrics page for an Accept header: OpenMetrics if it is asked for and not liked less."""
    liked = {METRICS: 0.0, OPENMETRICS: 0.0}
    for choice in accepted.lower().split(","):
        name, *rest = (part.strip() for part in choice.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in (one.partition("=") for one in rest)}
        kind, versions = _METRICS_TYPES.get(name, (METRICS, set[str | None]()))
        if parameters.get("version") in versions:
            liked[kind] = max(liked[kind], _quality(parameters.get("q", "1")))
    return OPENMETRICS if 0.0 < liked[OPENMETRICS] >= liked[METRICS] else METRICS


def _quality(text: str) -> float:
    """Return the weight of a choice, 0 if it is none."""
    return float(text) if _WEIGHT.fullmatch(text) else 0.0


def _document_page(site: Site, document: Callable[[Site, Mapping[str, str]], bytes | None]) -> Page:
    """Return a JSON page; unknown names are 404."""

    def answer(request: Request) -> Response:
        found = document(site, request.query)
        if found is None:
            return Response(b"not found\n", status=HTTPStatus.NOT_FOUND)
        return Response(found, JSON)

    return Page(answer)


def _html_page(site: Site, page: PageFunction) -> Callable[[Request], Response]:
    return lambda request: page(site, request.query) or not_found(site)


def _problems_page(problems: Callable[[], Sequence[str]], well: str) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        found = problems()
        if found:
            return Response("".join(f"{one}\n" for one in found).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
        return Response(f"{well}\n".encode())

    return answer


def _reload_page(reload: Callable[[], str | None] | None) -> Page:
    def answer(_: Request) -> Response:
        problem = None if reload is None else reload()
        if problem is not None:
            return Response(f"{problem}\n".encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        return Response(b"configuration reloaded\n")

    guarded = _guarded(answer, NOT_FOR_BROWSERS, enabled=reload is not None)
    return Page(guarded, ("POST", "PUT"), one_at_a_time=reload is not None, seconds=_RELOAD_SECONDS)


def _command_page(command: Callable[[bytes], tuple[HTTPStatus, str]] | None) -> Page:
    def answer(request: Request) -> Response:
        if command is None or len(request.body) > MOST_COMMAND_BYTES:
            return Response(b"command too long\n", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        status, sentence = command(request.body)
        return Response(f"{sentence}\n".encode(), status=status)

    guarded = _guarded(answer, _NO_COMMAND, enabled=command is not None)
    return Page(guarded, ("POST",), one_at_a_time=command is not None, seconds=_COMMAND_SECONDS)


def _guarded(answer: Callable[[Request], Response], browsers: str, *, enabled: bool) -> Callable[[Request], Response]:
    """Return the answer of a page that changes the daemon: it must be enabled, and browsers are refused."""

    def guarded(request: Request) -> Response:
        if not enabled:
            return Response(f"{NOT_ENABLED}\n".encode(), status=HTTPStatus.FORBIDDEN)
        # Browsers send Origin with every POST: any web page could otherwise trigger it.
        if "origin" in request.headers:
            return Response(f"{browsers}\n".encode(), status=HTTPStatus.FORBIDDEN)
        return answer(request)

    return guarded
