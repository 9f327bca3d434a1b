"""History on disk: bounded rows, older databases, damage, a full disk."""

import os
import shutil
import sqlite3
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from monitor.core.history import CAPACITY, Series, Span
from monitor.errors import StatePaused
from monitor.records.record_batch import Pointer
from monitor.records.rejections import Reason
from monitor.state.commit_plan import CommitPlan
from monitor.state.database import BACKUPS, NAME
from monitor.state.evaluation_history import History
from monitor.state.record_tables import checksum
from monitor.state.schema import STEPS
from monitor.state.store import State
from tests.core.test_history import START, evidence_of, report
from tests.state.states import change, fill, held, old_database, small_disk


def write(state: State, history: History, most: int = 1_000) -> int:
    """Write until nothing is pending; return the number of transactions."""
    for turn in range(most):
        unwritten = history.unwritten()
        if not unwritten:
            return turn
        state.commit(CommitPlan(history=unwritten), START)
        history.written(unwritten)
    raise AssertionError("there is always something left")


def restored(folder: Path) -> History:
    """Return the history after a restart."""
    state = State.open(folder)
    history = History()
    history.restore(state.history())
    state.close()
    return history


def points(history: History, span: Span = Span.RECENT, segment: str = "all", model: str = "density") -> list[float]:
    """Return the accuracies of a series."""
    series = history.series(model, segment, span)
    assert series is not None
    return [float(value) for value in series.accuracy]


def same(one: Series | None, other: Series | None) -> bool:
    """Return whether two series are equal in every column."""
    assert one is not None
    assert other is not None
    columns = ("at", "accuracy", "lower", "upper", "lowest", "disagreement", "records")
    equal = all(np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in columns)
    equal &= (one.evidence is None) == (other.evidence is None)
    if one.evidence is not None and other.evidence is not None:
        equal &= np.array_equal(one.evidence, other.evidence, equal_nan=True)
    return (
        equal
        and (one.states, one.references) == (other.states, other.references)
        and one.step_seconds == other.step_seconds
    )


def rows(folder: Path) -> int:
    """Count the history rows, from outside."""
    connection = sqlite3.connect(folder / NAME)
    try:
        return int(connection.execute("SELECT count(*) FROM history").fetchone()[0])
    finally:
        connection.close()


def spoil(folder: Path, statement: str, *values: object) -> None:
    """Modify the database from outside."""
    connection = sqlite3.connect(folder / NAME)
    with connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_a_start_finds_every_column_of_what_was_written(tmp_path: Path, count: int) -> None:
    state, history = State.open(tmp_path), History()
    history.configured(["density"])
    for number in range(count):
        one = report(number / 1024, None, 0.5, records=number, reference=f"{number:012x}")
        history.note(one, START + 400.0 * number)
    write(state, history)
    state.close()
    again = restored(tmp_path)
    again.configured(["density"])
    for span in Span:
        for segment in ("all", "site=A", "site=B") if count else ("all",):
            assert same(again.series("density", segment, span), history.series("density", segment, span))


