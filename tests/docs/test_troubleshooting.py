"""`docs/troubleshooting.md` covers every window state."""

import re

from monitor.core.estimate import WindowState
from tests.docs.markdown import PAGES

PAGE = PAGES["docs/troubleshooting.md"]


def test_every_state_without_an_estimate_has_a_row() -> None:
    table = PAGE.text.partition("## There is no estimate")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(WindowState) - {WindowState.OK}
