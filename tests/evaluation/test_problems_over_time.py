"""Input problems of a real ingestion and evaluation: what is one, what is not, and what a restart does."""

from pathlib import Path

import msgspec
import pytest

from monitor.core.alerts import AlertRule, AlertType
from monitor.core.estimate import WindowState
from monitor.core.input_health import InputProblem
from monitor.core.report import Report
from monitor.evaluation.stored_values import AlertMemory
from tests.evaluation.driver import HEALTHY, Monitor, whole

DAY = 86400.0
ELSEWHERE = AlertRule("elsewhere", below=0.5, segments=("site=Z",))


def found(report: Report) -> list[str]:
    """Return the problems of a report."""
    return [str(one.problem) for one in report.input.problems]


def test_a_problem_and_its_start_survive_a_restart(tmp_path: Path) -> None:
    """Without a single new record."""
    monitor = Monitor(tmp_path, ELSEWHERE, split=True)
    monitor.send(150)
    before = monitor.step()
    assert found(before) == ["segment_never_seen", "alert_matches_nothing"]
    monitor.restart()
    after = monitor.step()
    assert found(after) == found(before)
    assert after.input.problems[0].since == before.input.problems[0].since


def test_alert_state_of_an_older_cpcmon_still_loads() -> None:
    """It has no input problems."""
    stored = msgspec.json.encode({"versions": {"right": 7, "other": 0, "of": "2.1"}, "windows": [], "version": 1})
    memory = AlertMemory.from_bytes(stored)
    assert memory is not None
    assert (memory.versions.right, memory.input.shares) == (7, {})


def test_records_from_while_it_was_stopped_are_not_far_behind(tmp_path: Path) -> None:
    """But records that arrive like this while it runs are."""
    monitor = Monitor(tmp_path)
    assert found(monitor.run(600.0, a_minute=20)) == []
    since = monitor.now
    monitor.restart(3 * DAY)
    monitor.send(2000, at=since + 3600.0)
    assert found(monitor.step()) == []
    monitor.send(2000, at=since + 7200.0)
    assert found(monitor.step()) == ["time_behind"]
    assert found(monitor.run(6000.0, a_minute=50)) == []


def test_a_backlog_is_not_far_behind(tmp_path: Path) -> None:
    """Neither an archive that is there at the first start, nor the rest of a backlog after the last evaluation in it."""
    monitor = Monitor(tmp_path)
    monitor.send(1500, at=monitor.now - 5 * DAY)
    assert found(monitor.step()) == []
    assert found(monitor.run(600.0)) == []
    since = monitor.now
    monitor.now += 2 * DAY
    monitor.ingestion.backlog.invalidate()
    assert whole(monitor.evaluate()).state is WindowState.CATCHING_UP
    monitor.send(2000, at=since)
    assert found(monitor.step()) == []
    assert found(monitor.run(600.0)) == []
    monitor.send(2000, at=since)
    assert found(monitor.step()) == ["time_behind"]


@pytest.mark.parametrize("rules", [(), (AlertRule("drop", AlertType.CHANGE),)])
def test_a_batch_larger_than_the_window_is_not_late(tmp_path: Path, rules: tuple[AlertRule, ...]) -> None:
    """Later records of the batch displace earlier ones; an archive that is sent again is late. Evidence needs all of them."""
    monitor = Monitor(tmp_path, *rules)
    for _ in range(3):
        monitor.send(20_000)
        assert found(monitor.step()) == []
    for _ in range(2):
        monitor.send(20_000, at=monitor.now - 7200.0)
        report = monitor.step()
    assert found(report) == ["late"]


def test_of_a_shared_model_another_process_may_have_the_segment(tmp_path: Path) -> None:
    """So an alert that matches none here is no problem."""
    monitor = Monitor(tmp_path, ELSEWHERE, split=True)
    monitor.evaluator.shared = True
    monitor.send(150, site="A")
    assert found(monitor.step()) == []


def test_classes_in_another_order_are_said_from_the_first_records(tmp_path: Path) -> None:
    """And no longer once the window holds records in the right order."""
    monitor = Monitor(tmp_path, minimum=200)
    monitor.send(120, HEALTHY[HEALTHY.argmax(axis=1) == 1])
    report = monitor.step()
    assert found(report) == [InputProblem.CLASS_MIX]
    assert report.input.problems[0].names == ("dog",)
    assert found(monitor.run(3000.0, a_minute=20)) == []
