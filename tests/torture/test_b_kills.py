"""B1 and B2: the real process is killed, and no record is lost or duplicated."""

from pathlib import Path

import pytest

from tests.torture.harness import Site
from tests.torture.kills import kill_at_random
from tests.torture.syscalls import CALLS, Scene, require_strace, sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("window_size", [1_000_000, 500], ids=["window of all", "window of 500"])
def test_b1_random_kills_under_load_lose_and_repeat_no_record(tmp_path: Path, window_size: int) -> None:
    """Seven kills: during the start, the first commits, or later."""
    site = Site(tmp_path, window_size)
    tally = kill_at_random(site, kills=7, seed=1)
    assert not tally.comparison.problems, "\n".join([*tally.comparison.problems, site.log_tail()])
    assert tally.kills == 7


@pytest.mark.parametrize("first", [True, False], ids=["first start", "later start"])
def test_b2_kills_at_system_calls_lose_and_repeat_no_record(tmp_path: Path, *, first: bool) -> None:
    """The middle call of each kind; `make torture` tests every one."""
    require_strace()
    points = killed = 0
    for call, number, was_killed, comparison in sweep(Scene(tmp_path, first), CALLS, most=1):
        assert not comparison.problems, f"{call} {number}: {comparison.problems}"
        points += 1
        killed += was_killed
    assert points > 4
    assert killed >= 0.9 * points, "most of the calls must be reached"
