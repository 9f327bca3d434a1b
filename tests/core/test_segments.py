"""Segments of a model: each value its own window, capped, forgotten, and free of other versions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.calibration import calibrate
from monitor.core.labelled import label_outputs
from monitor.core.segments import ALL, ModelWindows, Records, Segmentation
from monitor.core.totals import Gauge, totals_of
from monitor.core.window import Bounds, bytes_per_window
from tests.strategies import Singles, synthetic

GAUGE = Gauge(calibrate(label_outputs(*synthetic(60, 3, seed=1))))
POOL: Singles = synthetic(500, 3, seed=2, sharpness=1.2)[0]
SPLIT = (("site",), ("site", "scanner"))


def records(*rows: tuple[str, str], start: int = 0, version: list[str] | None = None) -> Records:
    """Return records of these sites and scanners, one second apart."""
    sites, scanners = ([row[i] for row in rows] for i in (0, 1))
    return Records(
        POOL[start : start + len(rows)],
        np.arange(start, start + len(rows), dtype=np.float64),
        {"site": np.array(sites, dtype=np.str_), "scanner": np.array(scanners, dtype=np.str_)},
        None if version is None else np.array(version),
    )


def test_each_value_gets_its_own_window_beside_all() -> None:
    """Sites, and scanners within a site: scanner 1 of A is not scanner 1 of B."""
    windows = ModelWindows(GAUGE, Bounds(records=100), Segmentation(SPLIT))
    windows.add(records(("A", "1"), ("B", "1"), ("A", "2"), ("A", "1")), now=10.0)
    assert {name: len(windows[name]) for name in windows} == {
        ALL: 4,
        "site=A": 3,
        "site=B": 1,
        "site=A,scanner=1": 2,
        "site=A,scanner=2": 1,
        "site=B,scanner=1": 1,
    }
    assert next(iter(windows)) == ALL


def test_a_record_without_the_field_counts_in_the_whole_only() -> None:
    """And a model whose records never carry it has no segments."""
    windows = ModelWindows(GAUGE, Bounds(records=100), Segmentation(SPLIT))
    windows.add(records(("", "1"), ("A", "")), now=10.0)
    windows.add(Records(POOL[:2], np.array([3.0, 4.0])), now=10.0)
    assert {name: len(windows[name]) for name in windows} == {ALL: 4, "site=A": 1}


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["A", "B", ""]), st.sampled_from(["1", "2", ""])), max_size=40),
    st.integers(1, 9),
)
def test_segments_hold_what_a_plain_selection_holds(rows: list[tuple[str, str]], cut: int) -> None:
    """In any batching, each window's totals equal those of the records with its values."""
    windows = ModelWindows(GAUGE, Bounds(records=1000), Segmentation(SPLIT))
    for start in range(0, len(rows), cut):
        windows.add(records(*rows[start : start + cut], start=start), now=1000.0)
    wanted: dict[str, list[int]] = {ALL: list(range(len(rows)))}
    for row, (site, scanner) in enumerate(rows):
        if site:
            wanted.setdefault(f"site={site}", []).append(row)
        if site and scanner:
            wanted.setdefault(f"site={site},scanner={scanner}", []).append(row)
    assert set(windows) == set(wanted)
    for name, totals in windows.totals().items():
        assert np.array_equal(totals.vector, totals_of(GAUGE, POOL[wanted[name]]).vector)


def test_past_the_cap_new_values_are_counted_and_not_stored() -> None:
    """They still count in the whole; known values go on."""
    windows = ModelWindows(GAUGE, Bounds(records=100), Segmentation((("site",),), most_segments=2))
    taken = windows.add(records(("A", ""), ("B", ""), ("C", ""), ("C", ""), ("A", "")), now=10.0)
    assert taken.unstored_segments == 2
    assert taken.added.entered == 5
    assert list(windows) == [ALL, "site=A", "site=B"]
    assert windows.add(records(("A", ""), ("D", ""), start=10), now=11.0).unstored_segments == 1
    assert len(windows["site=A"]) == 3


def test_a_silent_segment_is_forgotten_and_makes_room() -> None:
    """After the set time without a record; the whole is never forgotten."""
    segmentation = Segmentation((("site",),), most_segments=1, forget_seconds=60.0)
    windows = ModelWindows(GAUGE, Bounds(records=100), segmentation)
    windows.add(records(("A", "")), now=10.0)
    assert windows.forget(now=70.0) == []
    assert windows.add(records(("B", ""), start=1), now=70.5).unstored_segments == 0
    assert list(windows) == [ALL, "site=B"]
    assert windows.forget(now=200.0) == ["site=B"]
    assert list(windows) == [ALL]


def test_versions_never_mix_unless_told_that_they_are_alike() -> None:
    """Another version is counted and kept out; a record without one is taken."""
    batch = records(("A", "1"), ("A", "1"), ("A", "1"), version=["2.1", "2.2", ""])
    strict = ModelWindows(GAUGE, Bounds(records=100), Segmentation(SPLIT), version="2.1")
    taken = strict.add(batch, now=10.0)
    assert (taken.other_version, taken.added.entered, len(strict["site=A"])) == (1, 2, 2)
    assert np.array_equal(strict[ALL].vectors(), POOL[[0, 2]])
    alike = ModelWindows(GAUGE, Bounds(records=100), Segmentation(SPLIT), version="2.1", versions_alike=True)
    assert alike.add(batch, now=10.0).other_version == 0
    unversioned = ModelWindows(GAUGE, Bounds(records=100), Segmentation(SPLIT))
    assert unversioned.add(batch, now=10.0).other_version == 0


def test_replicas_add_up() -> None:
    """Two processes that each saw half give, added, the estimate of one that saw all."""
    both = [ModelWindows(GAUGE, Bounds(records=1000)) for _ in range(2)]
    for replica, part in zip(both, (POOL[:200], POOL[200:]), strict=True):
        replica.add(Records(part, np.arange(len(part), dtype=np.float64)), now=1000.0)
    merged = both[0].totals()[ALL] + both[1].totals()[ALL]
    assert merged.estimate() == totals_of(GAUGE, POOL).estimate()


@pytest.mark.parametrize(("split", "windows"), [((), 1), (SPLIT, 201)], ids=["whole", "segments"])
def test_memory_is_told_beforehand(split: tuple[tuple[str, ...], ...], windows: int) -> None:
    """From the configuration alone: tables once, and every window full."""
    model = ModelWindows(GAUGE, Bounds(records=5000), Segmentation(split))
    assert model.most_bytes() == GAUGE.bytes_shared + windows * bytes_per_window(GAUGE, Bounds(records=5000))
