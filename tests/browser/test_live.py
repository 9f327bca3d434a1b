"""What happens is shown without a reload, and what somebody was doing on the page goes on."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visiting
from tests.browser.site import HEALTHY, Standing, standing
from tests.browser.visiting import PAGES, PHONE
from tests.daemon.process import running
from tests.servers import real_server

_WHOLE = 'tr[data-model="density"][data-segment="all"]'


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A daemon on which no alert fires. Tests let more arrive; those that make it sick, and that stop it, come last."""
    real_server("chromium")
    with standing(tmp_path_factory.mktemp("well") / "site") as found:
        yield found


def mark(page: Page) -> None:
    """Leave something in the document that a reload would lose."""
    page.evaluate("window.marked = true")


def marked(page: Page) -> bool:
    """Tell whether it is still the same document."""
    return page.evaluate("window.marked === true") is True


def test_new_records_change_the_numbers_without_a_reload(well: Standing, visit: Visiting) -> None:
    page = visit(well.url).go("/")
    row = page.locator(_WHOLE)
    expect(row).to_contain_text(str(well.sent["density"]))
    mark(page)
    well.drop(HEALTHY, 57)
    expect(row).to_contain_text(str(well.sent["density"]))
    assert marked(page)


def test_focus_scroll_and_what_was_opened_survive_an_update(well: Standing, visit: Visiting) -> None:
    page = visit(well.url, size=PHONE).go(PAGES["model"])
    folded = page.locator("main details:not([open]) > summary").last
    words = folded.inner_text()
    folded.focus()
    page.keyboard.press("Enter")
    opened = _opened(page)
    assert words in opened
    page.evaluate("scrollTo(0, 300)")
    mark(page)
    well.drop(HEALTHY, 60)
    expect(page.locator("main")).to_contain_text(str(well.sent["density"]))
    assert marked(page)
    assert page.evaluate("scrollY") == 300
    assert _opened(page) == opened
    expect(page.locator("main details[open] > summary:focus")).to_have_text(words)


def _opened(page: Page) -> list[str]:
    found = page.eval_on_selector_all("main details[open] > summary", "all => all.map(one => one.innerText)")
    return list(found)


def test_a_link_that_has_the_focus_keeps_it_over_an_update(well: Standing, visit: Visiting) -> None:
    page = visit(well.url).go("/")
    link = page.locator('tr[data-model="density"][data-segment="site=South"] a').first
    link.focus()
    mark(page)
    well.drop(HEALTHY, 40)
    expect(page.locator(_WHOLE)).to_contain_text(str(well.sent["density"]))
    expect(page.locator('tr[data-model="density"][data-segment="site=South"] a:focus')).to_have_count(1)
    assert marked(page)


def test_a_hidden_window_asks_nothing(well: Standing, visit: Visiting) -> None:
    """A page that was left open over the night in a hundred windows costs the daemon nothing."""
    one = visit(well.url)
    page = one.go("/")
    every = 1000 * int(page.locator("body").get_attribute("data-every") or 0)
    assert every > 0
    page.evaluate(_HIDE, True)
    # What was asked before may be on its way.
    page.wait_for_timeout(every)
    asked = len(one.heard.asked)
    well.drop(HEALTHY, 30)
    page.wait_for_timeout(2 * every)
    assert len(one.heard.asked) == asked
    page.evaluate(_HIDE, False)
    expect(page.locator(_WHOLE)).to_contain_text(str(well.sent["density"]))


_HIDE = """hidden => {
  Object.defineProperty(document, "hidden", {configurable: true, get: () => hidden});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_an_alert_appears_in_the_title_and_the_list_and_is_read_out(well: Standing, visit: Visiting) -> None:
    page = visit(well.url).go("/")
    expect(page).not_to_have_title(re.compile("firing"))
    expect(page.locator("[aria-live=assertive]")).to_be_empty()
    mark(page)
    well.sicken()
    expect(page).to_have_title(re.compile("1 firing"))
    expect(page.locator("[aria-live=assertive]")).to_contain_text("accuracy_low")
    expect(page.locator("header")).to_contain_text("1 alert firing")
    expect(page.locator("main")).to_contain_text("accuracy_low")
    assert marked(page)


@pytest.mark.slow
def test_a_daemon_that_stops_and_comes_back(well: Standing, visit: Visiting) -> None:
    """The page says since when nobody answers, and that its numbers are old; then it is live again, without a reload."""
    one = visit(well.url)
    page, url = one.go("/"), well.url
    live, row = page.locator("#live"), page.locator(_WHOLE)
    before, looks = row.inner_text(), page.evaluate(_LOOKS)
    mark(page)
    assert well.process.stop() == 0
    expect(live).to_have_attribute("data-state", "lost")
    expect(live).to_contain_text(re.compile(r"answered since \d\d:\d\d:\d\d UTC"))
    expect(live).to_be_visible()
    expect(page.locator("main")).to_have_class(re.compile(r"\bold\b"))
    assert page.evaluate(_LOOKS) != looks
    assert row.inner_text() == before
    with running(well.folder / "config.yaml", "--web.listen-address", url.removeprefix("http://")):
        expect(live).to_have_attribute("data-state", "live")
        expect(page.locator("main")).not_to_have_class(re.compile(r"\bold\b"))
        assert page.evaluate(_LOOKS) == looks
        assert marked(page)
    # That nobody answered was meant.
    assert one.heard.complaints
    assert all("ERR_CONNECTION_REFUSED" in told or "503" in told for told in one.heard.complaints)
    one.heard.complaints.clear()


_LOOKS = """(() => {
  const { opacity, borderTopStyle, borderTopWidth, backgroundColor, filter } = getComputedStyle(document.getElementById("main"));
  return [opacity, borderTopStyle, borderTopWidth, backgroundColor, filter];
})()"""
"""How what is shown is drawn, apart from what it says."""
