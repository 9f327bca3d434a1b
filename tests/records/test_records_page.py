"""The page on records tells what the code does."""

import re

from monitor.records.layout import OutputKind
from monitor.records.record_batch import SUFFIXES
from monitor.records.record_schema import TimeUnit
from monitor.records.rejections import Reason
from tests.conftest import ROOT
from tests.records.streams import decode_text, stream

PAGE = (ROOT / "docs" / "records.md").read_text()


def _first_cells(heading: str) -> list[str]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_the_table_of_reasons_lists_exactly_the_reasons() -> None:
    """In the order of the enum; a new reason needs a line for its users."""
    assert _first_cells("What is refused, and what to do") == [str(reason) for reason in Reason]


def test_the_tables_of_kinds_and_formats_are_complete() -> None:
    """No kind and no suffix is a secret."""
    kinds = [name for name in _first_cells("Kinds of numbers") if name != "kind"]
    assert kinds == [str(kind) for kind in OutputKind]
    assert set(_first_cells("Formats")) == set(SUFFIXES)
    assert all(f"`{unit}`" in PAGE or f"time_unit: {unit}" in PAGE for unit in TimeUnit if unit != "seconds")


def test_the_example_record_is_accepted() -> None:
    """As it stands on the page."""
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    arrived = decode_text(example.group(1).encode(), decoder=stream())
    assert (arrived.accepted, arrived.rejected.total()) == (1, 0)
