"""Receives the notifications of Alertmanager on loopback; the path is the name of the receiver."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIMIT_SECONDS = 90.0
"""Time limit of a notification on a busy machine."""


@dataclass(frozen=True, slots=True)
class Notification:
    """One alert of a notification."""

    receiver: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def short(self) -> tuple[str, str, str]:
        """The alert, its segment and its status."""
        return self.labels["alertname"], self.labels.get("segment", ""), self.status


class Receiver:
    """A server that records every notification, in order."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        self._news = threading.Condition()
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                take(self.path.strip("/"), json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  the library's own name
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _take(self, receiver: str, message: dict[str, Any]) -> None:
        found = [Notification(receiver, one["status"], one["labels"], one["annotations"]) for one in message["alerts"]]
        with self._news:
            self.notifications += found
            self._news.notify_all()

    def wait_for(self, alert: str, segment: str, status: str, since: int = 0) -> Notification:
        """Wait for a notification about an alert, a segment and a status."""
        wanted, until = (alert, segment, status), time.monotonic() + LIMIT_SECONDS
        with self._news:
            while not (found := [one for one in self.notifications[since:] if one.short == wanted]):
                left = until - time.monotonic()
                seen = [one.short for one in self.notifications[since:]]
                assert left > 0, f"expected {wanted} within {LIMIT_SECONDS:.0f} seconds, found {seen}"
                self._news.wait(left)
        return found[0]

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
