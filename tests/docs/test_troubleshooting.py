"""The symptoms on `docs/troubleshooting.md` are what a user really sees."""

import ast
import re
from functools import cache

import pytest

from monitor.core.window_state import WindowState
from tests.conftest import ROOT
from tests.docs.markdown import PAGES

PAGE = PAGES["docs/troubleshooting.md"]
ROWS = re.findall(r"^\| (?!symptom|state|---)(.+?) \| (.+) \| (.+) \|$", PAGE.text, re.MULTILINE)
MESSAGES = [span for symptom, _, _ in ROWS for span in re.findall(r"`([^`]+)`", symptom) if " " in span and "…" in span]
_OF_SYSTEMD = "status="


@cache
def _said() -> str:
    """Return every text in the code, cut where a value is put in; one a line."""
    pieces: list[str] = []
    for file in (ROOT / "monitor").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                pieces += re.split(r"%[-+.\d]*[sdrf]|\{[\w!.:]*\}|\n", node.value)
    return "\n".join(pieces)


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_is_one_that_the_code_says(message: str) -> None:
    """Between the dots, each word for word. `expected` and `found` are put around some by what they share."""
    bare = re.sub(r"^config\.yaml:|^limits\.window_bytes: ", "", message)
    for part in bare.split("…"):
        words = re.sub(r"^[:; ,]*(?:expected )?|(?:, found)?[:; ,(]*$", "", part).strip()
        assert words in _said(), words


def test_there_is_a_row_for_every_state_without_an_estimate() -> None:
    """In the table of states."""
    table = PAGE.text.partition("## There is no estimate")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(WindowState) - {WindowState.OK}


def test_there_are_rows_and_messages() -> None:
    """A pattern that finds none would otherwise pass."""
    assert len(ROWS) >= 25
    assert len(MESSAGES) >= 15
    assert all(cause.strip() and fix.strip() for _, cause, fix in ROWS)
