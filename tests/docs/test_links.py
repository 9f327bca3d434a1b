"""Links and paths on pages exist."""

import re

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES, Page

_OURS = re.compile(r"(?:monitor|tests|deploy|docs|benchmarks)/[\w/.*{},-]*\w")
_EXAMPLES = {"monitor/sources/journal.py", "monitor/config/journal_settings.py"}
"""Files that docs/extending.md tells the reader to write."""


@pytest.mark.parametrize("name", PAGES)
def test_targets_and_anchors_of_links_exist(name: str) -> None:
    wrong = [
        link.text
        for link in PAGES[name].links
        if not link.target.exists() or (link.anchor and link.anchor not in Page(link.target).anchors)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_paths_in_inline_code_exist(name: str) -> None:
    """`your_…` is a file of the reader, `*` any name."""
    wrong = []
    for span in PAGES[name].spans:
        for path in _OURS.findall(span) if _OURS.match(span) else []:
            if "your_" in path or path in _EXAMPLES:
                continue
            if not (list(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()):
                wrong.append(path)
    assert wrong == []


def test_the_index_links_to_every_page() -> None:
    """To runbooks and decisions by their directories."""
    index = PAGES["docs/README.md"]
    linked = {link.target.resolve() for link in index.links}
    pages = {page.path for name, page in PAGES.items() if name.startswith("docs/")} - {index.path}
    assert {str(page) for page in pages if page not in linked and page.parent not in linked} == set()
