"""The trusted clock, with clocks set by hand, and a real process whose wall clock is set."""

import json
from pathlib import Path

import pytest

from monitor.daemon.clock import CONFIRMED_SECONDS, Clock, Moment, clock_change
from tests.daemon.conftest import Site
from tests.daemon.process import running, write_records
from tests.strategies import synthetic

VECTORS = synthetic(700, 3, seed=5, sharpness=2.6)[0]
RECORDS = 'cpcmon_window_records{model="density",segment="all"}'
TEN_YEARS = 10 * 365 * 86_400
SHIFTED = """\
import pathlib, time

_now, _ahead = time.time, pathlib.Path(__file__).with_name("ahead")
time.time = lambda: _now() + float((_ahead.read_text() if _ahead.exists() else "") or 0.0)
"""


@pytest.mark.slow
def test_e11_a_clock_ten_years_ahead_for_seconds_evicts_nothing_by_age(site: Site, tmp_path: Path) -> None:
    """Records without a time arrive meanwhile. The status and the overview show the jump."""
    site.config.write_text(site.config.read_text().replace("{records: 300}", "{records: 1000, age: 1d}"))
    folder = tmp_path / "shifted"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHIFTED)
    ahead = folder / "ahead"
    with running(site.config, environment={"PYTHONPATH": str(folder)}) as process:
        write_records(site.inbox / "a.jsonl", VECTORS[:500])
        process.wait_for(RECORDS, 500.0)
        ahead.write_text(str(TEN_YEARS))
        process.wait_for("cpcmon_clock_jumps_total", 1.0)
        write_records(site.inbox / "a.jsonl", VECTORS[500:600])
        process.wait_for(RECORDS, 600.0)
        status = json.loads(process.ask("/api/v1/status")[1])
        assert status["ready"]
        assert [one for one in status["problems"] if one.startswith("clock jumped")]
        assert "clock jumped" in process.ask("/")[1]
        ahead.unlink()
        process.wait_for("cpcmon_clock_jumps_total", 2.0)
        write_records(site.inbox / "a.jsonl", VECTORS[600:])
        page = process.wait_for(RECORDS, 700.0)
        assert page['cpcmon_records_evicted_total{model="density"}'] == 0.0
        assert json.loads(process.ask("/api/v1/status")[1])["problems"] == []
    assert "is back" in process.log


START = 1_760_000_000.0
YEARS = 10 * 365 * 86_400.0


class Machine:
    """Clocks that are set by hand."""

    def __init__(self) -> None:
        self.wall, self.running, self.awake = START, 1000.0, 900.0
        self.clock = Clock(lambda: Moment(self.wall, self.running, self.awake))

    def after(self, seconds: float, *, asleep: bool = False) -> Moment:
        """Let time pass, and read the clock."""
        self.wall, self.running = self.wall + seconds, self.running + seconds
        self.awake += 0.0 if asleep else seconds
        return self.clock()


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("jump", [YEARS, -YEARS, 3600.0])
def test_a_jump_is_not_trusted_until_the_clock_is_back(machine: Machine, jump: float) -> None:
    """`now` follows the steady clock."""
    before = machine.after(1.0)
    machine.wall += jump
    during = machine.after(5.0)
    assert during.now == pytest.approx(before.now + 5.0, abs=1e-3)
    assert during.ahead == pytest.approx(jump)
    found = clock_change(before, during)
    assert found.set_seconds == pytest.approx(jump)
    assert found.jumped_seconds == 0.0
    machine.wall -= jump
    back = machine.after(5.0)
    assert back.now == pytest.approx(before.now + 10.0, abs=1e-3)
    assert back.ahead == 0.0


def test_a_new_time_that_stays_is_trusted_after_ten_minutes(machine: Machine) -> None:
    """As when a machine boots in 1970 and a time server sets its clock."""
    machine.wall += YEARS
    held = machine.after(1.0)
    held = machine.after(CONFIRMED_SECONDS - 1.0)
    assert held.ahead
    found = machine.after(1.0)
    assert found.now == pytest.approx(machine.wall, abs=1e-3)
    assert found.ahead == 0.0
    assert clock_change(held, found).jumped_seconds == pytest.approx(YEARS)
    assert clock_change(held, found).set_seconds == 0.0


def test_a_clock_that_keeps_jumping_is_never_trusted(machine: Machine) -> None:
    """Each jump restarts the ten minutes."""
    for _ in range(20):
        machine.wall += YEARS
        found = machine.after(CONFIRMED_SECONDS - 1.0)
    assert found.now == pytest.approx(START + 20 * (CONFIRMED_SECONDS - 1.0), abs=1e-3)


def test_small_steps_and_suspensions_are_not_jumps(machine: Machine) -> None:
    """A suspension moves both clocks."""
    for _ in range(10):
        machine.wall += 30.0
        assert machine.after(1.0).ahead == 0.0
    before = machine.after(0.0)
    after = machine.after(3 * 3600.0, asleep=True)
    assert after.now == pytest.approx(machine.wall, abs=1e-3)
    assert after.ahead == 0.0
    assert clock_change(before, after).suspended
