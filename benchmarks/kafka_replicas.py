"""Two replicas against one, in one consumer group."""

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.kafka_topic import MODEL, PARTITIONS, ingestion
from benchmarks.ratios import ratio
from monitor.reference.reference import Reference
from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from monitor.state.store import State
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique

_ROUNDS = 3


def two_against_one(broker: Topics, folder: Path, payloads: list[bytes], in_each: int) -> None:
    """Print the speedup."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    for number in range(_ROUNDS):
        for replicas, found in rates.items():
            own = folder / f"replicas{replicas}-{number}"
            own.mkdir()
            found.append(len(payloads) * in_each / _seconds(broker, own, payloads, in_each, replicas))
    print(f"\n{len(payloads):,} messages of a list of {in_each} records, shared by replicas")
    for replicas, found in rates.items():
        print(f"  {replicas} replica{'s' * (replicas > 1):38s} {max(found):12,.0f} predictions a second at best")
    ratio(
        "two replicas over one, lists of 100 records, rate",
        [two / one for one, two in zip(*rates.values(), strict=True)],
    )


def _seconds(broker: Topics, folder: Path, payloads: list[bytes], in_each: int, replicas: int) -> float:
    """Return the time until the last replica has committed."""
    topic, group = broker.create_topic(partitions=PARTITIONS), unique("bench")
    share = PARTITIONS // replicas
    records = len(payloads) // PARTITIONS * in_each * share
    writer = Writer(broker.bootstrap, topic, transactional_id=unique("bench"), batch_num_messages=1000)
    started = []
    try:
        for number in range(replicas):
            words = [
                broker.bootstrap,
                topic,
                group,
                folder / str(number),
                folder.parent / "density.ref",
                share,
                records,
            ]
            command = [sys.executable, "-m", "benchmarks.kafka_replicas", *map(str, words)]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        # All messages of a transaction become visible at once.
        with writer.transaction():
            for partition in range(PARTITIONS):
                writer.enqueue(payloads[partition::PARTITIONS], partition)
            writer.flush()
            for process in started:
                _expect(process, "has its share")
        began = time.perf_counter()
        for process in started:
            _expect(process, "has read everything")
        return time.perf_counter() - began
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _expect(process: "subprocess.Popen[str]", words: str) -> None:
    if process.stdout is None or process.stdout.readline().strip() != words:
        raise SystemExit(f"a replica: expected that it {words}, found that it ended")


def _replica(bootstrap: str, topic: str, group: str, state: str, reference: str, share: str, records: str) -> None:
    options = KafkaOptions((bootstrap,), group, (topic,), start=Start.EARLIEST)
    opened = State.open(Path(state))
    taking, source = ingestion(opened, options, Reference.load(reference))
    taking.start(time.time())
    while (shards := source.status().shards) is None or {len(shards.lags), shards.assigned} != {int(share)}:
        taking.tick(time.time(), time.monotonic())
        time.sleep(taking.next_poll_seconds())
    print("has its share", flush=True)
    while taking.view.counters().records[source.name, MODEL] < int(records):
        taking.tick(time.time(), time.monotonic())
        time.sleep(taking.next_poll_seconds())
    print("has read everything", flush=True)
    # Leaving would cause a rebalance.
    sys.stdin.read()


if __name__ == "__main__":
    _replica(*sys.argv[1:])
