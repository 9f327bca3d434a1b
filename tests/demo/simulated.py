"""Plays the story without waiting, with the real estimators and alerts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from monitor.config.config import Every, IngestOptions, ModelConfig, model_options
from monitor.config.reading import read_config
from monitor.core.baselines.comparison import BaselineKind
from monitor.core.estimate import ADAPTIVE, Estimate
from monitor.core.record_columns import Records, Texts
from monitor.demo.demo_folder import Folder
from monitor.demo.play import DemoOptions
from monitor.demo.story import LENGTH, SEGMENTS, Examined, Exams, Truth
from monitor.evaluation.evaluator import Evaluator
from monitor.ingest.backlog import Backlog
from monitor.ingest.model_state import ModelState, ModelStates
from monitor.reference.reference import Reference
from monitor.state.commit_plan import Counters


@dataclass
class Evaluated:
    """Estimated and realised accuracy of a window."""

    at: float
    estimated: float
    realised: float


@dataclass
class Played:
    """The results of a story."""

    fired: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """By alert and segment."""
    ended: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    kinds: dict[str, BaselineKind | None] = field(default_factory=dict)
    evaluated: dict[str, list[Evaluated]] = field(default_factory=lambda: {name: [] for name in SEGMENTS})


def settings(folder: Path) -> ModelConfig:
    """Return the model of the demo's configuration."""
    (folder / "arriving").mkdir(parents=True)
    Folder(folder).configure(None, "none", 1.0)
    (model,) = read_config(folder / "config.yaml").models
    return model


class _Windows:
    """The windows of the demo, without a daemon."""

    def __init__(self, model: ModelConfig, reference: Reference) -> None:
        self._model = ModelState(model_options(model, reference))
        backlog = Backlog([], IngestOptions())
        backlog.end_poll(backlog.begin_poll(), 0.0)
        self.states = ModelStates([self._model], Counters(), backlog)
        self._chunks = itertools.count(1)

    def add(self, examined: Sequence[Examined], now: float) -> None:
        """Add exams to the windows of their segments."""
        places = [one.scanner for one in examined for _ in one.right]
        records = Records(
            np.concatenate([one.outputs for one in examined]).astype(np.float32),
            np.full(len(places), now),
            {
                "hospital": Texts.of([one.hospital for one in places]),
                "scanner": Texts.of([one.room for one in places]),
            },
        )
        admitted = self._model.windows.admit(records, now)
        assert admitted.chunk is not None
        self._model.enter(admitted.chunk, next(self._chunks), now)


def played(seed: int, reference: Reference, model: ModelConfig) -> Played:
    """Play the story once, with the real evaluation."""
    assert isinstance(model.evaluate, Every)
    assert model.bounds.records is not None
    every, most = model.evaluate.seconds, model.bounds.records
    count = round(DemoOptions(Path(), "").rate * every)
    exams, found, windows = Exams(seed), Played(), _Windows(model, reference)
    evaluator, truth = Evaluator(model, reference, windows.states), Truth(most, model.minimum_records)
    firing: set[tuple[str, str]] = set()
    for number in range(int(LENGTH / every)):
        at, examined = number * every, exams.next(count, number * every)
        windows.add(examined, at)
        truth.note(examined)
        report = evaluator.evaluate(at, at, at)
        now = {(one.alert, part.name) for part in report.segments for one in part.alerts if one.firing}
        for key in now - firing:
            found.fired.setdefault(key, []).append(at)
        for key in firing - now:
            found.ended.setdefault(key, []).append(at)
        firing = now
        for part in report.segments:
            estimate, realised = part.results.get(ADAPTIVE), truth.now(part.name)
            if isinstance(estimate, Estimate) and realised is not None:
                found.evaluated[part.name].append(Evaluated(at, estimate.accuracy, realised))
                found.kinds[part.name] = None if part.baseline is None else part.baseline.kind
    return found
