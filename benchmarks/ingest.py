"""The speed of ingesting a file, and of restoring a large window.

Every figure is a ratio against a bare limit measured in the same run: both sides alternate, and the median counts.
"""

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.windows import outputs
from monitor.config.config import ModelOptions
from monitor.core.segments import ALL, Chunk, Segmentation
from monitor.core.window import Bounds
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.reference.reference import Reference
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.state.commit_plan import CommitPlan
from monitor.state.store import State

CLASSES = 10
RECORDS = 200_000
ROUNDS = 9
NOW = 1_760_000_000.0
LARGE = 1_000_000


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


@dataclass(frozen=True)
class Case:
    """A way to ingest a file."""

    name: str
    full: bool
    split_by: tuple[tuple[str, ...], ...] = ()
    window: int = 5_000


CASES = (
    Case("only probs, no segments", full=False),
    Case("all fields with ids, no segments", full=True),
    Case("all fields with ids, 5 sites", full=True, split_by=(("site",),)),
    Case("all fields with ids, a window of 50,000", full=True, window=50_000),
    Case("all fields with ids, 5 sites, 10 scanners", full=True, split_by=(("site",), ("site", "scanner"))),
)


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="cpcmon-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        reference = Reference.calibrate(*outputs(1000, CLASSES, seed=1), model="density", version="2.1")
        print(
            f"ingest: a JSONL file of {RECORDS:,} records of {CLASSES} classes: read, decoded, validated, in windows, committed"
        )
        for case in CASES:
            _ingest(Path(folder), reference, case)
        _restart(Path(folder), reference)


def _ingest(folder: Path, reference: Reference, case: Case) -> None:
    inbox = folder / f"inbox{case.full}"
    file = inbox / "a.jsonl"
    if not file.exists():
        inbox.mkdir()
        _write(file, full=case.full)
    struct = Full if case.full else Short
    bare, ours = [], []
    for number in range(ROUNDS):
        bare.append(_timed(lambda: _bare(file, struct)))
        ours.append(_ours(folder / f"{case.name}{number}", inbox, reference, case))
    ratio = statistics.median(b / o for b, o in zip(bare, ours, strict=True))
    rate = RECORDS / statistics.median(ours)
    print(
        f"  {case.name:44s} {ratio:.2f} of the rate of bare msgspec"
        f" ({1e9 * statistics.median(bare) / RECORDS:,.0f} ns a record; ours {rate:,.0f} records a second)"
    )


def _write(file: Path, *, full: bool) -> None:
    vectors = outputs(RECORDS, CLASSES, seed=2)[0]
    with file.open("w", encoding="utf-8") as out:
        for number, vector in enumerate(vectors.tolist()):
            record: dict[str, object] = {"probs": [round(value, 6) for value in vector]}
            if full:
                record = {
                    "model": "density",
                    "version": "2.1",
                    "id": f"exam-{number:012d}",
                    "time": NOW + number / 100,
                    "site": "ABCDE"[number % 5],
                    "scanner": "12"[number // 5 % 2],
                    **record,
                }
            out.write(json.dumps(record) + "\n")


def _bare(file: Path, struct: type[msgspec.Struct]) -> None:
    """Decode a file, without windows."""
    decode = msgspec.json.Decoder(struct).decode_lines
    rest = b""
    with file.open("rb") as source:
        while block := source.read(1 << 16):
            whole, newline, rest_of_block = (rest + block).rpartition(b"\n")
            decode(whole + newline)
            rest = rest_of_block


def _ours(state: Path, inbox: Path, reference: Reference, case: Case) -> float:
    """Return the time from the first poll to the first estimate."""
    options = ModelOptions("density", reference, Bounds(records=case.window), Segmentation(case.split_by))
    opened = State.open(state)
    decoder = RecordDecoder([options.format], hash_key=opened.key)
    source = DirectorySource("inbox", DirectoryOptions(path=inbox), decoder, key=opened.key)
    ingestion = Ingestion(opened, [ModelState(options)], [source])
    ingestion.start(NOW)
    started = time.perf_counter()
    while ingestion.tick(NOW + 10_000, time.monotonic()).commits:
        pass
    # One evaluation, so that totals are computed.
    for window in ingestion.view.snapshot("density", NOW, 0.0).windows.values():
        window.totals.estimate()
    passed = time.perf_counter() - started
    taken = ingestion.view.counters().records["inbox", "density"]
    if taken != RECORDS:
        raise SystemExit(f"expected {RECORDS} records, found {taken}")
    opened.close()
    return passed


def _restart(folder: Path, reference: Reference) -> None:
    path = folder / "large"
    vectors = outputs(100_000, CLASSES, seed=3)[0]
    options = ModelOptions("density", reference, Bounds(records=LARGE))
    state = State.open(path)
    Ingestion(state, [ModelState(options)], []).start(NOW)
    for first in range(0, LARGE, 10_000):
        at = NOW + np.arange(first, first + 10_000) / 100
        some = vectors[first % 100_000 : first % 100_000 + 10_000]
        state.commit(CommitPlan(chunks=[("density", Chunk(ALL, NOW + first / 100, at, some))]), NOW)
    state.close()
    print(f"restart: a window of {LARGE:,} records of {CLASSES} classes, against reading the bytes of its database")
    # Without stored totals: everything is measured again.
    _compare("nothing measured before", path, options)
    _stop(path, options)
    _compare("totals on disk, as after a stop", path, options)


def _compare(name: str, path: Path, options: ModelOptions) -> None:
    size = (path / "state.db").stat().st_size
    bare, ours = [], []
    for _ in range(5):
        bare.append(_timed(lambda: _read(path / "state.db")))
        ours.append(_timed(lambda: _start(path, options)))
    ratio = statistics.median(o / b for b, o in zip(bare, ours, strict=True))
    print(
        f"  {name:44s} {ratio:5.1f} times reading its {size / 1e6:.0f} MB"
        f" ({1e3 * statistics.median(bare):.0f} ms; ours {1e3 * statistics.median(ours):,.0f} ms)"
    )


def _start(path: Path, options: ModelOptions) -> None:
    state = State.open(path)
    ingestion = Ingestion(state, [ModelState(options)], [])
    ingestion.start(NOW)
    if ingestion.view.snapshot("density", NOW, 0.0).windows[ALL].totals.records != LARGE:
        raise SystemExit("the window did not come back")
    state.close()


def _stop(path: Path, options: ModelOptions) -> None:
    state = State.open(path)
    ingestion = Ingestion(state, [ModelState(options)], [])
    ingestion.start(NOW)
    ingestion.stop(NOW)
    state.close()


def _read(file: Path) -> None:
    with file.open("rb", buffering=0) as source:
        # From disk instead of the page cache, if the system allows it.
        os.posix_fadvise(source.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while source.read(1 << 20):
            pass


def _timed(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
