"""Coverage of the intervals on real outputs, without shift.

Each round calibrates on a random half of a real model's labelled outputs and estimates for windows of 200 and 1,000 from
the other half, whose labels are known. Pooled over the sets, each 95% interval should contain the realised value in 92% to
98% of windows: of accuracy, by each estimator; and of the performance metrics and the class mix, for sets with at most 20
classes, at argmax and, for two classes, at the operating point that catches 90% of the reference's positives. Needs
../shared/real_sets.

With `--only segments`: healthy segments with and without the correction by their labelled baselines; of generated hospitals
that differ by up to ten points, and of real sets with their classes as segments.
"""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from monitor.core.baselines.labelled_baselines import SegmentBaselines
from monitor.core.calibration import Calibration, calibrate
from monitor.core.decisions import Decision
from monitor.core.estimate import Estimate
from monitor.core.estimators.ensemble import measure_vectors, side_by_side
from monitor.core.intervals import DEFAULT_LEVEL
from monitor.core.performance import MOST_SHOWN, Metric, PerformanceGauge, Target, realised, targets
from monitor.core.performance_calibration import calibrate_performance
from monitor.core.record_columns import Records, Texts
from monitor.core.scores import label_outputs, outputs
from tests.strategies import hospital

REAL_SETS = Path(__file__).resolve().parents[2] / "shared" / "real_sets"
SIZES = (200, 1000)
LOWEST, HIGHEST, FEWEST_WINDOWS = 0.92, 0.98, 400
_MOST_WINDOWS = {200: 4, 1000: 6}
_MOST_REFERENCE = 4000
_CAUGHT = 0.9

Found = list[tuple[int, str, bool | None, float]]
"""Window size, estimator or metric, whether the interval contains the realised value, and its width; None if there is none."""


