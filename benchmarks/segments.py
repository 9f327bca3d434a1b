"""Alerts of healthy segments that differ, before and after they have baselines of their own; and drifts that are seen.

Generated hospitals: the example's classifier, with another contrast and class mix in each, so that their accuracies differ by
ten points. Real pseudo-sites: groups of classes of each real set (../shared/real_sets), of which random halves are the
reference and the healthy stream. Windows, comparisons and alerts are the product's; the contribution of a record to the
headline is computed once, so that weeks of evaluations take seconds. Prints the tables of docs/alerts.md.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage import REAL_SETS, labelled, sources
from monitor.config.reading import read_config
from monitor.core.alerts import AlertPhase, AlertRule, AlertState, Dwell, On, WindowFacts, conditions, step
from monitor.core.baselines.comparison import (
    BaselineMode,
    BaselineOptions,
    Baselines,
    Comparisons,
    WindowTimes,
    change_upper,
)
from monitor.core.baselines.output_drift import counted, output_cells
from monitor.core.calibration import Calibration, WindowEstimates
from monitor.core.estimate import ADAPTIVE, STATES, WindowState
from monitor.core.estimators.ensemble import MIXED, MeasuredRecords
from monitor.core.scores import Floats, Integers, Singles, outputs
from monitor.core.segments import Segment
from monitor.core.totals import MeasuredWindows
from monitor.demo.example_data import PREVALENCE, Discriminant, Patients
from monitor.reference.reference import Reference

BATCHES = 25
"""Evaluations that replace a window."""
EVALUATION_SECONDS = 300.0
DAY = 288
"""Evaluations in a day."""
POOL = 8_000
"""Records of a hospital, of which its stream is drawn."""
SPREAD = 0.10
"""Between the accuracies of the best and the poorest hospital."""

_CONFIG = """
storage: {path: state}
sources: [{name: results, type: directory, path: inbox}]
models:
  - name: density
    alerts:
      - {name: accuracy_low, drop: 0.05}
      - {name: accuracy_falling, drop: 0.02, on: value, for: 1h}
"""

Booleans = NDArray[np.bool_]


@cache
def rules() -> tuple[AlertRule, ...]:
    """Return the accuracy rules of the example configuration, and the default ones."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(_CONFIG, encoding="utf-8")
        return read_config(path).models[0].alerts


@dataclass(frozen=True)
class Counts:
    """What comparisons need of windows."""

    records: Integers
    predicted: Integers
    confidence: Integers


