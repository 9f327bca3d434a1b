"""`state_since` of a window: over evaluations, restarts, failures and clock jumps."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from monitor.core.estimate import WindowState
from monitor.core.input_health import VersionCounts
from monitor.core.segments import ALL
from monitor.evaluation.stored_values import AlertMemory, WindowAlertState
from tests.evaluation.driver import START, Monitor, whole


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """A monitor without alerts and records."""
    found = Monitor(tmp_path / "state")
    yield found
    found.kill()


def test_it_is_the_time_of_the_first_evaluation_in_the_state(monitor: Monitor) -> None:
    first = whole(monitor.step())
    assert (first.state, first.state_since) == (WindowState.WARMING, START + 60.0)
    assert whole(monitor.step()).state_since == START + 60.0
    monitor.send(400)
    found = [whole(monitor.step()) for _ in range(3)]
    assert {(one.state, one.state_since) for one in found} == {(WindowState.OK, START + 180.0)}


def test_it_is_kept_over_a_restart(monitor: Monitor) -> None:
    monitor.send(400)
    since = whole(monitor.step()).state_since
    monitor.step()
    monitor.restart(away=30.0)
    after = whole(monitor.step())
    assert (after.state, after.state_since) == (WindowState.OK, since)


def test_a_state_that_changes_over_a_restart_is_new(monitor: Monitor) -> None:
    monitor.send(400)
    monitor.step()
    monitor.restart(minimum_records=450)
    after = whole(monitor.step())
    assert (after.state, after.state_since) == (WindowState.TOO_FEW_RECORDS, monitor.now)


def test_a_retracted_report_restarts_it(monitor: Monitor) -> None:
    monitor.send(400)
    monitor.step()
    monitor.evaluator.retracted_at = monitor.now + 30.0
    after = whole(monitor.step())
    assert (after.state, after.state_since) == (WindowState.OK, monitor.now)
    assert whole(monitor.step()).state_since == monitor.now - 60.0


def test_it_is_never_in_the_future(monitor: Monitor) -> None:
    """After a clock that was an hour ahead was corrected."""
    monitor.send(400)
    monitor.step()
    monitor.now -= 3600.0
    after = whole(monitor.step())
    assert after.state_since is not None
    assert after.state_since <= monitor.now


def test_the_alert_state_of_an_older_cpcmon_is_read() -> None:
    """Its windows have five fields, without a state."""
    now = AlertMemory(VersionCounts(), (WindowAlertState(ALL, 7.0, True, 5.0, {}, "ok", 3.0),))
    content = msgspec.json.decode(now.to_bytes())
    content["windows"] = [window[:5] for window in content["windows"]]
    memory = AlertMemory.from_bytes(msgspec.json.encode(content))
    assert memory is not None
    assert memory.windows == (WindowAlertState(ALL, 7.0, True, 5.0),)
    assert AlertMemory.from_bytes(now.to_bytes()) == now
