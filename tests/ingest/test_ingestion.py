"""Ingestion: commit before memory, memory before acknowledgement, and a complete restore after a kill."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from monitor.config.config import IngestOptions
from monitor.core.change import Detector
from monitor.core.history import Span
from monitor.core.record_columns import Texts
from monitor.core.segments import ALL
from monitor.core.totals import totals_of
from monitor.core.window import Bounds
from monitor.errors import StatePaused
from monitor.ingest import model_state
from monitor.ingest.ingestion import MOST_SHOWN, Ingestion
from monitor.records.record_batch import Pointer
from monitor.records.record_schema import OutputKind, RecordFields
from monitor.records.rejections import Reason
from monitor.reference.reference import Reference
from monitor.sources.base import Lag, SourceStatus
from monitor.state.commit_plan import CommitPlan, Counters, StoredCounters
from monitor.state.evaluation_history import History
from monitor.state.store import State
from tests.core.test_history import report
from tests.ingest.lines import CLASSES, NOW, Process, exact, expected, line
from tests.strategies import synthetic
from tests.waiting import wait_until


def test_records_are_in_the_window_in_the_order_they_came(tmp_path: Path) -> None:
    process = Process(tmp_path, [line(n) for n in range(20)])
    process.tick()
    assert process.window() == expected(list(range(20)))
    assert process.counted("records_total", "lines", "density") == 20
    process.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "stopped"])
def test_after_a_restart_the_windows_are_the_same(tmp_path: Path, *, orderly: bool) -> None:
    """Bit by bit, totals included; reading resumes at the checkpoint."""
    lines = [line(n, site="AB"[n % 2], time=NOW - 100 + n) for n in range(60)]
    process = Process(tmp_path, lines, split_by=(("site",),))
    process.tick()
    before = {segment: process.window(segment) for segment in process.model.windows}
    totals = {segment: exact(process.model.windows[segment].totals()) for segment in process.model.windows}
    process.stop() if orderly else process.kill()
    process = Process(tmp_path, [*lines, line(60, site="A")], split_by=(("site",),))
    assert {segment: process.window(segment) for segment in process.model.windows} == before
    assert {segment: exact(process.model.windows[segment].totals()) for segment in process.model.windows} == totals
    process.tick()
    assert process.counted("records_total", "lines", "density") == 61
    process.kill()


def test_counters_have_their_stored_names_and_unknown_ones_stay_in_the_state(tmp_path: Path) -> None:
    """The names are public, and another version of cpcmon may have more counters."""
    stored: StoredCounters = {
        ("records_total", "lines", "density"): 1,
        ("records_rejected_total", "lines", "bad_sum"): 2,
        ("records_normalised_total", "density"): 3,
        ("source_events_total", "lines", "bytes_read"): 4,
        ("state_recovered_total", "backup"): 5,
        ("resumed_total",): 6,
    }
    unknown: StoredCounters = {("records_of_tomorrow_total", "density"): 7, ("resumed_total", "why"): 8}
    assert Counters.from_stored(stored | unknown).stored() == stored
    process = Process(tmp_path, [line(n) for n in range(5)])
    process.state.commit(CommitPlan(counters=unknown), NOW)
    process.tick()
    counters = process.state.counters()
    process.kill()
    assert counters == {**counters, **unknown, ("records_total", "lines", "density"): 5}


def test_counters_are_known_before_the_windows_are_rebuilt(tmp_path: Path) -> None:
    """A page requested meanwhile would show 0, and Prometheus would count every record twice."""
    process = Process(tmp_path, [line(n) for n in range(20)])
    process.tick()
    process.stop()
    with closing(State.open(tmp_path)) as state:
        assert Ingestion(state, [], []).view.counters().stored()["records_total", "lines", "density"] == 20


def test_a_commit_that_fails_changes_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B7 end to end: ingestion pauses, windows can still be read, and it resumes on its own."""
    lines = [line(n) for n in range(20)]
    process = Process(tmp_path, lines)
    process.tick()
    lines.extend(line(n) for n in range(20, 30))
    real = State.commit

    def full(*_: object) -> None:
        raise StatePaused("state: expected free disk space, found none")

    monkeypatch.setattr(State, "commit", full)
    for second in range(3):
        process.tick(monotonic=float(second))
    assert process.window() == expected(list(range(20)))
    assert "free disk space" in str(process.ingestion.view.paused)
    assert process.counted("records_total", "lines", "density") == 20
    assert process.ingestion.view.snapshot("density", NOW, 0.0).measured.records.tolist() == [20]
    monkeypatch.setattr(State, "commit", real)
    process.tick(monotonic=2.5)
    assert "free disk space" in str(process.ingestion.view.paused), "it waits a little before it tries again"
    process.tick(monotonic=60.0)
    assert process.ingestion.view.paused is None
    assert process.window() == expected(list(range(30)))
    process.kill()


