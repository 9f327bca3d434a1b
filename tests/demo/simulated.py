"""Plays the story without waiting, with the real estimators and alerts."""

import itertools
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from monitor.config.config import Every, IngestOptions, ModelConfig, model_options
from monitor.config.reading import read_config
from monitor.core.baselines.comparison import BaselineKind
from monitor.core.estimate import ADAPTIVE, Estimate
from monitor.core.labels.audit import audited
from monitor.core.labels.realised import SegmentLabels
from monitor.core.labels.track_record import TrackRecord
from monitor.core.record_columns import Records, Texts
from monitor.core.scores import Booleans
from monitor.demo.demo_folder import AUDITED_SHARE, Folder
from monitor.demo.example_data import CLASSES
from monitor.demo.play import DemoOptions
from monitor.demo.story import LABELS_AFTER, LENGTH, SEGMENTS, Examined, Exams, Truth, labels, records
from monitor.evaluation.evaluator import Evaluator
from monitor.ingest.backlog import Backlog
from monitor.ingest.late_labels import plan_labels, plan_predictions
from monitor.ingest.model_state import ModelState, ModelStates
from monitor.records.id_hash import hash_ids
from monitor.reference.reference import Reference
from monitor.state.commit_plan import CommitPlan, Counters


@dataclass
class Evaluated:
    """Estimated and realised accuracy of a window."""

    at: float
    estimated: float
    realised: float


@dataclass
class Labelled:
    """What labels say of a window."""

    at: float
    labels: SegmentLabels
    track: TrackRecord


@dataclass
class Played:
    """The results of a story."""

    fired: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    """By alert and segment."""
    ended: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    kinds: dict[str, BaselineKind | None] = field(default_factory=dict)
    evaluated: dict[str, list[Evaluated]] = field(default_factory=lambda: {name: [] for name in SEGMENTS})
    labelled: dict[str, list[Labelled]] = field(default_factory=lambda: {name: [] for name in SEGMENTS})


def settings(folder: Path) -> ModelConfig:
    """Return the model of the demo's configuration."""
    (folder / "arriving").mkdir(parents=True)
    Folder(folder).configure(None, "none", 1.0)
    (model,) = read_config(folder / "config.yaml").models
    return model


KEY = bytes(16)
"""Of the hashes of ids."""


def audit(ids: list[str]) -> Booleans:
    """Return which ids are audited."""
    return audited(hash_ids(ids, KEY), AUDITED_SHARE)


class _Windows:
    """The windows of the demo, without a daemon."""

    def __init__(self, model: ModelConfig, reference: Reference) -> None:
        self._model = ModelState(model_options(model, reference))
        backlog = Backlog([], IngestOptions())
        backlog.end_poll(backlog.begin_poll(), 0.0)
        self.states = ModelStates([self._model], Counters(), backlog)
        self._chunks = itertools.count(1)
        self._sent = 0
        self._late: deque[tuple[float, list[dict[str, Any]]]] = deque()

    def add(self, examined: list[Examined], now: float) -> None:
        """Add exams to the windows of their segments, and labels of earlier ones."""
        places = [one.scanner for one in examined for _ in one.right]
        ids = [one["id"] for one in records(examined, self._sent, "run", now)]
        self._late.append((now + LABELS_AFTER, labels(examined, self._sent, "run", audit)))
        self._sent += len(ids)
        outputs = Records(
            np.concatenate([one.outputs for one in examined]).astype(np.float32),
            np.full(len(places), now),
            {
                "hospital": Texts.of([one.hospital for one in places]),
                "scanner": Texts.of([one.room for one in places]),
            },
            ids=hash_ids(ids, KEY),
        )
        admitted, plan = self._model.windows.admit(outputs, now), CommitPlan()
        assert admitted.chunk is not None
        plan_predictions(plan, self._model, outputs, admitted.chunk)
        self._model.enter(admitted.chunk, next(self._chunks), now)
        while self._late and self._late[0][0] <= now:
            _, told = self._late.popleft()
            true = Records(
                np.empty((len(told), 0), dtype=np.float32),
                np.full(len(told), now),
                ids=hash_ids([one["id"] for one in told], KEY),
                labels=np.array([CLASSES.index(one["label"]) for one in told]),
            )
            plan_labels(plan, self._model, [self._model], "labels", true, now)
        for batch in plan.ids:
            self._model.hashes[batch.model].remember(batch.hashes, batch.number)


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
        report = evaluator.evaluate(at, at, at).summary()
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
            if part.labels is not None and part.track_record is not None:
                found.labelled[part.name].append(Labelled(at, part.labels, part.track_record))
    return found
