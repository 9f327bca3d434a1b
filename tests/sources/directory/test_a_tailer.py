"""Tailed files."""

import os
from collections.abc import Callable

import pytest

from monitor.records.record_batch import Format
from monitor.records.rejections import Reason
from monitor.sources.directory.directory_options import StartAt
from tests.sources.directory.inbox import Inbox

Watch = Callable[..., Inbox]


def test_a1_a_line_written_in_two_halves_is_one_record(inbox: Inbox) -> None:
    """With polls before, between and after."""
    inbox.put("f.jsonl", b'{"a":')
    assert inbox.poll() == []
    inbox.put("f.jsonl", b"1}\n")
    assert inbox.poll() == ['{"a":1}']
    assert inbox.polls(3) == []
    assert not inbox.rejected


def test_a2_a_last_line_without_a_newline_waits_and_is_counted_once(inbox: Inbox) -> None:
    """Counted once after the timeout, and read when its newline is written."""
    inbox.put("f.jsonl", b"one\ntwo")
    assert inbox.poll() == ["one"]
    inbox.poll(500)
    assert "partial_tail" not in inbox.counted
    inbox.polls(3, 101)
    assert inbox.counted["partial_tail"] == 1
    inbox.crash()
    inbox.polls(3, 700)
    assert inbox.counted["partial_tail"] == 1
    assert inbox.source.status().lag.files == 0
    inbox.put("f.jsonl", b"\n")
    assert inbox.poll() == ["two"]


def test_a2_a_file_that_is_only_a_partial_line_is_counted_too(inbox: Inbox) -> None:
    inbox.put("f.jsonl", b"half")
    assert inbox.polls(4, 300) == []
    assert inbox.counted["partial_tail"] == 1
    inbox.put("f.jsonl", b" whole\n")
    assert inbox.poll() == ["half whole"]


def test_a7_lines_appended_after_hours_are_read_once(inbox: Inbox) -> None:
    """They are read by the slow check of idle files."""
    inbox.write("f.jsonl", "one")
    assert inbox.poll() == ["one"]
    assert inbox.polls(40, 600) == []
    inbox.write("f.jsonl", "two", "three")
    assert inbox.polls(31) == ["two", "three"]


def test_a18_a_file_of_one_short_line_is_read(inbox: Inbox) -> None:
    inbox.write("f.jsonl", "x" * 39)
    assert inbox.poll() == ["x" * 39]


def test_a17_empty_files_cause_no_events(inbox: Inbox) -> None:
    """Four hundred empty files deliver nothing; two that grow are distinguished."""
    for number in range(400):
        (inbox.path / f"{number:03}.jsonl").touch()
    assert [delivery for _ in range(5) for delivery in inbox.peek()] == []
    inbox.write("007.jsonl", "seven")
    inbox.write("008.jsonl", "eight")
    assert inbox.poll() == ["seven", "eight"]
    assert inbox.polls(100) == []
    inbox.write("009.jsonl", "nine")
    assert inbox.polls(31) == ["nine"]
    assert set(inbox.counted) == {"bytes_read"}


def test_a44_zero_bytes_are_rejected_after_a_wait(inbox: Inbox) -> None:
    """The lines after them are read."""
    inbox.put("f.jsonl", b"one\n" + b"\0" * 500 + b"rest\nthree\n")
    assert inbox.poll() == ["one"]
    assert inbox.polls(5, 100) == []
    inbox.write("f.jsonl", "four")
    assert inbox.polls(3, 100) == ["three", "four"]
    assert inbox.rejected == {Reason.NUL_BYTES: 1}


def test_a44_a_hole_that_is_filled_in_time_is_read(inbox: Inbox) -> None:
    """A writer that writes out of order fills its hole: nothing is rejected."""
    file = inbox.put("f.jsonl", b"one\n" + b"\0" * 4 + b"three\n")
    assert inbox.poll() == ["one"]
    with file.open("r+b") as stream:
        stream.seek(4)
        stream.write(b"two\n")
    assert inbox.polls(2, 100) == ["two", "three"]
    assert not inbox.rejected


def test_a44_preallocated_space_is_not_a_line(watch: Watch) -> None:
    """A preallocated file is read as it is filled, however long that takes."""
    inbox = watch(max_line_bytes=1000)
    file = inbox.put("f.jsonl", b"one\n" + b"\0" * 100_000)
    assert inbox.polls(5, 700) == ["one"]
    with file.open("r+b") as stream:
        stream.seek(4)
        stream.write(b"two\n")
    assert inbox.polls(3, 700) == ["two"]
    assert not inbox.rejected