def test_the_lag_is_that_of_the_last_committed_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that could not be committed is read again, so its records still count as unread."""
    process = Process(tmp_path, [line(0)])
    unread, read = (SourceStatus("lines", "fake", lag=Lag(bytes=size)) for size in (2_000, 0))
    monkeypatch.setattr(process.source, "status", lambda: unread)
    process.tick()
    monkeypatch.setattr(process.source, "status", lambda: read)
    assert [one.lag.bytes for one in process.ingestion.view.sources()] == [2_000]
    process.kill()


def test_a_pause_ends_even_without_new_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The uncommitted file was deleted meanwhile."""
    lines = [line(0)]
    process = Process(tmp_path, lines)
    real = State.commit

    def full(*_: object) -> None:
        raise StatePaused("state: expected free disk space, found none")

    monkeypatch.setattr(State, "commit", full)
    process.tick()
    lines.clear()
    process.tick(monotonic=10.0)
    assert "free disk space" in str(process.ingestion.view.paused)
    monkeypatch.setattr(State, "commit", real)
    process.tick(monotonic=100.0)
    assert process.ingestion.view.paused is None
    process.kill()


def test_c13_one_record_in_ten_is_bad_and_the_estimate_is_that_of_the_others(tmp_path: Path) -> None:
    """The input is reported as degraded."""
    lines = [b'{"probs": [2, 3, 4]}\n' if n % 10 == 0 else line(n) for n in range(400)]
    process = Process(tmp_path, lines, bounds=Bounds(records=1000))
    process.tick()
    good = [n for n in range(400) if n % 10]
    assert process.window() == expected(good, most=1000)
    totals = process.ingestion.view.snapshot("density", NOW, 0.0).measured
    assert exact(totals) == exact(totals_of(process.model.gauge, process.model.windows[ALL].vectors()))
    assert process.model.health.degraded
    process.kill()
    process = Process(tmp_path, lines, bounds=Bounds(records=1000))
    assert process.model.health.degraded, "a restart does not switch the warning off"
    process.kill()


def test_c10_c11_a_stream_of_another_kind_is_rejected_with_a_hint(tmp_path: Path) -> None:
    """Logits and percentages: after 200 records the hint names the kind, and the input is degraded."""
    for name, vector in (("logits", "[-3.2, 5.0, 1.0]"), ("percent", "[70, 20, 10]")):
        process = Process(tmp_path / name, [f'{{"probs": {vector}}}\n'.encode()] * 200)
        process.tick()
        assert process.window() == []
        assert any(name in hint for hint in process.model.hints), process.model.hints
        assert process.model.health.degraded
        process.kill()


def test_c12_an_argmax_that_was_logged_is_flagged(tmp_path: Path) -> None:
    """Every estimator based on confidence would give 100%."""
    process = Process(tmp_path, [b'{"probs": [0, 1, 0]}\n', b'{"probs": [1, 0, 0]}\n'] * 100)
    process.tick()
    assert process.model.health.one_hot
    assert any("argmax" in hint for hint in process.model.hints), process.model.hints
    process.kill()


@pytest.mark.slow
def test_c14_a_flood_of_segments_is_capped(tmp_path: Path) -> None:
    """100,000 values: the number of windows is limited; all records count in the whole model."""
    lines = [line(n, site=f"s{n}") for n in range(100_000)]
    process = Process(tmp_path, lines, split_by=(("site",),), bounds=Bounds(records=100_000), at_once=5000)
    process.tick()
    assert len(list(process.model.windows)) == 201
    assert process.ingestion.view.snapshot("density", NOW, 0.0).measured.records[0] == 100_000
    assert process.counted("records_unstored_segment_total", "density") == 100_000 - 200
    process.kill()


