"""The progress bar: on a terminal, for long work, and gone afterwards."""

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
    """Put stderr on a real pseudo-terminal; what it showed is in the list once the terminal is closed."""
    ours, theirs = pty.openpty()
    shown = list[str]()
    with os.fdopen(theirs, "w") as file, redirect_stderr(file):
        yield shown
    shown.append(read_all(ours).decode())


def read_all(ours: int) -> bytes:
    """Return all that a terminal shows until its other end is closed; one read returns as much as has arrived."""
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as file, suppress(OSError):  # whose other end is gone
        while part := file.read(65536):
            shown += part
    return shown


def test_long_work_on_a_terminal_shows_a_bar_that_is_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the share done and the time left."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    with terminal() as shown, progress.progress_bar("replaying") as show:
        show(0.5)
    assert "replaying [####################....................]  50%" in shown[0]
    assert shown[0].endswith("\r\033[K")


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seconds pass before a bar appears."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 3600.0)
    with terminal() as shown, progress.progress_bar("replaying") as show:
        show(0.5)
    assert shown == [""]


def test_a_pipe_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs stay clean."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    assert written.getvalue() == ""


# Patience is over at once, and work begins when the thread that tells has spoken: on a busy machine it would be too late.
# A directory is read a file a stroke, so that there is a second one.
SCRIPT = """
import functools, sys, threading
from monitor.cli import main, progress_bar as progress, watch
start, spoken = threading.Thread.start, threading.Event()
def start_and_listen(thread):
    spoken.clear()
    start(thread)
    if thread.name == "working" and not spoken.wait(60.0):
        sys.exit("the thread that tells did not speak")
def speak(*words, **options):
    print(*words, **options)
    spoken.set()
threading.Thread.start = start_and_listen
progress.print = speak
progress._PATIENCE_SECONDS = 0.0
watch.DirectoryOptions = functools.partial(watch.DirectoryOptions, bytes_per_file=1 << 14, bytes_per_tick=1 << 14)
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
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
def test_every_long_command_says_on_a_terminal_what_it_does_and_leaves_nothing_there(
    words: str, said: str, example_folder: Path, tmp_path: Path
) -> None:
    """The real command, its standard error on a terminal; results go to a pipe and hold nothing of it."""
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
    assert [part for part in said.split(" … ") if part not in shown.decode()] == []
    assert b"\r\033[K" in shown
    assert b"\033" not in printed


def test_long_work_goes_on_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cpcmon calibrate … 2>&-`: Python then has no stderr at all."""
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", None)
    with progress.progress_bar("replaying") as show:
        show(0.5)
    with progress.working("reading"):
        pass
