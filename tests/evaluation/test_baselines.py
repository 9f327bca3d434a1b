"""Own baselines are collected once from the first records, survive everything, and labelled ones are used."""

import json
import logging
import random
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.core.alerts import AlertPhase, AlertRule, AlertType, On
from monitor.core.baselines.comparison import (
    BaselineAction,
    BaselineKind,
    BaselineMode,
    BaselineOptions,
    OwnBaseline,
    Verdict,
)
from monitor.core.estimate import HEADLINE, Estimate
from monitor.core.report import Report
from monitor.core.segments import ALL, Segment
from monitor.errors import UnknownName, UsageError
from monitor.evaluation.evaluator import Evaluator
from monitor.evaluation.stored_values import baselines_key_of
from monitor.reference.reference import Reference
from tests.evaluation.driver import CLASSES, HEALTHY, LOW, POOR, START, Monitor, alert, monitor_reference, named
from tests.evaluation.test_shards import Member, P, Q
from tests.ingest.lines import line
from tests.strategies import synthetic

A: Segment = (("site", "A"),)
GAP = AlertRule("gap", AlertType.BASELINE_GAP, drop=0.10, for_seconds=0.0)
QUICK = replace(LOW, for_seconds=0.0, new_records=0.0, on=On.VALUE)


def own(evaluator: Evaluator, segment: Segment = A) -> OwnBaseline | None:
    """Return the own baseline of a segment."""
    baselines = evaluator._baselines  # noqa: SLF001 - reports show only part of it
    assert baselines is not None
    return baselines.own.get(segment)


def headline(report: Report, segment: str) -> float:
    """Return the headline of a segment."""
    found = named(report, segment).results[HEADLINE]
    assert isinstance(found, Estimate)
    return found.accuracy


def small(folder: Path, *rules: AlertRule, **options: object) -> Monitor:
    """Return a monitor with windows of 300 records by site, and baselines of as many."""
    given = {"baseline": BaselineOptions(records=300), "window": 300, **options}
    return Monitor(folder, *rules, split=True, **given)  # type: ignore[arg-type]  # its own options


def test_the_first_full_window_is_the_baseline(tmp_path: Path) -> None:
    """A poor segment is not compared with the reference, and a fall since is found; until then, `drop` is held."""
    monitor = small(tmp_path, QUICK)
    while (found := own(monitor.evaluator)) is None or not found.complete:
        assert len(monitor.lines) <= 300
        monitor.send(60, POOR, site="A")
        report = monitor.step()
    assert len(monitor.lines) == 300
    baseline = named(report, "site=A").baseline
    assert baseline is not None
    assert (baseline.kind, baseline.records, baseline.verified) == (BaselineKind.OWN, 300, False)
    assert baseline.accuracy == headline(report, "site=A")
    assert alert(report, "site=A").threshold == pytest.approx(baseline.accuracy - 0.05)
    assert named(report, "all").baseline.kind is BaselineKind.REFERENCE  # type: ignore[union-attr]
    for _ in range(5):
        monitor.send(60, POOR, site="A")
        report = monitor.step()
    assert (alert(report, "site=A").phase, named(report, "site=A").verdict) == (AlertPhase.OK, Verdict.HOLDS)
    for _ in range(8):
        monitor.send(60, synthetic(600, 3, seed=4, sharpness=0.3)[0], site="A")
        report = monitor.step()
    assert (alert(report, "site=A").phase, named(report, "site=A").verdict) == (AlertPhase.FIRING, Verdict.FELL)
    assert own(monitor.evaluator) == found


def test_while_it_is_collected_drop_is_held(tmp_path: Path) -> None:
    monitor = small(tmp_path, QUICK)
    monitor.send(250, POOR, site="A")
    report = monitor.step()
    assert (alert(report, "site=A").held, alert(report, "site=A").threshold) == (True, None)
    assert alert(report).held is False


