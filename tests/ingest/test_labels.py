"""Late labels: any order of predictions and labels, any kills, any batches give what an oracle computes from all lines."""

import json
import random
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import AuditOptions, LabelOptions
from monitor.core.labels.audit import audited
from monitor.core.labels.kept_predictions import KeptPredictions, Places
from monitor.core.labels.realised import LabelColumns
from monitor.core.segments import ALL, Segment
from monitor.core.window import Bounds
from monitor.records.id_hash import hash_ids
from monitor.reference.reference import Reference
from monitor.state.commit_plan import Forgotten
from monitor.state.database import read_audit_ids_of
from monitor.state.store import State
from tests.ingest.lines import CLASSES, NOW, POOL, Process, line
from tests.ingest.shards import Log, Replica
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


class Kept:
    """A process that keeps the ids of audited records, or not."""

    def __init__(self, folder: Path, share: float = 0.5, *, keep_ids: bool = True) -> None:
        self.folder, self.share, self.keep_ids = folder, share, keep_ids
        self.lines, self.label_lines = list[bytes](), list[bytes]()
        self.start()

    def start(self, now: float = NOW) -> Process:
        """Start a process on the same folder."""
        self.process = Process(
            self.folder,
            self.lines,
            labels=LabelOptions(DAY, 1000),
            audit=AuditOptions(self.share, keep_ids=self.keep_ids),
            label_lines=self.label_lines,
            now=now,
        )
        return self.process

    def restart(self, *, keep_ids: bool | None = None) -> None:
        """Kill it, and start it again."""
        self.process.kill()
        self.keep_ids = self.keep_ids if keep_ids is None else keep_ids
        self.start()

    def audited(self, *names: str) -> list[str]:
        """Return those that are audited."""
        return [one for one in names if audited(hash_ids([one], self.process.state.key), self.share)[0]]

    def waiting(self) -> list[str]:
        """Return the stored ids."""
        return [one.id for one in read_audit_ids_of(self.folder)]

    def in_files(self, *names: str) -> dict[str, set[str]]:
        """Return which files of the state have which ids."""
        files = {file.name: file.read_bytes() for file in self.folder.iterdir() if file.name != "ballast"}
        found = {file: {one for one in names if one.encode() in content} for file, content in files.items()}
        return {file: ids for file, ids in found.items() if ids}


def test_ids_of_audited_records_are_kept_until_they_are_labelled(tmp_path: Path) -> None:
    """No others, not in a backup, and nowhere in the files afterwards; also of labels that came first, and too old records."""
    kept = Kept(tmp_path)
    names = [f"canary-{number:03}" for number in range(60)]
    kept.label_lines.append(label((names[0], "cat", None)))
    kept.process.tick()
    kept.lines += [line(number, id=name, time=NOW - number) for number, name in enumerate(names)]
    kept.lines += [line(7, id=names[7]), b'{"probs": [2, 0, 0], "id": "canary-rejected"}\n']
    kept.lines += [line(8, id="canary-old", time=NOW - 2 * DAY), line(9, id="canary-" + "x" * 300)]
    kept.process.tick(monotonic=1.0)
    wanted = kept.audited(*names[1:])[::-1]
    assert 10 < len(wanted) < 50
    kept.process.state.back_up()
    kept.process.tick(monotonic=100.0)
    assert kept.waiting() == wanted
    assert kept.in_files(*names, "canary-old", "canary-rejected", "xxx").keys() <= {"state.db", "state.db-wal"}
    kept.restart()
    assert kept.waiting() == wanted
    kept.label_lines += [label((name, "dog", None)) for name in [*wanted[:5], "canary-unknown", names[0]]]
    kept.process.tick()
    assert kept.waiting() == wanted[5:]
    assert kept.in_files(*names, "canary") == {"state.db": {"canary", *wanted[5:]}}
    kept.process.tick(NOW + 2 * DAY, 200.0)
    assert kept.waiting() == []
    assert kept.in_files("canary") == {}
    kept.process.stop()


def test_ids_are_deleted_when_the_model_does_not_keep_them_any_more(tmp_path: Path) -> None:
    """And without the setting there never were any."""
    kept = Kept(tmp_path, 1.0, keep_ids=False)
    kept.lines.append(line(1, id="canary-1"))
    kept.process.tick()
    assert kept.in_files("canary") == {}
    kept.restart(keep_ids=True)
    kept.lines.append(line(2, id="canary-2"))
    kept.process.tick()
    assert kept.waiting() == ["canary-2"]
    (tmp_path / "copy-of-a-killed-command").mkdir()
    kept.restart(keep_ids=False)
    assert (kept.waiting(), kept.in_files("canary")) == ([], {})
    kept.process.stop()


