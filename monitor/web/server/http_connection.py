"""One client connection: handshake, requests, close. Every wait has a timeout; h11 parses HTTP."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from http import HTTPStatus

import h11

from monitor.web.server.addresses import client_of
from monitor.web.server.handler import RequestHandler, plain, with_headers
from monitor.web.server.limits import Closed, UnsentResponses, WebCounters, WebLimits
from monitor.web.server.request import Response
from monitor.web.server.web_config import ActiveWebConfig, is_allowed

_READ = 16 << 10
_WRITE = 256 << 10
_NO_HEADERS: Mapping[str, str] = {}


class ConnectionPhase(Enum):
    """What a connection is doing."""

    WAITING = auto()
    """For the client: a handshake or a request."""
    ANSWERING = auto()
    WRITING = auto()


class Disconnect(Exception):
    """Ends the connection."""

    def __init__(self, why: Closed | None = None) -> None:
        super().__init__(why)
        self.why = why


class HttpConnection:
    """A client connection, on the server's event loop. Cancelling `serve` closes it at once."""

    def __init__(
        self,
        client: socket.socket,
        address: str,
        handler: RequestHandler,
        counters: WebCounters,
        unsent: UnsentResponses,
        limits: WebLimits,
    ) -> None:
        self._socket = client
        self._client = client_of(address)
        self._handler = handler
        self._counters = counters
        self._unsent = unsent
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + limits.request_seconds
        self._reader = asyncio.StreamReader(limit=_READ)
        self._writer: asyncio.StreamWriter | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._last_cr = b""
        """A CR that h11 consumed before its LF arrived in a later packet."""
        self.phase = ConnectionPhase.WAITING
        self.writing_since = self._loop.time()
        """When sending the last response began."""

    async def serve(self, in_force: Callable[[], ActiveWebConfig]) -> None:
        """Handle requests until either side closes the connection."""
        try:
            await self._open(in_force())
            while await self._serve_one():  # noqa: ASYNC110  no polling: it yields between pipelined requests
                await asyncio.sleep(0)
            await self._close()
        except Disconnect as end:
            if end.why is not None:
                self._counters.closed(end.why)
        except OSError:
            # The client disconnected.
            pass

    def abort(self) -> None:
        """Abort the connection. Safe at any time, also before `serve` starts and after it ends."""
        if self._writer is None:
            self._socket.close()
        else:
            self._writer.transport.abort()

    async def _open(self, in_force: ActiveWebConfig) -> None:
        protocol = asyncio.StreamReaderProtocol(self._reader)
        tls, context = in_force.config.tls, in_force.context
        handshake = None if context is None else self._limits.request_seconds
        shutdown = None if context is None else self._limits.linger_seconds
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol,
                self._socket,
                ssl=context,
                ssl_handshake_timeout=handshake,
                ssl_shutdown_timeout=shutdown,
            )
        except OSError as error:
            raise Disconnect(None if context is None else Closed.HANDSHAKE_FAILED) from error
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, self._loop)
        # With a low-water mark of 0, drain() waits until the last byte is sent. Under TLS, asyncio pauses at the high-water
        # mark itself, so 0 would pause with an empty buffer until the client sends more.
        transport.set_write_buffer_limits(high=0 if context is None else 1, low=0)
        encrypted = transport.get_extra_info("ssl_object")
        if tls is not None and isinstance(encrypted, ssl.SSLObject) and not is_allowed(tls, encrypted):
            raise Disconnect(Closed.HANDSHAKE_FAILED)

    async def _serve_one(self) -> bool:
        """Handle one request; returns whether another may follow."""
        try:
            head = await self._head()
            if head is None:
                return False
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
            body = await self._body(headers)
        except h11.RemoteProtocolError as error:
            await self._refuse(_refused(error))
            return False
        if isinstance(body, Response):
            await self._refuse(body)
            return False
        self.phase = ConnectionPhase.ANSWERING
        method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
        response = await self._handler.answer(method, target, headers, self._client, body)
        await self._send(response, bodyless=method == "HEAD")
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self.phase = ConnectionPhase.WAITING
        self._http.start_next_cycle()
        return True

    async def _head(self) -> h11.Request | None:
        """Return the next request's head; None when the client closed the connection."""
        if self._deadline == 0.0 and not self._http.trailing_data[0]:
            await self._first_byte()
        if self._deadline == 0.0:
            self._deadline = self._loop.time() + self._limits.request_seconds
        event = await self._event()
        if isinstance(event, h11.Request):
            return event
        return None

    async def _first_byte(self) -> None:
        """Wait for the next request."""
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                self._http.receive_data(await self._reader.read(_READ))
        except TimeoutError as error:
            raise Disconnect(Closed.IDLE) from error

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event, within the deadline of the request."""
        try:
            async with asyncio.timeout_at(self._deadline):
                while (event := self._next_event()) is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_READ))
        except TimeoutError as error:
            raise Disconnect(Closed.HEADER_TIMEOUT) from error
        return event

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return h11's next event; raises RemoteProtocolError for a bare LF, which h11 accepts as a line end.

        All bytes are framing except those of a Data event, which are the body.
        """
        before = self._http.trailing_data[0]
        event = self._http.next_event()
        consumed = before[: len(before) - len(self._http.trailing_data[0])]
        if not isinstance(event, h11.Data):
            framing = self._last_cr + (before if event is h11.NEED_DATA else consumed)
            if framing.count(b"\n") != framing.count(b"\r\n"):
                raise h11.RemoteProtocolError("bare LF")
        if consumed:
            self._last_cr = b"\r" if consumed.endswith(b"\r") else b""
        return event

    async def _body(self, headers: Mapping[str, str]) -> bytes | Response:
        """Read and return the body; returns a refusal when it is too long or its framing is ambiguous."""
        if "transfer-encoding" in headers and "content-length" in headers:
            # RFC 9112, 6.1: a proxy may have framed this request differently (request smuggling).
            return plain(HTTPStatus.BAD_REQUEST, "expected Content-Length or Transfer-Encoding, found both")
        too_long = plain(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request body too long")
        length = headers.get("content-length", "0")
        if len(length) > 18 or int(length) > self._limits.body_bytes:
            return too_long
        if self._http.they_are_waiting_for_100_continue:
            await self._write([self._http.send(h11.InformationalResponse(status_code=100, headers=[]))])
            # Waiting for the client again.
            self.phase = ConnectionPhase.WAITING
        body = bytearray()
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data) or len(body) + len(event.data) > self._limits.body_bytes:
                return too_long
            body += event.data
        return bytes(body)

    async def _refuse(self, response: Response) -> None:
        """Respond to a request that was not read to its end, and close."""
        if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            await self._send(with_headers(response, _NO_HEADERS), close=True)
        self.phase = ConnectionPhase.WAITING
        # Unread data would reset the connection before the client reads the response.
        left = self._limits.linger_bytes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger_seconds):
                while left > 0 and (data := await self._reader.read(_READ)):
                    left -= len(data)

    async def _send(self, response: Response, *, close: bool = False, bodyless: bool = False) -> None:
        headers = {**response.headers, "Content-Type": response.content_type, "Content-Length": str(len(response.body))}
        if close:
            headers["Connection"] = "close"
        start = h11.Response(
            status_code=response.status,
            reason=response.status.phrase.encode(),
            headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        )
        body = [] if bodyless else [h11.Data(response.body)]
        parts = [self._http.send(event) for event in (start, *body, h11.EndOfMessage())]
        self._counters.answered(response.status)
        self._deadline = 0.0
        self._unsent.add(self, len(response.body), self.abort)
        try:
            await self._write(parts)
        finally:
            self._unsent.remove(self)

    async def _write(self, parts: Sequence[bytes | None]) -> None:
        """Write what h11 produced. Only small parts are joined: pages may be large, and clients many and slow."""
        if self._writer is None:
            return
        self.phase, self.writing_since = ConnectionPhase.WRITING, self._loop.time()
        views = [memoryview(part) for part in parts if part]
        if sum(map(len, views)) <= _WRITE:
            views = [memoryview(b"".join(views))]
        try:
            async with asyncio.timeout(self._limits.writing(sum(map(len, views)))):
                # Under TLS, asyncio buffers a whole write without back-pressure, so write in chunks.
                for view in views:
                    for start in range(0, len(view), _WRITE):
                        self._writer.write(bytes(view[start : start + _WRITE]))
                        await self._writer.drain()
        except TimeoutError as error:
            raise Disconnect(Closed.WRITE_TIMEOUT) from error

    async def _close(self) -> None:
        """Close gracefully, within a timeout."""
        if self._writer is None:
            return
        self.phase = ConnectionPhase.WAITING
        self._writer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.linger_seconds):
                await self._writer.wait_closed()


def _refused(error: h11.RemoteProtocolError) -> Response:
    """Return the response to a malformed request."""
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too long")
    if error.error_status_hint == HTTPStatus.NOT_IMPLEMENTED:
        return plain(HTTPStatus.NOT_IMPLEMENTED, "transfer encoding not supported")
    return plain(HTTPStatus.BAD_REQUEST, "malformed HTTP request")
