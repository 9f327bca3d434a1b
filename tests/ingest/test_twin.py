"""A process that is killed again and again, beside a twin that never is: the same windows, to the bit, at every step."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core import window as measuring
from monitor.core.window import Bounds
from monitor.errors import StatePaused
from monitor.state import commit_plan as chunk_log
from monitor.state.commit_plan import CommitPlan
from monitor.state.store import State
from tests.ingest.lines import NOW, Process, exact, line

pytestmark = pytest.mark.slow

RECORDS = st.lists(
    st.tuples(
        st.sampled_from("ABCD"), st.integers(-400, 400), st.integers(0, 12), st.sampled_from(["2.1", "2.1", "1.0"])
    ),
    min_size=0,
    max_size=9,
)
STEPS = st.lists(
    st.tuples(RECORDS, st.sampled_from([1, 1, 1, 50, -900]), st.sampled_from(["", "", "kill", "stop", "full"])),
    min_size=1,
    max_size=14,
)
BOUNDS = st.sampled_from(
    [Bounds(records=6), Bounds(records=25), Bounds(age_seconds=300.0), Bounds(records=12, age_seconds=500.0)]
)


@settings(max_examples=25)
@given(STEPS, BOUNDS, st.integers(1, 9), st.sampled_from([1, 3, 100]))
def test_kills_stops_and_full_disks_leave_no_trace(
    steps: list[tuple[list[tuple[str, int, int, str]], int, str]], bounds: Bounds, most_segments: int, at_once: int
) -> None:
    """Late, future and repeated records, other versions, few segments, clocks that jump; limits so small that chunks turn over."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as place:
        patch.setattr(chunk_log, "_FAN", 3)
        patch.setattr(chunk_log, "_MOST_RECORDS", 12)
        patch.setattr(chunk_log, "_SPARE_RECORDS", 3)
        patch.setattr(measuring, "_MOST_LEFT_NUMBERS", 12)
        patch.setattr("monitor.ingest.model_state._MERGED_BATCHES", 3)
        lines: list[bytes] = []

        def start(name: str, now: float) -> Process:
            return Process(
                Path(place) / name, lines, bounds=bounds, split_by=(("site",), ("site", "scanner")), most_segments=most_segments,
                at_once=at_once, now=now,
            )  # fmt: skip

        now, number = NOW, 0
        killed, twin = start("killed", now), start("twin", now)
        for records, later, what in steps:
            now += later
            for site, offset, name, version in records:
                number += 1
                fields = {"site": site, "scanner": "12"[number % 2], "time": now + offset, "version": version}
                lines.append(line(number, **fields, **({"id": f"i{name}"} if name < 10 else {})))
            if what == "full":
                with patch.context() as full:
                    full.setattr(State, "commit", _full)
                    killed.tick(now, 0.0)
            killed.tick(now, 1e9)
            twin.tick(now, 1e9)
            if what in {"kill", "stop"}:
                killed.kill() if what == "kill" else killed.stop(now)
                killed = start("killed", now)
            _same(killed, twin)
        killed.kill()
        twin.kill()


def _full(*_: object) -> None:
    raise StatePaused("expected free disk space, found none")


def _check_log(process: Process) -> None:
    """The log knows of each chunk how many of its records are in a window: too few would lose them."""
    windows, log = process.model.windows, process.model.log
    log.maintain(windows, CommitPlan())
    chunks = log._chunks[: log._count]  # noqa: SLF001
    held = np.unique(np.concatenate([windows.arrivals(segment) for segment in windows]))
    of_chunk = np.searchsorted(chunks["start"], held, side="right") - 1
    assert np.bincount(of_chunk, minlength=len(chunks)).tolist() == chunks["live"].tolist()


def _same(one: Process, other: Process) -> None:
    _check_log(one)
    assert set(one.model.windows) == set(other.model.windows)
    for segment in other.model.windows:
        assert one.window(segment) == other.window(segment)
        assert exact(one.model.windows[segment].totals()) == exact(other.model.windows[segment].totals())
    for name in ("records_total", "records_rejected_total"):
        assert {k: v for k, v in one.ingestion.view.counters().stored().items() if k[0] == name} == {
            k: v for k, v in other.ingestion.view.counters().stored().items() if k[0] == name
        }
