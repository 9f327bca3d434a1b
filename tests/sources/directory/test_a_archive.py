"""Files that were read: kept, archived or deleted, and never lost."""

import errno
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.errors import UsageError
from monitor.sources.directory.directory_access import System
from monitor.sources.directory.directory_options import DirectoryOptions, OnFinish
from tests.servers import needs_root, real_server
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]
ARCHIVE = {"on_finish": OnFinish.ARCHIVE, "finish_after_seconds": 60.0, "restat_seconds": 1.0}
DELETE = {"on_finish": OnFinish.DELETE, "finish_after_seconds": 60.0, "restat_seconds": 1.0}


def _archived(inbox: Inbox, folder: str = ".done") -> list[str]:
    return sorted(file.name for file in (inbox.path / folder).rglob("*") if file.is_file())


def test_files_are_archived_by_day(watch: Watch) -> None:
    """After an hour without a change; files with unread or incomplete lines stay."""
    inbox = watch(**ARCHIVE)
    inbox.write("f.jsonl", "one")
    inbox.put("g.npy", b"two\nEND\n")
    inbox.put("half.jsonl", b"three\nunfinished")
    assert sorted(inbox.polls(5)) == ["one", "three", "two"]
    assert _archived(inbox) == []
    inbox.polls(10, 30)
    assert _archived(inbox) == ["f.jsonl", "g.npy"]
    assert (inbox.path / ".done" / "2027-01-15" / "f.jsonl").exists()
    assert (inbox.path / "half.jsonl").exists()
    assert inbox.counted["files_finished"] == 2
    assert not inbox.counted["files_gone"]
    inbox.polls(10, 30)
    assert len(inbox.committed) == 1


def test_nothing_is_archived_before_it_is_committed(watch: Watch) -> None:
    """Without an acknowledgement, files stay and are delivered again."""
    inbox = watch(on_finish=OnFinish.ARCHIVE, finish_after_seconds=0.0)
    inbox.write("f.jsonl", "one")
    for _ in range(3):
        assert [one.batch.rows for one in inbox.peek() if one.batch.rows] == [1]
        inbox.source.roll_back()
    assert (inbox.path / "f.jsonl").exists()
    inbox.polls(3)
    assert _archived(inbox) == ["f.jsonl"]
    assert inbox.lines == ["one"]


def test_files_are_deleted_if_configured(watch: Watch) -> None:
    """A failed file has unread records, and stays."""
    inbox = watch(**DELETE)
    inbox.write("f.jsonl", "one")
    inbox.write("g.jsonl", "POISON")
    inbox.polls(10, 30)
    assert sorted(file.name for file in inbox.path.iterdir()) == ["g.jsonl"]
    assert not inbox.counted["files_gone"]


def test_with_keep_files_are_never_touched(inbox: Inbox) -> None:
    """By default nothing is moved, deleted or created."""
    inbox.write("f.jsonl", "one")
    inbox.write("g.jsonl", "POISON")
    inbox.polls(20, 4000)
    assert sorted(file.name for file in inbox.path.iterdir()) == ["f.jsonl", "g.jsonl"]


@pytest.mark.parametrize("options", [ARCHIVE, DELETE], ids=["archive", "delete"])
def test_a8_lines_written_after_archiving_are_read(watch: Watch, options: dict[str, object]) -> None:
    """The writer holds the file open: late lines are read for a while, later ones counted."""
    inbox = watch(**options)
    file = inbox.write("f.jsonl", "one")
    with file.open("a") as writer:
        inbox.polls(2, 61)
        assert not file.exists()
        writer.write("late\n")
        writer.flush()
        assert inbox.poll() == ["late"]
        assert inbox.counted["late_bytes"] == 5
        inbox.write("f.jsonl", "a new file of the same name")
        assert inbox.poll() == ["a new file of the same name"]
        writer.write("half")
        writer.flush()
    inbox.poll(100)
    assert inbox.counted["lost_bytes"] == 4
    inbox.polls(5, 30)
    assert len(inbox.lines) == 3


def test_a8_lines_appended_to_a_kept_file_are_read(inbox: Inbox) -> None:
    """With `keep`, a file is checked for ever."""
    file = inbox.write("f.jsonl", "one")
    with file.open("a") as writer:
        inbox.polls(5, 4000)
        writer.write("late\n")
    assert inbox.polls(31) == ["late"]


