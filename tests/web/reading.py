"""Parses pages and checks that they are well-formed."""

from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any

from monitor.core.report import Report
from monitor.web.server.request import Response
from monitor.web.site import Health, Site
from tests.web.sample_reports import NOW

_VOID = {"meta", "br", "link"}


class Reader(HTMLParser):
    """Parses a page; raises AssertionError when it is not well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._cell: list[str] | None = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self._cell = []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an empty tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Check that the last open tag is closed."""
        assert self.open.pop() == tag
        if tag in {"td", "th"} and self._cell is not None:
            self.rows[-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        """Record a text."""
        if self._cell is not None and "title" not in self.open:
            self._cell.append(f"{data} ")


def site_of(
    reports: Mapping[str, Report] | None = None,
    *,
    version: str = "1.2.3",
    problems: Sequence[str] = (),
    waits: Sequence[str] = (),
    notices: Sequence[str] = (),
    unevaluated: Sequence[str] = (),
    **more: Any,
) -> Site:
    """Return a site that shows these reports."""
    shown = reports or {}

    def health() -> Health:
        return Health([*problems], [*waits], notices, unevaluated)

    return Site(reports=lambda: shown, now=lambda: NOW, version=version, health=health, **more)


def text_of(page: Callable[[Site, Mapping[str, str]], Response | None], site: Site, **query: str) -> str:
    """Return the text of a page."""
    answer = page(site, query)
    assert answer is not None
    return answer.body.decode()
