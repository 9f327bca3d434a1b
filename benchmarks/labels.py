"""Late labels: what it costs to keep predictions for them, in ingestion, memory, disk, evaluation and start.

First the CPU time of ingesting predictions with `labels` over that without, in turns. Then a real daemon that keeps a million
predictions of 10 classes with two splits, and takes 50,000 labels: from files, and from a real Kafka with two partitions of
predictions and the labels on another topic; and from files without labels, to compare.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.measures import CLASSES, NOW, RECORDS, SCANNERS, options_of, outputs, started, written
from benchmarks.memory import peak_bytes
from benchmarks.ratios import HEAD, ratio
from monitor.config.config import AuditOptions, LabelOptions, ModelOptions
from monitor.reference.reference import Reference
from tests.daemon.process import Process, running
from tests.kafka.broker import Cluster
from tests.kafka.jars import NoBroker
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique

PREDICTIONS, LABELS = 1_000_000, 50_000
PARTITIONS = 2
_ROUNDS = 15
_FILE_RECORDS = 250_000
_LIMIT_SECONDS = 600.0
_STEADY_EVALUATIONS = 4
_CONFIG = """\
storage: {{path: state}}
sources:
{sources}models:
  - name: density
    reference: density.ref
    window: {{records: 5000}}
    segment_by: [site, scanner]
    evaluate: {{every: 2s}}
{labels}"""
_FILES = "  - {name: results, type: directory, path: inbox, poll: 0.5s}\n"
_LABEL_FILES = "  - {name: truth, type: directory, path: labels, poll: 0.5s, carries: labels}\n"
_KAFKA = """\
  - name: {carries}
    type: kafka
    brokers: [{brokers}]
    group: {group}
    topics: [{topic}]
    start: earliest
    session_timeout: 6s
    carries: {carries}
