"""The progress bar."""

import io
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path

import pytest

from monitor.cli import progress_bar as progress


@contextmanager
def terminal() -> Iterator[list[str]]:
    """Redirect stderr to a pseudo-terminal; the list gets its output at the end."""
    ours, theirs = pty.openpty()
    shown = list[str]()
    with os.fdopen(theirs, "w") as file, redirect_stderr(file):
        yield shown
    shown.append(read_all(ours).decode())


def read_all(ours: int) -> bytes:
    """Return the output of a terminal until it is closed."""
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as file, suppress(OSError):
        while part := file.read(65536):
            shown += part
    return shown


def test_a_terminal_shows_a_bar_and_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    with terminal() as shown, progress.progress_bar("replaying") as show:
        show(0.5)
    assert "replaying [####################....................]  50%" in shown[0]
    assert shown[0].endswith("\r\033[K")


def test_short_work_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 3600.0)
    with terminal() as shown, progress.progress_bar("replaying") as show:
        show(0.5)
    assert shown == [""]


def test_a_pipe_gets_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    assert written.getvalue() == ""


# The bar is shown at once, and work begins when its thread has printed. Files are read one per tick, so that there are
# several ticks.
SCRIPT = """
import functools, sys, threading
from monitor.cli import main, progress_bar as progress, watch
start, printed = threading.Thread.start, threading.Event()
def start_and_wait(thread):
    printed.clear()
    start(thread)
    if thread.name == "working" and not printed.wait(60.0):
        sys.exit("the thread did not print")
def print_and_set(*words, **options):
    print(*words, **options)
    printed.set()
threading.Thread.start = start_and_wait
progress.print = print_and_set
progress._PATIENCE_SECONDS = 0.0
watch.DirectoryOptions = functools.partial(watch.DirectoryOptions, bytes_per_file=1 << 14, bytes_per_tick=1 << 14)
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "calibrate --input validation.csv --class-columns prob_* --model m --output m.ref",
            "reading validation.csv, … replaying the reference [",
        ),
        ("estimate --reference density.ref --input site_b.jsonl", "estimating from 2,000 records"),
        ("evaluate --source validation.csv --target labelled.csv --class-columns prob_*", "evaluating pair 1 of 1"),
        ("check-config config.yaml", "opening the references of 1 models"),
        ("state state", "reading the windows"),
        ("watch {many} --reference density.ref --state {fresh} --once", "reading files ["),
    ],
)
def test_long_commands_show_progress_on_a_terminal(
    words: str, expected: str, example_folder: Path, tmp_path: Path
) -> None:
    """On standard error only, and cleared at the end."""
    for number in range(4):
        (tmp_path / "many").mkdir(exist_ok=True)
        shutil.copy(example_folder / "inbox" / "results.jsonl", tmp_path / "many" / f"{number}.jsonl")
    arguments = words.format(many=tmp_path / "many", fresh=tmp_path / "state").split()
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=example_folder, stdout=subprocess.PIPE, stderr=theirs
    ) as ran:
        os.close(theirs)
        shown = read_all(ours)
        assert ran.stdout is not None
        printed = ran.stdout.read()
    assert ran.returncode == 0, shown
    assert [part for part in expected.split(" … ") if part not in shown.decode()] == []
    assert b"\r\033[K" in shown
    assert b"\033" not in printed


def test_a_closed_stderr_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `cpcmon calibrate … 2>&-`."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", None)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    with progress.working("reading"):
        pass
