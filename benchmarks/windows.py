"""The cost of sliding windows, as ratios to baselines of the same run, with targets.

`--growth` prints how evaluating and recomputing grow with the number of records and classes; that table is committed in
docs/performance.md.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import nannyml_seconds
from monitor.core.calibration import Calibration, calibrate
from monitor.core.scores import label_outputs
from monitor.core.totals import Gauge, WindowTotals, totals_of
from monitor.core.window import Bounds, SlidingWindow, bytes_per_record

ROUNDS = 9
BATCH = 1000
REFERENCE_RECORDS = 1000
_MOST_RECOMPUTED = 200_000_000


def outputs(records: int, classes: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return a calibrated model's outputs and labels."""
    random = np.random.default_rng(seed)
    p = np.exp(random.standard_normal((records, classes), dtype=np.float32) * np.float32(2.5))
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < random.random((records, 1), dtype=np.float32)).sum(axis=1)
    return p, np.minimum(labels, classes - 1)


def gauge_of(classes: int, reference_records: int = REFERENCE_RECORDS) -> Gauge:
    """Return the gauge of windows with this many classes."""
    return Gauge(calibrate(label_outputs(*outputs(reference_records, classes, 1))))


def filled(gauge: Gauge, records: int) -> SlidingWindow:
    """Return a full window."""
    window = SlidingWindow(gauge, Bounds(records=records))
    for start in range(0, records, 100_000):
        part, _ = outputs(min(100_000, records - start), gauge.calibration.classes, 2 + start)
        window.add(part, np.arange(start, start + len(part), dtype=np.float64), float(records))
    return window


def best(work: Callable[[], object], repeat: int = 1) -> float:
    """Return the shortest of three durations, each over `repeat` calls."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(repeat):
            work()
        times.append((time.perf_counter() - started) / repeat)
    return min(times)


def evaluate(window: SlidingWindow) -> object:
    """Evaluate a window as the daemon does."""
    return window.totals().estimate()


def plain_recompute(calibration: Calibration, vectors: NDArray[np.float32]) -> float:
    """Recompute with plain numpy on the stored matrix.

    Less than what an evaluation gives: mean confidences, entropies and conformal sets at one threshold, raw and scaled.
    """
    p = vectors.astype(np.float64)
    powers = np.exp(np.log(np.maximum(p, 1e-12)) / calibration.temperature)
    total = 0.0
    for q in (p, powers / powers.sum(axis=1, keepdims=True)):
        total += float(q.max(axis=1).mean()) + float((q * np.log(np.maximum(q, 1e-300))).sum(axis=1).mean())
        inside = q >= 0.2
        total += float(((q * inside).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)).mean())
    return total


def pushing(window: SlidingWindow) -> Callable[[], object]:
    """Return a function that adds a batch to a full window."""
    vectors, _ = outputs(BATCH, window.gauge.calibration.classes, 3)
    clock = window.clock

    def push() -> None:
        nonlocal clock
        window.add(vectors, clock + np.arange(1, BATCH + 1, dtype=np.float64), clock + BATCH)
        clock += BATCH
        # Totals are computed on demand, so their cost is included here.
        window.totals()

    return push


def ratio(name: str, bar: str, holds: Callable[[float], bool] | None, rounds: list[float]) -> None:
    """Print a ratio, its target, and whether it is met."""
    median = statistics.median(rounds)
    verdict = "" if holds is None else ("holds" if holds(median) else "MISSED")
    span = f"{min(rounds):,.3g} to {max(rounds):,.3g}"
    print(f"{name:<66} {median:>10,.3g}  {span:<22} {bar:<8} {verdict}", flush=True)


def ratios(many_windows: int) -> None:
    """Print all ratios."""
    gauge = gauge_of(10)
    large, small = filled(gauge, 1_000_000), filled(gauge, 10_000)
    vectors = large.vectors()
    print(f"10 classes, reference of {REFERENCE_RECORDS:,} records; median of {ROUNDS} alternating rounds\n")
    print(f"{'ratio':<66} {'median':>10}  {'rounds':<22} {'bar':<8}")
    rounds = [best(lambda: evaluate(large), 20) / best(lambda: evaluate(small), 20) for _ in range(ROUNDS)]
    ratio("evaluate, 1,000,000 records over 10,000", "<= 1.5", lambda r: r <= 1.5, rounds)
    rounds = [
        best(lambda: plain_recompute(gauge.calibration, vectors)) / best(lambda: evaluate(large), 20) for _ in range(3)
    ]
    ratio("plain numpy recompute over evaluate, 1,000,000 records", ">= 1000", lambda r: r >= 1000, rounds)
    rounds = [best(vectors.sum) / best(lambda: evaluate(large), 20) for _ in range(ROUNDS)]
    ratio("np.sum of the matrix over evaluate, 1,000,000 records", ">= 20", lambda r: r >= 20, rounds)
    push, batch = pushing(filled(gauge, 100_000)), outputs(BATCH, 10, 3)[0]
    rounds = [best(push, 10) / best(lambda: np.sort(batch, axis=1), 10) for _ in range(ROUNDS)]
    ratio(f"insert and evict in batches of {BATCH:,} over np.sort of the same rows", "", None, rounds)
    totals = gauge.empty()
    rounds = [best(push, 10) / best(lambda: gauge.measure(totals, batch, 1), 10) for _ in range(ROUNDS)]
    ratio("insert and evict over insert alone", "<= 2.5", lambda r: r <= 2.5, rounds)
    ratio("bytes a record over 4 K", "<= 2", lambda r: r <= 2, [bytes_per_record(10) / 40])
    many(gauge, many_windows)
    peer(gauge)


def many(gauge: Gauge, count: int) -> None:
    """Print the cost of evaluating many windows of 1,000 records, against one."""
    vectors, _ = outputs(1_000_000, 10, 4)
    starts = np.random.default_rng(5).integers(0, len(vectors) - 1000, count)
    windows = [totals_of(gauge, vectors[start : start + 1000]) for start in starts]
    one = windows[0].vector

    def tick() -> None:
        for window in windows:
            WindowTotals(gauge, window.vector).estimate()

    rounds = []
    for _ in range(3):
        started = time.perf_counter()
        tick()
        passed = time.perf_counter() - started
        rounds.append(passed / best(WindowTotals(gauge, one).estimate, 20))
    ratio(f"evaluate {count:,} windows over evaluate one", "<= 500", lambda r: r <= 500, rounds)


def peer(gauge: Gauge) -> None:
    """Print the ratio of NannyML's time to ours for a window of 1,000."""
    window = filled(gauge, 1000)
    theirs = nannyml_seconds(*outputs(REFERENCE_RECORDS, 10, 1), window.vectors(), rounds=3)
    if isinstance(theirs, str):
        print(f"NannyML: {theirs}")
        return
    ratio(
        "NannyML's CBPE over evaluate, a tick of 1,000 records",
        ">= 100",
        lambda r: r >= 100,
        [seconds / best(lambda: evaluate(window), 20) for seconds in theirs],
    )