def test_a44_a_sparse_file_is_read_behind_its_hole(watch: Watch) -> None:
    """A hole longer than any line."""
    inbox = watch(max_line_bytes=1000)
    file = inbox.put("f.jsonl", b"one\n")
    with file.open("r+b") as stream:
        stream.seek(50_000)
        stream.write(b"rest\ntwo\n")
    assert inbox.polls(4, 350) == ["one", "two"]


def test_a45_csv_blocks_carry_the_header(watch: Watch) -> None:
    """Later rows are decoded with the file's header, CRLF and byte order mark."""
    inbox = watch()
    inbox.put("f.csv", b"\xef\xbb\xbfa,b\r\n1,2\r\n")
    inbox.poll()
    inbox.put("f.csv", b"3,4\r\n")
    inbox.crash()
    inbox.poll()
    first, second = inbox.decoder.pieces
    assert (first.offset, first.line) == (0, 1)
    assert (second.offset, second.line) == (13, 3)
    assert first.head.startswith(b"\xef\xbb\xbfa,b\r\n")
    assert second.head.startswith(b"\xef\xbb\xbfa,b\r\n")
    assert second.data == b"3,4\r\n"
    assert second.format is Format.CSV


@pytest.mark.parametrize("step", [7, 100, 1000])
def test_a_line_that_is_too_long_is_skipped_to_its_newline(watch: Watch, step: int) -> None:
    """Also while it is still being written, and across a restart."""
    inbox = watch(max_line_bytes=64)
    content = b"one\n" + b"x" * 3000 + b"\ntwo\n" + b"y" * 64 + b"\n" + b"z" * 65 + b"\nthree\n"
    for start in range(0, len(content), step):
        inbox.put("f.jsonl", content[start : start + step])
        inbox.poll()
        if start % 3 == 0:
            inbox.crash()
    inbox.poll()
    assert inbox.lines == ["one", "two", "y" * 64, "three"]
    assert inbox.rejected == {Reason.LINE_TOO_LONG: 2}
    assert inbox.counted["bytes_read"] == len(content)


def test_line_numbers_and_offsets_are_those_of_the_whole_file(inbox: Inbox) -> None:
    """Each block has its offset and first line number, also after a restart."""
    inbox.write("f.jsonl", "one", "two")
    inbox.poll()
    inbox.crash()
    inbox.write("f.jsonl", "three")
    inbox.poll()
    assert [(piece.offset, piece.line) for piece in inbox.decoder.pieces] == [(0, 1), (8, 3)]
    assert inbox.decoder.pieces[0].where == inbox.decoder.pieces[1].where
    assert inbox.decoder.pieces[0].where.startswith("file#")


def test_a_rollback_repeats_the_deliveries(inbox: Inbox) -> None:
    """With the same counts."""
    inbox.write("f.jsonl", "one")
    inbox.write("g.jsonl", "two")
    first = inbox.peek()
    inbox.source.roll_back()
    second = inbox.peek()
    assert [(one.origin, one.checkpoints.keys(), one.counted) for one in first] == [
        (one.origin, one.checkpoints.keys(), one.counted) for one in second
    ]
    assert inbox.commit(second) == ["one", "two"]
    assert inbox.polls(2) == []


def test_a_poll_may_stop_at_any_delivery(inbox: Inbox) -> None:
    """Only what was delivered is committed; the rest follows with the next poll."""
    for name in "abc":
        inbox.write(f"{name}.jsonl", name)
    polling = inbox.source.poll(inbox.now)
    first = next(polling)
    polling.close()
    assert inbox.commit([first]) == ["a"]
    assert inbox.poll() == ["b", "c"]


def test_a_rollback_ends_the_poll(inbox: Inbox) -> None:
    """Later deliveries would build on what was rolled back."""
    for name in "abc":
        inbox.write(f"{name}.jsonl", name)
    polling = inbox.source.poll(inbox.now)
    next(polling)
    inbox.source.roll_back()
    assert list(polling) == []
    assert inbox.poll() == ["a", "b", "c"]


def test_a_huge_file_does_not_starve_the_others(watch: Watch) -> None:
    """Files take turns in name order; the next poll continues after the last one."""
    inbox = watch(bytes_per_file=1024, bytes_per_tick=3 * (1024 + 4096), max_line_bytes=1000)
    for name in "abcdef":
        inbox.write(f"{name}.jsonl", *[f"{name}{'x' * 98}"] * 30)
    order = [sorted({line[0] for line in inbox.poll()}) for _ in range(2)]
    assert order == [["a", "b", "c"], ["d", "e", "f"]]
    assert inbox.source.next_poll_seconds() == 0.0
    inbox.polls(10)
    assert len(inbox.lines) == 180
    assert inbox.source.next_poll_seconds() == 2.0


