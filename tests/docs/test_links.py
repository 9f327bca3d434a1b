"""Every place that a page names is there."""

import re

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES, Page

_OURS = re.compile(r"(?:monitor|tests|deploy|docs|benchmarks)/[\w/.*{},-]*\w")
_EXAMPLES = {"monitor/sources/journal.py", "monitor/config/journal_settings.py"}
"""What the reader of docs/extending.md writes; its test writes them too."""


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_page_and_every_anchor_to_a_heading(name: str) -> None:
    """Relative links, in every page of the tree."""
    wrong = [
        link.written
        for link in PAGES[name].links
        if not link.place.exists() or (link.anchor and link.anchor not in Page(link.place).anchors)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_every_path_in_backticks_that_starts_in_our_tree_exists(name: str) -> None:
    """From the root of the tree; `your_…` stands for what the reader writes, and a star for any name."""
    wrong = []
    for span in PAGES[name].spans:
        for path in _OURS.findall(span) if _OURS.match(span) else []:
            if "your_" in path or path in _EXAMPLES:
                continue
            if not (list(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()):
                wrong.append(path)
    assert wrong == []


def test_the_index_lists_every_page_of_the_documentation() -> None:
    """Runbooks and decisions by their folders."""
    index = PAGES["docs/README.md"]
    linked = {link.place.resolve() for link in index.links}
    pages = {page.path for name, page in PAGES.items() if name.startswith("docs/")} - {index.path}
    assert {str(page) for page in pages if page not in linked and page.parent not in linked} == set()


def test_a_heading_becomes_the_anchor_that_a_browser_looks_for() -> None:
    """Small letters, dashes for spaces, no punctuation; underscores stay."""
    page = PAGES["docs/prometheus.md"]
    assert "2-choose-the-rules" in page.anchors
    assert "where-we-differ-from-the-paper-and-why" in PAGES["docs/methods.md"].anchors
