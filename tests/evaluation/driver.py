"""A whole cpcmon without its clock and its web: real state, real ingestion, real evaluation, time by hand."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from monitor.config.config import IngestOptions, ModelConfig, model_options
from monitor.core.alerts import AlertPhase, AlertRule, AlertStatus
from monitor.core.report import ModelReport, SegmentReport
from monitor.core.segments import Segmentation
from monitor.core.window import Bounds
from monitor.evaluation.evaluator import Evaluator, key_of
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import StreamDecoder
from monitor.reference.reference import Reference
from monitor.state.store import State
from tests.ingest.lines import LinesSource
from tests.strategies import Singles, synthetic

CLASSES = ("cat", "dog", "owl")
REFERENCE = Reference.calibrate(
    *synthetic(2000, 3, seed=1, sharpness=2.6), model="density", version="2.1", classes=CLASSES
)
HEALTHY: Singles = synthetic(6000, 3, seed=2, sharpness=2.6)[0]
POOR: Singles = synthetic(6000, 3, seed=3, sharpness=0.9)[0]
"""A model that has become unsure, and is right as seldom as it says."""

LOW = AlertRule("accuracy_low", drop=0.05, for_seconds=1800.0)
START = 1_760_000_000.0
PERIOD = 60.0


class Monitor:
    """One cpcmon, which can be stopped, killed and started again. Every pass of time takes records in and evaluates."""

    def __init__(
        self,
        folder: Path,
        *rules: AlertRule,
        minimum: int = 200,
        window: int = 500,
        split: bool = False,
        stale_after: float | None = None,
        forget: float | None = None,
        reference: Reference | None = REFERENCE,
        options: IngestOptions | None = None,
    ) -> None:
        self._folder = folder
        self.config = ModelConfig(
            "density",
            None,
            bounds=Bounds(records=window),
            segmentation=Segmentation((("site",),) if split else (), forget_seconds=forget),
            minimum_records=minimum,
            stale_after_seconds=stale_after,
            alerts=rules,
        )
        self._reference, self._options = reference, options
        self.now, self.running, self.slept = START, 1000.0, 0.0
        self.lines: list[bytes] = []
        self._numbers = itertools.count()
        self.start()

    def start(self) -> None:
        """Start, or start again."""
        assert self._reference is not None
        self.state = State.open(self._folder)
        model = ModelState(model_options(self.config, self._reference))
        decoder = StreamDecoder([model.options.format], hash_key=self.state.key)
        self.source = LinesSource(self.lines, decoder, at_once=50)
        self.ingestion = Ingestion(self.state, [model], [self.source], self._options)
        self.evaluator = Evaluator(self.config, self._reference, self.ingestion)
        self.evaluator.restore(self.state.kept().get(key_of("density")))
        self.ingestion.start(self.now)

    def kill(self) -> None:
        """Die without a word."""
        self.state.close()

    def restart(self, away: float = 5.0, reference: Reference | None = None, **changes: object) -> None:
        """Be killed, and be back after a while, perhaps with another configuration, or another reference."""
        self.kill()
        self._reference = reference or self._reference
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]
        self.now += away
        self.running = 50.0  # another boot, another steady clock
        self.start()

    def sleep(self, seconds: float) -> None:
        """Let time pass while the machine sleeps."""
        self.now, self.running, self.slept = self.now + seconds, self.running + seconds, self.slept + seconds

    def send(self, count: int, pool: Singles = HEALTHY, *, at: float | None = None, **fields: object) -> None:
        """Let records wait to be read."""
        for _ in range(count):
            vector = pool[next(self._numbers) % len(pool)]
            record = {"probs": [float(p) for p in vector], "time": self.now if at is None else at, **fields}
            self.lines.append(json.dumps(record).encode() + b"\n")

    def tick(self) -> None:
        """Take records in."""
        self.ingestion.tick(self.now, self.running)

    def evaluate(self) -> ModelReport:
        """Judge, and have it written down."""
        report = self.evaluator.evaluate(self.now, self.running, self.running - self.slept)
        self.ingestion.keep(key_of("density"), self.evaluator.remembered())
        return report

    def step(self, seconds: float = PERIOD) -> ModelReport:
        """Let time pass, take in, judge, write down."""
        self.now += seconds
        self.running += seconds
        self.tick()
        report = self.evaluate()
        self.ingestion.tick(self.now, self.running)
        return report

    def run(self, seconds: float, pool: Singles = HEALTHY, *, a_minute: int = 10, **fields: object) -> ModelReport:
        """Let time pass while records come."""
        report = None
        for _ in range(int(seconds / PERIOD)):
            self.send(a_minute, pool, at=None, **fields)
            report = self.step()
        assert report is not None
        return report


def whole(report: ModelReport) -> SegmentReport:
    """Return the report on the whole model."""
    return report.segments[0]


def named(report: ModelReport, segment: str) -> SegmentReport:
    """Return the report on a segment."""
    return next(one for one in report.segments if one.name == segment)


def alert(report: ModelReport, segment: str = "all") -> AlertStatus:
    """Return the only alert of a segment."""
    (only,) = named(report, segment).alerts
    return only


def phase(report: ModelReport, segment: str = "all") -> AlertPhase:
    """Return where the only alert of a segment stands."""
    return alert(report, segment).phase


def accuracy(vectors: Singles) -> float:
    """Return the accuracy of a calibrated model that says this."""
    return float(np.mean(vectors.max(axis=1)))
