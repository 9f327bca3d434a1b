"""Late labels: any order of predictions and labels, any kills, any batches give what an oracle computes from all lines."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import AuditOptions, LabelOptions
from monitor.core.labels.audit import audited
from monitor.core.labels.realised import LabelColumns
from monitor.core.segments import ALL, Segment
from monitor.core.window import Bounds
from monitor.records.id_hash import hash_ids
from tests.ingest.lines import CLASSES, NOW, POOL, Process, line

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
    return tuple(found.segments), found.labels.columns(len(found.segments), len(CLASSES), now)


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


@pytest.mark.parametrize("seed", range(25))
def test_any_history_gives_the_counts_of_all_lines(tmp_path: Path, seed: int) -> None:
    """Labels before and after predictions, repeated, corrected, for unknown ids; restarts and kills in between."""
    chance = random.Random(seed)
    ids = [f"case-{number}" for number in range(chance.randrange(5, 60))]
    records = chance.choice([5, 12, 400])
    most = chance.choice([8, 30, 1000])
    predictions, labels = list[Prediction](), list[tuple[float, Label]]()
    lines, label_lines = list[bytes](), list[bytes]()
    waiting = chance.sample(ids, len(ids))
    at_once = chance.choice([1, 3, 50])
    share = chance.choice([0.3, 1.0])

    def start() -> Process:
        return Process(
            tmp_path,
            lines,
            bounds=Bounds(records=records),
            split_by=(("site",),),
            labels=LabelOptions(DAY, most),
            audit=AuditOptions(share),
            label_lines=label_lines,
            at_once=at_once,
            now=NOW,
        )

    process, now = start(), NOW
    for _ in range(chance.randrange(4, 25)):
        now += 1.0
        if chance.random() < 0.6 and waiting:
            for name in [waiting.pop() for _ in range(min(len(waiting), chance.randrange(1, 9)))]:
                one = name, chance.randrange(400), now - chance.choice([0.0, 5.0, 5.0, 2 * DAY]), chance.choice("AB")
                predictions.append(one)
                lines.append(written(one))
        # Labels have the same limit: here all of them are kept.
        for _ in range(min(chance.choice([0, 0, 2, 9]), most - len(labels))):
            told = chance.choice([*ids, "unknown"]), chance.choice(CLASSES), chance.choice([None, now - 50, now - 30])
            labels.append((now, told))
            label_lines.append(label(told))
        process.tick(now)
        if chance.random() < 0.2:
            columns(process, now)
        if chance.random() < 0.3:
            (process.kill if chance.random() < 0.7 else process.stop)()
            process = start()
    segments, found = columns(process, now)
    said = latest(labels)
    kept = [one for one in predictions[-most:] if one[2] >= now - DAY]
    key = process.state.key
    for place, segment in enumerate(segments):
        some = of_segment(kept, segment)
        truth = [(said[one[0]][1], CLASSES[int(np.argmax(POOL[one[1]]))]) for one in some if one[0] in said]
        assert found.sums.records[1, place] == len(some)
        assert found.sums.labels[1, place] == len(truth)
        assert found.sums.right[1, place] == sum(of == decided for of, decided in truth)
        counts = [(sum(of == k for of, _ in truth), sum(d == k for _, d in truth)) for k in CLASSES]
        assert found.sums.classes[place][:2].T.tolist() == [list(one) for one in counts]
        # The sliding window: the latest of all its records.
        everything = of_segment(predictions, segment)
        inside = sorted(range(len(everything)), key=lambda i: (everything[i][2], i))[-records:]  # noqa: B023
        in_window = [one for one in (everything[i] for i in inside) if one in some and one[0] in said]
        if most >= len(predictions):
            assert found.sums.labels[0, place] == len(in_window)
        picked = [one for one in some if audited(hash_ids([one[0]], key), share)[0]]
        with_label = [one[2] for one in picked if one[0] in said]
        assert found.sums.audit is not None
        assert found.sums.audit.labels[1, place] == len(with_label)
        if with_label:
            assert found.sums.audited_to[place] == max(with_label)
            assert found.sums.picked[1, place] == sum(one[2] <= max(with_label) for one in picked)
            assert found.sums.audit.records[1, place] == sum(one[2] <= max(with_label) for one in some)
    assert process.counted("labels_total", "labels", "density") == len(labels)
    process.kill()
