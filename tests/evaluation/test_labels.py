"""What late labels do to reports: the audited accuracy and its alert, the track record, doubts about the estimates."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import AuditOptions, LabelOptions
from monitor.core.alerts import AlertPhase, AlertRule
from monitor.core.baselines.comparison import Verdict
from monitor.core.estimate import AUDITED
from monitor.core.report import SegmentReport
from monitor.reference.reference import Reference
from tests.evaluation.driver import HEALTHY, Monitor
from tests.strategies import synthetic

DAY = 86400.0
LABELS = LabelOptions(horizon_seconds=30 * DAY)
BELOW = AlertRule("audit_low", estimator=AUDITED, below=0.7, for_seconds=0.0, new_records=0.0)
WINDOW = 500


class Exams:
    """Records with ids, whose truth is known here; the model is confident, and often wrong."""

    def __init__(self, monitor: Monitor, seed: int = 0) -> None:
        self.monitor, self._chance = monitor, np.random.default_rng(seed)
        self.truth: dict[str, int] = {}
        self._sent = 0

    def send(self, count: int, right: float, *, times: int = 10) -> None:
        """Send records of an accuracy, over some evaluations."""
        for _ in range(times):
            for _ in range(count // times):
                name, vector = f"exam-{self._sent}", HEALTHY[self._sent % len(HEALTHY)]
                decided = int(np.argmax(vector))
                self.truth[name] = decided if self._chance.random() < right else (decided + 1) % 3
                self.monitor.send(1, vector[None], id=name)
                self._sent += 1
            self.monitor.step()

    def tell(self, first: int = 0) -> None:
        """Send all labels from a record on: those outside the audit count only for labelled cases."""
        self.monitor.tell(dict(list(self.truth.items())[first:]))

    @property
    def accuracy(self) -> float:
        """The true accuracy."""
        decided = [int(np.argmax(HEALTHY[row % len(HEALTHY)])) for row in range(self._sent)]
        return float(np.mean([one == two for one, two in zip(decided, self.truth.values(), strict=True)]))


def whole(monitor: Monitor) -> SegmentReport:
    """Evaluate; return the report of the whole model."""
    return monitor.step().segments[0]


def test_confident_errors_are_seen_by_the_audit_alone(tmp_path: Path) -> None:
    """The estimates hold and say 80%, a sample of labels says 50%: the alert on the audit fires, all-clear is taken back."""
    monitor = Monitor(tmp_path, BELOW, labels=LABELS, audit=AuditOptions(0.3))
    exams = Exams(monitor)
    exams.send(2 * WINDOW, right=0.5)
    before = whole(monitor)
    assert before.verdict is Verdict.HOLDS
    assert before.alerts[0].phase is AlertPhase.OK
    exams.tell()
    monitor.step()
    monitor.step()
    after = whole(monitor)
    assert after.labels is not None
    found = after.labels.horizon.audited
    assert found is not None
    # The key of the hashes is random, and so is the sample.
    assert found.value == pytest.approx(exams.accuracy, abs=0.2)
    assert found.lower < found.value < found.upper
    assert (found.picked, found.came) == (found.labels, 1.0)
    assert found.labels < 0.5 * len(exams.truth)
    assert after.alerts[0].phase is AlertPhase.FIRING
    assert after.track_record is not None
    assert after.track_record.summary().wrong
    assert after.verdict is None


def test_healthy_estimates_keep_their_verdict(tmp_path: Path) -> None:
    """Labels that agree with the estimates change nothing."""
    monitor = Monitor(tmp_path, BELOW, labels=LABELS, audit=AuditOptions(1.0))
    exams = Exams(monitor)
    exams.send(2 * WINDOW, right=monitor.evaluator.reference.calibration.accuracy)  # type: ignore[union-attr]
    exams.tell()
    monitor.step()
    report = whole(monitor)
    assert report.track_record is not None
    summary = report.track_record.summary()
    assert (summary.blocks, summary.wrong, report.verdict) == (2, False, Verdict.HOLDS)
    assert report.alerts[0].phase is AlertPhase.OK


@pytest.mark.parametrize("killed", [False, True])
def test_blocks_are_the_windows_that_follow_each_other(tmp_path: Path, *, killed: bool) -> None:
    """Each record is in one block, and labels of some blocks are those of their records."""
    monitor = Monitor(tmp_path, labels=LABELS)
    exams = Exams(monitor)
    for part in range(4):
        exams.send(WINDOW, right=0.5 + 0.1 * part)
        if killed:
            monitor.restart()
    exams.tell(first=2 * WINDOW)
    monitor.step()
    record = whole(monitor).track_record
    assert record is not None
    assert [record[place].records for place in range(len(record))] == [WINDOW] * 4
    truths = [record[place].truth for place in range(len(record))]
    assert [None if one is None else one.labels for one in truths] == [None, None, WINDOW, WINDOW]
    assert truths[3] is not None
    assert not truths[3].audited
    assert truths[3].value == pytest.approx(0.8, abs=0.06)


def test_a_truth_outlives_its_labels(tmp_path: Path) -> None:
    """Beyond the horizon predictions and labels are gone; what they said of a block stays."""
    monitor = Monitor(tmp_path, labels=LabelOptions(horizon_seconds=2 * DAY), audit=AuditOptions(1.0))
    exams = Exams(monitor)
    exams.send(WINDOW, right=0.7)
    exams.tell()
    monitor.step()
    before = whole(monitor)
    assert before.track_record is not None
    said = before.track_record[0].truth
    assert said is not None
    monitor.step(3 * DAY)
    monitor.restart()
    exams.send(10, right=0.7, times=1)
    after = whole(monitor)
    assert after.track_record is not None
    assert after.labels is not None
    assert after.labels.horizon.labels == 0
    assert after.track_record[0].truth == said


def test_a_track_record_is_of_the_reference_in_use(tmp_path: Path) -> None:
    """Who calibrates again, because the estimates were wrong, would otherwise be told so until a new block is judged."""
    monitor = Monitor(tmp_path, labels=LABELS)
    exams = Exams(monitor)
    exams.send(2 * WINDOW, right=0.3)
    exams.tell()
    monitor.step()
    before, old = whole(monitor).track_record, monitor.evaluator.reference
    assert before is not None
    assert old is not None
    again = Reference.calibrate(*synthetic(300, 3, seed=7), model=old.model, version=old.version, classes=old.classes)
    monitor.restart(reference=again)
    after = whole(monitor).track_record
    assert after is not None
    # The window is still full: it is judged with the new estimates.
    assert (len(before), len(after)) == (2, 1)
    assert after[0].answers["doc"] != before[1].answers["doc"]


def test_blocks_go_on_after_the_clock_was_ahead(tmp_path: Path) -> None:
    """Otherwise the next block would have to wait for the time that the clock showed."""
    monitor = Monitor(tmp_path, labels=LABELS)
    exams = Exams(monitor)
    monitor.now += 90 * DAY
    exams.send(WINDOW, right=0.7)
    monitor.now -= 90 * DAY
    monitor.restart()
    exams.send(2 * WINDOW, right=0.7)
    record = whole(monitor).track_record
    assert record is not None
    assert len(record) > 0
    assert record.newest_at <= monitor.now


def test_labels_of_other_records_with_the_same_time_do_not_make_a_block_certain(tmp_path: Path) -> None:
    """A batch without times is one moment: a block has a part of it, the labels are of all."""
    monitor = Monitor(tmp_path, labels=LABELS, audit=AuditOptions(1.0))
    exams = Exams(monitor)
    exams.send(3 * WINDOW, right=0.7, times=1)
    exams.tell()
    monitor.step()
    record = whole(monitor).track_record
    assert record is not None
    truth = record[0].truth
    assert truth is not None
    assert truth.lower < truth.value < truth.upper


def test_a_block_is_judged_when_its_labels_have_come(tmp_path: Path) -> None:
    """Labels come in the order of the records: those of its first half, all right, do not speak for the whole."""
    monitor = Monitor(tmp_path, labels=LABELS, audit=AuditOptions(1.0))
    exams = Exams(monitor)
    exams.send(WINDOW // 2, right=1.0)
    exams.send(WINDOW // 2, right=0.0)
    names = list(exams.truth)
    for some, judged in ((names[: WINDOW // 2], 0), (names[WINDOW // 2 : -20], 1)):
        monitor.tell({name: exams.truth[name] for name in some})
        monitor.step()
        record = whole(monitor).track_record
        assert record is not None
        assert (len(record), record.summary().blocks) == (1, judged)


@pytest.mark.parametrize(("delay", "missing"), [(0.0, 0), (300.0, 300)])
def test_audited_records_without_any_label_are_missed_after_the_delay(
    tmp_path: Path, delay: float, missing: int
) -> None:
    """Without a delay nobody knows when their labels should come."""
    monitor = Monitor(tmp_path, labels=replace(LABELS, delay_seconds=delay), audit=AuditOptions(1.0))
    Exams(monitor).send(WINDOW, right=0.9)
    report = monitor.evaluate()
    assert report.windows.labels is not None
    assert report.windows.labels.sums.picked[1, 0] == missing
