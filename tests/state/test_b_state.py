"""Group B of the scenarios, as far as the state alone shows them: damage, full disks, other processes, other versions."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.core.segments import ALL
from monitor.errors import StateInUse, StateLost, StatePaused, StateRefused
from monitor.state import database, schema
from monitor.state.commit_plan import CommitPlan, IdBatch, Maintenance
from monitor.state.record_tables import joined
from monitor.state.state_folder import StateFolder, filesystem_of
from monitor.state.store import State
from tests.conftest import Ran
from tests.state.states import SITE, change, chunk, fill, held, mount_again, need_strace, remount, small_disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state folder with three committed changes, a backup after the second, closed as if killed, or cleanly."""
    path = tmp_path / "state"
    state = State.open(path)
    state.commit(change(0), 1.0)
    state.commit(change(10), 2.0)
    state.back_up()
    state.commit(change(20), 3.0)
    state.close()
    return path


def found(folder: Path) -> tuple[str, list[float], dict[bytes, bytes]]:
    """Open a state; return what was recovered, its records and its checkpoints."""
    state = State.open(folder)
    try:
        answer = state.recovered, held(state), state.checkpoints("inbox")
        # As every start does, once it has said what happened.
        state.store_models({}, [], state.events, 9.0)
        return answer
    finally:
        state.close()


def test_b4_a_truncated_database_is_restored_from_the_backup_and_reported(folder: Path, tmp_path: Path) -> None:
    """At each 4 KiB: it always starts, never with half a state, and checkpoints are as old as the records."""
    whole = (folder / "state.db").read_bytes()
    for cut in range(0, len(whole), 4096):
        copy = tmp_path / f"cut{cut}"
        shutil.copytree(folder, copy)
        (copy / "state.db").write_bytes(whole[:cut])
        assert found(copy) == ("backup", [float(n) for n in range(20)], {b"file": b"20"}), cut
        assert len(list(copy.glob("state.db.corrupt-*"))) == 1
        assert found(copy)[0] == "", "a recovered state is an ordinary one at the next start"


def test_b4_without_a_backup_it_starts_empty_and_reports_it(folder: Path) -> None:
    """The damaged file is kept for analysis."""
    (folder / "state.db.bak").unlink()
    (folder / "state.db").write_bytes((folder / "state.db").read_bytes()[:4096])
    state = State.open(folder)
    assert (state.recovered, held(state), state.checkpoints("inbox")) == ("empty", [], {})
    assert any("started with empty windows" in event for event in state.events)
    assert len(list(folder.glob("state.db.corrupt-*"))) == 1
    state.close()


@pytest.mark.parametrize("content", [b"", bytes(40960), os.urandom(8192)], ids=["empty", "zeroed", "noise"])
def test_b5_a_zeroed_database_is_restored_from_the_backup(folder: Path, content: bytes) -> None:
    """As after a power cut on some filesystems."""
    (folder / "state.db").write_bytes(content)
    assert found(folder)[:2] == ("backup", [float(n) for n in range(20)])


def test_b6_flipped_bytes_in_a_chunk_cost_that_chunk_only(folder: Path) -> None:
    """SQLite does not detect it; the checksum of the chunk does."""
    connection = sqlite3.connect(folder / "state.db")
    connection.execute(
        "UPDATE chunks SET content = CAST(substr(content, 1, 20) || x'ff00ff00' || substr(content, 25) AS BLOB) WHERE id = 2"
    )
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.commit()
    connection.close()
    state = State.open(folder)
    assert held(state) == [float(n) for n in [*range(10), *range(20, 30)]]
    assert state.damaged_chunks == 1
    assert any("checksum mismatch" in event for event in state.events)
    state.close()
    assert found(folder)[:2] == ("", [float(n) for n in [*range(10), *range(20, 30)]])