def test_a_segment_that_was_broken_from_its_first_record_raises_an_alert_until_it_is_confirmed(tmp_path: Path) -> None:
    """Also while its baseline is collected. A reset makes it unverified again."""
    monitor = small(tmp_path, GAP)
    monitor.send(250, POOR, site="A")
    monitor.send(300, HEALTHY, site="B")
    report = monitor.step()
    with pytest.raises(UsageError, match="still collected"):
        monitor.evaluator.change_baseline("site=A", BaselineAction.CONFIRM)
    for _ in range(3):
        monitor.send(50, POOR, site="A")
        report = monitor.step()
    assert [alert(report, f"site={one}").phase for one in "AB"] == [AlertPhase.FIRING, AlertPhase.OK]
    monitor.evaluator.change_baseline("site=A", BaselineAction.CONFIRM)
    monitor.step()
    assert alert(monitor.step(), "site=A").phase is AlertPhase.OK
    monitor.restart()
    assert named(monitor.step(), "site=A").baseline.verified  # type: ignore[union-attr]
    monitor.evaluator.change_baseline("site=A", BaselineAction.RESET)
    for _ in range(3):
        report = monitor.step()
    assert alert(report, "site=A").phase is AlertPhase.FIRING


def test_a_command_that_cannot_be_is_refused(tmp_path: Path) -> None:
    monitor = small(tmp_path)
    monitor.send(60, site="A")
    monitor.step()
    with pytest.raises(UnknownName, match="none of that name"):
        monitor.evaluator.change_baseline("site=B", BaselineAction.RESET)
    with pytest.raises(UsageError, match="one with baseline reference"):
        monitor.evaluator.change_baseline("all", BaselineAction.RESET)


@cache
def _labelled() -> Reference:
    """A reference with labels of a poor site A and a good site B."""
    parts = [synthetic(1500, 3, seed=5, sharpness=0.9), synthetic(1500, 3, seed=6, sharpness=2.6)]
    vectors, labels = (np.concatenate(some) for some in zip(*parts, strict=True))
    sites = ["A"] * 1500 + ["B"] * 1500
    return Reference.calibrate(
        vectors, labels, model="density", version="2.1", classes=CLASSES, segments={"site": sites}
    )


def test_a_labelled_segment_is_corrected_and_compared_with_its_own_accuracy(tmp_path: Path) -> None:
    """At once, and as verified. With `baseline: reference` it is as it was: all segments have the same threshold."""
    reference = _labelled()
    labelled = reference.calibration.segments
    assert labelled is not None
    for mode in (BaselineMode.AUTO, BaselineMode.REFERENCE):
        options = BaselineOptions(mode)
        monitor = Monitor(tmp_path / mode, QUICK, GAP, split=True, window=400, baseline=options, reference=reference)
        monitor.send(400, POOR, site="A")
        monitor.send(400, POOR, site="C")
        report = monitor.step()
        snapshot = monitor.ingestion.view.snapshot("density", monitor.now, monitor.running)
        plain = reference.calibration.estimate_windows(snapshot.measured)
        site, other = named(report, "site=A"), named(report, "site=C")
        raw = plain.accuracy[plain.names.index(HEADLINE), list(snapshot.segments).index(A)]
        bias = labelled.bias[labelled.names.index(HEADLINE), labelled.places([A])[0]]
        assert site.baseline is not None
        if mode is BaselineMode.AUTO:
            assert (site.baseline.kind, site.baseline.verified) == (BaselineKind.LABELLED, True)
            assert site.alerts[0].threshold == pytest.approx(labelled[A].accuracy - 0.05, abs=1e-12)
            assert headline(report, "site=A") == pytest.approx(raw - bias, abs=1e-12)
            assert (other.baseline.kind, other.alerts[0].held) == (BaselineKind.OWN, True)  # type: ignore[union-attr]
            continue
        # To the bit.
        assert headline(report, "site=A") == raw
        assert {one.alerts[0].threshold for one in report.segments} == {reference.calibration.accuracy - 0.05}
        assert [one.alerts[0].phase for one in report.segments] == [AlertPhase.PENDING] * 3
        assert not any(one.alerts[1].firing or one.alerts[1].held for one in report.segments)
        assert own(monitor.evaluator) is None


