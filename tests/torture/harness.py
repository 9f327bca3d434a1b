"""The real process on a real directory: started, killed and restarted, then compared with the oracle."""

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

from monitor.config.config import ModelOptions
from monitor.core.change import MEMBERS, POINT, Detector
from monitor.core.segments import Segmentation, name_of
from monitor.core.totals import Gauge, member_values
from monitor.core.window import Bounds
from monitor.ingest.model_state import ModelState
from monitor.ingest.restore import restore
from monitor.reference.reference import Reference
from monitor.state.store import State
from tests.strategies import accepted, synthetic
from tests.torture.oracle import Comparison, LabelCounts, StateContent, compare, compare_running
from tests.torture.process import LABELS, run
from tests.torture.records import CLASSES, WriteLog, number_at, vector_of

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.torture.process")
STARTED: "list[subprocess.Popen[bytes]]" = []
"""All processes; those of a failed test are killed."""
TIMEOUT_SECONDS = 60.0
"""A timeout for any step, long enough for a busy machine."""


@cache
def reference() -> Reference:
    """Return a reference for the written records."""
    return Reference.calibrate(*synthetic(60, 3, seed=1), model="density", version="2.1", classes=CLASSES)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait for a condition; raises after the timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.01)


@dataclass
class Site:
    """A watched directory, its state, and the log of what was written."""

    folder: Path
    window_size: int
    """Window size in records."""
    state: Path = Path()
    write_log: WriteLog = field(default_factory=WriteLog)
    starts: int = 0
    reports_before: int = 0
    _reports: int = 0
    _read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Create what is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.inbox.mkdir(exist_ok=True)
        self.labels.mkdir(exist_ok=True)
        if self.state == Path():
            self.state = self.folder / "state"
        if not self.reference_file.exists():
            reference().save(self.reference_file)
        self.out.touch()
        self.errors.touch()

    @property
    def inbox(self) -> Path:
        """The watched directory."""
        return self.folder / "inbox"

    @property
    def labels(self) -> Path:
        """The watched directory of labels."""
        return self.folder / "labels"

    @property
    def out(self) -> Path:
        """The output file of all processes."""
        return self.folder / "out.jsonl"

    @property
    def errors(self) -> Path:
        """The log file of all processes."""
        return self.folder / "errors.txt"

    @property
    def reference_file(self) -> Path:
        """The reference."""
        return self.folder / "density.ref"

    @property
    def arguments(self) -> list[str]:
        """The arguments of every run."""
        return [
            *("watch", str(self.inbox), "--reference", str(self.reference_file), "--state", str(self.state)),
            *(
                "--records",
                str(self.window_size),
                "--segment-by",
                "site",
                "--poll",
                "0.2s",
                "--settle",
                "0.2s",
                "--json",
            ),
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
        self.reports_before = self.reports()
        with self.out.open("ab") as out, self.errors.open("ab") as errors:
            process = subprocess.Popen(
                [*command, *self.arguments, *(["--once"] if once else [])],
                stdout=out,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                preexec_fn=before,  # noqa: PLW1509 - for tests of limits
                start_new_session=True,
            )
        STARTED.append(process)
        return process

    def finish(self) -> None:
        """Run the real process until it has read everything."""
        process = self.start(once=True)
        code = process.wait(TIMEOUT_SECONDS)
        assert code == 0, f"--once: exit code {code}: {self.log_tail()}"

    def finish_here(self) -> None:
        """Read everything within this process, which is faster."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with self.out.open("a", encoding="utf-8") as out, redirect_stdout(out):
                code = run([*self.arguments, "--once"])
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        assert code == 0, f"--once: exit code {code}"

    def reports(self) -> int:
        """Return the number of reports of all processes."""
        with self._lock, self.out.open("rb") as out:
            out.seek(self._read)
            new = out.read()
            whole = new.rfind(b"\n") + 1
            self._read += whole
            self._reports += new[:whole].count(b'"segment": "all"')
            return self._reports

    def seen(self) -> tuple[int, int]:
        """Return the number of starts, and of reports since the last one; see `Writer`."""
        starts = self.starts
        return starts, self.reports() - self.reports_before

    def acknowledged(self) -> int:
        """Return the number of ingested records in the last report."""
        for line in reversed(self.out.read_bytes().splitlines()):
            if b'"segment": "all"' in line and line.endswith(b"}"):
                return int(json.loads(line)["records"])
        return 0

    def count_logged(self, text: str) -> int:
        """Return how often a text was logged."""
        return self.errors.read_text(encoding="utf-8", errors="replace").count(text)

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        return self.errors.read_text(encoding="utf-8", errors="replace")[-3000:]

    # Comparing

    def content(self, state: Path | None = None) -> StateContent:
        """Return the restored content of the state."""
        model = ModelState(model_of(self.window_size))
        opened = State.open(state or self.state)
        try:
            restore(opened, {"density": model}, time.time())
            counters = opened.counters()
        finally:
            opened.close()
        return state_content(model, counters)

    def compare(self) -> Comparison:
        """Compare after everything was read."""
        comparison = compare(self.content(), self.write_log, self.window_size, evidence_of)
        if comparison.missing:
            comparison.add(f"files with lost records: {self.files_with(comparison.missing)}")
        return comparison

    def files_with(self, numbers: set[int]) -> dict[str, int]:
        """Return the files that contain some of these records, with counts."""
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

    def compare_running(self) -> Comparison:
        """Compare a copy of the state while not everything was read."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if not self.state.exists():
            return Comparison()
        shutil.copytree(self.state, copy, ignore=shutil.ignore_patterns("ballast*", "*.tmp"))
        return compare_running(self.content(copy), self.write_log)

    def check(self) -> None:
        """Fail on any difference."""
        comparison = self.compare()
        assert not comparison.problems, "\n".join([*comparison.problems, self.log_tail()])


def model_of(window_size: int) -> ModelOptions:
    """Return the model, with the detector that it has by default, and with labels."""
    bounds, segmentation = Bounds(records=window_size), Segmentation((("site",),))
    return ModelOptions("density", reference(), bounds, segmentation, detectors=(Detector(),), labels=LABELS)


def evidence_of(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return what records count as evidence, each once."""
    vectors = np.array([vector_of(number) for number in numbers]).reshape(-1, len(CLASSES))
    values = member_values(Gauge(reference().calibration, ()), accepted(vectors))
    return len(numbers), *np.rint(values * POINT).sum(axis=1).astype(np.int64).tolist()


def state_content(model: ModelState, counters: Mapping[tuple[str, ...], int]) -> StateContent:
    """Return the windows and the relevant counters."""
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
    evidence = dict[str, tuple[int, ...]]()
    if model.evidence is not None:
        model.windows.settle_evidence()
        segments = list(model.windows)
        sums, *_ = model.evidence.table.snapshot(segments)
        columns = 1 + len(MEMBERS)
        evidence = {name_of(one): tuple(row[:columns].tolist()) for one, row in zip(segments, sums, strict=True)}
    total, labels = (
        counters.get(name, 0) for name in (("records_total", "inbox", "density"), ("labels_total", "labels", "density"))
    )
    return StateContent(windows, total, rejected, events, evidence, labels, _label_counts(model))


def _label_counts(model: ModelState) -> dict[str, list[LabelCounts]]:
    assert model.labels is not None
    segments, now = list(model.windows), time.time()
    sums = model.labels.snapshot([model], segments, now).columns(len(segments), len(CLASSES)).sums
    each = np.stack([sums.records, sums.labels, sums.right], axis=2).swapaxes(0, 1).tolist()
    return {name_of(one): [tuple(scope) for scope in row] for one, row in zip(segments, each, strict=True)}


def kill(process: "subprocess.Popen[bytes]") -> bool:
    """Kill a process; return whether it was still alive."""
    alive = process.poll() is None
    if alive:
        process.send_signal(signal.SIGKILL)
    process.wait(TIMEOUT_SECONDS)
    return alive
