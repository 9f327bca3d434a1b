"""Every page, opened in a real Chromium: it loads, its links lead somewhere, and it tells nothing that it should not.

That no window complains on its console, fails to load anything or asks anybody but its daemon is seen to by the fixture
`visit`, in every test of this folder.
"""

import re
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Visiting
from tests.browser.site import SECRETS, Standing
from tests.browser.visiting import PAGES, visiting

_FIRING = re.compile(r"firing")
_API = (
    "/api/v1/status",
    "/api/v1/history?model=density",
    "/api/v1/history?model=density&segment=site%3DNorth&span=days",
    "/api/v1/rejects",
    "/api/v1/configuration",
    "/api/v1/reference?model=density",
)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_with_a_title_one_heading_and_its_own_style(sick: Standing, visit: Visiting, name: str) -> None:
    page = visit(sick.url).go(PAGES[name])
    expect(page).to_have_title(re.compile(r"\S.* – cpcmon$"))
    expect(page.locator("main h1")).to_have_count(1)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    assert page.evaluate("[...document.styleSheets].reduce((sum, one) => sum + one.cssRules.length, 0)") > 20


def test_the_browser_has_an_icon_to_show(sick: Standing, visit: Visiting) -> None:
    """Without one it asks for /favicon.ico, in vain."""
    page = visit(sick.url).go("/")
    icon = page.locator("link[rel=icon]").get_attribute("href")
    assert icon is not None
    answer = page.request.get(urljoin(sick.url, icon))
    assert answer.ok
    assert answer.headers["content-type"].startswith("image/")


def test_the_overview_has_a_row_for_every_segment_and_says_what_fires(sick: Standing, visit: Visiting) -> None:
    page = visit(sick.url).go("/")
    expect(page).to_have_title(_FIRING)
    for segment in ("all", "site=North", "site=South", "site=North,scanner=N1"):
        expect(page.locator(f'tr[data-model="density"][data-segment="{segment}"]')).to_be_visible()
    for model in ("fracture", "quiet"):
        expect(page.locator(f'tr[data-model="{model}"]').first).to_be_visible()
    expect(page.locator("main")).to_contain_text("accuracy_low")
    expect(page.locator("main")).to_contain_text("results")


def test_a_model_shows_its_history_over_hours_and_over_days(sick: Standing, visit: Visiting) -> None:
    page = visit(sick.url).go(PAGES["model"])
    history = page.locator("main section:has(> h2:text-is('Over time'))")
    spans = history.locator("ul a").all_inner_texts()
    assert len(spans) == 3
    for name in spans:
        history.locator("ul a").get_by_text(name, exact=True).click()
        expect(history.locator("ul a[aria-current=true]")).to_have_text(name)
        chart = history.locator("svg[role=img]").first
        expect(chart).to_be_visible()
        assert chart.get_attribute("aria-label"), "a chart that nobody reads out"
        # The same for those who cannot see it.
        assert history.locator("details table tbody tr").count() >= 1


def test_what_labels_showed_later_stands_beside_the_estimate(sick: Standing, visit: Visiting) -> None:
    page = visit(sick.url).go(PAGES["model"])
    expect(page.locator("main")).to_contain_text(re.compile("realised", re.IGNORECASE))


def test_a_click_leads_from_the_overview_to_a_segment(sick: Standing, visit: Visiting) -> None:
    page = visit(sick.url).go("/")
    page.locator('tr[data-model="density"][data-segment="site=North"] a').first.click()
    expect(page).to_have_url(f"{sick.url}{PAGES['segment']}")
    expect(page.locator("main")).to_contain_text("North")


def test_every_link_of_every_page_leads_somewhere(sick: Standing, visit: Visiting) -> None:
    one = visit(sick.url)
    left, seen = {"/"}, set[str]()
    while left:
        path = left.pop()
        seen.add(path)
        answer = one.page.request.get(sick.url + path)
        assert answer.status == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            one.go(path)
            found = one.page.eval_on_selector_all("a[href]", "links => links.map(one => one.href)")
            left |= set(_paths(found)) - seen
    assert {urlsplit(path).path for path in PAGES.values()} <= {urlsplit(path).path for path in seen}


def _paths(links: Iterable[str]) -> Iterable[str]:
    """Yield what is asked for at the daemon; a link to elsewhere, such as a runbook, is asked for by nobody here."""
    for link in links:
        parts = urlsplit(link)
        if parts.hostname == "127.0.0.1":
            yield f"{parts.path}?{parts.query}" if parts.query else parts.path


def test_no_page_and_no_answer_holds_a_secret(sick: Standing, visit: Visiting) -> None:
    """Nor a token of an address, nor a word of a refused record, nor the name of a file."""
    one = visit(sick.url)
    for path in (*PAGES.values(), *_API, "/metrics", "/static/cpcmon.js"):
        answer = one.page.request.get(sick.url + path)
        assert answer.status == 200, path
        assert [secret for secret in SECRETS if secret in answer.text()] == [], path
    page = one.go("/configuration")
    for name in ("webhook.url", "heartbeat.url_file"):
        expect(page.locator(f'tr[data-setting="notify.{name}"]')).to_contain_text("(hidden)")


def test_refused_records_are_counted_and_pointed_to(sick: Standing, visit: Visiting) -> None:
    page = visit(sick.url).go("/rejects")
    expect(page.locator("main")).to_contain_text("results")
    assert page.locator("main tbody tr").count() >= 5


def test_two_windows_are_both_kept_live(sick: Standing, visit: Visiting) -> None:
    first, second = visit(sick.url), visit(sick.url)
    pages = first.go("/"), second.go(PAGES["model"])
    told = [page.locator("#as-of").inner_text() for page in pages]
    for page, before in zip(pages, told, strict=True):
        expect(page.locator("#as-of")).not_to_have_text(before)


def test_what_a_page_asks_of_others_would_be_seen(sick: Standing, browser: Browser) -> None:
    """Else the silence of the others would show nothing: the browser finds nobody, and the question is noted."""
    with visiting(browser, sick.url, bypass_csp=True) as one:
        page = one.go("/")
        page.evaluate("fetch('http://elsewhere.example/x').catch(() => null)")
        assert "http://elsewhere.example/x" in one.heard.asked
        assert any("ERR_NAME_NOT_RESOLVED" in told for told in one.heard.complaints)


@pytest.mark.slow
def test_a_page_may_not_ask_others_even_if_it_wanted_to(sick: Standing, browser: Browser) -> None:
    with visiting(browser, sick.url) as one:
        page = one.go("/")
        page.evaluate("fetch('http://elsewhere.example/x').catch(() => null)")
        page.evaluate(_IMAGE)
        assert any("connect-src" in told for told in one.heard.complaints)
        assert any("img-src" in told for told in one.heard.complaints)
        assert not any("ERR_NAME_NOT_RESOLVED" in told for told in one.heard.complaints)


_IMAGE = """new Promise(done => {
  document.body.append(Object.assign(new Image(), {onerror: done, src: "http://elsewhere.example/y"}));
})"""