@pytest.mark.parametrize("killed", [False, True])
def test_a_forgotten_id_leaves_no_trace_and_counts_as_new(tmp_path: Path, *, killed: bool) -> None:
    """In memory as on disk, whether the process is killed right after it or not."""
    kept = Kept(tmp_path, 1.0)
    names = [f"case-{number}" for number in range(30)]
    kept.lines += [line(number, id=name) for number, name in enumerate(names)]
    kept.label_lines += [label((name, "cat", None)) for name in names[:10]]
    kept.process.tick()
    hashes = hash_ids([*names[5:12], "unknown"], kept.process.state.key)
    done = kept.process.ingestion.forget(hashes, "density")
    kept.process.tick()
    assert done.result() == Forgotten(found=7, predictions=7, labels=5, audit_ids=2)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("state.db*"))
    assert not any(one.tobytes() in stored for one in hashes)
    if killed:
        kept.restart()
    _, found = columns(kept.process)
    assert found.sums.audit is not None
    assert (found.sums.labels[1, 0], found.sums.audit.labels[1, 0], found.sums.records[1, 0]) == (5, 5, 30)
    kept.lines += [line(number, id=names[number]) for number in (4, 5, 11)]
    kept.process.tick()
    assert kept.process.counted("records_duplicate_total", "density") == 1
    assert kept.process.counted("records_total", "lines", "density") == 32
    assert set(kept.waiting()) == {*names[12:], names[5], names[11]}
    kept.process.stop()
    with closing(State.open(tmp_path)) as state:
        assert state.forget(hashes) == Forgotten(found=2, predictions=2, labels=0, audit_ids=2)
        assert state.forget(hashes, "other") == Forgotten(0, 0, 0, 0)


PARTITIONS = ("predictions/0", "predictions/1", "predictions/2")
MOST = 25


