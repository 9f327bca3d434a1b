"""Scrapes of a real `cpcmon run` while records arrive and evaluations run: latency, evaluation time, memory.

Many segments, each with enough records for an estimate; then a steady stream of records, evaluations every two seconds,
and one scrape after the other.
"""

import argparse
import gzip
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np

from benchmarks.against import BEFORE_ISSUE_17, ROOT, tree_of
from benchmarks.measures import outputs
from benchmarks.ratios import HEAD, ratio

SCRAPE_EVERY_SECONDS = 0.1
_CLASSES = 10
_REFERENCE_RECORDS = 2_000
_MODEL = "density"
_CONFIG = """\
storage: {{path: state}}
sources:
  - {{name: results, type: directory, path: inbox, poll: 0.5s}}
models:
  - name: density
    reference: density.ref
    segment_by: [site]
    segments: {{limit: {segments}}}
    evaluate: {{every: 2s}}
    alerts:
      - {{name: accuracy_low, drop: 0.05, severity: critical}}
      - {{name: no_agreement, type: disagreement, severity: info}}
      - {{name: silent, after: 2h}}
limits: {{window_bytes: 8GiB, segments: {segments}}}
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured, in seconds and bytes."""

    scrapes: list[float]
    evaluations: int
    evaluation_seconds: float
    """Mean."""
    tick_seconds: float
    """Mean duration of a round of ingestion."""
    resident_bytes: int
    peak_bytes: int
    page_bytes: int


def measured(folder: Path, segments: int, records: int, a_second: int, seconds: float, tree: Path) -> Found:
    """Run the daemon of a tree in a folder, fill its windows and scrape it."""
    probabilities, labels = outputs(_REFERENCE_RECORDS, _CLASSES, seed=1)
    np.savez(folder / "reference.npz", probs=probabilities, label=labels)
    # By each tree itself: an older one does not read the references of a newer.
    words = [
        "calibrate",
        "--input",
        "reference.npz",
        "--model",
        _MODEL,
        "--model-version",
        "2.1",
        "--output",
        "density.ref",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    subprocess.run(
        [sys.executable, "-m", "monitor", *words], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    (folder / "config.yaml").write_text(_CONFIG.format(segments=segments), encoding="utf-8")
    inbox = folder / "inbox"
    inbox.mkdir()
    vectors = [", ".join(f"{p:.6f}" for p in vector) for vector in outputs(1000, _CLASSES, seed=2)[0].tolist()]

    def lines(first: int, count: int) -> Iterator[str]:
        for number in range(first, first + count):
            yield f'{{"site": "S{number % segments:05d}", "probs": [{vectors[number * 7 % 1000]}]}}\n'

    total = segments * records
    with (inbox / "first.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(lines(0, total))
    with _daemon(folder / "config.yaml", tree) as (pid, url):
        _wait_for(url, "cpcmon_records_total", total)
        _wait_for(url, "cpcmon_evaluations_total", _value(_page(url), "cpcmon_evaluations_total") + 2)
        over = threading.Event()

        def stream() -> None:
            sent = total
            with (inbox / "stream.jsonl").open("a", encoding="utf-8") as file:
                while not over.wait(0.1):
                    file.writelines(lines(sent, a_second // 10))
                    file.flush()
                    sent += a_second // 10

        sender = threading.Thread(target=stream)
        sender.start()
        before = _page(url)
        scrapes = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            began = time.perf_counter()
            _ask(url)
            scrapes.append(time.perf_counter() - began)
            time.sleep(SCRAPE_EVERY_SECONDS)
        over.set()
        sender.join()
        after = _page(url)
        evaluations, evaluating = _risen(before, after, "cpcmon_evaluation_duration_seconds")
        ticks, ticking = _risen(before, after, "cpcmon_tick_duration_seconds")
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        resident, peak = (int(re.findall(rf"{name}:\s+(\d+) kB", status)[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        return Found(
            scrapes,
            int(evaluations),
            evaluating / max(1.0, evaluations),
            ticking / max(1.0, ticks),
            resident,
            peak,
            len(after),
        )


@contextmanager
def _daemon(config: Path, tree: Path) -> Iterator[tuple[int, str]]:
    words = ["run", "--config.file", str(config), "--web.listen-address", "127.0.0.1:0"]
    command = [sys.executable, "-m", "monitor", *words]
    log = config.parent / "log"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stderr=file, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)})
    try:
        while not (found := re.search(r"is ready on (http://[0-9.:]+)", log.read_text(encoding="utf-8"))):
            if process.poll() is not None:
                raise RuntimeError(log.read_text(encoding="utf-8"))
            time.sleep(0.2)
        yield process.pid, found[1]
    finally:
        process.terminate()
        process.wait(60)


def _ask(url: str) -> bytes:
    """Return the page compressed, as Prometheus asks for it."""
    asked = Request(f"{url}/metrics", headers={"Accept-Encoding": "gzip"})  # noqa: S310 - our own
    with urlopen(asked, timeout=120) as answer:  # noqa: S310 - our own
        body: bytes = answer.read()
        return body


def _page(url: str) -> bytes:
    return gzip.decompress(_ask(url))


def _value(page: bytes, name: str) -> float:
    """Return the value of the first series of a name; 0 without one."""
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$".encode(), page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _risen(before: bytes, after: bytes, name: str) -> tuple[float, float]:
    """Return how far count and sum of a histogram have risen."""
    count, total = (_value(after, f"{name}_{one}") - _value(before, f"{name}_{one}") for one in ("count", "sum"))
    return count, total


def _wait_for(url: str, name: str, value: float) -> None:
    while _value(_page(url), name) < value:
        time.sleep(1.0)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=2_000)
    parser.add_argument("--records", type=int, default=250, help="in each segment, before the stream")
    parser.add_argument("--a-second", type=int, default=500, help="records of the stream")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--old", default=BEFORE_ISSUE_17, metavar="COMMIT|FOLDER", help="to compare with; none: -")
    asked = parser.parse_args()
    print(f"{asked.segments:,} segments of {_CLASSES} classes, {asked.a_second} records a second")
    trees = {"new": ROOT} if asked.old == "-" else {"old": tree_of(asked.old), "new": ROOT}
    found = {}
    for name, tree in trees.items():
        with tempfile.TemporaryDirectory(prefix="cpcmon-bench-") as folder:
            one = measured(Path(folder), asked.segments, asked.records, asked.a_second, asked.seconds, tree)
        print(f"{name}: {len(one.scrapes)} scrapes of {one.page_bytes / 1e6:.1f} MB, {one.evaluations} evaluations")
        found[name] = sorted(one.scrapes), one
    print(HEAD)
    for name, wanted, of in (
        ("scrape, median, s", "", lambda scrapes, _: statistics.median(scrapes)),
        ("scrape, 99th percentile, s", "<= 0.1", lambda scrapes, _: scrapes[int(0.99 * (len(scrapes) - 1))]),
        ("scrape, longest, s", "<= 0.2", lambda scrapes, _: scrapes[-1]),
        ("evaluation, mean, s", "<= 1", lambda _, one: one.evaluation_seconds),
        ("round of ingestion, mean, s", "", lambda _, one: one.tick_seconds),
        ("resident memory, MB", "", lambda _, one: one.resident_bytes / 1e6),
        ("resident memory at most, MB", "<= 600", lambda _, one: one.peak_bytes / 1e6),
    ):
        ratio(name, [of(*found["new"])], wanted, [of(*found["old"])] if "old" in found else ())


if __name__ == "__main__":
    main()
