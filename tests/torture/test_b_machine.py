"""B22: random interleavings of everything that may happen, against an oracle."""

from hypothesis import settings

from tests.torture.machine import WatchedDirectory


class TestB22(WatchedDirectory.TestCase):  # type: ignore[misc]
    """Any interleaving of appends, rotations, truncations, kills and full disks ends in what an oracle says."""

    settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
