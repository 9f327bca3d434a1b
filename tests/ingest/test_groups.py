"""Which records count as evidence of a change: each once, of a group the first, and none that was read before."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.core.change import Detector
from monitor.core.segments import ALL, Segment
from monitor.core.window import Bounds
from monitor.ingest import model_state
from monitor.ingest.model_state import ModelState
from monitor.state import commit_plan as chunk_log
from monitor.state.commit_plan import groups_name
from tests.ingest.lines import NOW, Process, expected, line
from tests.ingest.shards import Log, Replica

LOOKING = (Detector(),)
A: Segment = (("site", "A"),)
P, Q = "predictions/0", "predictions/1"


def sums(models: Sequence[ModelState], segment: Segment = ALL) -> list[int]:
    """Return the sums of a segment's evidence, over all shards."""
    evidence = models[0].evidence
    assert evidence is not None
    for model in models:
        model.windows.settle_evidence()
    return [int(one) for one in evidence.table.snapshot([segment]).sums[0]]


def commit(process: Process, plan: chunk_log.CommitPlan) -> None:
    """Commit a plan, then change memory."""
    process.ingestion.states.apply(plan, process.state.commit(plan, NOW), 0.0)


def grouped(folder: Path, lines: list[bytes], bounds: Bounds | None = None, **more: Any) -> Process:
    """Return a process of which each exam counts once."""
    process = Process(folder, lines, bounds=bounds, split_by=(("site",),), group_by="exam", detectors=LOOKING, **more)
    process.tick()
    return process


def of_each(folder: Path, numbers: Sequence[int], segment: Segment = ALL) -> list[int]:
    """Return the sums if these records come and each counts, one by one."""
    lines = [line(number, site="A", time=NOW - 1000 + number) for number in numbers]
    process = Process(folder, lines, split_by=(("site",),), detectors=LOOKING, at_once=1)
    process.tick()
    found = sums([process.model], segment)
    process.kill()
    assert found[0] == len(numbers)
    return found


def test_four_views_of_an_exam_count_once_but_all_enter_windows(tmp_path: Path) -> None:
    """Whatever their batches; records without an exam count each."""
    lines = [line(n, site="A", exam=f"exam-{n // 4}", time=NOW - 1000 + n) for n in range(40)]
    lines += [line(n, site="A", time=NOW - 1000 + n) for n in range(40, 45)]
    process = grouped(tmp_path / "grouped", lines)
    assert process.window(A) == expected(list(range(45)), [NOW - 1000 + n for n in range(45)])
    for segment in (ALL, A):
        one_by_one = of_each(tmp_path / f"each of {segment}", [*range(0, 40, 4), *range(40, 45)], segment)
        assert sums([process.model], segment) == one_by_one
    process.kill()


