"""Accessibility: both themes, phones, keyboard, screen readers."""

import re
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.axe import complaints
from tests.browser.conftest import Visiting
from tests.browser.site import RunningSite
from tests.browser.visiting import DESKTOP, PAGES, PHONE, visiting

Scheme = Literal["light", "dark"]
_STOPS = "a[href], button, summary, input, select, textarea, [tabindex='0']"
_STILL = "**/static/cpcmon.js*"


def still(page: Page) -> Page:
    """Remove the script, so that the page does not change."""
    page.route(_STILL, lambda route: route.fulfill(body="", content_type="text/javascript"))
    return page


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "size"), [("light", PHONE), ("dark", DESKTOP)], ids=["light-phone", "dark-desktop"])
def test_axe_finds_no_violation(alerting: RunningSite, visit: Visiting, scheme: Scheme, size: tuple[int, int]) -> None:
    one = visit(alerting.url, color_scheme=scheme, size=size)
    still(one.page)
    found = []
    for name, path in PAGES.items():
        page = one.go(path)
        # Check folded content too.
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        found += [f"{name}: {violation}" for violation in complaints(page)]
    assert not found, "\n".join(found)


def test_axe_finds_planted_violations(browser: Browser, alerting: RunningSite) -> None:
    with visiting(browser, alerting.url, bypass_csp=True) as one:
        page = still(one.page)
        one.go("/")
        page.evaluate("document.querySelector('h1').style.color = getComputedStyle(document.body).backgroundColor")
        page.evaluate("document.querySelector('main').append(new Image())")
        found = "\n".join(complaints(page))
    assert "color-contrast" in found
    assert "image-alt" in found


def test_light_and_dark_are_two_themes(alerting: RunningSite, visit: Visiting) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = visit(alerting.url, color_scheme=scheme).go("/")
        colours[scheme] = page.evaluate(
            "(() => { const one = getComputedStyle(document.body); return [one.color, one.backgroundColor]; })()"
        )
    (ink, paper), (chalk, board) = colours["light"], colours["dark"]
    assert lightness(ink) < lightness(paper)
    assert lightness(chalk) > lightness(board)
    assert lightness(board) < lightness(paper)


def lightness(colour: str) -> float:
    """Return the mean of red, green and blue."""
    numbers = [float(one) for one in re.findall(r"[\d.]+", colour)[:3]]
    assert len(numbers) == 3, colour
    return sum(numbers) / 3.0


def test_a_phone_never_scrolls_a_page_sideways(alerting: RunningSite, visit: Visiting) -> None:
    one = visit(alerting.url, size=PHONE, has_touch=True, is_mobile=True)
    still(one.page)
    for name, path in PAGES.items():
        page = one.go(path)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        wide, seen = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        culprits = page.evaluate(
            """[...document.querySelectorAll("body *")].filter(one => one.getBoundingClientRect().right > innerWidth + 1)
            .slice(0, 5).map(one => one.outerHTML.slice(0, 90))"""
        )
        assert seen == PHONE[0]
        assert wide <= seen, (name, culprits)


def test_the_first_tab_stop_skips_to_the_content(alerting: RunningSite, visit: Visiting) -> None:
    one = visit(alerting.url)
    still(one.page)
    page = one.go("/")
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    expect(skip).to_have_text("Skip to content")
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.getElementById('main').contains(document.activeElement)")


def test_tab_stops_are_complete_ordered_and_visible(alerting: RunningSite, visit: Visiting) -> None:
    one = visit(alerting.url)
    still(one.page)
    for path in PAGES.values():
        _check_tab_stops(one.go(path))


def _check_tab_stops(page: Page) -> None:
    wanted = page.evaluate(
        """stops => [...document.querySelectorAll(stops)].filter(one => one.checkVisibility())
        .map((one, number) => { one.dataset.stop = number; return number; })""",
        _STOPS,
    )
    assert len(wanted) > 5
    found: list[int] = []
    for _ in range(2 * len(wanted) + 5):
        page.keyboard.press("Tab")
        number, shown, tag = page.evaluate(_WHERE)
        # After the last stop comes the body, or the first again.
        if tag == "BODY" or number in found[:1]:
            break
        # A scrolling box is a tab stop too.
        if number is not None:
            found.append(number)
            assert shown, f"no visible focus: {page.evaluate('document.activeElement.outerHTML')[:200]}"
    assert found == wanted, page.url


_WHERE = """(() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== "none";
  const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
  return [one.dataset.stop === undefined ? null : Number(one.dataset.stop), ring && inside, one.tagName];
})()"""


@pytest.mark.slow
def test_keyboard_navigation_to_a_model_and_back(alerting: RunningSite, visit: Visiting) -> None:
    page = visit(alerting.url).go("/")
    _press_until(page, 'tr[data-model="density"] a[href*="/model?"]')
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/model\?name=density"))
    _press_until(page, "main details summary")
    page.keyboard.press("Enter")
    expect(page.locator("main details:has(summary:focus)")).to_have_attribute("open", "")
    _press_until(page, 'nav a[href="/"]')
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{alerting.url}/")


def _press_until(page: Page, wanted: str) -> None:
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"never focused: {wanted}")
