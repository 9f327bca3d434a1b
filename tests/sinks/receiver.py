"""A local HTTP server with configurable responses, and example reports."""

import json
import queue
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType, Severity
from monitor.core.estimate import Estimate, Interval, Result, WindowState
from monitor.core.report import Report, SegmentReport
from monitor.core.segments import ALL, Segment

AT = 1794834000.0
"""2026-11-16T13:00:00Z."""
LONG_SECONDS = 30.0
"""Longer than anything here takes on a busy machine."""


@dataclass(frozen=True)
class Got:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as JSON."""
        decoded = json.loads(self.body)
        assert isinstance(decoded, dict)
        return decoded


Behaviour = Callable[[BaseHTTPRequestHandler], None]


def status(code: int, **headers: str) -> Behaviour:
    """Return a behaviour that answers with a status and no body."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return behave


class Receiver:
    """A server that records requests; it uses each behaviour once, and the last one from then on."""

    def __init__(self, *behaviours: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.received: queue.Queue[Got] = queue.Queue()
        self.stopped = threading.Event()
        self._behaviours = list(behaviours or [status(204)])
        self._lock = threading.Lock()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.close_connection = True
                self.raw_requestline = self.rfile.readline(65537)
                if self.raw_requestline and self.parse_request():
                    receiver.handle(self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            stop = receiver.stopped

            def handle_error(self, *_: object) -> None:
                """Ignore clients that hang up."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        """Record a request, and answer it."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.received.put(Got(handler.command, handler.path, headers, body))
        with self._lock:
            behave = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        behave(handler)

    def url(self, path: str = "/hook", userinfo: str = "") -> str:
        """Return its URL."""
        return f"http://{userinfo}127.0.0.1:{self.port}{path}"

    def get(self) -> Got:
        """Wait for the next request."""
        return self.received.get(timeout=LONG_SECONDS)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and release waiting handlers."""
        self.stopped.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def alert(name: str = "accuracy_low", phase: AlertPhase = AlertPhase.FIRING, value: float | None = 0.71) -> AlertStatus:
    """Return the status of an alert."""
    return AlertStatus(
        alert=name,
        kind=AlertType.ACCURACY,
        severity=Severity.CRITICAL,
        phase=phase,
        since=AT - 60.0,
        held=False,
        estimator="adaptive",
        threshold=0.8,
        value=value,
        baseline="own",
    )


def segment(*alerts: AlertStatus, of: Segment = ALL, state: WindowState = WindowState.OK) -> SegmentReport:
    """Return the report of a window."""
    results: dict[str, Result] = {"adaptive": Estimate(0.7, 5000)} if state is WindowState.OK else {}
    field = (Interval(0.6, 0.8), Interval(0.5, 0.85)) if results else ()
    return SegmentReport(segment=of, records=5000, state=state, results=results, alerts=alerts, field=field)


def report(*segments: SegmentReport, model: str = "density") -> Report:
    """Return a report of these windows."""
    return Report(model=model, at=AT, seconds=0.01, reference=None, segments=segments)
