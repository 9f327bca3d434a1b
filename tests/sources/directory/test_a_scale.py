"""Very many files: bounded memory, bounded time, nothing missed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from monitor.records.record_batch import Format
from monitor.sources.directory.directory_access import System
from monitor.sources.directory.file_checkpoint import FileCheckpoint, FileState, Keys, encoded
from tests.sources.directory.inbox import KEY, Inbox

pytestmark = pytest.mark.slow

Watch = Callable[..., Inbox]


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _drop(folder: Path, count: int, content: bytes = b"line\n") -> None:
    directory = os.open(folder, os.O_RDONLY)
    try:
        for number in range(count):
            file = os.open(f"{number:07}.jsonl", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
            os.write(file, content)
            os.close(file)
    finally:
        os.close(directory)


def test_a31_fifty_thousand_files_at_start(watch: Watch) -> None:
    """Each poll is short, and memory grows only with the checkpoints."""
    inbox = watch()
    _drop(inbox.path, 50_000)
    before = _resident_bytes()
    lags, count = [], 0
    while count < 50_000:
        deliveries = inbox.peek()
        count += sum(delivery.batch.rows for delivery in deliveries)
        for delivery in deliveries:
            inbox.committed.update({key: value for key, value in delivery.checkpoints.items() if value is not None})
        inbox.decoder.pieces.clear()
        del deliveries
        inbox.source.acknowledge({})
        lags.append(inbox.source.status().lag.files)
    used = _resident_bytes() - before
    assert lags == sorted(lags, reverse=True)
    assert len(lags) > 3
    assert lags[-1] == 0
    assert count == len(inbox.committed) == 50_000
    # Checkpoints twice, those of the source and of this test; and the batch of one poll.
    assert used < 50_000 * 1000 + (32 << 20)
    inbox.crash()
    assert inbox.polls(2) == []


class ManyNames(System):
    """A listing of very many files that do not exist."""

    class Entry:
        """What a listing gives for one file."""

        def __init__(self, number: int) -> None:
            self.name = f"{number:07}.jsonl"
            self._number = number

        def inode(self) -> int:
            """Return some number."""
            return self._number + 1

        def is_dir(self, *, follow_symlinks: bool) -> bool:
            """It is a file."""
            assert not follow_symlinks
            return False

    def __init__(self, count: int, tick: Callable[[], None]) -> None:
        self.count = count
        self.stats = 0
        self._tick = tick
        self._entries = [self.Entry(number) for number in range(count)]

    def entries(self, directory: int) -> Iterator["os.DirEntry[str]"]:
        """List them all, slowly."""
        assert directory
        self._tick()
        return iter(self._entries)  # type: ignore[arg-type]

    def stat(self, name: str, directory: int) -> os.stat_result:
        """Each is one line of five bytes."""
        assert directory
        self.stats += 1
        return os.stat_result((0o100600, int(name[:7]) + 1, 1, 1, 0, 0, 5, 1, 1, 1), {"st_mtime_ns": 10**9})


def test_a32_a_million_kept_files_are_listed_and_few_are_checked(watch: Watch) -> None:
    """In steady state a poll compares names, checks few files, extends its interval, and warns once."""
    count = 100_000
    inbox = watch()

    def tick() -> None:
        inbox.clock += 1.0

    system = ManyNames(count, tick)
    inbox.system = system
    keys = Keys(KEY)
    row = FileCheckpoint(
        1,
        Format.JSONL,
        FileState.READING,
        1,
        0,
        5,
        1_000_000_000,
        5,
        0xA1B2,
        line=2,
        non_json_lines=None,
        changed_at=0.0,
    )
    fields = [getattr(row, name) for name in row.__struct_fields__]
    inode = row.__struct_fields__.index("inode")
    for number in range(count):
        fields[inode] = number + 1
        inbox.committed[keys(f"{number:07}.jsonl")] = encoded(FileCheckpoint(*fields))
    inbox.crash()
    inbox.peek()
    assert system.stats == count
    system.stats = 0
    deliveries = [delivery for _ in range(3) for delivery in inbox.peek()]
    assert deliveries == []
    # A listing of one second is more than a fifth of two seconds; each file is checked once a minute.
    assert inbox.source.next_poll_seconds() == 5.0
    assert 0 < system.stats < 3.5 * count / 12
    assert inbox.source.status().lag.files == 0


def test_a32_one_warning_about_many_entries(watch: Watch) -> None:
    """Above ten thousand entries."""
    inbox = watch()
    _drop(inbox.path, 10_001)
    inbox.polls(5)
    assert len(inbox.events) == 1
    assert "10,001 entries" in inbox.events[0]


def test_a33_a_burst_while_stopped_is_read_completely(watch: Watch) -> None:
    """Five thousand files arrive between two polls."""
    inbox = watch()
    inbox.poll()
    _drop(inbox.path, 5_000)
    assert len(inbox.polls(3)) == 5_000
    assert inbox.source.status().lag.files == 0


def test_files_beyond_the_limit_of_a_poll_are_still_tailed(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are checked more rarely: new lines are read within a minute."""
    monkeypatch.setattr("monitor.sources.directory.tracker.CROWD", 10)
    inbox = watch()
    _drop(inbox.path, 100)
    assert len(inbox.poll()) == 100
    for number in range(100):
        inbox.write(f"{number:07}.jsonl", f"more {number}")
    assert sorted(inbox.polls(32)) == sorted(f"more {number}" for number in range(100))
