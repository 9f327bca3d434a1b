"""The metrics page, compared with the golden file and with `docs/metrics.md`."""

import re
from pathlib import Path

from monitor.core.estimate import WindowState
from tests.sinks.golden import GOLDEN, page
from tests.sinks.pages import families

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "metrics.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| .+ \|$", re.MULTILINE)


def test_the_page_equals_the_golden_file() -> None:
    """Names, types, labels, help and values. Run `python -m tests.sinks.golden` after an intended change."""
    assert page().splitlines() == GOLDEN.read_text().splitlines()


def test_every_series_is_documented_with_its_type_and_labels() -> None:
    """And no others."""
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in _ROW.findall(DOCUMENT)}
    assert documented == families(page().encode())


def test_every_state_is_documented() -> None:
    """States are label values, and so public."""
    (row,) = (line for line in DOCUMENT.splitlines() if line.startswith("| `cpcmon_window_state`"))
    assert set(WindowState) <= set(re.findall(r"`(\w+)`", row))


def test_every_family_has_its_help_once() -> None:
    """One or more sentences, once per family."""
    helps = re.findall(r"^# HELP (\w+) (.+)$", page(), re.MULTILINE)
    assert len({name for name, _ in helps}) == len(helps) == page().count("# TYPE ")
    assert all(sentence.endswith(".") for _, sentence in helps)
