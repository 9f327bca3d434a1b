"""The state folder is never read."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.sources.directory.directory_access import identity_of
from monitor.sources.directory.directory_options import DirectoryOptions
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]


def _state(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "rejected.jsonl").write_text("ours\n")
    return place


def test_an_excluded_folder_is_not_listed(watch: Watch, tmp_path: Path) -> None:
    """Nor its subfolders, also after a rename; its neighbours are read."""
    state = _state(tmp_path / "inbox" / "day" / "state")
    _state(state / "deeper")
    inbox = watch(recursive=True, never=(identity_of(state),))
    inbox.write("day/a.jsonl", "one")
    assert inbox.polls(3) == ["one"]
    state.rename(inbox.path / "other")
    assert inbox.polls(3) == []
    assert inbox.source.status().waits_for is None
    assert not inbox.counted["files_unreadable"]


def test_links_into_an_excluded_folder_are_refused(watch: Watch, tmp_path: Path) -> None:
    """Even if links are followed."""
    state = _state(tmp_path / "elsewhere" / "state")
    roots = (tmp_path / "elsewhere", state)
    inbox = watch(follow_symlinks=True, symlink_roots=roots, never=(identity_of(state),))
    (inbox.path / "a.jsonl").symlink_to(state / "rejected.jsonl")
    (tmp_path / "elsewhere" / "b.jsonl").write_text("one\n")
    (inbox.path / "b.jsonl").symlink_to(tmp_path / "elsewhere" / "b.jsonl")
    assert inbox.polls(3) == ["one"]
    assert inbox.counted["files_refused"] == 1


def test_an_excluded_directory_is_not_ready(watch: Watch, tmp_path: Path) -> None:
    """If the directory itself is excluded, nothing is read."""
    state = _state(tmp_path / "state")
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as short as it gets
    inbox = watch(state, never=(identity_of(state),))
    assert inbox.polls(5) == []
    assert "EPERM" in str(inbox.source.status().waits_for)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as short as it gets


@pytest.mark.parametrize(
    ("state", "recursive", "expected"),
    [
        ("inbox", False, True),
        ("inbox", True, True),
        ("inbox/../inbox/", False, True),
        ("link", False, True),
        ("inbox/state", False, False),
        ("inbox/state", True, True),
        ("inbox/day/state", True, True),
        ("link/day/state", True, True),
        ("inbox/.state", True, False),
        ("inbox/_ours/state", True, False),
        ("inbox-state", True, False),
        ("state", True, False),
        (".", True, False),
    ],
)
def test_whether_a_folder_would_be_read(tmp_path: Path, state: str, *, recursive: bool, expected: bool) -> None:
    """The directory itself, and subfolders if recursive and not hidden."""
    (tmp_path / "inbox").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "inbox")
    options = DirectoryOptions(tmp_path / "inbox", recursive=recursive)
    assert options.reads_folder(tmp_path / state) is expected
    by_link = DirectoryOptions(tmp_path / "link", recursive=recursive)
    assert by_link.reads_folder(tmp_path / state) is expected
