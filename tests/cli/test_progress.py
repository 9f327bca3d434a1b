"""The progress bar: on a terminal, for long work, and gone afterwards."""

import io
import os
import pty
import sys

import pytest

from monitor.cli import progress


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> int:
    """Stderr on a real pseudo-terminal; its other end is returned."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(sys, "stderr", os.fdopen(theirs, "w"))
    return ours


def test_long_work_on_a_terminal_shows_a_bar_that_is_wiped(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the share done and the time left."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    shown = os.read(terminal, 4096).decode()
    assert "replaying [####################....................]  50%" in shown
    assert shown.endswith("\r\033[K")


def test_short_work_shows_nothing(terminal: int) -> None:
    """Two seconds pass before a bar appears."""
    with progress.progress_bar("replaying") as show:
        show(0.5)
    print("end", file=sys.stderr, flush=True)  # noqa: T201  something to read
    assert os.read(terminal, 4096).decode().strip() == "end"


def test_a_pipe_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs stay clean."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    assert written.getvalue() == ""
