"""The metrics page, compared with the golden file and with `docs/metrics.md`."""

import re
from pathlib import Path

from monitor.core.estimate import WindowState
from tests.sinks.golden import GOLDEN, page
from tests.sinks.pages import families

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| .+ \|$", re.MULTILINE)


def test_the_page_equals_the_golden_file() -> None:
    """After an intended change: `python -m tests.sinks.golden`."""
    assert page().splitlines() == GOLDEN.read_text().splitlines()


def test_exactly_the_exported_series_are_documented() -> None:
    """In both directions."""
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in _ROW.findall(DOCUMENT)}
    assert documented == families(page().encode())


def test_every_state_is_documented() -> None:
    (row,) = (line for line in DOCUMENT.splitlines() if line.startswith("| `cpcmon_window_state`"))
    assert set(WindowState) <= set(re.findall(r"`(\w+)`", row))
