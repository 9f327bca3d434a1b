"""docs/architecture.md names the packages and modules that exist."""

import re

from tests.conftest import ROOT
from tests.docs.markdown import PAGES

_TEXT = PAGES["docs/architecture.md"].text
_ROWS = re.findall(r"^\| `(monitor/[\w./]+)` \|.*\|(.*)\|$", _TEXT, re.MULTILINE)
_UNLISTED = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}


def test_the_files_exist() -> None:
    named = [f"{package}/{name}" for package, files in _ROWS for name in re.findall(r"`([\w/.]+)`", files)]
    named += [f"monitor/{name}" for name in re.findall(r"`(\w+/[\w/]+\.py)`", _TEXT.partition("## Where to find")[2])]
    assert len(named) > 30
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_all_packages_are_listed() -> None:
    existing = {f"monitor/{path.name}" for path in (ROOT / "monitor").iterdir() if path.name not in _UNLISTED}
    assert existing == {package for package, _ in _ROWS}
