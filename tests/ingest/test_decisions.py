"""Records that name the decision: stored, restored and measured with it; what the device refers to a person is counted apart."""

import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from monitor.core.segments import ALL, Segment
from monitor.core.window import Bounds
from monitor.records.record_schema import RecordFields
from monitor.reference.reference import Reference
from monitor.state import commit_plan as chunk_log
from monitor.state.database import BACKUPS, NAME
from monitor.state.schema import STEPS
from tests.core.slow_totals import assert_equal
from tests.ingest.lines import CLASSES, NOW, Process, expected, line
from tests.strategies import synthetic

FIELDS = RecordFields(predicted="called")
SPLIT = (("site",),)
A: Segment = (("site", "A"),)


@cache
def deciding() -> Reference:
    """Return a reference whose records decide, mostly against their probabilities."""
    probabilities, labels = synthetic(60, 3, seed=1)
    decided = [CLASSES[place % 3] for place in range(60)]
    return Reference.calibrate(probabilities, labels, model="density", version="2.1", classes=CLASSES, decide=decided)


def called(number: int) -> int:
    """Return what the device decides."""
    return number * 7 % 5 % 3


def process_of(folder: Path, lines: list[bytes], reference: Reference | None = None) -> Process:
    """Return a process with a reference whose records decide, or with another."""
    bounds = Bounds(records=50)
    return Process(folder, lines, bounds=bounds, split_by=SPLIT, reference=reference or deciding(), fields=FIELDS)


def decisions(process: Process, segment: Segment = ALL) -> list[int]:
    """Return the decisions in a window."""
    decided = process.model.windows[segment].decided()
    assert decided is not None
    return [int(one) for one in decided]


def check(process: Process, numbers: list[int]) -> None:
    """Check windows and totals of these records."""
    of_site = [number for number in numbers if number % 2 == 0]
    for segment, some in ((ALL, numbers[-50:]), (A, of_site[-50:])):
        if not some:
            continue
        window = process.model.windows[segment]
        assert process.window(segment) == expected(some, [NOW - 1000.0 + number for number in some])
        assert decisions(process, segment) == [called(number) for number in some]
        assert_equal(window.totals(), 0, window.vectors(), window.decided())


def test_decisions_survive_kills_and_merged_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eleventh record is referred to a person; all ids arrive twice."""
    monkeypatch.setattr(chunk_log, "_FAN", 4)
    monkeypatch.setattr(chunk_log, "_SPARE_RECORDS", 20)
    lines: list[bytes] = []
    process, numbers = process_of(tmp_path, lines), []
    for number in range(130):
        referred = number % 11 == 0
        decision = None if referred else CLASSES[called(number)] if number % 3 else called(number)
        fields = {"site": "AB"[number % 2], "time": NOW - 1000.0 + number, "id": f"study-{number}"}
        lines += [line(number, called=decision, **fields)] * 2
        numbers += [] if referred else [number]
        process.tick()
        check(process, numbers)
        if number % 13 == 0:
            process.kill()
            process = process_of(tmp_path, lines)
            check(process, numbers)
    assert process.counted("records_referred_total", "density") == 12
    assert process.counted("records_total", "lines", "density") == len(numbers) == 118
    assert process.counted("records_rejected_total", "lines", "duplicate_id") == 130
    process.tick(now=NOW - 1e6)
    lines.append(line(0, called=0))
    process.tick(now=NOW - 1e6)
    window = process.model.windows[ALL]
    assert_equal(window.totals(), 0, window.vectors(), window.decided())
    before = window.times.tolist(), decisions(process)
    process.tick(now=NOW - 1e6)
    process.kill()
    process = process_of(tmp_path, lines)
    assert (process.model.windows[ALL].times.tolist(), decisions(process)) == before
    process.kill()


def test_a_reference_whose_records_decide_drops_records_without_a_decision(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other way round they are kept, but then there are some without: going back drops all."""
    lines = [line(number, called=called(number), site="A", time=NOW - 100.0 + number) for number in range(30)]
    plain = Reference.calibrate(*synthetic(60, 3, seed=1), model="density", version="2.1", classes=CLASSES)
    found = []
    for reference in (plain, deciding(), plain, deciding()):
        process = process_of(tmp_path, lines, reference)
        found.append((len(process.model.windows[ALL]), "name the decision, and its records name none" in caplog.text))
        caplog.clear()
        lines += [line(number, called=called(number), site="A", time=NOW) for number in range(3)]
        process.tick()
        window = process.model.windows[ALL]
        assert_equal(window.totals(), 0, window.vectors(), window.decided())
        process.stop()
    assert found == [(0, False), (0, True), (3, False), (0, True)]


@pytest.mark.parametrize(("version", "later"), [(4, ("counted", "decided")), (5, ("counted",)), (6, ())])
def test_a_state_of_an_earlier_version_is_migrated(tmp_path: Path, version: int, later: tuple[str, ...]) -> None:
    """The columns and the table of later versions come back empty."""
    lines = [line(number, site="AB"[number % 2], time=NOW - 1000.0 + number) for number in range(40)]
    process = Process(tmp_path, lines, split_by=SPLIT)
    process.tick()
    before = {segment: process.window(segment) for segment in process.model.windows}
    process.stop()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection, connection:
        for column in later:
            connection.execute(f"ALTER TABLE chunks DROP COLUMN {column}")
        connection.execute("DROP TABLE audit_ids")
        connection.execute("DELETE FROM checksums WHERE name = 'audit_ids'")
        connection.execute(f"PRAGMA user_version = {version}")
    process = Process(tmp_path, lines, split_by=SPLIT)
    assert {segment: process.window(segment) for segment in process.model.windows} == before
    assert (process.state.events, process.state.recovered) == ([], "")
    process.kill()
    for name, found in ((NAME, len(STEPS)), (BACKUPS[0], version)):
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (found,)
