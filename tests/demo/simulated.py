"""Plays the story without waiting, with the real estimators and alerts."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from monitor.config.config import Every, ModelConfig
from monitor.config.reading import read_config
from monitor.core.alerts import AlertPhase, AlertRule, AlertState
from monitor.core.estimate import Estimate, WindowState
from monitor.demo.demo_folder import Folder
from monitor.demo.play import DemoOptions
from monitor.demo.story import LENGTH, SEGMENTS, Exams
from monitor.reference.reference import Reference
from tests.one_window import AlertFacts, step


@dataclass
class Evaluated:
    """Estimated and realised accuracy of a window."""

    at: float
    estimated: float
    realised: float


@dataclass
class Played:
    """The results of a story."""

    fired: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, list[float]] = field(default_factory=dict)
    evaluated: dict[str, list[Evaluated]] = field(default_factory=lambda: {name: [] for name in SEGMENTS})


def settings(folder: Path) -> tuple[ModelConfig, AlertRule]:
    """Return the model of the demo's configuration and its accuracy alert."""
    (folder / "arriving").mkdir(parents=True)
    Folder(folder).configure(None, "none", 1.0)
    (model,) = read_config(folder / "config.yaml").models
    return model, next(rule for rule in model.alerts if rule.name == "accuracy_low")


def played(seed: int, reference: Reference, model: ModelConfig, rule: AlertRule) -> Played:
    """Play the story once."""
    assert isinstance(model.evaluate, Every)
    assert model.bounds.records is not None
    every, most = model.evaluate.seconds, model.bounds.records
    count = round(DemoOptions(Path(), "").rate * every)
    exams, found = Exams(seed), Played()
    outputs = {name: deque[np.ndarray](maxlen=most) for name in SEGMENTS}
    right = {name: deque[bool](maxlen=most) for name in SEGMENTS}
    states = dict.fromkeys(SEGMENTS, AlertState())
    for number in range(int(LENGTH / every)):
        at, new = number * every, dict.fromkeys(SEGMENTS, 0)
        for one in exams.next(count, at):
            for name in one.scanner.segments:
                outputs[name].extend(one.outputs.astype(np.float32))
                right[name].extend(one.right)
                new[name] += len(one.right)
        for name in SEGMENTS:
            if len(outputs[name]) < model.minimum_records:
                continue
            results = reference.calibration.estimate(np.array(outputs[name])).estimators
            facts = AlertFacts(
                WindowState.OK, len(outputs[name]), new[name], 0.0, every, results,
                reference_accuracy=reference.calibration.accuracy,
            )  # fmt: skip
            before, states[name] = states[name], step(rule, states[name], facts, at)
            if states[name].phase is AlertPhase.FIRING and before.phase is AlertPhase.PENDING:
                found.fired.setdefault(name, []).append(at)
            if states[name].phase is AlertPhase.OK and before.phase is AlertPhase.RECOVERING:
                found.ended.setdefault(name, []).append(at)
            headline = results["adaptive"]
            assert isinstance(headline, Estimate)
            found.evaluated[name].append(Evaluated(at, headline.accuracy, float(np.mean(right[name]))))
    return found
