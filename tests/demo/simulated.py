"""A story without waiting: the demo's own records, windows and rule, the real estimators and the real alerts."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from monitor.configuration.config import Every, ModelConfig
from monitor.configuration.reading import read_config
from monitor.core.alerts import AlertState, Facts, Phase, Rule, step
from monitor.core.estimate import Estimate
from monitor.core.window_state import WindowState
from monitor.demo.exams import Exams
from monitor.demo.folder import Folder
from monitor.demo.play import Wishes
from monitor.demo.story import LENGTH, SEGMENTS
from monitor.reference_file import Reference


@dataclass
class Look:
    """What was said of a window, and what was true."""

    at: float
    estimated: float
    realised: float


@dataclass
class Played:
    """What came of a story."""

    fired: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, list[float]] = field(default_factory=dict)
    looks: dict[str, list[Look]] = field(default_factory=lambda: {name: [] for name in SEGMENTS})


def settings(folder: Path) -> tuple[ModelConfig, Rule]:
    """Return the model that the demo's configuration describes, and its rule on accuracy."""
    (folder / "arriving").mkdir(parents=True)
    Folder(folder).configure(None, "none", 1.0)
    (model,) = read_config(folder / "config.yaml").models
    return model, next(rule for rule in model.alerts if rule.name == "accuracy_low")


def played(seed: int, reference: Reference, model: ModelConfig, rule: Rule) -> Played:
    """Play a story once."""
    assert isinstance(model.evaluate, Every)
    assert model.bounds.records is not None
    every, most = model.evaluate.seconds, model.bounds.records
    count = round(Wishes(Path(), "").rate * every)
    exams, found = Exams(seed), Played()
    said = {name: deque[np.ndarray](maxlen=most) for name in SEGMENTS}
    right = {name: deque[bool](maxlen=most) for name in SEGMENTS}
    states = dict.fromkeys(SEGMENTS, AlertState())
    for number in range(int(LENGTH / every)):
        at, new = number * every, dict.fromkeys(SEGMENTS, 0)
        for one in exams.next(count, at):
            for name in one.scanner.segments:
                said[name].extend(one.said.astype(np.float32))
                right[name].extend(one.right)
                new[name] += len(one.right)
        for name in SEGMENTS:
            if len(said[name]) < model.minimum_records:
                continue
            results = reference.calibration.estimate(np.array(said[name])).estimators
            facts = Facts(
                WindowState.OK, len(said[name]), new[name], 0.0, every, results,
                reference_accuracy=reference.calibration.accuracy,
            )  # fmt: skip
            before, states[name] = states[name], step(rule, states[name], facts, at)
            if states[name].phase is Phase.FIRING and before.phase is Phase.PENDING:
                found.fired.setdefault(name, []).append(at)
            if states[name].phase is Phase.OK and before.phase is Phase.RECOVERING:
                found.ended.setdefault(name, []).append(at)
            consensus = results["consensus"]
            assert isinstance(consensus, Estimate)
            found.looks[name].append(Look(at, consensus.accuracy, float(np.mean(right[name]))))
    return found
