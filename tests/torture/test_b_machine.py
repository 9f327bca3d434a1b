"""B22: random sequences of appends, rotations, truncations, kills and full disks match the oracle."""

import os

import pytest
from hypothesis import settings

from tests.torture.machine import WatchedDirectory

# `make torture` runs more and longer ones, with random seeds.
TestB22 = WatchedDirectory.TestCase
TestB22.settings = settings(
    max_examples=int(os.environ.get("TORTURE_EXAMPLES", "30")),
    stateful_step_count=int(os.environ.get("TORTURE_STEPS", "25")),
    deadline=None,
    derandomize="TORTURE_EXAMPLES" not in os.environ,
)


@pytest.mark.parametrize("first", range(0, 24, 6))
@pytest.mark.parametrize("killed", [False, True], ids=["running", "just started"])
def test_b22_a_rotation_during_a_poll_loses_no_record(first: int, *, killed: bool) -> None:
    """Before each of its system calls: f, f.1 and f.2 may all be renamed between listing and opening."""
    for calls in range(first, first + 6):
        rotate_before(calls, killed=killed)


def rotate_before(calls: int, *, killed: bool) -> None:
    """Rotate a file with three generations before the n-th system call of a poll."""
    machine = WatchedDirectory()
    try:
        machine.begin(window_size=1000)
        for _ in range(3):
            machine.append(name="a.jsonl", count=3, keep=0)
            machine.tick(seconds=0.6)
            machine.rotate(name="a.jsonl")
            machine.tick(seconds=0.6)
        machine.append(name="a.jsonl", count=3, keep=20)
        machine.tick(seconds=0.6)
        if killed:
            machine.kill()
        machine.tick_with_writer(name="a.jsonl", calls=calls, what="rotate", count=1)
        machine.append(name="a.jsonl", count=2, keep=0)
    finally:
        machine.teardown()
