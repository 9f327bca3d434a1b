"""`docs/troubleshooting.md` has an answer for every state."""

import re

from monitor.core.estimate import WindowState
from tests.docs.markdown import PAGES

PAGE = PAGES["docs/troubleshooting.md"]


def test_there_is_a_row_for_every_state_without_an_estimate() -> None:
    """In the table of states."""
    table = PAGE.text.partition("## There is no estimate")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(WindowState) - {WindowState.OK}
