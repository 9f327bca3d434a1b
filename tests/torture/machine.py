"""B22: directory, decoder, ingestion and state in one process, put through anything that writers and machines do.

Each rule is something that may happen. The oracle only knows what was written. A kill throws away everything in memory
and goes on with a copy of the files of the state as they were at that instant; closing them properly would be no kill.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import ParamSpec
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from monitor.config.config import ModelOptions
from monitor.core.segments import Segmentation, name_of
from monitor.core.window import Bounds
from monitor.errors import StatePaused
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import StreamDecoder
from monitor.sources.directory.crash_guard import CrashGuard
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.sources.directory.system_calls import System
from monitor.state.store import State
from tests.torture.harness import reference
from tests.torture.oracle import Found, judge
from tests.torture.records import BASE, Book, gzip_of, line_of, npz_of

FILES = ("a.jsonl", "b.jsonl", "c.jsonl")
files = st.sampled_from(FILES)
counts = st.integers(1, 12)

P = ParamSpec("P")


def told(step: Callable[P, None]) -> Callable[P, None]:
    """Write down a step, so that a failure that does not come again can still be understood."""

    @wraps(step)
    def wrapped(*arguments: P.args, **drawn: P.kwargs) -> None:
        machine = arguments[0]
        assert isinstance(machine, WatchedDirectory)
        machine.steps.append(f"{step.__name__}({', '.join(f'{name}={value!r}' for name, value in drawn.items())})")
        step(*arguments, **drawn)

    return wrapped


class Meddler(System):
    """The real system, in which something else happens right before one of its calls."""

    def __init__(self) -> None:
        self._calls_left = -1
        self._act: Callable[[], None] = lambda: None

    def meddle(self, after_calls: int, act: Callable[[], None]) -> None:
        """Do something before a later call."""
        self._calls_left, self._act = after_calls, act

    def end(self) -> None:
        """Do it now, if the calls were fewer."""
        if self._calls_left >= 0:
            self._calls_left = -1
            self._act()

    def _count(self) -> None:
        if self._calls_left >= 0:
            self._calls_left -= 1
            if self._calls_left < 0:
                self._act()

    def open(self, path: str, flags: int, directory: int | None = None) -> int:
        """Open a file."""
        self._count()
        return super().open(path, flags, directory)

    def stat(self, name: str, directory: int) -> os.stat_result:
        """Look at a file."""
        self._count()
        return super().stat(name, directory)

    def read(self, file: int, length: int, offset: int) -> bytes:
        """Read from a file."""
        self._count()
        return super().read(file, length, offset)

    def entries(self, directory: int) -> "Iterator[os.DirEntry[str]]":
        """List a directory."""
        self._count()
        yield from super().entries(directory)
        self._count()


class Life:
    """One life of the process: what a kill throws away."""

    def __init__(self, inbox: Path, state: Path, most: int, monotonic: Callable[[], float], now: float) -> None:
        options = ModelOptions("density", reference(), Bounds(records=most), Segmentation((("site",),)))
        self.state = State.open(state)
        self.model = ModelState(options)
        self.system = Meddler()
        decoder = StreamDecoder([options.format], hash_key=self.state.key)
        directory = DirectoryOptions(inbox, poll_seconds=0.2, settle_seconds=1.0, restat_seconds=0.6)
        self.guard = CrashGuard(state / "in_flight")
        self.source = DirectorySource(
            "inbox",
            directory,
            decoder,
            key=self.state.key,
            guard=self.guard,
            monotonic=monotonic,
            system=self.system,
        )
        self.ingestion = Ingestion(self.state, [self.model], [self.source])
        self.ingestion.start(now)

    def let_go(self) -> None:
        """Let go of the files."""
        self.source.close()
        self.guard.close()
        self.state.close()

    def found(self) -> Found:
        """Return windows and counters."""
        windows = {}
        for segment in self.model.windows:
            window = self.model.windows[segment]
            rows = zip(window.times.tolist(), map(tuple, window.vectors().tolist()), strict=True)
            windows[name_of(segment)] = list(rows)
        counters = self.ingestion.counters
        rejected, events = Counter[str](), Counter[str]()
        for name, count in counters.items():
            if name[0] == "records_rejected_total":
                rejected[name[-1]] += count
            elif name[0] == "source_events_total":
                events[name[-1]] += count
        return Found(windows, counters.get(("records_total", "inbox", "density"), 0), rejected, events)


class WatchedDirectory(RuleBasedStateMachine):
    """Writers, clocks, kills and a full disk against an oracle that only knows what was written."""

    life: Life
    most: int

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="b22-"))
        self.inbox = self.folder / "inbox"
        self.inbox.mkdir()
        self.book = Book()
        self.steps: list[str] = []
        self.torn: dict[str, bytes] = {}
        """The rest of the last line of each file that ends within one."""
        self.unread: set[str] = set()
        """Files that may hold something unread: whoever overwrites one of these loses it, and that is no fault of ours."""
        self.unknown: set[str] = set()
        """Files that may never have been noticed: no rotation for these, since `f.1` is read only as what was `f`."""
        self.saved: bool = False
        """Whether there is a backup from which everything can be read again."""
        self.now, self.clock = BASE + 1e6, 100.0
        self.lives = self.serial = 0
        self.full = False

    @initialize(most=st.sampled_from([7, 40, 1000]))
    @told
    def begin(self, most: int) -> None:
        """Start for the first time."""
        self.most = most
        self._live(None)

    def teardown(self) -> None:
        """Compare once more, and clean up."""
        try:
            if hasattr(self, "life"):
                self.read_all_and_compare()
                self.life.let_go()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    # What writers do

    @rule(name=files, count=counts, keep=st.integers(0, 60))
    @told
    def append(self, name: str, count: int, keep: int) -> None:
        """Add lines; the last of them may stay unfinished."""
        self._append(name, self.book.next_lines(count), keep)

    @rule(name=files, count=counts)
    @told
    def append_much(self, name: str, count: int) -> None:
        """Make a file so long that not all of it is compared each time."""
        self._append(name, self.book.next_lines(count) + self.book.next_long_line(), 0)

    @rule(name=files, which=st.integers(0, 1000))
    @told
    def append_what_is_refused(self, name: str, which: int) -> None:
        """Add a bad line, and a record that was written before."""
        self._append(name, self.book.bad_line(which) + self.book.repeated_line(which), 0)

    def _append(self, name: str, data: bytes, keep: int) -> None:
        data = self.torn.pop(name, b"") + data
        end = max(1, len(data) - keep)
        path = self.inbox / name
        if not path.exists():
            self.unknown.add(name)
        with path.open("ab") as file:
            file.write(data[:end])
        if data[end:]:
            self.torn[name] = data[end:]
        self.unread.add(name)

    @rule(name=files)
    @told
    def rotate(self, name: str) -> None:
        """Rename f to f.1, and what was f.1 to f.2."""
        if (self.inbox / name).exists() and name not in self.unknown:
            self._rotate(name)

    def _rotate(self, name: str) -> None:
        rest = self.torn.pop(name, b"")
        older = sorted(self.inbox.glob(f"{name}.*"), key=lambda path: int(path.suffix[1:]), reverse=True)
        for path in older:
            path.rename(self.inbox / f"{name}.{int(path.suffix[1:]) + 1}")
        with (self.inbox / name).open("ab") as file:
            (self.inbox / name).rename(self.inbox / f"{name}.1")
            # The writer finishes its line in the file that it has open.
            file.write(rest)
        self.unread.discard(name)
        self.saved = False

    @rule(name=files, count=counts)
    @told
    def truncate_and_rewrite(self, name: str, count: int) -> None:
        """Begin a file anew in place."""
        if self._may_overwrite(name):
            (self.inbox / name).write_bytes(self.book.next_lines(count))
            self._overwritten(name)

    @rule(name=files, count=counts)
    @told
    def replace(self, name: str, count: int) -> None:
        """Rename another file over one."""
        if self._may_overwrite(name):
            temporary = self.inbox / f".{name}.tmp"
            temporary.write_bytes(self.book.next_lines(count))
            temporary.replace(self.inbox / name)
            self._overwritten(name)

    @rule(name=files)
    @told
    def delete(self, name: str) -> None:
        """Remove a file that has been read."""
        if self._may_overwrite(name):
            (self.inbox / name).unlink()
            self._overwritten(name)
            self.unread.discard(name)

    def _may_overwrite(self, name: str) -> bool:
        return (self.inbox / name).exists() and name not in self.unread and name not in self.torn

    def _overwritten(self, name: str) -> None:
        self.unread.add(name)
        # What is there now has not been seen. It is known by name, but not as the file that it is.
        self.unknown.add(name)
        self.saved = False

    @rule(count=counts, renamed=st.booleans(), packed=st.booleans())
    @told
    def drop(self, count: int, *, renamed: bool, packed: bool) -> None:
        """Drop a file that is read as a whole."""
        self.serial += 1
        numbers = self.book.next_numbers(count)
        content = gzip_of([line_of(number) for number in numbers]) if packed else npz_of(numbers)
        name = f"part{self.serial}{'.jsonl.gz' if packed else '.npz'}"
        path = self.inbox / (f".{name}.tmp" if renamed else name)
        path.write_bytes(content)
        if renamed:
            path.rename(self.inbox / name)

    # What the process and its machine do

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.5, 6.0]))
    @told
    def tick(self, seconds: float) -> None:
        """Take in what there is."""
        before = set(self.unread), set(self.unknown)
        self._tick(seconds)
        if self.life.ingestion.paused is None and not self.full:
            self.unread -= before[0]
            self.unknown -= {name for name in before[1] if b"\n" in self._content(name)}

    @rule(name=files, calls=st.integers(0, 40), what=st.sampled_from(["rotate", "append", "torn"]), count=counts)
    @told
    def tick_with_company(self, name: str, calls: int, what: str, count: int) -> None:
        """Take in what there is while a writer does something at the same time."""
        if what == "rotate" and ((self.inbox / name).exists() and name not in self.unknown):
            self.life.system.meddle(calls, lambda: self._rotate(name))
        elif what != "rotate":
            data = self.book.next_lines(count)
            self.life.system.meddle(calls, lambda: self._append(name, data, 30 if what == "torn" else 0))
        self._tick(0.6)
        self.life.system.end()

    def _tick(self, seconds: float) -> None:
        self.clock += seconds
        self.now += seconds
        self.life.ingestion.tick(self.now, self.clock)

    def _content(self, name: str) -> bytes:
        path = self.inbox / name
        return path.read_bytes() if path.exists() else b""

    @rule()
    @told
    def disk_is_full(self) -> None:
        """Nothing can be committed for one tick."""
        error = StatePaused("state: expected room on the disk, found it full")
        self.full = True
        with patch.object(State, "commit", side_effect=error):
            self._tick(0.6)
        self.full = False

    @rule(jump=st.sampled_from([-86400.0, -3600.0, 3600.0, 86400.0]))
    @told
    def clock_jumps(self, jump: float) -> None:
        """The time of day changes; that of records is long past either way."""
        self.now += jump

    @rule()
    @told
    def kill(self) -> None:
        """Die, and start again on what was on disk at that instant."""
        self._live(self.life.state.path)

    @rule()
    @told
    def stop(self) -> None:
        """Stop in an orderly way, and start again."""
        self.life.ingestion.stop(self.now)
        self._live(self.life.state.path)

    @rule()
    @told
    def back_up(self) -> None:
        """Write a backup."""
        self.life.state.back_up()
        self.saved = not self.unknown

    @precondition(lambda self: self.saved)
    @rule(place=st.integers(0, 3))
    @told
    def damage(self, place: int) -> None:
        """Find the database damaged at the next start: the backup is used, and what came since is read again."""
        state = self.life.state.path
        self._live(state, damage=place)

    def _live(self, state: Path | None, damage: int | None = None) -> None:
        self.lives += 1
        folder = self.folder / f"state{self.lives}"
        if state is None:
            folder.mkdir()
            # Eight megabytes for each life would take most of the time.
            (folder / "ballast").touch()
        else:
            shutil.copytree(state, folder)
            self.life.let_go()
            shutil.rmtree(state)
        if damage is not None:
            database = folder / "state.db"
            database.write_bytes([b"", b"no database", bytes(4096), database.read_bytes()[:3000]][damage])
        self.life = Life(self.inbox, folder, self.most, lambda: self.clock, self.now)
        self.steps.append(f"  life {self.lives}: {self.life.state.recovered or 'state as it was'}")

    @rule()
    @told
    def read_all_and_compare(self) -> None:
        """Finish all lines, wait until everything has been read, and compare with the oracle."""
        for name in FILES:
            if name in self.torn:
                self._append(name, b"", 0)
        for _ in range(12):
            self._tick(2.0)
            if self.life.ingestion.paused is not None:
                self._tick(40.0)
        self.unread.clear()
        self.unknown = {name for name in self.unknown if b"\n" not in self._content(name)}
        verdict = judge(self.life.found(), self.book, self.most)
        assert not verdict.problems, "\n".join([*verdict.problems, "after", *self.steps])
