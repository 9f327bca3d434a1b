"""The lag of the directory: by our own clock, and only of what could have been read."""

import errno
import os
from collections.abc import Callable

from monitor.sources.directory.directory_access import System
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]

LINES = ["x" * 99] * 60


def test_lag_of_a_file_starts_when_it_is_first_seen(watch: Watch) -> None:
    """Whatever its modification time: from when it was first seen until it is read to its end."""
    inbox = watch(bytes_per_file=1024, max_line_bytes=1000)
    os.utime(inbox.write("a.jsonl", *LINES), (1, 1))
    inbox.poll()
    first = inbox.now
    assert inbox.source.status().lag.oldest_unread == first
    inbox.poll()
    assert inbox.source.status().lag.oldest_unread == first
    inbox.polls(10)
    assert inbox.source.status().lag.oldest_unread is None
    os.utime(inbox.write("a.jsonl", *LINES), (1, 1))
    inbox.poll()
    assert inbox.source.status().lag.oldest_unread == inbox.now


def test_lag_of_new_files_starts_with_the_first(watch: Watch) -> None:
    """From the poll that first listed them."""
    inbox = watch(bytes_per_tick=5000)
    for number in range(9):
        os.utime(inbox.write(f"{number}.jsonl", "one"), (1, 1))
    inbox.poll()
    first = inbox.now
    assert inbox.source.status().lag.oldest_unread == first
    inbox.poll()
    assert inbox.source.status().lag.oldest_unread == first
    inbox.polls(5)
    assert inbox.source.status().lag.oldest_unread is None


def test_a_settling_file_adds_no_lag_time(inbox: Inbox) -> None:
    """A file that keeps changing, with a time of 1970, counts as file and bytes only."""
    for number in range(1, 12):
        os.utime(inbox.put("x.npy", b"x" * number), (1, 1))
        inbox.poll()
        lag = inbox.source.status().lag
        assert (lag.files, lag.oldest_unread) == (1, None)
        assert lag.bytes == sum(range(number + 1))


def test_an_unreadable_file_adds_no_lag_time(watch: Watch) -> None:
    """It is retried, and would otherwise add lag for ever."""

    class Closed(System):
        def open(self, path: str, flags: int, directory: int | None = None) -> int:
            if path == "x.npy":
                raise OSError(errno.EACCES, "closed")
            return super().open(path, flags, directory)

    inbox = watch(system=Closed())
    inbox.put("x.npy", b"one\nEND\n")
    inbox.polls(20)
    assert inbox.counted["files_unreadable"] == 1
    assert inbox.source.status().lag.oldest_unread is None
