"""Whole files: arrays, Parquet, Arrow, gzip."""

import gzip
import os
from collections.abc import Callable

import pytest

from monitor.sources.directory.directory_options import StartAt
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]


def test_a4_a_slow_copy_is_read_once_after_it_settled(inbox: Inbox) -> None:
    """A copy of ten seconds in steps, without a failure."""
    for number in range(10):
        inbox.put("f.parquet", f"line {number}\n".encode())
        assert inbox.poll(1) == []
    inbox.put("f.parquet", b"END\n")
    assert inbox.polls(2) == []
    assert inbox.polls(2) == [f"line {number}" for number in range(10)]
    assert inbox.decoder.attempts == 1
    assert set(inbox.counted) == {"bytes_read"}
    assert inbox.polls(100) == []


def test_a5_access_times_are_ignored(inbox: Inbox) -> None:
    """Only size and modification time count."""
    for number in range(6):
        file = inbox.put("f.npy", f"line {number}\n".encode())
        os.utime(file, ns=(0, file.stat().st_mtime_ns))
        assert inbox.poll(3) == []
    assert inbox.decoder.attempts == 0


def test_a6_a_stalled_copy_is_retried_when_it_continues(inbox: Inbox) -> None:
    """The copy pauses for 30 s: the first attempt fails silently, the next succeeds."""
    inbox.put("f.parquet", b"one\n")
    assert inbox.polls(15) == []
    assert inbox.decoder.attempts == 1
    inbox.put("f.parquet", b"two\nEND\n")
    assert inbox.polls(10) == ["one", "two"]
    assert not inbox.counted["files_failed"]


def test_a42_a_damaged_file_fails_once(inbox: Inbox) -> None:
    """After the time for retries; it is retried only after a change."""
    inbox.put("f.jsonl.gz", b"cut in the mid")
    inbox.polls(100)
    inbox.crash()
    inbox.polls(100)
    assert inbox.counted["files_failed"] == 1
    assert inbox.decoder.attempts == 1
    assert "bad_file" in inbox.warnings[-1]
    inbox.put("f.jsonl.gz", b"dle\nEND\n")
    assert inbox.polls(40) == ["cut in the middle"]


