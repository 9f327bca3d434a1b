"""The map of the code is of this code."""

import re
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.markdown import PAGES

_ROWS = re.findall(r"^\| (`monitor/.+?) \|", PAGES["docs/architecture.md"].text, re.MULTILINE)
_UNSAID = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}


def _places(row: str) -> list[list[Path]]:
    """Return where each name of a row may be: from the root, beside the first one, or in the package."""
    names = re.findall(r"`([\w/.]+)`", row)
    first = ROOT / names[0]
    beside = first.parent if first.suffix else first
    return [[ROOT / name, beside / name, ROOT / "monitor" / name] for name in names]


def test_every_file_on_the_map_exists() -> None:
    """Those that are named by their last part, too."""
    assert len(_ROWS) > 30
    assert [row for row in _ROWS if not all(any(map(Path.exists, places)) for places in _places(row))] == []


def test_every_module_and_package_at_the_top_is_on_the_map() -> None:
    """What lies deeper is told by its package's own docstrings."""
    named = {place for row in _ROWS for places in _places(row) for place in places}
    text = PAGES["docs/architecture.md"].text
    missing = [
        path.name
        for path in (ROOT / "monitor").iterdir()
        if path.name not in _UNSAID and path not in named and f"`{path.name}`" not in text
    ]
    assert sorted(missing) == []
