"""The layout of every page, and the static files."""

from http import HTTPStatus
from pathlib import Path

import pytest

from monitor.web.pages.rendering import CSP, ICON, MARK, SCRIPT, STYLE, not_found, render
from monitor.web.pages.routes import standard_pages
from monitor.web.server.request import Request, Response
from monitor.web.site import Site
from tests.web.conftest import Serve
from tests.web.reading import Reader, site_of
from tests.web.sample_reports import three_models


def _page(site: Site, title: str = "Overview", here: str = "/") -> str:
    return render(site, "not_found.html", title=title, here=here).body.decode()


def test_pages_load_only_own_files() -> None:
    page = Reader(_page(site_of(three_models())))
    loaded = [tag.get("src") or tag.get("href") for name, tag in page.tags if name in {"script", "link"}]
    assert sorted(filter(None, loaded)) == [f"/static/cpcmon.{kind}?v={MARK}" for kind in ("css", "js", "svg")]
    assert {name for name, _ in page.tags}.isdisjoint({"img", "iframe", "object", "form", "style", "base"})
    links = [str(tag["href"]) for name, tag in page.tags if name == "a"]
    assert all(link.startswith(("/", "#")) for link in links)
    assert ("meta", {"http-equiv": "refresh", "content": "30"}) in page.tags
    assert not any("style" in tag or any(name.startswith("on") for name in tag) for _, tag in page.tags)


def test_the_csp_is_strict() -> None:
    assert not_found(site_of()).headers["Content-Security-Policy"] == CSP
    assert "unsafe" not in CSP
    assert CSP.startswith("default-src 'none'; ")
    assert b"url(" not in STYLE
    assert b"http" not in STYLE + SCRIPT


def test_the_documentation_has_the_csp() -> None:
    assert f"`{CSP}`" in (Path(__file__).parents[2] / "docs" / "web.md").read_text()


def test_the_current_page_is_marked() -> None:
    page = Reader(_page(site_of(), here="/rejects"))
    assert [tag["href"] for _, tag in page.tags if tag.get("aria-current") == "page"] == ["/rejects"]


def test_firing_alerts_are_in_the_title_and_the_header() -> None:
    loud, quiet = _page(site_of(three_models()), "Rejects"), _page(site_of(), "Rejects")
    assert "<title>▲ 3 firing – Rejects – cpcmon</title>" in loud
    assert ">▲ 3 alerts firing</a>" in loud
    assert "<li>density, site Bonn: alert accuracy_low</li>" in loud
    assert '<div id="firing"><ul hidden></ul></div>' in quiet
    assert "<title>Rejects – cpcmon</title>" in quiet


@pytest.mark.parametrize(
    ("intervals", "seconds"), [((), 5), ((60.0, 8.0), 4), ((1.0,), 2), ((43_200.0,), 30), ((20.0,), 10)]
)
def test_refresh_twice_per_evaluation_within_bounds(intervals: tuple[float, ...], seconds: int) -> None:
    assert f'data-every="{seconds}"' in _page(site_of(evaluation_seconds=lambda: intervals))


def test_not_found_is_a_whole_page() -> None:
    answer = not_found(site_of())
    assert answer.status == 404
    Reader(answer.body.decode())


@pytest.mark.parametrize(
    ("path", "content_type", "body"),
    [
        ("/static/cpcmon.css", "text/css; charset=utf-8", STYLE),
        ("/static/cpcmon.js", "text/javascript; charset=utf-8", SCRIPT),
        ("/static/cpcmon.svg", "image/svg+xml", ICON),
        ("/favicon.ico", "image/svg+xml", ICON),
    ],
)
def test_static_files_are_cached_only_under_their_mark(serve: Serve, path: str, content_type: str, body: bytes) -> None:
    pages = standard_pages(site_of(), metrics=lambda _: Response(b""), reload=None, status=bytes)
    client = serve(pages)
    answer = client.ask(f"{path}?v={MARK}")
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, content_type, body)
    assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert client.ask(f"{path}?v=other").headers["cache-control"] == "no-store"
    assert client.ask(path).headers["cache-control"] == "no-store"


def test_every_link_of_the_footer_is_a_page() -> None:
    site = site_of(three_models())
    pages = standard_pages(site, metrics=lambda _: Response(b""), reload=None, status=bytes)
    footer = _page(site).partition("<footer")[2]
    links = [
        tag["href"] for name, tag in Reader(footer.partition(">")[2].partition("</footer>")[0]).tags if name == "a"
    ]
    assert {"/metrics", "/api/v1/status", "/api/v1/rejects", "/api/v1/configuration"} <= set(links)
    for link in links:
        assert link is not None
        assert pages[link].answer(Request("GET", link, {})).status == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/", "/rejects", "/configuration"])
def test_pages_without_data_are_well_formed(path: str) -> None:
    pages = standard_pages(site_of(), metrics=lambda _: Response(b""), reload=None, status=bytes)
    answer = pages[path].answer(Request("GET", path))
    assert answer.status == HTTPStatus.OK
    Reader(answer.body.decode())


def test_half_a_surrogate_pair_does_not_break_a_page() -> None:
    assert b"1.2.3 ? " in not_found(site_of(version="1.2.3 \ud800")).body