def test_c15_a_record_of_2099_does_not_empty_a_window_by_age(tmp_path: Path) -> None:
    """It counts at its arrival time, and as future."""
    lines = [line(n, time=NOW - 60 + n) for n in range(20)]
    lines.insert(10, line(99, time=4_070_908_800))
    process = Process(tmp_path, lines, bounds=Bounds(age_seconds=3600.0))
    process.tick()
    assert len(process.window()) == 21
    assert process.counted("records_future_total", "density") == 1
    process.kill()
    process = Process(tmp_path, lines, bounds=Bounds(age_seconds=3600.0))
    assert len(process.window()) == 21
    process.kill()


def test_c17_row_58_ids_that_come_again_count_once_also_after_a_restart(tmp_path: Path) -> None:
    """In one batch, in a later one, and after a restart."""
    lines = [line(0, id="x"), line(1, id="x"), line(2, id="y"), line(3), line(4)]
    process = Process(tmp_path, lines)
    process.tick()
    assert process.window() == expected([0, 2, 3, 4])
    process.kill()
    lines += [line(5, id="y"), line(6, id="z"), line(7, id=7), line(8, id="7")]
    process = Process(tmp_path, lines)
    process.tick()
    assert process.window() == expected([0, 2, 3, 4, 6, 7])
    assert process.counted("records_rejected_total", "lines", "duplicate_id") == 3
    process.kill()


def test_row_59_ids_and_unknown_fields_are_nowhere_on_disk(tmp_path: Path) -> None:
    """Only keyed hashes of ids and groups are stored; a patient's name in any field is not."""
    lines = [line(0, id="ZZPATIENT1", name="ZZPATIENT2"), b'{"probs": "ZZPATIENT3"}\n', line(1, site="ZZPATIENT'4")]
    lines += [line(2, exam="ZZPATIENT5"), line(3, exam=["ZZPATIENT6"])]
    process = Process(tmp_path, lines, split_by=(("site",),), group_by="exam", detectors=(Detector(),))
    process.tick()
    assert process.counted("records_rejected_total", "lines", "bad_segment") == 1
    process.ingestion.stop(NOW)
    process.state.back_up()
    process.kill()
    for file in tmp_path.iterdir():
        assert b"ZZPATIENT" not in file.read_bytes(), file.name
    assert (tmp_path / "rejected.jsonl").read_text(encoding="utf-8").count("\n") == 3


def test_row_54_a_record_older_than_the_window_is_skipped_and_counted(tmp_path: Path) -> None:
    """By age it is late; in a window by count it is ordered by time, and evicted first."""
    lines = [line(n, time=NOW - n) for n in range(5)] + [line(9, time=NOW - 7200)]
    process = Process(tmp_path / "age", lines, bounds=Bounds(age_seconds=3600.0))
    process.tick()
    assert (len(process.window()), process.counted("records_late_total", "density")) == (5, 1)
    process.kill()
    process = Process(tmp_path / "count", lines, bounds=Bounds(records=6))
    process.tick()
    assert process.window() == expected([0, 1, 2, 3, 4, 9], [NOW, NOW - 1, NOW - 2, NOW - 3, NOW - 4, NOW - 7200])
    process.kill()


def test_fields_can_be_mapped_with_dotted_paths(tmp_path: Path) -> None:
    record = (
        b'{"prediction": {"scores": [0.5, 0.25, 0.25]}, "meta": {"at": "2025-10-09T08:53:20+00:00"}, "hospital": "A"}\n'
    )
    fields = RecordFields(probs="prediction.scores", time="meta.at", segments={"site": "hospital"})
    process = Process(tmp_path, [record], fields=fields, split_by=(("site",),))
    process.tick()
    assert process.window((("site", "A"),)) == [(NOW, (0.5, 0.25, 0.25))]
    process.kill()


