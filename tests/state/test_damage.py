"""A damaged state with a good backup: it starts, and no number changes unless reported."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from monitor.errors import StateLost
from monitor.state.commit_plan import Maintenance, StoredChunk
from monitor.state.database import BACKUPS, NAME
from monitor.state.store import State
from tests.ingest.lines import Process, expected, line
from tests.state.damage import WAL, Outcome, make, tried
from tests.state.states import SITE, change, chunk, held

SPLIT = (("site",),)
LINES = [line(n, site="AB"[n % 2], id=f"i{n}") for n in range(30)]


@pytest.mark.slow
def test_damage_of_every_kind_is_harmless_or_detected(tmp_path: Path) -> None:
    """Bits, pages, lost writes, truncation, the write-ahead log; `make torture` tries hundreds more."""
    bad, kinds = [], set()
    for damage, outcome, why in tried(make(tmp_path), seed=1, many=1):
        kinds.add(damage.kind)
        if outcome not in {Outcome.HARMLESS, Outcome.NOTICED}:
            bad.append(f"{damage.kind}, {damage.where}: {outcome}: {why}")
    assert not bad, "\n".join(bad)
    assert {"bit in sqlite_master", "bit in chunks_of_window", "page not written", "log cut"} <= kinds


def restart(folder: Path) -> Process:
    """Restart with all lines available, and read the rest."""
    process = Process(folder, LINES, split_by=SPLIT)
    process.tick()
    return process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state of thirty records in three windows, with a backup of twenty."""
    lines = LINES[:20]
    process = Process(tmp_path / "state", lines, split_by=SPLIT)
    process.tick()
    process.state.back_up()
    lines.extend(LINES[20:])
    process.tick()
    process.kill()
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        pytest.param(b'[["site","A"]]', b'[["site","C"]]', id="the name of a window"),
        pytest.param(b"newest REAL", b"newesu REAL", id="a column in the schema"),
    ],
)
def test_a_flipped_bit_anywhere_is_repaired_from_the_backup(folder: Path, name: bytes, changed: bytes) -> None:
    """A name is stored in a table and in its index; SQLite may read either."""
    whole = (folder / NAME).read_bytes()
    for number in range(whole.count(name)):
        copy = folder.with_name(f"copy{number}")
        shutil.copytree(folder, copy)
        *before, after = whole.split(name, number + 1)
        (copy / NAME).write_bytes(name.join(before) + changed + after)
        process = restart(copy)
        assert process.state.recovered == "backup"
        assert process.window(SITE) == expected(list(range(0, 30, 2)))
        process.kill()


def test_a_lost_write_is_detected(tmp_path: Path) -> None:
    """Each page as it was one commit before: every row on it has a valid checksum."""
    state = State.open(tmp_path / "state")
    state.commit(change(0), 1.0)
    state.back_up()
    state.close()
    before = (tmp_path / "state" / NAME).read_bytes()
    state = State.open(tmp_path / "state")
    state.commit(change(10), 2.0)
    state.close()
    after = (tmp_path / "state" / NAME).read_bytes()
    lost = [place for place in range(4096, len(before), 4096) if before[place:][:4096] != after[place:][:4096]]
    assert len(lost) > 3
    for place in lost:
        copy = tmp_path / f"page{place}"
        shutil.copytree(tmp_path / "state", copy)
        (copy / NAME).write_bytes(after[:place] + before[place : place + 4096] + after[place + 4096 :])
        state = State.open(copy)
        assert state.recovered == "backup", place
        assert held(state) == [float(n) for n in range(10)]
        state.close()


@pytest.mark.parametrize("place", [pytest.param(62, id="a newer cpcmon"), pytest.param(18, id="a read-only disk")])
def test_a_changed_bit_in_the_header_is_not_taken_for(folder: Path, place: int) -> None:
    """The header would otherwise prevent a start, although there is a backup."""
    whole = bytearray((folder / NAME).read_bytes())
    whole[place] ^= 1
    (folder / NAME).write_bytes(whole)
    process = restart(folder)
    assert process.state.recovered == "backup"
    assert process.window() == expected(list(range(30)))
    process.kill()


def test_missing_last_commits_are_reported_and_read_again(tmp_path: Path) -> None:
    """SQLite treats a damaged write-ahead log as one that ends there."""
    process = Process(tmp_path / "state", LINES[:20], split_by=SPLIT)
    process.tick()
    process.kill()
    process = restart(tmp_path / "state")
    killed = tmp_path / "killed"
    shutil.copytree(tmp_path / "state", killed)
    process.kill()
    log = (killed / WAL).read_bytes()
    (killed / WAL).write_bytes(log[:-4096])
    process = restart(killed)
    assert any("lost its last 1 commits" in event for _, event in process.state.past_events())
    assert process.window() == expected(list(range(30)))
    process.kill()
    assert restart(killed).state.events == [], "reported once"


def test_damage_is_never_copied_over_a_good_backup(folder: Path) -> None:
    good = (folder / BACKUPS[0]).read_bytes()
    state = State.open(folder)
    state._connection.execute("UPDATE counters SET value = value + 1")  # noqa: SLF001 - as a disk does
    with pytest.raises(
        StateLost, match=r"expected a database to back up, found damage: checksum mismatch in the table counters"
    ):
        state.back_up()
    state.close()
    assert (folder / BACKUPS[0]).read_bytes() == good
    process = restart(folder)
    assert process.state.recovered == "backup"
    assert process.window() == expected(list(range(30)))
    process.kill()


def test_damaged_rows_of_rejected_records_and_events_are_skipped_and_reported(tmp_path: Path) -> None:
    process = Process(tmp_path, [b"{nonsense\n", b"{more\n", line(0)])
    process.tick()
    process.kill()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection, connection:
        connection.execute("UPDATE rejected SET pointer = replace(pointer, ':1', ':7') WHERE id = 1")
        connection.execute("INSERT INTO events(at, event, crc) VALUES (1.0, 'another', 7)")
    state = State.open(tmp_path)
    assert [pointer.number for *_, pointer in state.rejected()] == [2]
    assert "another" not in [event for _, event in state.past_events()]
    assert state.events == [
        "skipped 1 damaged rows of the table rejected",
        "skipped 1 damaged rows of the table events",
    ]
    state.close()


def test_replacing_or_deleting_a_row_keeps_the_checksums_right(tmp_path: Path) -> None:
    """For every kind of row: drifting checksums would discard a good database."""
    state = State.open(tmp_path)
    ids = []
    for first in (0, 10):
        one = change(first)
        one.counters, one.values = {("records_total",): first}, {"alert": str(first).encode(), "gone": b"1"}
        one.chunks.append(chunk(first, segment=SITE))
        ids += state.commit(one, 1.0)
    last = change(20)
    last.values, last.deleted_windows, last.events = {"gone": None}, [("density", SITE)], ["an event"]
    merged = StoredChunk(chunk(0, 20)[1], np.empty(0), ids[0])
    last.maintenance = {"density": Maintenance(deleted=ids[1:], rewritten=[merged])}
    state.commit(last, 2.0)
    state.store_models({"density": b"{}"}, [], [], 3.0)
    state.store_models({"density": b"{1}"}, [], [], 4.0)
    state.close()
    state = State.open(tmp_path)
    assert (state.recovered, held(state), state.counters()) == (
        "",
        [float(n) for n in range(30)],
        {("records_total",): 10},
    )
    state.close()
