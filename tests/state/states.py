"""Small state changes, and a disk that can be full or read-only."""

import shutil
import sqlite3
import struct
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from monitor.core.scores import Floats, Singles
from monitor.core.segments import ALL, Chunk, Segment
from monitor.state.commit_plan import CommitPlan
from monitor.state.database import NAME, open_database
from monitor.state.record_tables import checksum
from monitor.state.schema import STEPS
from monitor.state.store import State
from tests.servers import needs_root, real_server

SITE: Segment = (("site", "A"),)


def chunk(first: int, records: int = 10, *, segment: Segment = ALL) -> tuple[str, Chunk]:
    """Return records identified by their numbers, and their model."""
    at = np.arange(first, first + records, dtype=np.float64)
    vectors = np.repeat(at[:, np.newaxis], 3, axis=1).astype(np.float32)
    segments = () if segment == ALL else (segment,)
    return "density", Chunk(float(first), at, vectors, segments, np.zeros((records, len(segments)), dtype=np.int32))


def change(first: int, records: int = 10) -> CommitPlan:
    """Return a change with these records and the checkpoint behind them."""
    return CommitPlan(chunks=[chunk(first, records)], checkpoints={"inbox": {b"file": str(first + records).encode()}})


def held(state: State) -> list[float]:
    """Return the times of all stored records."""
    models = sorted({model for model, _ in state.window_names()})
    return [float(time) for model in models for one in state.chunks(model) for time in one.chunk.at]


def write_old_chunk(
    connection: sqlite3.Connection, model: str, segment: Segment, arrived: float, at: Floats, vectors: Singles
) -> None:
    """Write records as version 3 did: once for each of their windows."""
    text = msgspec.json.encode(segment).decode()
    find = "SELECT id FROM windows WHERE model = ? AND segment = ?"
    found = connection.execute(find, (model, text)).fetchone()
    if found is None:
        row = (model, text, checksum(b"", model, text))
        connection.execute("INSERT INTO windows(model, segment, crc) VALUES (?, ?, ?)", row)
        found = connection.execute(find, (model, text)).fetchone()
    content, newest = at.astype("<f8").tobytes() + vectors.astype("<f4").tobytes(), float(at.max())
    crc = zlib.crc32(content, zlib.crc32(struct.pack("<qddq", found[0], arrived, newest, len(at))))
    connection.execute(
        "INSERT INTO chunks(window, arrived, newest, records, crc, content) VALUES (?, ?, ?, ?, ?, ?)",
        (found[0], arrived, newest, len(at), crc, content),
    )


@contextmanager
def old_database(folder: Path, version: int = 3) -> Iterator[sqlite3.Connection]:
    """Make a state of an older version, and write to it."""
    State.open(folder).close()
    (folder / NAME).unlink()
    open_database(folder, steps=STEPS[:version]).connection.close()
    with closing(sqlite3.connect(folder / NAME)) as connection, connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        yield connection


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
    """Unmount a filesystem, repair it and mount it again.

    A copy of it: a container of another test may have been started meanwhile, and then holds on to the mounted one.
    """
    subprocess.run(["umount", str(point)], check=True)
    image = Path(shutil.copyfile(point.with_name("disk.img"), point.with_name("repaired.img")))
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
