"""A browser per module, a read-only daemon per module, and a new window per test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.site import RunningSite, running_site
from tests.browser.visiting import Visit, chromium, visiting
from tests.daemon.process import LIMIT
from tests.servers import real_server

Visiting = Callable[..., Visit]

expect.set_options(timeout=LIMIT * 500)


# Not per session: while Playwright runs, no other test of the worker can run an asyncio loop.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    with chromium() as found:
        yield found


# Not per session: it would evaluate every second until the last test of the worker.
@pytest.fixture(scope="module")
def alerting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """A daemon with a firing alert, which tests do not change."""
    real_server("chromium")
    with running_site(tmp_path_factory.mktemp("alerting") / "site") as found:
        found.make_alert_fire()
        yield found


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visiting]:
    """Open windows; at the end, none may have errors or requests to other hosts."""
    with ExitStack() as stack:
        opened: list[Visit] = []

        def open_window(url: str, **options: Any) -> Visit:
            opened.append(stack.enter_context(visiting(browser, url, **options)))
            return opened[-1]

        yield open_window
        for one in opened:
            assert one.log.complaints == []
            assert [url for url in one.log.requests if not url.startswith(f"{one.url}/")] == []