"""
_OPTIONS = f"    labels: {{horizon: 30d, most: {PREDICTIONS}}}\n    audit: {{share: 0.05}}\n"


def ingestion_ratio(folder: Path) -> None:
    """Print the CPU time of ingestion that keeps predictions for labels, over that of one that does not."""
    inbox = written(folder)
    for name, split_by in (("without segments", ()), ("5 sites and 10 scanners each", SCANNERS)):
        plain = options_of(split_by)
        kept = replace(plain, labels=LabelOptions(), audit=AuditOptions(0.05))
        pairs = [(_cpu_seconds(folder, plain, inbox), _cpu_seconds(folder, kept, inbox)) for _ in range(_ROUNDS)]
        ratio(f"ingest with `labels` over without, CPU time, {name}", [b / a for a, b in pairs], "<= 1.1")


def _cpu_seconds(folder: Path, options: ModelOptions, inbox: Path) -> float:
    """Return the CPU time from a file to committed windows."""
    state = folder / "state-of-ratio"
    with started(state, options, inbox) as ingestion:
        began = time.process_time()
        for tick in range(1000):
            if ingestion.view.counters().records.total() >= RECORDS:
                break
            ingestion.tick(NOW + 10_000, 3.0 * tick)
        spent = time.process_time() - began
    shutil.rmtree(state)
    return spent


def predictions() -> Iterator[list[bytes]]:
    """Yield predictions as lines, a file at a time."""
    vectors = [", ".join(f"{p:.6f}" for p in vector) for vector in outputs(10_000, CLASSES, seed=2)[0].tolist()]
    began = time.time() - PREDICTIONS / 2
    for first in range(0, PREDICTIONS, _FILE_RECORDS):
        yield [
            (
                f'{{"id": "exam-{number:012d}", "time": {began + number / 2:.1f}, "site": "S{number % 5}", '
                f'"scanner": "{number // 5 % 10}", "probs": [{vectors[number % len(vectors)]}]}}\n'
            ).encode()
            for number in range(first, first + _FILE_RECORDS)
        ]


def labels() -> list[bytes]:
    """Return the labels of a random sample as lines, in random order."""
    random = np.random.default_rng(3)
    numbers, classes = random.choice(PREDICTIONS, LABELS, replace=False), random.integers(0, CLASSES, LABELS)
    return [
        json.dumps({"id": f"exam-{number:012d}", "label": of}).encode() + b"\n"
        for number, of in zip(numbers.tolist(), classes.tolist(), strict=True)
    ]


def write_files(folder: Path) -> None:
    """Write both as files."""
    for name in ("inbox", "labels"):
        (folder / name).mkdir()
    for number, some in enumerate(predictions()):
        (folder / "inbox" / f"{number}.jsonl").write_bytes(b"".join(some))
    (folder / "labels" / "labels.jsonl").write_bytes(b"".join(labels()))


def write_topics(broker: Topics) -> dict[str, str]:
    """Write both to topics; return their names."""
    topics = {}
    for carries, partitions, parts in (("predictions", PARTITIONS, predictions()), ("labels", 1, iter([labels()]))):
        topics[carries] = broker.create_topic(partitions=partitions)
        writer = Writer(broker.bootstrap, topics[carries], batch_num_messages=1000)
        for some in parts:
            for partition in range(partitions):
                writer.enqueue(some[partition::partitions], partition)
            writer.flush()
    return topics


def kafka_sources(broker: Topics, topics: dict[str, str]) -> str:
    """Return sources that read topics from the start."""
    return "".join(
        _KAFKA.format(carries=carries, brokers=broker.bootstrap, group=unique("bench"), topic=topic)
        for carries, topic in topics.items()
    )


def measure(name: str, folder: Path, sources: str, *, labelled: bool = True) -> None:
    """Run the daemon until it has everything, restart it, and print a line of the table."""
    config, state = folder / "config.yaml", folder / "state"
    config.write_text(_CONFIG.format(sources=sources, labels=_OPTIONS if labelled else ""), encoding="utf-8")
    shutil.rmtree(state, ignore_errors=True)
    wanted = {"cpcmon_records_total": PREDICTIONS} | ({"cpcmon_labels_joined": LABELS} if labelled else {})
    with running(config) as process:
        # Without the time to connect and join a group.
        _wait(process, lambda found: found("cpcmon_records_total") > 0)
        first, began = _sum(process, "cpcmon_records_total"), time.monotonic()
        _wait(process, lambda found: found("cpcmon_records_total") >= PREDICTIONS)
        rate = (PREDICTIONS - first) / (time.monotonic() - began)
        _wait(process, lambda found: all(found(one) >= value for one, value in wanted.items()))
        evaluation = _evaluation_seconds(process)
        peak, now = peak_bytes(process.pid), resident_bytes(process.pid)
    disk = sum(file.stat().st_size for file in state.iterdir() if file.name.startswith("state.db"))
    started_at = time.monotonic()
    with running(config) as process:
        _wait(process, lambda found: all(found(one) >= value for one, value in wanted.items()))
        start = time.monotonic() - started_at
        later = peak_bytes(process.pid)
    megabytes = " | ".join(f"{size / 1e6:,.0f}" for size in (peak, now, disk, later))
    print(f"| {name} | {rate:,.0f} | {megabytes} | {1e3 * evaluation:,.0f} | {start:.1f} |", flush=True)


def _evaluation_seconds(process: Process) -> float:
    """Return the mean duration of the next evaluations."""
    names = [f"cpcmon_evaluation_duration_seconds_{part}" for part in ("sum", "count")]
    before = [_sum(process, name) for name in names]
    _wait(process, lambda found: found(names[1]) >= before[1] + _STEADY_EVALUATIONS)
    after = [_sum(process, name) for name in names]
    return (after[0] - before[0]) / (after[1] - before[1])


def _wait(process: Process, condition: Callable[[Callable[[str], float]], bool]) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    while not condition(lambda name: _sum(process, name)):
        if time.monotonic() > deadline:
            raise TimeoutError(process.log[-3000:])
        time.sleep(0.05)


def _sum(process: Process, name: str) -> float:
    """Return the sum of all samples of a name."""
    return sum(value for key, value in process.metrics().items() if key.partition("{")[0] == name)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cpcmon-bench-", dir=os.environ.get("BENCH_DIR", ".")) as name:
        yield Path(name).resolve()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--only-ratio", action="store_true", help="of the CPU times")
    asked = parser.parse_args()
    with _folder() as folder:
        print(HEAD, flush=True)
        ingestion_ratio(folder)
        if asked.only_ratio:
            return
        Reference.calibrate(*outputs(2000, CLASSES, seed=1), model="density", version="2.1").save(
            folder / "density.ref"
        )
        write_files(folder)
        print(f"\n{PREDICTIONS:,} predictions of {CLASSES} classes, {LABELS:,} labels")
        print(
            "| from | records/s | peak, MB | then, MB | state, MB | peak after a restart, MB | evaluation, ms | start, s |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|--:|")
        measure("files, no labels", folder, _FILES, labelled=False)
        measure("files", folder, _FILES + _LABEL_FILES)
        if not asked.without_kafka:
            try:
                with Cluster(folder / "broker") as broker:
                    topics = write_topics(broker)
                    alone = {"predictions": topics["predictions"]}
                    measure("Kafka, no labels", folder, kafka_sources(broker, alone), labelled=False)
                    measure("Kafka, two partitions", folder, kafka_sources(broker, topics))
            except NoBroker as error:
                print(f"no Kafka broker: {error}")


if __name__ == "__main__":
    main()
