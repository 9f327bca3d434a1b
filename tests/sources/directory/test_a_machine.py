"""Random histories of a directory, compared with an oracle: every line exactly once."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.sources.directory.inbox import Inbox, lines_of

pytestmark = pytest.mark.slow

NAMES = st.sampled_from(["a.jsonl", "b.jsonl", "c.csv"])
FILLER = st.sampled_from([0, 0, 0, 5000, 70_000])


@dataclass
class Model:
    """The expected content of a file."""

    whole: list[str] = field(default_factory=list)
    half: str = ""
    met: bool = False
    """Whether a committed poll has seen its present content."""


class DirectoryMachine(RuleBasedStateMachine):
    """Writers that append, rotate, truncate, copy and replace; a reader that commits, rolls back and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="cpcmon-machine-"))
        self.inbox = Inbox(
            self.folder, max_line_bytes=200_000, bytes_per_file=50_000, bytes_per_tick=200_000, restat_seconds=6.0
        )
        self.files: dict[str, Model] = {}
        self.required: set[str] = set()
        self.optional: set[str] = set()
        self.serial = 0

    def teardown(self) -> None:
        """Complete all lines, read to the end, and check that every line came once."""
        for name, model in self.files.items():
            if model.half:
                self._write(name, "\n")
                self.required.add(model.half)
        self.inbox.polls(15)
        missing = self.required - set(self.inbox.lines)
        assert not missing, f"lost: {sorted(line[:12] for line in missing)}"
        assert set(self.inbox.lines) <= self.required | self.optional
        self.inbox.source.close()
        shutil.rmtree(self.folder)

    def named(self) -> list[str]:
        """Return the files with a known extension: others are read only if they continue one of these."""
        return sorted(name for name in self.files if name.endswith((".jsonl", ".csv")))

    def with_lines(self) -> list[str]:
        """Return those with a complete line. Draws must not depend on the reader, or they could not be repeated."""
        return [name for name in self.named() if self.files[name].whole]

    def _line(self, filler: int) -> str:
        self.serial += 1
        return f"line {self.serial} {'x' * filler}"

    def _write(self, name: str, text: str, mode: str = "a") -> None:
        with (self.folder / name).open(mode) as stream:
            stream.write(text)
        self._stamp(name)

    def _stamp(self, name: str) -> None:
        # File times are coarse: two changes of equal size within one tick cannot be distinguished.
        self.serial += 1
        os.utime(self.folder / name, ns=(self.serial * 10**9, self.serial * 10**9))

    def _lose(self, name: str) -> None:
        """Unread lines of a file may be lost now, and read ones must not be repeated."""
        model = self.files.pop(name, Model())
        unread = set(model.whole) - set(self.inbox.lines)
        self.required -= unread
        self.optional |= unread

    @rule(name=NAMES, count=st.integers(1, 3), filler=FILLER)
    def append(self, name: str, count: int, filler: int) -> None:
        """Append complete lines, the first of which ends an incomplete one."""
        model = self.files.setdefault(name, Model())
        for _ in range(count):
            line = self._line(filler)
            self._write(name, f"{line}\n")
            model.whole.append(model.half + line)
            self.required.add(model.half + line)
            model.half = ""

    @rule(name=NAMES)
    def append_half(self, name: str) -> None:
        """Start a line."""
        model = self.files.setdefault(name, Model())
        half = self._line(0)
        self._write(name, half)
        model.half += half

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def rotate(self, data: st.DataObject) -> None:
        """Rename a file; its writer may continue."""
        name = data.draw(st.sampled_from(sorted(self.files)))
        model = self.files[name]
        # A file with an unknown extension is only read if it was known before.
        suffix = data.draw(st.sampled_from([".1", ".jsonl"])) if model.met and (model.whole or model.half) else ".jsonl"
        self.serial += 1
        target = f"{name.split('.')[0]}-{self.serial}{suffix}"
        (self.folder / name).rename(self.folder / target)
        self.files[target] = self.files.pop(name)

    @precondition(lambda self: self.with_lines())
    @rule(data=st.data(), regrown=st.integers(0, 3), filler=FILLER)
    def copy_and_truncate(self, data: st.DataObject, regrown: int, filler: int) -> None:
        """Copy a file, truncate it, and continue. Only one rotation between two polls can be tracked."""
        name = data.draw(st.sampled_from(self.with_lines()))
        self.inbox_poll()
        # A copy is recognised by lines that were read.
        if not set(self.files[name].whole) & set(self.inbox.lines):
            return
        self.serial += 1
        target = f"{name}.{self.serial}"
        shutil.copyfile(self.folder / name, self.folder / target)
        self._stamp(target)
        self.files[target] = self.files.pop(name)
        self._write(name, "", "w")
        if regrown:
            self.append(name, regrown, filler)
        # A second rotation before the next poll cannot be tracked.
        self.inbox_poll()

    @precondition(lambda self: self.named())
    @rule(data=st.data(), filler=FILLER)
    def truncate(self, data: st.DataObject, filler: int) -> None:
        """Truncate a file and write something else."""
        name = data.draw(st.sampled_from(self.named()))
        self._lose(name)
        self._write(name, "", "w")
        if data.draw(st.booleans()):
            self.append(name, data.draw(st.integers(1, 4)), filler)

    @precondition(lambda self: self.named())
    @rule(data=st.data(), filler=FILLER)
    def replace(self, data: st.DataObject, filler: int) -> None:
        """Rename another file over one."""
        name = data.draw(st.sampled_from(self.named()))
        self._lose(name)
        line = self._line(filler)
        self._write(".new", f"{line}\n", "w")
        (self.folder / ".new").rename(self.folder / name)
        self.files[name] = Model([line])
        self.required.add(line)

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Delete a file."""
        name = data.draw(st.sampled_from(sorted(self.files)))
        self._lose(name)
        (self.folder / name).unlink()

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        """Change only the time. With a rename at the same moment it would count as a new file."""
        self.inbox_poll()
        self._stamp(data.draw(st.sampled_from(sorted(self.files))))
        self.inbox_poll()

    @rule(seconds=st.sampled_from([2.0, 2.0, 2.0, 70.0, 700.0, 4000.0]))
    def inbox_poll(self, seconds: float = 2.0) -> None:
        """Poll and commit."""
        self.inbox.poll(seconds)
        # One poll may not reach all files.
        self.inbox.polls(3)
        for model in self.files.values():
            model.met = True

    @rule(keep=st.integers(0, 3), roll_back=st.booleans())
    def interrupted_poll(self, keep: int, *, roll_back: bool) -> None:
        """Commit part of a poll, and lose the rest by a crash or rollback."""
        self.inbox.clock += 2
        self.inbox.now += 2
        polling = self.inbox.source.poll(self.inbox.now)
        taken = [delivery for _, delivery in zip(range(keep), polling, strict=False)]
        self.inbox.commit(taken)
        for _ in zip(range(2), polling, strict=False):
            pass
        polling.close()
        if roll_back:
            self.inbox.source.roll_back()
        else:
            self.inbox.crash()

    @rule()
    def crash(self) -> None:
        """Restart from what was committed."""
        self.inbox.crash()

    @invariant()
    def nothing_came_twice(self) -> None:
        """Unique lines were committed once."""
        assert len(self.inbox.lines) == len(set(self.inbox.lines))
        assert all(lines_of(delivery) is not None for delivery in self.inbox.deliveries[-1:])


TestDirectoryMachine = DirectoryMachine.TestCase
TestDirectoryMachine.settings = settings(max_examples=60, stateful_step_count=30)
