"""Alerts of healthy segments that differ, before and after they have baselines of their own; and drifts that are seen.

Generated hospitals: the example's classifier. Each hospital has its own contrast, class mix and way of grading, so that their
accuracies differ by ten points, of which the outputs show seven. Real pseudo-sites: groups of classes of each real set (../shared/real_sets), of which random halves are the
reference and the healthy stream. Windows, comparisons and alerts are the product's; the contribution of a record to the
headline is computed once, so that weeks of evaluations take seconds. Prints the tables of docs/alerts.md.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage import REAL_SETS, labelled, sources
from monitor.config.reading import read_config
from monitor.core.alerts import AlertPhase, AlertRule, AlertState, AlertType, Dwell, On, WindowFacts, conditions, step
from monitor.core.baselines.comparison import (
    BaselineMode,
    BaselineOptions,
    Baselines,
    Comparisons,
    WindowTimes,
    change_upper,
)
from monitor.core.baselines.output_drift import OutputReference, counted, output_cells
from monitor.core.calibration import Calibration, WindowEstimates
from monitor.core.estimate import ADAPTIVE, STATES, WindowState
from monitor.core.estimators.ensemble import MIXED, MeasuredRecords
from monitor.core.scores import Floats, Integers, Singles, outputs
from monitor.core.segments import Segment
from monitor.core.totals import MeasuredWindows
from monitor.demo.example_data import PREVALENCE, Discriminant, Patients
from monitor.reference.reference import Reference
from tests.evaluation.faults import FAULTS, fault_rules, watch_fault

BATCHES = 25
"""Evaluations that replace a window."""
EVALUATION_SECONDS = 300.0
DAY = 288
"""Evaluations in a day."""
POOL = 8_000
"""Records of a hospital, of which its stream is drawn."""
SPREAD = 0.10
"""Between the accuracies of the best and the poorest hospital."""
HIDDEN = 0.03
"""Of these, what outputs do not show: the hospital grades differently."""
DROP = 0.10
"""Of the accuracy, when the contrast falls."""
JUMP = 0.10
"""Of the share of one class, when the patients change."""

_CONFIG = """
storage: {path: state}
sources: [{name: results, type: directory, path: inbox}]
models:
  - name: density
    alerts:
      - {name: accuracy_low, drop: 0.05}
      - {name: accuracy_falling, drop: 0.02}
      - {name: by_value, drop: 0.02, on: value, for: 1h}
