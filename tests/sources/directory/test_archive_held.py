"""Archived files that are held open for late writes: how many, how long, and what is lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.sources.directory.directory_access import System
from monitor.sources.directory.directory_options import OnFinish
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]
ARCHIVE = {"on_finish": OnFinish.ARCHIVE, "finish_after_seconds": 60.0, "restat_seconds": 1.0}
DELETE = {"on_finish": OnFinish.DELETE, "finish_after_seconds": 60.0, "restat_seconds": 1.0}
HELD = 16


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _left(inbox: Inbox) -> list[str]:
    return sorted(file.name for file in inbox.path.iterdir() if file.is_file())


@pytest.mark.parametrize("options", [ARCHIVE, DELETE], ids=["archive", "delete"])
def test_few_finished_files_are_held_open(watch: Watch, options: dict[str, object]) -> None:
    """A thousand files archived at once need sixteen descriptors, and none after a minute."""
    inbox = watch(**options)
    before = _open_files()
    for number in range(1000):
        inbox.write(f"f{number}.jsonl", "one")
    most = 0
    for _ in range(8):
        inbox.poll(20)
        most = max(most, _open_files())
    assert _left(inbox) == []
    assert inbox.counted["files_finished"] == 1000
    assert most <= before + HELD
    inbox.polls(4, 30)
    assert _open_files() == before
    assert inbox.committed == {}


def test_a_held_file_with_unread_bytes_is_not_released(watch: Watch) -> None:
    """However many files are archived after it, its late lines are read first."""

    class Late(System):
        def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
            if name == "f01.jsonl":
                writer.write("late\n")
                writer.flush()
            super().rename(name, directory, target, target_directory)

    inbox = watch(system=Late(), **DELETE)
    for number in range(100):
        inbox.write(f"f{number:02}.jsonl", "one")
    with (inbox.path / "f00.jsonl").open("a") as writer:
        inbox.poll()
        inbox.poll(61)
        inbox.polls(3)
    assert inbox.lines.count("late") == 1
    assert inbox.counted["files_finished"] == 100
    assert not inbox.counted["lost_bytes"]


def test_whole_files_are_not_held(watch: Watch) -> None:
    inbox = watch(**DELETE)
    inbox.put("f.npy", b"one\nEND\n")
    inbox.polls(10)
    before = _open_files()
    inbox.polls(2, 61)
    assert _left(inbox) == []
    assert _open_files() == before


@pytest.mark.parametrize("options", [ARCHIVE, DELETE], ids=["archive", "delete"])
def test_files_of_an_idle_directory_are_archived(watch: Watch, options: dict[str, object]) -> None:
    """Without deliveries there are no acknowledgements; files are archived all the same."""
    inbox = watch(**options)
    inbox.write("f.jsonl", "one")
    for _ in range(10):
        if deliveries := inbox.peek(30):
            inbox.commit(deliveries)
    assert _left(inbox) == []
    assert inbox.counted["files_finished"] == 1
    assert inbox.committed == {}


def test_nothing_is_finished_while_something_is_not_acknowledged(watch: Watch) -> None:
    """Polls without a commit leave every file in place."""
    inbox = watch(**DELETE)
    inbox.write("f.jsonl", "one")
    for _ in range(5):
        inbox.peek(61)
    assert _left(inbox) == ["f.jsonl"]


def test_closing_with_unread_bytes_logs_them(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """The log reports how many bytes were not read."""
    inbox = watch(**ARCHIVE)
    file = inbox.write("ZZPATIENT.jsonl", "one")
    with file.open("a") as writer:
        inbox.polls(2, 61)
        assert not file.exists()
        writer.write("two\nthree\n")
    inbox.source.close()
    assert caplog.messages == [
        "10 bytes written to finished files at the last moment were not read",
    ]


def test_closing_without_unread_bytes_logs_nothing(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    inbox = watch(**ARCHIVE)
    inbox.write("f.jsonl", "one")
    inbox.polls(2, 61)
    inbox.source.close()
    assert caplog.messages == []


def test_a_dropped_late_line_is_delivered_again(watch: Watch) -> None:
    """The poll is stopped and rolled back: the file is still held."""
    inbox = watch(**DELETE)
    file = inbox.write("f.jsonl", "one")
    before = _open_files()
    with file.open("a") as writer:
        inbox.polls(2, 61)
        writer.write("late\n")
        writer.flush()
        polled = inbox.source.poll(inbox.now)
        next(polled)
        inbox.source.roll_back()
        polled.close()
        assert inbox.poll() == ["late"]
    inbox.polls(3, 61)
    assert _open_files() == before


def test_a_busy_writer_of_a_deleted_file_does_not_block_the_others(watch: Watch) -> None:
    """Lines present at the deletion are read; later ones only up to the budget of a poll."""
    inbox = watch(bytes_per_file=1024, bytes_per_tick=4096)
    file = inbox.write("a.jsonl", *["x" * 99] * 50)
    inbox.write("z.jsonl", "other")
    with file.open("a") as writer:
        deliveries = []
        for delivery in inbox.source.poll(inbox.now):
            deliveries.append(delivery)
            file.unlink(missing_ok=True)
            writer.write(f"{'x' * 99}\n" * 20)
            writer.flush()
            assert len(deliveries) < 100
    inbox.commit(deliveries)
    assert len(inbox.lines) >= 50
    inbox.polls(3)
    assert "other" in inbox.lines
    # Every byte is either read or counted.
    written = 5000 + 2000 * len(deliveries)
    assert inbox.counted["bytes_read"] - len("other\n") + inbox.counted["lost_bytes"] == written
