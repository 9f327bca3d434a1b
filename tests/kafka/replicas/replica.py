"""One replica: a real `cpcmon run` with a state folder of its own, which can be killed, stopped, frozen and started."""

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
from tests.kafka.replicas.oracle import Held

SOURCE, MODEL = "stream", "density"
_SHARED = "its group shares partitions anew: "

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
    window: {{records: {most}}}
    segment_by: [[site]]
    evaluate: {{every: 1s}}
    minimum_records: 50
limits: {{window_bytes: 1GiB}}
"""


@dataclass(frozen=True)
class Setting:
    """What all replicas have in common."""

    folder: Path
    brokers: str
    group: str
    topic: str
    assignor: str
    most: int
    """Records that a window holds."""
    reference: Path
    session_seconds: float = 4.0
    static: bool = False
    """Whether each replica has an `instance_id`."""


class Replica:
    """A member of the group. Its log goes on over restarts."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self.starts = 0
        self._setting = setting
        self._folder = setting.folder / name
        self._folder.mkdir()
        self._said: list[str] = []
        self._process: Process | None = None
        identity = f"    instance_id: {name}" if setting.static else ""
        config = _CONFIG.format(**vars(setting), identity=identity, state=self.state, source=SOURCE, model=MODEL)
        (self._folder / "config.yaml").write_text(config, encoding="utf-8")

    @property
    def state(self) -> Path:
        """Its disk."""
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

    def tell(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._running.tell(number)

    def kill(self) -> None:
        """End it without a word, and fail if it had ended by itself."""
        self.tell(signal.SIGKILL)
        self.wait_killed()

    def wait_killed(self) -> None:
        """Wait for the end of a process that is killed."""
        self._wait({-signal.SIGKILL})

    def stop(self) -> None:
        """Ask it to end, and fail unless it does so in good order."""
        self.tell(signal.SIGTERM)
        self.wait_stopped()

    def forget(self) -> None:
        """End it, however it stands; for the end of a test."""
        process, self._process = self._running, None
        process.kill()

    def wait_stopped(self) -> None:
        """Wait for the end of a process that was asked for it."""
        # The system itself ends one that has not come so far as to listen to signals.
        self._wait({0} if self._running.lines else {0, -signal.SIGTERM})

    def wait_for_a_share(self) -> None:
        """Wait until the group has let it in."""
        self._running.wait_for_line(_SHARED)

    def lose_disk(self) -> None:
        """Forget all that was stored."""
        assert self._process is None
        shutil.rmtree(self.state, ignore_errors=True)

    def records(self) -> int | None:
        """Return how many records its windows hold, as it tells everybody; None while it has not caught up."""
        page = self._running.metrics()
        ready, behind = one(page, "cpcmon_source_ready", source=SOURCE), one(page, "cpcmon_source_lag_files")
        if ready != 1.0 or behind != 0.0:
            return None
        return int(one(page, "cpcmon_window_records", model=MODEL, segment="all") or 0.0)

    def partitions(self) -> int:
        """Return how many partitions it said last that it owns."""
        said = [line for line in self._log if _SHARED in line]
        return int(said[-1].split(_SHARED)[1].split()[0]) if said else 0

    def said(self, words: str) -> int:
        """Return how often it said something, over all starts."""
        return sum(words in line for line in self._log)

    def held(self) -> Iterator[tuple[int, Held]]:
        """Yield what lies on its disk, by partition, as a start would read it; nobody may be running."""
        assert self._process is None
        if not self.state.exists():
            return
        options = ModelOptions(
            MODEL, Reference.load(self._setting.reference), Bounds(self._setting.most), Segmentation((("site",),))
        )
        common = ModelState(options)
        state = State.open(self.state)
        try:
            for key, value in state.positions(SOURCE).items():
                partition, position = partition_of(key), decoded(value)
                assert partition is not None
                assert position is not None
                model = common.in_shard((SOURCE, partition.shard))
                dropped = restore_shard(state, {MODEL: model}).dropped
                assert not dropped
                windows = {
                    name_of(segment): list(
                        zip(window.times.tolist(), window.vectors().tolist(), strict=True),
                    )
                    for segment in model.windows
                    if len(window := model.windows[segment])
                }
                yield partition.number, Held(self.name, position.next_offset, windows)
        finally:
            state.close()

    def last_words(self) -> str:
        """Return what it said lately, over all starts."""
        return "\n".join([f"{self.name}:", *self._log[-40:]])

    @property
    def _log(self) -> list[str]:
        return self._said + (self._process.lines if self._process else [])

    @property
    def _running(self) -> Process:
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    def _wait(self, wanted: set[int]) -> None:
        process = self._running
        code = process.end()
        self._said += process.lines
        self._process = None
        assert code in wanted, (
            f"{self.name}: expected to end with one of {wanted}, ended with {code}\n{self.last_words()}"
        )