"""

Booleans = NDArray[np.bool_]


@cache
def rules() -> tuple[AlertRule, ...]:
    """Return the rules on accuracy that docs/alerts.md recommends, one on the value, and the default ones."""
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
        self.calibration, self._outputs = calibration, cast("OutputReference", calibration.outputs)
        scaled = outputs(vectors, calibration.temperature).scaled
        self._of = {
            one.form.name: one.estimator.contributions(scaled, 0.0)
            for one in calibration.estimators
            if one.form.name in MIXED
        }
        self._decided = vectors.argmax(axis=1)
        self._cells = output_cells(self._outputs.edges, vectors.max(axis=1).astype(np.float64))
        self.right: Booleans = self._decided == labels

    def windows(self, rows: Integers, window: int) -> tuple[WindowEstimates, Counts, Floats]:
        """Return estimates, counts and realised accuracy of each full window, for rows that arrive in batches."""
        batches = rows.reshape(-1, window // BATCHES)
        records = np.full(len(batches) - BATCHES + 1, window)
        sums = {name: _in_windows(contributions[:, batches].sum(axis=2)) for name, contributions in self._of.items()}
        # Only forms with a threshold that moves need the mean confidence, and the headline has none.
        measured = MeasuredRecords(records, np.zeros((2, len(records))), sums)
        estimates = self.calibration.estimate_windows(measured, failed=lambda *_: None)
        lengths = np.full(len(batches), batches.shape[1])
        decided = counted(self._decided[rows], lengths, self.calibration.classes)
        cells = counted(self._cells[rows], lengths, len(self._outputs.confidence))
        counts = Counts(records, _in_windows(decided.T).T, _in_windows(cells.T).T)
        return estimates, counts, _in_windows(self.right[batches].sum(axis=1)[None])[0] / window


def _in_windows(sums: NDArray[Any]) -> NDArray[Any]:
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
        one.name: getattr(estimates, one.name)[..., windows]
        for one in fields(WindowEstimates)
        if one.name not in {"names", "records"}
    }
    taken = WindowEstimates(names=estimates.names, records=some.records, **columns)
    at: Floats = np.asarray(EVALUATION_SECONDS * windows, dtype=np.float64)
    times = WindowTimes(at - EVALUATION_SECONDS * BATCHES, at)
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
        rank = np.arange(count) / (count - 1)
        shown = middle + (SPREAD - HIDDEN) * (rank - 0.5)
        self._contrasts, self._poor = (
            np.interp(wanted, np.maximum.accumulate(accuracies), grid) for wanted in (shown, shown - DROP)
        )
        self._regraded = HIDDEN * (1.0 - rank)
        odds = PREVALENCE * np.exp(0.2 * self._random.normal(size=(count, len(PREVALENCE))))
        self.mixes: Floats = odds / odds.sum(axis=1, keepdims=True)
        chosen = [count - 1] * count if best_only else range(count)
        parts = [self._graded(one, *self._draw(labels_each, self.mixes[one], self._contrasts[one])) for one in chosen]
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

    def pool(self, hospital: int) -> Pool:
        """Return records of a hospital: as many of each grade, then the same with the contrast that lowers the accuracy."""
        parts = [
            self._graded(hospital, *self._draw(POOL // 4, np.eye(len(PREVALENCE))[grade], contrast))
            for contrast in (self._contrasts[hospital], self._poor[hospital])
            for grade in range(len(PREVALENCE))
        ]
        return Pool(self.calibration, *map(np.concatenate, zip(*parts, strict=True)))

    def _graded(self, hospital: int, vectors: Singles, grades: Integers) -> tuple[Singles, Integers]:
        """Return outputs, and the labels of this hospital: some are those of a neighbouring grade."""
        again = self._random.random(len(grades)) < self._regraded[hospital]
        return vectors, np.where(again, np.where(grades < len(PREVALENCE) - 1, grades + 1, grades - 1), grades)

    def stream(
        self, hospital: int, evaluations: int, batch: int, wander: float, jump_at: int | None = None
    ) -> Integers:
        """Return rows of a pool, with shares of two classes that are within `wander` of their mean in 95% of the time.

        Half of the variance is a daily rhythm, half wanders with a memory of a day. With `jump_at`, the share of a class
        rises at this batch for good.
        """
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
            moved = wander / 2.0 * (rhythm + np.sqrt(0.5) * slow)
            shares[:, more] += moved
            shares[:, less] -= moved
        if jump_at is not None:
            # From the most frequent class to another.
            shares[jump_at:, np.argmax(self.mixes[hospital])] -= JUMP
            shares[jump_at:, random.choice(np.argsort(self.mixes[hospital])[:-1])] += JUMP
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


def modes(window: int) -> dict[str, BaselineOptions]:
    """Return the kinds of baselines to compare, for windows of this size."""
    return {**MODES, "own, of a day": BaselineOptions(BaselineMode.OWN, records=DAY * (window // BATCHES))}


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
    for count, labels_each in ((12, 500), (12, 2000), (50, 200)):
        for window in (500, 2000):
            yield f"\n{count} hospitals, {labels_each} labels each, windows of {window:,}, {weeks} weeks, seeds {seeds}\n"
            yield head("stream; baseline")
            for wander in (0.0, 0.02, 0.05):
                found: dict[str, list[Watched]] = {}
                for seed in seeds:
                    place = _hospitals(count, seed, labels_each)
                    _healthy(found, place, modes(window), weeks * 7 * DAY, window, wander)
                for name, watched in found.items():
                    yield shown(f"{_named(wander)}; {name}", watched, weeks)
    for window in (500, 2000):
        yield f"\n12 hospitals, reference of 4,000 records of the best only, windows of {window:,}, {weeks} weeks\n"
        yield head("stream; baseline")
        found = {}
        for seed in seeds:
            place = _hospitals(12, seed, 333, best_only=True)
            some = {name: one for name, one in modes(window).items() if name != "labelled"}
            _healthy(found, place, some, weeks * 7 * DAY, window, 0.02)
        for name, watched in found.items():
            yield shown(f"{_named(0.02)}; {name}", watched, weeks)


def _named(wander: float) -> str:
    return f"±{100 * wander:.0f} points" if wander else "independent"


@cache
def _hospitals(count: int, seed: int, labels_each: int, *, best_only: bool = False) -> Hospitals:
    return Hospitals(count, seed, labels_each, best_only=best_only)


def _healthy(
    found: dict[str, list[Watched]],
    place: Hospitals,
    some: Mapping[str, BaselineOptions],
    evaluations: int,
    window: int,
    wander: float,
) -> None:
    """Watch every hospital with each of these baselines."""
    for hospital, (segment, pool) in enumerate(zip(place.segments, place.pools, strict=True)):
        rows = place.stream(hospital, evaluations, window // BATCHES, wander)
        for name, options in some.items():
            found.setdefault(name, []).append(watch(segment, pool, rows, window, options))


def shifts(seed: int) -> Iterator[str]:
    """Yield the table of delays: from a shift in one of 12 hospitals to the alarm, in windows, with the mix of two points."""
    place, healthy = _hospitals(12, seed, 500), 3 * DAY
    yield f"\nfrom a shift to the alarm, in windows, median (share within two windows), seed {seed}\n"
    names = ["shift; window; baseline", *(f"`{rule.name}`" for rule in rules() if rule.name != "baseline_gap")]
    yield f"| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}"
    for shift in ("accuracy falls by ten points", "share of a class rises by ten points"):
        for window in (500, 2000):
            delays: dict[tuple[str, str], list[float]] = {}
            for hospital, (segment, pool) in enumerate(zip(place.segments, place.pools, strict=True)):
                batch, at = window // BATCHES, healthy + BATCHES
                jump_at = None if shift.startswith("accuracy") else at
                rows = place.stream(hospital, healthy + 4 * BATCHES, batch, 0.02, jump_at)
                if jump_at is None:
                    rows[at * batch :] += POOL
                for name, options in modes(window).items():
                    for rule, begun in watch(segment, pool, rows, window, options).begun.items():
                        # The window of evaluation 0 is the first full one.
                        after = (one - healthy for one in begun if one > healthy)
                        delays.setdefault((name, rule), []).append(min(after, default=np.inf) / BATCHES)
            for name in modes(window):
                row = [f"{shift}; {window:,}; {name}"]
                for rule in (rule.name for rule in rules() if rule.name != "baseline_gap"):
                    found = np.array(delays[name, rule])
                    middle = f"{np.median(found):.1f}" if np.isfinite(np.median(found)) else "none"
                    row.append(f"{middle} ({np.mean(found <= 2.0):.0%})")
                yield f"| {' | '.join(row)} |"


REAL_WINDOW, REAL_WEEKS, MOST_SITES, FEWEST = 2000, 2, 8, 100
"""For real sets: the window, the weeks, the most sites of a set, and the fewest records of a site in each half."""


def real_sets() -> Iterator[str]:
    """Yield the table of real sets, whose groups of classes are pseudo-sites."""
    yield f"\nreal sets, windows of {REAL_WINDOW:,}, {REAL_WEEKS} weeks; groups of classes as sites\n"
    yield head("set; sites; their accuracies; baseline")
    pooled: dict[str, list[Watched]] = {}
    for name, path in sources().items():
        found, accuracies = _real(path)
        for mode, watched in found.items():
            pooled.setdefault(mode, []).extend(watched)
            span = f"{100 * min(accuracies):.0f} to {100 * max(accuracies):.0f}%"
            yield shown(f"{name}; {len(watched)}; {span}; {mode}", watched, REAL_WEEKS)
    for mode, watched in pooled.items():
        yield shown(f"all; {len(watched)}; ; {mode}", watched, REAL_WEEKS)


def _real(path: Path) -> tuple[dict[str, list[Watched]], list[float]]:
    """Watch the sites of one set, with each kind of baseline; return also their accuracies."""
    vectors, labels = labelled(path, "source")
    classes = vectors.shape[1]
    # With two classes a site has the patients that the model takes for one of them.
    sites = labels * min(MOST_SITES, classes) // classes if classes > 2 else vectors.argmax(axis=1)
    random = np.random.default_rng(19)
    order = random.permutation(len(labels))
    reference, stream = order[: len(order) // 2][:4000], order[len(order) // 2 :]
    names = np.array([f"S{site}" for site in range(MOST_SITES)])
    calibration = Reference.calibrate(
        vectors[reference], labels[reference], model="real", segments={"site": names[sites[reference]]}
    ).calibration
    found: dict[str, list[Watched]] = {}
    accuracies = []
    for site in np.unique(sites).tolist():
        mine = stream[sites[stream] == site]
        if min(len(mine), int(np.count_nonzero(sites[reference] == site))) < FEWEST:
            continue
        pool = Pool(calibration, vectors[mine], labels[mine])
        accuracies.append(float(pool.right.mean()))
        batches = REAL_WEEKS * 7 * DAY + BATCHES - 1
        rows = random.integers(0, len(mine), batches * (REAL_WINDOW // BATCHES))
        for name, options in MODES.items():
            watched = watch((("site", str(names[site])),), pool, rows, REAL_WINDOW, options)
            found.setdefault(name, []).append(watched)
    return found, accuracies


def faults() -> Iterator[str]:
    """Yield the table of faults of one feature at one of two sites."""
    yield "\nfaults of one feature at one of two sites, windows of 1,000: records from the fault to the alarm\n"
    names = [one.name for one in fault_rules() if one.kind is not AlertType.BASELINE_GAP]
    columns = ["fault; baseline", "true accuracy", "`adaptive`", "`consensus`", "predicted shares", *names]
    yield f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}"
    for fault in FAULTS:
        for labelled_ in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                seen = watch_fault(Path(folder), fault, labelled=labelled_)
            pairs = [(seen.before.accuracy, seen.after.accuracy)]
            pairs += [(seen.before.estimates[name], seen.after.estimates[name]) for name in ("adaptive", "consensus")]
            row = [f"{fault}; {'labelled' if labelled_ else 'own'}", *(f"{a:.1%} → {b:.1%}" for a, b in pairs)]
            row.append(", ".join(f"{share:.0%}" for share in seen.after.shares))
            row += [f"{seen.fired[name]:,}" if name in seen.fired else "–" for name in names]
            yield f"| {' | '.join(row)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", choices=("hospitals", "shifts", "faults", "real"))
    options = parser.parse_args()
    started = time.perf_counter()
    parts = {
        "hospitals": lambda: hospitals(options.weeks, options.seeds),
        "shifts": lambda: shifts(options.seeds[0]),
        "faults": faults,
        "real": real_sets,
    }
    for name in options.only or parts:
        if name == "real" and not REAL_SETS.is_dir():
            print("segments: ../shared/real_sets is absent, so there is nothing real to measure on")
            continue
        for line in parts[name]():
            print(line, flush=True)
    print(f"in {time.perf_counter() - started:,.0f} s")


if __name__ == "__main__":
    main()
