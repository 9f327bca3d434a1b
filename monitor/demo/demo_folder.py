"""The folder `.demo/`: example files, reference, configuration; and how records reach the daemon.

Windows, alerts and unread files of the run before are removed at the start: nobody should see yesterday's alert today.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from monitor.core.intervals import Progress
from monitor.demo.example_data import CLASSES, write_example
from monitor.demo.story import MODEL, VERSION
from monitor.errors import CpcmonError, StateInUse, UsageError
from monitor.records.layout import Layout
from monitor.records.offline.offline_batch import accept_array
from monitor.reference.reference import Reference
from monitor.sources.kafka.topic_feed import TopicFeed
from monitor.state.state_folder import StateFolder, no_folder

TOPIC = "cpcmon-demo"


class Feed(Protocol):
    """Takes records to where the daemon reads them."""

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Send some records."""

    def close(self) -> None:
        """Let go of everything."""


class DirectoryFeed:
    """Drops a file at a time, each complete when it gets its name. The daemon deletes what it has read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Write elsewhere, then rename: a reader sees all of the records or none."""
        self._number += 1
        temporary = self._folder / f".{self._number:08d}.jsonl.tmp"
        temporary.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        temporary.rename(self._folder / f"{self._number:08d}.jsonl")

    def close(self) -> None:
        """Nothing is held."""


