"""B22: random sequences of writes, kills and faults for directory, decoder, ingestion and state in one process.

The oracle only knows what was written. A kill discards everything in memory and restarts on a copy of the state files
as they were at that instant; closing them properly would be a stop.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import ParamSpec
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from monitor.errors import StatePaused
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import Carries
from monitor.sources.directory.directory_access import System
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.sources.directory.poll_context import CrashGuard
from monitor.state.store import State
from tests.torture.harness import evidence_of, model_of, state_content
from tests.torture.oracle import StateContent, compare
from tests.torture.records import BASE, WriteLog, gzip_of, line_of, npz_of

FILES = ("a.jsonl", "b.jsonl", "c.jsonl")
files = st.sampled_from(FILES)
counts = st.integers(1, 12)

P = ParamSpec("P")


def recorded(step: Callable[P, None]) -> Callable[P, None]:
    """Record a step, so that a failure can be analysed even if it does not recur."""

    @wraps(step)
    def wrapped(*arguments: P.args, **drawn: P.kwargs) -> None:
        machine = arguments[0]
        assert isinstance(machine, WatchedDirectory)
        machine.steps.append(f"{step.__name__}({', '.join(f'{name}={value!r}' for name, value in drawn.items())})")
        step(*arguments, **drawn)

    return wrapped


_RESTAT_SECONDS = 0.6


class InterruptedSystem(System):
    """The real system, with an action right before one of its calls."""

    def __init__(self) -> None:
        self._calls_left = -1
        self._act: Callable[[], None] = lambda: None

    def schedule(self, after_calls: int, act: Callable[[], None]) -> None:
        """Schedule an action before a later call."""
        self._calls_left, self._act = after_calls, act

    def end(self) -> None:
        """Run the action now if there were fewer calls."""
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
        """Stat a file."""
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


class ProcessRun:
    """One run of the process: all that a kill discards."""

    def __init__(self, inbox: Path, state: Path, window_size: int, monotonic: Callable[[], float], now: float) -> None:
        options = model_of(window_size)
        self.state = State.open(state)
        self.model = ModelState(options)
        self.system = InterruptedSystem()
        decoder = RecordDecoder([options.format], hash_key=self.state.key)
        directory = DirectoryOptions(inbox, poll_seconds=0.2, settle_seconds=1.0, restat_seconds=_RESTAT_SECONDS)
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
        self.labels = DirectorySource(
            "labels",
            replace(directory, path=inbox.parent / "labels"),
            RecordDecoder([options.format], hash_key=self.state.key, carries=Carries.LABELS),
            key=self.state.key,
            monotonic=monotonic,
        )
        sources = [self.source, self.labels]
        self.ingestion = Ingestion(self.state, [self.model], sources, label_sources=["labels"])
        self.ingestion.start(now)

    def close(self) -> None:
        """Close the files."""
        self.source.close()
        self.labels.close()
        self.guard.close()
        self.state.close()

    def content(self) -> StateContent:
        """Return windows and counters."""
        return state_content(self.model, self.ingestion.view.counters().stored())


class WatchedDirectory(RuleBasedStateMachine):
    """Writers, clocks, kills and a full disk, compared with the oracle."""

    process: ProcessRun
    window_size: int

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="b22-"))
        self.inbox = self.folder / "inbox"
        self.inbox.mkdir()
        self.labels = self.folder / "labels"
        self.labels.mkdir()
        self.write_log = WriteLog()
        self.steps: list[str] = []
        self.torn: dict[str, bytes] = {}
        """The rest of the incomplete last line of each file."""
        self.unread: set[str] = set()
        """Files that may have unread lines, which overwriting would lose."""
        self.unknown: set[str] = set()
        """Files that may not be known yet: not rotated, since `f.1` is read only as the former `f`."""
        self.saved: bool = False
        """Whether there is a backup that covers everything."""
        self.now, self.clock = BASE + 1e6, 100.0
        self.runs = self.serial = 0
        self.full = False

    @initialize(window_size=st.sampled_from([7, 40, 1000]))
    @recorded
    def begin(self, window_size: int) -> None:
        """Start for the first time."""
        self.window_size = window_size
        self._restart(None)

    def teardown(self) -> None:
        """Compare once more, and clean up."""
        try:
            if hasattr(self, "process"):
                self.read_all_and_compare()
                self.process.close()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    # Writers

    @rule(name=files, count=counts, keep=st.integers(0, 60))
    @recorded
    def append(self, name: str, count: int, keep: int) -> None:
        """Append lines; the last may stay incomplete."""
        self._append(name, self.write_log.next_lines(count), keep)

    @rule(name=files, count=counts)
    @recorded
    def append_much(self, name: str, count: int) -> None:
        """Make a file too long for a full comparison each time."""
        self._append(name, self.write_log.next_lines(count) + self.write_log.next_long_line(), 0)

    @rule(name=files, which=st.integers(0, 1000))
    @recorded
    def append_rejected(self, name: str, which: int) -> None:
        """Append an invalid line and a repeated record."""
        self._append(name, self.write_log.bad_line(which) + self.write_log.repeated_line(which), 0)

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
    @recorded
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
    @recorded
    def truncate_and_rewrite(self, name: str, count: int) -> None:
        """Truncate a file."""
        if self._may_overwrite(name):
            (self.inbox / name).write_bytes(self.write_log.next_lines(count))
            self._overwritten(name)

    @rule(name=files, count=counts)
    @recorded
    def replace(self, name: str, count: int) -> None:
        """Rename another file over one."""
        if self._may_overwrite(name):
            temporary = self.inbox / f".{name}.tmp"
            temporary.write_bytes(self.write_log.next_lines(count))
            temporary.replace(self.inbox / name)
            self._overwritten(name)

    @rule(name=files)
    @recorded
    def delete(self, name: str) -> None:
        """Delete a file that was read."""
        if self._may_overwrite(name):
            (self.inbox / name).unlink()
            self._overwritten(name)
            self.unread.discard(name)

    def _may_overwrite(self, name: str) -> bool:
        return (self.inbox / name).exists() and name not in self.unread and name not in self.torn

    def _overwritten(self, name: str) -> None:
        self.unread.add(name)
        # The name is known, but not this file.
        self.unknown.add(name)
        self.saved = False

    @rule(count=counts, renamed=st.booleans(), packed=st.booleans())
    @recorded
    def drop(self, count: int, *, renamed: bool, packed: bool) -> None:
        """Add a whole file."""
        self.serial += 1
        numbers = self.write_log.next_numbers(count)
        content = gzip_of([line_of(number) for number in numbers]) if packed else npz_of(numbers)
        name = f"part{self.serial}{'.jsonl.gz' if packed else '.npz'}"
        path = self.inbox / (f".{name}.tmp" if renamed else name)
        path.write_bytes(content)
        if renamed:
            path.rename(self.inbox / name)

    @rule(count=counts, seed=st.integers(0, 1000), timed=st.booleans(), packed=st.booleans())
    @recorded
    def label(self, count: int, seed: int, *, timed: bool, packed: bool) -> None:
        """Append labels to a file, or add a file of them."""
        lines = self.write_log.next_labels(count, seed, timed=timed)
        if seed % 5 == 0:
            lines.append(self.write_log.bad_label(seed))
        if timed and packed:
            self.serial += 1
            (self.labels / f"part{self.serial}.jsonl.gz").write_bytes(gzip_of(lines))
            return
        with (self.labels / ("timed.jsonl" if timed else "untimed.jsonl")).open("ab") as file:
            file.write(b"".join(lines))

    @rule()
    @recorded
    def evaluate(self) -> None:
        """Join the labels so far."""
        self.process.content()

    # Process and machine

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.5, 6.0]))
    @recorded
    def tick(self, seconds: float) -> None:
        """Ingest everything available."""
        before = set(self.unread), set(self.unknown)
        self._tick(seconds)
        # A shorter wait may leave out files that have become idle, as after a jump of the clock.
        if self.process.ingestion.view.paused is None and not self.full and seconds >= _RESTAT_SECONDS:
            self.unread -= before[0]
            self.unknown -= {name for name in before[1] if b"\n" in self._content(name)}

    @rule(name=files, calls=st.integers(0, 40), what=st.sampled_from(["rotate", "append", "torn"]), count=counts)
    @recorded
    def tick_with_writer(self, name: str, calls: int, what: str, count: int) -> None:
        """Ingest while a writer acts."""
        if what == "rotate" and ((self.inbox / name).exists() and name not in self.unknown):
            self.process.system.schedule(calls, lambda: self._rotate(name))
        elif what != "rotate":
            data = self.write_log.next_lines(count)
            self.process.system.schedule(calls, lambda: self._append(name, data, 30 if what == "torn" else 0))
        self._tick(0.6)
        self.process.system.end()

    def _tick(self, seconds: float) -> None:
        self.clock += seconds
        self.now += seconds
        self.process.ingestion.tick(self.now, self.clock)

    def _content(self, name: str) -> bytes:
        path = self.inbox / name
        return path.read_bytes() if path.exists() else b""

    @rule()
    @recorded
    def disk_is_full(self) -> None:
        """Commits fail during one tick."""
        error = StatePaused("state: expected free disk space, found none")
        self.full = True
        with patch.object(State, "commit", side_effect=error):
            self._tick(0.6)
        self.full = False

    @rule(jump=st.sampled_from([-86400.0, -3600.0, 3600.0, 86400.0]))
    @recorded
    def clock_jumps(self, jump: float) -> None:
        """Set the system clock; event times stay in the past."""
        self.now += jump

    @rule()
    @recorded
    def kill(self) -> None:
        """Crash, and restart on what was on disk at that instant."""
        self._restart(self.process.state.path)

    @rule()
    @recorded
    def stop(self) -> None:
        """Stop orderly, and restart."""
        self.process.ingestion.stop(self.now)
        self._restart(self.process.state.path)

    @rule()
    @recorded
    def back_up(self) -> None:
        """Write a backup."""
        self.process.state.back_up()
        self.saved = not self.unknown

    @precondition(lambda self: self.saved)
    @rule(place=st.integers(0, 3))
    @recorded
    def damage(self, place: int) -> None:
        """Damage the database: the next start uses the backup, and reads later records again."""
        state = self.process.state.path
        self._restart(state, damage=place)
        # What was read since the backup is read again, from files that must still be there.
        again = {name for name in FILES if (self.inbox / name).exists()}
        self.unread |= again
        self.unknown |= again

    def _restart(self, state: Path | None, damage: int | None = None) -> None:
        self.runs += 1
        folder = self.folder / f"state{self.runs}"
        if state is None:
            folder.mkdir()
            # Writing 8 MB for each run would take most of the time.
            (folder / "ballast").touch()
        else:
            shutil.copytree(state, folder)
            self.process.close()
            shutil.rmtree(state)
        if damage is not None:
            database = folder / "state.db"
            database.write_bytes([b"", b"no database", bytes(4096), database.read_bytes()[:3000]][damage])
        self.process = ProcessRun(self.inbox, folder, self.window_size, lambda: self.clock, self.now)
        self.steps.append(f"  run {self.runs}: {self.process.state.recovered or 'state unchanged'}")

    @rule()
    @recorded
    def read_all_and_compare(self) -> None:
        """Complete all lines, read everything, and compare with the oracle."""
        for name in FILES:
            if name in self.torn:
                self._append(name, b"", 0)
        for _ in range(12):
            self._tick(2.0)
            if self.process.ingestion.view.paused is not None:
                self._tick(40.0)
        self.unread.clear()
        self.unknown = {name for name in self.unknown if b"\n" not in self._content(name)}
        comparison = compare(self.process.content(), self.write_log, self.window_size, evidence_of)
        assert not comparison.problems, "\n".join([*comparison.problems, "after", *self.steps])