def test_a8_uncommitted_late_lines_are_delivered_again(watch: Watch) -> None:
    inbox = watch(**ARCHIVE)
    file = inbox.write("f.jsonl", "one")
    with file.open("a") as writer:
        inbox.polls(2, 61)
        inbox.poll()
        writer.write("late\n")
        writer.flush()
        inbox.peek()
        inbox.source.roll_back()
        assert inbox.poll() == ["late"]


class ReadOnly(System):
    """Fails to rename, and optionally to write."""

    def __init__(self, number: int, full: int = 0) -> None:
        self.number, self.full, self.renames = number, full, 0

    def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
        """Fail."""
        self.renames += 1
        if self.number and (self.number != errno.EXDEV or directory != target_directory):
            raise OSError(self.number, os.strerror(self.number), name)
        super().rename(name, directory, target, target_directory)

    def write(self, file: int, data: bytes) -> int:
        """Write half, then fail."""
        if self.full:
            super().write(file, data[: len(data) // 2])
            raise OSError(self.full, os.strerror(self.full))
        return super().write(file, data[:3])


def test_a27_in_a_read_only_directory_archive_works_as_keep(watch: Watch) -> None:
    """One event, and files are read as usual."""
    system = ReadOnly(errno.EROFS)
    inbox = watch(system=system, **ARCHIVE)
    for number in range(20):
        inbox.write(f"ZZPATIENT{number}.jsonl", "one")
    inbox.polls(100, 30)
    inbox.write("more.jsonl", "two")
    assert inbox.poll() == ["two"]
    assert len(list(inbox.path.glob("ZZ*"))) == 20
    assert len(inbox.warnings) == 1
    assert "EROFS" in inbox.warnings[0]
    assert "ZZPATIENT" not in inbox.warnings[0]
    assert 0 < inbox.counted["finish_errors"] <= 12


def test_a27_a_really_read_only_directory(watch: Watch, tmp_path: Path) -> None:
    """On a read-only mount."""
    needs_root("mount read-only")
    folder = tmp_path / "mounted"
    folder.mkdir()
    (folder / "f.jsonl").write_text("one\n")
    for words in (["--bind", str(folder), str(folder)], ["-o", "remount,ro,bind", str(folder)]):
        if subprocess.run([real_server("mount"), *words], capture_output=True, check=False).returncode:
            pytest.skip("LOUD: cannot mount read-only here; only injected")
    try:
        inbox = watch(folder, **ARCHIVE)
        assert inbox.polls(10, 30) == ["one"]
        assert "EROFS" in inbox.warnings[0]
        assert len(inbox.warnings) == 1
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def test_a28_an_archive_on_another_mount_receives_a_copy(watch: Watch, tmp_path: Path) -> None:
    """A rename is impossible: the file is copied, compared, and removed last."""
    archive = tmp_path / "archive"
    inbox = watch(system=ReadOnly(errno.EXDEV), archive=archive, **ARCHIVE)
    inbox.write("f.jsonl", "one", "two")
    inbox.polls(5, 30)
    assert not (inbox.path / "f.jsonl").exists()
    assert (archive / "2027-01-15" / "f.jsonl").read_text() == "one\ntwo\n"
    assert [file.name for file in archive.rglob("*") if file.is_file()] == ["f.jsonl"]


def test_a28_a29_an_archive_on_a_real_other_mount(watch: Watch, tmp_path: Path) -> None:
    """A tmpfs of 64 kB: what fits is moved; the rest stays, without partial copies."""
    needs_root("mount a tmpfs")
    archive = tmp_path / "archive"
    archive.mkdir()
    command = [real_server("mount"), "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(archive)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("LOUD: cannot mount a tmpfs here; only injected")
    try:
        inbox = watch(archive=archive, **ARCHIVE)
        inbox.write("small.jsonl", "one")
        big = inbox.write("big.jsonl", *["x" * 999] * 200)
        inbox.polls(10, 30)
        inbox.poll(400)
        inbox.polls(5, 30)
        assert big.stat().st_size == 200_000
        assert [file.name for file in archive.rglob("*") if file.is_file()] == ["small.jsonl"]
        assert any("ENOSPC" in warning for warning in inbox.warnings)
    finally:
        subprocess.run(["umount", str(archive)], check=False)


def test_a29_when_the_archive_is_full_the_source_stays(watch: Watch, tmp_path: Path) -> None:
    """The copy fails half way: the file stays, without a partial copy, and is archived later."""
    archive = tmp_path / "archive"
    system = ReadOnly(errno.EXDEV, errno.ENOSPC)
    inbox = watch(system=system, archive=archive, **ARCHIVE)
    file = inbox.write("f.jsonl", "one")
    inbox.polls(5, 30)
    assert file.read_text() == "one\n"
    assert [found for found in archive.rglob("*") if found.is_file()] == []
    system.full = 0
    inbox.polls(40, 30)
    assert not file.exists()
    assert len([found for found in archive.rglob("*") if found.is_file()]) == 1


def test_a30_a_duplicate_name_in_the_archive_gets_a_number(watch: Watch) -> None:
    """Nothing is overwritten."""
    inbox = watch(**ARCHIVE)
    for text in ("one", "two", "three"):
        inbox.write("f.jsonl", text)
        inbox.polls(5, 30)
    day = inbox.path / ".done" / "2027-01-15"
    assert {file.name: file.read_text() for file in day.iterdir()} == {
        "f.jsonl": "one\n",
        "f.jsonl.1": "two\n",
        "f.jsonl.2": "three\n",
    }
    assert inbox.lines == ["one", "two", "three"]


def test_failed_files_are_archived_separately_with_a_reason(watch: Watch) -> None:
    """It moves to `.failed`, with a reason file."""
    inbox = watch(**ARCHIVE)
    inbox.write("f.jsonl", "POISON")
    inbox.put("g.npy", b"damaged")
    inbox.polls(20, 30)
    assert _archived(inbox, ".failed") == ["f.jsonl", "f.jsonl.reason.json", "g.npy", "g.npy.reason.json"]
    reason = json.loads((inbox.path / ".failed" / "g.npy.reason.json").read_text())
    assert reason["reason"] == "bad_file"


def test_d13_archived_names_have_no_folder(watch: Watch) -> None:
    """Files of subfolders are archived under their last part; nothing leads out of the archive."""
    inbox = watch(recursive=True, **ARCHIVE)
    for folder in ("a", "b"):
        (inbox.path / folder).mkdir()
        inbox.write(f"{folder}/f.jsonl", folder)
    inbox.polls(5, 30)
    assert _archived(inbox) == ["f.jsonl", "f.jsonl.1"]


@pytest.mark.parametrize("archive", [None, ".old/done"])
def test_d13_a_link_in_place_of_the_archive_is_not_followed(watch: Watch, tmp_path: Path, archive: str | None) -> None:
    """Files stay, with an event."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    inside = {} if archive is None else {"archive": tmp_path / "inbox" / archive}
    inbox = watch(**ARCHIVE, **inside)
    (inbox.path / (".done" if archive is None else ".old")).symlink_to(elsewhere)
    inbox.write("f.jsonl", "one")
    assert inbox.polls(5, 30) == ["one"]
    assert list(elsewhere.iterdir()) == []
    assert (inbox.path / "f.jsonl").exists()
    assert len(inbox.warnings) == 1


def test_markers_are_archived_with_their_files(watch: Watch) -> None:
    inbox = watch(completion_marker=True, **ARCHIVE)
    inbox.put("g.npy", b"two\nEND\n")
    inbox.put("g.npy.ok", b"")
    inbox.polls(5, 30)
    assert _archived(inbox) == ["g.npy", "g.npy.ok"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"poll_seconds": 0.1}, "poll_seconds: expected a number from 0.2 to 300, found 0.1", id="often"),
        pytest.param({"poll_seconds": True}, "poll_seconds: expected a number", id="no number"),
        pytest.param({"max_line_bytes": 3}, "max_line_bytes: expected a number from 64", id="short lines"),
        pytest.param({"pattern": "a/b"}, "pattern: expected a file name with * and ?", id="slash"),
        pytest.param({"pattern": ""}, "pattern: expected a file name", id="no pattern"),
        pytest.param({"follow_symlinks": True}, "symlink_roots: expected at least one folder", id="no roots"),
        pytest.param({"archive": Path("/x")}, "archive: expected on_finish: archive beside it", id="useless archive"),
        pytest.param(
            {"archive": Path("/in/done"), "on_finish": OnFinish.ARCHIVE, "recursive": True},
            "archive: expected a folder outside the watched one",
            id="archive is watched",
        ),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, object], message: str) -> None:
    """Where, expected, found."""
    with pytest.raises(UsageError) as caught:
        DirectoryOptions(Path("/in"), **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
