"""Starts with a state that is damaged, copied, on a full disk, or foreign: reported and exact."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from monitor.core.segments import ALL
from monitor.core.totals import totals_of
from monitor.core.window import Bounds
from monitor.errors import StatePaused
from monitor.state import database
from monitor.state.store import State
from tests.ingest.lines import NOW, Process, exact, expected, line
from tests.ingest.test_ingestion import other_reference
from tests.state.states import fill, small_disk

SPLIT = (("site",),)
LINES = [line(n, site="AB"[n % 2], id=f"i{n}") for n in range(30)]


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
    "change",
    [
        "UPDATE windows SET segment = replace(segment, '[', '{') WHERE segment LIKE '%site%'",
        "UPDATE windows SET model = 'denrity'",
        "UPDATE counters SET name = replace(name, '[', '{')",
        "UPDATE counters SET value = value + 1024",
        "UPDATE positions SET source = 'linds'",
        "UPDATE models SET shape = cast('{x' AS BLOB)",
        "UPDATE chunks SET window = window + 64",
        "UPDATE ids SET model = 'denrity'",
        "UPDATE kept SET name = name || 'x'",
        "DROP TABLE ids",
    ],
)
def test_b6_a_changed_value_anywhere_is_detected_and_repaired_from_the_backup(change: str, folder: Path) -> None:
    """Nothing is lost or counted twice: the backup's checkpoints are as old as its windows."""
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute(change)
        connection.commit()
    process = Process(folder, LINES, split_by=SPLIT)
    assert process.state.recovered == "backup"
    process.tick()
    assert process.window() == expected(list(range(30)))
    assert process.counted("records_total", "lines", "density") == 30
    assert process.counted("state_recovered_total", "backup") == 1
    process.kill()


def test_b6_a_changed_number_of_records_costs_that_chunk(folder: Path) -> None:
    """It is counted, also for later."""
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute("UPDATE chunks SET records = records + 16 WHERE id = (SELECT min(id) FROM chunks)")
        connection.commit()
    process = Process(folder, LINES, split_by=SPLIT)
    assert (process.state.recovered, process.state.damaged_chunks) == ("", 1)
    assert len(process.window()) == 10
    assert any("checksum mismatch" in event for _, event in process.state.past_events())
    process.stop()
    process = Process(folder, LINES, split_by=SPLIT)
    assert process.counted("state_damaged_chunks_total") == 1
    process.kill()


def test_a_recovery_is_reported_although_the_first_start_was_killed(folder: Path) -> None:
    """Between the restore of the backup and the report."""
    (folder / "state.db").write_bytes(b"nonsense")
    State.open(folder).close()
    process = Process(folder, LINES, split_by=SPLIT)
    assert process.state.recovered == "backup"
    process.kill()
    process = Process(folder, LINES, split_by=SPLIT)
    assert process.state.recovered == ""
    assert any("backup" in event for _, event in process.state.past_events())
    process.kill()


