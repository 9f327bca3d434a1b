"""Generated references and windows: continuous, tied, saturated and uniform outputs, of many sizes."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from monitor.core.calibration import calibrate
from monitor.core.estimators.ensemble import MEMBERS, MIXED, Estimates, combine, mix
from monitor.core.scores import label_outputs
from monitor.core.totals import Gauge
from monitor.reference.reference import Reference

Singles = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A labelled reference and an unlabelled window of the same classes."""

    reference: Singles
    labels: Integers
    window: Singles


def accepted(weights: NDArray[np.float64]) -> Singles:
    """Divide by the sum and keep as float32, as the decoder does."""
    kept: Singles = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return kept


@st.composite
def vectors(draw: st.DrawFn, records: int, classes: int) -> Singles:
    """Draw accepted vectors of one style."""
    shape = (records, classes)
    style = draw(st.sampled_from(["softmax", "votes", "saturated", "percent"]))
    if style == "softmax":
        logits = draw(hnp.arrays(np.float64, shape, elements=st.floats(-8.0, 8.0, width=32)))
        weights = np.exp(logits)
    elif style == "votes":
        weights = draw(hnp.arrays(np.float64, shape, elements=st.integers(0, 4).map(float)))
    elif style == "saturated":
        weights = np.exp(draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([-60.0, -20.0, 0.0, 17.0]))))
    else:
        weights = draw(hnp.arrays(np.float64, shape, elements=st.integers(0, 100).map(float)))
    # A vector of zeros is no output; make it uniform.
    weights[weights.sum(axis=1) == 0.0] = 1.0
    return accepted(weights)


@st.composite
def cases(draw: st.DrawFn, *, classes: st.SearchStrategy[int] | None = None, largest: int = 24) -> Case:
    """Draw a reference, its labels and a window."""
    count = draw(classes if classes is not None else st.integers(2, 5))
    m, n = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    reference = draw(vectors(m, count))
    truth = draw(st.sampled_from(["any", "right", "wrong", "one class"]))
    labels = draw(hnp.arrays(np.int64, m, elements=st.integers(0, count - 1)))
    predicted = np.argmax(reference, axis=1)
    if truth == "right":
        labels = predicted
    elif truth == "wrong":
        labels = (predicted + 1) % count
    elif truth == "one class":
        labels = np.zeros(m, dtype=np.int64)
    return Case(reference, labels, draw(vectors(n, count)))


def synthetic(records: int, classes: int, *, seed: int, sharpness: float = 2.0) -> tuple[Singles, Integers]:
    """Return outputs of a calibrated model, and labels drawn from them."""
    random = np.random.default_rng(seed)
    p = accepted(np.exp(random.normal(size=(records, classes)) * sharpness))
    labels = (p.cumsum(axis=1) < random.random((records, 1))).sum(axis=1)
    return p, np.minimum(labels, classes - 1)


def hospital(
    random: np.random.Generator, records: int, *, harder: float = 0.0, mistaken: float = 0.0
) -> tuple[Singles, Integers]:
    """Return outputs of an overconfident model of four classes at a hospital, and labels.

    `harder` cases lower the confidence with the accuracy, which estimators see; a share `mistaken` of labels has nothing to do
    with the outputs, which they do not see.
    """
    p = accepted(np.exp(random.normal(size=(records, 4)) * (4.0 - harder))).astype(np.float64)
    labels = np.minimum((p.cumsum(axis=1) < random.random((records, 1))).sum(axis=1), 3)
    labels = np.where(random.random(records) < mistaken, random.integers(0, 4, records), labels)
    return accepted(p**1.3), labels


def named_values(found: Estimates, weight: float, window: int = 0) -> dict[str, float]:
    """Return the estimates of one window, with set sizes, combinations and disagreement, by the names of the oracle."""
    values: dict[str, float] = {}
    columns = (found.accuracy, found.set_size, found.empty_share)
    for suffix, column in zip(("", ".set_size", ".empty_share"), columns, strict=True):
        of_window = zip(found.names, column[:, window].tolist(), strict=True)
        values |= {name + suffix: value for name, value in of_window if not np.isnan(value)}
    consensus, disagreement = combine(np.array([[values[member]] for member in MEMBERS]))
    mixed = mix(found.unclipped[[found.names.index(name) for name in MIXED], window], weight)
    return values | {
        "consensus": float(consensus[0]),
        "disagreement": float(disagreement[0]),
        "adaptive": float(np.clip(mixed, 0.0, 1.0)),
    }


@cache
def small_gauge() -> Gauge:
    """Return the gauge of a reference of 60 records."""
    return Gauge(calibrate(label_outputs(*synthetic(60, 3, seed=1))))


def older(reference: Reference) -> Reference:
    """Return a reference as an older cpcmon made it, without what `adaptive` needs; of more than two classes."""
    numbers = reference.calibration
    errors = {name: one for name, one in numbers.intervals.errors.items() if name != "adaptive"}
    intervals = replace(numbers.intervals, errors=errors)
    return replace(
        reference,
        calibration=replace(numbers, adaptive_weight=None, outputs=None, intervals=intervals),
        fingerprint="older",
    )
