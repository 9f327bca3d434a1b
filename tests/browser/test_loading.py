"""Every page in a real Chromium: it loads, its links work, and it contains no secret.

In every test of this folder the fixture `visit` checks that no window has console errors, failed requests or requests to
other hosts.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.conftest import Visiting
from tests.browser.site import SECRETS, RunningSite
from tests.browser.visiting import PAGES, SEGMENT, visiting

_FIRING = re.compile(r"firing")
_API = (
    "/api/v1/status",
    "/api/v1/history?model=density",
    "/api/v1/history?model=density&segment=site%3DNorth&span=days",
    "/api/v1/rejects",
    "/api/v1/configuration",
    "/api/v1/reference?model=density",
)


def test_every_page_loads_and_is_complete_without_a_script(alerting: RunningSite, visit: Visiting) -> None:
    """With a title, one heading and its own style."""
    scripted, unscripted = visit(alerting.url), visit(alerting.url, java_script_enabled=False)
    for path in PAGES.values():
        page, plain = scripted.go(path), unscripted.go(path)
        expect(page).to_have_title(re.compile(r"\S.* – cpcmon$"))
        expect(page.locator("main h1")).to_have_count(1)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
        assert page.evaluate("[...document.styleSheets].reduce((sum, one) => sum + one.cssRules.length, 0)") > 20
        expect(plain.locator("main h1")).to_be_visible()
        # Playwright's text functions skip noscript.
        assert "Reloads every 30 seconds" in plain.locator("#live").evaluate("one => one.innerText")
        for kind in ("h2", "table", "svg", "details"):
            assert plain.locator(f"main {kind}").count() == page.locator(f"main {kind}").count(), (path, kind)
        # Only the noscript element reloads.
        expect(page.locator("meta[http-equiv=refresh]")).to_have_count(0)


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


def test_the_overview_has_every_segment_and_the_firing_alert(alerting: RunningSite, visit: Visiting) -> None:
    page = visit(alerting.url).go("/")
    expect(page).to_have_title(_FIRING)
    for segment in ("all", "site=North", "site=South", "site=North,scanner=N1"):
        expect(page.locator(f'tr[data-model="density"][data-segment="{segment}"]')).to_be_visible()
    for model in ("fracture", "quiet"):
        expect(page.locator(f'tr[data-model="{model}"]').first).to_be_visible()
    expect(page.locator("main")).to_contain_text("accuracy_low")
    expect(page.locator("main")).to_contain_text("results")


def test_a_model_shows_its_history_over_each_span(alerting: RunningSite, visit: Visiting) -> None:
    page = visit(alerting.url).go(PAGES["model"])
    history = page.locator("main section:has(> h2:text-is('Over time'))")
    spans = history.locator("ul a").all_inner_texts()
    assert len(spans) == 3
    for name in spans:
        history.locator("ul a").get_by_text(name, exact=True).click()
        expect(history.locator("ul a[aria-current=true]")).to_have_text(name)
        chart = history.locator("svg[role=img]").first
        expect(chart).to_be_visible()
        assert chart.get_attribute("aria-label"), "a chart without a label"
        # The table for screen readers.
        assert history.locator("details table tbody tr").count() >= 1


def test_a_click_leads_from_the_overview_to_a_segment(alerting: RunningSite, visit: Visiting) -> None:
    page = visit(alerting.url).go("/")
    page.locator('tr[data-model="density"][data-segment="site=North"] a').first.click()
    expect(page).to_have_url(f"{alerting.url}{SEGMENT}")
    expect(page.locator("main")).to_contain_text("North")


def test_every_link_of_every_page_works(alerting: RunningSite, visit: Visiting) -> None:
    one = visit(alerting.url)
    left, seen = {"/"}, set[str]()
    while left:
        path = left.pop()
        seen.add(path)
        answer = one.page.request.get(alerting.url + path)
        assert answer.status == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            one.go(path)
            found = one.page.eval_on_selector_all("a[href]", "links => links.map(one => one.href)")
            left |= set(_paths(found)) - seen
    assert {urlsplit(path).path for path in PAGES.values()} <= {urlsplit(path).path for path in seen}


def _paths(links: Iterable[str]) -> Iterable[str]:
    """Yield the paths of links to the daemon; other links, such as runbooks, are skipped."""
    for link in links:
        parts = urlsplit(link)
        if parts.hostname == "127.0.0.1":
            yield f"{parts.path}?{parts.query}" if parts.query else parts.path


def test_no_page_contains_a_secret(alerting: RunningSite, visit: Visiting) -> None:
    """Tokens in addresses, content of rejected records, names of files."""
    one = visit(alerting.url)
    for path in (*PAGES.values(), *_API, "/metrics", "/static/cpcmon.js"):
        answer = one.page.request.get(alerting.url + path)
        assert answer.status == 200, path
        assert [secret for secret in SECRETS if secret in answer.text()] == [], path
    page = one.go("/configuration")
    for name in ("webhook.url", "heartbeat.url_file"):
        expect(page.locator(f'tr[data-setting="notify.{name}"]')).to_contain_text("(hidden)")


def test_two_windows_stay_live(alerting: RunningSite, visit: Visiting) -> None:
    first, second = visit(alerting.url), visit(alerting.url)
    pages = first.go("/"), second.go(PAGES["model"])
    times = [page.locator("#as-of").inner_text() for page in pages]
    for page, before in zip(pages, times, strict=True):
        expect(page.locator("#as-of")).not_to_have_text(before)


def test_requests_to_other_hosts_are_recorded(alerting: RunningSite, browser: Browser) -> None:
    """Checks the check of the fixture `visit`."""
    with visiting(browser, alerting.url, bypass_csp=True) as one:
        page = one.go("/")
        page.evaluate("fetch('http://elsewhere.example/x').catch(() => null)")
        assert "http://elsewhere.example/x" in one.log.requests
        assert any("ERR_NAME_NOT_RESOLVED" in error for error in one.log.complaints)


@pytest.mark.slow
def test_the_csp_blocks_requests_to_other_hosts(alerting: RunningSite, browser: Browser) -> None:
    with visiting(browser, alerting.url) as one:
        page = one.go("/")
        page.evaluate("fetch('http://elsewhere.example/x').catch(() => null)")
        page.evaluate(_IMAGE)
        assert any("connect-src" in error for error in one.log.complaints)
        assert any("img-src" in error for error in one.log.complaints)
        assert not any("ERR_NAME_NOT_RESOLVED" in error for error in one.log.complaints)


_IMAGE = """new Promise(done => {
  document.body.append(Object.assign(new Image(), {onerror: done, src: "http://elsewhere.example/y"}));
})"""
