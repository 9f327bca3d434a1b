"""`docs/records.md` lists what the code accepts."""

import re

from monitor.records.record_batch import SUFFIXES
from monitor.records.record_schema import OutputKind, TimeUnit
from monitor.records.rejections import Reason
from tests.conftest import ROOT
from tests.records.streams import decode_text, stream

PAGE = (ROOT / "docs" / "records.md").read_text()


CELLS = [name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]
"""The first cells of all tables."""


def test_the_page_lists_every_reason() -> None:
    """In the order of the enum."""
    assert list(dict.fromkeys(name for name in CELLS if name in set(Reason))) == [str(reason) for reason in Reason]


def test_the_page_lists_every_output_kind_format_and_time_unit() -> None:
    assert set(OutputKind) | set(SUFFIXES) <= set(CELLS)
    assert all(f"`{unit}`" in PAGE or f"time_unit: {unit}" in PAGE for unit in TimeUnit if unit != "seconds")


def test_the_example_record_is_accepted() -> None:
    example = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    decoded = decode_text(example.group(1).encode(), decoder=stream())
    assert (decoded.accepted, decoded.rejected.total()) == (1, 0)