class Replicas:
    """Two processes with three partitions, which may have two owners at a time; both read all labels."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - not secret
        self._folder, self._folders = folder, 0
        self.log: Log = {name: [] for name in PARTITIONS}
        self.truth: dict[str, list[Prediction]] = {name: [] for name in PARTITIONS}
        self.labels, self.label_lines = list[tuple[float, Label]](), list[bytes]()
        self.owned: list[set[str]] = [set(), set()]
        self.states = [self._new_folder(), self._new_folder()]
        self.replicas = [self.started(state, self.log) for state in self.states]

    def _new_folder(self) -> Path:
        self._folders += 1
        return self._folder / f"state{self._folders}"

    def started(self, folder: Path, log: Log) -> Replica:
        """Start a process."""
        options = LabelOptions(DAY, MOST)
        return Replica(
            folder,
            log,
            bounds=Bounds(records=6),
            split_by=(("site",),),
            labels=options,
            label_lines=self.label_lines,
        )

    def step(self) -> None:
        """Write predictions and labels, move partitions, or kill a process, which may lose its disk."""
        chance, which, what = self.chance, self.chance.randrange(2), self.chance.randrange(6)
        name = chance.choice(PARTITIONS)
        if what <= 1:
            for _ in range(chance.randrange(1, 30)):
                row, at = len(self.truth[name]), NOW - chance.randrange(99)
                one = f"{name} {row}", chance.randrange(400), at, chance.choice("AB")
                self.truth[name].append(one)
                self.log[name].append(written(one))
        elif what == 2:
            for _ in range(chance.randrange(1, 10)):
                # Of predictions that came, or are to come. Fewer than are kept of labels.
                row = chance.randrange(len(self.truth[name]) + 5)
                told = f"{name} {row}", chance.choice(CLASSES), NOW - chance.randrange(50)
                if len(self.labels) < MOST:
                    self.labels.append((NOW, told))
                    self.label_lines.append(label(told))
        elif what <= 4:
            self.owned[which] = set(chance.sample(PARTITIONS, chance.randrange(4)))
        else:
            self.replicas[which].kill()
            if chance.random() < 0.4:
                self.states[which] = self._new_folder()
            self.replicas[which] = self.started(self.states[which], self.log)
        for replica, shards in zip(self.replicas, self.owned, strict=True):
            replica.own(*shards)

    def expected(self, shards: set[str], segment: Segment) -> tuple[int, int, int]:
        """Return the kept predictions of some partitions, those with a label, and the right ones."""
        said = latest(self.labels)
        kept = of_segment([one for name in shards for one in self.truth[name][-MOST:]], segment)
        truth = [(said[one[0]][1], CLASSES[int(np.argmax(POOL[one[1]]))]) for one in kept if one[0] in said]
        return len(kept), len(truth), sum(of == decided for of, decided in truth)


def counts_of(replica: Replica) -> dict[Segment, tuple[int, int, int]]:
    """Return the kept predictions of each segment, those with a label, and the right ones."""
    found = replica.ingestion.view.snapshot("density", NOW, 0.0)
    assert found.labels is not None
    sums = found.labels.columns(len(found.segments), len(CLASSES)).sums
    rows = zip(sums.records[1].tolist(), sums.labels[1].tolist(), sums.right[1].tolist(), strict=True)
    return dict(zip(found.segments, rows, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_predictions_of_partitions_that_move_find_their_labels(tmp_path: Path, seed: int) -> None:
    """Whoever owns a partition has the last predictions of it, each once, with the labels that count."""
    group = Replicas(tmp_path, seed)
    for _ in range(20):
        group.step()
        for replica, shards in zip(group.replicas, group.owned, strict=True):
            for segment, found in counts_of(replica).items():
                assert found == group.expected(shards, segment), (shards, segment)
    for replica in group.replicas:
        replica.kill()


def test_a_rewind_reaches_back_to_the_oldest_kept_prediction(tmp_path: Path) -> None:
    """Further than the window: a process without a state that reads from there has the same predictions."""
    group, name = Replicas(tmp_path, 0), PARTITIONS[0]
    for number in range(60):
        one = f"{name} {number}", number, NOW - 100 + number, "A"
        group.truth[name].append(one)
        group.log[name].append(written(one))
        group.label_lines.append(label((one[0], "cat", None)))
        group.labels.append((NOW, (one[0], "cat", None)))
    group.labels = group.labels[-MOST:]
    group.replicas[0].own(name)
    assert group.replicas[0].source.oldest == {name: NOW - 100 + 60 - MOST}
    again = group.started(tmp_path / "new", {name: group.log[name][60 - MOST :]})
    again.own(name)
    for replica in (group.replicas[0], again):
        assert counts_of(replica)[ALL] == group.expected({name}, ALL)
    for replica in (*group.replicas, again):
        replica.kill()


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


def test_places_of_segments_that_are_gone_cost_nothing() -> None:
    """Segments come and go for years; only windows of now are looked up, since ingestion waits meanwhile."""
    sites, scanners = ([((field, f"{field}{number}"),) for number in range(300)] for field in ("site", "scanner"))
    places = Places(((), *((site, scanner) for site, scanner in zip(sites, scanners, strict=True))))
    found = places.windows({ALL: 0, sites[7]: 2})
    assert [np.flatnonzero(one >= 0).tolist() for one in found] == [list(range(301)), [8]]
    assert found[1][8] == 2


def test_a_larger_share_begins_a_new_audit(tmp_path: Path) -> None:
    """Labels of records that it did not pick, when they came, may be a choice of somebody. A smaller share picks among them."""
    lines, label_lines = list[bytes](), list[bytes]()

    def audit(share: float | None, first: int) -> tuple[int, int]:
        """Return labels and records of the audit, after a hundred more predictions that all get labels."""
        process = Process(
            tmp_path,
            lines,
            labels=LabelOptions(DAY),
            audit=None if share is None else AuditOptions(share),
            label_lines=label_lines,
        )
        for number in range(first, first + 100):
            lines.append(line(number, id=f"case-{number}"))
            label_lines.append(label((f"case-{number}", "cat", None)))
        process.tick()
        found = columns(process)[1].sums
        process.kill()
        assert found.labels[1, 0] == first + 100
        return (0, 0) if found.audit is None else (int(found.audit.labels[1, 0]), int(found.audit.records[1, 0]))

    assert audit(None, 0) == (0, 0)
    assert audit(1.0, 100) == (100, 100)
    few, until_last = audit(0.3, 200)
    assert 20 < few < 100
    assert until_last > 100
    assert audit(1.0, 300)[1] <= 110
