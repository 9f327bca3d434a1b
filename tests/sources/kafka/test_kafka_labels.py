"""Labels on another topic, with another number of partitions, while the partitions of predictions move; on a real broker."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import LabelOptions, ModelOptions
from monitor.core.segments import Segmentation
from monitor.core.window import Bounds
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import Carries
from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from monitor.sources.kafka.kafka_source import KafkaSource
from monitor.state.store import State
from tests.ingest.lines import CLASSES, POOL, line, small_reference
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique

PARTITIONS, LABEL_PARTITIONS = 4, 3
SECONDS = 30.0


class Replica:
    """A process that shares the partitions of predictions, and reads all labels in a group of its own."""

    def __init__(self, folder: Path, broker: Topics, topics: tuple[str, str], group: str) -> None:
        # The window is smaller than what is kept.
        model = ModelOptions(
            "density", small_reference(), Bounds(records=20), Segmentation((("site",),)), labels=LabelOptions()
        )
        self.state = State.open(folder)
        self.sources = [
            KafkaSource(
                carries.value,
                KafkaOptions(
                    (broker.bootstrap,),
                    own_group,
                    (topic,),
                    start=Start.EARLIEST,
                    session_timeout_seconds=3.0,
                    commit_seconds=0.2,
                ),
                RecordDecoder([model.format], hash_key=self.state.key, carries=carries),
            )
            for carries, topic, own_group in zip(Carries, topics, (group, unique("labels")), strict=True)
        ]
        self.ingestion = Ingestion(self.state, [ModelState(model)], self.sources, label_sources=[Carries.LABELS.value])
        self.ingestion.start(time.time())

    def tick(self) -> int:
        """Ingest what there is; return the number of partitions with predictions."""
        self.ingestion.tick(time.time(), time.monotonic())
        return len(self.ingestion.states.shards_of(Carries.PREDICTIONS.value))

    def counts(self) -> dict[str, tuple[int, ...]]:
        """Return by site the kept predictions, those with a label, and the right ones."""
        found = self.ingestion.view.snapshot("density", time.time(), time.monotonic())
        assert found.labels is not None
        sums = found.labels.columns(len(found.segments), len(CLASSES)).sums
        rows = zip(sums.records[1].tolist(), sums.labels[1].tolist(), sums.right[1].tolist(), strict=True)
        return {segment[0][1]: row for segment, row in zip(found.segments, rows, strict=True) if segment}

    def stop(self) -> None:
        """Leave the groups."""
        for source in self.sources:
            source.close()
        self.state.close()


def added(replicas: list[Replica]) -> dict[str, tuple[int, ...]]:
    """Return the counts of all together."""
    each = [one.counts() for one in replicas]
    return {
        site: tuple(sum(column) for column in zip(*(one.get(site, (0, 0, 0)) for one in each), strict=True))
        for site in "AB"
    }


@pytest.fixture
def running() -> Iterator[list[Replica]]:
    """Replicas that are stopped at the end."""
    replicas: list[Replica] = []
    yield replicas
    for one in replicas:
        one.stop()


def test_predictions_that_move_keep_their_labels(kafka: Topics, tmp_path: Path, running: list[Replica]) -> None:
    """One replica, two, and one again: together they have each prediction once, with the label that counts."""
    topics = kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=LABEL_PARTITIONS)
    predictions, labels = (Writer(kafka.bootstrap, topic) for topic in topics)
    group, now, wanted = unique("group"), time.time(), {"A": [0, 0, 0], "B": [0, 0, 0]}

    def write(numbers: range) -> None:
        for number in numbers:
            site, told, name = "AB"[number % 7 % 2], CLASSES[number % 3], f"case-{number}"
            predictions.enqueue([line(number, id=name, time=now - 500 + number, site=site)], number % PARTITIONS)
            # Some are corrected, on another partition; some repeated.
            said = [("owl", now), (told, now + 1), (told, now + 1)] if number % 5 == 0 else [(told, now)]
            for turn, (of, at) in enumerate(said):
                content = json.dumps({"id": name, "label": of, "time": at}).encode()
                labels.enqueue([content], (number // 2 + turn) % LABEL_PARTITIONS)
            right = CLASSES[int(np.argmax(POOL[number]))] == told
            wanted[site] = [a + b for a, b in zip(wanted[site], (1, 1, right), strict=True)]
        predictions.flush()
        labels.flush()

    def until(owned: Callable[[list[int]], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        expected = {site: tuple(counts) for site, counts in wanted.items()}
        while not (owned([one.tick() for one in running]) and added(running) == expected):
            assert time.monotonic() < deadline, f"expected {expected}, found {[one.counts() for one in running]}"
            time.sleep(0.01)

    write(range(200))
    running.append(Replica(tmp_path / "first", kafka, topics, group))
    until(lambda owned: owned == [PARTITIONS])
    running.append(Replica(tmp_path / "second", kafka, topics, group))
    until(lambda owned: owned == [PARTITIONS // 2] * 2)
    write(range(200, 300))
    until(lambda owned: owned == [PARTITIONS // 2] * 2)
    running.pop().stop()
    until(lambda owned: owned == [PARTITIONS])
    # One without a state reads what is kept from the log again.
    running.append(Replica(tmp_path / "third", kafka, topics, group))
    until(lambda owned: owned == [PARTITIONS // 2] * 2)
