"""Coverage of the intervals on real outputs, without shift.

Each round calibrates on a random half of a real model's labelled outputs and estimates for windows of 200 and 1,000 from
the other half, whose accuracy is known. Pooled over the sets, each estimator's 95% interval should contain it in 92% to
98% of windows. Needs ../shared/real_sets.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from monitor.core.calibration import Calibration, calibrate
from monitor.core.estimate import CONSENSUS, Estimate
from monitor.core.scores import label_outputs

REAL_SETS = Path(__file__).resolve().parents[2] / "shared" / "real_sets"
SIZES = (200, 1000)
LOWEST, HIGHEST, FEWEST_WINDOWS = 0.92, 0.98, 400
_MOST_WINDOWS = {200: 4, 1000: 6}

Found = list[tuple[int, str, bool, float]]
"""Window size, estimator, whether the interval contains the accuracy, and its width."""


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
    """Calibrate on one half and test on windows of the other."""
    with np.load(path) as data:
        weights, labels = data["source_probs"].astype(np.float64), data["source_labels"].astype(np.int64)
    probabilities = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
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


def main() -> int:
    """Run the rounds in parallel; print coverage and mean width per estimator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if not REAL_SETS.is_dir():
        print("coverage: ../shared/real_sets is absent, so there is nothing to measure on")
        return 0
    paths = sources()
    found: Found = []
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(one_round, path, seed) for seed in range(options.rounds) for path in paths.values()]
        for done, job in enumerate(as_completed(jobs), 1):
            found += job.result()
            if sys.stderr.isatty():
                print(f"\r{done} of {len(jobs)} calibrations ", end="", file=sys.stderr, flush=True)
    return report(found, len(paths))


def report(found: Found, sets: int) -> int:
    """Print the table; return 1 if an estimator misses the target."""
    windows = {size: sum(s == size and n == CONSENSUS for s, n, _, _ in found) for size in SIZES}
    print(f"coverage of 95% intervals over {sets} real sources, pooled; bar {LOWEST:.0%} to {HIGHEST:.0%}")
    print(f"{'':28}" + "".join(f"{f'{windows[size]} windows of {size:,}':>26}" for size in SIZES))
    print(f"{'estimator':28}" + f"{'covered':>14}{'mean width':>12}" * len(SIZES))
    missed = [f"only {n} windows of {size}" for size, n in windows.items() if n < FEWEST_WINDOWS]
    for name in dict.fromkeys(name for _, name, _, _ in found):
        line = f"{name:28}"
        for size in SIZES:
            mine = [(held, width) for s, n, held, width in found if s == size and n == name]
            share, width = np.mean(mine, axis=0)
            line += f"{share:>14.1%}{width:>12.4f}"
            if not LOWEST <= share <= HIGHEST:
                missed.append(f"{name} at {size}: {share:.1%}")
        print(line)
    print("bar held by every estimator" if not missed else f"bar missed: {'; '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
