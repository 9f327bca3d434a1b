"""B22: any interleaving of appends, rotations, truncations, kills and full disks ends in what an oracle says."""

import os

import pytest
from hypothesis import settings

from tests.torture.machine import WatchedDirectory

# `make torture` asks for more, longer and other ones.
TestB22 = WatchedDirectory.TestCase
TestB22.settings = settings(
    max_examples=int(os.environ.get("TORTURE_EXAMPLES", "60")),
    stateful_step_count=int(os.environ.get("TORTURE_STEPS", "25")),
    deadline=None,
    derandomize="TORTURE_EXAMPLES" not in os.environ,
)


@pytest.mark.parametrize("first", range(0, 24, 6))
@pytest.mark.parametrize("killed", [False, True], ids=["running", "just started"])
def test_b22_a_rotation_before_any_call_of_a_poll_loses_nothing(first: int, *, killed: bool) -> None:
    """A poll lists names and looks at each. Between two looks all of them may move on by one: f, f.1, f.2, f.3."""
    for calls in range(first, first + 6):
        rotate_before(calls, killed=killed)


def rotate_before(calls: int, *, killed: bool) -> None:
    """Let some generations of a file be known, and rotate them before the n-th system call of a poll."""
    machine = WatchedDirectory()
    try:
        machine.begin(most=1000)
        for _ in range(3):
            machine.append(name="a.jsonl", count=3, keep=0)
            machine.tick(seconds=0.6)
            machine.rotate(name="a.jsonl")
            machine.tick(seconds=0.6)
        machine.append(name="a.jsonl", count=3, keep=20)
        machine.tick(seconds=0.6)
        if killed:
            machine.kill()
        machine.tick_with_company(name="a.jsonl", calls=calls, what="rotate", count=1)
        machine.append(name="a.jsonl", count=2, keep=0)
    finally:
        machine.teardown()