def other_reference(**changes: object) -> Reference:
    """Return another reference."""
    arguments = {"model": "density", "version": "2.1", "classes": CLASSES} | changes
    return Reference.calibrate(*synthetic(80, len(arguments["classes"]), seed=9), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "kept", "sentence"),
    [
        pytest.param({"bounds": Bounds(records=10)}, 10, "", id="a smaller window keeps the latest"),
        pytest.param({"bounds": Bounds(records=500)}, 30, "", id="a larger window keeps all"),
        pytest.param({"bounds": Bounds(age_seconds=9.5)}, 10, "", id="an age"),
        pytest.param({"reference": {}}, 30, "", id="another calibration of the same model"),
        pytest.param({"reference": {"version": "3.0"}}, 0, "its reference is of version 3.0, not 2.1", id="version"),
        pytest.param({"reference": {"classes": ("cat", "dog", "owl", "yak")}}, 0, "the classes of its", id="classes"),
        pytest.param({"reference": {"classes": ("owl", "dog", "cat")}}, 0, "the classes of its", id="order"),
        pytest.param({"kind": OutputKind.LOGITS}, 0, "its output kind changed from probs to logits", id="kind"),
        pytest.param({"split_by": ()}, 30, "no longer split by site", id="segments"),
        pytest.param({"most_segments": 1}, 30, "the limit is 1 segments now", id="fewer segments"),
    ],
)
def test_b20_what_a_changed_configuration_cannot_keep_is_dropped_with_an_event(
    changed: dict[str, object], kept: int, sentence: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Windows that match are kept, and recomputed if the reference changed."""
    if isinstance(fields := changed.get("reference"), dict):
        changed = changed | {"reference": other_reference(**fields)}
    lines = [line(n, site="AB"[n % 2], time=NOW - 30 + n) for n in range(30)]
    process = Process(tmp_path, lines, split_by=(("site",),))
    process.tick()
    process.stop()
    process = Process(tmp_path, lines, **({"split_by": (("site",),)} | changed))  # type: ignore[arg-type]
    assert sentence in caplog.text
    assert bool(sentence) == ("dropped the stored window" in caplog.text)
    window = process.model.windows[ALL]
    assert len(window) == kept
    assert exact(window.totals()) == exact(totals_of(process.model.gauge, window.vectors()))
    process.kill()
    caplog.clear()
    process = Process(tmp_path, lines, **({"split_by": (("site",),)} | changed))  # type: ignore[arg-type]
    assert "dropped" not in caplog.text, "said once"
    process.kill()


def test_b21_a_clock_set_back_across_a_restart_evicts_nothing(tmp_path: Path) -> None:
    """An hour back: the window keeps its records, at the new time."""
    lines = [line(n) for n in range(10)]
    process = Process(tmp_path, lines, bounds=Bounds(records=50, age_seconds=600.0))
    process.tick(NOW)
    process.kill()
    lines += [line(n) for n in range(10, 15)]
    process = Process(tmp_path, lines, bounds=Bounds(records=50, age_seconds=600.0), now=NOW - 3600)
    process.tick(NOW - 3600)
    after = process.window()
    assert [vector for _, vector in after] == [vector for _, vector in expected(list(range(15)))]
    assert {time for time, _ in after} == {NOW - 3600}
    process.kill()
    process = Process(tmp_path, lines, bounds=Bounds(records=50, age_seconds=600.0), now=NOW - 3500)
    assert process.window() == after
    lines.append(line(15))
    process.tick(NOW - 3500)
    process.kill()
    process = Process(tmp_path, lines, bounds=Bounds(records=50, age_seconds=600.0), now=NOW - 3400)
    assert len(process.window()) == 16
    process.kill()


def test_chunks_on_disk_stay_few_whatever_the_order_of_times(tmp_path: Path) -> None:
    """A record from the future keeps no chunk alive, and single records do not leave a row each."""
    lines = [line(0, time=NOW)]
    process = Process(tmp_path, lines, bounds=Bounds(records=20))
    for n in range(1, 400):
        lines.append(line(n, time=NOW - 1e6 + n))
        process.tick(NOW)
    connection = process.state._connection  # noqa: SLF001
    assert connection.execute("SELECT count(*) FROM chunks").fetchone()[0] < 100
    expected_window = expected([0, *range(381, 400)], [NOW, *(NOW - 1e6 + n for n in range(381, 400))])
    assert process.window() == expected_window
    process.kill()
    process = Process(tmp_path, lines, bounds=Bounds(records=20))
    assert process.window() == expected_window
    process.kill()


def test_counters_never_wait_for_the_windows(tmp_path: Path) -> None:
    """They are a copy as of the last commit: a scrape must not wait for an evaluation."""
    process = Process(tmp_path, [line(n) for n in range(20)])
    process.tick()
    with process.ingestion.states.lock:
        assert process.counted("records_total", "lines", "density") == 20
    process.kill()


def test_records_that_come_while_an_evaluation_measures_are_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ingestion is let in between two pieces; records also leave their windows meanwhile."""
    monkeypatch.setattr(model_state, "_PIECE", 8)
    lines = [line(n, site="AB"[n % 2], time=NOW - 100 + n) for n in range(60)]
    process = Process(tmp_path, lines, split_by=(("site",),), bounds=Bounds(records=20))
    process.tick()
    lock = process.ingestion.states.lock

    class Busy(model_state.QueueLock):
        left = 3

        def __exit__(self, *_: object) -> None:
            super().__exit__()
            if self.left:
                self.left -= 1
                first = len(lines)
                lines.extend(line(n, site="AB"[n % 2], time=NOW - 100 + n) for n in range(first, first + 6))
                process.ingestion.states.lock = lock
                process.tick()
                process.ingestion.states.lock = self

    process.ingestion.states.lock = Busy()
    snapshot = process.ingestion.view.snapshot("density", NOW, 0.0)
    assert len(lines) == 78
    assert snapshot.segments == tuple(process.model.windows)
    for index, segment in enumerate(snapshot.segments):
        window = process.model.windows[segment]
        fresh = totals_of(process.model.gauge, window.vectors())
        assert (snapshot.measured.totals[index] == fresh.totals[0]).all()
        assert (snapshot.measured.predicted[index] == fresh.predicted[0]).all()
        assert (snapshot.newest_at[index], snapshot.measured.records[index]) == (window.times[-1], 20)
    process.kill()


def test_a_thread_that_waits_for_the_lock_gets_it_next() -> None:
    """An evaluation that releases it between two pieces must not take it again before ingestion."""
    lock, got = model_state.QueueLock(), list[str]()

    def wait() -> None:
        with lock:
            got.append("it")

    with lock:
        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lock._next.locked)  # noqa: SLF001
    with lock:
        assert got == ["it"]
    thread.join()


