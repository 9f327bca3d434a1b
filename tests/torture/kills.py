"""Kills at random instants while a writer writes."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.torture.harness import Site, kill, wait_for
from tests.torture.oracle import Comparison
from tests.torture.records import seeded
from tests.torture.writer import Writer

_STARTING_SECONDS = 0.8
"""About the time from the start of the process to its first report."""


@dataclass
class Tally:
    """The result so far."""

    kills: int = 0
    comparison: Comparison = field(default_factory=Comparison)
    rotated: int = 0


def kill_at_random(
    site: Site,
    *,
    kills: int,
    seed: int,
    rotate: bool = True,
    compare_every: int = 5,
    progress: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Start and kill the process repeatedly while a writer writes; then read the rest, and compare."""
    rng = seeded(seed)
    tally = Tally()
    with Writer(site.inbox, site.write_log, seed=seed, seen=site.seen, rotate=rotate) as writer:
        while tally.kills < kills:
            process = site.start()
            _let_run(site, rng)
            if not kill(process):
                raise AssertionError(f"exited with {process.returncode}: {site.log_tail()}")
            tally.kills += 1
            tally.rotated = writer.rotated
            if tally.kills % compare_every == 0:
                _add(tally.comparison, site.compare_running())
            progress(tally)
    site.finish()
    _add(tally.comparison, site.compare())
    return tally


def _let_run(site: Site, rng: random.Random) -> None:
    """Wait for a random time: kills hit the start, the first commits, or later ones."""
    kind = rng.random()
    if kind < 0.4:
        time.sleep(rng.random() * _STARTING_SECONDS)
        return
    before = site.reports()
    wait_for(lambda: site.reports() > before, "a report")
    time.sleep(rng.random() * (0.1 if kind < 0.7 else 0.6))


def _add(comparison: Comparison, more: Comparison) -> None:
    # Later comparisons find the same duplicates again.
    comparison.lost, comparison.duplicated = (
        max(comparison.lost, more.lost),
        max(comparison.duplicated, more.duplicated),
    )
    comparison.problems = more.problems or comparison.problems
