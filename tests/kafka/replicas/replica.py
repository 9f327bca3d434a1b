"""One replica: a real `cpcmon run` with its own state, which can be killed, stopped, frozen and restarted."""

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from monitor.config.config import ModelOptions
from monitor.core.segments import Segmentation, name_of
from monitor.core.window import Bounds
from monitor.ingest.model_state import ModelState
from monitor.ingest.restore import restore_shard
from monitor.reference.reference import Reference
from monitor.sources.kafka.partition_checkpoint import decoded, partition_of
from monitor.state.store import State
from tests.daemon.process import Process, one
from tests.kafka.replicas.oracle import StoredPartition

SOURCE, MODEL = "stream", "density"
_REBALANCED = "group rebalanced: "

_CONFIG = """\
storage: {{path: {state}}}
sources:
  - name: {source}
    type: kafka
    brokers: [{brokers}]
    group: {group}
    topics: [{topic}]
    start: earliest
    assignor: {assignor}
{identity}
    session_timeout: {session_seconds}s
    commit_every: 0.5s
models:
  - name: {model}
    reference: {reference}
    window: {{records: {window_size}}}
    segment_by: [[site]]
    evaluate: {{every: 1s}}
    minimum_records: 50
limits: {{window_bytes: 1GiB}}
"""


@dataclass(frozen=True)
class ReplicaOptions:
    """The options common to all replicas."""

    folder: Path
    brokers: str
    group: str
    topic: str
    assignor: str
    window_size: int
    """In records."""
    reference: Path
    session_seconds: float = 4.0
    static: bool = False
    """Whether each replica has an `instance_id`."""


class Replica:
    """A member of the group; its log covers all of its starts."""

    def __init__(self, name: str, options: ReplicaOptions) -> None:
        self.name = name
        self.starts = 0
        self._options = options
        self._folder = options.folder / name
        self._folder.mkdir()
        self._earlier_lines: list[str] = []
        self._process: Process | None = None
        identity = f"    instance_id: {name}" if options.static else ""
        config = _CONFIG.format(**vars(options), identity=identity, state=self.state, source=SOURCE, model=MODEL)
        (self._folder / "config.yaml").write_text(config, encoding="utf-8")

    @property
    def state(self) -> Path:
        """The state folder."""
        return self._folder / "state"

    @property
    def running(self) -> bool:
        """Whether there is a process, frozen or not."""
        return self._process is not None

    def start(self, module: str = "monitor") -> None:
        """Start the process."""
        assert self._process is None
        self._process = Process(self._folder / "config.yaml", module=module)
        self.starts += 1

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._running.send_signal(number)

    def kill(self) -> None:
        """Kill the process; fail if it had already exited."""
        self.send_signal(signal.SIGKILL)
        self.wait_killed()

    def wait_killed(self) -> None:
        """Wait for a process that was killed."""
        self._wait({-signal.SIGKILL})

    def stop(self) -> None:
        """Stop the process; fail unless it exits with 0."""
        self.send_signal(signal.SIGTERM)
        self.wait_stopped()

    def discard(self) -> None:
        """Kill the process in any state, at the end of a test."""
        process, self._process = self._running, None
        process.kill()

    def wait_stopped(self) -> None:
        """Wait for a process that was sent SIGTERM."""
        # Without a log line it may not have installed its signal handlers.
        self._wait({0} if self._running.lines else {0, -signal.SIGTERM})

    def wait_for_assignment(self) -> None:
        """Wait for the first assignment of partitions."""
        self._running.wait_for_line(_REBALANCED)

    def delete_state(self) -> None:
        """Delete the state folder."""
        assert self._process is None
        shutil.rmtree(self.state, ignore_errors=True)

    def records(self) -> int | None:
        """Return the exported number of records in the window of all; None while it is catching up."""
        page = self._running.metrics()
        ready, lag = one(page, "cpcmon_source_ready", source=SOURCE), one(page, "cpcmon_source_lag_files")
        if ready != 1.0 or lag != 0.0:
            return None
        return int(one(page, "cpcmon_window_records", model=MODEL, segment="all") or 0.0)

    def partitions(self) -> int:
        """Return the number of assigned partitions in the last log line about it."""
        lines = [line for line in self._log if _REBALANCED in line]
        return int(lines[-1].split(_REBALANCED)[1].split()[0]) if lines else 0

    def count_logged(self, text: str) -> int:
        """Return the number of log lines that contain a text."""
        return sum(text in line for line in self._log)

    def stored_partitions(self) -> Iterator[tuple[int, StoredPartition]]:
        """Yield the content of the state by partition, as a start would restore it; the process must not run."""
        assert self._process is None
        if not self.state.exists():
            return
        options = ModelOptions(
            MODEL,
            Reference.load(self._options.reference),
            Bounds(self._options.window_size),
            Segmentation((("site",),)),
        )
        common = ModelState(options)
        state = State.open(self.state)
        try:
            for key, value in state.checkpoints(SOURCE).items():
                partition, position = partition_of(key), decoded(value)
                assert partition is not None
                assert position is not None
                model = common.in_shard((SOURCE, partition.shard))
                assert not restore_shard(state, {MODEL: model})
                windows = {
                    name_of(segment): list(
                        zip(window.times.tolist(), window.vectors().tolist(), strict=True),
                    )
                    for segment in model.windows
                    if len(window := model.windows[segment])
                }
                yield partition.number, StoredPartition(self.name, position.next_offset, windows)
        finally:
            state.close()

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join([f"{self.name}:", *self._log[-40:]])

    @property
    def _log(self) -> list[str]:
        return self._earlier_lines + (self._process.lines if self._process else [])

    @property
    def _running(self) -> Process:
        assert self._process is not None, f"{self.name} is not running"
        return self._process

    def _wait(self, wanted: set[int]) -> None:
        process = self._running
        code = process.end()
        self._earlier_lines += process.lines
        self._process = None
        assert code in wanted, f"{self.name}: expected exit code {wanted}, found {code}\n{self.log_tail()}"
