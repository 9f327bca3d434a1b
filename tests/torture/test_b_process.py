"""B16, B17, B19: stops, kills for memory, and files that crash the decoder."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.torture.harness import TIMEOUT_SECONDS, Site, kill, wait_for
from tests.torture.poisoned import POISON, SLOW
from tests.torture.writer import Writer

POISONED = (sys.executable, "-m", "tests.torture.poisoned")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_b16_a_stop_under_load_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    """Within ten seconds, with every acknowledged record on disk."""
    site = Site(tmp_path, 1_000_000)
    with Writer(site.inbox, site.write_log, seed=16, seen=site.seen):
        process = site.start()
        wait_for(lambda: site.reports() >= 5, "some reports")
        process.send_signal(number)
        assert process.wait(10) == 0, site.log_tail()
        acknowledged = site.acknowledged()
        assert acknowledged > 0
        assert site.content().records_total >= acknowledged
    site.finish()
    site.check()


def backlog(site: Site) -> None:
    """Write files that take some memory to read."""
    for which in range(4):
        (site.inbox / f"backlog{which}.jsonl").write_bytes(
            site.write_log.next_lines(20_000) + site.write_log.bad_line(which)
        )


def memory_of_an_idle_process(folder: Path) -> int:
    """Return the anonymous memory of a process that has read one record."""
    site = Site(folder, 100_000)
    (site.inbox / "a.jsonl").write_bytes(site.write_log.next_lines(1))
    process = site.start()
    wait_for(lambda: site.reports() > 0, "a report")
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    kill(process)
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def run_limited(site: Site, before: Callable[[], None]) -> int | None:
    """Run under a limit; return the exit code."""
    process = site.start(once=True, before=before)
    try:
        return process.wait(TIMEOUT_SECONDS)
    finally:
        kill(process)


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Create a control group with a memory limit; skip where that is not possible."""
    group = Path(f"/sys/fs/cgroup/memory/cpcmon-torture-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit), encoding="ascii")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"SKIPPED: cannot create a memory control group (version 1): {error.strerror}")
    try:
        yield group
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(encoding="ascii").strip(), "an empty group")
        group.rmdir()


@pytest.mark.slow
def test_b17_a_kill_for_memory_loses_and_repeats_no_record(tmp_path: Path) -> None:
    """A backlog is read with a limit of 4 MiB above the memory of an idle process."""
    limit = memory_of_an_idle_process(tmp_path / "idle") + (4 << 20)
    site = Site(tmp_path / "site", 100_000)
    backlog(site)
    with memory_group(limit) as group:

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

        assert run_limited(site, enter) == -signal.SIGKILL, site.log_tail()
    site.finish()
    site.check()


@pytest.mark.parametrize("suffix", [".jsonl", ".npz"])
def test_b19_a_file_that_crashes_the_decoder_is_skipped(tmp_path: Path, suffix: str) -> None:
    """After three crashes; the fourth start reads all other files."""
    site = Site(tmp_path, 10_000)
    (site.inbox / "a.jsonl").write_bytes(site.write_log.next_lines(50))
    (site.inbox / f"m{suffix}").write_bytes(POISON + b"\n")
    (site.inbox / "z.jsonl").write_bytes(site.write_log.next_lines(50))
    codes = []
    for _ in range(4):
        process = site.start(command=POISONED)
        wait_for(lambda process=process: process.poll() is not None or site.count_logged("crash") > 0, "an exit")  # type: ignore[misc]
        codes.append(process.poll())
        if process.poll() is None:
            break
    assert codes == [139, 139, 139, None], site.log_tail()
    (site.inbox / "later.jsonl").write_bytes(site.write_log.next_lines(50))
    wait_for(lambda: site.acknowledged() == site.write_log.written, "the records of all other files")
    process.terminate()
    assert process.wait(10) == 0
    found = site.content()
    assert found.events.pop("files_failed") == 1
    assert found.records_total == site.write_log.written


def test_b19_kills_from_outside_do_not_fail_a_good_file(tmp_path: Path) -> None:
    """Six kills while the same batch is decoded: it is suspected, decoded in a child, and read."""
    site = Site(tmp_path, 10_000)
    data = site.write_log.next_lines(50)
    (site.inbox / "a.jsonl").write_bytes(b'{"' + SLOW + b'": 1, ' + data[1:])
    for number in range(1, 7):
        before = site.count_logged("slow")
        process = site.start(command=POISONED, environment={"SLOW_SECONDS": "0.5" if number > 3 else "30"})
        # From the fourth start on, the child decodes first.
        wait_for(lambda before=before: site.count_logged("slow") > before, "the decoder")  # type: ignore[misc]
        time.sleep(0.05 if number <= 3 else 0.6)
        assert kill(process)
    site.finish()
    site.check()
