"""The replays find the errors that calibrating and estimating one window after the other finds."""

from collections.abc import Iterable

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from monitor.core import replay
from monitor.core.baselines.output_drift import edges_of
from monitor.core.calibration import calibrate
from monitor.core.estimators.ensemble import (
    MEMBERS,
    MIXED,
    CalibratedEstimator,
    by_confidence,
    calibrate_all,
    combine,
    estimate_forms,
    measure,
    mix,
    weight_of,
    with_variants,
)
from monitor.core.scores import Floats, Integers, LabelledOutputs, Outputs, Singles, label_outputs
from tests.strategies import accepted, synthetic

REPLAYS = 40
SIZES = (1, 2, 5, 10, 20)


def plain_errors(probabilities: Singles, labels: Integers) -> dict[int, Floats]:
    """Return the errors of all forms, both combinations, the disagreement and the drift of the outputs, by window size: a row a window."""
    whole = label_outputs(probabilities, labels)
    held = len(labels) // 4
    random = np.random.default_rng(20220722)
    errors: dict[int, list[Floats]] = {size: [] for size in SIZES}

    def records(rows: Integers) -> LabelledOutputs:
        return label_outputs(probabilities[rows], labels[rows], whole.temperature)

    def estimates(forms: Iterable[CalibratedEstimator], outputs: Outputs, weight: float) -> Floats:
        found = estimate_forms(forms, measure(forms, lambda: (outputs,)))
        consensus, spread = combine(found.accuracy[[found.names.index(member) for member in MEMBERS]])
        mixed = mix(found.unclipped[[found.names.index(name) for name in MIXED]], weight)
        return np.concatenate([found.accuracy, [consensus, np.clip(mixed, 0.0, 1.0), spread]])[:, 0]

    def drift(window: LabelledOutputs, pseudo: LabelledOutputs) -> list[float]:
        mixes = [np.bincount(one.decided, minlength=probabilities.shape[1]) / one.records for one in (window, pseudo)]
        at = edges_of(whole)
        below = [
            [np.mean(one.outputs.raw.confidence.astype(np.float32) <= edge) for edge in at] for one in (window, pseudo)
        ]
        return [
            float(jensenshannon(mixes[0], mixes[1], base=2)),
            float(np.max(np.abs(np.array(below[0]) - np.array(below[1])), initial=0.0)),
        ]

    for _ in range(REPLAYS):
        rows = random.permutation(len(labels))
        pseudo = records(rows[held:])
        forms = with_variants(calibrate_all(pseudo))
        weight = weight_of(*by_confidence(pseudo), pseudo.correct)
        bias = estimates(forms, pseudo.outputs, weight) - pseudo.accuracy
        for size in SIZES:
            for start in range(0, held - size + 1, size)[:3]:
                window = records(rows[start : start + size])
                error = estimates(forms, window.outputs, weight) - window.accuracy - bias
                # The disagreement has no true value.
                error[-1] += window.accuracy + bias[-1]
                found = np.append(error, drift(window, pseudo))
                errors[size].append(found / np.sqrt(1.0 / size + 1.0 / (len(labels) - held)))
    return {size: np.array(rows) for size, rows in errors.items()}


def overconfident(records: int, classes: int) -> tuple[Singles, Integers]:
    probabilities, labels = synthetic(records, classes, seed=classes)
    return accepted(probabilities.astype(np.float64) ** 1.5), labels


def votes(records: int, classes: int) -> tuple[Singles, Integers]:
    """Return vote shares: many ties, many confidences of 1."""
    probabilities, labels = synthetic(records, classes, seed=3)
    return accepted(np.rint(3.0 * probabilities) + np.eye(classes)[probabilities.argmax(axis=1)]), labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probabilities", "labels"),
    [
        pytest.param(*overconfident(150, 3), id="few classes"),
        pytest.param(*overconfident(150, 100), id="many classes"),
        pytest.param(*votes(150, 4), id="votes"),
    ],
)
def test_the_quantiles_are_those_of_plain_replays(
    probabilities: Singles, labels: Integers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In windows of every size, rounded outward; none without 40 windows that have an estimate."""
    monkeypatch.setattr(replay, "_REPLAYS", REPLAYS)
    calibration = calibrate(label_outputs(probabilities, labels), level=0.9)
    tables, outputs = calibration.intervals, calibration.outputs
    assert outputs is not None
    assert tuple(tables.sizes) == SIZES
    for column, errors in enumerate(plain_errors(probabilities, labels).values()):
        for row, (name, found) in zip(errors.T, tables.errors.items(), strict=False):
            known = row[~np.isnan(row)]
            low, high = -np.inf, np.inf
            if len(known) >= 40:
                low, high = np.quantile(known, 0.05, method="lower"), np.quantile(known, 0.95, method="higher")
            assert (found.low[column], found.high[column]) == pytest.approx((low, high), abs=1e-10), name
        chance = np.quantile(errors[:, -3:], 0.9, axis=0, method="higher")
        assert [tables.disagreement[column], *outputs.chance[:, column]] == pytest.approx(chance, abs=1e-7)
