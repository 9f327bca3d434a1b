"""Late labels: any order of predictions and labels, any kills, any batches give what an oracle computes from all lines."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import AuditOptions, LabelOptions
from monitor.core.labels.audit import audited
from monitor.core.labels.kept_predictions import KeptPredictions
from monitor.core.labels.realised import LabelColumns
from monitor.core.segments import ALL, Segment
from monitor.core.window import Bounds
from monitor.records.id_hash import hash_ids
from monitor.reference.reference import Reference
from tests.ingest.lines import CLASSES, NOW, POOL, Process, line
from tests.ingest.shards import Replica
from tests.strategies import synthetic

DAY = 86400.0
Prediction = tuple[str, int, float, str]
"""Id, number of the vector, time, site."""
Label = tuple[str, str, float | None]
"""Id, class, time."""


def written(prediction: Prediction) -> bytes:
    """Return a prediction as a line."""
    name, number, at, site = prediction
    return line(number, id=name, time=at, site=site)


def label(one: Label) -> bytes:
    """Return a label as a line."""
    name, of, at = one
    return (
        json.dumps({"model": "density", "id": name, "label": of, **({} if at is None else {"time": at})}).encode()
        + b"\n"
    )


def columns(process: Process, now: float = NOW) -> tuple[tuple[Segment, ...], LabelColumns]:
    """Return what labels say of the windows of a process."""
    found = process.ingestion.view.snapshot("density", now, 0.0)
    assert found.labels is not None
    return tuple(found.segments), found.labels.columns(len(found.segments), len(CLASSES))


def latest(labels: list[tuple[float, Label]]) -> dict[str, tuple[float, str]]:
    """Return the label that counts of each id: the latest by time, then by arrival."""
    found: dict[str, tuple[float, str]] = {}
    for came, (name, of, at) in labels:
        time = came if at is None else at
        if name not in found or time >= found[name][0]:
            found[name] = time, of
    return found


def of_segment(predictions: list[Prediction], segment: Segment) -> list[Prediction]:
    """Return the predictions of a segment."""
    return [one for one in predictions if segment == ALL or one[3] == segment[0][1]]


class History:
    """A process, and everything that was written for it to read."""

    def __init__(self, folder: Path, seed: int) -> None:
        chance = self.chance = random.Random(seed)  # noqa: S311 - not secret
        self.folder, self.now = folder, NOW
        self.ids = [f"case-{number}" for number in range(chance.randrange(5, 60))]
        self.records, self.most = chance.choice([5, 12, 400]), chance.choice([8, 30, 1000])
        self.at_once, self.share = chance.choice([1, 3, 50]), chance.choice([0.3, 1.0])
        self.predictions, self.labels = list[Prediction](), list[tuple[float, Label]]()
        self.lines, self.label_lines = list[bytes](), list[bytes]()
        self.waiting = chance.sample(self.ids, len(self.ids))
        self.process = self.start()

    def start(self) -> Process:
        """Start a process on the same folder."""
        return Process(
            self.folder,
            self.lines,
            bounds=Bounds(records=self.records),
            split_by=(("site",),),
            labels=LabelOptions(DAY, self.most),
            audit=AuditOptions(self.share),
            label_lines=self.label_lines,
            at_once=self.at_once,
        )

    def step(self) -> None:
        """Write some predictions and labels, ingest them, and perhaps evaluate, stop or kill."""
        chance, now = self.chance, self.now + 1.0
        self.now = now
        for name in [self.waiting.pop() for _ in range(min(len(self.waiting), chance.randrange(9)))]:
            one = name, chance.randrange(400), now - chance.choice([0.0, 5.0, 5.0, 2 * DAY]), chance.choice("AB")
            self.predictions.append(one)
            self.lines.append(written(one))
        # Labels have the same limit: here all of them are kept.
        for _ in range(min(chance.choice([0, 0, 2, 9]), self.most - len(self.labels))):
            told = chance.choice([*self.ids, "unknown"]), chance.choice(CLASSES), chance.choice([None, now - 9, now])
            self.labels.append((now, told))
            self.label_lines.append(label(told))
        self.process.tick(now)
        if chance.random() < 0.2:
            columns(self.process, now)
        if chance.random() < 0.3:
            (self.process.kill if chance.random() < 0.7 else self.process.stop)()
            self.process = self.start()

    def inside(self, segment: Segment) -> list[Prediction]:
        """Return what the sliding window of a segment holds: the latest by time, then by arrival."""
        some = of_segment(self.predictions, segment)
        return [some[row] for row in sorted(range(len(some)), key=lambda row: (some[row][2], row))[-self.records :]]


@pytest.mark.parametrize("seed", range(25))
def test_any_history_gives_the_counts_of_all_lines(tmp_path: Path, seed: int) -> None:
    """Labels before and after predictions, repeated, corrected, for unknown ids; restarts and kills in between."""
    history = History(tmp_path, seed)
    for _ in range(history.chance.randrange(4, 25)):
        history.step()
    process, now = history.process, history.now
    segments, found = columns(process, now)
    said, sums, share = latest(history.labels), found.sums, history.share
    kept = [one for one in history.predictions[-history.most :] if one[2] >= now - DAY]
    assert sums.audit is not None
    for place, segment in enumerate(segments):
        some = of_segment(kept, segment)
        truth = [(said[one[0]][1], CLASSES[int(np.argmax(POOL[one[1]]))]) for one in some if one[0] in said]
        assert (sums.records[1, place], sums.labels[1, place]) == (len(some), len(truth))
        assert sums.right[1, place] == sum(of == decided for of, decided in truth)
        counts = [[sum(of == k for of, _ in truth), sum(d == k for _, d in truth)] for k in CLASSES]
        assert sums.classes[place][:2].T.tolist() == counts
        if history.most >= len(history.predictions):
            in_window = [one for one in history.inside(segment) if one in some and one[0] in said]
            assert sums.labels[0, place] == len(in_window)
        picked = [one for one in some if audited(hash_ids([one[0]], process.state.key), share)[0]]
        until = max((one[2] for one in picked if one[0] in said), default=-1.0)
        assert sums.audit.labels[1, place] == sum(one[0] in said for one in picked)
        assert sums.picked[1, place] == sum(one[2] <= until for one in picked)
        assert sums.audit.records[1, place] == sum(one[2] <= until for one in some)
    assert process.counted("labels_total", "labels", "density") == len(history.labels)
    process.kill()


KEPT = LabelOptions(DAY, 1000)


def test_labels_of_other_classes_are_forgotten_also_without_any_prediction(tmp_path: Path) -> None:
    """Labels are numbers of classes: with another order of classes they would be of another class."""
    told = [label(("a", "cat", None))]
    first = Process(tmp_path, [], labels=KEPT, label_lines=told)
    first.tick()
    first.stop()
    other = Reference.calibrate(*synthetic(60, 3, seed=1), model="density", version="2.1", classes=CLASSES[::-1])
    for _ in range(2):
        process = Process(tmp_path, [line(0, id="a", time=NOW)], reference=other, labels=KEPT, label_lines=told)
        process.tick()
        assert columns(process)[1].joined == 0
        process.stop()


def test_labels_stay_when_another_source_of_predictions_goes(tmp_path: Path) -> None:
    """Its partitions are dropped; predictions of other sources, and all labels, still fit the model."""
    written_lines, told = [line(number, id=f"{number}", time=NOW) for number in range(9)], [label(("3", "cat", None))]
    first = Process(tmp_path, written_lines, labels=KEPT, label_lines=told)
    first.tick()
    first.stop()
    replica = Replica(tmp_path, {"p0": [line(20, id="20", time=NOW)]}, labels=KEPT)
    replica.own("p0")
    replica.kill()
    for _ in range(2):
        process = Process(tmp_path, written_lines, labels=KEPT, label_lines=told)
        process.tick()
        assert columns(process)[1].joined == 1
        process.stop()


@pytest.mark.parametrize("ahead", [60.0, 3 * DAY])
def test_a_correction_wins_although_the_clock_of_the_labels_is_ahead(tmp_path: Path, ahead: float) -> None:
    """Or the own one was set back: a time ahead of it is not believed, and labels count by arrival."""
    lines, told = [line(0, id="a", time=NOW)], [label(("a", "cat", NOW + ahead)), label(("a", "dog", None))]
    process = Process(tmp_path, lines, labels=KEPT, label_lines=told)
    process.tick()
    told.append(label(("a", "owl", NOW + ahead)))
    said = []
    for now in (NOW, NOW - DAY / 2):
        process.tick(now)
        columns(process)
        assert isinstance(process.model.predictions, KeptPredictions)
        said.append(CLASSES[process.model.predictions["label"][0]])
        told.append(label(("a", "dog", NOW + ahead - 1.0)))
    assert said == ["owl", "dog"]
    process.kill()
