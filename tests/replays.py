"""A quicker calibration, for tests in which the width of intervals does not matter."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from monitor.core import replay


@contextmanager
def few_replays() -> Iterator[None]:
    """Replay the reference 40 times instead of 200, the fewest that give an interval."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_REPLAYS", 40)
        yield