class KafkaFeed:
    """Sends a message a record."""

    def __init__(self, broker: str) -> None:
        self._topic = TopicFeed(broker, TOPIC)

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Send them."""
        self._topic.send([json.dumps(one).encode() for one in records])

    def close(self) -> None:
        """Send what is left."""
        self._topic.close()


_LOCK = "demo.lock"
_OURS = (
    "# Written by `cpcmon demo`",
    "# cpcmon run --config.file tour.yaml;",
    "# cpcmon run --config.file config.yaml;",
)
"""How configurations of demos begin; the last one is of before there was a story."""
_EXAMPLE = ("density.ref", "validation*.jsonl", "site_[ab]*.jsonl", "inbox/results.jsonl")
"""Files of the example, which a tour leaves too, beside its configuration."""

WINDOW = 1000
MINIMUM = 200
_HOLD_SECONDS = 15.0
_LOOK_SECONDS = 2.0
_PATIENCE_SECONDS = 5.0
"""How long a daemon whose demo was killed may take to notice."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The paths."""

    path: Path

    @property
    def config(self) -> Path:
        """The daemon's configuration."""
        return self.path / "config.yaml"

    @property
    def reference(self) -> Path:
        """What the estimates compare with."""
        return self.path / "density.ref"

    @property
    def validation(self) -> Path:
        """What the reference is made of."""
        return self.path / "validation_labelled.jsonl"

    @property
    def arriving(self) -> Path:
        """The directory that the daemon watches."""
        return self.path / "arriving"

    @property
    def state(self) -> Path:
        """The daemon's windows and alerts."""
        return self.path / "state-live"

    @property
    def realised(self) -> Path:
        """What turned out right."""
        return self.path / "realised.jsonl"

    @property
    def log(self) -> Path:
        """What the daemon says."""
        return self.path / "cpcmon.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other demos out of the folder; raises StateInUse where one is at work."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise UsageError(
                f"--directory {self.path}: expected a folder, found {no_folder(self.path, error)}"
            ) from error
        self._check_ours()
        try:
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise UsageError(
                f"--directory {self.path}: expected a folder, found {no_folder(self.path, error)}"
            ) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateInUse(
                    f"--directory {self.path}: expected a folder that no other demo uses, found one at work there:"
                    " stop it with Ctrl-C, or give this one a --directory of its own"
                ) from None
            yield
        finally:
            os.close(lock)

    def _check_ours(self) -> None:
        """Refuse a folder of somebody else: what stands in our places there would be lost."""
        if (self.path / _LOCK).exists():
            return
        taken = [path for path in (self.arriving, self.state, self.realised, self.log) if path.exists()]
        configs = [path for path in (self.config, self.path / "tour.yaml") if path.exists()]
        ours = [path for path in configs if path.read_text(encoding="utf-8", errors="replace").startswith(_OURS)]
        taken += [path for path in configs if path not in ours]
        if not ours:
            taken += [path for pattern in _EXAMPLE for path in sorted(self.path.glob(pattern))]
        if taken:
            raise UsageError(
                f"--directory {self.path}: expected an empty folder, or one of a demo,"
                f" found {taken[0].name} of somebody else: choose another"
            )

    def empty(self) -> None:
        """Remove what the run before left; raises StateInUse while a daemon still works on it."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.state.exists():
            try:
                StateFolder.hold(self.state).close()
            except StateInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                shutil.rmtree(self.state)
        shutil.rmtree(self.arriving, ignore_errors=True)
        self.arriving.mkdir()
        for path in (self.realised, self.log):
            path.unlink(missing_ok=True)

    def known_reference(self) -> Reference | None:
        """Write the example, and return its reference if one was made of the same data by the same cpcmon."""
        write_example(self.path)
        with suppress(OSError, CpcmonError):
            if self._note.read_text(encoding="utf-8") == self._made_of():
                found = Reference.load(self.reference)
                # Somebody may have put another one there, or one of an earlier cpcmon, of which pages show less.
                return found if found.title == f"{MODEL} {VERSION}" and found.summary.reliability else None
        return None

    def make_reference(self, progress: Progress) -> Reference:
        """Make the reference of the example's validation set; takes some seconds."""
        rows = [json.loads(line) for line in self.validation.read_text(encoding="utf-8").splitlines()]
        batch = accept_array(
            [row["probs"] for row in rows], Layout(classes=CLASSES), [CLASSES.index(row["label"]) for row in rows]
        )
        assert batch.labels is not None  # noqa: S101  labels were given, so they came back
        reference = Reference.from_accepted(
            batch.probabilities,
            batch.labels,
            model=MODEL,
            version=VERSION,
            classes=CLASSES,
            progress=progress,
        )
        reference.save(self.reference)
        self._note.write_text(self._made_of(), encoding="utf-8")
        return reference

    @property
    def _note(self) -> Path:
        return self.path / ".density.ref.of"

    def _made_of(self) -> str:
        return f"{hashlib.sha256(self.validation.read_bytes()).hexdigest()} cpcmon {version('cpcmon')}\n"

    def configure(self, broker: str | None, group: str, speed: float) -> None:
        """Write the daemon's configuration."""
        source = _DIRECTORY if broker is None else _KAFKA.format(broker=json.dumps(broker), group=group, topic=TOPIC)
        text = _CONFIG.format(
            source=source,
            window=WINDOW,
            minimum=MINIMUM,
            every=f"{max(1.0, _LOOK_SECONDS / speed):g}",
            hold=f"{_HOLD_SECONDS / speed:g}",
        )
        self.config.write_text(text, encoding="utf-8")


_DIRECTORY = """\
  # What was read is deleted after a while: the demo is not to fill the disk.
  - {name: results, type: directory, path: arriving, poll: 0.5s, on_finish: delete, finish_after: 30s, forget_after: 10m}"""

_KAFKA = """\
  - {{name: results, type: kafka, brokers: [{broker}], group: {group}, topics: [{topic}]}}"""

_CONFIG = """\
# Written by `cpcmon demo`, anew each time. Every setting is explained in config.example.yaml.
storage: {{path: state-live}}
sources:
{source}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    # What turned out right, which real life tells later or never. Pages show it; no estimate uses it.
    realised: realised.jsonl
    window: {{records: {window}, age: 7d}}
    minimum_records: {minimum}
    segment_by: [[hospital], [hospital, scanner]]
    # The windows here are seconds long, so they are looked at often. Real ones hold days: see docs/alerts.md.
    evaluate: {{every: {every}s}}
    alerts:
      - {{name: accuracy_low, drop: 0.05, for: {hold}s, severity: critical}}
      - {{name: silent, after: 2m, severity: warning}}
"""
