"""The detector of changes on real outputs: false alarms, delays, streams that are not independent, and what it costs.

Values, sums and evidence are the product's. Every stream is measured in one piece, an evaluation of fifty records being a row of
an `EvidenceTable`; then all streams are evaluated side by side. Real sets are in ../shared/real_sets. Prints the tables of
docs/alerts.md and docs/methods.md.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage import REAL_SETS, labelled, sources
from benchmarks.measures import NOW, SCANNERS, calibration_of, outputs
from benchmarks.ratios import HEAD, ratio
from monitor.core.alerts import AlertPhase, AlertRule, AlertState, Dwell, On, WindowFacts, conditions, step
from monitor.core.calibration import Calibration, calibrate
from monitor.core.change import (
    BYTES_PER_WINDOW,
    FEWEST_BLOCKS,
    MEMBERS,
    Blocks,
    ChangeEvidence,
    Detector,
    Direction,
    EvidenceSums,
    EvidenceTable,
    Expected,
    MemberValues,
    Sums,
    null_means,
)
from monitor.core.estimate import ADAPTIVE, STATES, WindowState
from monitor.core.estimators.ensemble import MIXED, MeasuredRecords
from monitor.core.record_columns import Records, Texts
from monitor.core.scores import Floats, Integers, Singles, label_outputs
from monitor.core.scores import outputs as scored
from monitor.core.segments import ModelWindows, Segmentation
from monitor.core.totals import Gauge, member_values
from monitor.core.window import Bounds, measured

EVERY = 50
"""Records of an evaluation."""
FEWEST_RECORDS, MOST_REFERENCE = 1500, 4000
BUDGETS = (1e4, 1e5, 1e6)
HEALTHY_RECORDS = 200_000
BOTH = (Detector(), Detector(Direction.UP))
_TOGETHER = 100
"""Evaluations that are measured together, so that they stay in the CPU cache."""


class Stream:
    """A reference, and the values of records of which streams are drawn: those of the other half of its source, then others."""

    def __init__(self, path: Path, seed: int, *, target: bool = False) -> None:
        vectors, labels = labelled(path, "source")
        self.random = np.random.default_rng(seed)
        order = self.random.permutation(len(labels))
        half = len(order) // 2
        # For delays nearly all of a small source, as an operator would take; for false alarms the promise is what counts.
        count = min(MOST_REFERENCE, 4 * len(order) // 5 if target else half)
        reference, rest = order[:count], order[max(count, half) :]
        self.calibration: Calibration = calibrate(label_outputs(vectors[reference], labels[reference]))
        gauge = Gauge(self.calibration, ())
        self.members = cast("MemberValues", gauge.members)
        self.vectors: Singles = vectors[rest]
        self.healthy = len(rest)
        self.drop = 0.0
        """By how many points the accuracy of the other records is below that of the reference."""
        if target:
            others, of_others = labelled(path, "target")
            self.vectors = np.concatenate([self.vectors, others])
            self.drop = 100.0 * (self.calibration.accuracy - float(np.mean(others.argmax(axis=1) == of_others)))
        self.values = member_values(gauge, self.vectors)

    def rows(self, records: int, *, healthy: bool = True) -> Integers:
        """Return records in random order, with replacement."""
        first, end = (0, self.healthy) if healthy else (self.healthy, len(self.vectors))
        return self.random.integers(first, end, records)

    def means(self, detectors: Sequence[Detector]) -> Floats:
        """Return those of the null hypothesis, with the default tolerance."""
        accuracy = np.full(len(MEMBERS), self.members.accuracy)
        return null_means(detectors, Expected(accuracy, self.members.smallest_tolerance))


def evaluation_sums(
    members: MemberValues, detectors: Sequence[Detector], means: Floats, values: Floats, lengths: Integers
) -> Sums:
    """Return the sums of evaluations of so many records, shape (evaluations, sums)."""
    table = EvidenceTable(members, detectors, lambda _: means)
    rows = np.array([table.row(number, 0.0) for number in range(len(lengths))])
    ends = np.cumsum(lengths)
    for first in range(0, len(lengths), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        begin = int(ends[first] - lengths[first])
        table.add(
            np.ascontiguousarray(values[:, begin : ends[some][-1]]),
            ends[some] - lengths[some] - begin,
            rows[some][None],
            np.ones((1, len(rows[some])), dtype=np.bool_),
        )
    return np.asarray(table.sums[rows])


@dataclass(frozen=True)
class Alarms:
    """What becomes of streams that are evaluated side by side."""

    counts: Integers
    """Alarms, by stream and detector; evidence begins again after each."""
    first: Floats
    """The evaluation of the first one, from 1; infinite if there was none."""


def alarms(sums: NDArray[np.int64], means: Floats, budget: float, *, after: int = 0) -> Alarms:
    """Evaluate streams, shape (streams, evaluations, sums), whose means are given by stream; count alarms `after` some."""
    streams, evaluations, _ = sums.shape
    detectors = means.shape[1]
    evidence = ChangeEvidence(detectors)
    evidence.select(range(streams))
    since, total, threshold = np.zeros(streams), np.zeros_like(sums[:, 0]), math.log10(budget)
    counts = np.zeros((streams, detectors), dtype=np.int64)
    first = np.full((streams, detectors), np.inf)
    for evaluation in range(evaluations):
        total = total + sums[:, evaluation]
        evidence.update(EvidenceSums(total, means, since), np.full(streams, float(evaluation)))
        fired = evidence.value >= threshold
        if not fired.any():
            continue
        for detector in range(detectors):
            evidence.restart(fired[:, detector], detector)
        if evaluation >= after:
            counts += fired
            first[fired & np.isinf(first)] = evaluation + 1 - after
    return Alarms(counts, first)


# False alarms of healthy streams.


def large_sources() -> dict[str, Path]:
    """Return the sets whose source is large enough, each source once."""
    found = {}
    for name, path in sources().items():
        with np.load(path) as data:
            if len(data["source_labels"]) >= FEWEST_RECORDS:
                found[name] = path
    return found


def healthy(seeds: int) -> Iterator[str]:
    """Yield the table of alarms in healthy streams."""
    per = HEALTHY_RECORDS // EVERY
    of, sums, means = [], [], []
    for name, path in large_sources().items():
        for seed in range(seeds):
            stream = Stream(path, seed)
            values = stream.values[:, stream.rows(HEALTHY_RECORDS)]
            of.append(name)
            means.append(stream.means(BOTH))
            sums.append(evaluation_sums(stream.members, BOTH, means[-1], values, np.full(per, EVERY)))
    names = list(dict.fromkeys(of))
    found = {budget: alarms(np.array(sums), np.array(means), budget).counts for budget in BUDGETS}
    yield f"\nhealthy streams: {len(names)} sources, {seeds} times {HEALTHY_RECORDS:,} records, an evaluation every {EVERY}; alarms down + up\n"
    yield f"| source | {' | '.join(f'budget {budget:,.0f}' for budget in BUDGETS)} |\n|---|{'--:|' * len(BUDGETS)}"
    for name in names:
        mine = np.array([one == name for one in of])
        cells = [" + ".join(map(str, counts[mine].sum(axis=0))) for counts in found.values()]
        yield f"| {name} | {' | '.join(cells)} |"
    cells = [" + ".join(map(str, counts.sum(axis=0))) for counts in found.values()]
    yield f"| **all, {len(of) * HEALTHY_RECORDS:,} records** | {' | '.join(cells)} |"
    yield f"| expected at most, each direction | {' | '.join(f'{len(of) * per / budget:,.4g}' for budget in found)} |"


# Delays.

OLD_RULES = (
    AlertRule("by the interval", drop=0.05, on=On.UPPER),
    AlertRule("by the value", drop=0.02, on=On.VALUE),
)
WINDOWS = (2000, 5000)
EVALUATION_SECONDS = 300.0
BEFORE, AFTER, BUDGET = 6000, 40_000, 1e6
"""Healthy records, others behind them, and the evidence to alarm at."""


class Rules:
    """The old rules on a stream, for windows that slide."""

    def __init__(self, stream: Stream) -> None:
        self._calibration = stream.calibration
        scaled = scored(stream.vectors, self._calibration.temperature).scaled
        self._of = {
            one.form.name: one.estimator.contributions(scaled, 0.0)
            for one in self._calibration.estimators
            if one.form.name in MIXED
        }

    def begun(self, rows: Integers, window: int) -> dict[str, list[int]]:
        """Return by rule the number of records after which it began to fire."""
        batches, per = rows.reshape(-1, EVERY), window // EVERY
        count = np.full(len(batches) - per + 1, window)
        sums = {name: _windows(one[:, batches].sum(axis=2), per) for name, one in self._of.items()}
        # Only forms with a threshold that moves need the mean confidence, and the headline has none.
        estimates = self._calibration.estimate_windows(
            MeasuredRecords(count, np.zeros((2, len(count))), sums), failed=lambda *_: None
        )
        row, nothing = estimates.names.index(ADAPTIVE), np.full(len(count), np.nan)
        facts = WindowFacts(
            np.full(len(count), STATES.index(WindowState.OK), dtype=np.uint8),
            np.zeros(len(count)),
            lambda rule: (estimates.accuracy if rule.on is On.VALUE else estimates.upper)[row],
            nothing,
            nothing,
            reference_accuracy=self._calibration.accuracy,
        )
        return {rule.name: [window + EVERY * one for one in _fired(rule, facts, window)] for rule in OLD_RULES}


def _windows(sums: Floats, per: int) -> Floats:
    """Return the sums of every full window, from those of its batches; shape (rows, windows)."""
    running = np.cumsum(np.pad(sums, ((0, 0), (1, 0))), axis=1)
    return np.asarray(running[:, per:] - running[:, :-per])


def _fired(rule: AlertRule, facts: WindowFacts, window: int) -> list[int]:
    """Return the evaluations at which a rule began to fire."""
    found, state, begun = conditions(rule, facts), AlertState(), []
    dwell = Dwell(window, EVERY, EVALUATION_SECONDS)
    for evaluation, (bad, well) in enumerate(zip(found.bad.tolist(), found.well.tolist(), strict=True)):
        before = state
        state = step(rule, before, dwell, 0.0, bad=bad, well=well)
        if state.phase is AlertPhase.FIRING and before.phase is AlertPhase.PENDING:
            begun.append(evaluation)
    return begun


def delay(seeds: int) -> Iterator[str]:
    """Yield the table of delays, with the false alarms of the old rules in healthy streams."""
    yield f"\nrecords until a real shift is noticed: median of {seeds} streams, an evaluation every {EVERY}, budget {BUDGET:,.0f}"
    yield f"false: alarms in {seeds} times {HEALTHY_RECORDS:,} healthy records\n"
    windows = " / ".join(f"{window:,}" for window in WINDOWS)
    rules = (f"`drop: {rule.drop}, on: {rule.on}`, window {windows}" for rule in OLD_RULES)
    yield f"| set | drop in points | detector | {' | '.join(rules)} |\n|---|--:|--:|--:|--:|"
    rows = []
    for path in sorted(REAL_SETS.glob("*.npz")):
        with np.load(path) as data:
            if len(data["source_labels"]) < FEWEST_RECORDS:
                continue
        rows.append(_delays(path, seeds))
    for _, row in sorted(rows, reverse=True):
        yield row


def _delays(path: Path, seeds: int) -> tuple[float, str]:
    """Return the drop of one set, and its row."""
    down = BOTH[:1]
    sums, means, drops, false = [], [], [], 0
    keys = [(rule.name, window) for rule in OLD_RULES for window in WINDOWS]
    old: dict[tuple[str, int], list[float]] = {key: [] for key in keys}
    old_false = dict.fromkeys(keys, 0)
    for seed in range(seeds):
        stream = Stream(path, seed, target=True)
        drops.append(stream.drop)
        rules, of = Rules(stream), stream.means(down)
        rows = np.concatenate([stream.rows(BEFORE), stream.rows(AFTER, healthy=False)])
        calm = stream.rows(HEALTHY_RECORDS)
        means.append(of)
        sums.append(
            evaluation_sums(stream.members, down, of, stream.values[:, rows], np.full(len(rows) // EVERY, EVERY))
        )
        quiet = evaluation_sums(stream.members, down, of, stream.values[:, calm], np.full(len(calm) // EVERY, EVERY))
        false += int(alarms(quiet[None], of[None], BUDGET).counts.sum())
        for window in WINDOWS:
            begun, never = rules.begun(rows, window), rules.begun(calm, window)
            for rule in OLD_RULES:
                after = [one - BEFORE for one in begun[rule.name] if one > BEFORE]
                old[rule.name, window].append(min(after, default=np.inf))
                old_false[rule.name, window] += len(never[rule.name])
    found = alarms(np.array(sums), np.array(means), BUDGET, after=BEFORE // EVERY)
    drop = statistics.mean(drops)
    cells = [_shown([found.first[:, 0] * EVERY], [false])]
    for rule in OLD_RULES:
        mine = [(rule.name, window) for window in WINDOWS]
        cells.append(_shown([np.array(old[key]) for key in mine], [old_false[key] for key in mine]))
    return drop, f"| {path.stem} | {drop:.1f} | {' | '.join(cells)} |"


def _shown(delays: Sequence[Floats], false: Sequence[int]) -> str:
    """Return delays of some windows, and their false alarms if there are any."""
    shown = []
    for some in delays:
        middle, share = float(np.median(some)), float(np.mean(np.isfinite(some)))
        if math.isfinite(middle):
            shown.append(f"{middle:,.0f}")
        else:
            shown.append("never" if share == 0.0 else f"{share:.0%} of runs")
    text = " / ".join(shown)
    return text if not any(false) else f"{text}; false {' / '.join(map(str, false))}"


# Streams that are not independent.

SETS = (
    "acs_employment_MA_2015_to_2018",
    "california_housing_ref_to_analysis",
    "cifar10_to_cifar101v6_votes_weak6",
    "nannyml_synthetic_multiclass",
)
EVALUATIONS, OWN_BUDGET, DROP = 3000, 6.5e6, 0.10
VIEWS, WORST_BUDGET = 4, 1000.0
DAY = 24
"""Evaluations of a day."""
CASES = (
    ("independent", 0.0, 0.0, "0%, 0%"),
    *(("wandering", 2.0, memory, "7%, 2%") for memory in (0.8, 0.9, 0.98)),
    *(("wandering", 5.0, memory, "71%, 9%") for memory in (0.8, 0.9, 0.98)),
    ("daily rhythm", 2.0, 0.0, "0%, 0%"),
    ("daily rhythm", 5.0, 0.0, "7%, 0%"),
)
"""Streams, points, what a wandering mean keeps from one evaluation to the next, and the shares of METHODS.md, which does not
say how much that is."""


def views(streams: int) -> Iterator[str]:
    """Yield the table of exams that are sent as four records in a row."""
    yield f"\n{VIEWS} records of each exam in a row, {EVERY} records an evaluation, {streams} streams of each of {len(SETS)} sets"
    yield f"at the worst null: mean exactly the null hypothesis; evaluations until evidence {WORST_BUDGET:,.0f}, mean (promise: at least that)"
    yield f"healthy: share of streams of {EVALUATIONS:,} evaluations that alarm with the default tolerance, budget {BUDGET:,.0f}\n"
    yield "| | worst null | healthy |\n|---|--:|--:|"
    made = [Stream(REAL_SETS / f"{name}.npz", 1) for name in SETS]
    down, per = BOTH[:1], EVERY // VIEWS
    kinds: dict[str, tuple[Callable[[Stream], Integers], int]] = {
        "each exam once, independent": (lambda one: one.rows(EVALUATIONS * EVERY), EVERY),
        "four records of each, all count": (lambda one: np.repeat(one.rows(EVALUATIONS * per), VIEWS), per * VIEWS),
        "four records of each, `group_by`: the first counts": (lambda one: one.rows(EVALUATIONS * per), per),
    }
    for name, (draw, records) in kinds.items():
        waited: list[float] = []
        alarmed: list[bool] = []
        for stream in made:
            lengths, healthy_means = np.full(EVALUATIONS, records), stream.means(down)
            worst = stream.values[:, : stream.healthy].mean(axis=1)[None]
            found = []
            for means, budget in ((worst, WORST_BUDGET), (healthy_means, BUDGET)):
                sums = [
                    evaluation_sums(stream.members, down, means, stream.values[:, draw(stream)], lengths)
                    for _ in range(streams)
                ]
                found.append(alarms(np.array(sums), np.repeat(means[None], streams, axis=0), budget))
            waited += found[0].first[:, 0].tolist()
            alarmed += (found[1].counts[:, 0] > 0).tolist()
        # Streams that end before an alarm would have waited longer.
        mean = statistics.mean(min(one, float(EVALUATIONS)) for one in waited)
        yield f"| {name} | {'≥ ' if math.inf in waited else ''}{mean:,.0f} | {statistics.mean(alarmed):.0%} |"


def _levels(kind: str, points: float, memory: float, random: np.random.Generator, count: int) -> Floats:
    """Return by evaluation how far the mean of healthy records is from its own mean."""
    size = points / 100.0
    if kind == "daily rhythm":
        return np.asarray(size * np.sin(2.0 * np.pi * (np.arange(count) / DAY + random.random())))
    pushes = size * math.sqrt(1.0 - memory**2) * random.normal(size=count)
    found, now = np.empty(count), size * random.normal()
    for number, push in enumerate(pushes.tolist()):
        now = memory * now + push
        found[number] = now
    return found


def _tilted(stream: Stream, levels: Floats) -> Integers:
    """Return records of evaluations in which the mean of `adaptive` differs by these levels: more easy or difficult ones."""
    random, adaptive = stream.random, stream.values[MEMBERS.index(ADAPTIVE), : stream.healthy]
    ranked = np.argsort(stream.values[:, : stream.healthy].mean(axis=0))
    part = len(ranked) // 2
    mean, low, high = adaptive.mean(), ranked[:part], ranked[-part:]
    reach = np.where(levels < 0.0, mean - adaptive[low].mean(), adaptive[high].mean() - mean)
    share = np.minimum(1.0, np.abs(levels) / reach)[:, None]
    shape = (len(levels), EVERY)
    tilted = np.where(
        levels[:, None] < 0.0, low[random.integers(0, part, shape)], high[random.integers(0, part, shape)]
    )
    return np.where(random.random(shape) < share, tilted, random.integers(0, stream.healthy, shape)).ravel()


def own_baseline(streams: int) -> Iterator[str]:
    """Yield the table of streams whose mean moves, compared with baselines of their own."""
    yield f"\nown baseline of {FEWEST_BLOCKS} evaluations, then {EVALUATIONS:,} of {EVERY} records, budget {OWN_BUDGET:,.0f}; {streams} streams of each of {len(SETS)} sets"
    yield f"share of healthy streams that alarm, without and with the term for a mean that wanders; then evaluations until a drop of {100 * DROP:.0f} points\n"
    columns = [
        "healthy stream",
        "tolerance, median",
        "without",
        "with",
        "METHODS",
        "drop noticed after, median (share)",
    ]
    yield f"| {' | '.join(columns)} |\n|---|{'--:|' * (len(columns) - 1)}"
    made = [Stream(REAL_SETS / f"{name}.npz", 1) for name in SETS]
    for kind, points, memory, expected in CASES:
        tolerances, shares, waited = [], [], []
        for stream in made:
            for _ in range(streams):
                tolerance, plain, found, after = _own(stream, kind, points, memory)
                tolerances.append(tolerance)
                shares.append((plain, found))
                waited.append(after)
        plain_share, share = np.mean(shares, axis=0)
        seen, noticed = float(np.median(waited)), float(np.mean(np.isfinite(waited)))
        name = kind if kind == "independent" else f"{kind}, {points:.0f} points"
        name += f", memory {memory}" if memory else ""
        drop = f"{seen:,.0f}" if math.isfinite(seen) else "none"
        yield (
            f"| {name} | {100 * statistics.median(tolerances):.1f} points | {plain_share:.0%} | {share:.0%} "
            f"| {expected} | {drop} ({noticed:.0%}) |"
        )


def _own(stream: Stream, kind: str, points: float, memory: float) -> tuple[float, bool, bool, float]:
    """Return the tolerance of one stream, whether it alarms without and with the second term, and the delay of a drop."""
    down, members = BOTH[:1], stream.members
    levels = _levels(kind, points, memory, stream.random, FEWEST_BLOCKS + EVALUATIONS)
    values = stream.values[:, _tilted(stream, levels)]
    unknown = np.full((1, len(MEMBERS)), np.nan)
    first = FEWEST_BLOCKS * EVERY
    blocks, lengths = Blocks(), np.full(FEWEST_BLOCKS, EVERY)
    for block in evaluation_sums(members, down, unknown, values[:, :first], lengths):
        blocks = blocks.added(block)
    averages = values[:, :first].reshape(len(MEMBERS), FEWEST_BLOCKS, EVERY).mean(axis=2)
    plain = 4.5 * float(np.max(averages.std(axis=1, ddof=1))) / math.sqrt(FEWEST_BLOCKS)
    smallest = blocks.smallest_tolerance

    def evaluated(some: Floats, smallest: float) -> Alarms:
        means = null_means(down, Expected(blocks.means, smallest))
        sums = evaluation_sums(members, down, means, some, np.full(some.shape[1] // EVERY, EVERY))
        return alarms(sums[None], means[None], OWN_BUDGET)

    with_plain, found = (evaluated(values[:, first:], one) for one in (plain, smallest))
    fallen = _tilted(stream, levels[-500:] - DROP)
    return (
        float(down[0].effective(smallest)),
        bool(with_plain.counts.any()),
        bool(found.counts.any()),
        float(evaluated(stream.values[:, fallen], smallest).first[0, 0]),
    )


# Cost.

CLASSES, BATCHES = (2, 10, 100), (100, 1000)
MOST_SHARE, MOST_BYTES = 0.15, 2048


def measuring(classes: int, splits: tuple[tuple[str, ...], ...], records: int, rounds: int = 60) -> list[float]:
    """Return the CPU time to enter and measure batches with a detector, over that without, in turns."""
    gauge = Gauge(calibration_of(classes))
    members, bounds, segmentation = (
        cast("MemberValues", gauge.members),
        Bounds(records=5 * records),
        Segmentation(splits),
    )
    means = null_means(BOTH[:1], Expected(np.full(len(MEMBERS), members.accuracy), members.smallest_tolerance))
    table = EvidenceTable(members, BOTH[:1], lambda _: means)
    both = ModelWindows(gauge, bounds, segmentation), ModelWindows(gauge, bounds, segmentation, evidence=table)
    random, found = np.random.default_rng(20), []
    vectors = outputs(records, classes, 3)[0]
    for number in range(-10, rounds):
        at = NOW + number + np.arange(records) / records
        fields = {
            "site": Texts(tuple("ABCDE"), random.integers(0, 5, records)),
            "scanner": Texts(tuple("0123456789"), random.integers(0, 10, records)),
        }
        taken = [_seconds(gauge, windows, Records(vectors, at, fields)) for windows in both]
        # Only full windows, from which as many leave as come, count.
        if number >= 0:
            found.append(taken[1] / taken[0] - 1.0)
    return found


def _seconds(gauge: Gauge, windows: ModelWindows, batch: Records) -> float:
    admitted = windows.admit(batch, float(batch.at[-1]))
    if admitted.chunk is None:
        raise ValueError("expected records")
    started = time.process_time()
    windows.enter(admitted.chunk)
    measured(gauge, [[windows[segment]] for segment in windows])
    return time.process_time() - started


def cost(_: int) -> Iterator[str]:
    """Print the shares of measuring that a detector costs, and its memory."""
    print(HEAD)
    for classes in CLASSES:
        for splits, name in (((), "one window"), (SCANNERS, "three windows")):
            for records in BATCHES:
                # Rounds of the noise of the machine.
                rounds = [statistics.median(measuring(classes, splits, records)) for _ in range(5)]
                what = f"detector over measuring a record, K = {classes}, {name} each, batches of {records:,}"
                ratio(what, rounds, f"<= {MOST_SHARE}")
    ratio("bytes of a window's detector", [float(BYTES_PER_WINDOW)], f"<= {MOST_BYTES}")
    yield from ()


PARTS: dict[str, tuple[Callable[[int], Iterator[str]], int]] = {
    "healthy": (healthy, 6),
    "delay": (delay, 6),
    "dependent": (lambda streams: (line for part in (views, own_baseline) for line in part(streams)), 50),
    "cost": (cost, 0),
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; else all")
    parser.add_argument("--seeds", type=int, help="streams of each set")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        part, seeds = PARTS[name]
        if name != "cost" and not REAL_SETS.is_dir():
            print(f"{name}: ../SHARED/REAL_SETS IS ABSENT, so there is nothing to measure on")
            continue
        started = time.perf_counter()
        for line in part(options.seeds or seeds):
            print(line, flush=True)
        print(f"\n{name}: in {time.perf_counter() - started:,.0f} s", flush=True)


if __name__ == "__main__":
    main()
