"""Checkpoints without a file: how long they wait for one of another name."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.sources.base import Delivery
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]
UP_SECONDS = 100_000.0
"""Uptime: the monotonic clock does not start at 0."""


def _nothing(*_: object) -> Iterator[Delivery]:
    return iter(())


def _truncated_unread(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy and truncate a file whose last lines were listed, but not read."""
    inbox.clock = UP_SECONDS
    file = inbox.write("f.jsonl", "1", "2")
    inbox.poll()
    with monkeypatch.context() as patch:
        patch.setattr(inbox.source, "_read_unread", _nothing)
        inbox.write("f.jsonl", "3", "4")
        shutil.copy(file, f"{file}.1")
        inbox.poll()
        os.truncate(file, 0)
        inbox.poll()


def test_after_a_restart_checkpoints_wait_as_long(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the truncation and the next poll: the unread lines of the copy are found."""
    _truncated_unread(inbox, monkeypatch)
    inbox.crash()
    inbox.write("f.jsonl", "5")
    inbox.polls(4)
    assert sorted(inbox.lines) == ["1", "2", "3", "4", "5"]


def test_checkpoints_wait_from_the_first_listing(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is missing for an hour after the restart: that time does not count."""
    _truncated_unread(inbox, monkeypatch)
    inbox.crash()
    away = inbox.path.rename(inbox.path.with_name("away"))
    inbox.polls(4, 900)
    away.rename(inbox.path)
    inbox.write("f.jsonl", "5")
    inbox.polls(4)
    assert sorted(inbox.lines) == ["1", "2", "3", "4", "5"]


def test_after_a_restart_checkpoints_do_not_wait_for_ever(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A copy that appears long after the restart is an unrelated file."""
    _truncated_unread(inbox, monkeypatch)
    (inbox.path / "f.jsonl.1").rename(tmp_path / "copy")
    inbox.crash()
    inbox.polls(4, 300)
    (tmp_path / "copy").rename(inbox.path / "f.jsonl.1")
    inbox.polls(4)
    assert sorted(inbox.lines) == ["1", "2"]
