"""Figures about speed and coverage are measured ones: they stand in a table that says which command makes them."""

import re

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_FIGURE = re.compile(
    rf"(?<![\w.,-])(?:({_NUMBER})(%| times| points| records a second| windows of {_NUMBER})(?!\w)|(0\.\d\d\d+))"
)
"""A number with what makes it a claim, or a ratio of three digits. `a window of 500` and `3 replicas` are settings, not claims."""
_MEASURED = ("docs/performance.md", "docs/methods.md", "docs/alerts.md", "docs/scaling.md")
_NO_MEASUREMENTS = {
    "docs/offline.md": {"0.002"},  # a limit: `decode.vectors` has it
    "docs/records.md": {"0.002"},  # the same
    "docs/troubleshooting.md": {"99%", "85%"},  # what somebody might see
}


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _measured() -> str:
    names = [*_MEASURED, *(name for name in PAGES if name.startswith("docs/decisions/"))]
    return "\n".join(_plain(PAGES[name].text) for name in names)


def _is_in(figure: str, text: str) -> bool:
    ratio = figure.removesuffix(" times")
    if ratio != figure and f"| {ratio} |" in PAGES["docs/performance.md"].text:
        return True  # in a column of ratios it needs no word
    return re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\d|\.\d)", text) is not None


@pytest.mark.parametrize("page", [name for name in PAGES if name not in _MEASURED])
def test_every_figure_of_a_page_stands_on_a_page_of_measurements(page: str) -> None:
    """With its unit. What the 95% of an interval means is a definition."""
    measured = _measured()
    found = {"".join(parts) for parts in _FIGURE.findall(_plain(PAGES[page].prose))}
    assert {figure for figure in found if not _is_in(figure, measured)} <= _NO_MEASUREMENTS.get(page, set())


def test_the_coverage_on_the_page_of_methods_is_that_of_the_table() -> None:
    """Percentages and widths in the paragraph that names the benchmark."""
    (told,) = re.findall(r"^Coverage of the 95% .+$", PAGES["docs/methods.md"].prose, re.MULTILINE)
    table = PAGES["docs/decisions/0002-intervals.md"].text
    figures = re.findall(r"\d+\.\d+%|0\.\d{4}", told)
    assert len(figures) >= 6
    assert [figure for figure in figures if figure not in table] == []
    rows = re.findall(r"^\| `([^`]+)` \| ([\d.]+)% \| [\d.]+ \| ([\d.]+)% \|", table, re.MULTILINE)
    shown = [float(share) for name, *shares in rows if "[" not in name for share in shares]
    assert f"from {min(shown)}% " in told
    assert f" to {max(shown)}% " in told


_TABLES = [
    one for one in PAGES["docs/performance.md"].prose.split("\n## ")[1:] if re.search(r"^\|--", one, re.MULTILINE)
]


@pytest.mark.parametrize("section", _TABLES, ids=[one.partition("\n")[0] for one in _TABLES])
def test_every_table_of_measurements_names_the_command_that_makes_it(section: str) -> None:
    """And the command is there."""
    modules = re.findall(r"`python -m (benchmarks\.\w+)", section)
    assert modules
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)
