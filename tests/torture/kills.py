"""Kills at random instants while a writer writes."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.torture.harness import Site, kill, wait_for
from tests.torture.oracle import Verdict
from tests.torture.records import seeded
from tests.torture.writer import Writer

_STARTING_SECONDS = 0.8
"""About the time from the start of the process to its first answer."""


@dataclass
class Tally:
    """The progress of a run."""

    kills: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    rotated: int = 0


def kill_at_random(
    site: Site,
    *,
    kills: int,
    seed: int,
    rotate: bool = True,
    look_every: int = 5,
    told: Callable[[Tally], None] = lambda _: None,
) -> Tally:
    """Start and kill the process repeatedly while a writer writes; then read the rest, and compare."""
    dice = seeded(seed)
    tally = Tally()
    with Writer(site.inbox, site.book, seed=seed, seen=site.seen, rotate=rotate) as writer:
        while tally.kills < kills:
            process = site.start()
            _let_run(site, dice)
            if not kill(process):
                raise AssertionError(f"ended by itself with {process.returncode}: {site.last_words()}")
            tally.kills += 1
            tally.rotated = writer.rotated
            if tally.kills % look_every == 0:
                _add(tally.verdict, site.judge_on_the_way())
            told(tally)
    site.finish()
    _add(tally.verdict, site.judge())
    return tally


def _let_run(site: Site, dice: random.Random) -> None:
    """Wait for a random time: kills hit the start, the first commits, or later ones."""
    kind = dice.random()
    if kind < 0.4:
        time.sleep(dice.random() * _STARTING_SECONDS)
        return
    before = site.answers()
    wait_for(lambda: site.answers() > before, "a first answer")
    time.sleep(dice.random() * (0.1 if kind < 0.7 else 0.6))


def _add(verdict: Verdict, more: Verdict) -> None:
    # What is there twice is found again by each later look.
    verdict.lost, verdict.twice = max(verdict.lost, more.lost), max(verdict.twice, more.twice)
    verdict.problems = more.problems or verdict.problems
