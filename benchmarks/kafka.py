"""The speed of ingesting messages, against a plain poll loop and plain decoding.

A real broker runs beside it on the same machine, so that rates depend on how many cores there are; both sides of a ratio
alternate in one run, and the median counts. CPU time is that of our process alone.
"""

import json
import os
import statistics
import tempfile
import time
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from kafka import KafkaConsumer, TopicPartition

from benchmarks.kafka_replicas import two_against_one
from benchmarks.kafka_topic import CLASSES, MODEL, PARTITIONS, batches, ingestion, packed_batches, singles
from benchmarks.measures import outputs
from benchmarks.ratios import ratio
from monitor.reference.reference import Reference
from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from monitor.state.store import State
from tests.kafka.broker import Cluster
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique

ROUNDS = 5
MESSAGES = 200_000
BATCHES = 8_000
IN_A_BATCH = 100


class Cost(NamedTuple):
    """The result of reading a topic."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Topic:
    """A filled topic."""

    broker: Topics
    name: str
    messages: int
    predictions: int


def main() -> None:
    """Run the benchmark."""
    with tempfile.TemporaryDirectory(prefix="cpcmon-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        reference = Reference.calibrate(*outputs(1000, CLASSES, seed=1), model=MODEL, version="2.1")
        reference.save(Path(folder) / "density.ref")
        with Cluster(Path(folder).absolute() / "broker", heap="512m") as broker:
            print(f"kafka: {PARTITIONS} partitions, {CLASSES} classes; median of {ROUNDS} alternating rounds")
            _single(broker, Path(folder), reference)
            _batched(broker, Path(folder), reference, "a list of 100 records", batches(BATCHES, IN_A_BATCH), ">= 0.35")
            _batched(broker, Path(folder), reference, "100 records as probs_f32", packed_batches(BATCHES, IN_A_BATCH))
            two_against_one(broker, Path(folder).absolute(), batches(BATCHES, IN_A_BATCH), IN_A_BATCH)


def _written(broker: Topics, payloads: list[bytes], in_each: int) -> Topic:
    writer = Writer(broker.bootstrap, broker.create_topic(partitions=PARTITIONS), batch_num_messages=1000)
    for partition in range(PARTITIONS):
        writer.enqueue(payloads[partition::PARTITIONS], partition)
    writer.flush()
    return Topic(broker, writer.topic, len(payloads), len(payloads) * in_each)


def _single(broker: Topics, folder: Path, reference: Reference) -> None:
    topic = _written(broker, singles(MESSAGES), 1)
    bare, ours = [], []
    for number in range(ROUNDS):
        bare.append(_bare_poll(topic))
        ours.append(_ours(topic, folder / f"single{number}", reference))
    print(f"\n{MESSAGES:,} messages of one record: polled, decoded, validated, in windows, committed")
    _say("bare poll loop", bare, topic.messages)
    _say("ours", ours, topic.messages)
    pairs = list(zip(bare, ours, strict=True))
    ratio(
        "messages of one record, our rate over that of a bare kafka-python poll loop",
        [b.seconds / o.seconds for b, o in pairs],
        ">= 0.75",
    )
    ratio("the same, our CPU time over its", [o.cpu_seconds / b.cpu_seconds for b, o in pairs])


def _batched(
    broker: Topics, folder: Path, reference: Reference, name: str, payloads: list[bytes], wanted: str = ""
) -> None:
    topic = _written(broker, payloads, IN_A_BATCH)
    bare, ours = [], []
    for number in range(ROUNDS):
        bare.append(_timed(lambda: _bare_decode(payloads)))
        ours.append(_ours(topic, folder / f"{name}{number}", reference))
    print(f"\n{len(payloads):,} messages of {name}")
    _say("bare msgspec decoding, from memory", bare, topic.predictions)
    _say("ours", ours, topic.predictions)
    ratio(
        "our rate over that of bare decoding", [b.seconds / o.seconds for b, o in zip(bare, ours, strict=True)], wanted
    )


def _say(name: str, costs: list[Cost], count: int) -> None:
    rate = count / statistics.median(one.seconds for one in costs)
    cpu = 1e6 * statistics.median(one.cpu_seconds for one in costs) / count
    print(f"  {name:40s} {rate:12,.0f} a second, {cpu:6.2f} us of CPU each")


def _timed(work: Callable[[], None]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def _bare_poll(topic: Topic) -> Cost:
    """Poll until everything is read; timed from the first poll with messages."""
    options = _options(topic)
    consumer = KafkaConsumer(
        bootstrap_servers=topic.broker.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level=str(options.isolation),
        max_poll_records=options.max_poll_records,
        fetch_max_bytes=options.fetch_max_bytes,
        max_partition_fetch_bytes=options.partition_fetch_bytes,
    )
    consumer.assign([TopicPartition(topic.name, number) for number in range(PARTITIONS)])
    seen = 0

    def poll() -> None:
        nonlocal seen
        seen += sum(map(len, consumer.poll(timeout_ms=100).values()))

    cost = _from_first(poll, lambda: seen, topic.messages)
    consumer.close(autocommit=False)
    return cost


def _ours(topic: Topic, state: Path, reference: Reference) -> Cost:
    """Return the cost from the first records to the last commit and one estimate."""
    opened = State.open(state)
    taking, source = ingestion(opened, _options(topic), reference)
    taking.start(time.time())

    def tick() -> None:
        taking.tick(time.time(), time.monotonic())
        if taken() == topic.predictions:
            # One evaluation, so that totals are computed.
            taking.view.snapshot(MODEL, time.time(), time.monotonic())
        elif (pause := taking.next_poll_seconds()) > 0.0:
            time.sleep(pause)

    def taken() -> int:
        return taking.view.counters().records[source.name, MODEL]

    cost = _from_first(tick, taken, topic.predictions)
    taking.stop(time.time())
    opened.close()
    return cost


def _from_first(step: Callable[[], None], count: Callable[[], int], wanted: int) -> Cost:
    """Repeat a step until the count is reached, without the time to connect and join the group."""
    began = time.perf_counter(), time.process_time()
    while count() < wanted:
        before = time.perf_counter(), time.process_time()
        nothing_yet = count() == 0
        step()
        if nothing_yet and count():
            began = before
    return Cost(time.perf_counter() - began[0], time.process_time() - began[1])


def _options(topic: Topic) -> KafkaOptions:
    return KafkaOptions((topic.broker.bootstrap,), unique("bench"), (topic.name,), start=Start.EARLIEST)


class _Record(msgspec.Struct, gc=False):
    probs: list[float]


class _Packed(msgspec.Struct, gc=False):
    probs_f32: str


def _bare_decode(payloads: list[bytes]) -> None:
    """Decode messages, without windows."""
    if isinstance(json.loads(payloads[0]), list):
        lists = msgspec.json.Decoder(list[_Record])
        for payload in payloads:
            lists.decode(payload)
        return
    objects = msgspec.json.Decoder(_Packed)
    for payload in payloads:
        np.frombuffer(a2b_base64(objects.decode(payload).probs_f32), dtype="<f4")


if __name__ == "__main__":
    main()
