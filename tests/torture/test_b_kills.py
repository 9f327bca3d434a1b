"""B1, B2, B16, B17, B19: the real process dies in every way, and nothing is lost or counted twice."""

from pathlib import Path

import pytest

from tests.torture.harness import Site
from tests.torture.kills import kill_at_random
from tests.torture.syscalls import Scene, need_strace, sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("most", [1_000_000, 500], ids=["window of all", "window of 500"])
def test_b1_killed_at_random_under_load_nothing_is_lost_or_twice(tmp_path: Path, most: int) -> None:
    """Twice 13 kills: while it starts, in the middle of commits, and after many of them."""
    site = Site(tmp_path, most)
    tally = kill_at_random(site, kills=13, seed=1)
    assert not tally.verdict.problems, "\n".join([*tally.verdict.problems, site.last_words()])
    assert tally.kills == 13


@pytest.mark.parametrize(
    "calls",
    [("pwrite64", "write"), ("fdatasync", "fsync", "rename"), ("openat", "pread64", "unlink", "ftruncate")],
    ids=" ".join,
)
@pytest.mark.parametrize("first", [True, False], ids=["first start", "later start"])
def test_b2_killed_at_a_system_call_nothing_is_lost_or_twice(
    tmp_path: Path, calls: tuple[str, ...], *, first: bool
) -> None:
    """36 points in all; `make torture` goes through every single one."""
    need_strace()
    points = killed = 0
    for call, number, was_killed, verdict in sweep(Scene(tmp_path, first), calls, most=2):
        assert not verdict.problems, f"{call} {number}: {verdict.problems}"
        points += 1
        killed += was_killed
    assert points >= 2
    assert killed >= 0.9 * points, "nearly all of the calls must have been there"