def test_it_is_catching_up_during_a_large_backlog(tmp_path: Path) -> None:
    """By bytes, or by age."""
    process = Process(tmp_path, [], options=IngestOptions(catching_up_bytes=1000, catching_up_age_seconds=60.0))
    for lag, answer in (
        (Lag(), False),
        (Lag(bytes=1001, files=1), True),
        (Lag(bytes=10, files=1, oldest_unread=NOW - 30), False),
        (Lag(bytes=10, files=1, oldest_unread=NOW - 61), True),
    ):
        status = SourceStatus("lines", "lines", None, lag)
        process.source.status = lambda status=status: status  # type: ignore[method-assign, misc]
        process.tick()
        assert process.ingestion.view.catching_up(NOW) is answer
    process.kill()


def test_a_backup_is_made_every_hour(tmp_path: Path) -> None:
    """Not at once, and not at every tick."""
    process = Process(tmp_path, [line(0)])
    process.tick(monotonic=0.0)
    assert not (tmp_path / "state.db.bak").exists()
    process.tick(monotonic=3601.0)
    first = (tmp_path / "state.db.bak").stat().st_ino
    process.tick(monotonic=3700.0)
    assert (tmp_path / "state.db.bak").stat().st_ino == first
    process.kill()


def test_after_a_recovery_later_records_are_read_again(tmp_path: Path) -> None:
    """Checkpoints in a backup are as old as its windows, so nothing is lost or counted twice."""
    lines = [line(n, id=f"i{n}") for n in range(10)]
    process = Process(tmp_path, lines)
    process.tick(monotonic=0.0)
    process.tick(monotonic=4000.0)
    lines += [line(n, id=f"i{n}") for n in range(10, 25)]
    process.tick()
    process.kill()
    (tmp_path / "state.db").write_bytes(b"power failed here")
    process = Process(tmp_path, lines)
    assert (process.state.recovered, len(process.window())) == ("backup", 10)
    process.tick()
    assert process.window() == expected(list(range(25)))
    process.kill()