def growth() -> None:
    """Print the table of docs/performance.md."""
    print("| K | N | evaluate, µs | recompute ours, µs | plain numpy, µs | insert and evict, µs a record |")
    print("|--:|--:|--:|--:|--:|--:|")
    for classes in (2, 10, 100, 1000):
        gauge = gauge_of(classes)
        for records in (1000, 10_000, 100_000, 1_000_000):
            cells = " | ".join(_microseconds(seconds) for seconds in growth_row(gauge, filled(gauge, records)))
            print(f"| {classes:,} | {records:,} | {cells} |", flush=True)


def growth_row(gauge: Gauge, window: SlidingWindow) -> tuple[float | None, ...]:
    """Return the seconds to evaluate, to recompute in two ways, and to add one record."""
    recomputed: tuple[float | None, float | None] = (None, None)
    # A million records of a thousand classes are 4 GB, and plain numpy needs six times that.
    if len(window) * gauge.calibration.classes <= _MOST_RECOMPUTED:
        vectors = window.vectors()
        recomputed = (
            best(lambda: gauge.calibration.estimate(vectors)),
            best(lambda: plain_recompute(gauge.calibration, vectors)),
        )
    return best(lambda: evaluate(window), 20), *recomputed, best(pushing(window), 3) / BATCH


def _microseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e6 * seconds:,.{0 if seconds >= 1e-4 else 1}f}"


def main() -> None:
    """Print the ratios, or the growth table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", action="store_true", help="the table of docs/performance.md instead")
    parser.add_argument("--many-windows", type=int, default=10_000)
    options = parser.parse_args()
    if options.growth:
        growth()
    else:
        ratios(options.many_windows)


if __name__ == "__main__":
    main()
