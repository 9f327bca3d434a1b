"""Small state changes, and a disk that can be full or read-only."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from monitor.core.segments import ALL, Chunk, Segment
from monitor.state.commit_plan import CommitPlan
from monitor.state.store import State
from tests.servers import needs_root, real_server

SITE: Segment = (("site", "A"),)


def chunk(first: int, records: int = 10, *, segment: Segment = ALL) -> tuple[str, Chunk]:
    """Return records identified by their numbers, and their model."""
    at = np.arange(first, first + records, dtype=np.float64)
    vectors = np.repeat(at[:, np.newaxis], 3, axis=1).astype(np.float32)
    return "density", Chunk(segment, float(first), at, vectors)


def change(first: int, records: int = 10) -> CommitPlan:
    """Return a change with these records and the checkpoint behind them."""
    return CommitPlan(chunks=[chunk(first, records)], checkpoints={"inbox": {b"file": str(first + records).encode()}})


def held(state: State) -> list[float]:
    """Return the times of all stored records."""
    return [float(time) for window in state.windows() for one in window.chunks for time in one.chunk.at]


@contextmanager
def small_disk(folder: Path, megabytes: int = 16) -> Iterator[Path]:
    """Mount an ext4 filesystem of this size; skips without permission."""
    needs_root("mount a small disk")
    make, mount = real_server("mkfs.ext4"), real_server("mount")
    image, point = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    point.mkdir()
    made = subprocess.run([make, "-q", "-F", "-m", "0", str(image)], capture_output=True, check=False)
    mounted = made.returncode == 0 and subprocess.run(
        [mount, "-o", "loop", str(image), str(point)],
        capture_output=True,
        check=False,
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip(f"SKIPPED, NOT SHOWN: no loop mount here: {mounted and mounted.stderr.decode().strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


def need_strace() -> None:
    """Skip where processes cannot be traced."""
    if (
        subprocess.run([real_server("strace"), "-o", "/dev/null", "true"], capture_output=True, check=False).returncode
        != 0
    ):
        pytest.skip("SKIPPED, NOT SHOWN: this machine does not let processes be traced")


def remount(point: Path, mode: str) -> None:
    """Remount a filesystem: `abort` makes it read-only, as the kernel does after an error."""
    subprocess.run(["mount", "-o", f"remount,{mode}", str(point)], check=True)


def mount_again(point: Path) -> None:
    """Unmount a filesystem, repair it and mount it again."""
    subprocess.run(["umount", str(point)], check=True)
    image = point.with_name("disk.img")
    subprocess.run(["fsck.ext4", "-p", "-f", str(image)], check=False, capture_output=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)


def fill(point: Path) -> Path:
    """Fill a disk to the last byte; return the file."""
    hog = point / "hog"
    with hog.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return hog
