"""Estimated performance metrics under real shifts, against NannyML's CBPE and against repeating the reference's values.

For each set in ../shared/real_sets with at most 20 classes, the reference is its source, and its target is one window, decided
by argmax. Prints the error of each metric that both have: of the second class if there are two, else the macro average; and
NannyML's CPU time for the window over that of all our estimates. NannyML runs in an environment of its own, when that can be installed.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.coverage import REAL_SETS, labelled
from benchmarks.speed import nannyml_estimates
from monitor.core.calibration import calibrate
from monitor.core.performance import MOST_SHOWN, Metric, Target, realised
from monitor.core.scores import label_outputs
from monitor.core.totals import Gauge, totals_of

THEIR_NAMES = {
    Metric.SENSITIVITY: "recall",
    Metric.SPECIFICITY: "specificity",
    Metric.PPV: "precision",
    Metric.F1: "f1",
    Metric.AUROC: "roc_auc",
}


def shared_metrics(classes: int) -> dict[Target, str]:
    """Return what both estimate, with NannyML's names. Only NannyML has an AUROC of more than two classes."""
    if classes > 2:
        return {Target(metric): name for metric, name in THEIR_NAMES.items() if metric is not Metric.AUROC}
    return {Target(metric, None if metric is Metric.AUROC else 1): name for metric, name in THEIR_NAMES.items()}


def main() -> int:
    """Print the table and the ratio of the times."""
    paths = [path for path in sorted(REAL_SETS.glob("*.npz")) if _classes(path) <= MOST_SHOWN]
    if not paths:
        print("performance: ../shared/real_sets is absent, so there is nothing to measure on")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        files = [_saved(path, Path(folder)) for path in paths]
        theirs = nannyml_estimates(files)
    if isinstance(theirs, str):
        print(f"NannyML's CBPE: {theirs}", file=sys.stderr)
        theirs = [{"cpu_seconds": np.nan, "values": dict.fromkeys(THEIR_NAMES.values(), np.nan)}] * len(paths)
    errors: dict[str, list[tuple[float, ...]]] = {name: [] for name in THEIR_NAMES.values()}
    ratios = []
    print(f"| set | classes | {' | '.join(metric.value for metric in THEIR_NAMES)} |\n|---|--:|{'--:|' * len(errors)}")
    for path, their in zip(paths, theirs, strict=True):
        (source, labels), (target, truth) = labelled(path, "source"), labelled(path, "target")
        calibration = calibrate(label_outputs(source, labels))
        gauge, wanted = Gauge(calibration), shared_metrics(source.shape[1])
        kept, measured = calibration.performance, totals_of(gauge, target).performance()
        if kept is None or measured is None:
            raise RuntimeError("expected a new reference with performance, found none")
        ours, _ = measured.expected.values(tuple(wanted))
        repeated, _ = kept.own.values(tuple(wanted))
        true, _ = realised(target, np.argmax(target, axis=1), truth).values(tuple(wanted))
        their_values = [their["values"][name] for name in wanted.values()]
        found = 100.0 * np.abs(np.stack([ours[:, 0], their_values, repeated[:, 0]]) - true[:, 0])
        for name, three in zip(wanted.values(), found.T.tolist(), strict=True):
            errors[name].append(tuple(three))
        cells = [" / ".join(f"{error:.1f}" for error in three) for three in found.T.tolist()]
        print(
            f"| {path.stem} | {source.shape[1]} | {' | '.join(cells)} |{'  |' * (len(errors) - len(cells))}", flush=True
        )
        ratios.append(their["cpu_seconds"] / min(_cpu_seconds(gauge, target) for _ in range(3)))
    means = [np.nanmean(np.array(some), axis=0) if some else [] for some in errors.values()]
    print(f"| **mean** |  | {' | '.join(' / '.join(f'{error:.1f}' for error in three) for three in means)} |")
    print("error in points: ours / NannyML's CBPE / the reference's value repeated")
    print(
        f"NannyML's CPU time for a window over ours: {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f} by set)"
    )
    return 0


def _cpu_seconds(gauge: Gauge, window: NDArray[np.float32]) -> float:
    """Return the time of everything about a window: accuracy by all estimators, performance, class mix, with intervals."""
    started = time.process_time()
    totals = totals_of(gauge, window)
    totals.estimate()
    if (measured := totals.performance()) is not None:
        measured.estimates()
        measured.class_mix()
    return time.process_time() - started


def _classes(path: Path) -> int:
    with np.load(path) as data:
        return int(data["source_probs"].shape[1])


def _saved(path: Path, folder: Path) -> Path:
    """Return a file for NannyML."""
    (source, labels), (target, _) = labelled(path, "source"), labelled(path, "target")
    metrics = list(shared_metrics(source.shape[1]).values())
    np.savez(folder / path.name, reference=source, labels=labels, window=target, metrics=metrics)
    return folder / path.name


if __name__ == "__main__":
    sys.exit(main())
