"""File identity: rotation, truncation, replacement, and what only resembles them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.sources.directory.file_checkpoint import decoded
from tests.sources.directory.inbox import END, Inbox

Watch = Callable[..., Inbox]

# With this much before it, a file is compared by its head and tail instead of as a whole.
LONG = [f"{number:06}{'.' * 93}" for number in range(2000)]


def test_a3_a_file_renamed_into_the_directory_is_read_once(inbox: Inbox) -> None:
    """A hidden or temporary name is ignored until the rename."""
    for name in (".x.tmp", "x.jsonl.part", "_x.jsonl", "x.jsonl~", "x.crdownload", "x.jsonl.filepart", "x.partial"):
        inbox.write(name, "one")
    assert inbox.polls(3) == []
    (inbox.path / ".x.tmp").rename(inbox.path / "x.jsonl")
    assert inbox.polls(3) == ["one"]
    assert set(inbox.counted) == {"bytes_read"}


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
def test_a9_a_truncated_file_is_read_from_its_start(inbox: Inbox, before: list[str]) -> None:
    """`: > f; echo … >> f` counts as a truncation, and the new lines are read."""
    file = inbox.write("f.jsonl", *before)
    inbox.poll()
    with file.open("w") as stream:
        stream.write("new\n")
    assert inbox.poll() == ["new"]
    assert inbox.counted["files_truncated"] == 1
    assert inbox.polls(3) == []


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a10_truncated_and_regrown_beyond_the_offset_is_detected(
    inbox: Inbox,
    before: list[str],
    stopped: bool,  # noqa: FBT001
) -> None:
    """Between two polls, with the same inode: all its lines are read."""
    file = inbox.write("f.jsonl", *before)
    inode = file.stat().st_ino
    inbox.poll()
    after = [f"new {line}" for line in before] + ["more"]
    if stopped:
        inbox.crash()
    with file.open("w") as stream:
        stream.write("".join(f"{line}\n" for line in after))
    assert file.stat().st_ino == inode
    assert inbox.polls(2) == after
    assert inbox.counted["files_replaced"] == 1


def test_a10_equal_heads_do_not_hide_a_truncation(inbox: Inbox) -> None:
    """Head and length are equal, but not the bytes before the offset."""
    file = inbox.write("f.jsonl", *LONG)
    inbox.poll()
    after = [*LONG[:-3], *(line.replace(".", "!") for line in LONG[-3:]), "more"]
    file.write_text("".join(f"{line}\n" for line in after))
    assert inbox.polls(2) == after


def test_a11_a_reset_is_committed_before_any_new_line(inbox: Inbox) -> None:
    """Truncated to empty, then a crash: the reset was committed, and is not repeated."""
    file = inbox.write("f.jsonl", "one", "two")
    inbox.poll()
    file.write_bytes(b"")
    inbox.poll()
    assert inbox.counted["files_truncated"] == 1
    inbox.crash()
    assert inbox.polls(2) == []
    inbox.write("f.jsonl", "one", "two", "three")
    assert inbox.polls(2) == ["one", "two", "three"]
    assert inbox.counted["files_truncated"] == 1


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
@pytest.mark.parametrize("copy", ["f.jsonl.1", "f-2026.jsonl", "g.jsonl"])
@pytest.mark.parametrize("regrown", [0, 1, 3000])
def test_a12_copytruncate_reads_the_rest_from_the_copy(
    inbox: Inbox, before: list[str], copy: str, regrown: int
) -> None:
    """The copy has unread lines: nothing is lost or read twice."""
    file = inbox.write("f.jsonl", *before)
    inbox.poll()
    inbox.write("f.jsonl", "unread")
    shutil.copyfile(file, inbox.path / copy)
    file.write_bytes(b"")
    new = [f"new {number}" for number in range(regrown)]
    inbox.write("f.jsonl", *new)
    assert sorted(inbox.polls(4)) == sorted(["unread", *new])
    assert inbox.counted["files_adopted"] == 1
    inbox.crash()
    assert inbox.polls(40) == []


def test_a12_the_copy_is_listed_before_the_truncation(inbox: Inbox) -> None:
    """A poll between copy and truncation ignores the copy; the next one reads it."""
    file = inbox.write("f.jsonl", "one", "two")
    inbox.poll()
    inbox.write("f.jsonl", "three")
    shutil.copyfile(file, inbox.path / "f.jsonl.1")
    assert inbox.poll() == ["three"]
    inbox.write("f.jsonl", "lost by copytruncate unless read before")
    assert len(inbox.poll()) == 1
    file.write_bytes(b"")
    assert inbox.polls(3) == []
    inbox.write("f.jsonl", "new")
    assert inbox.polls(3) == ["new"]


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
@pytest.mark.parametrize("rotated", ["f.jsonl.1", "a-old.jsonl", "z-old.jsonl", "f.jsonl-20260101"])
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a13_rename_rotation(inbox: Inbox, before: list[str], rotated: str, stopped: bool) -> None:  # noqa: FBT001
    """`f` becomes `f.1` and a new `f` starts: nothing is lost or read twice."""
    file = inbox.write("f.jsonl", *before)
    inbox.poll()
    with file.open("a") as writer:
        writer.write("unread\n")
        if stopped:
            inbox.crash()
        writer.flush()
        file.rename(inbox.path / rotated)
        inbox.write("f.jsonl", "new")
        assert sorted(inbox.polls(2)) == ["new", "unread"]
        writer.write("by the old writer\n")
    assert inbox.polls(3) == ["by the old writer"]
    assert inbox.counted["files_adopted"] == 1
    assert not inbox.counted["files_gone"]
    inbox.crash()
    assert inbox.polls(40) == []


def test_a13_rotation_with_an_equal_first_line(inbox: Inbox) -> None:
    """Old and new file have the same line: the inode decides."""
    file = inbox.write("f.jsonl", "same")
    inbox.poll()
    file.rename(inbox.path / "f.jsonl.1")
    inbox.write("f.jsonl", "same", "other")
    assert inbox.polls(3) == ["same", "other"]


def test_a13_rotation_of_several_generations(inbox: Inbox) -> None:
    """`f.1` becomes `f.2`, `f` becomes `f.1`, repeatedly."""
    written = []
    for number in range(12):
        for older in (3, 2, 1):
            if (inbox.path / f"f.jsonl.{older}").exists():
                (inbox.path / f"f.jsonl.{older}").rename(inbox.path / f"f.jsonl.{older + 1}")
        (inbox.path / "f.jsonl.4").unlink(missing_ok=True)
        if number:
            inbox.write("f.jsonl", f"last {number}")
            written.append(f"last {number}")
            (inbox.path / "f.jsonl").rename(inbox.path / "f.jsonl.1")
        inbox.write("f.jsonl", f"first {number}")
        written.append(f"first {number}")
        inbox.poll()
        if number % 4 == 0:
            inbox.crash()
    inbox.polls(2)
    assert sorted(inbox.lines) == sorted(written)


def test_a13_rotation_of_idle_files(inbox: Inbox) -> None:
    """Idle files are recognised too."""
    inbox.write("f.jsonl", "one")
    inbox.polls(3, 4000)
    (inbox.path / "f.jsonl").rename(inbox.path / "f.jsonl.1")
    inbox.write("f.jsonl.1", "two")
    inbox.write("f.jsonl", "new")
    assert sorted(inbox.polls(2)) == ["new", "two"]


def _reuse_inode(folder: Path, name: str, inode: int, content: bytes) -> Path:
    """Make a file with a certain inode number, which ext4 gives to the next new file."""
    for attempt in range(200):
        file = folder / f".try{attempt}"
        file.write_bytes(content)
        if file.stat().st_ino == inode:
            target = folder / name
            file.rename(target)
            return target
    pytest.skip("LOUD: this file system does not reuse inode numbers; inode reuse is not tested")


@pytest.mark.parametrize("stopped", [False, True], ids=["a14 running", "a15 stopped"])
@pytest.mark.parametrize(
    "content", [b"ab\ncdef\n", b"other\ncontent\n", b"x\n"], ids=["same size", "longer", "shorter"]
)
def test_a14_a15_another_file_with_the_same_name_and_inode(inbox: Inbox, stopped: bool, content: bytes) -> None:  # noqa: FBT001
    """A new file with the name and inode of a deleted one, while running or stopped."""
    file = inbox.put("f.jsonl", b"one\ntwo\n")
    inbox.poll()
    inode = file.stat().st_ino
    if stopped:
        inbox.crash()
    file.unlink()
    _reuse_inode(inbox.path, "f.jsonl", inode, content)
    assert inbox.polls(2) == content.decode().splitlines()


def test_a14_a_reused_inode_is_a_new_file(inbox: Inbox) -> None:
    """With another name and equal content."""
    file = inbox.write("f.jsonl", "same")
    inbox.poll()
    inode = file.stat().st_ino
    file.unlink()
    inbox.poll()
    _reuse_inode(inbox.path, "g.jsonl", inode, b"same\n")
    assert inbox.poll() == ["same"]


def test_a14_a_name_is_read_again_when_idle_files_took_the_inodes_of_deleted_ones(inbox: Inbox) -> None:
    """Two inodes: the files that have them now are not examined in the same poll."""
    for name, part in (("b.jsonl", "1.npz"), ("c.jsonl", "2.npz")):
        file = inbox.write(name, "old")
        inbox.poll()
        inode = file.stat().st_ino
        file.unlink()
        _reuse_inode(inbox.path, part, inode, b"part\n" + END)
    inbox.polls(10)
    inbox.write("c.jsonl", "new")
    assert inbox.polls(3) == ["new"]


def test_a16_a_hundred_files_with_equal_heads_are_all_read(inbox: Inbox) -> None:
    """A hundred CSV files share their first 2 kB."""
    head = ("column," * 300 + "last").encode()
    for number in range(100):
        inbox.put(f"{number:03}.csv", head + f"\nrow {number}\n".encode())
    assert len(inbox.poll()) == 200
    assert len({line for line in inbox.lines if line.startswith("row")}) == 100


def test_a19_the_same_file_dropped_twice_is_delivered_twice(inbox: Inbox) -> None:
    """Under another name the same content is read again; ids are deduplicated later."""
    file = inbox.write("f.jsonl", "one")
    shutil.copyfile(file, inbox.path / "g.jsonl")
    assert inbox.poll() == ["one", "one"]


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
def test_a20_a_file_replaced_atomically_is_read_from_its_start(inbox: Inbox, before: list[str]) -> None:
    """At once, also if it was idle for hours."""
    inbox.write("f.jsonl", *before)
    inbox.polls(2, 4000)
    inbox.write(".new", *reversed(before), "more")
    (inbox.path / ".new").rename(inbox.path / "f.jsonl")
    assert inbox.poll() == [*reversed(before), "more"]
    assert inbox.counted["files_replaced"] == 1


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
def test_a20_a_file_replaced_by_a_longer_copy_continues(inbox: Inbox, before: list[str]) -> None:
    """Editors and rsync write a new file and rename it: nothing is read again."""
    inbox.write("f.jsonl", *before)
    inbox.poll()
    inbox.write(".new", *before, "more")
    (inbox.path / ".new").rename(inbox.path / "f.jsonl")
    assert inbox.polls(3) == ["more"]
    assert not inbox.counted["files_replaced"]


def test_a21_a_file_deleted_while_it_is_read_is_read_to_its_end(watch: Watch) -> None:
    """Unlinked while it is read: read to its end, then marked as gone."""
    inbox = watch(bytes_per_file=1024, max_line_bytes=100)
    file = inbox.write("f.jsonl", *LONG[:100])
    polling = inbox.source.poll(inbox.now)
    deliveries = [next(polling)]
    file.unlink()
    deliveries += polling
    assert inbox.commit(deliveries) == LONG[:100]
    inbox.poll()
    assert inbox.counted["files_gone"] == 1
    (value,) = inbox.committed.values()
    row = decoded(value)
    assert row is not None
    assert row.gone_at is not None


def test_a21_lost_bytes_are_counted(watch: Watch) -> None:
    """A file deleted before it was read to its end."""
    inbox = watch(bytes_per_file=1024, max_line_bytes=100)
    file = inbox.write("f.jsonl", *LONG[:100])
    inbox.poll()
    file.unlink()
    inbox.poll()
    assert inbox.counted["lost_bytes"] == 10_000 - inbox.counted["bytes_read"]


def test_a39_a40_times_in_the_future_and_the_past_change_nothing(inbox: Inbox) -> None:
    """A clock ahead, at 1970, or backwards."""
    for name, seconds in (("future", 4_070_908_800), ("past", 0), ("before", -86_400)):
        for kind in ("jsonl", "npy"):
            file = inbox.put(f"{name}.{kind}", b"line\nEND\n" if kind == "npy" else b"line\n")
            os.utime(file, (seconds, seconds))
    assert len(inbox.polls(4)) == 6
    file = inbox.write("future.jsonl", "again")
    os.utime(file, (5, 5))
    assert inbox.poll() == ["again"]


@pytest.mark.parametrize("before", [["one", "two"], LONG], ids=["short", "long"])
def test_a41_a_rewrite_of_equal_size_is_detected_by_its_time(inbox: Inbox, before: list[str]) -> None:
    """The checksum decides. A touch changes nothing."""
    file = inbox.write("f.jsonl", *before)
    inbox.poll()
    os.utime(file, ns=(1, 1))
    assert inbox.polls(3) == []
    middle = len(before) // 2
    after = [*before[:middle], before[middle].replace(before[middle][-1], "#"), *before[middle + 1 :]]
    with file.open("r+b") as stream:
        stream.write("".join(f"{line}\n" for line in after).encode())
    os.utime(file, ns=(2, 2))
    assert inbox.polls(3) == after
    assert inbox.counted["files_replaced"] == 1


def test_a41_a_large_file_is_compared_in_turns(watch: Watch) -> None:
    """Other files are read meanwhile."""
    inbox = watch(bytes_per_file=64 << 10)
    file = inbox.write("f.jsonl", *LONG * 40)
    assert len(inbox.polls(20)) == 80_000
    os.utime(file, ns=(1, 1))
    inbox.write("g.jsonl", "other")
    assert inbox.poll() == ["other"]
    inbox.write("f.jsonl", "more")
    assert inbox.polls(3) == []
    assert inbox.polls(20) == ["more"]


def test_a_file_that_returns_continues(inbox: Inbox) -> None:
    """Moved away and back, also across a restart."""
    file = inbox.write("f.jsonl", "one")
    inbox.poll()
    file.rename(inbox.path.parent / "elsewhere")
    inbox.poll()
    assert inbox.counted["files_gone"] == 1
    inbox.crash()
    inbox.polls(2)
    (inbox.path.parent / "elsewhere").rename(file)
    inbox.write("f.jsonl", "two")
    assert inbox.polls(2) == ["two"]
    inbox.polls(3, 8 * 86400)
    assert not inbox.counted["files_forgotten"]


def test_a_checkpoint_is_deleted_long_after_its_file(inbox: Inbox) -> None:
    """A week later; until then it is recognised, however old it is."""
    kept = inbox.write("kept.jsonl", "one")
    gone = inbox.write("gone.jsonl", "two")
    inbox.poll()
    gone.unlink()
    inbox.polls(3, 2 * 86400)
    assert len(inbox.committed) == 2
    inbox.polls(3, 2 * 86400)
    assert len(inbox.committed) == 1
    assert inbox.counted["files_forgotten"] == 1
    inbox.polls(3, 10 * 86400)
    assert kept.exists()
    assert len(inbox.committed) == 1
