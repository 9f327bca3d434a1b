"""How the cost of windows grows: with records, classes, windows a record, the reference, and the number of windows.

Prints the tables of docs/performance.md.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.measures import (
    BATCH,
    CLASSES,
    NOW,
    best,
    calibration_of,
    enter,
    evaluate,
    evaluate_window,
    filled,
    outputs,
    pushing,
    split_windows,
    window_bytes,
)
from monitor.core.calibration import Calibration
from monitor.core.performance import targets
from monitor.core.record_columns import Records, Texts
from monitor.core.segments import ModelWindows, Segmentation
from monitor.core.totals import Gauge
from monitor.core.window import Bounds

_MOST_RECOMPUTED = 200_000_000


def table(head: Sequence[str], rows: Iterable[Sequence[float | None]]) -> None:
    """Print a table as it is measured."""
    print(f"| {' | '.join(head)} |\n|{'--:|' * len(head)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(map(_shown, row))} |", flush=True)
    print()


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{0 if value >= 100 else 1}f}"


def by_records_and_classes() -> Iterable[Sequence[float | None]]:
    """Yield K, N, and the microseconds to evaluate, to recompute in two ways, and to add a record."""
    for classes in (2, 10, 100, 1000):
        calibration = calibration_of(classes)
        for records in (1000, 10_000, 100_000, 1_000_000):
            window = filled(calibration, records)
            recomputed: tuple[float | None, float | None] = (None, None)
            # A million records of a thousand classes are 4 GB, and plain numpy needs six times that.
            if records * classes <= _MOST_RECOMPUTED:
                vectors = window.vectors()
                recomputed = (
                    1e6 * best(lambda: calibration.estimate(vectors)),  # noqa: B023 - called at once
                    1e6 * best(lambda: plain_recompute(calibration, vectors)),  # noqa: B023
                )
            evaluating = 1e6 * best(lambda: evaluate_window(window, calibration), 20)  # noqa: B023
            yield classes, records, evaluating, *recomputed, 1e6 * best(pushing(window, classes), 3) / BATCH


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


def by_windows_a_record() -> Iterable[Sequence[float]]:
    """Yield how many windows a record is in, the microseconds to add and evict it, and its bytes."""
    gauge = Gauge(calibration_of(CLASSES))
    for splits in range(5):
        tracemalloc.start()
        push = _splitting(gauge, splits)
        for _ in range(12):  # 10,000 records in each window
            push()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        yield splits + 1, 1e6 * best(push, 3) / BATCH, held / 10_000


def _splitting(gauge: Gauge, splits: int) -> Callable[[], None]:
    """Return a function that adds a batch to windows of 10,000 records: one of all, and by fields of one value each."""
    names = [f"field{number}" for number in range(splits)]
    windows = ModelWindows(
        gauge,
        Bounds(records=10_000, tolerance_seconds=1e9),
        Segmentation(tuple((name,) for name in names)),
    )
    vectors = outputs(BATCH, CLASSES, 3)[0]
    fields = {name: Texts(("A",), np.zeros(BATCH, dtype=np.int64)) for name in names}
    clock = NOW

    def push() -> None:
        nonlocal clock
        enter(windows, Records(vectors, clock + np.arange(BATCH, dtype=np.float64), fields), clock)
        clock += BATCH
        evaluate(windows, gauge.calibration)

    return push


def by_reference() -> Iterable[Sequence[float]]:
    """Yield m, the microseconds to evaluate and to add a record, and the kilobytes of a window."""
    for reference in (100, 1000, 10_000):
        calibration = calibration_of(CLASSES, reference)
        window = filled(calibration, 10_000)
        evaluating = 1e6 * best(lambda: evaluate_window(window, calibration), 20)  # noqa: B023 - called at once
        yield reference, evaluating, 1e6 * best(pushing(window, CLASSES), 3) / BATCH, window_bytes(reference) / 1e3


def by_windows() -> Iterable[Sequence[float]]:
    """Yield the number of windows, and the microseconds to evaluate them all, and each."""
    calibration = calibration_of(CLASSES)
    for number in (1, 10, 100, 1000, 10_000):
        windows = split_windows(calibration, number - 1 or 1, 100)[0]
        evaluate(windows, calibration)
        passed = 1e6 * best(lambda: evaluate(windows, calibration))  # noqa: B023 - called at once
        yield number, passed, passed / number


def by_performance() -> Iterable[Sequence[float]]:
    """Yield K, the microseconds to add a record to a window of accuracy alone and to one of all metrics, and their ratio."""
    for classes in (2, 10, 100, 1000):
        calibration = calibration_of(classes)
        gauges = (Gauge(calibration, shown=wanted) for wanted in ((), targets(classes, asked=True)))
        pushes = [pushing(filled(calibration, 10_000, gauge), classes) for gauge in gauges]
        rounds = np.array([[best(push, 3) for push in pushes] for _ in range(9)])
        without, everything = 1e6 * np.median(rounds, axis=0) / BATCH
        yield classes, without, everything, float(np.median(rounds[:, 1] / rounds[:, 0]))


def main() -> None:
    """Print the tables."""
    started = time.perf_counter()
    insert = "insert and evict, µs a record"
    table(("K", "N", "evaluate, µs", "recompute ours, µs", "plain numpy, µs", insert), by_records_and_classes())
    table(("windows a record", f"{insert}", "bytes a record"), by_windows_a_record())
    table(("m", "evaluate, µs", insert, "a window, kB"), by_reference())
    table(("windows", "evaluate all, µs", "each, µs"), by_windows())
    table(("K", f"{insert}, accuracy alone", "all metrics", "ratio"), by_performance())
    print(f"in {time.perf_counter() - started:,.0f} s")


if __name__ == "__main__":
    main()
