"""A browser for each module, a daemon for each worker that nobody changes, and a new window for each test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.site import Standing, standing
from tests.browser.visiting import Visit, chromium, visiting
from tests.daemon.process import LIMIT
from tests.servers import real_server

Visiting = Callable[..., Visit]

expect.set_options(timeout=LIMIT * 500)


# Not for the session: while Playwright runs, no other test of the same worker could have a loop of asyncio.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A daemon with everything to be seen, an alert among it. Tests only look at it."""
    real_server("chromium")
    with standing(tmp_path_factory.mktemp("sick") / "site") as found:
        found.sicken()
        yield found


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visiting]:
    """Open windows; at the end none may have complained, nor asked anybody but its daemon."""
    with ExitStack() as stack:
        opened: list[Visit] = []

        def look(url: str, **options: Any) -> Visit:
            opened.append(stack.enter_context(visiting(browser, url, **options)))
            return opened[-1]

        yield look
        for one in opened:
            assert one.heard.complaints == []
            assert [url for url in one.heard.asked if not url.startswith(f"{one.url}/")] == []