def test_a42_a_truncated_gzip_fails_with_the_real_decoder(watch: Watch, real_decoder: object) -> None:
    inbox = watch()
    inbox.decoder = real_decoder
    inbox.crash()
    whole = gzip.compress(os.urandom(1000).hex().encode())
    (inbox.path / "f.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    inbox.polls(100)
    assert inbox.counted["files_failed"] == 1


def test_a43_a_crash_resumes_at_the_row(inbox: Inbox) -> None:
    """Half delivered at the crash: resumed without duplicates."""
    inbox.put("f.jsonl.gz", b"".join(f"{number}\n".encode() for number in range(9)) + b"END\n")
    inbox.polls(3)
    inbox.clock += 2
    polling = inbox.source.poll(inbox.now)
    inbox.commit([next(polling), next(polling)])
    next(polling)
    polling.close()
    inbox.crash()
    inbox.polls(4)
    assert inbox.lines == [str(number) for number in range(9)]
    assert inbox.counted["bytes_read"] == 22


def test_a43_a_rollback_resumes_at_the_row(inbox: Inbox) -> None:
    inbox.put("f.npy", b"".join(f"{number}\n".encode() for number in range(9)) + b"END\n")
    inbox.polls(3)
    inbox.clock += 2
    polling = inbox.source.poll(inbox.now)
    inbox.commit([next(polling)])
    next(polling)
    inbox.source.roll_back()
    inbox.polls(4)
    assert inbox.lines == [str(number) for number in range(9)]


@pytest.mark.parametrize("settle", [0.0, 5.0])
def test_a3_a_file_renamed_into_the_directory_is_read_at_once(watch: Watch, settle: float) -> None:
    """A file seen under a temporary name is complete when it gets its final one."""
    inbox = watch(settle_seconds=settle)
    inbox.put("f.npy.tmp", b"one\nEND\n")
    assert inbox.poll() == []
    (inbox.path / "f.npy.tmp").rename(inbox.path / "f.npy")
    assert inbox.poll() == ["one"]


def test_a_completion_marker_completes_a_file(watch: Watch) -> None:
    """At once, and never before."""
    inbox = watch(completion_marker=True)
    inbox.put("f.npy", b"one\nEND\n")
    assert inbox.polls(20) == []
    inbox.put("f.npy.ok", b"")
    assert inbox.poll() == ["one"]
    assert not inbox.counted["unknown_extension"]


def test_a_rewritten_file_is_read_again_only_if_its_content_changed(inbox: Inbox) -> None:
    """The checksum decides: an identical copy is not read again."""
    file = inbox.put("f.npy", b"one\nEND\n")
    inbox.polls(4)
    inbox.put(".new", b"one\nEND\n")
    (inbox.path / ".new").rename(file)
    assert inbox.polls(5) == []
    os.utime(file, ns=(5, 5))
    assert inbox.polls(60) == []
    file.write_bytes(b"two\nEND\n")
    os.utime(file, ns=(6, 6))
    assert inbox.polls(60) == ["two"]
    assert inbox.counted["files_replaced"] == 1


def test_a_complete_file_that_is_renamed_is_not_read_again(inbox: Inbox) -> None:
    """Size, time and inode are equal, so it is the same file."""
    file = inbox.put("f.npy", b"one\nEND\n")
    inbox.polls(4)
    file.rename(inbox.path / "g.npy")
    inbox.put("f.npy", b"two\nEND\n")
    assert inbox.polls(6) == ["two"]
    inbox.crash()
    (inbox.path / "g.npy").rename(inbox.path / "h.npy")
    assert inbox.polls(6) == []


def test_a_file_changed_while_it_is_read_settles_again(watch: Watch) -> None:
    """A file changed between two polls is not mixed with what was read."""
    inbox = watch(bytes_per_file=1024)
    lines = b"".join(f"{number}\n".encode() for number in range(40))
    file = inbox.put("f.npy", lines + b"END\n")
    inbox.polls(4)
    assert 0 < len(inbox.lines) < 40
    file.write_bytes(b"other\nEND\n")
    inbox.polls(2)
    assert "other" not in inbox.lines
    inbox.polls(4)
    assert inbox.lines[-1] == "other"


def test_large_files_take_turns(watch: Watch) -> None:
    """Files that take many polls do not block the others."""
    inbox = watch(bytes_per_file=1024)
    for name in "abcdef":
        inbox.put(f"{name}.npy", b"".join(f"{name}{number}\n".encode() for number in range(20)) + b"END\n")
    inbox.write("z.jsonl", "text")
    assert inbox.poll() == ["text"]
    inbox.polls(3)
    assert {line[0] for line in inbox.lines if line != "text"} == set("abcd")
    inbox.polls(12)
    assert len(inbox.lines) == 121


def test_start_at_end_does_not_decode_existing_files(watch: Watch) -> None:
    """Existing files are only read for their checksum."""
    inbox = watch(start_at=StartAt.END)
    inbox.put("f.npy", b"one\nEND\n")
    inbox.polls(6)
    assert inbox.decoder.attempts == 0
    assert inbox.counted["bytes_skipped"] == 8


def test_a_decoder_exception_is_a_failure_of_the_file(inbox: Inbox) -> None:
    """The other files are read."""

    class Broken(type(inbox.decoder)):  # type: ignore[misc]
        def settled(self, *_: object, **__: object) -> object:
            raise ZeroDivisionError

    inbox.decoder = Broken()
    inbox.crash()
    inbox.put("f.npy", b"one\nEND\n")
    inbox.write("g.jsonl", "two")
    assert inbox.polls(80) == ["two"]
    assert inbox.counted["files_failed"] == 1


@pytest.mark.parametrize("name", ["f.npy", "f.jsonl"])
def test_out_of_memory_is_not_a_failure_of_the_file(inbox: Inbox, name: str) -> None:
    """It ends the process, and the next one reads the file."""

    class Short(type(inbox.decoder)):  # type: ignore[misc]
        def settled(self, *_: object, **__: object) -> object:
            raise MemoryError

        def text(self, _: object) -> object:
            raise MemoryError

    whole = inbox.decoder
    inbox.decoder = Short()
    inbox.crash()
    inbox.put(name, b"one\nEND\n")
    with pytest.raises(MemoryError):
        inbox.polls(5)
    assert not inbox.counted["files_failed"]
    inbox.decoder = whole
    inbox.crash()
    assert inbox.polls(5)[0] == "one"


def test_an_empty_file_is_not_read(inbox: Inbox) -> None:
    (inbox.path / "f.npy").touch()
    assert inbox.polls(50) == []
    assert not inbox.counted
    inbox.put("f.npy", b"one\nEND\n")
    assert inbox.polls(40) == ["one"]