def test_a_new_reference_starts_own_baselines_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the log says so, once. The same reference again does not."""
    monitor = small(tmp_path)
    monitor.send(300, POOR, site="A")
    monitor.step()
    monitor.evaluator.change_baseline("site=A", BaselineAction.CONFIRM)
    monitor.step()
    before = own(monitor.evaluator)
    with caplog.at_level(logging.INFO):
        monitor.restart()
        assert own(monitor.evaluator) == before
        assert "start anew" not in caplog.text
        monitor.restart(reference=_labelled())
        assert own(monitor.evaluator) is None
        monitor.step()
        monitor.restart()
    assert caplog.text.count("density: the reference changed, so own baselines start anew") == 1


@pytest.mark.parametrize(("minutes", "first"), [(0, 30), (100, 100)], ids=["in the period", "after it"])
def test_a_period_takes_the_windows_in_it_or_the_first_after_it(tmp_path: Path, minutes: int, first: int) -> None:
    """Ten records a minute in windows of 100; the segment is there from the first or from the hundredth minute on."""
    options = BaselineOptions(period=(START + 30 * 60.0, START + 60 * 60.0))
    monitor = small(tmp_path, baseline=options, window=100, minimum=50)
    for minute in range(1, 180):
        if minute >= minutes:
            monitor.send(10, at=START + minute * 60.0, site="A")
        monitor.step()
    found = own(monitor.evaluator)
    assert found is not None
    assert found.complete
    assert found.first_at == START + first * 60.0
    assert found.records == (300 if minutes == 0 else 500)


def test_windows_by_age_are_full_after_their_time(tmp_path: Path) -> None:
    """With few records, several of them make a baseline."""
    monitor = small(tmp_path, age=1800.0, minimum=20, baseline=BaselineOptions(records=200))
    for _ in range(200):
        monitor.send(3, site="A")
        monitor.step()
    found = own(monitor.evaluator)
    assert found is not None
    assert (found.complete, found.records) == (True, 279)


# Kept while partitions move.


def test_it_is_kept_while_its_partition_is_elsewhere_and_before_the_assignment(tmp_path: Path) -> None:
    log = {P: [line(n, site="A") for n in range(40)], Q: [line(n, site="B") for n in range(100, 140)]}
    options = BaselineOptions(records=30)
    member = Member(tmp_path / "state", log, baseline=options)
    member.replica.own(P, Q)
    member.evaluate()
    before = own(member.evaluator)
    assert before is not None
    assert before.complete
    stored = member.evaluator.changed_baselines()
    member.replica.own(Q)
    member.evaluate()
    log[P] += [line(n, site="A") for n in range(200, 260)]
    member.replica.own(P, Q)
    member.evaluate()
    assert own(member.evaluator) == before
    member.replica.kill()
    member = Member(tmp_path / "state", log, baseline=options)
    member.evaluator.restore_baselines(stored)
    member.evaluate()
    member.replica.own(P, Q)
    member.evaluate()
    assert own(member.evaluator) == before


# An oracle that knows each record.


@dataclass
class _Collected:
    """What the oracle knows of one site's baseline: sets of records in place of times."""

    blocks: list[set[int]] = field(default_factory=list)
    before_reset: set[int] = field(default_factory=set)
    waits: bool = False
    """Whether a reset waits for an evaluation."""


