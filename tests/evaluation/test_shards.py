"""A model that several processes share: alerts during rebalances, and the parts of each process."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from monitor.config.config import ModelConfig
from monitor.core.alerts import AlertPhase, AlertRule, On
from monitor.core.baselines.comparison import BaselineOptions
from monitor.core.estimate import CONSENSUS, Estimate, WindowState
from monitor.core.report import Report
from monitor.core.segments import Segmentation
from monitor.core.totals import Gauge, MeasuredWindows, totals_of
from monitor.core.window import Bounds
from monitor.evaluation.evaluator import Evaluator
from monitor.reference.reference import Reference
from monitor.sources.base import SourceStatus
from tests.evaluation.driver import named, whole
from tests.ingest.lines import NOW, line, small_reference
from tests.ingest.shards import Log, Replica
from tests.strategies import synthetic

P, Q = "predictions/0", "predictions/1"
SITE_A, SITE_B = "site=A", "site=B"
ALWAYS = AlertRule("accuracy_low", below=1.0, on=On.VALUE, for_seconds=0.0, new_records=0.0, hysteresis=0.0)
SPLIT = (("site",),)
HOUR = 3600.0


class Member:
    """A process that owns some partitions."""

    def __init__(
        self,
        folder: Path,
        log: Log,
        *,
        minimum: int = 5,
        stored: bytes | None = None,
        baseline: BaselineOptions | None = None,
    ) -> None:
        self.replica = Replica(folder, log, bounds=Bounds(records=50), split_by=SPLIT)
        config = ModelConfig(
            "density",
            None,
            bounds=Bounds(records=50),
            segmentation=Segmentation(SPLIT),
            minimum_records=minimum,
            alerts=(ALWAYS,),
            baseline=baseline or BaselineOptions(),
        )
        self.evaluator = Evaluator(config, small_reference(), self.replica.ingestion.view, shared=True)
        self.evaluator.restore(stored)
        self._seconds = 0.0

    def waits(self, sentence: str | None) -> None:
        """Set what the source waits for."""
        self.replica.source.status = lambda: SourceStatus("shards", "shards", sentence)  # type: ignore[method-assign]

    def evaluate(self, after: float = 60.0, *, poll: bool = True) -> Report:
        """Poll, and evaluate after a while."""
        self._seconds += after
        if poll:
            self.replica.ingestion.tick(NOW + self._seconds, self._seconds)
        return self.evaluator.evaluate(NOW + self._seconds, self._seconds, self._seconds)


@pytest.fixture
def log() -> Log:
    """Two partitions, each with the records of one site."""
    return {P: [line(n, site="A") for n in range(20)], Q: [line(n, site="B") for n in range(100, 120)]}


def fired(member: Member, log: Log) -> None:
    """Bring all alerts of both sites to fire."""
    member.replica.own(P, Q)
    member.evaluate()
    for partition, site in ((P, "A"), (Q, "B")):
        log[partition] += [line(n + len(log[partition]), site=site) for n in range(1000, 1005)]
    member.replica.tick()
    report = member.evaluate()
    assert {one.name: one.alerts[0].phase for one in report.segments} == dict.fromkeys(
        ("all", SITE_A, SITE_B), AlertPhase.FIRING
    )


def test_an_alert_is_held_while_its_partition_moves(tmp_path: Path, log: Log) -> None:
    """The group revokes everything and assigns it again: no alert resolves meanwhile."""
    member = Member(tmp_path / "state", log)
    fired(member, log)
    member.waits("the group")
    member.replica.own()
    report = member.evaluate()
    for site in (SITE_A, SITE_B):
        (alert,) = named(report, site).alerts
        assert (named(report, site).state, alert.phase, alert.held) == (
            WindowState.CATCHING_UP,
            AlertPhase.FIRING,
            True,
        )
    member.waits(None)
    member.replica.own(P, Q)
    assert named(member.evaluate(), SITE_A).alerts[0].phase is AlertPhase.FIRING


def test_an_alert_of_a_segment_that_moved_to_another_process_is_dropped(tmp_path: Path, log: Log) -> None:
    """The other process reports it; here it would fire for ever."""
    member = Member(tmp_path / "state", log)
    fired(member, log)
    member.replica.own(Q)
    report = member.evaluate()
    assert {one.name for one in report.segments} == {"all", SITE_B}
    member.replica.own(P, Q)
    assert named(member.evaluate(), SITE_A).alerts[0].phase is not AlertPhase.FIRING


def test_a_restart_before_the_assignment_keeps_firing_alerts(tmp_path: Path, log: Log) -> None:
    """Also after a second kill before the assignment."""
    member = Member(tmp_path / "state", log)
    fired(member, log)
    stored = member.evaluator.alert_state_bytes()
    for _ in range(2):
        member.replica.kill()
        member = Member(tmp_path / "state", log, stored=stored)
        member.waits("the group")
        member.replica.tick()
        report = member.evaluate()
        assert {one.name: one.alerts[0].firing for one in report.segments} == dict.fromkeys(
            ("all", SITE_A, SITE_B), True
        )
        stored = member.evaluator.alert_state_bytes()
    member.waits(None)
    member.replica.own(P, Q)
    report = member.evaluate()
    assert [named(report, site).alerts[0].phase for site in (SITE_A, SITE_B)] == [AlertPhase.FIRING] * 2


def test_stored_alerts_of_missing_segments_are_dropped(tmp_path: Path, log: Log) -> None:
    member = Member(tmp_path / "state", log)
    fired(member, log)
    stored = member.evaluator.alert_state_bytes()
    member.replica.kill()
    member = Member(tmp_path / "state", log, stored=stored)
    member.replica.own(Q)
    assert {one.name for one in member.evaluate().segments} == {"all", SITE_B}
    assert SITE_A.encode() not in member.evaluator.alert_state_bytes()
    assert b'"A"' not in member.evaluator.alert_state_bytes()


def test_missing_segments_are_limited(tmp_path: Path, log: Log) -> None:
    """While a long backlog is read, thousands of segments come and go."""
    member = Member(tmp_path / "state", log)
    fired(member, log)
    few = Segmentation(SPLIT, most_segments=1)
    member.evaluator.config = replace(member.evaluator.config, segmentation=few)
    member.waits("the group")
    member.replica.own()
    assert len(member.evaluate().segments) == 2


def test_a_source_that_is_not_ready_but_holds_partitions_is_not_catching_up(tmp_path: Path, log: Log) -> None:
    """One topic of several is missing: the others are read."""
    member = Member(tmp_path / "state", log)
    member.replica.own(P, Q)
    member.waits("a topic")
    assert whole(member.evaluate()).valid


# Parts of each process


def test_a_process_below_the_minimum_reports_its_part_and_no_estimate(tmp_path: Path, log: Log) -> None:
    member = Member(tmp_path / "state", log, minimum=1000)
    member.replica.own(P, Q)
    report = whole(member.evaluate())
    assert (report.state, report.results, report.valid) == (WindowState.WARMING, {}, False)
    assert report.parts["ac"].records == 40
    assert report.fresh


def test_a_stale_process_reports_its_part_as_not_fresh(tmp_path: Path, log: Log) -> None:
    """The sum must not depend on which process owns the records of a silent site."""
    member = Member(tmp_path / "state", log)
    member.replica.own(P, Q)
    member.evaluate()
    report = whole(member.evaluate(after=5 * HOUR))
    assert (report.state, report.results) == (WindowState.STALE, {})
    assert report.parts["ac"].records == 40
    assert not report.fresh


def test_there_are_no_parts_while_catching_up_or_without_records(tmp_path: Path, log: Log) -> None:
    member = Member(tmp_path / "state", log)
    member.replica.own()
    assert whole(member.evaluate()).parts == {}
    member.replica.own(P, Q)
    assert whole(member.evaluate()).parts != {}
    member.replica.ingestion.backlog.invalidate()
    assert whole(member.evaluate(poll=False)).parts == {}


def test_a_model_that_is_not_shared_has_no_parts(tmp_path: Path, log: Log) -> None:
    member = Member(tmp_path / "state", log, minimum=1000)
    member.evaluator.shared = False
    member.replica.own(P, Q)
    assert whole(member.evaluate()).parts == {}


def _parts(totals: MeasuredWindows) -> dict[str, Estimate]:
    found = totals.estimate().estimators
    return {name: one for name, one in found.items() if isinstance(one, Estimate)}


MOVES_WITH_THE_WINDOW = {f"{name}{scaled}" for name in ("cpc_ac", "cpc_ac_anchored") for scaled in ("", "_ts")}


@pytest.mark.parametrize("shares", [1, 3, 8])
def test_parts_add_up_to_the_estimate_over_all_records(shares: int) -> None:
    """Also where the part of one process alone would be clipped at 1, and that of another at 0."""
    vectors = synthetic(500, 3, seed=1, sharpness=0.7)[0]
    # An underconfident reference: DOC of a confident window exceeds 1.
    labels = np.where(np.arange(500) % 20 == 0, 0, vectors.argmax(axis=1))
    reference = Reference.calibrate(vectors, labels, model="density", version="", classes=("a", "b", "c"))
    gauge = Gauge(reference.calibration)
    sure, unsure = synthetic(900, 3, seed=2, sharpness=9.0)[0], synthetic(700, 3, seed=3, sharpness=0.1)[0]
    together = np.concatenate([sure, unsure])
    of_each = [_parts(totals_of(gauge, some)) for some in np.array_split(together, shares)]
    of_all = _parts(totals_of(gauge, together))
    additive = of_all.keys() - MOVES_WITH_THE_WINDOW - {CONSENSUS}
    assert len(additive) == 15
    for name in additive:
        merged = sum(part[name].total for part in of_each) / sum(part[name].records for part in of_each)
        assert min(1.0, max(0.0, merged)) == pytest.approx(of_all[name].accuracy, rel=1e-12)
    if shares > 1:
        assert any(part[name].unclipped is not None for part in of_each for name in additive)
