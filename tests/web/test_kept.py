"""A page is made once for all who ask within a second, and never shows less than what was evaluated last."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from monitor.core.report import ModelReport
from monitor.web.pages.routes import MOST_CACHED, SECONDS, CachedPage
from monitor.web.server.request import Response
from monitor.web.site import Site
from tests.web.reading import site_of
from tests.web.sample_reports import three_models


@dataclass
class Counted:
    """A page that counts how often it is made; its clock is set by hand."""

    seconds: float = 100.0
    made: list[Mapping[str, str]] = field(default_factory=list)
    reports: dict[str, ModelReport] = field(default_factory=three_models)
    unwell: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def page(self, _: Site, query: Mapping[str, str]) -> Response | None:
        """Know every name but one."""
        self.made.append(query)
        return None if query.get("name") == "unknown" else Response(f"{len(self.made)}".encode())

    def kept(self) -> tuple[CachedPage, Site]:
        """Return the page with its memory, and the site."""
        site = site_of(self.reports, problems=self.unwell, waits=self.waits)
        return CachedPage(self.page, lambda: self.seconds), site


def _said(kept: CachedPage, site: Site, **query: str) -> bytes | None:
    answer = kept(site, query)
    return None if answer is None else answer.body


def test_within_a_second_a_page_is_made_once() -> None:
    counted = Counted()
    kept, site = counted.kept()
    assert [_said(kept, site), _said(kept, site, other="1")] == [b"1", b"1"]
    counted.seconds += SECONDS
    assert _said(kept, site) == b"2"


def _evaluate(counted: Counted) -> None:
    counted.reports["density"] = replace(counted.reports["density"])


@pytest.mark.parametrize(
    "change",
    [
        _evaluate,
        lambda counted: counted.reports.pop("density"),
        lambda counted: counted.waits.append("inbox waits"),
        lambda counted: counted.unwell.append("stuck"),
    ],
)
def test_what_changed_is_shown_at_once(change: Callable[[Counted], object]) -> None:
    """An evaluation, another set of models, something that is waited for, something that is amiss."""
    counted = Counted()
    kept, site = counted.kept()
    _said(kept, site)
    change(counted)
    assert _said(kept, site) == b"2"


def test_each_question_has_an_answer_of_its_own() -> None:
    kept, site = Counted().kept()
    asked = [{}, {"name": "a"}, {"name": "a", "segment": "b"}, {"name": "a", "span": "b"}, {"segment": "a"}]
    assert [_said(kept, site, **one) for one in asked] == [b"1", b"2", b"3", b"4", b"5"]
    assert [_said(kept, site, **one) for one in asked] == [b"1", b"2", b"3", b"4", b"5"]


def test_names_that_are_made_up_are_not_remembered() -> None:
    kept, site = Counted().kept()
    assert _said(kept, site, name="unknown") is None
    assert len(kept) == 0


def test_no_more_than_so_many_are_remembered() -> None:
    kept, site = Counted().kept()
    for number in range(MOST_CACHED + 5):
        _said(kept, site, name=str(number))
    assert len(kept) == MOST_CACHED


def test_a_page_that_fails_is_made_anew() -> None:
    """And its question is not stuck."""
    fails = [True]

    def page(_: Site, __: Mapping[str, str]) -> Response:
        if fails.pop():
            raise RuntimeError
        return Response(b"made")

    fails = [False, True]
    kept, site = CachedPage(page), site_of(three_models())
    with pytest.raises(RuntimeError):
        kept(site, {})
    assert _said(kept, site) == b"made"


def test_who_asks_while_it_is_made_waits_for_it() -> None:
    """Ten at once make one page."""
    counted, begun, go = Counted(), threading.Event(), threading.Event()

    def slow(site: Site, query: Mapping[str, str]) -> Response | None:
        begun.set()
        go.wait(30)
        return counted.page(site, query)

    kept, site, said = CachedPage(slow, lambda: 100.0), site_of(counted.reports), list[bytes | None]()
    threads = [threading.Thread(target=lambda: said.append(_said(kept, site))) for _ in range(10)]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    go.set()
    for thread in threads:
        thread.join(30)
    assert said == [b"1"] * 10
