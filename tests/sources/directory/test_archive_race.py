"""Another file takes the name of one being archived or deleted: neither is lost."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.sources.directory.directory_access import System
from monitor.sources.directory.directory_options import OnFinish
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]
ARCHIVE = {"on_finish": OnFinish.ARCHIVE, "finish_after_seconds": 60.0, "restat_seconds": 1.0}
DELETE = {"on_finish": OnFinish.DELETE, "finish_after_seconds": 60.0, "restat_seconds": 1.0}
BOTH = pytest.mark.parametrize("options", [ARCHIVE, DELETE], ids=["archive", "delete"])


class Race(System):
    """Runs a callback right before and after a file gets its private name."""

    def __init__(self) -> None:
        self.before: list[Callable[[], object]] = []
        self.after: list[Callable[[], object]] = []

    def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
        """Run the callback, then rename."""
        while self.before:
            self.before.pop()()
        super().rename(name, directory, target, target_directory)
        while self.after:
            self.after.pop()()


def _files(inbox: Inbox) -> list[str]:
    return sorted(file.name for file in inbox.path.iterdir() if file.is_file())


@BOTH
def test_a_file_renamed_over_one_that_is_finished_is_read(watch: Watch, options: dict[str, object]) -> None:
    """It was never examined: it stays, is read, and is archived later."""
    system = Race()
    inbox = watch(system=system, **options)
    file = inbox.write("f.jsonl", "old")
    inbox.poll()
    new = inbox.put(".new", b"new1\nnew2\n")
    system.before.append(lambda: new.replace(file))
    inbox.poll(61)
    inbox.polls(2)
    assert not system.before
    assert inbox.lines == ["old", "new1", "new2"]
    assert _files(inbox) == ["f.jsonl"]
    inbox.polls(10, 30)
    assert _files(inbox) == []
    assert not inbox.counted["finish_errors"]
    assert not inbox.counted["lost_bytes"]


@BOTH
@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_name_taken_meanwhile_is_not_overwritten(
    watch: Watch, options: dict[str, object], monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    """A third file has the name by now: the second gets a similar name, and both are read."""
    if not links:

        def no_link(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "no links here")

        monkeypatch.setattr(os, "link", no_link)
    system = Race()
    inbox = watch(system=system, **options)
    file = inbox.write("f.jsonl", "old")
    inbox.poll()
    second, third = inbox.put(".second", b"second\n"), inbox.put(".third", b"third\n")
    system.before.append(lambda: second.replace(file))
    system.after.append(lambda: third.replace(file))
    inbox.poll(61)
    assert _files(inbox) == ["f-1.jsonl", "f.jsonl"]
    inbox.polls(3)
    assert sorted(inbox.lines) == ["old", "second", "third"]


@BOTH
def test_a_private_name_left_by_a_kill_is_renamed_back(watch: Watch, options: dict[str, object]) -> None:
    """The next start renames the file back."""
    inbox = watch(recursive=True, **options)
    (inbox.path / "in").mkdir()
    file = inbox.write("in/f.jsonl", "old")
    inbox.poll()
    file.unlink()
    inbox.put("in/.cpcmon-0badcafe-f.jsonl", b"new\n")
    inbox.crash()
    inbox.polls(3)
    assert inbox.lines == ["old", "new"]
    assert [found.name for found in file.parent.iterdir()] == ["f.jsonl"]


def test_a_file_that_has_both_names_is_read_once(watch: Watch) -> None:
    """Killed while renaming back: only the original name is left."""
    inbox = watch(**ARCHIVE)
    file = inbox.write("f.jsonl", "one")
    (inbox.path / ".cpcmon-0badcafe-f.jsonl").hardlink_to(file)
    inbox.polls(3)
    assert inbox.lines == ["one"]
    assert _files(inbox) == ["f.jsonl"]


def test_an_error_after_the_private_name_renames_the_file_back(watch: Watch) -> None:
    """The archive is not writable: the file is in place, under its name."""

    class Full(System):
        def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
            if directory != target_directory:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().rename(name, directory, target, target_directory)

    inbox = watch(system=Full(), **ARCHIVE)
    inbox.write("f.jsonl", "one")
    inbox.polls(5, 61)
    assert _files(inbox) == ["f.jsonl"]
    assert inbox.counted["finish_errors"] == 1
    inbox.write("f.jsonl", "two")
    inbox.polls(2)
    assert inbox.lines == ["one", "two"]


@BOTH
def test_names_of_maximal_length_are_archived(watch: Watch, options: dict[str, object]) -> None:
    inbox = watch(**options)
    inbox.write("é" * 124 + ".jsonl", "one")
    inbox.polls(4, 61)
    assert _files(inbox) == []
    assert inbox.counted["files_finished"] == 1


def test_a_file_written_while_it_is_copied_to_another_mount_stays(watch: Watch, tmp_path: Path) -> None:
    """The copy is incomplete: it is removed, and the file stays and is read."""

    class Slow(System):
        def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
            if directory != target_directory:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            super().rename(name, directory, target, target_directory)

        def write(self, file: int, data: bytes) -> int:
            done = super().write(file, data)
            if data == b"one\n":
                inbox.write("f.jsonl", "two")
            return done

    archive = tmp_path / "archive"
    inbox = watch(system=Slow(), archive=archive, **ARCHIVE)
    inbox.write("f.jsonl", "one")
    inbox.poll()
    inbox.poll(61)
    assert _files(inbox) == ["f.jsonl"]
    assert [found for found in archive.rglob("*") if found.is_file()] == []
    inbox.polls(400, 2)
    assert inbox.lines == ["one", "two"]
    assert _files(inbox) == []
