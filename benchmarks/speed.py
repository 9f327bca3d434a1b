"""The time and memory of one estimate, as ratios to baselines of the same run.

One window of 1,000,000 records of 10 classes, all estimators with intervals, against one plain float32 row maximum over the
same matrix; the memory it takes beyond its input, over the input's size; and the same window estimated by NannyML's CBPE,
one estimator, in an environment of its own when that can be installed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measures import outputs, seconds
from monitor.core.calibration import Calibration, calibrate
from monitor.core.scores import label_outputs

ROUNDS = 9
CLASSES = 10
REFERENCE_RECORDS = 10_000
HERE = Path(__file__).resolve().parent


def reference() -> Calibration:
    """Return a calibration of 10,000 records."""
    return calibrate(label_outputs(*outputs(REFERENCE_RECORDS, CLASSES, 1)))


def memory_over_input(calibration: Calibration, window: NDArray[np.float32]) -> float:
    """Return the peak memory of an estimate relative to its input."""
    # By tracemalloc, so that earlier allocations do not count.
    tracemalloc.start()
    calibration.estimate(window)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / window.nbytes


def nannyml_python() -> Path | None:
    """Return an interpreter with NannyML, installed on first use; None if that fails."""
    environment = HERE.parent / ".bench" / "nannyml"
    python = environment / "bin" / "python"
    ready = environment / "ready"
    if not ready.exists():
        print("installing NannyML in an environment of its own (once) …", file=sys.stderr)
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(environment)], check=True, capture_output=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "nannyml", "statsmodels"]
            subprocess.run(install, check=True, capture_output=True, timeout=900)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"NannyML cannot be installed here: {error}", file=sys.stderr)
            return None
        ready.touch()
    return python


def nannyml_estimates(files: Sequence[Path]) -> list[dict[str, Any]] | str:
    """Return the estimates and times of NannyML's CBPE for each file of a reference and a window, or why they are unknown."""
    python = nannyml_python()
    if python is None:
        return "not installable here"
    environment = {**os.environ, "NML_DISABLE_USAGE_LOGGING": "1"}
    command = [str(python), str(HERE / "nannyml_estimate.py"), *map(str, files)]
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if run.returncode:
        return f"failed: {run.stderr.strip().splitlines()[-1][:100]}"
    return [json.loads(line) for line in run.stdout.splitlines()[-len(files) :]]


def nannyml_seconds(
    reference: NDArray[np.float32], labels: NDArray[np.int64], window: NDArray[np.float32], *, rounds: int
) -> list[float] | str:
    """Return the durations of NannyML's CBPE for a window, each in a process of its own, or why they are unknown."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, reference=reference, labels=labels, window=window, metrics=["accuracy"])
        for _ in range(rounds):
            run = nannyml_estimates([path])
            if isinstance(run, str):
                return run
            found.append(float(run[0]["seconds"]))
    return found


def against_nannyml(window: NDArray[np.float32], ours: Callable[[], object]) -> str:
    """Return the ratio of NannyML's time to ours on the same window."""
    theirs = nannyml_seconds(*outputs(REFERENCE_RECORDS, CLASSES, 1), window, rounds=3)
    if isinstance(theirs, str):
        return theirs
    ratios = [taken / seconds(ours) for taken in theirs]
    return f"{statistics.median(ratios):.1f} (NannyML takes that many times longer; rounds {_span(ratios)})"


def _span(ratios: list[float]) -> str:
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--without-nannyml", action="store_true")
    options = parser.parse_args()
    calibration, (window, _) = reference(), outputs(options.records, CLASSES, 2)
    ratios = []
    for _ in range(ROUNDS):
        bare = seconds(lambda: window.max(axis=1))
        ratios.append(seconds(lambda: calibration.estimate(window)) / bare)
    print(f"one window of {options.records:,} × {CLASSES}, {len(calibration.estimators) + 1} estimators with intervals")
    print(f"  time over one float32 row maximum:    {statistics.median(ratios):.1f} (rounds {_span(ratios)})")
    print(f"  peak memory beyond the input over it: {memory_over_input(calibration, window):.3f}")
    if not options.without_nannyml:
        print(
            f"  NannyML's CBPE over ours:             {against_nannyml(window, lambda: calibration.estimate(window))}"
        )


if __name__ == "__main__":
    main()
