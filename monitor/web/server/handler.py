"""Handles a request: host check, authentication, page, compression. No client input is echoed or logged."""

import asyncio
import logging
import queue
import re
import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

from monitor.web.auth import LoginResult, Passwords
from monitor.web.server.addresses import Hosts, host_in
from monitor.web.server.limits import WebLimits
from monitor.web.server.request import Packed, Page, Pages, Request, Response
from monitor.web.server.web_config import WebConfig, WebSettings

log = logging.getLogger("cpcmon")

T = TypeVar("T")

_METHODS = {"GET", "HEAD", "POST", "PUT"}
_GZIP_FROM = 1 << 10
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""Deflated quickly, without a name or a time."""
_QUICK = 1
_MOST_PARAMETERS = 16
HOST_NOT_ALLOWED = "host name not allowed: add it to web.hosts in cpcmon's configuration"
_ALWAYS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class _Job:
    """Work, and the future that waits for its result."""

    work: Callable[[], Any]
    future: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Workers:
    """Daemon threads with one queue.

    Not `ThreadPoolExecutor`, which joins its threads at exit: a page that hangs would keep cpcmon from stopping.
    """

    def __init__(self, name: str, count: int) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads after the queued work, without waiting."""
        for _ in self._threads:
            self._jobs.put(None)

    async def run(self, work: Callable[[], T]) -> T:
        """Run work on a thread; returns its result or raises its exception. Cancelling drops queued work."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._jobs.put(_Job(work, future, loop))
        return await future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.future.cancelled():
                continue
            try:
                result, error = job.work(), None
            except BaseException as raised:  # noqa: BLE001  passed to the caller
                result, error = None, raised
            try:
                job.loop.call_soon_threadsafe(_settle, job.future, result, error)
            except RuntimeError:
                # The event loop has stopped.
                return


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))


class RequestHandler:
    """Handles requests on the server's event loop; pages run on worker threads."""

    def __init__(self, pages: Pages, settings: WebSettings, hosts: Hosts, limits: WebLimits) -> None:
        self._pages = pages
        self._settings = settings
        self._hosts = hosts
        self._host_refused = False
        self._page_workers = Workers("web-page", limits.page_threads)
        self._password_workers = Workers("web-password", 1)
        self._passwords = Passwords(self._password_workers.run, limits.waiting_passwords)
        self._busy = {path: threading.Lock() for path, page in pages.items() if page.one_at_a_time}
        self._failing: dict[str, str] = {}

    def start(self) -> None:
        """Start the threads."""
        self._page_workers.start()
        self._password_workers.start()

    def close(self) -> None:
        """Stop the threads without waiting."""
        self._page_workers.close()
        self._password_workers.close()

    async def answer(
        self, method: str, target: str, headers: Mapping[str, str], client: str, body: bytes = b""
    ) -> Response:
        """Return the response to a request."""
        config = self._settings.current().config
        response = self._check_host(target, headers) or await self._check_login(config, headers, client)
        if response is None:
            response = await self._page(Request(method, path_of(target), headers, query_of(target), body))
        return with_headers(response, config.headers)

    def _check_host(self, target: str, headers: Mapping[str, str]) -> Response | None:
        """Return the refusal of a host name that is not allowed; None when it is."""
        # RFC 9112, 3.2.2: a host in the request target overrides the header.
        authority = authority_of(target) or headers.get("host")
        if authority is None:
            # HTTP/1.0, which no browser speaks; h11 rejects later versions without Host.
            return None
        host = host_in(authority)
        if host is None:
            return plain(HTTPStatus.BAD_REQUEST, "Host: expected a host name or an IP address, found neither")
        if self._hosts.allow(host):
            return None
        if not self._host_refused:
            self._host_refused = True
            log.warning(
                "web: refused a request for a host name that web.hosts does not list; further ones are not logged"
            )
        return plain(HTTPStatus.MISDIRECTED_REQUEST, HOST_NOT_ALLOWED)

    async def _check_login(self, config: WebConfig, headers: Mapping[str, str], client: str) -> Response | None:
        """Return the refusal of a client without valid credentials; None for others."""
        if not config.users:
            return None
        result = await self._passwords.check(headers.get("authorization", ""), config.users, client)
        if result is LoginResult.RIGHT:
            return None
        if result is LoginResult.BUSY:
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many logins in progress", {"Retry-After": "1"})
        challenge = {"WWW-Authenticate": 'Basic realm="cpcmon", charset="UTF-8"'}
        return plain(HTTPStatus.UNAUTHORIZED, "authentication required", challenge)

    async def _page(self, request: Request) -> Response:
        page = self._pages.get(request.path)
        if request.method not in _METHODS or (page is not None and request.method not in page.methods):
            allowed = {"Allow": ", ".join(("GET", "HEAD") if page is None else page.methods)}
            return plain(HTTPStatus.METHOD_NOT_ALLOWED, "method not allowed", allowed)
        if page is None:
            return plain(HTTPStatus.NOT_FOUND, "not found")
        try:
            async with asyncio.timeout(page.seconds):
                response = await self._page_workers.run(lambda: self._answer(page, request))
        except TimeoutError:
            self._failed(request.path, f"timeout after {page.seconds:g} seconds", None)
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "the page timed out")
        except Exception as error:  # noqa: BLE001  a failing page must not stop the server
            self._failed(request.path, type(error).__name__, error)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed; see the log")
        self._failing.pop(request.path, None)
        return response

    def _answer(self, page: Page, request: Request) -> Response:
        """Call a page; runs on a worker thread."""
        lock = self._busy.get(request.path)
        if lock is None:
            return compressed(page.answer(request), request.headers)
        if not lock.acquire(blocking=False):
            return plain(HTTPStatus.SERVICE_UNAVAILABLE, "another request is in progress", {"Retry-After": "1"})
        try:
            return compressed(page.answer(request), request.headers)
        finally:
            lock.release()

    def _failed(self, path: str, found: str, error: Exception | None) -> None:
        """Log a failed page once, until it succeeds or fails differently. The path is a known one, so it may be logged."""
        if self._failing.get(path) != found:
            self._failing[path] = found
            log.error("web: page %s failed: %s", path, found, exc_info=error)