def test_another_hash_key_is_reported(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Earlier ids are not recognised."""
    (folder / "hash.key").unlink()
    process = Process(folder, LINES, split_by=SPLIT)
    assert "hash.key does not belong" in caplog.text
    process.kill()
    caplog.clear()
    Process(folder, LINES, split_by=SPLIT).kill()
    assert "hash.key" not in caplog.text


def test_ids_of_another_version_are_not_used_up(tmp_path: Path) -> None:
    """Two versions process the same studies; only the version of the reference counts."""
    lines = [line(n, id=f"study{n // 2}", version="21"[n % 2] + ".1") for n in range(20)]
    process = Process(tmp_path, [one.replace(b'"1.1"', b'"1.0"') for one in lines])
    process.tick()
    assert len(process.window()) == 10
    assert process.counted("records_other_version_total", "density") == 10
    assert process.counted("records_rejected_total", "lines", "duplicate_id") == 0
    process.kill()


def test_a_batch_of_late_records_changes_no_arrival_times(tmp_path: Path) -> None:
    """Only duplicate ids, with a clock set back: memory and disk must stay equal."""
    lines = [line(0, id="a", time=NOW + 200), line(1, id="b", time=NOW)]
    process = Process(tmp_path, lines, bounds=Bounds(records=3))
    process.tick(NOW)
    lines.append(line(2, id="a"))
    process.tick(NOW - 1000)
    lines += [line(3, id="c"), line(4, id="d")]
    process.tick(NOW + 1)
    lines.append(line(5, id="e"))
    process.tick(NOW + 2)
    before = process.window()
    process.kill()
    process = Process(tmp_path, lines, bounds=Bounds(records=3))
    assert process.window() == before
    process.kill()


def test_a_window_that_shrank_is_the_same_after_a_restart(tmp_path: Path) -> None:
    """Late records are stored with the others, and most of the records have left."""

    def many(first: int, count: int, at: float) -> list[bytes]:
        return [line(first + i % 50, time=at + i * 1e-3) for i in range(count)]

    bounds = Bounds(records=20_000, age_seconds=10_000.0)
    lines = many(0, 2000, NOW - 8000)
    process = Process(tmp_path, lines, bounds=bounds, at_once=25_000)
    process.tick(NOW)
    lines += many(7, 18_000, NOW - 5000) + many(251, 2000, NOW - 9000)
    process.tick(NOW)
    process.stop(NOW)
    process = Process(tmp_path, lines, bounds=bounds, at_once=25_000)
    for later in (2500, 2501):
        lines.append(line(3, time=NOW + later))
        process.tick(NOW + later)
    before = process.window()
    process.kill()
    process = Process(tmp_path, lines, bounds=bounds)
    window = process.model.windows[ALL]
    assert process.window() == before
    assert exact(window.totals()) == exact(totals_of(process.model.gauge, window.vectors()))
    process.kill()


def test_b7_a_start_on_a_full_disk_serves_stored_windows_and_writes_later(tmp_path: Path) -> None:
    """Even if the reference changed: windows that do not match are not served or mixed with new records."""
    with small_disk(tmp_path) as disk:
        process = Process(disk / "state", LINES)
        process.tick()
        process.kill()
        (disk / "state" / "ballast").unlink()
        hog = fill(disk)
        process = Process(disk / "state", LINES)
        assert process.window() == expected(list(range(30)))
        process.kill()
        lines = [*LINES, line(30, version="3.0")]
        process = Process(disk / "state", lines, reference=other_reference(version="3.0"))
        assert process.window() == []
        process.tick()
        assert "full" in str(process.ingestion.view.paused)
        hog.unlink()
        process.tick(monotonic=100.0)
        assert (process.ingestion.view.paused, len(process.window())) == (None, 1)
        process.kill()


def test_a_backup_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only disk fails in other ways than a full one."""
    process = Process(tmp_path, LINES)
    process.tick(monotonic=0.0)

    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(database, "_touch_private", read_only)
    process.tick(monotonic=5000.0)
    with pytest.raises(StatePaused, match="expected to write a backup, found Read-only file system"):
        process.state.back_up()
    process.kill()


def test_an_orderly_stop_leaves_a_backup_and_all_counters(tmp_path: Path) -> None:
    """Also after less than an hour."""
    lines = [line(n, time=NOW - n) for n in range(60)]
    process = Process(tmp_path, lines, bounds=Bounds(records=10))
    process.tick()
    late = process.counted("records_late_total", "density")
    assert late > 0
    process.stop()
    assert (tmp_path / "state.db.bak").exists()
    process = Process(tmp_path, lines, bounds=Bounds(records=10))
    assert process.counted("records_late_total", "density") == late
    process.kill()


def test_opening_a_state_without_repair_deletes_nothing(folder: Path) -> None:
    """The next start must still detect and report the damage."""
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute("UPDATE chunks SET records = records + 1 WHERE id = 1")
        connection.commit()
    state = State.open(folder, repair=False)
    assert len(list(state.chunks("density"))) == 1
    assert state.damaged_chunks == 1
    state.close()
    process = Process(folder, LINES, split_by=SPLIT)
    assert process.state.damaged_chunks == 1
    process.kill()