def labelled(path: Path, part: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the source or the target of a set: probabilities as they are accepted, and labels."""
    with np.load(path) as data:
        weights, labels = data[f"{part}_probs"].astype(np.float64), data[f"{part}_labels"].astype(np.int64)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32), labels


def sources() -> dict[str, Path]:
    """Return the sets that are large enough, each source once."""
    known: dict[bytes, str] = {}
    for path in sorted(REAL_SETS.glob("*.npz")):
        with np.load(path) as data:
            probabilities = data["source_probs"]
            if len(probabilities) // 2 >= min(SIZES):
                known.setdefault(probabilities.tobytes()[:100_000], path.stem)
    return {name: REAL_SETS / f"{name}.npz" for name in known.values()}


def one_round(path: Path, seed: int) -> Found:
    """Calibrate on one half and test accuracy on windows of the other."""
    probabilities, labels = labelled(path, "source")
    correct = np.argmax(probabilities, axis=1) == labels
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(labels) // 2
    calibration = calibrate(label_outputs(probabilities[order[:half]], labels[order[:half]]))
    rest = order[half:]
    found: Found = []
    for size in SIZES:
        for window in range(min(_MOST_WINDOWS[size], len(rest) // size)):
            rows = rest[window * size : (window + 1) * size]
            found += _covered(calibration, probabilities[rows], float(correct[rows].mean()), size)
    return found


def _covered(calibration: Calibration, window: NDArray[np.float32], realised: float, size: int) -> Found:
    found: Found = []
    for chosen in ({}, {"doc": "absolute", "cpc_acc": "skip", "cpc_ac": "skip"}, {"cpc_acc": "zero", "cpc_ac": "zero"}):
        estimates = calibration.estimate(window, chosen).estimators
        for name, result in estimates.items():
            variant = chosen.get(name.removesuffix("_ts"))
            if (chosen and variant is None) or not isinstance(result, Estimate) or result.interval is None:
                continue
            held = result.interval.lower - 1e-12 <= realised <= result.interval.upper + 1e-12
            label = f"{name}[{variant}]" if variant else name
            found.append((size, label, held, result.interval.upper - result.interval.lower))
    return found


def performance_round(path: Path, seed: int) -> Found:
    """Calibrate on one half and test the performance metrics and the class mix on windows of the other."""
    probabilities, labels = labelled(path, "source")
    classes = probabilities.shape[1]
    if classes > MOST_SHOWN:
        return []
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(labels) // 2
    source, rest = order[: min(half, _MOST_REFERENCE)], order[half:]
    decisions = {"argmax": Decision()}
    if classes == 2:
        caught = np.quantile(probabilities[source[labels[source] == 1], 1], 1.0 - _CAUGHT, method="lower")
        decisions["operating point"] = Decision.at(1, float(caught))
    found: Found = []
    for name, decision in decisions.items():
        decided = decision.decided(probabilities)
        reference = label_outputs(probabilities[source], labels[source], decided=decided[source])
        kept = calibrate_performance(reference, DEFAULT_LEVEL, lambda _: None)
        gauge = PerformanceGauge(kept, reference.temperature, targets(classes))
        for size in SIZES:
            lengths = np.full(min(_MOST_WINDOWS[size], len(rest) // size), size)
            rows = rest[: int(lengths.sum())]
            scaled = outputs(probabilities[rows], reference.temperature).scaled
            measured = gauge.measured_windows(probabilities[rows], decided[rows], 1.0 / scaled.confidence, lengths)
            truth = realised(probabilities[rows], decided[rows], labels[rows], lengths)
            estimates, mix = measured.estimates(), measured.class_mix()
            columns = estimates.lower, estimates.upper, truth.values(estimates.targets)[0]
            for target, *rows_ in zip(estimates.targets, *columns, strict=True):
                # Decisions make no difference to AUROC and the class mix.
                if target.metric is not Metric.AUROC:
                    found += _held(size, f"{_named(target)}, {name}", *rows_)
                elif name == "argmax":
                    found += _held(size, "auroc", *rows_)
            if name != "argmax":
                continue
            for lower, upper, share in zip(mix.lower, mix.upper, truth.cases / size, strict=True):
                found += _held(size, "class mix", lower, upper, share)
    return found


def _named(target: Target) -> str:
    return f"macro {target.metric}" if target.of_class is None else target.metric.value


def _held(
    size: int, name: str, lower: NDArray[np.float64], upper: NDArray[np.float64], truth: NDArray[np.float64]
) -> Found:
    """Return what is found of one metric of windows, except of those in which it has no value."""
    rows = zip(lower.tolist(), upper.tolist(), truth.tolist(), strict=True)
    return [
        (size, name, None if np.isnan(low) else low - 1e-9 <= true <= high + 1e-9, high - low)
        for low, high, true in rows
        if not np.isnan(true)
    ]


_HOSPITALS = 10
_FEW, _MANY = 60, 1500
"""Labelled records of a hospital, drawn evenly on a logarithmic scale."""
_HARDER, _MISTAKEN = 0.6, 0.09
"""Together they move the accuracy of a hospital by up to ten points; the second is invisible to estimators."""

Segmented = list[tuple[int, str, bool, float, float]]
"""Window size, estimate, whether its interval contains the realised accuracy, its width, and the error of the estimate."""


def hospital_round(seed: int) -> Segmented:
    """Calibrate on generated hospitals, and estimate fresh windows of each."""
    random = np.random.default_rng(seed)
    kinds = [{"harder": _HARDER * random.random(), "mistaken": _MISTAKEN * random.random()} for _ in range(_HOSPITALS)]
    sizes = np.exp(random.uniform(np.log(_FEW), np.log(_MANY), _HOSPITALS)).astype(int).tolist()
    parts = [hospital(random, size, **kind) for size, kind in zip(sizes, kinds, strict=True)]
    vectors, labels = (np.concatenate(some) for some in zip(*parts, strict=True))
    sites = Texts.of(str(site) for site, size in enumerate(sizes) for _ in range(size))
    found: Segmented = []
    calibration = _with_baselines(vectors, labels, sites)
    for size in SIZES:
        windows = [(str(site), hospital(random, size, **kind)) for site, kind in enumerate(kinds) for _ in range(2)]
        found += _segmented(calibration, windows)
    return found


def class_round(path: Path, seed: int) -> Segmented:
    """Calibrate on one half of a real set with its classes as segments, and estimate those of the other half."""
    probabilities, labels = labelled(path, "source")
    order = np.random.default_rng(seed).permutation(len(labels))
    fit, rest = np.array_split(order, 2)
    calibration = _with_baselines(probabilities[fit], labels[fit], Texts.of(map(str, labels[fit].tolist())))
    rows = {str(name): rest[labels[rest] == name][: max(SIZES)] for name in np.unique(labels)}
    return _segmented(
        calibration,
        [(name, (probabilities[some], labels[some])) for name, some in rows.items() if len(some) >= min(SIZES)],
    )


def _with_baselines(vectors: NDArray[np.float32], labels: NDArray[np.int64], sites: Texts) -> Calibration:
    calibration = calibrate(label_outputs(vectors, labels))
    records = Records(vectors, np.zeros(len(vectors)), {"site": sites}, labels=labels)
    return replace(calibration, segments=SegmentBaselines.of(calibration, records, [("site",)]))


def _segmented(
    calibration: Calibration, windows: list[tuple[str, tuple[NDArray[np.float32], NDArray[np.int64]]]]
) -> Segmented:
    """Return what is found of windows of segments that have a baseline, without and with its correction."""
    baselines = calibration.segments
    if baselines is None:
        return []
    windows = [(site, one) for site, one in windows if (("site", site),) in baselines]
    if not windows:
        return []
    measured = [measure_vectors(calibration.estimators, one, calibration.temperature) for _, (one, _) in windows]
    before = calibration.estimate_windows(side_by_side(measured))
    after = baselines.corrected(before, [(("site", site),) for site, _ in windows])
    truth = np.array([np.mean(one.argmax(axis=1) == labels) for _, (one, labels) in windows])
    found: Segmented = []
    for label, estimates in (("", before), (", corrected", after)):
        held = (estimates.lower - 1e-9 <= truth) & (truth <= estimates.upper + 1e-9)
        columns = held, estimates.upper - estimates.lower, np.abs(estimates.accuracy - truth)
        for name, *rows in zip(estimates.names, *(one.tolist() for one in columns), strict=True):
            found += [(len(one), name + label, *row) for (_, (one, _)), *row in zip(windows, *rows, strict=True)]
    return found


def report_segments(what: str, found: Segmented, *, bar: bool) -> int:
    """Print coverage, width and error without and with the correction; return 1 if the corrected ones miss the target."""
    print(
        f"\n{what}: without and with the correction by labelled baselines"
        + (f"; bar {LOWEST:.0%} to {HIGHEST:.0%}" if bar else "")
    )
    print(f"{'':26}{'windows':>8}{'covered':>18}{'width':>18}{'mean error':>18}")
    missed = []
    for name in dict.fromkeys(name for _, name, *_ in found if "," not in name):
        before, after = (
            np.array([row[2:] for row in found if row[1] == label], dtype=np.float64).mean(axis=0)
            for label in (name, f"{name}, corrected")
        )
        count = sum(row[1] == name for row in found)
        cells = f"{before[0]:>9.1%}{after[0]:>9.1%}" + "".join(
            f"{one:>9.4f}{other:>9.4f}" for one, other in zip(before[1:], after[1:], strict=True)
        )
        print(f"{name:26}{count:>8,}{cells}")
        if bar and not LOWEST <= after[0] <= HIGHEST:
            missed.append(f"{name}: {after[0]:.1%}")
    if bar:
        print("bar held by every row" if not missed else f"bar missed: {'; '.join(missed)}")
    return 1 if missed else 0


def segments(rounds: int) -> int:
    """Measure the corrections."""
    found: Segmented = []
    with ProcessPoolExecutor() as pool:
        for one in pool.map(hospital_round, range(10 * rounds)):
            found += one
    missed = report_segments("generated hospitals", found, bar=True)
    for name in _BY_CLASS if REAL_SETS.is_dir() else ():
        with ProcessPoolExecutor() as pool:
            jobs = [pool.submit(class_round, REAL_SETS / f"{name}.npz", seed) for seed in range(rounds)]
            report_segments(f"classes of {name}", [row for job in jobs for row in job.result()], bar=False)
    return missed


_BY_CLASS = (
    "acs_employment_MA_2015_to_2018",
    "california_housing_ref_to_analysis",
    "cifar10_to_cifar101v6_votes_weak6",
    "cifar10_cleanlab_noshift",
    "cifar10_vgg_hard_classes90",
    "mnist_cleanlab_noshift",
    "nannyml_synthetic_multiclass",
    "nannyml_synthetic_car_loan",
)
"""Real sets with enough records of each class."""


def main() -> int:
    """Run the rounds in parallel; print coverage and mean width per estimator and metric."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", choices=("accuracy", "performance", "segments"))
    options = parser.parse_args()
    if options.only == "segments":
        return segments(options.rounds)
    if not REAL_SETS.is_dir():
        print("coverage: ../shared/real_sets is absent, so there is nothing to measure on")
        return 0
    missed = 0
    if options.only != "performance":
        missed |= report("accuracy", in_parallel(one_round, options.rounds))
    if options.only != "accuracy":
        # These are cheaper, and fewer sets have two classes.
        missed |= report("performance", in_parallel(performance_round, 3 * options.rounds))
    return segments(options.rounds) | missed if options.only is None else missed


