"""The whole page beside the one that is kept, and beside what `docs/metrics.md` says of it."""

import re
from pathlib import Path

from monitor.core.estimate import WindowState
from tests.sinks.golden import GOLDEN, page
from tests.sinks.pages import families

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| .+ \|$", re.MULTILINE)


def test_the_page_is_the_one_that_is_kept() -> None:
    """Names, types, labels, help and values. `python -m tests.sinks.golden` after a change that is meant."""
    assert page().splitlines() == GOLDEN.read_text().splitlines()


def test_every_series_is_documented_with_its_type_and_labels_and_nothing_else_is() -> None:
    """In both directions."""
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in _ROW.findall(DOCUMENT)}
    assert documented == families(page().encode())


def test_every_state_is_documented() -> None:
    """They are label values, and so public."""
    (row,) = (line for line in DOCUMENT.splitlines() if line.startswith("| `cpcmon_window_state`"))
    assert set(WindowState) <= set(re.findall(r"`(\w+)`", row))


def test_every_family_has_its_help_once() -> None:
    """Every family has one sentence or more, and each is there once."""
    helps = re.findall(r"^# HELP (\w+) (.+)$", page(), re.MULTILINE)
    assert len({name for name, _ in helps}) == len(helps) == page().count("# TYPE ")
    assert all(sentence.endswith(".") for _, sentence in helps)
