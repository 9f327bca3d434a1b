"""A feature goes wrong at one of two sites: a fitted model, its outputs before and after, and a monitor that watches.

Flights in three classes: whether one is on time or late shows in three features, whether it is cancelled in the weather. A
softmax regression is fitted to generated flights. Each fault spoils the weather of site A from a known record on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from monitor.config.models import DEFAULT_ALERTS
from monitor.config.reading import read_config
from monitor.core.alerts import AlertRule, AlertType, On, Severity
from monitor.core.baselines.comparison import BaselineMode, BaselineOptions
from monitor.core.estimate import ADAPTIVE, CONSENSUS, Estimate
from monitor.core.report import Report, SegmentReport
from monitor.core.scores import Booleans, Floats, Integers, Singles
from monitor.reference.reference import Reference
from tests.evaluation.driver import PERIOD, Monitor, named

EXAMPLE = Path(__file__).resolve().parents[2] / "config.example.yaml"
CLASSES = ("on_time", "late", "cancelled")
_SHARES = (0.45, 0.37, 0.18)
_WEATHER, _USUAL = 3, 6.5
WINDOW, BATCH = 1000, 40
"""A batch arrives at each site between two evaluations."""
FAULTS = ("healthy", "missing", "constant", "permuted")


def flights(random: np.random.Generator, count: int) -> tuple[Floats, Integers]:
    """Return features and classes."""
    classes = random.choice(len(CLASSES), size=count, p=_SHARES)
    side, weather = np.array([-1.0, 1.0, 0.0])[classes], np.array([0.0, 0.0, 2.6])[classes]
    means = np.stack([0.5 * side, 0.4 * side, 0.3 * side, 6.0 + weather], axis=1)
    return means + random.normal(size=means.shape), classes


class SoftmaxRegression:
    """Fitted by gradient descent on standardised features."""

    def __init__(self, features: Floats, classes: Integers) -> None:
        self._mean, self._deviation = features.mean(axis=0), features.std(axis=0)
        self._weights = np.zeros((features.shape[1] + 1, len(CLASSES)))
        inputs, wanted = self._inputs(features), np.eye(len(CLASSES))[classes]
        for _ in range(400):
            self._weights -= 0.5 * inputs.T @ (self.outputs(features) - wanted) / len(features)

    def outputs(self, features: Floats) -> Floats:
        """Return the probabilities of the classes."""
        logits = self._inputs(features) @ self._weights
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def _inputs(self, features: Floats) -> Floats:
        return np.column_stack([(features - self._mean) / self._deviation, np.ones(len(features))])


def spoil(fault: str, features: Floats, random: np.random.Generator) -> Floats:
    """Return features as the model gets them."""
    spoilt, weather = features.copy(), features[:, _WEATHER]
    spoilt[:, _WEATHER] = {
        "healthy": weather,
        # A field that the producer no longer sends, and its default.
        "missing": np.zeros(len(weather)),
        # A stuck sensor.
        "constant": np.full(len(weather), _USUAL),
        # Joined with the wrong flights.
        "permuted": random.permutation(weather),
    }[fault]
    return spoilt


@cache
def fitted() -> tuple[SoftmaxRegression, Reference]:
    """Return the model, and its reference of 4,000 labelled flights of both sites."""
    random = np.random.default_rng(1)
    model = SoftmaxRegression(*flights(random, 2000))
    features, classes = flights(random, 4000)
    sites = np.where(random.random(len(classes)) < 0.5, "A", "B")
    reference = Reference.calibrate(
        model.outputs(features).astype(np.float32),
        classes,
        model="density",
        version="2.1",
        classes=CLASSES,
        segments={"site": sites},
    )
    return model, reference


@cache
def fault_rules() -> tuple[AlertRule, ...]:
    """Return rules on the accuracy by two estimators, on their disagreement, and the default ones."""
    own = (
        *(
            AlertRule(f"{name}_{on}", estimator=name, drop=drop, on=on)
            for name in (ADAPTIVE, CONSENSUS)
            for on, drop in ((On.UPPER, 0.05), (On.VALUE, 0.02))
        ),
        AlertRule("disagreement", AlertType.DISAGREEMENT, Severity.INFO, new_records=1.0),
    )
    return (*own, *(one for one in read_config(EXAMPLE).models[0].alerts if one.kind in DEFAULT_ALERTS))


@dataclass(frozen=True)
class Window:
    """A window of site A."""

    accuracy: float
    """Realised."""
    estimates: Mapping[str, float]
    shares: tuple[float, ...]
    """Of the decided classes."""


@dataclass
class Seen:
    """What a monitor saw of a fault at site A."""

    before: Window
    """The last one before the fault."""
    after: Window
    """The last one of all."""
    fired: dict[str, int] = field(default_factory=dict)
    """By alert, how many records of the site came from the fault to its first alarm there."""
    drifted: dict[str, int] = field(default_factory=dict)
    """By measure, how many came to the first evaluation with drift."""
    elsewhere: set[str] = field(default_factory=set)
    """Alerts that fired at site B."""
    degraded: bool = False
    """Whether the input looked degraded."""


def watch_fault(folder: Path, fault: str, *, labelled: bool, seed: int = 1) -> Seen:
    """Run a monitor of both sites: two windows, then three with the fault at site A."""
    random = np.random.default_rng([7, seed])
    model, reference = fitted()
    baseline = BaselineOptions(BaselineMode.AUTO if labelled else BaselineMode.OWN)
    monitor = Monitor(folder, *fault_rules(), window=WINDOW, split=True, baseline=baseline, reference=reference)
    begins, found, right = 2 * WINDOW // BATCH, None, list[Booleans]()
    for step in range(begins + 3 * WINDOW // BATCH):
        for site in ("A", "B"):
            features, classes = flights(random, BATCH)
            given = spoil(fault, features, random) if site == "A" and step >= begins else features
            vectors: Singles = model.outputs(given).astype(np.float32)
            monitor.send(BATCH, vectors, site=site)
            if site == "A":
                right.append(vectors.argmax(axis=1) == classes)
        report = monitor.step(5 * PERIOD)
        here = named(report, "site=A")
        if step >= begins - 1:
            window = _window(here, right[-WINDOW // BATCH :])
            found = found or Seen(window, window)
            found.after = window
            _note(found, report, (step - begins + 1) * BATCH)
    monitor.kill()
    assert found is not None
    return found


def _window(here: SegmentReport, right: Sequence[Booleans]) -> Window:
    estimates = {name: one.accuracy for name, one in here.results.items() if isinstance(one, Estimate)}
    shares = tuple(count / here.records for count in here.predicted)
    return Window(float(np.mean(right)), estimates, shares)


def _note(found: Seen, report: Report, came: int) -> None:
    """Note what is seen after so many records with the fault."""
    here, there = named(report, "site=A"), named(report, "site=B")
    for alert in (one.alert for one in here.alerts if one.firing):
        found.fired.setdefault(alert, came)
    for measure in (str(one.measure) for one in here.drift if one.drifted):
        found.drifted.setdefault(measure, came)
    found.elsewhere |= {one.alert for one in there.alerts if one.firing}
    found.degraded |= report.input.degraded
