"""E3 and E4: healthy segments rarely alert, a true drop soon does. Real outputs, estimators and state machine.

The classifier of the example (linear discriminant analysis, four grades) is calibrated on 4,000 labelled records.
Segments draw their records from a large pool of its outputs, so that the contribution of a record to each member of
the consensus is computed once. A test compares the resulting estimates with those of real windows.

`python -m tests.core.test_alert_simulation WINDOW SEED…` prints a table of docs/decisions/0011-alerts.md.
"""

import argparse
import sys
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from monitor.core.alerts import AlertPhase, AlertRule, AlertState, AlertType, On
from monitor.core.calibration import Calibration, calibrate
from monitor.core.estimate import ADAPTIVE, CONSENSUS, Estimate, Interval, WindowState
from monitor.core.estimators.confidence import (
    CalibratedConfidence,
    DifferenceOfConfidences,
    ThresholdedConfidence,
    ThresholdedEntropy,
)
from monitor.core.estimators.conformal import AnchoredAtAccuracy, AnchoredAtConfidence
from monitor.core.estimators.ensemble import MEMBERS, MIXED, CalibratedEstimator
from monitor.core.scores import Floats, Integers, Outputs, Singles, label_outputs, outputs
from monitor.core.totals import Gauge, totals_of
from monitor.demo.example_data import PREVALENCE, Discriminant, Patients
from tests.one_window import AlertFacts, step
from tests.strategies import accepted

pytestmark = pytest.mark.slow

SMALL, LARGE = 500, 5000
"""Windows. The large one is that of the example configuration."""
BATCHES = 25
"""Evaluations that refill a window: 20 or 200 records arrive between two evaluations."""
EVALUATION_SECONDS = 300.0
WEEK = 7 * 24 * 12
"""Evaluations in a week."""
POOL = 40_000
SEGMENTS = 50
SEED = 22
"""Not used to choose the rules; of four such references, the one with the most false alarms of close rules."""

FAR = AlertRule("accuracy_low", drop=0.05)
"""For paging: the upper bound is five points below the reference for half an hour."""

EARLY = AlertRule("accuracy_falling", drop=0.02, on=On.VALUE, for_seconds=3600.0)
"""For windows of thousands of records: the value is two points below the reference for an hour."""

PATIENT = replace(EARLY, for_seconds=5 * 3600.0)
"""The same for windows of hundreds: until the window was refilled more than twice."""

APART = AlertRule("no_agreement", AlertType.DISAGREEMENT, new_records=1.0)
"""The disagreement rule of the example configuration, with the defaults of its type."""

DISAGREEMENT = "disagreement"
Booleans = NDArray[np.bool_]


