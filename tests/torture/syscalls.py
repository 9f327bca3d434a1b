"""Kills at chosen system calls: strace sends SIGKILL at the n-th call."""

import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers import real_server
from tests.torture.harness import COMMAND, TIMEOUT_SECONDS, Site
from tests.torture.oracle import Comparison

CALLS = ("pwrite64", "fdatasync", "fsync", "rename", "unlink", "ftruncate", "openat", "pread64", "write")
"""The calls that change files, or read the state and the inbox."""

_STATE_FILES = (
    *("", "state.db", "state.db-wal", "state.db-journal", "state.db.new", "state.db.new-journal", "state.lock"),
    *("in_flight.inbox", "in_flight.labels", "rejected.jsonl", "hash.key", "hash.key.tmp", "ballast", "ballast.tmp"),
)


def require_strace() -> None:
    """Skip without strace; fail in CI."""
    real_server("strace")


@dataclass
class Scene:
    """A site with new records, before a start."""

    folder: Path
    first: bool
    """Whether the state is empty."""
    site: Site | None = None
    serial: int = 0

    def prepare(self) -> Site:
        """Return a site with new records."""
        self.serial += 1
        if self.site is None or self.first:
            if self.site is not None:
                shutil.rmtree(self.site.folder)
            self.site = Site(self.folder / f"site{self.serial}", window_size=500)
            if not self.first:
                _write_more(self.site, self.serial)
                self.site.finish_here()
        _write_more(self.site, self.serial)
        return self.site


def _write_more(site: Site, serial: int) -> None:
    """Append, rotate, and add files; more than windows hold, so that chunks are dropped."""
    grows = site.inbox / "grows.jsonl"
    if serial % 3 == 0 and grows.exists():
        grows.rename(site.inbox / f"grows.jsonl.{serial}")
    with grows.open("ab") as file:
        file.write(
            site.write_log.next_lines(300) + site.write_log.bad_line(serial) + site.write_log.repeated_line(serial * 12)
        )
    with (site.labels / "grows.jsonl").open("ab") as file:
        file.write(b"".join(site.write_log.next_labels(60, serial, timed=False)) + site.write_log.bad_label(serial))
    (site.labels / f"new{serial}{len(list(site.labels.iterdir()))}.jsonl").write_bytes(
        b"".join(site.write_log.next_labels(40, serial, timed=True))
    )
    (site.inbox / f"new{serial}{len(list(site.inbox.iterdir()))}.jsonl").write_bytes(site.write_log.next_lines(150))


def calls_made(site: Site) -> Counter[str]:
    """Run to the end; return the number of calls of each kind."""
    trace = site.folder / "trace"
    words = ["strace", "-f", "-o", str(trace), *_paths(site), "-e", f"trace={','.join(CALLS)}"]
    process = site.start(once=True, command=[*words, *COMMAND])
    assert process.wait(TIMEOUT_SECONDS) == 0, site.log_tail()
    text = trace.read_text(encoding="utf-8", errors="replace")
    return Counter(re.findall(r"^\d+ +(\w+)\(", text, flags=re.MULTILINE))


def kill_at(site: Site, call: str, number: int) -> bool:
    """Run with a kill at a call; return whether it was reached."""
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}"]
    words = ["strace", "-f", "-o", "/dev/null", *_paths(site), *inject]
    code = site.start(once=True, command=[*words, *COMMAND]).wait(TIMEOUT_SECONDS)
    assert code in {0, -signal.SIGKILL, 128 + signal.SIGKILL}, f"exit code {code}: {site.log_tail()}"
    return code != 0


def sweep(scene: Scene, calls: Sequence[str], most: int | None) -> Iterator[tuple[str, int, bool, Comparison]]:
    """Kill at the n-th call, read the rest, and compare; for all n, or `most` of them."""
    site = scene.prepare()
    made = calls_made(site)
    for call in calls:
        for number in _spread(made[call], most):
            site = scene.prepare()
            killed = kill_at(site, call, number)
            site.finish_here()
            yield call, number, killed, site.compare()


def _spread(count: int, most: int | None) -> list[int]:
    """Return up to `most` numbers from 1 to a count, including both ends; one is in the middle."""
    if most is None or count <= most:
        return list(range(1, count + 1))
    return (
        sorted({1 + round(step * (count - 1) / (most - 1)) for step in range(most)}) if most > 1 else [1 + count // 2]
    )


def _paths(site: Site) -> list[str]:
    """Return the arguments that restrict strace to the files of a site."""
    paths = [site.inbox, site.labels, *(site.state / name for name in _STATE_FILES)]
    return [word for path in paths for word in ("-P", str(path))]
