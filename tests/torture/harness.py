"""The real process on a real directory: started, killed, started again, and what it leaves compared with the oracle."""

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from monitor.cli import main
from monitor.config.config import ModelOptions
from monitor.core.segments import Segmentation, name_of
from monitor.core.window import Bounds
from monitor.ingest.model_state import ModelState
from monitor.ingest.restore import restore
from monitor.reference.reference import Reference
from monitor.state.store import State
from tests.strategies import synthetic
from tests.torture.oracle import Found, Verdict, judge, judge_on_the_way
from tests.torture.records import CLASSES, Book, number_at

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "monitor")
STARTED: "list[subprocess.Popen[bytes]]" = []
"""All processes, so that a test that fails leaves none behind."""
PATIENCE_SECONDS = 60.0
"""After so long something is stuck. No claim about speed: the machine may be busy with everything else."""


@cache
def reference() -> Reference:
    """Return a reference for the records that are written."""
    return Reference.calibrate(*synthetic(60, 3, seed=1), model="density", version="2.1", classes=CLASSES)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is true; it is an error when it never is."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.01)


@dataclass
class Site:
    """A directory that is watched, with the state beside it and the book of what was written."""

    folder: Path
    most: int
    """Records that a window holds."""
    state: Path = Path()
    book: Book = field(default_factory=Book)
    starts: int = 0
    answers_before: int = 0
    _answers: int = 0
    _read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Make what is not there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.inbox.mkdir(exist_ok=True)
        if self.state == Path():
            self.state = self.folder / "state"
        if not self.reference_file.exists():
            reference().save(self.reference_file)
        self.out.touch()
        self.errors.touch()

    @property
    def inbox(self) -> Path:
        """The directory that is watched."""
        return self.folder / "inbox"

    @property
    def out(self) -> Path:
        """Where all processes, one after the other, write their answers."""
        return self.folder / "out.jsonl"

    @property
    def errors(self) -> Path:
        """Where they say everything else."""
        return self.folder / "errors.txt"

    @property
    def reference_file(self) -> Path:
        """The reference."""
        return self.folder / "density.ref"

    @property
    def words(self) -> list[str]:
        """The arguments that all runs share."""
        return [
            *("watch", str(self.inbox), "--reference", str(self.reference_file), "--state", str(self.state)),
            *("--records", str(self.most), "--segment-by", "site", "--poll", "0.2s", "--settle", "0.2s", "--json"),
            *("--minimum-records", "1"),
        ]

    # Running

    def start(
        self,
        *,
        once: bool = False,
        command: Sequence[str] = COMMAND,
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> "subprocess.Popen[bytes]":
        """Start the real process."""
        self.starts += 1
        self.answers_before = self.answers()
        with self.out.open("ab") as out, self.errors.open("ab") as errors:
            process = subprocess.Popen(
                [*command, *self.words, *(["--once"] if once else [])],
                stdout=out,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                preexec_fn=before,  # noqa: PLW1509 - only tests of limits use it
                start_new_session=True,
            )
        STARTED.append(process)
        return process

    def finish(self) -> None:
        """Run the real process until it has read everything."""
        process = self.start(once=True)
        code = process.wait(PATIENCE_SECONDS)
        assert code == 0, f"--once ended with {code}: {self.last_words()}"

    def finish_here(self) -> None:
        """Do the same in this process, which saves the time of starting another."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with self.out.open("a", encoding="utf-8") as out, redirect_stdout(out):
                code = main([*self.words, "--once"])
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        assert code == 0, f"--once ended with {code}"

    def answers(self) -> int:
        """Return how many answers all processes gave together."""
        with self._lock, self.out.open("rb") as out:
            out.seek(self._read)
            new = out.read()
            whole = new.rfind(b"\n") + 1
            self._read += whole
            self._answers += new[:whole].count(b'"segment": "all"')
            return self._answers

    def seen(self) -> tuple[int, int]:
        """Return which process runs and how many answers it gave; see `Writer`."""
        starts = self.starts
        return starts, self.answers() - self.answers_before

    def acknowledged(self) -> int:
        """Return how many records the last answer says were taken in."""
        for line in reversed(self.out.read_bytes().splitlines()):
            if b'"segment": "all"' in line and line.endswith(b"}"):
                return int(json.loads(line)["records"])
        return 0

    def said(self, words: str) -> int:
        """Return how often the processes said something."""
        return self.errors.read_text(encoding="utf-8", errors="replace").count(words)

    def last_words(self) -> str:
        """Return what the processes said last."""
        return self.errors.read_text(encoding="utf-8", errors="replace")[-3000:]

    # Comparing

    def found(self, state: Path | None = None) -> Found:
        """Open the state and rebuild everything in it, as a start does."""
        options = ModelOptions("density", reference(), Bounds(records=self.most), Segmentation((("site",),)))
        model = ModelState(options)
        opened = State.open(state or self.state)
        try:
            restore(opened, {"density": model}, time.time())
            counters = opened.counters()
        finally:
            opened.close()
        windows = {}
        for segment in model.windows:
            window = model.windows[segment]
            rows = zip(window.times.tolist(), map(tuple, window.vectors().tolist()), strict=True)
            windows[name_of(segment)] = list(rows)
        rejected, events = Counter[str](), Counter[str]()
        for name, count in counters.items():
            if name[0] == "records_rejected_total":
                rejected[name[-1]] += count
            elif name[0] == "source_events_total":
                events[name[-1]] += count
        return Found(windows, counters.get(("records_total", "inbox", "density"), 0), rejected, events)

    def judge(self) -> Verdict:
        """Compare everything, after all has been read."""
        verdict = judge(self.found(), self.book, self.most)
        if verdict.missing:
            verdict.add(f"files that hold lost records: {self.holding(verdict.missing)}")
        return verdict

    def holding(self, numbers: set[int]) -> dict[str, int]:
        """Return which files hold some records, and how many of them, for whoever wants to know why they are lost."""
        found: Counter[str] = Counter()
        for file in self.inbox.iterdir():
            content = file.read_bytes()
            if file.suffix == ".npz":
                with np.load(io.BytesIO(content)) as arrays:
                    times = [repr(at) for at in arrays["time"].tolist()]
            else:
                text = gzip.decompress(content) if file.suffix == ".gz" else content
                times = re.findall(r'"time": ([0-9.]+)', text.decode())
            found[file.name] = len(numbers.intersection(number_at(float(at)) for at in times))
        return {name: count for name, count in sorted(found.items()) if count}

    def judge_on_the_way(self) -> Verdict:
        """Compare what must be true at any instant, in a copy: the state itself is the next process's to mend."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if not self.state.exists():
            return Verdict()
        shutil.copytree(self.state, copy, ignore=shutil.ignore_patterns("ballast*", "*.tmp"))
        return judge_on_the_way(self.found(copy), self.book.written)

    def check(self) -> None:
        """Fail unless everything is there once."""
        verdict = self.judge()
        assert not verdict.problems, "\n".join([*verdict.problems, self.last_words()])


def kill(process: "subprocess.Popen[bytes]") -> bool:
    """Kill a process without warning, and tell whether it was still alive."""
    alive = process.poll() is None
    if alive:
        process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)
    return alive
