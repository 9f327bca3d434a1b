"""A real Chromium for the pages of one daemon, with a log of requests and errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Request, Response, ViewportSize, sync_playwright

from tests.servers import real_server

PAGES = {
    "overview": "/",
    "model": "/model?name=density",
    "labels": "/model?name=nodule",
    "waiting": "/model?name=quiet",
    "reference": "/reference?name=density",
    "rejects": "/rejects",
    "configuration": "/configuration",
}
"""Every kind of page, by a name that is valid in a file name."""
SEGMENT = "/model?name=density&segment=site%3DNorth"
DESKTOP, PHONE = (1280, 800), (360, 740)
_ABORTED = "net::ERR_ABORTED"


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the system's browser, which resolves no other host."""
    arguments = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    program = real_server("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


@dataclass
class BrowserLog:
    """The requests and errors of a browser."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def listen(self, context: BrowserContext) -> None:
        """Start recording."""
        context.on("request", self._request)
        context.on("response", self._response)
        context.on("requestfailed", self._failed)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.complaints.append(f"error in the page: {error.error}"))
        context.on("dialog", self._dialog)

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status} for {response.url}")

    def _failed(self, request: Request) -> None:
        # Leaving a page aborts its requests.
        if request.failure != _ABORTED:
            self.complaints.append(f"{request.failure} for {request.url}")

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.type} on the console: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        dialog.dismiss()


@dataclass
class Visit:
    """A browser window on a daemon."""

    url: str
    page: Page
    log: BrowserLog

    def go(self, path: str) -> Page:
        """Open a page of the daemon."""
        self.page.goto(self.url + path, wait_until="load")
        return self.page


@contextmanager
def visiting(browser: Browser, url: str, *, size: tuple[int, int] = DESKTOP, **options: Any) -> Iterator[Visit]:
    """Open a window in a new browser context."""
    shape = ViewportSize(width=size[0], height=size[1])
    context = browser.new_context(viewport=shape, locale="en-GB", reduced_motion="reduce", **options)
    context.set_default_timeout(30_000)
    log = BrowserLog()
    log.listen(context)
    try:
        yield Visit(url, context.new_page(), log)
    finally:
        context.close()
