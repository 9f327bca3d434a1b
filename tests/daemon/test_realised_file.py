"""Accuracies from late labels: what a file of them says, and that nothing in its place can hurt."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.core.report import Realised
from monitor.daemon import realised_file
from monitor.daemon.realised_file import (
    LONGEST_SEGMENT,
    MOST_BYTES,
    MOST_KEPT,
    RealisedFile,
    RealisedFiles,
    RealisedProblem,
)
from monitor.settings.setting_files import open_file

GOOD = {"at": 1_790_000_000.0, "segment": "all", "records": 1000, "right": 873}


def line(**changes: object) -> str:
    """Return a line as an audit writes it, with some keys otherwise."""
    return json.dumps({**GOOD, **changes}) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where nothing is yet."""
    return tmp_path / "audit.jsonl"


def test_what_is_not_there_yet_says_nothing(path: Path) -> None:
    """And is no mistake; once it is there, it is read."""
    file = RealisedFile(path)
    assert file.read() == RealisedProblem()
    path.write_text(line())
    assert file.read() == RealisedProblem((Realised(1_790_000_000.0, "all", 1000, 873),))
    path.unlink()
    assert file.read() == RealisedProblem()


def test_the_oldest_comes_first(path: Path) -> None:
    """Whatever the order of the lines."""
    path.write_text(line(at=3) + line(at=1, segment="site=A") + line(at=2.5))
    assert [one.at for one in RealisedFile(path).read().accuracies] == [1, 2.5, 3]


def test_a_line_that_is_written_again_takes_the_place_of_the_one_before(path: Path) -> None:
    """The same time and segment: somebody corrected it. Another segment is another line."""
    path.write_text(line(right=1) + line(segment="site=A", right=2) + line(right=3))
    assert [(one.segment, one.right) for one in RealisedFile(path).read().accuracies] == [("site=A", 2), ("all", 3)]


@pytest.mark.parametrize(
    "bad",
    [
        line(records=0, right=0),
        line(right=1001),
        line(right=-1),
        line(records=10**16, right=0),
        line(records=1000.5),
        line(records=True),
        line(records="1000"),
        line(at=-1.0),
        line(at=1e300),
        line(at=None),
        line(at="2026-11-16"),
        line().replace("1790000000.0", "NaN"),
        line().replace("1790000000.0", "1e999"),
        line().replace("1790000000.0", "Infinity"),
        line(segment=""),
        line(segment="x" * (LONGEST_SEGMENT + 1)),
        line(segment="a\u0000b"),
        line(segment="a\nb"),
        line(segment=["all"]),
        '{"at": 1, "segment": "all", "records": 5}\n',
        "[1, 2]\n",
        "at,segment,records,right\n",
        "[" * 100_000 + "\n",
        "null\n",
    ],
)
def test_a_bad_line_is_passed_over_and_counted(path: Path, bad: str) -> None:
    """The others still count, and the remark repeats nothing."""
    path.write_text(line(at=1) + bad + line(at=2))
    told = RealisedFile(path).read()
    assert [one.at for one in told.accuracies] == [1, 2]
    assert told.remark == "realised: 1 line could not be understood"


def test_the_bounds_themselves_are_allowed(path: Path) -> None:
    """One record, none right, all right, the longest name, the earliest time; keys that are not known."""
    path.write_text(
        line(records=1, right=0, at=0)
        + line(records=1, right=1, at=1)
        + line(segment="x" * LONGEST_SEGMENT, at=2, auditor="radiology")
    )
    told = RealisedFile(path).read()
    assert (len(told.accuracies), told.remark) == (3, None)
    assert [one.accuracy for one in told.accuracies] == [0.0, 1.0, 0.873]


@given(st.binary(max_size=200))
def test_any_bytes_are_survived(raw: bytes) -> None:
    """Every line is taken, or counted, or empty, or the unfinished last one."""
    told = realised_file._told(raw, is_whole=True)  # noqa: SLF001
    lines = [one for one in raw.split(b"\n") if one.strip()]
    bad = 0 if told.remark is None else int(told.remark.split()[1])
    assert len(told.accuracies) + bad <= len(lines)


def test_a_last_line_that_is_being_written_is_no_mistake(path: Path) -> None:
    """It is read when it is whole; one that is whole but for the newline counts at once."""
    file = RealisedFile(path)
    path.write_text(line(at=1) + line(at=2)[:20])
    assert file.read() == RealisedProblem((Realised(1, "all", 1000, 873),))
    path.write_text(line(at=1) + line(at=2).rstrip())
    assert [one.at for one in file.read().accuracies] == [1, 2]