@pytest.mark.parametrize("table", ["positions", "ids", "kept"])
def test_b6_flipped_bytes_elsewhere_are_damage_of_the_database(folder: Path, table: str) -> None:
    """A wrong checkpoint would lose records or count them twice: only an intact backup is consistent."""
    state = State.open(folder)
    hashes = IdBatch("density", 0, np.array([1, 2, 3], dtype=np.uint64))
    state.commit(CommitPlan(ids=[hashes], values={"alert": b"firing"}), 4.0)
    state.close()
    connection = sqlite3.connect(folder / "state.db")
    column = "content" if table == "ids" else "value"
    connection.execute(f"UPDATE {table} SET {column} = x'3939'")  # noqa: S608
    connection.commit()
    connection.close()
    assert found(folder)[0] == "backup"


def test_b7_a_full_disk_pauses_and_loses_nothing(tmp_path: Path) -> None:
    """The commit is rejected as a whole, reading continues, and writing resumes when there is space."""
    with small_disk(tmp_path) as disk:
        state = State.open(disk / "state")
        state.commit(change(0), 1.0)
        hog = fill(disk)
        for _ in range(3):
            with pytest.raises(StatePaused, match=r"expected free disk space, found none"):
                state.commit(change(10, 20_000), 2.0)
        assert held(state) == [float(n) for n in range(10)]
        assert state.checkpoints("inbox") == {b"file": b"10"}
        hog.unlink()
        state.commit(change(10, 20_000), 2.0)
        assert len(held(state)) == 20_010
        state.close()
        assert found(disk / "state")[0] == ""


def test_b7_it_starts_on_a_disk_that_is_full(tmp_path: Path) -> None:
    """Stored windows are served; new records wait."""
    with small_disk(tmp_path) as disk:
        state = State.open(disk / "state")
        state.store_models({}, [], [], 1.0)
        state.commit(change(0), 1.0)
        state.close()
        (disk / "state" / "ballast").unlink()
        fill(disk)
        state = State.open(disk / "state")
        state.store_models({}, [], [], 2.0)
        assert held(state) == [float(n) for n in range(10)]
        with pytest.raises(StatePaused):
            state.commit(change(10, 20_000), 2.0)
        state.close()


def test_b7_deleting_the_ballast_frees_space(tmp_path: Path) -> None:
    with small_disk(tmp_path, 32) as disk:
        state = State.open(disk / "state")
        fill(disk)
        with pytest.raises(StatePaused):
            state.commit(change(0, 20_000), 1.0)
        (disk / "state" / "ballast").unlink()
        state.commit(change(0, 20_000), 1.0)
        state.close()


def test_b8_a_disk_that_turns_read_only_pauses(tmp_path: Path) -> None:
    """As the kernel does after disk errors: reading continues, and after a repair nothing is missing."""
    with small_disk(tmp_path) as disk:
        state = State.open(disk / "state")
        state.commit(change(0), 1.0)
        remount(disk, "abort")
        for _ in range(3):
            with pytest.raises(StatePaused, match=r"found it read-only"):
                state.commit(change(10), 2.0)
        assert held(state) == [float(n) for n in range(10)]
        state.close()
        mount_again(disk)
        state = State.open(disk / "state")
        assert (state.recovered, held(state)) == ("", [float(n) for n in range(10)])
        state.commit(change(10), 2.0)
        state.close()


