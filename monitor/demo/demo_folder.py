"""The folder `.demo/` with example data, reference and configuration, and the feeds that send records to the daemon."""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from monitor.core.intervals import Progress
from monitor.demo.example_data import CLASSES, write_example
from monitor.demo.story import MODEL, VERSION, labelled_exams
from monitor.errors import CpcmonError, Problem, StateInUse, UsageError
from monitor.records.offline_files import accept_array
from monitor.reference.reference import Reference
from monitor.sources.kafka.client import TopicFeed
from monitor.state.state_folder import StateFolder, folder_problem

TOPIC = "cpcmon-demo"
LABELS_TOPIC = "cpcmon-demo-labels"


class Feed(Protocol):
    """Sends records to the daemon."""

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Send records."""

    def close(self) -> None:
        """Release all resources."""


class DirectoryFeed:
    """Writes one complete file per call. The daemon deletes files that were read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Write a temporary file and rename it."""
        self._number += 1
        temporary = self._folder / f".{self._number:08d}.jsonl.tmp"
        temporary.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        temporary.rename(self._folder / f"{self._number:08d}.jsonl")

    def close(self) -> None:
        """Do nothing."""


class KafkaFeed:
    """Sends one Kafka message per record."""

    def __init__(self, broker: str, topic: str) -> None:
        self._topic = TopicFeed(broker, topic)

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Send records."""
        self._topic.send([json.dumps(one).encode() for one in records])

    def close(self) -> None:
        """Flush and close the producer."""
        self._topic.close()


_LOCK = "demo.lock"
_OURS = (
    "# Written by `cpcmon demo`",
    "# cpcmon run --config.file tour.yaml;",
    "# cpcmon run --config.file config.yaml;",
)
"""First lines of configurations written by a demo; the last one by earlier versions."""
_EXAMPLE = ("density.ref", "validation*.jsonl", "hospitals*.jsonl", "site_[ab]*.jsonl", "inbox/results.jsonl")
"""Files of the example data, also written by the tour."""

WINDOW = 1000
MINIMUM = 200
AUDITED_SHARE = 0.1
"""About a hundred labels of each block of the track record, which is as long as a window."""
_HORIZON_SECONDS = 60.0
"""The shortest one: the audited accuracy is that of the last minute."""
_HOLD_SECONDS = 15.0
_EVALUATE_SECONDS = 1.0
"""An own baseline needs sixty evaluations, and the story should not be long."""
_PATIENCE_SECONDS = 5.0
"""How long a daemon may take to stop after its demo was killed."""