def test_only_the_end_of_a_long_file_is_read(path: Path) -> None:
    """At most so many bytes and so many lines; the line that is cut is no mistake."""
    lines = [line(at=at, segment="x" * 100) for at in range(20_000)]
    assert sum(map(len, lines)) > MOST_BYTES
    path.write_text("".join(lines))
    told = RealisedFile(path).read()
    assert [one.at for one in told.accuracies] == list(range(20_000 - MOST_KEPT, 20_000))
    assert told.remark is None


def test_a_long_line_without_an_end_costs_no_more(path: Path) -> None:
    """A file of something else altogether says nothing."""
    path.write_bytes(b"x" * (3 * MOST_BYTES))
    assert RealisedFile(path).read() == RealisedProblem()


def test_it_is_read_again_only_when_it_has_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appended to, or replaced by another file of the same size and time."""
    reads = []
    told = realised_file._told  # noqa: SLF001

    def counted(raw: bytes, *, is_whole: bool) -> RealisedProblem:
        reads.append(len(raw))
        return told(raw, is_whole=is_whole)

    monkeypatch.setattr(realised_file, "_told", counted)
    file = RealisedFile(path)
    path.write_text(line(at=1))
    assert file.read() is file.read()
    assert len(reads) == 1
    with path.open("a") as more:
        more.write(line(at=2))
    assert [one.at for one in file.read().accuracies] == [1, 2]
    before = path.stat()
    other = path.with_name("other")
    other.write_text(path.read_text().replace("873", "900"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert [one.right for one in file.read().accuracies] == [900, 900]
    assert len(reads) == 3


@pytest.mark.parametrize("what", ["fifo", "directory", "loop", "device", "below a file", "nul"])
def test_what_is_no_file_is_remarked_on(path: Path, what: str) -> None:
    """No page waits for it, none fails, and its name is not told. A thread asks, so that a test could not hang."""
    if what == "fifo":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "below a file":
        path.write_text("")
        path = path / "audit.jsonl"
    else:
        path = path / "a\0b"
    told: list[RealisedProblem] = []
    thread = threading.Thread(target=lambda: told.append(RealisedFile(path).read()), daemon=True)
    thread.start()
    thread.join(60.0)
    ((remark, accuracies),) = [(one.remark, one.accuracies) for one in told]
    assert remark is not None
    assert remark.startswith("realised: expected a file, found ")
    assert "audit" not in remark
    assert accuracies == ()


def test_a_fifo_that_somebody_writes_to_is_left_alone(path: Path) -> None:
    """What is in it is not taken away from whoever it is meant for."""
    os.mkfifo(path)
    writer = subprocess.Popen(["/bin/sh", "-c", 'echo {} > "$0"', str(path)])
    try:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        assert RealisedFile(path).read().remark == "realised: expected a file, found a pipe or a device"
        deadline = time.monotonic() + 60.0
        content = b""
        while content != b"{}\n" and time.monotonic() < deadline:
            content += os.read(reader, 100) if writer.poll() is not None else b""
        os.close(reader)
        assert content == b"{}\n"
    finally:
        writer.kill()
        writer.wait()


def test_files_of_configurations_before_are_let_go(tmp_path: Path) -> None:
    """However often another path is asked for, no more than so many are kept, and each still answers."""
    files = RealisedFiles()
    for number in range(250):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(line(right=number))
        assert [one.right for one in files.read(path).accuracies] == [number]
    assert len(files._files) <= 100  # noqa: SLF001
    assert files.read(None) == RealisedProblem()


def test_a_disk_that_hangs_holds_up_one_reader_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a share that went away would take every thread that answers, the metrics page's among them."""
    answers = threading.Event()
    hanging, well = tmp_path / "hanging.jsonl", tmp_path / "well.jsonl"
    well.write_text(line())
    hanging.write_text(line())
    files = RealisedFiles()
    assert len(files.read(well).accuracies) == 1

    def opened(path: Path) -> BinaryIO:
        assert answers.wait(60.0)
        return open_file(path)

    monkeypatch.setattr(realised_file, "open_file", opened)
    readers = [threading.Thread(target=files.read, args=(hanging,), daemon=True) for _ in range(2)]
    for reader in readers:
        reader.start()
    told = [files.read(path) for path in (hanging, well)]
    hung = [reader.is_alive() for reader in readers]
    answers.set()
    for reader in readers:
        reader.join(60.0)
    assert hung.count(True) == 1
    assert told[0] == RealisedProblem(remark="realised: expected a file, found one that takes long to open")
    assert len(told[1].accuracies) == 1, "what was read before is still told"
    assert len(files.read(hanging).accuracies) == 1
