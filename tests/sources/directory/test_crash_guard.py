"""Input that kills the process is detected; random crashes are not blamed on input."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitor.sources.directory.poll_context import CrashGuard, survives

ROOT = Path(__file__).resolve().parents[3]
BATCH = (b"k" * 16, 4096)

WATCH = """
import os, pickle, sys
from pathlib import Path
from monitor.sources.directory.poll_context import CrashGuard
from tests.sources.directory.inbox import Inbox, LineDecoder

class Poisoned(LineDecoder):
    def text(self, piece):
        if b"KILL" in piece.data:
            os._exit(7)
        return super().text(piece)

    def settled(self, where, file, format_, *, skip=0):
        for piece in super().settled(where, file, format_, skip=skip):
            if any(b"KILL" in line for line in piece.lines):
                os._exit(7)
            yield piece

folder, state = Path(sys.argv[1]), Path(sys.argv[2])
inbox = Inbox(folder)
inbox.guard = CrashGuard(state / "guard")
inbox.decoder = Poisoned()
if (state / "positions").exists():
    inbox.committed, inbox.lines, inbox.counted = pickle.loads((state / "positions").read_bytes())
inbox.crash()
for _ in range(6):
    for delivery in inbox.peek():
        inbox.commit([delivery])
        (state / "positions").write_bytes(pickle.dumps((inbox.committed, inbox.lines, inbox.counted)))
print(inbox.lines, inbox.counted["files_failed"])
"""


def _run(folder: Path, state: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WATCH, str(folder), str(state)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "poison",
    [("b.jsonl", b"one\nKILL\n"), ("b.npy", b"1\n2\n3\nKILL\n5\nEND\n")],
    ids=["text", "settled"],
)
def test_b19_a_file_that_kills_the_process_fails_after_three_crashes(tmp_path: Path, poison: tuple[str, bytes]) -> None:
    """Three starts die on the same block; the fourth tries it in a child, fails the file and reads the others."""
    folder, state = tmp_path / "inbox", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    (folder / "a.jsonl").write_bytes(b"before\n")
    (folder / poison[0]).write_bytes(poison[1])
    (folder / "c.jsonl").write_bytes(b"after\n")
    codes = [_run(folder, state).returncode for _ in range(3)]
    assert codes == [7, 7, 7]
    for _ in range(2):
        done = _run(folder, state)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.strip()
        assert "before" in lines
        assert "after" in lines
        assert "KILL" not in lines
        assert lines.endswith(" 1")


def test_a_leftover_note_is_a_crash(tmp_path: Path) -> None:
    """A block in flight at the end of the process is suspected at the next start."""
    for deaths in range(1, 5):
        guard = CrashGuard(tmp_path / "guard")
        guard.note(b"o" * 16, 0)
        guard.clear(b"o" * 16, 0)
        guard.note(*BATCH)
        guard.close()
        again = CrashGuard(tmp_path / "guard")
        assert again.crashes(*BATCH) == deaths
        assert again.crashes(b"o" * 16, 0) == 0
        again.close()


def test_a_decoded_block_is_no_longer_suspected(tmp_path: Path) -> None:
    """Also for the next start."""
    for _ in range(2):
        guard = CrashGuard(tmp_path / "guard")
        guard.note(*BATCH)
        guard.close()
    guard = CrashGuard(tmp_path / "guard")
    guard.note(*BATCH)
    guard.clear(*BATCH)
    assert guard.crashes(*BATCH) == 0
    guard.close()
    guard = CrashGuard(tmp_path / "guard")
    assert guard.crashes(*BATCH) == 0
    guard.close()


def test_random_crashes_do_not_fail_a_good_file(tmp_path: Path) -> None:
    """It is tried in a child first, and read if that survives."""
    for _ in range(5):
        guard = CrashGuard(tmp_path / "guard")
        guard.note(*BATCH)
        guard.close()
    guard = CrashGuard(tmp_path / "guard")
    assert guard.crashes(*BATCH) == 5
    assert not guard.kills(*BATCH, lambda: None)
    assert guard.kills(*BATCH, lambda: os.kill(os.getpid(), signal.SIGKILL))
    guard.close()


def test_a_child_that_raises_survives_and_one_that_hangs_does_not() -> None:
    """A child that hangs is killed."""
    assert survives(lambda: 1 / 0, 10)
    assert not survives(lambda: os._exit(3), 10)
    assert not survives(lambda: time.sleep(60), 0.1)


@pytest.mark.parametrize("content", [b"", b"\1", b"\xff" * 500, b"\1" + b"x" * 1000])
def test_a_damaged_note_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "guard").write_bytes(content)
    guard = CrashGuard(tmp_path / "guard")
    guard.note(*BATCH)
    guard.clear(*BATCH)
    guard.close()
    assert (tmp_path / "guard").stat().st_size < 1100


def test_the_number_of_suspects_is_limited(tmp_path: Path) -> None:
    """The oldest are dropped."""
    for number in range(40):
        guard = CrashGuard(tmp_path / "guard")
        guard.note(b"%016d" % number, number)
        guard.close()
    guard = CrashGuard(tmp_path / "guard")
    assert guard.crashes(b"%016d" % 39, 39) == 1
    assert guard.crashes(b"%016d" % 0, 0) == 0
    guard.close()


def test_the_note_is_private(tmp_path: Path) -> None:
    """Mode 0600 whatever the umask."""
    before = os.umask(0)
    try:
        CrashGuard(tmp_path / "guard").close()
    finally:
        os.umask(before)
    assert (tmp_path / "guard").stat().st_mode & 0o777 == 0o600
