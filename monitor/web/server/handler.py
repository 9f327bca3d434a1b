"""From a request to its answer: who may ask, which page, which form. Nothing a client sent is repeated or logged."""

import asyncio
import gzip
import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

from monitor.web.auth import LoginResult, Passwords
from monitor.web.server.addresses import Hosts, host_in
from monitor.web.server.limits import WebLimits
from monitor.web.server.request import Page, Pages, Request, Response
from monitor.web.server.web_settings import WebSettings
from monitor.web.server.workers import Workers
from monitor.web.web_config import WebConfig

log = logging.getLogger("cpcmon")

_METHODS = {"GET", "HEAD", "POST", "PUT"}
_GZIP_FROM = 1 << 10
_MOST_ASKED = 16
NOT_OUR_HOST = "this host name is not one of this server's: add it to web.hosts in cpcmon's configuration"
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Answering:
    """Answers requests, on the server's loop; pages run on a few threads beside it."""

    def __init__(self, pages: Pages, settings: WebSettings, hosts: Hosts, limits: WebLimits) -> None:
        self._pages = pages
        self._settings = settings
        self._hosts = hosts
        self._host_refused = False
        self._page_workers = Workers("web-page", limits.page_threads)
        self._password_workers = Workers("web-password", 1)
        self._passwords = Passwords(self._password_workers, limits.waiting_passwords)
        self._busy = {path: threading.Lock() for path, page in pages.items() if page.one_at_a_time}
        self._failing: dict[str, str] = {}

    def start(self) -> None:
        """Start the threads."""
        self._page_workers.start()
        self._password_workers.start()

    def close(self) -> None:
        """Let the threads end; waits for none."""
        self._page_workers.close()
        self._password_workers.close()

    async def answer(self, method: str, target: str, headers: Mapping[str, str], client: str) -> Response:
        """Return what is sent back to a client, whole but for what the connection itself decides."""
        config = self._settings.current().config
        response = self._for_another_host(target, headers) or await self._keeping_out(config, headers, client)
        if response is None:
            response = await self._page(Request(method, path_of(target), headers, query_of(target)))
        return dressed(response, config.headers)

    def _for_another_host(self, target: str, headers: Mapping[str, str]) -> Response | None:
        """Return what is told to a client that wants another host; None where this server is the right one."""
        # RFC 9112, 3.2.2: where the target names a host, that one counts.
        authority = authority_of(target) or headers.get("host")
        if authority is None:
            # HTTP/1.0, which no browser speaks; later versions without it were refused before.
            return None
        host = host_in(authority)
        if host is None:
            return plain(HTTPStatus.BAD_REQUEST, "Host: expected a host name or an IP address, found neither")
        if self._hosts.allow(host):
            return None
        if not self._host_refused:
            self._host_refused = True
            log.warning(
                "web: a request for a host name that web.hosts does not list was refused; later ones are not logged"
            )
        return plain(HTTPStatus.MISDIRECTED_REQUEST, NOT_OUR_HOST)

    async def _keeping_out(self, config: WebConfig, headers: Mapping[str, str], client: str) -> Response | None:
        """Return what is told to a client that is not let in; None to one that is."""
        if not config.users:
            return None
        verdict = await self._passwords.check(headers.get("authorization", ""), config.users, client)
        if verdict is LoginResult.RIGHT:
            return None
        if verdict is LoginResult.BUSY:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many passwords wait to be checked", {"Retry-After": "1"})
        asked = {"WWW-Authenticate": 'Basic realm="cpcmon", charset="UTF-8"'}
        return plain(HTTPStatus.UNAUTHORIZED, "a name and a password are needed", asked)

    async def _page(self, request: Request) -> Response:
        page = self._pages.get(request.path)
        if request.method not in _METHODS or (page is not None and request.method not in page.methods):
            allowed = {"Allow": ", ".join(("GET", "HEAD") if page is None else page.methods)}
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "not this way", allowed)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            async with asyncio.timeout(page.seconds):
                response = await self._page_workers.run(lambda: self._asked(page, request))
        except TimeoutError:
            self._failed(request.path, f"no end within {page.seconds:g} seconds", None)
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the page took too long")
        except Exception as error:  # noqa: BLE001  one page's mistake must not end the server
            self._failed(request.path, type(error).__name__, error)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; the log says why")
        self._failing.pop(request.path, None)
        return response

    def _asked(self, page: Page, request: Request) -> Response:
        """Ask a page; runs on a thread."""
        lock = self._busy.get(request.path)
        if lock is None:
            return packed(page.answer(request), request.headers)
        if not lock.acquire(blocking=False):
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "another one is still under way", {"Retry-After": "1"})
        try:
            return packed(page.answer(request), request.headers)
        finally:
            lock.release()

    def _failed(self, path: str, found: str, error: Exception | None) -> None:
        """Log that a page failed: once, until it answers again or fails otherwise. The path is one of our own."""
        if self._failing.get(path) != found:
            self._failing[path] = found
            log.error("web: expected an answer from the page %s, found %s", path, found, exc_info=error)


def plain(status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer of one sentence."""
    return Response(f"{sentence}\n".encode(), status=status, headers=headers or {})


def authority_of(target: str) -> str | None:
    """Return the host, and the port if any, of a target in absolute form; None for any other."""
    if not target.lower().startswith(("http://", "https://")):
        return None
    return re.split("[/?#]", target.split("://", 1)[1], maxsplit=1)[0]


def path_of(target: str) -> str:
    """Return the path of a request's target, decoded, without the query; empty for one that has none."""
    if authority_of(target) is not None:
        target = "/" + target.split("://", 1)[1].partition("/")[2]
    try:
        return unquote(target.partition("?")[0], errors="strict")
    except UnicodeDecodeError:
        return ""


def query_of(target: str) -> dict[str, str]:
    """Return what stands after the question mark; empty when it cannot be understood, or asks too much."""
    try:
        pairs = parse_qsl(target.partition("?")[2].partition("#")[0], errors="strict", max_num_fields=_MOST_ASKED)
    except ValueError:
        return {}
    return dict(reversed(pairs))


def packed(response: Response, headers: Mapping[str, str]) -> Response:
    """Return the answer as gzip when the client takes that and it is worth it."""
    if len(response.body) <= _GZIP_FROM:
        return response
    varied = {**response.headers, "Vary": "Accept-Encoding"}
    if not takes_gzip(headers.get("accept-encoding", "")):
        return replace(response, headers=varied)
    body = gzip.compress(response.body, compresslevel=1, mtime=0)
    return replace(response, body=body, headers={**varied, "Content-Encoding": "gzip"})


def takes_gzip(accepted: str) -> bool:
    """Tell whether an Accept-Encoding header names gzip, and not with a quality of 0."""
    for choice in accepted.lower().split(","):
        name, *parameters = (part.strip() for part in choice.split(";"))
        if name in {"gzip", "x-gzip"}:
            return not any(one.startswith("q=0") and not one.strip("q=0.") for one in parameters)
    return False


def dressed(response: Response, configured: Mapping[str, str]) -> Response:
    """Return the answer with the headers that every answer has; the operator's win over ours."""
    return replace(response, headers={**_ALWAYS, **response.headers, **configured})