class Oracle:
    """Follows a monitor, and checks each baseline after each evaluation."""

    def __init__(self, monitor: Monitor, window: int, needed: int) -> None:
        self.monitor, self._window, self._needed = monitor, window, needed
        self.sites = {site: _Collected() for site in "AB"}
        self._durable = deepcopy(self.sites)
        self._ingested = 0
        self.counted = 0

    def tick(self) -> None:
        """Ingest and commit."""
        self.monitor.tick()
        self._ingested, self._durable = len(self.monitor.lines), deepcopy(self.sites)

    def kill(self) -> None:
        """Kill and restart: what was not committed is lost."""
        self.monitor.restart()
        self.sites = deepcopy(self._durable)

    def reset(self, site: str) -> None:
        """Reset a baseline as the daemon does: it is stored with the next commit."""
        self.monitor.evaluator.change_baseline(f"site={site}", BaselineAction.RESET)
        self.monitor.ingestion.values.store(baselines_key_of("density"), self.monitor.evaluator.changed_baselines())
        self.sites[site] = _Collected(waits=True)

    def evaluate(self) -> None:
        """Evaluate, and check the baselines of all sites."""
        report = self.monitor.evaluate()
        records = [json.loads(one) for one in self.monitor.lines[: self._ingested]]
        for site, known in self.sites.items():
            mine = [number for number, one in enumerate(records) if one["site"] == site]
            if mine:
                valid = any(one.valid for one in report.segments if one.name == f"site={site}")
                self._check(site, known, mine, records, valid=valid)

    def _check(
        self, site: str, known: _Collected, mine: list[int], records: list[dict[str, Any]], *, valid: bool
    ) -> None:
        times = {number: records[number]["time"] for number in mine}
        window = set(sorted(mine, key=lambda number: (times[number], number))[-self._window :])
        if known.waits:
            known.waits, known.before_reset = False, set(mine)
        counted = set[int]().union(*known.blocks)
        found = own(self.monitor.evaluator, (("site", site),)) or OwnBaseline("")
        if found.records > len(counted):
            assert found.records == len(counted) + len(window)
            assert not window & counted
            assert not window & known.before_reset
            known.blocks.append(window)
            counted |= window
            self.counted += 1
        elif valid and not found.complete and len(window) == self._window:
            latest = max((times[number] for number in counted | known.before_reset), default=0.0)
            assert min(times[number] for number in window) <= latest
        assert found.records == len(counted)
        assert found.complete == (len(counted) >= self._needed)
        if counted:
            classes = [int(np.argmax(records[number]["probs"])) for number in counted]
            assert list(found.decided) == np.bincount(classes, minlength=3).tolist()
            assert sum(found.confidence) == len(counted)
            assert found.last_at == max(times[number] for number in known.blocks[-1])
            assert found.first_at == min(times[number] for number in known.blocks[0])


@pytest.mark.parametrize("seed", range(6))
def test_no_record_counts_twice_or_from_before_a_reset_after_any_history(tmp_path: Path, seed: int) -> None:
    """Batches with late records, evaluations, kills before and after commits, restarts and resets."""
    chance = random.Random(seed)  # noqa: S311 - a test
    window, needed = 40, 100
    options = BaselineOptions(records=needed)
    oracle = Oracle(Monitor(tmp_path, split=True, window=window, minimum=10, baseline=options), window, needed)
    monitor = oracle.monitor
    for _ in range(250):
        monitor.now += chance.choice([0.0, 1.0, 30.0])
        monitor.running += 30.0
        for _ in range(chance.randrange(12)):
            late = chance.choice([0.0, 0.0, 5.0, 100.0])
            monitor.send(1, at=monitor.now - late, site=chance.choice("AAAB"))
        if chance.random() < 0.8:
            oracle.tick()
        if chance.random() < 0.7:
            oracle.evaluate()
        if chance.random() < 0.1:
            oracle.kill()
        if chance.random() < 0.02 and own(monitor.evaluator) is not None:
            oracle.reset("A")
    assert oracle.counted > 5
    assert monitor_reference().fingerprint in {one.of for one in [own(monitor.evaluator)] if one is not None}


def test_maintenance_by_command_holds_a_segment_or_all_and_survives_a_restart(tmp_path: Path) -> None:
    """Beside the periods of the rule; a model without a change alert has nothing to hold."""
    rule = AlertRule("drop", AlertType.CHANGE, maintenance=((START - 100.0, START - 50.0),))
    monitor = small(tmp_path, rule)
    monitor.send(10, site="A")
    monitor.step()
    monitor.evaluator.hold_changes(START + 500.0, "site=A")
    monitor.evaluator.hold_changes(START + 200.0, None)
    with pytest.raises(UnknownName):
        monitor.evaluator.hold_changes(START + 500.0, "site=B")
    monitor.evaluate()
    monitor.tick()
    monitor.restart()
    held = monitor.evaluator.in_maintenance
    assert [held(rule, START + age, ALL) for age in (199.0, 200.0)] == [True, False]
    site, scanner = (("site", "A"),), (("site", "A"), ("scanner", "2"))
    assert [held(rule, START + age, one) for one in (site, scanner) for age in (499.0, 500.0)] == [True, False] * 2
    monitor.evaluator.hold_changes(0.0, None)
    assert [held(rule, START + age, ALL) for age in (-101.0, -100.0, -50.0)] == [False, True, False]
    assert not held(rule, START, site), "the end of all maintenance left out that of a segment"
    with pytest.raises(UsageError, match="expected one with an alert of type change, found one without"):
        small(tmp_path / "other", QUICK).evaluator.hold_changes(START, None)