class Pool:
    """Records of one segment, with their contributions to the headline."""

    def __init__(self, calibration: Calibration, vectors: Singles, labels: Integers) -> None:
        assert calibration.outputs is not None
        self.calibration, self.labels = calibration, labels
        scaled = outputs(vectors, calibration.temperature).scaled
        self._of = {
            one.form.name: one.estimator.contributions(scaled, 0.0)
            for one in calibration.estimators
            if one.form.name in MIXED
        }
        self._decided = vectors.argmax(axis=1)
        self._cells = output_cells(calibration.outputs.edges, vectors.max(axis=1).astype(np.float64))
        self.right: Booleans = self._decided == labels

    def windows(self, rows: Integers, window: int) -> tuple[WindowEstimates, Counts, Floats]:
        """Return estimates, counts and realised accuracy of each full window, for rows that arrive in batches."""
        batches = rows.reshape(-1, window // BATCHES)
        records = np.full(len(batches) - BATCHES + 1, window)
        sums = {
            name: _in_windows(contributions[:, batches].sum(axis=2)) for name, contributions in self._of.items()
        }
        # Only forms with a threshold that moves need the mean confidence, and the headline has none.
        measured = MeasuredRecords(records, np.zeros((2, len(records))), sums)
        estimates = self.calibration.estimate_windows(measured, failed=lambda *_: None)
        lengths, outputs_ = np.full(len(batches), batches.shape[1]), self.calibration.outputs
        assert outputs_ is not None
        decided = counted(self._decided[rows], lengths, self.calibration.classes)
        cells = counted(self._cells[rows], lengths, len(outputs_.confidence))
        counts = Counts(records, _in_windows(decided.T).T, _in_windows(cells.T).T)
        return estimates, counts, _in_windows(self.right[batches].sum(axis=1)[None])[0] / window


def _in_windows(sums: NDArray[np.generic]) -> NDArray[np.generic]:
    """Return the sums of every full window, from those of its batches; shape (rows, windows)."""
    running = np.cumsum(np.pad(sums, ((0, 0), (1, 0))), axis=1)
    return np.asarray(running[:, BATCHES:] - running[:, :-BATCHES])


@dataclass(frozen=True)
class Watched:
    """What became of the alerts of one segment."""

    error: Floats
    """Headline minus realised accuracy, at each evaluation."""
    begun: dict[str, list[int]]
    """By rule, the evaluations at which it began to fire."""
    drift: Floats
    """The largest distance of each measure in units of its limit."""


def watch(segment: Segment, pool: Pool, rows: Integers, window: int, options: BaselineOptions) -> Watched:
    """Evaluate a stream of one segment, and step its alerts."""
    calibration = pool.calibration
    estimates, counts, realised = pool.windows(rows, window)
    if options.mode is BaselineMode.AUTO and calibration.segments is not None:
        estimates = calibration.segments.corrected(estimates, [segment] * len(realised))
    baselines = Baselines(calibration, options, "this", window, None)
    found = np.arange(len(realised))
    first = 0
    while baselines.kind(segment) == "own" and not (segment in baselines.own and baselines.own[segment].complete):
        _compare(baselines, segment, found[first : first + 1], estimates, counts)
        first += 1
    compared = _compare(baselines, segment, found, estimates, counts)
    row = estimates.names.index(ADAPTIVE)
    alerts = _begun(_facts(calibration, estimates, compared), first, window)
    distance = np.nanmax(compared.distance[:, first:] / compared.limit[:, first:], axis=1, initial=0.0)
    return Watched(estimates.accuracy[row] - realised, alerts, distance)


def _compare(
    baselines: Baselines, segment: Segment, windows: Integers, estimates: WindowEstimates, counts: Counts
) -> Comparisons:
    """Compare some windows, in their order."""
    some = Counts(counts.records[windows], counts.predicted[windows], counts.confidence[windows])
    columns = {
        name: getattr(estimates, name)[..., windows]
        for name in ("accuracy", "unclipped", "set_size", "empty_share", "why", "lower", "upper", "disagreement")
        + ("chance_disagreement", "field")
    }
    taken = WindowEstimates(names=estimates.names, records=some.records, **columns)
    at = EVALUATION_SECONDS * windows
    new = np.where(windows > 0, some.records // BATCHES, some.records)
    times = WindowTimes(new, at - EVALUATION_SECONDS * BATCHES, at)
    everything = np.ones(len(windows), dtype=np.bool_)
    return baselines.compare([segment] * len(windows), cast("MeasuredWindows", some), taken, everything, times, 0.0)


def _facts(calibration: Calibration, estimates: WindowEstimates, compared: Comparisons) -> WindowFacts:
    """Return the input of alerts, as the evaluator makes it."""
    row, count = estimates.names.index(ADAPTIVE), len(estimates.records)
    unknown, shown = np.full(count, np.nan), np.ones(count, dtype=np.bool_)
    upper = change_upper(compared, estimates, ADAPTIVE)
    return WindowFacts(
        np.full(count, STATES.index(WindowState.OK), dtype=np.uint8),
        np.zeros(count),
        lambda rule: estimates.accuracy[row] if rule.on is On.VALUE else upper,
        unknown,
        unknown,
        reference_accuracy=calibration.accuracy,
        baseline=compared.of,
        kinds=compared.kinds,
        gap=estimates.accuracy[row],
        unverified=compared.own & ~compared.verified,
        drift=compared.furthest_drift(shown),
    )


def _begun(facts: WindowFacts, first: int, window: int) -> dict[str, list[int]]:
    """Return for each rule the evaluations at which it began to fire, from the first."""
    begun: dict[str, list[int]] = {}
    for rule in rules():
        found, state, begun[rule.name] = conditions(rule, facts), AlertState(), []
        dwell = Dwell(window, window // BATCHES, EVALUATION_SECONDS)
        bad, well = found.bad.tolist(), found.well.tolist()
        for evaluation in range(first, len(bad)):
            before = state
            # Steps that change nothing are left out.
            if before.phase is AlertPhase.OK and not bad[evaluation]:
                continue
            state = step(rule, before, dwell, 0.0, bad=bad[evaluation], well=well[evaluation])
            if state.phase is AlertPhase.FIRING and before.phase is AlertPhase.PENDING:
                begun[rule.name].append(evaluation)
    return begun


class Hospitals:
    """Generated hospitals whose accuracies differ by SPREAD, and a reference with labelled records of each."""

    def __init__(self, count: int, seed: int, labels_each: int, *, best_only: bool = False) -> None:
        self._random = np.random.default_rng([seed, count])
        self._patients = Patients(self._random)
        self._model = Discriminant(*self._patients.draw(120, PREVALENCE, contrast=1.0))
        grid = np.linspace(0.5, 1.5, 21)
        accuracies = [float(np.mean(self._right(*self._draw(20_000, PREVALENCE, one)))) for one in grid]
        middle = float(np.interp(1.0, grid, accuracies))
        wanted = middle + SPREAD * (np.arange(count) / (count - 1) - 0.5)
        self._contrasts = np.interp(wanted, np.maximum.accumulate(accuracies), grid)
        odds = PREVALENCE * np.exp(0.2 * self._random.normal(size=(count, len(PREVALENCE))))
        self.mixes: Floats = odds / odds.sum(axis=1, keepdims=True)
        chosen = [count - 1] * count if best_only else range(count)
        parts = [self._draw(labels_each, self.mixes[one], self._contrasts[one]) for one in chosen]
        names = np.repeat([f"H{number:02d}" for number in range(count)], labels_each)
        reference = Reference.calibrate(
            np.concatenate([vectors for vectors, _ in parts]),
            np.concatenate([grades for _, grades in parts]),
            model="density",
            segments=None if best_only else {"site": names},
        )
        self.calibration = reference.calibration
        self.segments: list[Segment] = [(("site", f"H{number:02d}"),) for number in range(count)]
        self.pools = [self.pool(number) for number in range(count)]

    def pool(self, hospital: int, worse: float = 0.0) -> Pool:
        """Return records of a hospital, with a contrast that is lower by this share."""
        contrast = self._contrasts[hospital] * (1.0 - worse)
        # As many of each grade: the stream says how many of each it has.
        each = [self._draw(POOL // 4, np.eye(len(PREVALENCE))[grade], contrast) for grade in range(len(PREVALENCE))]
        vectors, grades = (np.concatenate(columns) for columns in zip(*each, strict=True))
        return Pool(self.calibration, vectors, grades)

    def stream(self, hospital: int, evaluations: int, batch: int, wander: float) -> Integers:
        """Return rows of a pool: class shares with a daily rhythm of this amplitude, and a wander of half of it."""
        random, batches = self._random, evaluations + BATCHES - 1
        shares = np.tile(self.mixes[hospital], (batches, 1))
        if wander:
            memory, now = np.exp(-1.0 / DAY), random.normal()
            pushes = np.sqrt(1.0 - memory**2) * random.normal(size=batches)
            slow = np.empty(batches)
            for number, push in enumerate(pushes.tolist()):
                now = memory * now + push
                slow[number] = now
            rhythm = np.sin(2.0 * np.pi * (np.arange(batches) / DAY + random.random()))
            more, less = random.permutation(len(PREVALENCE))[:2]
            moved = wander * (rhythm + 0.5 * slow)
            shares[:, more] += moved
            shares[:, less] -= moved
            shares = np.maximum(shares, 0.005)
        reached = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
        grades = (random.random((batches, batch, 1)) > reached[:, None, :-1]).sum(axis=2).ravel()
        return np.asarray(grades * (POOL // 4) + random.integers(0, POOL // 4, len(grades)))

    def _draw(self, count: int, prevalence: Floats, contrast: float) -> tuple[Singles, Integers]:
        measured, grades = self._patients.draw(count, prevalence, contrast)
        return self._model.probabilities(measured).astype(np.float32), grades

    @staticmethod
    def _right(vectors: Singles, grades: Integers) -> Booleans:
        return np.asarray(vectors.argmax(axis=1) == grades)


MODES = {
    "reference": BaselineOptions(BaselineMode.REFERENCE),
    "labelled": BaselineOptions(BaselineMode.AUTO),
    "own": BaselineOptions(BaselineMode.OWN),
}


def shown(name: str, watched: Sequence[Watched], weeks: float) -> str:
    """Return a row: the error of the headline, and by rule the segments that alerted, and alarms a segment and week."""
    means = np.array([one.error.mean() for one in watched])
    row = [name, f"{100 * np.mean(np.abs(means)):.1f}", f"{100 * np.max(np.abs(means)):.1f}"]
    for rule in rules():
        alarms = [len(one.begun[rule.name]) for one in watched]
        row.append(f"{sum(map(bool, alarms))} ({sum(alarms) / len(watched) / weeks:.2g})")
    return f"| {' | '.join(row)} |"


def head(first: str) -> str:
    """Return the head of such a table."""
    names = [first, "error, mean", "largest", *(f"`{rule.name}`" for rule in rules())]
    return f"| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}"


def hospitals(weeks: int, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the tables of generated hospitals: healthy."""
    for count, labels_each in ((12, 500), (50, 200)):
        for window in (500, 2000):
            yield f"\n{count} hospitals, {labels_each} labels each, windows of {window:,}, {weeks} weeks, seeds {seeds}\n"
            yield head("stream; baseline")
            for wander in (0.0, 0.02, 0.05):
                found: dict[str, list[Watched]] = {name: [] for name in (*MODES, "own, a day", "own, best")}
                for seed in seeds:
                    _healthy(found, _hospitals(count, seed, labels_each), weeks * 7 * DAY, window, wander)
                for name, watched in found.items():
                    if watched:
                        yield shown(f"{_named(wander)}; {name}", watched, weeks)


def _named(wander: float) -> str:
    return f"±{100 * wander:.0f} points" if wander else "independent"


@cache
def _hospitals(count: int, seed: int, labels_each: int) -> Hospitals:
    return Hospitals(count, seed, labels_each)


def _healthy(
    found: dict[str, list[Watched]], place: Hospitals, evaluations: int, window: int, wander: float
) -> None:
    """Watch every hospital with each kind of baseline."""
    day = BaselineOptions(BaselineMode.OWN, records=DAY * (window // BATCHES))
    for hospital, (segment, pool) in enumerate(zip(place.segments, place.pools, strict=True)):
        rows = place.stream(hospital, evaluations, window // BATCHES, wander)
        for name, options in {**MODES, "own, a day": day}.items():
            found[name].append(watch(segment, pool, rows, window, options))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    started = time.perf_counter()
    for line in hospitals(options.weeks, options.seeds):
        print(line, flush=True)
    print(f"in {time.perf_counter() - started:,.0f} s")


if __name__ == "__main__":
    main()