def test_small_id_batches_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged ids are still known after a restart."""
    monkeypatch.setattr("monitor.ingest.model_state._MERGED_BATCHES", 10)
    lines: list[bytes] = []
    process = Process(tmp_path, lines)
    for n in range(45):
        lines.append(line(n, id=f"i{n}"))
        process.tick()
    rows = process.state._connection.execute("SELECT count(*) FROM ids").fetchone()[0]  # noqa: SLF001
    assert rows <= 4 + 5 + 1
    process.kill()
    lines += [line(n, id=f"i{n}") for n in range(45)]
    process = Process(tmp_path, lines)
    process.tick()
    assert process.counted("records_rejected_total", "lines", "duplicate_id") == 45
    process.kill()


def test_text_columns_are_joined() -> None:
    """With equal, other and no values."""
    one, two = Texts.of(["a", "b", "a"]), Texts.of(["c", "a"])
    assert Texts.joined([one, two]).texts() == ["a", "b", "a", "c", "a"]
    assert Texts.joined([one, one]).texts() == ["a", "b", "a"] * 2


def test_locations_of_rejected_records_survive_a_kill_without_content(tmp_path: Path) -> None:
    process = Process(tmp_path, [b"no json\n", line(1), b'{"probs": "ZZPATIENT"}\n'])
    process.tick()
    before = process.ingestion.view.rejected_records()
    assert [one[3].number for one in before] == [3, 1]
    assert {one[1] for one in before} == {"lines"}
    process.kill()
    with closing(State.open(tmp_path)) as state:
        assert Ingestion(state, [], []).view.rejected_records() == before


def test_raw_records_are_not_held_for_the_page(tmp_path: Path) -> None:
    """Even if the operator stores them in rejected.jsonl."""
    pointer = Pointer(Reason.EMPTY, 1, raw=b"ZZPATIENT")
    with closing(State.open(tmp_path)) as state:
        state.commit(CommitPlan(rejected=[("lines", "file#1", pointer)]), NOW)
        assert state.rejected()[0][3].raw == b"ZZPATIENT"
        ((_, _, _, found),) = Ingestion(state, [], []).view.rejected_records()
    assert found == Pointer(Reason.EMPTY, 1)


def test_a_damaged_pointer_is_skipped(tmp_path: Path) -> None:
    with closing(State.open(tmp_path)) as state:
        refused = [("lines", "file#1", Pointer(Reason.EMPTY, number)) for number in (1, 2, 3, 4)]
        state.commit(CommitPlan(rejected=refused), NOW)
    with closing(sqlite3.connect(tmp_path / "state.db")) as connection, connection:
        connection.execute("UPDATE rejected SET pointer = x'00ff' WHERE id = 1")
        connection.execute("UPDATE rejected SET source = CAST(x'ff80' AS TEXT) WHERE id = 2")
        connection.execute("UPDATE rejected SET pointer = 7 WHERE id = 3")
    with closing(State.open(tmp_path)) as state:
        assert [one[3].number for one in Ingestion(state, [], []).view.rejected_records()] == [4]


def test_only_the_latest_locations_are_in_memory(tmp_path: Path) -> None:
    process = Process(tmp_path, [b"no json\n"] * (MOST_SHOWN + 50))
    process.tick()
    assert [one[3].number for one in process.ingestion.view.rejected_records()] == list(range(MOST_SHOWN + 50, 50, -1))
    process.kill()


def test_history_is_written_without_records_and_at_a_stop(tmp_path: Path) -> None:
    state, history = State.open(tmp_path), History()
    ingestion = Ingestion(state, [], [], history=history)
    ingestion.start(NOW)
    history.note(report(0.5), NOW)
    ingestion.tick(NOW, 1.0)
    assert not history.unwritten()
    history.note(report(0.25), NOW + 1)
    ingestion.stop(NOW + 1)
    state.close()
    again = History()
    with closing(State.open(tmp_path)) as state:
        again.restore(state.history())
    series = again.series("density", "all", Span.RECENT)
    assert series is not None
    assert series.accuracy.tolist() == [0.5, 0.25]


def test_chunks_are_maintained_while_every_commit_forgets_a_segment(tmp_path: Path) -> None:
    lines: list[bytes] = []
    process = Process(tmp_path, lines, split_by=(("site",),), most_segments=5, forget_seconds=4.5)
    for number in range(150):
        lines.append(line(number, site=f"S{number}", time=NOW + number))
        process.tick(NOW + number, float(number))
    assert len(list(process.state.chunks("density"))) <= 60
    held = {segment: process.window(segment) for segment in process.model.windows}
    process.kill()
    process = Process(tmp_path, lines, split_by=(("site",),), most_segments=5, forget_seconds=4.5, now=NOW + 149)
    assert {segment: process.window(segment) for segment in process.model.windows} == held
    process.kill()
