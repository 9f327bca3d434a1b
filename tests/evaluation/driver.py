"""State, ingestion and evaluation of a real cpcmon, with a manual clock."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from monitor.config.config import AuditOptions, IngestOptions, LabelOptions, ModelConfig, model_options
from monitor.core.alerts import AlertPhase, AlertRule, AlertStatus
from monitor.core.baselines.comparison import BaselineOptions
from monitor.core.report import Report, SegmentReport
from monitor.core.segments import Segmentation
from monitor.core.window import Bounds
from monitor.evaluation.alert_history import AlertHistory, alert_history_key_of
from monitor.evaluation.evaluator import Evaluator
from monitor.evaluation.stored_values import baselines_key_of, key_of
from monitor.evaluation.track_records import track_key_of
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import Carries
from monitor.reference.reference import Reference
from monitor.state.store import State
from tests.ingest.lines import LinesSource
from tests.strategies import Singles, synthetic

CLASSES = ("cat", "dog", "owl")
HEALTHY: Singles = synthetic(6000, 3, seed=2, sharpness=2.6)[0]
POOR: Singles = synthetic(6000, 3, seed=3, sharpness=0.9)[0]
"""A model that became less confident, and is well calibrated."""

LOW = AlertRule("accuracy_low", drop=0.05, for_seconds=1800.0)
START = 1_760_000_000.0
PERIOD = 60.0


@cache
def monitor_reference() -> Reference:
    """Return the reference of 2,000 records that a monitor starts with."""
    vectors, labels = synthetic(2000, 3, seed=1, sharpness=2.6)
    return Reference.calibrate(vectors, labels, model="density", version="2.1", classes=CLASSES)


class Monitor:
    """One cpcmon that can be killed and restarted. Each step in time ingests and evaluates."""

    def __init__(
        self,
        folder: Path,
        *rules: AlertRule,
        minimum: int = 200,
        window: int = 500,
        split: bool = False,
        stale_after: float | None = None,
        forget: float | None = None,
        options: IngestOptions | None = None,
        baseline: BaselineOptions | None = None,
        age: float | None = None,
        reference: Reference | None = None,
        labels: LabelOptions | None = None,
        audit: AuditOptions | None = None,
    ) -> None:
        self._folder = folder
        self.config = ModelConfig(
            "density",
            None,
            bounds=Bounds(None if age else window, age),
            segmentation=Segmentation((("site",),) if split else (), forget_seconds=forget),
            minimum_records=minimum,
            stale_after_seconds=stale_after,
            alerts=rules,
            baseline=baseline or BaselineOptions(),
            labels=labels,
            audit=audit,
        )
        self._reference, self._options = reference or monitor_reference(), options
        self.now, self.running, self.slept = START, 1000.0, 0.0
        self.lines: list[bytes] = []
        self.label_lines: list[bytes] = []
        self._numbers = itertools.count()
        self.start()

    def start(self) -> None:
        """Start or restart."""
        self.state = State.open(self._folder)
        model = ModelState(model_options(self.config, self._reference))
        decoder = RecordDecoder([model.options.format], hash_key=self.state.key)
        self.source = LinesSource(self.lines, decoder, at_once=50)
        told = RecordDecoder([model.options.format], hash_key=self.state.key, carries=Carries.LABELS)
        labels = LinesSource(self.label_lines, told, at_once=50, name="labels")
        self.ingestion = Ingestion(
            self.state, [model], [self.source, labels], self._options, label_sources=[labels.name]
        )
        self.evaluator = Evaluator(self.config, self._reference, self.ingestion.view)
        self.evaluator.restore(self.state.values().get(key_of("density")))
        self.evaluator.restore_baselines(self.state.values().get(baselines_key_of("density")))
        self.evaluator.restore_tracks(self.state.values().get(track_key_of("density")))
        self.history = AlertHistory("density")
        self.history.restore(*map(self.state.values().get, (alert_history_key_of("density"), key_of("density"))))
        self.ingestion.start(self.now)

    def kill(self) -> None:
        """Die as by SIGKILL."""
        self.state.close()

    def restart(self, away: float = 5.0, reference: Reference | None = None, **changes: object) -> None:
        """Kill, and restart after a while, optionally with another configuration or reference."""
        self.kill()
        self._reference = reference or self._reference
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]
        self.now += away
        self.running = 50.0  # another boot: the monotonic clock restarts
        self.start()

    def sleep(self, seconds: float) -> None:
        """Let time pass while the machine sleeps."""
        self.now, self.running, self.slept = self.now + seconds, self.running + seconds, self.slept + seconds

    def send(self, count: int, pool: Singles = HEALTHY, *, at: float | None = None, **fields: object) -> None:
        """Write records to the source."""
        for _ in range(count):
            vector = pool[next(self._numbers) % len(pool)]
            record = {"probs": [float(p) for p in vector], "time": self.now if at is None else at, **fields}
            self.lines.append(json.dumps(record).encode() + b"\n")

    def tell(self, labels: Mapping[str, int]) -> None:
        """Write labels, by id, to their source."""
        for name, label in labels.items():
            record = {"model": "density", "id": name, "label": CLASSES[label], "time": self.now}
            self.label_lines.append(json.dumps(record).encode() + b"\n")

    def tick(self) -> None:
        """Ingest records."""
        self.ingestion.tick(self.now, self.running)

    def evaluate(self) -> Report:
        """Evaluate and commit."""
        report = self.evaluator.evaluate(self.now, self.running, self.running - self.slept)
        self.history.note(report)
        self.ingestion.values.store_together(
            {
                key_of("density"): self.evaluator.alert_state_bytes(),
                alert_history_key_of("density"): self.history.to_bytes(),
            }
        )
        if (baselines := self.evaluator.changed_baselines()) is not None:
            self.ingestion.values.store(baselines_key_of("density"), baselines)
        if (tracks := self.evaluator.changed_tracks(self.now)) is not None:
            self.ingestion.values.store(track_key_of("density"), tracks)
        return report

    def step(self, seconds: float = PERIOD) -> Report:
        """Let time pass, ingest, evaluate, commit."""
        self.now += seconds
        self.running += seconds
        self.tick()
        report = self.evaluate()
        self.ingestion.tick(self.now, self.running)
        return report

    def run(self, seconds: float, pool: Singles = HEALTHY, *, a_minute: int = 10, **fields: object) -> Report:
        """Let time pass while records arrive."""
        report = None
        for _ in range(int(seconds / PERIOD)):
            self.send(a_minute, pool, at=None, **fields)
            report = self.step()
        assert report is not None
        return report


def whole(report: Report) -> SegmentReport:
    """Return the report of the segment `all`."""
    return report.segments[0]


def named(report: Report, segment: str) -> SegmentReport:
    """Return the report on a segment."""
    return next(one for one in report.segments if one.name == segment)


def alert(report: Report, segment: str = "all") -> AlertStatus:
    """Return the only alert of a segment."""
    (only,) = named(report, segment).alerts
    return only


def phase(report: Report, segment: str = "all") -> AlertPhase:
    """Return the phase of the only alert of a segment."""
    return alert(report, segment).phase


def accuracy(vectors: Singles) -> float:
    """Return the accuracy of a calibrated model with these outputs."""
    return float(np.mean(vectors.max(axis=1)))
