"""Files of realised accuracies: parsing, caching, and anything else in their place."""

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
    RealisedContent,
    RealisedFiles,
)
from monitor.settings.setting_files import open_file

GOOD = {"at": 1_790_000_000.0, "segment": "all", "records": 1000, "right": 873}


def line(**changes: object) -> str:
    """Return a valid line with some keys replaced."""
    return json.dumps({**GOOD, **changes}) + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A path without a file."""
    return tmp_path / "audit.jsonl"


def test_a_missing_file_is_empty(path: Path) -> None:
    files = RealisedFiles()
    assert files.read(path) == RealisedContent()
    path.write_text(line())
    assert files.read(path) == RealisedContent((Realised(1_790_000_000.0, "all", 1000, 873),))
    path.unlink()
    assert files.read(path) == RealisedContent()


def test_accuracies_are_sorted_by_time(path: Path) -> None:
    path.write_text(line(at=3) + line(at=1, segment="site=A") + line(at=2.5))
    assert [one.at for one in RealisedFiles().read(path).accuracies] == [1, 2.5, 3]


def test_a_later_line_replaces_an_earlier_one(path: Path) -> None:
    """With the same time and segment."""
    path.write_text(line(right=1) + line(segment="site=A", right=2) + line(right=3))
    assert [(one.segment, one.right) for one in RealisedFiles().read(path).accuracies] == [("site=A", 2), ("all", 3)]


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
def test_an_invalid_line_is_skipped_and_counted(path: Path, bad: str) -> None:
    """The remark quotes nothing from the file."""
    path.write_text(line(at=1) + bad + line(at=2))
    content = RealisedFiles().read(path)
    assert [one.at for one in content.accuracies] == [1, 2]
    assert content.remark == "realised: 1 invalid line"


def test_the_bounds_are_inclusive(path: Path) -> None:
    """One record, none right, all right, the longest name, the earliest time; unknown keys are ignored."""
    path.write_text(
        line(records=1, right=0, at=0)
        + line(records=1, right=1, at=1)
        + line(segment="x" * LONGEST_SEGMENT, at=2, auditor="radiology")
    )
    content = RealisedFiles().read(path)
    assert (len(content.accuracies), content.remark) == (3, None)
    assert [one.accuracy for one in content.accuracies] == [0.0, 1.0, 0.873]


@given(st.binary(max_size=200))
def test_any_bytes_can_be_parsed(raw: bytes) -> None:
    """Every line is accepted, counted, empty, or the incomplete last one."""
    content = realised_file._parse(raw, is_whole=True)  # noqa: SLF001
    lines = [one for one in raw.split(b"\n") if one.strip()]
    bad = 0 if content.remark is None else int(content.remark.split()[1])
    assert len(content.accuracies) + bad <= len(lines)


def test_an_incomplete_last_line_is_not_an_error(path: Path) -> None:
    """A complete line without a newline counts."""
    files = RealisedFiles()
    path.write_text(line(at=1) + line(at=2)[:20])
    assert files.read(path) == RealisedContent((Realised(1, "all", 1000, 873),))
    path.write_text(line(at=1) + line(at=2).rstrip())
    assert [one.at for one in files.read(path).accuracies] == [1, 2]


def test_only_the_end_of_a_long_file_is_read(path: Path) -> None:
    """The line that is cut is not an error."""
    lines = [line(at=at, segment="x" * 100) for at in range(20_000)]
    assert sum(map(len, lines)) > MOST_BYTES
    path.write_text("".join(lines))
    content = RealisedFiles().read(path)
    assert [one.at for one in content.accuracies] == list(range(20_000 - MOST_KEPT, 20_000))
    assert content.remark is None


def test_a_file_without_newlines_is_empty(path: Path) -> None:
    path.write_bytes(b"x" * (3 * MOST_BYTES))
    assert RealisedFiles().read(path) == RealisedContent()


def test_a_file_is_parsed_again_only_when_it_changed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appended to, or replaced by another file of the same size and time."""
    reads = []
    content = realised_file._parse  # noqa: SLF001

    def counted(raw: bytes, *, is_whole: bool) -> RealisedContent:
        reads.append(len(raw))
        return content(raw, is_whole=is_whole)

    monkeypatch.setattr(realised_file, "_parse", counted)
    files = RealisedFiles()
    path.write_text(line(at=1))
    assert files.read(path) is files.read(path)
    assert len(reads) == 1
    with path.open("a") as more:
        more.write(line(at=2))
    assert [one.at for one in files.read(path).accuracies] == [1, 2]
    before = path.stat()
    other = path.with_name("other")
    other.write_text(path.read_text().replace("873", "900"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert [one.right for one in files.read(path).accuracies] == [900, 900]
    assert len(reads) == 3


@pytest.mark.parametrize("what", ["fifo", "directory", "loop", "device", "below a file", "nul"])
def test_anything_but_a_file_is_a_remark(path: Path, what: str) -> None:
    """It neither blocks nor fails, and the remark does not contain the name."""
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
    content: list[RealisedContent] = []
    thread = threading.Thread(target=lambda: content.append(RealisedFiles().read(path)), daemon=True)
    thread.start()
    thread.join(60.0)
    ((remark, accuracies),) = [(one.remark, one.accuracies) for one in content]
    assert remark is not None
    assert remark.startswith("realised: expected a file, found ")
    assert "audit" not in remark
    assert accuracies == ()


def test_a_fifo_is_not_read(path: Path) -> None:
    os.mkfifo(path)
    writer = subprocess.Popen(["/bin/sh", "-c", 'echo {} > "$0"', str(path)])
    try:
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        assert RealisedFiles().read(path).remark == "realised: expected a file, found a pipe or a device"
        deadline = time.monotonic() + 60.0
        content = b""
        while content != b"{}\n" and time.monotonic() < deadline:
            content += os.read(reader, 100) if writer.poll() is not None else b""
        os.close(reader)
        assert content == b"{}\n"
    finally:
        writer.kill()
        writer.wait()


def test_files_of_earlier_configurations_are_dropped(tmp_path: Path) -> None:
    files = RealisedFiles()
    for number in range(250):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(line(right=number))
        assert [one.right for one in files.read(path).accuracies] == [number]
    assert len(files._parsed) <= 100  # noqa: SLF001
    assert files.read(None) == RealisedContent()


def test_a_hanging_disk_blocks_one_reader_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a dead network share would block every thread of the web server."""
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
    content = [files.read(path) for path in (hanging, well)]
    hung = [reader.is_alive() for reader in readers]
    answers.set()
    for reader in readers:
        reader.join(60.0)
    assert hung.count(True) == 1
    assert content[0] == RealisedContent(remark="realised: expected a file, found one that is slow to open")
    assert len(content[1].accuracies) == 1, "the last content is still returned"
    assert len(files.read(hanging).accuracies) == 1