def test_a_group_is_known_over_batches_restarts_kills_and_merged_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Views of an exam come now or much later; every record has an id, and comes twice."""
    monkeypatch.setattr(chunk_log, "_FAN", 4)
    monkeypatch.setattr(chunk_log, "_SPARE_RECORDS", 20)
    monkeypatch.setattr(model_state, "_MERGED_BATCHES", 5)
    dice, lines, seen, first = random.Random(3), list[bytes](), set[int](), list[int]()  # noqa: S311
    process = grouped(tmp_path / "state", lines)
    for number in range(150):
        exam = dice.randrange(max(1, number - 60), number + 2)
        first += [] if exam in seen else [number]
        seen.add(exam)
        lines += [line(number, site="A", id=number, exam=exam, time=NOW - 1000 + number)] * 2
        if dice.random() < 0.4:
            process.tick()
        if dice.random() < 0.1:
            (process.kill if dice.random() < 0.5 else process.stop)()
            process = grouped(tmp_path / "state", lines)
    process.tick()
    assert process.counted("records_total", "lines", "density") == 150
    assert len(first) < 120
    assert sums([process.model]) == of_each(tmp_path / "each", first)
    process.kill()
    process = grouped(tmp_path / "state", lines)
    assert sums([process.model]) == of_each(tmp_path / "again", first)
    process.kill()


def test_memory_for_groups_is_bounded(tmp_path: Path) -> None:
    lines = [line(n, exam=f"exam-{n}") for n in range(50)]
    process = grouped(tmp_path, lines, most_ids=10)
    lines += [line(50, exam="exam-0"), line(51, exam="exam-49")]
    process.tick()
    assert sums([process.model])[0] == 51, "the first exam is forgotten, the last is not"
    assert len(process.model.groups) <= 20
    process.kill()
    process = grouped(tmp_path, lines, most_ids=10)
    assert 10 <= len(process.model.groups) <= 20
    process.kill()
    lines.append(line(52))
    process = Process(tmp_path, lines)
    process.tick()
    assert not list(process.state.ids([groups_name("density")])), "without group_by they are deleted"
    process.kill()


def test_what_does_not_count_does_not_use_up_its_group(tmp_path: Path) -> None:
    """Too old, of another version, or a duplicate."""
    lines = [line(0, id="a", site="A", time=NOW), line(1, exam="e1", time=NOW - 7200)]
    lines += [line(2, exam="e1", version="1.0"), line(3, exam="e1", id="a")]
    lines += [line(4, site="A", exam="e1", time=NOW - 60), line(5, site="A", exam="e1", time=NOW)]
    for at_once in (1, 7):
        process = grouped(tmp_path / str(at_once), lines[:at_once], Bounds(age_seconds=3600.0))
        process.source.lines.extend(lines[at_once:])
        process.tick()
        assert sums([process.model], A)[0] == sums([process.model])[0] == 2
        process.kill()


def test_rebuilt_windows_are_no_new_evidence(tmp_path: Path) -> None:
    """A partition moves between two processes, with and without their disks; each record counts for one of them.

    The exams of records that the other process counted are known too.
    """
    log: Log = {P: [line(n, exam=n // 4) for n in range(10)], Q: [line(n, exam=n // 4) for n in range(10)]}
    first = Replica(tmp_path / "first", log, group_by="exam", detectors=LOOKING)
    first.own(P, Q)
    assert sums(first.ingestion.states.of("density"))[0] == 6, "each partition knows its own exams"
    first.own(Q)
    log[P] += [line(n, exam=n // 4) for n in range(10, 17)]
    second = Replica(tmp_path / "second", log, group_by="exam", detectors=LOOKING)
    second.source.read_to = {P: 10}
    second.own(P)
    assert second.window() == sorted(expected(list(range(17))))
    models = second.ingestion.states.of("density")
    assert sums(models)[0] == 2, "exams 3 and 4; that of records 8 and 9 has counted"
    second.kill()
    second = Replica(tmp_path / "second", log, group_by="exam", detectors=LOOKING)
    second.own(P)
    assert sums(second.ingestion.states.of("density"))[0] == 2
    first.source.read_to = {P: 17}
    log[P] += [line(n, exam=n // 4) for n in range(17, 21)]
    first.own(P, Q)
    assert sums(first.ingestion.states.of("density"))[0] == 7, "exam 5"
    first.source.read_to = {P: 21}
    first.source.resets.add(P)
    log[P].append(line(21, exam=5))
    first.tick()
    assert sums(first.ingestion.states.of("density"))[0] == 7, "a reset forgets windows and exams, and both are rebuilt"
    for one in (first, second):
        one.kill()


def test_any_batches_count_the_same(tmp_path: Path) -> None:
    """Also a first record of its group behind a late one in the same batch."""
    times = [0, -30, -4000, 10, -3590, 20, 5, 7, -4000, 30, 31, 32]
    exams = [1, 1, 2, 3, 2, 2, 4, 3, 5, 5, None, None]
    lines = [line(n, exam=exam, time=NOW - 50 + at) for n, (at, exam) in enumerate(zip(times, exams, strict=True))]
    for cuts in itertools.combinations(range(1, 12), 2):
        process = grouped(tmp_path / repr(cuts), [], Bounds(age_seconds=3600.0), at_once=12)
        for start, end in itertools.pairwise([0, *cuts, 12]):
            process.source.lines.extend(lines[start:end])
            process.tick()
        assert sums([process.model])[0] == 7, cuts
        process.kill()


def test_a_restart_counts_partitions_that_are_not_assigned_yet(tmp_path: Path) -> None:
    """Their records have counted before the kill: an evaluation before they are assigned must not see less."""
    log: Log = {P: [line(n, site="A") for n in range(30)], Q: [line(n) for n in range(30, 45)]}
    replica = Replica(tmp_path, log, split_by=(("site",),), detectors=LOOKING)
    replica.own(P, Q)
    before = [sums(replica.ingestion.states.of("density"), one) for one in (ALL, A)]
    replica.kill()
    again = Replica(tmp_path, log, split_by=(("site",),), detectors=LOOKING)
    assert [sums(again.ingestion.states.of("density"), one) for one in (ALL, A)] == before
    again.own(P, Q)
    assert [sums(again.ingestion.states.of("density"), one) for one in (ALL, A)] == before
    again.kill()


def test_the_evidence_of_a_forgotten_segment_does_not_come_back(tmp_path: Path) -> None:
    """Neither after a kill right after it was forgotten, nor when its records come again."""
    lines = [line(n, site="A") for n in range(20)] + [line(n, site="B") for n in range(20, 25)]
    process = Process(tmp_path, lines, split_by=(("site",),), detectors=LOOKING)
    process.tick()
    states = process.ingestion.states
    plan = chunk_log.CommitPlan()
    states.plan_evidence(plan)
    commit(process, plan)
    commit(process, chunk_log.CommitPlan(deleted_windows=[("density", A)]))
    process.kill()
    process = Process(tmp_path, lines, split_by=(("site",),), detectors=LOOKING)
    lines += [line(n, site="A") for n in range(3)]
    process.tick()
    assert (sums([process.model], A)[0], sums([process.model])[0]) == (3, 28)
    commit(process, chunk_log.CommitPlan(deleted_windows=[("density", A)]))
    lines += [line(n, site="A") for n in range(3, 7)]
    process.tick()
    process.kill()
    process = Process(tmp_path, lines, split_by=(("site",),), detectors=LOOKING)
    assert (sums([process.model], A)[0], sums([process.model])[0]) == (4, 32)
    process.kill()


def test_evidence_that_begins_during_a_commit_is_stored_with_the_next(tmp_path: Path) -> None:
    process = Process(tmp_path, [line(n) for n in range(20)], detectors=LOOKING)
    process.tick()
    plan, states = chunk_log.CommitPlan(), process.ingestion.states
    states.plan_evidence(plan)
    states.begin_evidence("density", {ALL: np.full((1, 4), 0.5)}, NOW)
    commit(process, plan)
    evidence = process.model.evidence
    assert evidence is not None
    assert evidence.waits
    process.kill()


def test_dropped_records_start_the_evidence_anew(tmp_path: Path) -> None:
    """A source that is no longer configured: what evaluations took of its records is not in the sums any more."""
    log: Log = {P: [line(n) for n in range(30)]}
    replica = Replica(tmp_path, log, detectors=LOOKING)
    replica.own(P)
    evidence = replica.ingestion.states.common["density"].evidence
    assert evidence is not None
    before = evidence.table.snapshot([ALL]).since
    replica.kill()
    replica = Replica(tmp_path, log, source="other", detectors=LOOKING)
    evidence = replica.ingestion.states.common["density"].evidence
    assert evidence is not None
    assert evidence.table.snapshot([ALL]).since > before
    replica.kill()
