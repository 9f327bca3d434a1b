"""The web server: one thread with an event loop for all connections, and worker threads for pages."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from monitor.errors import Problem, ServerError
from monitor.web.server.addresses import Address, Hosts, listen, parse_address
from monitor.web.server.handler import RequestHandler
from monitor.web.server.http_connection import ConnectionPhase, HttpConnection
from monitor.web.server.limits import Closed, UnsentResponses, WebCounters, WebCounts, WebLimits
from monitor.web.server.request import Pages
from monitor.web.server.web_config import WebSettings

log = logging.getLogger("cpcmon")

_ACCEPT_PAUSE_SECONDS = 0.1
_JOIN_SECONDS = 10.0


class WebServer:
    """Serves pages until it is stopped. Methods are called on the creating thread."""

    def __init__(
        self,
        address: str,
        pages: Pages,
        web_config: Path | None,
        limits: WebLimits | None = None,
        hosts: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Read the web configuration; raises UsageError for the address, ConfigError for the file."""
        self._address = parse_address(address)
        self._limits = WebLimits() if limits is None else limits
        self._settings = WebSettings(web_config)
        self._handler = RequestHandler(pages, self._settings, Hosts(self._address.host, hosts), self._limits)
        self._counters = WebCounters()
        self._unsent = UnsentResponses(self._limits.unsent_bytes, self._counters)
        # Oldest first.
        self._connections: dict[HttpConnection, asyncio.Task[None]] = {}
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    def start(self) -> None:
        """Listen and serve; raises ServerError when it cannot listen."""
        self._listener = listen(self._address)
        self._settings.log_remarks()
        self._handler.start()
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Stop listening, finish responses in progress, close all connections. Does nothing when it never started."""
        if self._loop is None or self._stopping is None:
            return
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:
            # Already stopped.
            return
        self._thread.join(_JOIN_SECONDS)
        self._handler.close()

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._listener is None:
            raise ServerError(Problem("web", "a started server", "one that was not started"))
        return self._address.port or int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        host = self._address.host or "localhost"
        return f"{'https' if self._settings.tls else 'http'}://{Address(host, self.port)}/"

    @property
    def web_config_ok(self) -> bool:
        """Whether the current files of the web configuration are in force; True without one."""
        return self._settings.ok

    def counts(self) -> WebCounts:
        """Return the counters; on any thread."""
        return self._counters.counts()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException:
            log.exception("web: server stopped unexpectedly")
            raise
        finally:
            self._started.set()

    async def _serve(self) -> None:
        assert self._listener is not None  # noqa: S101  start() bound it
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_log_briefly)
        self._stopping = asyncio.Event()
        self._started.set()
        self._loop.add_reader(self._listener, self._accept, self._loop, self._listener)
        await self._stopping.wait()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        await self._end()

    def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        """Accept one client. Not `sock_accept`, which loses a client when it is cancelled."""
        try:
            client, (address, *_) = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # The client disconnected.
            return
        except OSError:
            # Out of file descriptors: close a connection and pause.
            self._make_room(len(self._connections) - 1)
            loop.remove_reader(listener)
            loop.call_later(_ACCEPT_PAUSE_SECONDS, self._listen_again, loop, listener)
            return
        if self._make_room(self._limits.connections - 1):
            self._take(client, address)
        else:
            client.close()

    def _listen_again(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            loop.add_reader(listener, self._accept, loop, listener)

    def _take(self, client: socket.socket, address: str) -> None:
        client.setblocking(False)
        connection = HttpConnection(client, address, self._handler, self._counters, self._unsent, self._limits)
        task = asyncio.create_task(connection.serve(self._settings.current))
        self._connections[connection] = task
        self._counters.set_open(len(self._connections))
        task.add_done_callback(lambda _: self._forget(connection))

    def _forget(self, connection: HttpConnection) -> None:
        connection.abort()
        self._connections.pop(connection, None)
        self._counters.set_open(len(self._connections))

    def _make_room(self, most: int) -> bool:
        """Close connections until at most `most` are left; returns whether that was possible."""
        while len(self._connections) > max(most, 0):
            victim = self._oldest_to_close()
            self._counters.closed(Closed.CAP)
            if victim is None:
                return False
            self._connections.pop(victim).cancel()
            victim.abort()
        return True

    def _oldest_to_close(self) -> HttpConnection | None:
        """Return the oldest waiting connection, else the oldest that reads its response too slowly."""
        for connection in self._connections:
            if connection.phase is ConnectionPhase.WAITING:
                return connection
        latest = asyncio.get_running_loop().time() - self._limits.stalled_seconds
        for connection in self._connections:
            if connection.phase is ConnectionPhase.WRITING and connection.writing_since < latest:
                return connection
        return None

    async def _end(self) -> None:
        """Finish responses in progress, and close the other connections."""
        for connection, task in list(self._connections.items()):
            if connection.phase is ConnectionPhase.WAITING:
                task.cancel()
        tasks = list(self._connections.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._limits.stop_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        # One loop iteration, in which aborted connections are closed.
        await asyncio.sleep(0)


def _log_briefly(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Log an asyncio error without client data."""
    error = context.get("exception")
    log.error("web: connection failed: %s", type(error).__name__ if error else "internal error")
