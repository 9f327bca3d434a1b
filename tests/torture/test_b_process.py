"""B16, B17, B19: the process is told to stop, runs out of memory, or meets a file that kills it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.torture.harness import PATIENCE_SECONDS, Site, kill, wait_for
from tests.torture.poisoned import POISON, SLOW
from tests.torture.writer import Writer

POISONED = (sys.executable, "-m", "tests.torture.poisoned")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_b16_told_to_stop_under_load_it_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    """Code 0 within ten seconds, with everything on disk that it had answered for."""
    site = Site(tmp_path, 1_000_000)
    with Writer(site.inbox, site.book, seed=16, seen=site.seen):
        process = site.start()
        wait_for(lambda: site.answers() >= 5, "some answers")
        process.send_signal(number)
        assert process.wait(10) == 0, site.last_words()
        acknowledged = site.acknowledged()
        assert acknowledged > 0
        assert site.found().records_total >= acknowledged
    site.finish()
    site.check()


def backlog(site: Site) -> None:
    """Write so much at once that reading it takes memory."""
    for which in range(4):
        (site.inbox / f"backlog{which}.jsonl").write_bytes(site.book.next_lines(20_000) + site.book.bad_line(which))


def memory_of_an_idle_process(folder: Path) -> int:
    """Return what a process has allocated that has started and found next to nothing to read."""
    site = Site(folder, 100_000)
    (site.inbox / "a.jsonl").write_bytes(site.book.next_lines(1))
    process = site.start()
    wait_for(lambda: site.answers() > 0, "the first answer")
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    kill(process)
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def run_out(site: Site, before: Callable[[], None]) -> int | None:
    """Run under a limit until it ends or has nothing more to do; return how it ended."""
    process = site.start(once=True, before=before)
    try:
        return process.wait(PATIENCE_SECONDS)
    finally:
        kill(process)


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Make a control group whose members are killed when they use more; skips loudly where that is not possible."""
    group = Path(f"/sys/fs/cgroup/memory/cpcmon-torture-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit), encoding="ascii")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"SKIPPED, NOT SHOWN: no memory control group (version 1) here: {error.strerror}")
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(encoding="ascii").strip(), "an empty group")
        group.rmdir()


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [1, 4])
def test_b17_killed_by_the_kernel_for_memory_nothing_is_lost_or_twice(tmp_path: Path, megabytes: int) -> None:
    """As under `MemoryMax=` of systemd or in a container: so much more than an idle process takes, and a backlog."""
    limit = memory_of_an_idle_process(tmp_path / "idle") + (megabytes << 20)
    site = Site(tmp_path / "site", 100_000)
    backlog(site)
    with memory_group(limit) as group:

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

        assert run_out(site, enter) == -signal.SIGKILL, site.last_words()
    site.finish()
    site.check()


@pytest.mark.parametrize("suffix", [".jsonl", ".npz"])
def test_b19_a_file_that_kills_the_process_is_left_aside(tmp_path: Path, suffix: str) -> None:
    """At most three deaths; the fourth start lives, and reads all others."""
    site = Site(tmp_path, 10_000)
    (site.inbox / "a.jsonl").write_bytes(site.book.next_lines(50))
    (site.inbox / f"m{suffix}").write_bytes(POISON + b"\n")
    (site.inbox / "z.jsonl").write_bytes(site.book.next_lines(50))
    codes = []
    for _ in range(4):
        process = site.start(command=POISONED)
        wait_for(lambda process=process: process.poll() is not None or site.said("crash") > 0, "an end")  # type: ignore[misc]
        codes.append(process.poll())
        if process.poll() is None:
            break
    assert codes == [139, 139, 139, None], site.last_words()
    (site.inbox / "later.jsonl").write_bytes(site.book.next_lines(50))
    wait_for(lambda: site.acknowledged() == site.book.written, "the records of all other files")
    process.terminate()
    assert process.wait(10) == 0
    found = site.found()
    assert found.events.pop("files_failed") == 1
    assert found.records_total == site.book.written


def test_b19_kills_from_outside_do_not_fail_a_good_file(tmp_path: Path) -> None:
    """Six kills, each while the same batch is being decoded: it is suspected, tried in a child, and read."""
    site = Site(tmp_path, 10_000)
    data = site.book.next_lines(50)
    (site.inbox / "a.jsonl").write_bytes(b'{"' + SLOW + b'": 1, ' + data[1:])
    for number in range(1, 7):
        before = site.said("slow")
        process = site.start(command=POISONED, environment={"SLOW_SECONDS": "0.5" if number > 3 else "30"})
        # From the fourth start on, the child says so first.
        wait_for(lambda before=before: site.said("slow") > before, "the decoder")  # type: ignore[misc]
        time.sleep(0.05 if number <= 3 else 0.6)
        assert kill(process)
    site.finish()
    site.check()
