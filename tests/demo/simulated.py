"""Plays the story without waiting, with the real estimators and alerts."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from monitor.config.config import Every, ModelConfig
from monitor.config.reading import read_config
from monitor.core.baselines.comparison import BaselineKind
from monitor.core.estimate import ADAPTIVE, Estimate
from monitor.core.report import InputFacts, Snapshot
from monitor.core.scores import Floats
from monitor.core.segments import Segment
from monitor.core.totals import Gauge, MeasuredWindows, totals_of
from monitor.demo.demo_folder import Folder
from monitor.demo.play import DemoOptions
from monitor.demo.story import LENGTH, SEGMENTS, Examined, Exams, Truth
from monitor.evaluation.evaluator import Evaluator
from monitor.reference.reference import Reference


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
    """The latest records of each segment, as a snapshot."""

    def __init__(self, reference: Reference, most: int) -> None:
        self._gauge = Gauge(reference.calibration)
        self._outputs = {name: deque[np.ndarray](maxlen=most) for name in SEGMENTS}
        self._entered = dict.fromkeys(SEGMENTS, 0)

    def add(self, examined: Sequence[Examined]) -> None:
        """Add exams to the windows of their segments."""
        for one in examined:
            for name in one.scanner.segments:
                self._outputs[name].extend(one.outputs.astype(np.float32))
                self._entered[name] += len(one.right)

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return the windows."""
        del model
        each = [totals_of(self._gauge, np.array(outputs)) for outputs in self._outputs.values()]
        times, unknown = np.full(len(each), now), np.full(len(each), np.nan)
        return Snapshot(
            [_segment(name) for name in SEGMENTS],
            MeasuredWindows(
                self._gauge,
                np.concatenate([one.totals for one in each]),
                np.concatenate([one.confidences for one in each], axis=1),
                np.concatenate([one.counts for one in each]),
                np.concatenate([one.of_performance for one in each]),
            ),
            times,
            times,
            np.zeros(len(each)),
            np.array(list(self._entered.values())),
            np.full(len(each), running),
            unknown,
            InputFacts(),
            0,
            0,
            catching_up=False,
        )

    def begin_evidence(self, model: str, means: Mapping[Segment, Floats], now: float) -> None:
        """Ignore it: the snapshots have no evidence of changes."""


def _segment(name: str) -> Segment:
    return () if name == "all" else tuple((part.split("=")[0], part.split("=")[1]) for part in name.split(","))


def played(seed: int, reference: Reference, model: ModelConfig) -> Played:
    """Play the story once, with the real evaluation."""
    assert isinstance(model.evaluate, Every)
    assert model.bounds.records is not None
    every, most = model.evaluate.seconds, model.bounds.records
    count = round(DemoOptions(Path(), "").rate * every)
    exams, found, windows = Exams(seed), Played(), _Windows(reference, most)
    evaluator, truth = Evaluator(model, reference, windows), Truth(most, model.minimum_records)
    firing: set[tuple[str, str]] = set()
    for number in range(int(LENGTH / every)):
        at, examined = number * every, exams.next(count, number * every)
        windows.add(examined)
        truth.note(examined)
        report = evaluator.evaluate(at, at, at)
        now = {(one.alert, part.name) for part in report.segments for one in part.alerts if one.firing}
        for key in now - firing:
            found.fired.setdefault(key, []).append(at)
        for key in firing - now:
            found.ended.setdefault(key, []).append(at)
        firing = now
        for part in report.segments:
            estimate, realised = part.results.get(ADAPTIVE), truth.now(part.name, at)
            if isinstance(estimate, Estimate) and realised is not None:
                found.evaluated[part.name].append(Evaluated(at, estimate.accuracy, realised.accuracy))
                found.kinds[part.name] = None if part.baseline is None else part.baseline.kind
    return found