class Folder:
    """The files of the demo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.reference = path / "density.ref"
        self.labelled = path / "hospitals_labelled.jsonl"
        self.arriving = path / "arriving"
        self.labels = path / "labels"
        self.state = path / "state-live"
        self.log = path / "cpcmon.log"
        self._fingerprint_file = path / ".density.ref.of"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder; raises StateInUse if another demo uses it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._check_ours()
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            found = folder_problem(self.path, error)
            raise UsageError(Problem(f"--directory {self.path}", "a folder", found)) from error
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateInUse(
                    Problem(
                        f"--directory {self.path}",
                        "a folder that no other demo uses",
                        "one running there: stop it with Ctrl-C, or choose another --directory",
                    )
                ) from None
            yield
        finally:
            os.close(lock)

    def _check_ours(self) -> None:
        """Reject a folder with files that the demo did not write and would overwrite."""
        if (self.path / _LOCK).exists():
            return
        taken = [path for path in (self.arriving, self.labels, self.state, self.log) if path.exists()]
        configs = [path for path in (self.config, self.path / "tour.yaml") if path.exists()]
        ours = [path for path in configs if path.read_text(encoding="utf-8", errors="replace").startswith(_OURS)]
        taken += [path for path in configs if path not in ours]
        if not ours:
            taken += [path for pattern in _EXAMPLE for path in sorted(self.path.glob(pattern))]
        if taken:
            raise UsageError(
                Problem(
                    f"--directory {self.path}",
                    "an empty folder or one of a demo",
                    f"{taken[0].name}, which no demo wrote: choose another",
                )
            )

    def empty(self) -> None:
        """Remove state, alerts and files of the previous run; raises StateInUse while a daemon uses them."""
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
        for feed in (self.arriving, self.labels):
            shutil.rmtree(feed, ignore_errors=True)
            feed.mkdir()
        self.log.unlink(missing_ok=True)

    def known_reference(self) -> Reference | None:
        """Write the example data; return the reference if it was made from the same data by this version."""
        write_example(self.path)
        lines = (json.dumps(one) + "\n" for one in labelled_exams())
        self.labelled.write_text("".join(lines), encoding="utf-8")
        with suppress(OSError, CpcmonError):
            if self._fingerprint_file.read_text(encoding="utf-8") == self._fingerprint():
                found = Reference.load(self.reference)
                # Not replaced by that of the tour, which has no hospitals.
                return found if found.title == f"{MODEL} {VERSION}" and found.calibration.segments else None
        return None

    def make_reference(self, progress: Progress) -> Reference:
        """Make the reference from the labelled set, with baselines of its hospitals and scanners; takes some seconds."""
        rows = [json.loads(line) for line in self.labelled.read_text(encoding="utf-8").splitlines()]
        batch = accept_array(
            [row["probs"] for row in rows],
            [CLASSES.index(row["label"]) for row in rows],
            classes=CLASSES,
            segments={name: [row[name] for row in rows] for name in ("hospital", "scanner")},
        )
        reference = Reference.from_accepted(
            batch.records,
            model=MODEL,
            version=VERSION,
            classes=CLASSES,
            segment_by=[["hospital"], ["hospital", "scanner"]],
            progress=progress,
        )
        reference.save(self.reference)
        self._fingerprint_file.write_text(self._fingerprint(), encoding="utf-8")
        return reference

    def _fingerprint(self) -> str:
        return f"{hashlib.sha256(self.labelled.read_bytes()).hexdigest()} cpcmon {version('cpcmon')}\n"

    def configure(self, broker: str | None, group: str, speed: float) -> None:
        """Write the configuration of the daemon."""
        source = _DIRECTORY
        if broker is not None:
            source = _KAFKA.format(broker=json.dumps(broker), group=group, topic=TOPIC, labels_topic=LABELS_TOPIC)
        text = _CONFIG.format(
            source=source,
            window=WINDOW,
            minimum=MINIMUM,
            baseline=3 * WINDOW,
            every=f"{max(0.1, _EVALUATE_SECONDS / speed):.3g}",
            hold=f"{_HOLD_SECONDS / speed:g}",
            horizon=f"{_HORIZON_SECONDS:g}",
            share=AUDITED_SHARE,
        )
        self.config.write_text(text, encoding="utf-8")


_DIRECTORY = """\
  # Files that were read are deleted, so that the demo does not fill the disk.
  - {name: results, type: directory, path: arriving, poll: 0.5s, on_finish: delete, finish_after: 30s, forget_after: 10m}
  # Labels of some exams come later, with the ids of their predictions.
  - name: second_readings
    type: directory
    path: labels
    carries: labels
    poll: 0.5s
    on_finish: delete
    finish_after: 30s
    forget_after: 10m"""

_KAFKA = """\
  - {{name: results, type: kafka, brokers: [{broker}], group: {group}, topics: [{topic}]}}
  # Labels of some exams come later, with the ids of their predictions. Every replica must read all of them: see docs/labels.md.
  - name: second_readings
    type: kafka
    brokers: [{broker}]
    group: {group}-labels-$HOSTNAME
    topics: [{labels_topic}]
    carries: labels"""

_CONFIG = """\
# Written by `cpcmon demo` at each start. config.example.yaml explains every setting.
storage: {{path: state-live}}
sources:
{source}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    window: {{records: {window}, age: 7d}}
    minimum_records: {minimum}
    segment_by: [[hospital], [hospital, scanner]]
    # Own baselines of three windows: one is as uncertain as any window.
    baseline_records: {baseline}
    # The windows span seconds, so they are evaluated often. Real ones span days: see docs/alerts.md.
    evaluate: {{every: {every}s}}
    # The hash of its id decides whether an exam is audited: a random tenth, all of which get a label. Real shares are
    # smaller. Only these labels count for the audited accuracy: exams that the model was unsure about get one too.
    audit: {{share: {share}}}
    # How long predictions wait for their labels, here as short as it may be. Real labels take weeks: the default is 30d.
    labels: {{horizon: {horizon}s}}
    alerts:
      # Segments are compared with their own labelled exams, or without any with their own first ones.
      - {{name: accuracy_drop, type: change, severity: critical}}
      - {{name: outputs_changed, type: output_drift, for: {hold}s, severity: warning}}
      - {{name: silent, after: 2m, severity: warning}}
"""
