"""A state of version 3, which stored a record once for each of its windows, is read, continued and merged with new records."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from monitor.core.segments import ALL, Segment
from monitor.state import commit_plan as chunk_log
from monitor.state.database import BACKUPS, NAME
from monitor.state.record_tables import checksum
from monitor.state.schema import STEPS
from monitor.state.store import State
from tests.ingest.lines import NOW, POOL, Process, expected, line
from tests.state.states import need_strace, old_database, write_old_chunk

SPLIT = (("site",),)
A: Segment = (("site", "A"),)
B: Segment = (("site", "B"),)
OLD = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sixty records of two sites in batches of six, with totals."""
    folder = tmp_path / "state"
    with old_database(folder) as connection:
        for first in range(0, OLD, 6):
            for segment, numbers in (
                (ALL, range(first, first + 6)),
                (A, range(first, first + 6, 2)),
                (B, range(first + 1, first + 6, 2)),
            ):
                vectors = np.array([POOL[number % len(POOL)] for number in numbers])
                vectors = (vectors / vectors.sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)
                write_old_chunk(connection, "density", segment, NOW - 900, NOW - 1000.0 + np.array(numbers), vectors)
        content = bytes(1000)
        connection.execute("INSERT INTO totals VALUES (1, 3, ?, ?)", (checksum(content, 1, 3), content))
    return folder


def windows(process: Process) -> dict[Segment, list[tuple[float, tuple[float, ...]]]]:
    """Return all windows."""
    return {segment: process.window(segment) for segment in process.model.windows}


def wanted(records: int) -> dict[Segment, list[tuple[float, tuple[float, ...]]]]:
    """Return the expected windows of the first records, of which each holds fifty."""
    parts = {ALL: range(records), A: range(0, records, 2), B: range(1, records, 2)}
    return {segment: expected(list(n), [NOW - 1000.0 + one for one in n]) for segment, n in parts.items()}


def test_its_windows_are_the_same_and_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and new records are merged, until nothing of the old form is left."""
    monkeypatch.setattr(chunk_log, "_FAN", 4)
    monkeypatch.setattr(chunk_log, "_SPARE_RECORDS", 20)
    lines: list[bytes] = []
    process = Process(folder, lines, split_by=SPLIT)
    assert windows(process) == wanted(OLD)
    assert process.state.events == []
    for number in range(OLD, 120):
        lines.append(line(number, site="AB"[number % 2], time=NOW - 1000.0 + number))
        process.tick()
        assert windows(process) == wanted(number + 1)
        if number % 7 == 0:
            process.kill()
            process = Process(folder, lines, split_by=SPLIT)
            assert windows(process) == wanted(number + 1)
    process.kill()
    with closing(sqlite3.connect(folder / NAME)) as connection:
        (old,) = connection.execute("SELECT count(*) FROM chunks WHERE window > 1").fetchone()
        assert (old, connection.execute("PRAGMA user_version").fetchone()) == (0, (len(STEPS),))
    with closing(sqlite3.connect(folder / BACKUPS[0])) as backup:
        assert backup.execute("PRAGMA user_version").fetchone() == (3,), "a copy of before the migration is kept"


def test_a_segment_that_is_dropped_takes_its_own_chunks_along(folder: Path) -> None:
    """Without it the others are the same."""
    process = Process(folder, [], split_by=SPLIT, most_segments=1)
    (kept,) = set(process.model.windows) - {ALL}
    assert windows(process) == {segment: wanted(OLD)[segment] for segment in (ALL, kept)}
    process.kill()
    process = Process(folder, [])
    assert windows(process) == {ALL: wanted(OLD)[ALL]}
    assert process.state._connection.execute("SELECT count(*) FROM chunks").fetchone() == (OLD // 6,)  # noqa: SLF001
    process.kill()


@pytest.mark.slow
def test_a_killed_migration_is_completed_by_the_next_start(folder: Path, tmp_path: Path) -> None:
    """At writes, syncs and renames."""
    need_strace()
    script = (
        "import sys; from pathlib import Path; from monitor.state.store import State; State.open(Path(sys.argv[1]))"
    )
    killed = 0
    for call, places in (("pwrite64", range(1, 80, 13)), ("fdatasync,fsync", range(1, 8, 2)), ("rename", range(1, 3))):
        for place in places:
            copy = tmp_path / f"{call}{place}"
            shutil.copytree(folder, copy)
            inject = ["-e", f"inject={call}:signal=KILL:when={place}"]
            ran = subprocess.run(
                ["strace", "-f", "-qq", "-o", "/dev/null", *inject, sys.executable, "-c", script, str(copy)],
                capture_output=True,
                check=False,
                timeout=120,
            )
            if ran.returncode == 0:
                break
            killed += 1
            process = Process(copy, [], split_by=SPLIT)
            assert windows(process) == wanted(OLD)
            assert process.state.recovered == ""
            process.kill()
    assert killed > 5


def test_a_damaged_old_chunk_costs_that_chunk_only(folder: Path) -> None:
    with closing(sqlite3.connect(folder / NAME)) as connection, connection:
        connection.execute("UPDATE chunks SET arrived = arrived + 1 WHERE id = 1")
    state = State.open(folder)
    assert sum(len(one.chunk.at) for one in state.chunks("density")) == 2 * OLD - 6
    assert state.damaged_chunks == 1
    state.close()


def test_a_chunk_that_was_rewritten_later_is_no_clock_set_back(tmp_path: Path) -> None:
    """Version 3 rewrote the chunks of a silent segment under new numbers, with the arrival of its last record."""
    folder, vectors = tmp_path / "state", np.full((2, 3), 1 / 3, dtype=np.float32)
    with old_database(folder) as connection:
        write_old_chunk(connection, "density", ALL, NOW - 5000, np.array([NOW - 5002, NOW - 5001]), vectors)
        write_old_chunk(connection, "density", ALL, NOW, np.array([NOW - 2, NOW - 1]), vectors)
        write_old_chunk(connection, "density", B, NOW, np.array([NOW - 2, NOW - 1]), vectors)
        write_old_chunk(connection, "density", A, NOW - 5000, np.array([NOW - 5002, NOW - 5001]), vectors)
    process = Process(folder, [], split_by=SPLIT)
    times = {segment: (process.model.windows[segment].times - NOW).tolist() for segment in process.model.windows}
    assert times == {ALL: [-5002, -5001, -2, -1], A: [-5002, -5001], B: [-2, -1]}
    process.kill()
