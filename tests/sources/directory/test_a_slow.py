"""Files that decode slowly: a poll ends in time, and other files do not wait."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pytest

from monitor.records.record_batch import Format, RecordBatch, TextPiece
from monitor.sources.directory.directory_access import System
from tests.sources.directory.inbox import Inbox, LineDecoder

Watch = Callable[..., Inbox]

LINE = b"x" * 1023 + b"\n"


class Slow(LineDecoder):
    """Decodes slowly."""

    def __init__(self, inbox: Inbox, seconds: float) -> None:
        super().__init__()
        self.inbox, self.seconds = inbox, seconds

    def text(self, piece: TextPiece) -> RecordBatch:
        """Decode slowly."""
        self.inbox.clock += self.seconds
        return super().text(piece)

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[RecordBatch]:
        """Decode slowly."""
        for piece in super().settled(where, file, format_, skip=skip):
            self.inbox.clock += self.seconds
            yield piece


def _slow(watch: Watch, seconds: float, **options: Any) -> Inbox:
    inbox = watch(**options)
    inbox.decoder = Slow(inbox, seconds)
    inbox.crash()
    return inbox


def _took(inbox: Inbox) -> float:
    """Poll; return the duration."""
    began = inbox.clock
    inbox.poll(0)
    return inbox.clock - began


def _numbered(name: str, count: int) -> bytes:
    return b"".join(f"{name}{number}\n".encode() for number in range(count)) + b"END\n"


def test_a_tailed_file_yields_when_time_is_up(watch: Watch) -> None:
    """A poll ends one block after its time, the next follows at once and reads the other file."""
    inbox = _slow(watch, 0.4)
    inbox.put("a.jsonl", LINE * 5000)
    inbox.write("b.jsonl", "short")
    assert _took(inbox) == pytest.approx(1.2)
    assert inbox.source.next_poll_seconds() == 0
    assert "short" not in inbox.lines
    assert _took(inbox) < 1.5
    assert "short" in inbox.lines
    inbox.polls(10, 0)
    assert len(inbox.lines) == 5001
    assert inbox.source.next_poll_seconds() == 2.0


def test_a_poll_that_ends_within_a_file_continues_at_once(watch: Watch) -> None:
    """A single file continues without a pause too."""
    inbox = _slow(watch, 0.4, seconds_per_tick=0.1)
    inbox.put("a.jsonl", LINE * 2000)
    assert _took(inbox) == pytest.approx(0.4)
    assert inbox.source.next_poll_seconds() == 0
    assert inbox.source.status().lag.files == 1


def test_a_whole_file_yields_when_time_is_up(watch: Watch) -> None:
    """No poll decodes more than one block beyond its time; nothing is lost or repeated."""
    inbox = _slow(watch, 1.5, settle_seconds=0.0)
    inbox.put("a.npy", _numbered("a", 9))
    inbox.write("b.jsonl", "short")
    inbox.poll(0)
    assert max(_took(inbox) for _ in range(20)) == pytest.approx(1.5)
    assert sorted(inbox.lines) == sorted([*(f"a{number}" for number in range(9)), "short"])


def test_opening_a_large_whole_file_yields_when_time_is_up(watch: Watch) -> None:
    """The checksum of a file on a slow disk is computed over several polls."""

    class SlowDisk(System):
        def read(self, file: int, length: int, offset: int) -> bytes:
            inbox.clock += 0.4
            return super().read(file, length, offset)

    inbox = watch(settle_seconds=0.0, system=SlowDisk())
    inbox.put("a.npy", LINE * 6000 + b"END\n")
    inbox.poll(0)
    assert max(_took(inbox) for _ in range(2)) < 1.5
    assert inbox.decoder.attempts == 0
    inbox.polls(3, 0)
    assert len(inbox.lines) == 6000


def test_blocks_shrink_while_decoding_is_slow(watch: Watch) -> None:
    """A quarter each time, down to 64 KiB, and back to full size when decoding is fast."""
    inbox = _slow(watch, 0.6, seconds_per_tick=300.0)
    inbox.put("a.jsonl", LINE * 1600)
    inbox.poll()
    sizes = [len(piece.data) >> 10 for piece in inbox.decoder.pieces]
    assert sizes == [1024, 256, 64, 64, 64, 64, 64]
    inbox.decoder.seconds = 0.0
    inbox.put("a.jsonl", LINE * 3000)
    inbox.poll()
    assert [len(piece.data) >> 10 for piece in inbox.decoder.pieces[7:12]] == [64, 128, 256, 512, 1024]
    assert len(inbox.lines) == 4600


def test_lines_longer_than_a_small_block_are_complete(watch: Watch) -> None:
    """With small blocks, a line of half a megabyte is still one line."""
    inbox = _slow(watch, 0.6, seconds_per_tick=300.0)
    inbox.put("a.jsonl", LINE * 2000)
    inbox.write("a.jsonl", "y" * 500_000, "z")
    inbox.poll()
    assert inbox.lines[2000:] == ["y" * 500_000, "z"]
    assert not inbox.rejected


def test_a_slow_listing_starves_no_file(watch: Watch) -> None:
    """The time for reading starts after the listing."""

    class SlowListing(System):
        def entries(self, directory: int) -> Iterator[Any]:
            inbox.clock += 5.0
            return super().entries(directory)

    inbox = watch(system=SlowListing())
    inbox.write("a.jsonl", "one")
    inbox.write("b.jsonl", "two")
    assert inbox.poll() == ["one", "two"]


def test_long_whole_files_do_not_block_a_short_one(watch: Watch) -> None:
    """Four long files are being read when a short one arrives: it is read within a few polls."""
    inbox = watch(settle_seconds=0.0, bytes_per_file=1024)
    for name in "wxyz":
        inbox.put(f"{name}.npy", _numbered(name, 200))
    inbox.polls(10)
    assert len({line[0] for line in inbox.lines}) == 4
    inbox.put("a.npz", b"short\nEND\n")
    inbox.put("zz.npz", b"last\nEND\n")
    assert {"short", "last"} <= set(inbox.polls(5))
    inbox.polls(60)
    assert len(inbox.lines) == len(set(inbox.lines)) == 802


def test_more_long_files_than_open_slots_all_progress(watch: Watch) -> None:
    """Each of seven long files progresses within a few polls, and open ones are not reopened."""
    inbox = watch(settle_seconds=0.0, bytes_per_file=1024)
    for name in "abcdefg":
        inbox.put(f"{name}.npy", _numbered(name, 200))
    inbox.polls(14)
    assert {line[0] for line in inbox.lines} == set("abcdefg")
    inbox.polls(100)
    assert len(inbox.lines) == len(set(inbox.lines)) == 1400
    assert inbox.decoder.attempts < 30