def _commits_under_strace(folder: Path, inject: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Open a state and commit twice in a child process with failing system calls."""
    need_strace()
    script = (
        "import sys; from pathlib import Path; from monitor.state.store import State; from monitor.errors import StateError;"
        "from tests.state.states import change\n"
        "try:\n"
        " s = State.open(Path(sys.argv[1])); s.commit(change(100), 1.0); s.commit(change(110), 2.0)\n"
        "except StateError as e: print(type(e).__name__, e); sys.exit(1)\n"
    )
    return subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            *more,
            "-e",
            f"inject={inject}",
            sys.executable,
            "-c",
            script,
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_b9_an_input_output_error_on_sync_stops_the_process(folder: Path) -> None:
    """The content of the disk is uncertain: exit, and let the next start verify it."""
    ran = _commits_under_strace(folder, "fdatasync:error=EIO:when=1+")
    assert ran.returncode == 1, ran
    assert ran.stdout.startswith("StateLost")
    recovered, records, positions = found(folder)
    assert recovered == ""
    assert positions[b"file"] == str(int(max(records)) + 1).encode()


def test_b10_a_disk_without_support_for_wal_raises(folder: Path) -> None:
    """Never silently in another journal mode, which would be slower and less safe."""
    log = folder / "state.db-wal"
    ran = _commits_under_strace(folder, "all:error=EIO:when=1+", "-P", str(log))
    assert ran.returncode == 1, ran
    assert ran.stdout.startswith("StateLost"), ran
    assert found(folder)[:2] == ("", [float(n) for n in range(30)])


def test_b10_the_journal_mode_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite falls back silently, so its answer is compared."""
    State.open(tmp_path / "state").close()

    class Stubborn(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            return super().execute(sql.replace("journal_mode = wal", "journal_mode = delete"), *rest)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: real(*a, **k, factory=Stubborn))
    with pytest.raises(StateLost, match=r"expected journal mode wal, found delete"):
        State.open(tmp_path / "state")


@pytest.mark.slow
def test_b11_a_second_process_on_the_same_state_is_refused(tmp_path: Path, cpcmon: Callable[..., Ran]) -> None:
    """With exit code 3 and a message that names the first; afterwards the state is free again."""
    state = State.open(tmp_path / "state")
    with pytest.raises(StateInUse, match=f"locked by process {os.getpid()}"):
        State.open(tmp_path / "state")
    ran = cpcmon("state", tmp_path / "state")
    assert ran.code == 3
    assert "expected a state folder that no other cpcmon uses" in ran.err
    state.close()
    with closing(sqlite3.connect(tmp_path / "state" / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateInUse, match="locked by another program"):
            State.open(tmp_path / "state")
        other.execute("ROLLBACK")
    State.open(tmp_path / "state").close()


def test_b12_a_newer_database_is_refused_and_unchanged(folder: Path) -> None:
    """No byte changes, and no file appears."""
    connection = sqlite3.connect(folder / "state.db")
    connection.execute("CREATE TABLE later(a)")
    connection.execute(f"PRAGMA user_version = {len(schema.STEPS) + 1}")
    connection.close()
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "state.lock"}
    with pytest.raises(StateRefused, match=r"made by a newer cpcmon"):
        State.open(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "state.lock"} == before


def test_b12_a_newer_version_in_the_wal_only_is_refused_too(folder: Path) -> None:
    """Killed before a checkpoint of the write-ahead log, the file header is still the old one."""
    script = (
        "import sqlite3, os, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('PRAGMA journal_mode = wal').fetchone(); c.execute('BEGIN'); c.execute('CREATE TABLE later(a)');"
        "c.execute('PRAGMA user_version = 99'); c.execute('COMMIT'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(folder / "state.db")], check=True)
    with pytest.raises(StateRefused, match=r"found version 99"):
        State.open(folder)


OLDER = ("CREATE TABLE old(a); INSERT INTO old VALUES (7)",)
NEWER = (*OLDER, "CREATE TABLE new(b); INSERT INTO new SELECT a FROM old; DROP TABLE old")


def test_b13_an_older_database_is_backed_up_and_migrated(tmp_path: Path) -> None:
    """With its content, and a backup of the old version."""
    database.open_database(tmp_path, steps=OLDER).connection.close()
    opened = database.open_database(tmp_path, steps=NEWER)
    assert opened.connection.execute("SELECT b FROM new").fetchall() == [(7,)]
    assert schema.version_of(opened.connection) == 2
    opened.connection.close()
    backup = sqlite3.connect(tmp_path / "state.db.bak")
    assert backup.execute("SELECT a FROM old").fetchall() == [(7,)]
    backup.close()


@pytest.mark.slow
def test_b13_a_killed_migration_leaves_one_version_or_the_other(tmp_path: Path) -> None:
    """At every write, sync and rename; the next start completes the migration."""
    need_strace()
    script = (
        "import sys; from pathlib import Path; from monitor.state import database;"
        f"database.open_database(Path(sys.argv[1]), steps={NEWER!r})"
    )
    killed = 0
    for call in ("pwrite64", "fdatasync,fsync", "rename", "unlink"):
        for place in range(1, 30, 6):
            folder = tmp_path / f"{call}{place}"
            folder.mkdir()
            database.open_database(folder, steps=OLDER).connection.close()
            inject = ["-e", f"inject={call}:signal=KILL:when={place}"]
            ran = subprocess.run(
                ["strace", "-f", "-qq", "-o", "/dev/null", *inject, sys.executable, "-c", script, str(folder)],
                capture_output=True,
                check=False,
                timeout=120,
            )
            if ran.returncode == 0:
                break
            killed += 1
            opened = database.open_database(folder, steps=NEWER)
            assert opened.connection.execute("SELECT b FROM new").fetchall() == [(7,)]
            assert opened.events == []
            opened.connection.close()
    assert killed > 4


def test_b14_state_on_a_network_filesystem_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Unless the operator insists; then without the write-ahead log, which needs shared memory."""
    with pytest.raises(StateRefused, match=r"expected a local filesystem, found nfs4"):
        State.open(tmp_path / "state", filesystem=lambda _: "nfs4")
    state = State.open(tmp_path / "state", allow_network=True, filesystem=lambda _: "nfs4")
    state.commit(change(0), 1.0)
    assert not (tmp_path / "state" / "state.db-wal").exists()
    state.close()
    assert found(tmp_path / "state")[1] == [float(n) for n in range(10)]


def test_b14_the_filesystem_is_found_in_the_kernels_list(tmp_path: Path) -> None:
    """/proc is of type proc, and the deepest mount decides."""
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(tmp_path) not in {"", "proc"}


def test_b15_a_damaged_backup_is_skipped(folder: Path) -> None:
    """The older one is used; if that is damaged too, it starts empty, and reports all of it."""
    state = State.open(folder)
    state.back_up()
    state.close()
    (folder / "state.db").write_bytes(b"")
    newest = folder / "state.db.bak"
    newest.write_bytes(newest.read_bytes()[:5000])
    assert found(folder)[:2] == ("backup", [float(n) for n in range(20)])
    for name in ("state.db", "state.db.bak", "state.db.bak.1"):
        (folder / name).write_bytes(b"nonsense")
    state = State.open(folder)
    assert state.recovered == "empty"
    assert sum("backup also damaged" in event for event in state.events) == 2
    state.close()


def test_b18_a_state_folder_deleted_while_in_use_stops_the_process(tmp_path: Path) -> None:
    """SQLite alone would go on writing to an unlinked file."""
    state = State.open(tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(StateLost, match=r"found it moved or deleted"):
        state.commit(change(0), 1.0)
    state.close()


def test_a_kill_during_a_recovery_is_reported_by_the_next_start(folder: Path) -> None:
    """The database is already renamed, and nothing else has happened."""
    (folder / "state.db").rename(folder / "state.db.corrupt-20261116T000000")
    state = State.open(folder)
    assert state.recovered == "backup"
    assert any("traces of an earlier one" in event for event in state.events)
    state.close()


def test_d21_everything_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """0700 for the folder, 0600 for its files."""
    before = os.umask(0)
    try:
        state = State.open(tmp_path / "state")
        state.commit(change(0), 1.0)
        state.back_up()
        modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "state").iterdir()}
        assert set(modes.values()) == {0o600}, modes
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
        state.close()
    finally:
        os.umask(before)


def test_a_change_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A failure in the middle leaves nothing behind, and a retry succeeds."""
    state = State.open(tmp_path / "state")
    state.commit(change(0), 1.0)
    bad = change(10)
    bad.chunks.append(chunk(30, segment=SITE))
    bad.counters = {("records",): 2**70}
    with pytest.raises(OverflowError):
        state.commit(bad, 2.0)
    assert held(state) == [float(n) for n in range(10)]
    bad.counters = {("records",): 7}
    state.commit(bad, 2.0)
    assert sorted(held(state)) == [float(n) for n in [*range(20), *range(30, 40)]]
    assert state.counters() == {("records",): 7}
    state.close()


def test_what_counts_as_evidence_is_stored_by_record(tmp_path: Path) -> None:
    """Packed; empty where all count. A flipped bit costs the chunk."""
    some = np.arange(10) % 3 > 0
    each = (None, np.ones(10, dtype=np.bool_), some, np.zeros(10, dtype=np.bool_))
    given = [replace(chunk(10 * place)[1], counted=counted) for place, counted in enumerate(each)]
    state = State.open(tmp_path / "state")
    state.commit(CommitPlan(chunks=[("density", one) for one in given]), 1.0)
    state.close()
    state = State.open(tmp_path / "state")
    read = [one.chunk for one in state.chunks("density")]
    assert [None if one.counted is None else one.counted.tolist() for one in read] == [
        None,
        None,
        some.tolist(),
        [False] * 10,
    ]
    together = joined(read).counted
    assert together is not None
    assert together.tolist() == [True] * 20 + some.tolist() + [False] * 10
    assert joined(read[:2]).counted is None
    state.close()
    with closing(sqlite3.connect(tmp_path / "state" / "state.db")) as connection, connection:
        connection.execute("UPDATE chunks SET counted = x'ffc0' WHERE id = 3")
    state = State.open(tmp_path / "state")
    assert (len(list(state.chunks("density"))), state.damaged_chunks) == (3, 1)
    state.close()


def test_named_values_are_stored_and_deleted(tmp_path: Path) -> None:
    """In the same transaction as the records."""
    state = State.open(tmp_path / "state")
    state.commit(CommitPlan(values={"alert:a": b"firing", "alert:b": b"ok"}), 1.0)
    state.commit(CommitPlan(values={"alert:b": None}, deleted_windows=[("density", ALL)]), 2.0)
    state.close()
    state = State.open(tmp_path / "state")
    assert state.values() == {"alert:a": b"firing"}
    state.close()


def test_a_backup_that_is_being_renamed_has_no_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics page reads it on another thread, also between the two renames of a backup."""
    state = State.open(tmp_path)
    monkeypatch.setattr(Path, "exists", lambda _: True)
    assert state.backup_age(0.0) == float("inf")
    state.close()


def test_without_repair_a_damaged_state_is_unchanged(folder: Path) -> None:
    """The next start must still report the damage."""
    (folder / "state.db").write_bytes(b"nonsense")
    with pytest.raises(StateLost, match=r"found damage"):
        State.open(folder, repair=False)
    assert found(folder)[0] == "backup"


def test_the_key_is_outside_the_database_and_stays(tmp_path: Path) -> None:
    """Sixteen random bytes that are not in the database."""
    holder = StateFolder.hold(tmp_path / "state")
    key = holder.key()
    assert (len(key), holder.key()) == (16, key)
    holder.close()
    state = State.open(tmp_path / "state")
    assert state.key == key
    state.commit(change(0), 1.0)
    state.close()
    assert key not in (tmp_path / "state" / "state.db").read_bytes()


def test_an_unusable_folder_is_refused_with_a_message(tmp_path: Path) -> None:
    """A file in place of the folder, or of one above it."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(StateRefused, match=r"expected a folder, or permission to create one, found"):
            State.open(place)


def test_a_dropped_vector_is_overwritten_and_gone_after_the_second_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with an SQLite that does not overwrite deleted data; within a table row, and on overflow pages."""
    connect = sqlite3.connect

    def careless(*words: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*words, **options)
        connection.execute("PRAGMA secure_delete = OFF").fetchone()
        return connection

    monkeypatch.setattr(sqlite3, "connect", careless)
    path = tmp_path / "state"
    state = State.open(path)
    few, many = chunk(1_000_001), chunk(2_000_001, 2000)
    committed = state.commit(CommitPlan(chunks=[few, many]), 1.0)
    state.back_up()
    vectors = [one.vectors[-1].tobytes() for _, one in (few, many)]
    assert all(vector in (path / "state.db.bak").read_bytes() for vector in vectors)
    state.commit(CommitPlan(chunks=[chunk(0)], maintenance={"density": Maintenance(deleted=committed)}), 2.0)
    state.back_up()
    state.back_up()
    state.close()
    assert {file.name for file in path.glob("state.db*")} == {"state.db", "state.db.bak", "state.db.bak.1"}
    for file in path.glob("state.db*"):
        assert not any(vector in file.read_bytes() for vector in vectors), file.name
