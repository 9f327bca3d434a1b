"""The page cache."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from monitor.core.report import Report
from monitor.web.pages.routes import MOST_CACHED, SECONDS, CachedPage
from monitor.web.server.request import Response
from monitor.web.site import Site
from tests.web.reading import site_of
from tests.web.sample_reports import three_models


@dataclass
class Counted:
    """A page that counts its renderings, with a manual clock."""

    seconds: float = 100.0
    made: list[Mapping[str, str]] = field(default_factory=list)
    reports: dict[str, Report] = field(default_factory=three_models)
    unhealthy: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def page(self, _: Site, query: Mapping[str, str]) -> Response | None:
        """Render any name but `unknown`."""
        self.made.append(query)
        return None if query.get("name") == "unknown" else Response(f"{len(self.made)}".encode())

    def cached(self) -> tuple[CachedPage, Site]:
        """Return the cached page and the site."""
        site = site_of(self.reports, problems=self.unhealthy, waits=self.waits)
        return CachedPage(self.page, lambda: self.seconds), site


def _body(cached: CachedPage, site: Site, **query: str) -> bytes | None:
    answer = cached(site, query)
    return None if answer is None else answer.body


def test_a_page_is_rendered_once_a_second() -> None:
    counted = Counted()
    cached, site = counted.cached()
    assert [_body(cached, site), _body(cached, site, other="1")] == [b"1", b"1"]
    counted.seconds += SECONDS
    assert _body(cached, site) == b"2"


def _evaluate(counted: Counted) -> None:
    counted.reports["density"] = replace(counted.reports["density"])


@pytest.mark.parametrize(
    "change",
    [
        _evaluate,
        lambda counted: counted.reports.pop("density"),
        lambda counted: counted.waits.append("inbox waits"),
        lambda counted: counted.unhealthy.append("stuck"),
    ],
)
def test_a_change_invalidates_the_cache(change: Callable[[Counted], object]) -> None:
    counted = Counted()
    cached, site = counted.cached()
    _body(cached, site)
    change(counted)
    assert _body(cached, site) == b"2"


def test_each_query_is_cached_separately() -> None:
    cached, site = Counted().cached()
    queries = [{}, {"name": "a"}, {"name": "a", "segment": "b"}, {"name": "a", "span": "b"}, {"segment": "a"}]
    assert [_body(cached, site, **one) for one in queries] == [b"1", b"2", b"3", b"4", b"5"]
    assert [_body(cached, site, **one) for one in queries] == [b"1", b"2", b"3", b"4", b"5"]


def test_unknown_names_are_not_cached() -> None:
    cached, site = Counted().cached()
    assert _body(cached, site, name="unknown") is None
    assert len(cached) == 0


def test_the_cache_is_bounded() -> None:
    cached, site = Counted().cached()
    for number in range(MOST_CACHED + 5):
        _body(cached, site, name=str(number))
    assert len(cached) == MOST_CACHED


def test_a_failed_page_is_rendered_again() -> None:
    fails = [True]

    def page(_: Site, __: Mapping[str, str]) -> Response:
        if fails.pop():
            raise RuntimeError
        return Response(b"made")

    fails = [False, True]
    cached, site = CachedPage(page), site_of(three_models())
    with pytest.raises(RuntimeError):
        cached(site, {})
    assert _body(cached, site) == b"made"


def test_concurrent_requests_render_once() -> None:
    counted, begun, go = Counted(), threading.Event(), threading.Event()

    def slow(site: Site, query: Mapping[str, str]) -> Response | None:
        begun.set()
        go.wait(30)
        return counted.page(site, query)

    cached, site, bodies = CachedPage(slow, lambda: 100.0), site_of(counted.reports), list[bytes | None]()
    threads = [threading.Thread(target=lambda: bodies.append(_body(cached, site))) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    go.set()
    for thread in threads:
        thread.join(30)
    assert bodies == [b"1"] * 10