def test_files_are_read_in_name_order_whatever_their_times(inbox: Inbox) -> None:
    """So that replaying a folder gives the same order."""
    for number, name in enumerate(["c", "a", "b"]):
        file = inbox.write(f"{name}.jsonl", name)
        os.utime(file, (number, number))
    assert inbox.poll() == ["a", "b", "c"]


def test_lag_counts_unread_bytes_and_files(watch: Watch) -> None:
    """An incomplete line is no lag."""
    inbox = watch(bytes_per_tick=4100, bytes_per_file=1024, max_line_bytes=100)
    old = inbox.write("a.jsonl", *["x" * 99] * 20)
    new = inbox.write("b.jsonl", *["y" * 99] * 5)
    inbox.put("c.jsonl", b"unfinished")
    os.utime(old, (1000, 1000))
    os.utime(new, (2000, 2000))
    inbox.poll()
    lag = inbox.source.status().lag
    assert (lag.files, lag.oldest_unread) == (3, inbox.now)
    assert 0 < lag.bytes <= 2510
    inbox.polls(20)
    assert inbox.source.status().lag.bytes == 0
    assert inbox.source.status().lag.files == 0
    assert inbox.source.status().lag.oldest_unread is None


def test_start_at_end_skips_existing_lines(watch: Watch) -> None:
    """Later lines are read."""
    inbox = watch(start_at=StartAt.END)
    inbox.put("f.jsonl", b"old\nhalf")
    inbox.put("g.npy", b"old\nEND\n")
    assert inbox.poll() == []
    inbox.crash()
    inbox.put("f.jsonl", b" whole\nnew\n")
    inbox.write("h.jsonl", "new file")
    assert inbox.polls(8) == ["half whole", "new", "new file"]
    assert inbox.counted["bytes_skipped"] == 4 + 8


def test_subfolders_are_read_if_configured(watch: Watch) -> None:
    """Also folders that appear later; hidden ones never."""
    inbox = watch(recursive=True)
    for folder in ("2026-01-01", "2026-01-02", ".done", "_old"):
        (inbox.path / folder).mkdir()
        inbox.write(f"{folder}/f.jsonl", folder)
    assert inbox.poll() == ["2026-01-01", "2026-01-02"]
    (inbox.path / "2026-01-03" / "ct").mkdir(parents=True)
    inbox.write("2026-01-03/ct/f.jsonl", "later")
    assert inbox.poll() == ["later"]
    inbox.crash()
    assert inbox.polls(40) == []


def test_only_matching_files_are_read(watch: Watch) -> None:
    """A forced format applies to any name."""
    inbox = watch(pattern="result-*", format=Format.JSONL)
    inbox.write("result-1.log", "one")
    inbox.write("other.jsonl", "two")
    assert inbox.polls(2) == ["one"]
    assert not inbox.counted["unknown_extension"]


def test_a_rejected_file_fails_once_and_is_retried_after_a_change(inbox: Inbox) -> None:
    """It is counted once, and the other files are read."""
    inbox.write("f.jsonl", "one", "POISON")
    inbox.write("g.jsonl", "two")
    assert inbox.polls(5) == ["two"]
    inbox.write("f.jsonl", "three")
    inbox.polls(3)
    assert inbox.counted["files_failed"] == 1
    (inbox.path / "f.jsonl").write_bytes(b"one\nfixed\n")
    inbox.crash()
    assert inbox.polls(3) == ["one", "fixed"]


def test_a_decoder_exception_fails_one_file_only(inbox: Inbox) -> None:
    inbox.write("f.jsonl", "BUG")
    inbox.write("g.jsonl", "two")
    assert inbox.polls(3) == ["two"]
    assert inbox.counted["files_failed"] == 1
    assert "decoder_error" in inbox.warnings[0]


def test_a_damaged_checkpoint_is_counted_and_its_file_read_again(inbox: Inbox) -> None:
    inbox.write("f.jsonl", "one")
    inbox.write("g.jsonl", "two")
    inbox.poll()
    (first, *_) = inbox.committed
    inbox.committed[first] = inbox.committed[first][:-3]
    inbox.committed[b"short"] = b"x"
    inbox.crash()
    assert len(inbox.poll()) == 1
    assert inbox.counted["positions_damaged"] == 2
