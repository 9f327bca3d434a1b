"""The progress bar: on a terminal, for long work, and gone afterwards."""

import io
import os
import pty
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from monitor.cli import progress


@contextmanager
def terminal() -> Iterator[Callable[[], str]]:
    """Put stderr on a real pseudo-terminal; give a function that reads what it showed."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as file, redirect_stderr(file):
        yield lambda: os.read(ours, 4096).decode()
    os.close(ours)


def test_long_work_on_a_terminal_shows_a_bar_that_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the share done and the time left."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    with terminal() as read:
        with progress.progress_bar("replaying") as show:
            show(0.5)
        shown = read()
    assert "replaying [####################....................]  50%" in shown
    assert shown.endswith("\r\033[K")


def test_short_work_shows_nothing() -> None:
    """Two seconds pass before a bar appears."""
    with terminal() as read:
        with progress.progress_bar("replaying") as show:
            show(0.5)
        print("end", file=sys.stderr, flush=True)  # noqa: T201  something to read
        assert read().strip() == "end"


def test_a_pipe_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs stay clean."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    assert written.getvalue() == ""
