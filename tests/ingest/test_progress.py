"""Progress messages of long work, with a manual clock."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.ingest import restore
from monitor.ingest.backlog import BacklogProgress
from monitor.sources.base import Lag
from tests.ingest.lines import Process, line

MUCH = {"inbox": Lag(40_000_000, 3), "topic": Lag(0, 2), "idle": Lag()}


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """The log messages, in order."""
    caplog.set_level(logging.INFO, "cpcmon")
    sentences: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: sentences.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("cpcmon").addHandler(handler)
    yield sentences
    logging.getLogger("cpcmon").removeHandler(handler)


def test_a_backlog_is_logged_at_once_then_every_ten_seconds_and_at_its_end(said: list[str]) -> None:
    """Sources without a backlog are omitted."""
    backlog = BacklogProgress()
    for running, behind in ((100.0, True), (105.0, True), (110.0, True), (111.0, False), (112.0, False)):
        backlog.report(running, behind=behind, records=500, lags=MUCH if behind else {"inbox": Lag()})
    assert said == [
        "catching up: 500 records read, unread at inbox: 3 files, 40.0 MB; topic: 2 parts",
        "catching up: 1,500 records read, unread at inbox: 3 files, 40.0 MB; topic: 2 parts",
        "caught up: 2,000 records read in the meantime",
    ]


def test_without_a_backlog_nothing_is_logged(said: list[str]) -> None:
    """A small backlog is normal."""
    backlog = BacklogProgress()
    for second in range(60):
        backlog.report(float(second), behind=False, records=10, lags={"inbox": Lag(100, 1)})
    assert said == []


def test_a_restore_logs_its_progress(said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every ten seconds."""
    process = Process(tmp_path, [line(n, site="AB"[n % 2]) for n in range(40)], split_by=(("site",),), at_once=10)
    process.tick()
    monkeypatch.setattr("monitor.ingest.planning._MOST_DELIVERIES", 1)
    process.source.lines.extend(line(n) for n in range(40, 60))
    process.tick()
    process.kill()
    monkeypatch.setattr(restore, "_AT_ONCE", 1)
    monkeypatch.setattr(restore, "monotonic", iter([0.0, 9.9, 10.0, 21.0]).__next__)
    Process(tmp_path, [], split_by=(("site",),)).kill()
    told = [sentence for sentence in said if "rebuilding" in sentence]
    assert told == [f"rebuilding windows: {done} of 60 records; no estimates until this ends" for done in (50, 60)]
