"""B3 and B7: power cuts and full disks under the real process."""

import random
import sys
import time
from pathlib import Path

import pytest

from tests.state.states import fill
from tests.torture.disks import Disk, mounted_disk
from tests.torture.harness import COMMAND, Site, kill, wait_for
from tests.torture.records import seeded
from tests.torture.writer import Writer

UNSYNCED = (sys.executable, "-m", "tests.torture.unsynced")


def cut_power(site: Site, disk: Disk, rng: random.Random, command: tuple[str, ...] = COMMAND) -> int:
    """Run for a while, cut the power, and return the number of acknowledged records that are lost."""
    process = site.start(command=command)
    before = site.reports()
    wait_for(lambda: site.reports() > before, "a report")
    time.sleep(rng.random() * 0.7)
    assert kill(process), site.log_tail()
    acknowledged = site.acknowledged()
    disk.cut_power()
    site.state = disk.point / "state"
    return acknowledged - site.content().records_total


@pytest.mark.slow
def test_b3_acknowledged_commits_survive_a_power_cut(tmp_path: Path) -> None:
    """Three cuts; in the end no record is lost or duplicated."""
    rng = seeded(3)
    with mounted_disk(tmp_path, 64) as disk:
        site = Site(tmp_path, 1_000_000, disk.point / "state")
        with Writer(site.inbox, site.write_log, seed=3, seen=site.seen):
            for cut in range(3):
                lost = cut_power(site, disk, rng)
                assert lost <= 0, f"cut {cut}: {lost} acknowledged records are not on the disk"
        site.finish()
        site.check()


def test_b3_a_power_cut_without_syncs_is_detected(tmp_path: Path) -> None:
    """The control: with `PRAGMA synchronous=OFF` acknowledged records are lost."""
    rng = seeded(4)
    with mounted_disk(tmp_path, 64) as disk:
        site = Site(tmp_path, 1_000_000, disk.point / "state")
        with Writer(site.inbox, site.write_log, seed=4, seen=site.seen):
            assert any(cut_power(site, disk, rng, UNSYNCED) > 0 for _ in range(4)), "no record was lost"


def test_b7_a_full_disk_pauses_ingestion_which_resumes(tmp_path: Path) -> None:
    """The disk is filled and freed twice under load; the pauses are logged."""
    with mounted_disk(tmp_path, 24) as disk:
        site = Site(tmp_path, 500, disk.point / "state")
        with Writer(site.inbox, site.write_log, seed=7, seen=site.seen):
            process = site.start()
            for time_ in (1, 2):
                before = site.reports()
                wait_for(lambda before=before: site.reports() > before + 2, "reports")  # type: ignore[misc]
                hog = fill(disk.point)
                message = "ingestion is paused until then"
                wait_for(lambda message=message, n=time_: site.count_logged(message) >= n, "the pause")  # type: ignore[misc]
                assert process.poll() is None, site.log_tail()
                hog.unlink()
                message = "state can be written again"
                wait_for(lambda message=message, n=time_: site.count_logged(message) >= n, "the end of the pause")  # type: ignore[misc]
            process.terminate()
            assert process.wait(10) == 0, site.log_tail()
        site.finish()
        site.check()
