"""The pages that every cpcmon has, made from plain functions that the daemon passes in."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from monitor.web import api_configuration, api_history, api_realised, api_reference, api_rejects
from monitor.web.assets import asset_pages
from monitor.web.configuration_page import configuration_page
from monitor.web.frame import not_found
from monitor.web.kept import Framed, Kept
from monitor.web.messages import JSON, Page, Pages, Request, Response
from monitor.web.model_page import model_page
from monitor.web.overview_page import overview_page
from monitor.web.reference_page import reference_page
from monitor.web.rejects_page import rejects_page
from monitor.web.site import Site

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
        "/api/v1/configuration": _document_page(site, api_configuration.document),
        "/api/v1/reference": _document_page(site, api_reference.document),
        "/api/v1/realised": _document_page(site, api_realised.document),
        "/api/v1/history": _document_page(site, api_history.document),
        "/api/v1/rejects": _document_page(site, api_rejects.document),
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