def test_the_table_is_bounded(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    for number in range(3000):
        history.note(report(0.5, 0.25), START + 7200.0 * number)
        if number % 50 == 0:
            write(state, history)
    write(state, history)
    state.close()
    assert rows(tmp_path) == sum(CAPACITY.values())


def test_the_names_of_segments_that_come_and_go_stay_with_their_points(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    for number, accuracies in enumerate([(0.5,), (0.5, 0.25), (0.5, 0.25, 0.125), (0.5,)]):
        history.note(report(*accuracies), START + number)
    write(state, history)
    state.close()
    again = restored(tmp_path)
    assert points(again) == [0.5] * 4
    assert points(again, segment="site=A") == [0.25, 0.25]
    assert points(again, segment="site=B") == [0.125]


def test_a_start_holds_each_name_once_however_often_segments_come_and_go(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    for number in range(4):
        history.note(report(0.5, 0.25, *[0.125] * (number % 2)), START + number)
    write(state, history)
    found = [row for row in state.history() if row is not None]
    state.close()
    assert len({row.frame.names for row in found}) == 2
    assert len({id(row.frame.names[1]) for row in found}) == 1


def test_a_model_that_is_no_longer_configured_loses_its_rows(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    for _ in range(3):
        history.note(report(0.5), START)
    write(state, history)
    history.configured(["other"])
    write(state, history)
    state.close()
    assert rows(tmp_path) == 0
    assert restored(tmp_path).series("density", "all", Span.RECENT) is None


def test_a_model_removed_while_stopped_loses_its_rows_too(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    history.note(report(0.5), START)
    write(state, history)
    state.close()
    again = restored(tmp_path)
    again.configured([])
    state = State.open(tmp_path)
    write(state, again)
    state.close()
    assert rows(tmp_path) == 0


def test_a_model_that_returns_before_its_rows_are_deleted_starts_empty(tmp_path: Path) -> None:
    """As on a full disk over two reloads: the old rows have higher numbers, and would count as the newest."""
    state, history = State.open(tmp_path), History()
    for number in range(400):
        history.note(report(0.5), START + number)
    write(state, history)
    history.configured(["other"])
    history.configured(["density", "other"])
    history.note(report(0.25), START + 1_000.0)
    write(state, history)
    state.close()
    assert points(restored(tmp_path)) == [0.25]


def test_a_commit_in_progress_while_a_model_returns_loses_nothing(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    history.note(report(0.5), START)
    write(state, history)
    history.configured(["other"])
    # The new work evaluates before the configuration is known to hold.
    history.note(report(0.25), START + 1.0)
    under_way = history.unwritten()
    history.configured(["density", "other"])
    state.commit(CommitPlan(history=under_way), START)
    history.written(under_way)
    write(state, history)
    state.close()
    assert points(restored(tmp_path)) == [0.25]


def test_many_models_are_written_as_fast_as_they_are_evaluated(tmp_path: Path) -> None:
    """Two hundred models, one transaction per evaluation of all, then a kill."""
    state, history = State.open(tmp_path), History()
    models = [f"model-{number}" for number in range(200)]
    for turn in range(20):
        for model in models:
            history.note(replace(report(0.5), model=model), START + turn)
        change_now = history.unwritten()
        state.commit(CommitPlan(history=change_now), START)
        history.written(change_now)
    state.close()
    again = restored(tmp_path)
    assert all(len(points(again, model=model)) >= 15 for model in models)


def test_a_start_shares_the_names_of_segments_though_models_were_written_in_turns(tmp_path: Path) -> None:
    """Otherwise two models with two thousand segments each would take hundreds of megabytes after a start."""
    state, history = State.open(tmp_path), History()
    for number in range(5):
        history.note(report(0.5, 0.5), START + number)
        history.note(replace(report(0.5, 0.5, 0.5), model="other"), START + number)
        write(state, history)
    found = [row for row in state.history() if row is not None]
    state.close()
    assert len(found) == 10
    assert len({id(row.frame.names) for row in found}) == 2


def test_an_old_row_without_a_reference_is_read(tmp_path: Path) -> None:
    """As an older version wrote it: seven fields. That version also reads nine, and ignores the last two."""
    state, history = State.open(tmp_path), History()
    for number in range(2):
        history.note(report(number / 8, reference="a" * 12), START + number)
    write(state, history)
    state.close()
    connection = sqlite3.connect(tmp_path / NAME)
    with connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        (packed,) = connection.execute("SELECT content FROM history WHERE slot = 1").fetchone()
        *before, reference, evidence = msgspec.msgpack.decode(zlib.decompress(packed))
        assert (len(before), reference, len(evidence)) == (7, "a" * 12, 4)
        old = zlib.compress(msgspec.msgpack.encode(before))
        crc = checksum(old, "density", "recent", 1, START)
        connection.execute(
            "INSERT OR REPLACE INTO history(rowid, model, span, slot, at, crc, content)"
            " SELECT rowid, model, span, slot, at, ?, ? FROM history WHERE slot = 1",
            (crc, old),
        )
    connection.close()
    again = restored(tmp_path)
    series = again.series("density", "all", Span.RECENT)
    assert series is not None
    assert series.accuracy.tolist() == [0.0, 1 / 8]
    assert series.references == ("", "a" * 12)
    assert str(series.evidence) == str(np.array([np.nan, evidence_of(100)]))


def old_state(folder: Path, version: int = 1) -> None:
    """Make an empty state of an older version."""
    with old_database(folder, version) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


@pytest.mark.parametrize("version", range(1, len(STEPS)))
def test_an_older_database_is_migrated_completely(tmp_path: Path, version: int) -> None:
    old = tmp_path / "old"
    old_state(old, version)
    # What the cpcmon of before wrote, in its own tables: checksums of refused records and events came with version 3.
    state = State.open(tmp_path / "new")
    pointer = Pointer(Reason.BAD_JSON, 7)
    state.commit(replace(change(0), rejected=[("inbox", "file#1", pointer)], events=["an event"]), 0.0)
    state.close()
    with closing(sqlite3.connect(old / NAME)) as connection, connection:
        connection.execute("PRAGMA recursive_triggers = ON")
        connection.execute("ATTACH ? AS new", (str(tmp_path / "new" / NAME),))
        for table in ("windows", "chunks", "positions", "kept", "rejected", "events"):
            columns = ", ".join(name for _, name, *_ in connection.execute(f"PRAGMA main.table_info({table})"))
            connection.execute(f"INSERT INTO {table}({columns}) SELECT {columns} FROM new.{table}")  # noqa: S608 - our own
    state = State.open(old)
    assert not state.recovered
    assert held(state) == [float(number) for number in range(10)]
    assert state.rejected() == [(0.0, "inbox", "file#1", pointer)]
    assert state.past_events() == [(0.0, "an event")]
    assert state.events == []
    history = History()
    history.restore(state.history())
    history.note(report(0.5), START)
    write(state, history)
    state.close()
    assert points(restored(old)) == [0.5]
    backup = sqlite3.connect(old / BACKUPS[0])
    assert backup.execute("PRAGMA user_version").fetchone() == (version,), "a copy of before the migration is kept"
    backup.close()


def test_a_backup_of_version_1_is_restored_and_migrated(tmp_path: Path) -> None:
    old_state(tmp_path)
    (tmp_path / NAME).replace(tmp_path / BACKUPS[0])
    (tmp_path / NAME).write_bytes(b"no database")
    state = State.open(tmp_path)
    assert state.recovered == "backup"
    history = History()
    history.note(report(0.5), START)
    write(state, history)
    state.close()
    assert points(restored(tmp_path)) == [0.5]


def test_on_a_full_disk_an_older_state_is_opened_once_the_ballast_is_deleted(tmp_path: Path) -> None:
    """The backup before the migration needs space: without it nothing is migrated, and nothing is lost."""
    with small_disk(tmp_path, 32) as disk:
        old = disk / "state"
        old_state(old)
        hog = fill(disk)
        with pytest.raises(StatePaused, match="free disk space"):
            State.open(old)
        (old / "ballast").unlink()
        # A little besides, so that a new ballast would fit: it must not take the room before the copy is made.
        os.truncate(hog, hog.stat().st_size - (16 << 10))
        state, history = State.open(old), History()
        history.note(report(0.5), START)
        write(state, history)
        state.close()
        assert points(restored(old)) == [0.5]


def test_a_damaged_database_of_version_1_is_restored_from_its_backup(tmp_path: Path) -> None:
    """A copy of the damage must not push out the good backups."""
    old_state(tmp_path)
    name = '["records_total"]'
    spoil(tmp_path, "INSERT INTO counters VALUES (?, ?, 7)", name, checksum(b"7", name))
    for backup in BACKUPS:
        shutil.copyfile(tmp_path / NAME, tmp_path / backup)
    spoil(tmp_path, "UPDATE counters SET value = 8")
    state = State.open(tmp_path)
    assert state.recovered == "backup"
    assert state.counters() == {("records_total",): 7}
    state.close()


DAMAGE = {
    "content": "UPDATE history SET content = zeroblob(40) WHERE span = 'recent' AND slot = 2",
    "content of another kind": "UPDATE history SET content = 'text' WHERE span = 'recent' AND slot = 2",
    "time": "UPDATE history SET at = at + 1 WHERE span = 'recent' AND slot = 2",
    "place": "UPDATE history SET slot = 77 WHERE span = 'recent' AND slot = 2",
    "span": "UPDATE history SET span = 'week' WHERE span = 'recent' AND slot = 2",
    "no text": "UPDATE history SET model = CAST(x'ff80' AS TEXT) WHERE span = 'recent' AND slot = 2",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_row_is_a_gap_and_not_damage_of_the_database(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    state, history = State.open(tmp_path), History()
    state.commit(change(0), 0.0)
    for number in range(4):
        history.note(report(number / 8), START + number)
    write(state, history)
    state.close()
    spoil(tmp_path, DAMAGE[what])
    state = State.open(tmp_path)
    assert not state.recovered
    assert len(held(state)) == 10
    again = History()
    again.restore(state.history())
    assert points(again) == [0.0, 2 / 8, 3 / 8]
    assert "1 unreadable rows" in caplog.text
    again.configured(["density"])
    again.note(report(0.75), START + 4)
    write(state, again)
    state.close()
    assert points(restored(tmp_path))[-1] == 0.75


def test_damage_to_the_newest_row_costs_that_row_only(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    for number in range(4):
        history.note(report(number / 8), START + number)
    write(state, history)
    state.close()
    spoil(tmp_path, "UPDATE history SET content = zeroblob(40) WHERE span = 'recent' AND slot = 4")
    again = restored(tmp_path)
    again.note(report(0.75), START + 9)
    assert points(again) == [0.0, 1 / 8, 2 / 8, 0.75]


def test_a_missing_table_is_damage_of_the_database(tmp_path: Path) -> None:
    """Otherwise every commit would fail, at every start."""
    state = State.open(tmp_path)
    state.back_up()
    state.close()
    spoil(tmp_path, "DROP TABLE history")
    state = State.open(tmp_path)
    assert state.recovered == "backup"
    history = History()
    history.note(report(0.5), START)
    assert write(state, history) == 1
    state.close()


def test_on_a_full_disk_pending_rows_are_bounded_and_written_later(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        state, history = State.open(disk / "state"), History()
        hog = fill(disk)
        for number in range(1000):
            history.note(report(number / 1024), START + 900.0 * number)
        with pytest.raises(Exception, match="free disk space"):
            write(state, history)
        waiting = len(history._unwritten)  # noqa: SLF001 - what waits is what is bounded
        assert waiting <= sum(CAPACITY.values())
        hog.unlink()
        write(state, history)
        state.close()
        again = restored(disk / "state")
        for span in Span:
            assert same(again.series("density", "all", span), history.series("density", "all", span))


def test_a_frame_extended_during_a_write_is_written_again(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    for number in range(180):
        history.note(report(0.5), START + number)
    change_ = history.unwritten()
    history.note(report(0.25), START + 200.0)
    state.commit(CommitPlan(history=change_), START)
    history.written(change_)
    write(state, history)
    state.close()
    assert points(restored(tmp_path), Span.DAYS) == [0.25]
