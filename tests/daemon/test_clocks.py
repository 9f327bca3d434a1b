"""The wall clock and how far it is trusted; the steady clock goes on by hand."""

import pytest

from monitor.daemon.clock import CONFIRMED_SECONDS, Clock, Moment, surprise

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
def test_a_jump_is_not_trusted_and_is_over_when_the_clock_is_back(machine: Machine, jump: float) -> None:
    """Time goes on from before, by the steady clock."""
    before = machine.after(1.0)
    machine.wall += jump
    during = machine.after(5.0)
    assert during.now == pytest.approx(before.now + 5.0, abs=1e-3)
    assert during.ahead == pytest.approx(jump)
    found = surprise(before, during)
    assert found.set_seconds == pytest.approx(jump)
    assert found.jumped_seconds == 0.0
    machine.wall -= jump
    back = machine.after(5.0)
    assert back.now == pytest.approx(before.now + 10.0, abs=1e-3)
    assert back.ahead == 0.0


def test_a_new_time_that_stays_is_trusted_after_ten_minutes(machine: Machine) -> None:
    """As after a machine began in 1970 and a time server set its clock: it must not stay in 1970."""
    machine.wall += YEARS
    held = machine.after(1.0)
    held = machine.after(CONFIRMED_SECONDS - 1.0)
    assert held.ahead
    found = machine.after(1.0)
    assert found.now == pytest.approx(machine.wall, abs=1e-3)
    assert found.ahead == 0.0
    assert surprise(held, found).jumped_seconds == pytest.approx(YEARS)
    assert surprise(held, found).set_seconds == 0.0


def test_a_clock_that_goes_on_jumping_is_never_trusted(machine: Machine) -> None:
    """Every new time begins anew."""
    for _ in range(20):
        machine.wall += YEARS
        found = machine.after(CONFIRMED_SECONDS - 1.0)
    assert found.now == pytest.approx(START + 20 * (CONFIRMED_SECONDS - 1.0), abs=1e-3)


def test_small_steps_and_sleep_are_no_jumps(machine: Machine) -> None:
    """A time server slews or steps by seconds; a suspension moves both clocks."""
    for _ in range(10):
        machine.wall += 30.0
        assert machine.after(1.0).ahead == 0.0
    before = machine.after(0.0)
    after = machine.after(3 * 3600.0, asleep=True)
    assert after.now == pytest.approx(machine.wall, abs=1e-3)
    assert after.ahead == 0.0
    assert surprise(before, after).suspended
