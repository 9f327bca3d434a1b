"""The measurements of `benchmarks.against`, with the package of this tree or of an older one.

`python measures.py FOLDER` is a worker: a name a line on standard input, a number a line on standard output. `FOLDER` keeps
the files that both trees read. What several measurements share is made when it is first needed.
"""

import json
import os
import shutil
import sqlite3
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

import monitor.core.window
from monitor.config.config import ModelOptions
from monitor.core.calibration import Calibration, calibrate
from monitor.core.record_columns import Records, Texts
from monitor.core.scores import label_outputs
from monitor.core.segments import ALL, ModelWindows, Segmentation
from monitor.core.totals import Gauge
from monitor.core.window import Bounds, SlidingWindow
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.reference.reference import Reference
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.state.store import State

CLASSES = 10
REFERENCE_RECORDS = 1000
BATCH = 1000
RECORDS = 200_000
LARGE = 1_000_000
NOW = 1_760_000_000.0
SITES: tuple[tuple[str, ...], ...] = (("site",),)
SCANNERS = (("site",), ("site", "scanner"))
_numbers = count()


def outputs(records: int, classes: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return a calibrated model's outputs and labels."""
    random = np.random.default_rng(seed)
    p = np.exp(random.standard_normal((records, classes), dtype=np.float32) * np.float32(2.5))
    p /= p.sum(axis=1, keepdims=True)
    labels = (p.cumsum(axis=1) < random.random((records, 1), dtype=np.float32)).sum(axis=1)
    return p, np.minimum(labels, classes - 1)


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """Return the mean duration of a call."""
    started = time.perf_counter()
    for _ in range(repeat):
        work()
    return (time.perf_counter() - started) / repeat


def best(work: Callable[[], object], repeat: int = 1) -> float:
    """Return the shortest of three durations."""
    return min(seconds(work, repeat) for _ in range(3))


# What differs between the trees. The old one has no `measured`: it keeps, measures and evaluates every window by itself.

_core: Any = monitor.core.window
_OLD: bool = not hasattr(_core, "measured")


def enter(windows: Any, batch: Records, now: float = NOW) -> None:  # noqa: ANN401
    """Enter a batch in the windows of a model."""
    admitted = windows.admit(batch, now)
    for chunk in admitted.chunks if _OLD else [admitted.chunk]:
        windows.enter(chunk)


def evaluate(windows: Any, calibration: Any) -> object:  # noqa: ANN401
    """Measure what is new in the windows of a model, and estimate them all with intervals."""
    if _OLD:
        return [windows[segment].totals().estimate() for segment in windows]
    found = _core.measured(windows[ALL].gauge, [[windows[segment]] for segment in windows])
    return calibration.estimate_windows(found)


def estimate(snapshot: Any, calibration: Any) -> object:  # noqa: ANN401
    """Estimate all windows of a snapshot."""
    if hasattr(snapshot, "measured"):
        return calibration.estimate_windows(snapshot.measured)
    return [one.totals.estimate() for one in snapshot.windows.values()]


def evaluate_window(window: Any, calibration: Any) -> object:  # noqa: ANN401
    """Evaluate one sliding window as the daemon does."""
    return window.totals().estimate() if _OLD else calibration.estimate_windows(window.totals())


# Windows in memory.


@cache
def calibration_of(classes: int, records: int = REFERENCE_RECORDS) -> Calibration:
    """Return a calibration."""
    return calibrate(label_outputs(*outputs(records, classes, 1)))


def filled(calibration: Calibration, records: int, gauge: Gauge | None = None) -> SlidingWindow:
    """Return a full window."""
    window = SlidingWindow(gauge or Gauge(calibration), Bounds(records=records))
    for start in range(0, records, 100_000):
        part, _ = outputs(min(100_000, records - start), calibration.classes, 2 + start)
        window.add(part, np.arange(start, start + len(part), dtype=np.float64), float(records))
    return window


def pushing(window: SlidingWindow, classes: int) -> Callable[[], object]:
    """Return a function that adds a batch to a full window, and measures what came and went."""
    vectors, _ = outputs(BATCH, classes, 3)
    clock = window.clock

    def push() -> None:
        nonlocal clock
        window.add(vectors, clock + np.arange(1, BATCH + 1, dtype=np.float64), clock + BATCH)
        clock += BATCH
        window.totals()

    return push


@cache
def _pushing(classes: int) -> Callable[[], object]:
    return pushing(filled(calibration_of(classes), 20_000), classes)


def insert_and_evict(classes: int) -> float:
    """Return the seconds a record."""
    return best(_pushing(classes), 3) / BATCH


def calibrating(classes: int) -> float:
    """Return the seconds to calibrate with 10,000 records."""
    labelled = label_outputs(*outputs(10_000, classes, 1))
    return seconds(lambda: calibrate(labelled))


def split_windows(calibration: Calibration, sites: int, records: int) -> tuple[ModelWindows, Records]:
    """Return windows of all records and of sites, each with its last `records`, and the batch that filled them."""
    vectors, _ = outputs(sites * records, calibration.classes, 4)
    names = Texts(tuple(f"S{number}" for number in range(sites)), np.arange(len(vectors), dtype=np.int64) % sites)
    batch = Records(vectors, NOW + np.arange(len(vectors), dtype=np.float64), {"site": names})
    segmentation = Segmentation(SITES if sites > 1 else (), most_segments=sites)
    windows = ModelWindows(Gauge(calibration), Bounds(records=records, tolerance_seconds=1e9), segmentation)
    enter(windows, batch)
    return windows, batch


@cache
def _split_windows(sites: int) -> ModelWindows:
    return split_windows(calibration_of(CLASSES), sites, 100)[0]


def many_over_one() -> float:
    """Return the time to evaluate 10,000 windows, over that of one."""
    many, one = _split_windows(9_999), _split_windows(1)
    evaluate(many, calibration_of(CLASSES))
    return best(lambda: evaluate(many, calibration_of(CLASSES))) / best(
        lambda: evaluate(one, calibration_of(CLASSES)), 20
    )


def window_bytes(reference_records: int, sites: int = 100) -> float:
    """Return the memory of a window with few records."""
    calibration = calibration_of(CLASSES, reference_records)
    found = []
    for number in (sites, 3 * sites):
        tracemalloc.start()
        windows, _ = split_windows(calibration, number, 5)
        evaluate(windows, calibration)
        found.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    return (found[1] - found[0]) / (2 * sites)


def large_over_small() -> float:
    """Return the time to evaluate a window of 1,000,000 records, over one of 10,000."""
    times = [best(lambda: evaluate_window(_filled(size), calibration_of(CLASSES)), 20) for size in (LARGE, 10_000)]  # noqa: B023
    return times[0] / times[1]


@cache
def _filled(records: int) -> SlidingWindow:
    return filled(calibration_of(CLASSES), records)


def tick() -> float:
    """Return the seconds to evaluate a window of 1,000 records."""
    return best(lambda: evaluate_window(_filled(1000), calibration_of(CLASSES)), 20)


# From a file to committed windows.


class Full(msgspec.Struct, gc=False):
    """A record with all documented fields."""

    probs: list[float]
    model: str | None = None
    version: str | None = None
    id: str | None = None
    time: float | None = None
    site: str | None = None
    scanner: str | None = None


class Short(msgspec.Struct, gc=False):
    """A minimal record."""

    probs: list[float]


@cache
def _reference() -> Reference:
    return Reference.calibrate(*outputs(REFERENCE_RECORDS, CLASSES, seed=1), model="density", version="2.1")


def written(folder: Path, *, full: bool = True) -> Path:
    """Return an inbox with a file of records."""
    inbox = folder / f"inbox{full}"
    if not inbox.exists():
        inbox.mkdir()
        with (inbox / "a.jsonl").open("w", encoding="utf-8") as out:
            for number, vector in enumerate(outputs(RECORDS, CLASSES, seed=2)[0].tolist()):
                record: dict[str, object] = {"probs": [round(value, 6) for value in vector]}
                if full:
                    record = {
                        "model": "density",
                        "version": "2.1",
                        "id": f"exam-{number:012d}",
                        "time": NOW + number / 100,
                        "site": "ABCDE"[number % 5],
                        "scanner": str(number // 5 % 10),
                        **record,
                    }
                out.write(json.dumps(record) + "\n")
    return inbox


def decode_bare(file: Path, struct: type[msgspec.Struct]) -> None:
    """Decode a file, without windows."""
    decode = msgspec.json.Decoder(struct).decode_lines
    rest = b""
    with file.open("rb") as source:
        while block := source.read(1 << 16):
            whole, newline, rest_of_block = (rest + block).rpartition(b"\n")
            decode(whole + newline)
            rest = rest_of_block


@contextmanager
def started(state: Path, options: ModelOptions, inbox: Path | None = None) -> Iterator[Ingestion]:
    """Give an ingestion with the records of a state in memory; it reads an inbox."""
    opened = State.open(state)
    decoder = RecordDecoder([options.format], hash_key=opened.key)
    sources = []
    if inbox is not None:
        sources = [DirectorySource("in", DirectoryOptions(path=inbox, settle_seconds=0.0), decoder, key=opened.key)]
    ingestion = Ingestion(opened, [ModelState(options)], sources)
    ingestion.start(NOW)
    yield ingestion
    # Without `stop`: as after a kill.
    opened.close()


def ingest(ingestion: Ingestion, options: ModelOptions, records: int = RECORDS) -> None:
    """Read the inbox until it has given so many records, and evaluate once."""
    for ticks in range(1000):
        if sum(ingestion.view.counters().records.values()) >= records:
            break
        # A whole file is read at the second poll; every tick polls.
        ingestion.tick(NOW + 10_000, 3.0 * ticks)
    else:
        raise TimeoutError(f"expected {records:,} records, found {ingestion.view.counters().records}")
    estimate(ingestion.view.snapshot(options.name, NOW, 0.0), options.reference.calibration)


def options_of(split_by: tuple[tuple[str, ...], ...] = (), window: int = 5_000) -> ModelOptions:
    """Return a model with windows of the last records."""
    return ModelOptions("density", _reference(), Bounds(records=window), Segmentation(split_by))


def ingesting(
    folder: Path, split_by: tuple[tuple[str, ...], ...] = (), window: int = 5_000, *, full: bool = True
) -> float:
    """Return the rate from a file to committed windows, over that of bare decoding."""
    inbox, state, options = written(folder, full=full), _fresh(folder), options_of(split_by, window)
    bare = seconds(lambda: decode_bare(inbox / "a.jsonl", Full if full else Short))
    with started(state, options, inbox) as ingestion:
        ours = seconds(lambda: ingest(ingestion, options))
    shutil.rmtree(state)
    return bare / ours


def bytes_written(folder: Path, split_by: tuple[tuple[str, ...], ...]) -> int:
    """Return the bytes that ingesting a file writes.

    The windows hold all records: what no window keeps is not written.
    """
    inbox, state, options = written(folder), _fresh(folder), options_of(split_by, RECORDS)
    with started(state, options, inbox) as ingestion:
        before = _written()
        ingest(ingestion, options)
        found = _written() - before
    shutil.rmtree(state)
    return found


def _fresh(folder: Path) -> Path:
    return folder / f"state{os.getpid()}-{next(_numbers)}"


def _written() -> int:
    return int(Path("/proc/self/io").read_text(encoding="ascii").split("wchar: ")[1].split()[0])


def restarting(folder: Path) -> float:
    """Return the time to restore and evaluate a window of 1,000,000 records, over reading the bytes of its database."""
    path, options = folder / f"large{_OLD}", options_of(window=LARGE)
    if not path.exists():
        inbox = folder / "large"
        inbox.mkdir(exist_ok=True)
        np.save(inbox / "a.npy", outputs(LARGE, CLASSES, seed=3)[0])
        with started(path, options, inbox) as ingestion:
            ingest(ingestion, options, LARGE)
        if _OLD:  # it stores totals now and then: nothing measured before
            database = sqlite3.connect(path / "state.db")
            database.execute("DELETE FROM totals")
            database.commit()
            database.close()

    def restore() -> None:
        with started(path, options) as ingestion:
            ingest(ingestion, options, LARGE)

    bare = seconds(lambda: _read(path / "state.db"))
    return seconds(restore) / bare


def _read(file: Path) -> None:
    with file.open("rb", buffering=0) as source:
        # From disk instead of the page cache, if the system allows it.
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while source.read(1 << 20):
            pass


def measurements(folder: Path) -> dict[str, Callable[[], float]]:
    """Return all measurements by name."""
    return {
        **{f"insert and evict, K = {number:,}": partial(insert_and_evict, number) for number in (10, 100, 1000)},
        **{f"calibrate 10,000 × {number:,}": partial(calibrating, number) for number in (10, 1000)},
        "evaluate 10,000 windows over evaluate one": many_over_one,
        "evaluate a window of 1,000,000 records over one of 10,000": large_over_small,
        "memory of a window at m = 10,000 over that at m = 1,000": lambda: window_bytes(10_000) / window_bytes(1000),
        "ingest JSONL, only `probs`, over bare msgspec": partial(ingesting, folder, full=False),
        "ingest JSONL, all fields with ids, over bare msgspec": partial(ingesting, folder),
        "the same, a window of 50,000": partial(ingesting, folder, window=50_000),
        "the same, 5 sites": partial(ingesting, folder, SITES),
        "the same, 5 sites and 10 scanners each": partial(ingesting, folder, SCANNERS),
        "state bytes written a record, 3 windows over 1": lambda: (
            bytes_written(folder, SCANNERS) / bytes_written(folder, ())
        ),
        "restart of 1,000,000 records over reading their bytes": partial(restarting, folder),
        "tick": tick,
    }


def main() -> None:
    """Answer until standard input ends."""
    known = measurements(Path(sys.argv[1]))
    for line in sys.stdin:
        print(known[line.strip()](), flush=True)


if __name__ == "__main__":
    main()