def plain(status: HTTPStatus, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a plain text response."""
    return Response(f"{sentence}\n".encode(), status=status, headers=headers or {})


def authority_of(target: str) -> str | None:
    """Return the host and port of a request target in absolute form; None for another form."""
    if not target.lower().startswith(("http://", "https://")):
        return None
    return re.split("[/?#]", target.split("://", 1)[1], maxsplit=1)[0]


def path_of(target: str) -> str:
    """Return the decoded path of a request target; empty when it cannot be decoded."""
    if authority_of(target) is not None:
        target = "/" + target.split("://", 1)[1].partition("/")[2]
    try:
        return unquote(target.partition("?")[0], errors="strict")
    except UnicodeDecodeError:
        return ""


def query_of(target: str) -> dict[str, str]:
    """Return the query of a request target; empty when it is malformed or has too many parameters."""
    try:
        pairs = parse_qsl(target.partition("?")[2].partition("#")[0], errors="strict", max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        return {}
    return dict(reversed(pairs))


def compressed(response: Response, headers: Mapping[str, str]) -> Response:
    """Return the response in one piece, compressed when it is large and the client accepts gzip."""
    start = response.start or Packed()
    size = start.size + len(response.body)
    if size <= _GZIP_FROM and response.start is None:
        return response
    by = (response.headers.get("Vary"), "Accept-Encoding")
    varied = {**response.headers, "Vary": ", ".join(one for one in by if one is not None)}
    if not accepts_gzip(headers.get("accept-encoding", "")):
        plain = zlib.decompressobj(-zlib.MAX_WBITS).decompress(b"".join(start.pieces))
        return replace(response, start=None, body=plain + response.body, headers=varied)
    packer = zlib.compressobj(_QUICK, wbits=-zlib.MAX_WBITS)
    rest = packer.compress(response.body) + packer.flush()
    end = struct.pack("<LL", zlib.crc32(response.body, start.crc), size % (1 << 32))
    body = b"".join((_GZIP_HEADER, *start.pieces, rest, end))
    return replace(response, start=None, body=body, headers={**varied, "Content-Encoding": "gzip"})


def accepts_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip."""
    for choice in accepted.lower().split(","):
        name, *parameters = (part.strip() for part in choice.split(";"))
        if name in {"gzip", "x-gzip"}:
            return not any(one.startswith("q=0") and not one.strip("q=0.") for one in parameters)
    return False


def with_headers(response: Response, configured: Mapping[str, str]) -> Response:
    """Return the response with the standard headers; configured ones take precedence."""
    return replace(response, headers={**_ALWAYS, **response.headers, **configured})
