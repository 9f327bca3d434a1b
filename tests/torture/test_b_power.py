"""B3 and B7: the power is cut, or the disk is full, while the real process writes its state."""

import random
import sys
import time
from pathlib import Path

import pytest

from tests.state.states import fill
from tests.torture.disks import Disk, own_disk
from tests.torture.harness import COMMAND, Site, kill, wait_for
from tests.torture.records import seeded
from tests.torture.writer import Writer

UNSYNCED = (sys.executable, "-m", "tests.torture.unsynced")


def cut_power(site: Site, disk: Disk, dice: random.Random, command: tuple[str, ...] = COMMAND) -> int:
    """Run for a while, cut the power, and return how many acknowledged records the disk has forgotten."""
    process = site.start(command=command)
    before = site.answers()
    wait_for(lambda: site.answers() > before, "a first answer")
    time.sleep(dice.random() * 0.7)
    assert kill(process), site.last_words()
    acknowledged = site.acknowledged()
    disk.cut_power()
    site.state = disk.point / "state"
    return acknowledged - site.found().records_total


@pytest.mark.slow
def test_b3_after_a_power_cut_every_acknowledged_commit_is_there(tmp_path: Path) -> None:
    """Five cuts on one disk, each at another instant; then it reads the rest, and nothing is lost or twice."""
    dice = seeded(3)
    with own_disk(tmp_path, 64) as disk:
        site = Site(tmp_path, 1_000_000, disk.point / "state")
        with Writer(site.inbox, site.book, seed=3, seen=site.seen):
            for cut in range(5):
                forgotten = cut_power(site, disk, dice)
                assert forgotten <= 0, f"cut {cut}: {forgotten} acknowledged records are not on the disk"
        site.finish()
        site.check()


def test_b3_without_syncing_a_power_cut_would_be_noticed(tmp_path: Path) -> None:
    """The control: the same with `PRAGMA synchronous=OFF` forgets what was acknowledged, so the method can fail."""
    dice = seeded(4)
    with own_disk(tmp_path, 64) as disk:
        site = Site(tmp_path, 1_000_000, disk.point / "state")
        with Writer(site.inbox, site.book, seed=4, seen=site.seen):
            assert any(cut_power(site, disk, dice, UNSYNCED) > 0 for _ in range(4)), "no cut was noticed"


def test_b7_a_full_disk_pauses_the_process_and_it_goes_on_alone(tmp_path: Path) -> None:
    """Filled and freed twice while records come in: it lives, says so, and nothing is lost or twice."""
    with own_disk(tmp_path, 24) as disk:
        site = Site(tmp_path, 500, disk.point / "state")
        with Writer(site.inbox, site.book, seed=7, seen=site.seen):
            process = site.start()
            for time_ in (1, 2):
                before = site.answers()
                wait_for(lambda before=before: site.answers() > before + 2, "answers")  # type: ignore[misc]
                hog = fill(disk.point)
                said = "nothing is taken in until then"
                wait_for(lambda said=said, n=time_: site.said(said) >= n, "the pause")  # type: ignore[misc]
                assert process.poll() is None, site.last_words()
                hog.unlink()
                said = "state can be written again"
                wait_for(lambda said=said, n=time_: site.said(said) >= n, "the end of the pause")  # type: ignore[misc]
            process.terminate()
            assert process.wait(10) == 0, site.last_words()
        site.finish()
        site.check()
