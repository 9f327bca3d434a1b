"""Pages update without a reload and keep the state of the user."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visiting
from tests.browser.site import HEALTHY, RunningSite, running_site
from tests.browser.visiting import PAGES, PHONE
from tests.daemon.process import running
from tests.servers import real_server

_WHOLE = 'tr[data-model="density"][data-segment="all"]'


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    """A daemon without a firing alert. Tests that make it fire or stop the daemon come last."""
    real_server("chromium")
    with running_site(tmp_path_factory.mktemp("quiet") / "site") as found:
        yield found


def mark(page: Page) -> None:
    """Set a variable that a reload would lose."""
    page.evaluate("window.marked = true")


def marked(page: Page) -> bool:
    """Return whether it is still the same document."""
    return page.evaluate("window.marked === true") is True


def test_new_records_change_the_numbers_without_a_reload(quiet: RunningSite, visit: Visiting) -> None:
    page = visit(quiet.url).go("/")
    row = page.locator(_WHOLE)
    expect(row).to_contain_text(str(quiet.sent["density"]))
    mark(page)
    quiet.drop(HEALTHY, 57)
    expect(row).to_contain_text(str(quiet.sent["density"]))
    assert marked(page)


def test_focus_scroll_and_open_details_survive_an_update(quiet: RunningSite, visit: Visiting) -> None:
    page = visit(quiet.url, size=PHONE).go(PAGES["model"])
    folded = page.locator("main details:not([open]) > summary").last
    words = folded.inner_text()
    folded.focus()
    page.keyboard.press("Enter")
    opened = _opened(page)
    assert words in opened
    page.evaluate("scrollTo(0, 300)")
    mark(page)
    quiet.drop(HEALTHY, 60)
    expect(page.locator("main")).to_contain_text(str(quiet.sent["density"]))
    assert marked(page)
    assert page.evaluate("scrollY") == 300
    assert _opened(page) == opened
    expect(page.locator("main details[open] > summary:focus")).to_have_text(words)


def _opened(page: Page) -> list[str]:
    found = page.eval_on_selector_all("main details[open] > summary", "all => all.map(one => one.innerText)")
    return list(found)


def test_a_focused_link_survives_an_update(quiet: RunningSite, visit: Visiting) -> None:
    page = visit(quiet.url).go("/")
    link = page.locator('tr[data-model="density"][data-segment="site=South"] a').first
    link.focus()
    mark(page)
    quiet.drop(HEALTHY, 40)
    expect(page.locator(_WHOLE)).to_contain_text(str(quiet.sent["density"]))
    expect(page.locator('tr[data-model="density"][data-segment="site=South"] a:focus')).to_have_count(1)
    assert marked(page)


def test_a_hidden_window_sends_no_requests(quiet: RunningSite, visit: Visiting) -> None:
    one = visit(quiet.url)
    page = one.go("/")
    every = 1000 * int(page.locator("body").get_attribute("data-every") or 0)
    assert every > 0
    page.evaluate(_HIDE, True)
    # A request may be in progress.
    page.wait_for_timeout(every)
    before = len(one.log.requests)
    quiet.drop(HEALTHY, 30)
    page.wait_for_timeout(2 * every)
    assert len(one.log.requests) == before
    page.evaluate(_HIDE, False)
    expect(page.locator(_WHOLE)).to_contain_text(str(quiet.sent["density"]))


_HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_an_alert_appears_in_the_title_and_the_list_and_is_announced(quiet: RunningSite, visit: Visiting) -> None:
    page = visit(quiet.url).go("/")
    expect(page).not_to_have_title(re.compile("firing"))
    expect(page.locator("[aria-live=assertive]")).to_be_empty()
    mark(page)
    quiet.make_alert_fire()
    expect(page).to_have_title(re.compile("1 firing"))
    expect(page.locator("[aria-live=assertive]")).to_contain_text("accuracy_low")
    expect(page.locator("header")).to_contain_text("1 alert firing")
    expect(page.locator("main")).to_contain_text("accuracy_low")
    assert marked(page)


@pytest.mark.slow
def test_a_page_is_outdated_while_the_daemon_is_down_and_live_afterwards(quiet: RunningSite, visit: Visiting) -> None:
    """Without a reload."""
    one = visit(quiet.url)
    page, url = one.go("/"), quiet.url
    live, row = page.locator("#live"), page.locator(_WHOLE)
    before, style = row.inner_text(), page.evaluate(_STYLE)
    mark(page)
    assert quiet.process.stop() == 0
    expect(live).to_have_attribute("data-state", "lost")
    expect(live).to_contain_text(re.compile(r"answered since \d\d:\d\d:\d\d UTC"))
    expect(live).to_be_visible()
    expect(page.locator("main")).to_have_class(re.compile(r"\bold\b"))
    assert page.evaluate(_STYLE) != style
    assert row.inner_text() == before
    with running(quiet.folder / "config.yaml", "--web.listen-address", url.removeprefix("http://")):
        expect(live).to_have_attribute("data-state", "live")
        expect(page.locator("main")).not_to_have_class(re.compile(r"\bold\b"))
        assert page.evaluate(_STYLE) == style
        assert marked(page)
    # Failed requests are expected here.
    assert one.log.complaints
    assert all("ERR_CONNECTION_REFUSED" in error or "503" in error for error in one.log.complaints)
    one.log.complaints.clear()


_STYLE = """(() => {
  const { opacity, borderTopStyle, borderTopWidth, backgroundColor, filter } = getComputedStyle(document.getElementById("main"));
  return [opacity, borderTopStyle, borderTopWidth, backgroundColor, filter];
})()"""
"""The style of the main element."""
