"""Without JavaScript pages are complete and reload themselves."""

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Visiting
from tests.browser.site import RunningSite
from tests.browser.visiting import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_complete_without_a_script(alerting: RunningSite, visit: Visiting, name: str) -> None:
    plain = visit(alerting.url, java_script_enabled=False).go(PAGES[name])
    expect(plain.locator("main h1")).to_be_visible()
    # Playwright's text functions skip noscript.
    assert "Reloads every 30 seconds" in plain.locator("#live").evaluate("one => one.innerText")
    rich = visit(alerting.url).go(PAGES[name])
    for kind in ("h2", "table", "svg", "details"):
        assert plain.locator(f"main {kind}").count() == rich.locator(f"main {kind}").count(), kind


def test_a_page_reloads_itself_without_a_script(alerting: RunningSite, visit: Visiting) -> None:
    """With the half minute shortened to a second."""
    one = visit(alerting.url, java_script_enabled=False)
    served = []

    def sooner(route: Route) -> None:
        answer = route.fetch()
        text = answer.text()
        assert text.count('http-equiv="refresh" content="30"') == 1
        served.append(route.request.url)
        route.fulfill(response=answer, body=text.replace('content="30"', 'content="1"'))

    one.page.route(f"{alerting.url}/", sooner)
    page = one.go("/")
    with page.expect_event("domcontentloaded"):
        pass
    assert len(served) >= 2


@pytest.mark.slow
def test_with_a_script_the_page_does_not_reload_itself(alerting: RunningSite, visit: Visiting) -> None:
    page = visit(alerting.url).go("/")
    expect(page.locator("meta[http-equiv=refresh]")).to_have_count(0)