def in_parallel(one: Callable[[Path, int], Found], rounds: int) -> Found:
    """Return what the rounds of all sets find."""
    found: Found = []
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(one, path, seed) for seed in range(rounds) for path in sources().values()]
        for done, job in enumerate(as_completed(jobs), 1):
            found += job.result()
            if sys.stderr.isatty():
                print(f"\r{done} of {len(jobs)} calibrations ", end="", file=sys.stderr, flush=True)
    return found


def report(what: str, found: Found) -> int:
    """Print the table; return 1 if a row misses the target."""
    print(f"coverage of 95% intervals of {what}, pooled over the real sources; bar {LOWEST:.0%} to {HIGHEST:.0%}")
    print(f"{'':36}" + "".join(f"{f'windows of {size:,}':>42}" for size in SIZES))
    print(f"{'':36}" + f"{'covered':>10}{'width':>10}{'intervals':>10}{'cannot say':>12}" * len(SIZES))
    missed = []
    for name in dict.fromkeys(name for _, name, _, _ in found):
        line = f"{name:36}"
        for size in SIZES:
            mine = [(held, width) for s, n, held, width in found if s == size and n == name]
            said = [(float(held), width) for held, width in mine if held is not None]
            share, width = np.mean(said, axis=0) if said else (np.nan, np.nan)
            line += f"{share:>10.1%}{width:>10.4f}{len(said):>10,}{len(mine) - len(said):>12,}"
            if len(said) < FEWEST_WINDOWS:
                missed.append(f"{name} at {size}: only {len(said)} intervals")
            elif not LOWEST <= share <= HIGHEST:
                missed.append(f"{name} at {size}: {share:.1%}")
        print(line)
    print("bar held by every row" if not missed else f"bar missed: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