class Pool:
    """Records of one classifier, with their contributions to the members of the consensus."""

    def __init__(self, calibration: Calibration, vectors: Singles) -> None:
        self.calibration = calibration
        self.vectors = vectors
        both = outputs(vectors, calibration.temperature)
        self._scaled = both.scaled
        members = tuple(one for one in calibration.estimators if one.form.name in MEMBERS)
        (self._moving,) = (one for one in members if isinstance(one.estimator, AnchoredAtConfidence))
        self._per_record_of = {one.form.name: _per_record(one, both) for one in members if one is not self._moving}

    def evaluations(self, rows: Integers, window: int) -> dict[str, Floats]:
        """Return members, combinations and disagreement of each full window, for rows that arrive in batches."""
        batches = rows.reshape(-1, window // BATCHES)
        values = {
            name: _in_windows(estimates[batches].sum(axis=1)) / window
            for name, estimates in self._per_record_of.items()
        }
        values[self._moving.form.name] = self._moving_sets(batches, window)
        ranked = np.sort(np.array([values[member] for member in MEMBERS]), axis=0)
        # The lower quartile of six.
        values |= {CONSENSUS: 0.75 * ranked[1] + 0.25 * ranked[2], DISAGREEMENT: ranked[-1] - ranked[0]}
        weight = self.calibration.adaptive_weight
        assert weight is not None
        return values | {ADAPTIVE: weight * values[MIXED[0]] + (1.0 - weight) * values[MIXED[1]]}

    def _moving_sets(self, batches: Integers, window: int) -> Floats:
        """Return the estimates of the member whose threshold depends on the mean confidence of the window."""
        estimator = self._moving.estimator
        assert isinstance(estimator, AnchoredAtConfidence)
        confidence = _in_windows(self._scaled.confidence[batches].sum(axis=1)) / window
        thresholds = estimator.threshold(confidence)
        found = estimator.accuracy - estimator.reference_mean(confidence)
        for threshold in np.unique(thresholds):
            now = thresholds == threshold
            estimates = self._scaled.sets_at(threshold).mean_score
            needed = np.convolve(now, np.ones(BATCHES)) > 0.5
            sums = np.zeros(len(batches))
            sums[needed] = estimates[batches[needed]].sum(axis=1)
            found[now] += _in_windows(sums)[now] / window
        return found


class Clinic(Pool):
    """The classifier of the example: half of its records as in the reference, half ten points less accurate."""

    def __init__(self, seed: int) -> None:
        self._patients = Patients(np.random.default_rng([5, seed]))
        self._model = Discriminant(*self._patients.draw(120, PREVALENCE, contrast=1.0))
        calibration = calibrate(label_outputs(*self._outputs(4_000, contrast=1.0)))
        healthy, poor = self._outputs(POOL, contrast=1.0), self._outputs(POOL, self._contrast_for(drop=0.10))
        super().__init__(calibration, np.concatenate([healthy[0], poor[0]]))
        self.grades: Integers = np.concatenate([healthy[1], poor[1]])
        self.correct: Booleans = self.vectors.argmax(axis=1) == self.grades

    def _outputs(self, count: int, contrast: float) -> tuple[Singles, Integers]:
        measured, grades = self._patients.draw(count, PREVALENCE, contrast)
        return self._model.probabilities(measured).astype(np.float32), grades

    def _contrast_for(self, drop: float) -> float:
        """Find the contrast of the grades' patterns at which the true accuracy is lower by `drop`."""
        low, high = 0.4, 1.0
        wanted = self._accuracy_at(1.0) - drop
        for _ in range(12):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self._accuracy_at(middle) < wanted else (low, middle)
        return (low + high) / 2.0

    def _accuracy_at(self, contrast: float) -> float:
        estimates, grades = self._outputs(POOL, contrast)
        return float((estimates.argmax(axis=1) == grades).mean())


def _per_record(one: CalibratedEstimator, both: Outputs) -> Floats:
    """Return for each record a number whose mean over a window is the member's estimate, before clipping."""
    estimator = one.estimator
    first, *others = estimator.contributions(both.scores(scaled=one.form.scaled), 0.0)
    match estimator:
        case DifferenceOfConfidences():
            first = first + (estimator.accuracy - estimator.confidence)
        case ThresholdedConfidence() | ThresholdedEntropy():
            first = first + estimator.tie_weight * others[0]
        case AnchoredAtAccuracy():
            first = first + (estimator.accuracy - estimator.anchor)
        case _:
            assert isinstance(estimator, CalibratedConfidence)
    return np.asarray(first, dtype=np.float64)


def _in_windows(sums: Floats) -> Floats:
    """Return the sum of every full window from the sums of its batches."""
    running = np.cumsum(np.concatenate([[0.0], sums]))
    added: Floats = running[BATCHES:] - running[:-BATCHES]
    return added


@cache
def clinic(seed: int) -> Clinic:
    """Return the clinic of a seed, made once."""
    return Clinic(seed)


Draw = Callable[[Clinic, np.random.Generator, int, int], Integers]
"""Draws rows of the pool for a number of batches of a size."""


def independent(_: Clinic, random: np.random.Generator, batches: int, batch: int) -> Integers:
    """Draw each record independently from the healthy half."""
    return random.integers(0, POOL, batches * batch)


def four_views(_: Clinic, random: np.random.Generator, batches: int, batch: int) -> Integers:
    """Draw patients with four equal records each, so that the effective sample is a quarter."""
    return np.repeat(random.integers(0, POOL, batches * batch // 4), 4)


def wandering_mix(place: Clinic, random: np.random.Generator, batches: int, batch: int) -> Integers:
    """Draw healthy records with class shares that change daily: log odds of sd 0.3."""
    memory = np.exp(-1.0 / 288)
    pushes = 0.3 * np.sqrt(1.0 - memory**2) * random.normal(size=(batches, len(PREVALENCE)))
    odds = np.empty_like(pushes)
    now = 0.3 * random.normal(size=len(PREVALENCE))
    for evaluation, push in enumerate(pushes):
        now = memory * now + push
        odds[evaluation] = now
    shares = PREVALENCE * np.exp(odds)
    reached = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    grades = (random.random((batches, batch, 1)) > reached[:, None, :-1]).sum(axis=2).ravel()
    rows = np.empty(len(grades), dtype=np.int64)
    for grade in range(len(PREVALENCE)):
        known, wanted = np.flatnonzero(place.grades[:POOL] == grade), grades == grade
        rows[wanted] = random.choice(known, wanted.sum())
    return rows


def facts(place: Pool, window: int, values: Mapping[str, float]) -> AlertFacts:
    """Return the facts of one evaluation."""
    estimates = {name: value for name, value in values.items() if name != DISAGREEMENT}
    columns = np.array(list(estimates.values()))[:, None], np.array([window])
    lower, upper, chance = place.calibration.intervals.bounds(tuple(estimates), *columns)
    intervals = [Interval(*pair) for pair in zip(lower[:, 0].tolist(), upper[:, 0].tolist(), strict=True)]
    return AlertFacts(
        state=WindowState.OK,
        records=window,
        new_records=window // BATCHES,
        quiet_seconds=0.0,
        elapsed_seconds=EVALUATION_SECONDS,
        results={
            name: Estimate(value, window, interval)
            for (name, value), interval in zip(estimates.items(), intervals, strict=True)
        },
        disagreement=values.get(DISAGREEMENT),
        chance_disagreement=float(chance[0]),
        reference_accuracy=place.calibration.accuracy,
    )


def fired(rules: Sequence[AlertRule], place: Pool, rows: Integers, window: int) -> list[list[int]]:
    """Return for each rule the evaluations at which an alert started to fire."""
    states, begun = [AlertState()] * len(rules), [list[int]() for _ in rules]
    estimates = place.evaluations(rows, window)
    bad = np.array([_bad(rule, place, window, estimates[_compared(rule)]) for rule in rules])
    names = sorted(set(map(_compared, rules)))
    calm = True
    for evaluation, worth_it in enumerate(np.logical_or.reduce(bad).tolist()):
        # Steps that change nothing are left out.
        if calm and not worth_it:
            continue
        known = facts(place, window, {name: float(estimates[name][evaluation]) for name in names})
        for index, rule in enumerate(rules):
            before = states[index]
            states[index] = step(rule, before, known, evaluation * EVALUATION_SECONDS)
            if states[index].phase is AlertPhase.FIRING and before.phase is AlertPhase.PENDING:
                begun[index].append(evaluation)
        calm = all(state.phase is AlertPhase.OK for state in states)
    return begun


def _compared(rule: AlertRule) -> str:
    return rule.estimator if rule.kind is AlertType.ACCURACY else DISAGREEMENT


def _bad(rule: AlertRule, place: Pool, window: int, values: Floats) -> Booleans:
    """Return the evaluations that are bad for a rule: up to one in the order of their values, found by bisection."""
    worst_first = np.argsort(-values if rule.upward else values)

    def well(evaluation: int) -> bool:
        known = facts(place, window, {_compared(rule): float(values[evaluation])})
        return step(rule, AlertState(), known, 0.0).phase is AlertPhase.OK

    found: Booleans = np.zeros(len(values), dtype=np.bool_)
    found[worst_first[: bisect_left(worst_first, True, key=well)]] = True
    return found


def alerts_in(
    rules: Sequence[AlertRule], weeks: int, seed: int, window: int, draw: Draw = independent, segments: int = SEGMENTS
) -> list[int]:
    """Return for each rule the number of alerts in all healthy segments."""
    place, alerts = clinic(seed), [0] * len(rules)
    for segment in range(segments):
        random = np.random.default_rng([seed, segment])
        rows = draw(place, random, weeks * WEEK + BATCHES - 1, window // BATCHES)
        for index, evaluations in enumerate(fired(rules, place, rows, window)):
            alerts[index] += len(evaluations)
    return alerts


def evaluations_to_fire(
    rules: Sequence[AlertRule], seed: int, window: int, draw: Draw = independent, segments: int = SEGMENTS
) -> list[Floats]:
    """Return for each rule and segment the evaluations from the drop to the alert; infinity if over four windows."""
    place, healthy = clinic(seed), BATCHES + 72
    found = np.full((len(rules), segments), np.inf)
    for segment in range(segments):
        random = np.random.default_rng([seed, segment, 1])
        rows = draw(place, random, healthy + 4 * BATCHES, window // BATCHES)
        rows[healthy * (window // BATCHES) :] += POOL
        for index, evaluations in enumerate(fired(rules, place, rows, window)):
            # The window of evaluation 0 is the first full one, and that of evaluation 72 the last without a poor record.
            found[index, segment] = min(
                (evaluation - 72.0 for evaluation in evaluations if evaluation > 72), default=np.inf
            )
    return list(found)


def limit_in_evaluations(rule: AlertRule) -> float:
    """Return half a window plus the wait of the rule, in evaluations."""
    return BATCHES / 2 + max(rule.for_seconds / EVALUATION_SECONDS, rule.new_records * BATCHES)


@pytest.mark.parametrize("window", [SMALL, LARGE])
def test_pooled_estimates_equal_those_of_windows(window: int) -> None:
    """With their intervals, before and after a drop."""
    place, random, batch = clinic(SEED), np.random.default_rng(3), window // BATCHES
    rows = wandering_mix(place, random, 2 * BATCHES, batch)
    rows[BATCHES * batch :] += POOL
    gauge, estimates = Gauge(place.calibration), place.evaluations(rows, window)
    for evaluation in range(0, BATCHES + 1, 5):
        results = facts(place, window, {name: float(values[evaluation]) for name, values in estimates.items()}).results
        expected = totals_of(gauge, place.vectors[rows[evaluation * batch : evaluation * batch + window]]).estimate()
        for name in (*MEMBERS, CONSENSUS, ADAPTIVE):
            result, wanted = results[name], expected[name]
            assert isinstance(result, Estimate)
            assert isinstance(wanted, Estimate)
            assert result.interval is not None
            assert wanted.interval is not None
            # The pool's scores are added up in single precision.
            assert (result.accuracy, *result.interval) == pytest.approx((wanted.accuracy, *wanted.interval), abs=1e-6)


@pytest.mark.parametrize(("window", "early"), [(LARGE, EARLY), (SMALL, PATIENT)])
def test_e3_fifty_healthy_segments_in_four_weeks_give_at_most_two_alerts(window: int, early: AlertRule) -> None:
    """403,200 evaluations of overlapping windows."""
    for alerts in alerts_in([FAR, early, APART], 4, SEED, window):
        assert alerts <= 2


@pytest.mark.parametrize(("window", "early", "share"), [(LARGE, EARLY, 0.95), (SMALL, PATIENT, 0.80)])
def test_e4_a_true_drop_of_ten_points_fires_within_half_a_window_plus_for(
    window: int, early: AlertRule, share: float
) -> None:
    """The early rule, in nearly every segment; the far one a window later, and in a small window in half of them at all."""
    place = clinic(SEED)
    assert place.correct[:POOL].mean() - place.correct[POOL:].mean() == pytest.approx(0.10, abs=0.01)
    far, soon = evaluations_to_fire([FAR, early], SEED, window)
    assert np.mean(soon <= limit_in_evaluations(early)) >= share
    late, least = (limit_in_evaluations(FAR) + BATCHES, share) if window == LARGE else (4.0 * BATCHES, 0.5)
    assert np.mean(far <= late) >= least


def test_e3_the_early_rule_raises_false_alarms_in_a_small_window() -> None:
    """So it is for large windows only."""
    assert alerts_in([EARLY], 1, SEED, SMALL, segments=10)[0] > 2


def test_careless_rules_raise_false_alarms_in_the_simulation() -> None:
    """A close threshold without a wait. Otherwise the silence of the other rules would prove nothing."""
    careless = AlertRule("careless", drop=0.01, on=On.VALUE, for_seconds=0.0, new_records=0.0, hysteresis=0.0)
    assert alerts_in([careless], 1, SEED, SMALL, segments=5)[0] > 50


@pytest.mark.parametrize(
    "name",
    [
        "acs_employment_MA_prime_age_to_young_and_old",
        "mammo_nyu_gmic_top5_readerhard",
    ],
)
def test_disagreement_of_real_models_fires_only_after_a_shift(real_sets: Path, name: str) -> None:
    """The source is split into reference and healthy records; the alert fires within one and a half windows."""
    with np.load(real_sets / f"{name}.npz") as data:
        source, labels = accepted(data["source_probs"].astype(np.float64)), data["source_labels"].astype(np.int64)
        target = accepted(data["target_probs"].astype(np.float64))
    random = np.random.default_rng(SEED)
    reference, health = np.array_split(random.permutation(len(source)), 2)
    place = Pool(
        calibrate(label_outputs(source[reference], labels[reference])),
        np.concatenate([source, target]).astype(np.float32),
    )
    batch, shifted = 2000 // BATCHES, np.arange(len(source), len(source) + len(target))
    for _ in range(2):
        healthy = random.choice(health, 5 * 288 * batch)
        poor = random.choice(shifted, 2 * BATCHES * batch)
        ((first,),) = fired([APART], place, np.concatenate([healthy, poor]), 2000)
        shift = 5 * 288 - BATCHES
        assert shift < first <= shift + 1.5 * BATCHES


_MEASURED = {
    "`drop: 0.05`, `on: upper`, `for: 30m`": FAR,
    "`drop: 0.05`, `on: upper`, `new_records: 1`": replace(FAR, new_records=1.0),
    "`drop: 0.05`, `for: 30m`": replace(FAR, on=On.VALUE),
    "`drop: 0.02`, `on: upper`, `for: 30m`": replace(FAR, drop=0.02),
    "`drop: 0.025`, `for: 30m`": replace(EARLY, drop=0.025, for_seconds=1800.0),
    "`drop: 0.02`, `for: 30m`": replace(EARLY, for_seconds=1800.0),
    "`drop: 0.02`, `for: 1h`": EARLY,
    "`drop: 0.02`, `for: 5h`": PATIENT,
    "`drop: 0`, `on: upper`, `for: 30m`": replace(FAR, drop=0.0),
    "`drop: 0`, `on: upper`, `new_records: 1.5`": replace(FAR, drop=0.0, new_records=1.5),
    "`drop: 0.015`, `for: 1h`, `estimator: doc_ts`": replace(EARLY, drop=0.015, estimator="doc_ts"),
    "`type: disagreement`": APART,
    "`type: disagreement`, `new_records: 0.2`": replace(APART, new_records=0.2),
}
"""`on: value` is not shown."""


def main(window: int, seeds: Sequence[int], draws: Collection[Draw], weeks: int, estimator: str) -> None:
    """Print a table for each kind of stream: alerts in 50 healthy segments, and delays after a drop."""
    rules = [rule.with_headline(estimator) for rule in _MEASURED.values()]
    for draw in draws:
        alerts = np.array([alerts_in(rules, weeks, seed, window, draw) for seed in seeds])
        delays = np.array([evaluations_to_fire(rules, seed, window, draw) for seed in seeds])
        sys.stdout.write(f"\n{draw.__name__}, windows of {window}, seeds {seeds}\n")
        for index, (name, rule) in enumerate(_MEASURED.items()):
            within = np.mean(delays[:, index] <= limit_in_evaluations(rule), axis=1)
            shown = ", ".join(map(str, alerts[:, index])), ", ".join(f"{100.0 * share:.0f}" for share in within)
            ever, median = np.mean(np.isfinite(delays[:, index])), 5 * np.median(delays[:, index])
            sys.stdout.write(f"| {name} | {shown[0]} | {shown[1]}% | {ever:.0%} | {median:.0f} min |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("window", type=int)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--weeks", type=int, default=4)
    parser.add_argument("--estimator", default=ADAPTIVE)
    options = parser.parse_args()
    streams = (independent, wandering_mix, four_views)
    main(options.window, options.seeds, streams, options.weeks, options.estimator)
