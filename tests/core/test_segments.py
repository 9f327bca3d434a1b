"""Segments of a model: a window per value, limited, removed when idle, without other versions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.record_columns import Records, Texts
from monitor.core.segments import ALL, Admitted, ModelWindows, Segmentation, name_of
from monitor.core.totals import totals_of
from monitor.core.window import Added, Bounds, bytes_per_window, measured
from tests.core.slow_totals import same
from tests.strategies import Singles, small_gauge, synthetic

POOL: Singles = synthetic(500, 3, seed=2, sharpness=1.2)[0]
SPLIT = (("site",), ("site", "scanner"))


def records(*rows: tuple[str, str], start: int = 0, version: list[str] | None = None) -> Records:
    """Return records of these sites and scanners, one second apart."""
    sites, scanners = ([row[i] for row in rows] for i in (0, 1))
    return Records(
        POOL[start : start + len(rows)],
        np.arange(start, start + len(rows), dtype=np.float64),
        {"site": Texts.of(sites), "scanner": Texts.of(scanners)},
        None if version is None else Texts.of(version),
    )


def add(windows: ModelWindows, batch: Records, now: float) -> tuple[Admitted, dict[str, Added]]:
    """Add a batch as ingestion does; return what was admitted, and the result by segment."""
    admitted = windows.admit(batch, now)
    for segment in admitted.forgotten:
        windows.forget(segment)
    assert admitted.chunk is not None
    entered = windows.enter(admitted.chunk)
    return admitted, {name_of(segment): added for segment, added in entered.added.items()}


def sizes(windows: ModelWindows) -> dict[str, int]:
    """Return the number of records by segment."""
    return {name_of(segment): len(windows[segment]) for segment in windows}


def test_each_value_has_its_own_window() -> None:
    """Sites, and scanners within a site: scanner 1 of A is not scanner 1 of B."""
    windows = ModelWindows(small_gauge(), Bounds(records=100), Segmentation(SPLIT))
    add(windows, records(("A", "1"), ("B", "1"), ("A", "2"), ("A", "1")), now=10.0)
    assert sizes(windows) == {
        "all": 4,
        "site=A": 3,
        "site=B": 1,
        "site=A,scanner=1": 2,
        "site=A,scanner=2": 1,
        "site=B,scanner=1": 1,
    }
    assert next(iter(windows)) == ALL


def test_a_record_without_the_field_counts_in_the_whole_only() -> None:
    """A model without the field in any record has no segments."""
    windows = ModelWindows(small_gauge(), Bounds(records=100), Segmentation(SPLIT))
    add(windows, records(("", "1"), ("A", "")), now=10.0)
    add(windows, Records(POOL[:2], np.array([3.0, 4.0])), now=10.0)
    assert sizes(windows) == {"all": 4, "site=A": 1}


@pytest.mark.parametrize("capacity", [1, 5, 40])
def test_what_no_window_keeps_of_a_large_batch_is_left_out(capacity: int) -> None:
    """It counts as late; the windows are those of the same records one by one, with equal times too."""
    dice = np.random.default_rng(capacity)
    sites, scanners = (dice.choice(values, 60).tolist() for values in (["A", "A", "B", ""], ["1", "2", ""]))
    batch = replace(records(*zip(sites, scanners, strict=True)), at=dice.integers(0, 9, 60).astype(np.float64))
    together, one_by_one = (
        ModelWindows(small_gauge(), Bounds(records=capacity), Segmentation(SPLIT)) for _ in range(2)
    )
    admitted, added = add(together, batch, now=1000.0)
    for row in range(60):
        add(one_by_one, batch.taken(np.array([row])), now=1000.0)
    assert sizes(together) == sizes(one_by_one)
    for segment in together:
        assert together[segment].times.tolist() == one_by_one[segment].times.tolist()
        np.testing.assert_array_equal(together[segment].vectors(), one_by_one[segment].vectors())
    assert admitted.late + added["all"].late == 60 - capacity
    assert len(together.take_freed()) == 0, "every record of the chunk is in a window"


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(["A", "B", ""]), st.sampled_from(["1", "2", ""])), max_size=40),
    st.integers(1, 9),
)
def test_segments_equal_a_plain_selection(rows: list[tuple[str, str]], cut: int) -> None:
    """In any batching, with equal totals."""
    windows = ModelWindows(small_gauge(), Bounds(records=1000), Segmentation(SPLIT))
    for start in range(0, len(rows), cut):
        add(windows, records(*rows[start : start + cut], start=start), now=1000.0)
    wanted: dict[str, list[int]] = {"all": list(range(len(rows)))}
    for row, (site, scanner) in enumerate(rows):
        if site:
            wanted.setdefault(f"site={site}", []).append(row)
        if site and scanner:
            wanted.setdefault(f"site={site},scanner={scanner}", []).append(row)
    assert set(sizes(windows)) == set(wanted)
    for segment in windows:
        assert same(windows[segment].totals(), totals_of(small_gauge(), POOL[wanted[name_of(segment)]]))


def test_over_the_limit_new_values_are_counted_and_not_stored() -> None:
    """They still count in the whole; existing segments continue."""
    windows = ModelWindows(small_gauge(), Bounds(records=100), Segmentation((("site",),), most_segments=2))
    admitted, added = add(windows, records(("A", ""), ("B", ""), ("C", ""), ("C", ""), ("A", "")), now=10.0)
    assert admitted.unstored == 2
    assert added["all"].entered == 5
    assert list(sizes(windows)) == ["all", "site=A", "site=B"]
    assert add(windows, records(("A", ""), ("D", ""), start=10), now=11.0)[0].unstored == 1
    assert sizes(windows)["site=A"] == 3


def test_an_idle_segment_is_removed_to_make_room() -> None:
    """After the configured time without a record. The whole is never removed."""
    segmentation = Segmentation((("site",),), most_segments=1, forget_seconds=60.0)
    windows = ModelWindows(small_gauge(), Bounds(records=100), segmentation)
    add(windows, records(("A", "")), now=10.0)
    assert windows.idle(now=70.0) == []
    assert add(windows, records(("B", ""), start=1), now=70.5)[0].unstored == 0
    assert list(sizes(windows)) == ["all", "site=B"]
    assert windows.idle(now=200.0) == [(("site", "B"),)]
    windows.forget((("site", "B"),))
    assert list(windows) == [ALL]


def test_a_clock_that_is_set_forward_removes_no_segment() -> None:
    """The idle time continues."""
    windows = ModelWindows(small_gauge(), Bounds(records=100), Segmentation((("site",),), forget_seconds=60.0))
    add(windows, records(("A", "")), now=10.0)
    windows.clock_jumped(86_400.0)
    assert windows.idle(now=86_460.0) == []
    assert windows.idle(now=86_471.0) == [(("site", "A"),)]


def test_versions_never_mix_unless_any_version_is_allowed() -> None:
    """Records of another version are counted and left out; records without a version are accepted."""
    batch = records(("A", "1"), ("A", "1"), ("A", "1"), version=["2.1", "2.2", ""])
    strict = ModelWindows(small_gauge(), Bounds(records=100), version="2.1")
    assert strict.of_the_right_version(batch).tolist() == [0, 2]
    alike = ModelWindows(small_gauge(), Bounds(records=100), version="2.1", versions_alike=True)
    assert alike.of_the_right_version(batch).tolist() == [0, 1, 2]
    unversioned = ModelWindows(small_gauge(), Bounds(records=100))
    assert unversioned.of_the_right_version(batch).tolist() == [0, 1, 2]


def test_merged_totals_of_two_processes_equal_those_of_one() -> None:
    both = [ModelWindows(small_gauge(), Bounds(records=1000)) for _ in range(2)]
    for replica, part in zip(both, (POOL[:200], POOL[200:]), strict=True):
        add(replica, Records(part, np.arange(len(part), dtype=np.float64)), now=1000.0)
    merged = measured(small_gauge(), [[one[ALL] for one in both]])
    assert merged.estimate() == totals_of(small_gauge(), POOL).estimate()


@pytest.mark.parametrize(("split", "windows"), [((), 1), (SPLIT, 201)], ids=["whole", "segments"])
def test_memory_is_computed_from_the_configuration(split: tuple[tuple[str, ...], ...], windows: int) -> None:
    """Tables once, and every window full."""
    model = ModelWindows(small_gauge(), Bounds(records=5000), Segmentation(split))
    assert model.most_bytes() == small_gauge().bytes_shared + windows * bytes_per_window(
        small_gauge(), Bounds(records=5000), len(split)
    )
    assert f"5,000 records: {47 + 5 * len(split)} bytes a record" in model.memory()
    assert f"{model.most_bytes() / 1e6:.1f} MB at most in all" in model.memory()


def test_no_value_can_imitate_another_segment() -> None:
    """The site `A,scanner=2` is not scanner 2 of site A."""
    windows = ModelWindows(small_gauge(), Bounds(records=100), Segmentation(SPLIT))
    add(windows, records(("A,scanner=2", ""), ("A", "2")), now=10.0)
    assert len(windows[(("site", "A,scanner=2"),)]) == 1
    assert len(windows[(("site", "A"), ("scanner", "2"))]) == 1


def test_late_and_future_records_of_segments_are_counted() -> None:
    """A record may be late for the whole and in time for its segment."""
    windows = ModelWindows(small_gauge(), Bounds(records=2), Segmentation((("site",),)))
    add(windows, records(("A", ""), ("A", ""), start=10), now=100.0)
    _, added = add(windows, records(("B", ""), start=1), now=100.0)
    assert (added["all"].late, added["site=B"].entered) == (1, 1)


def test_a_clock_set_back_does_not_keep_an_idle_segment() -> None:
    """Last seen in the future: the idle time starts again, and ends."""
    windows = ModelWindows(small_gauge(), Bounds(records=100), Segmentation((("site",),), forget_seconds=60.0))
    add(windows, records(("A", "")), now=1e10)
    assert windows.idle(now=1000.0) == []
    assert windows.idle(now=1061.0) == [(("site", "A"),)]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"split_by": ((),)}, id="no field"),
        pytest.param({"split_by": (("site",), ("site",))}, id="twice"),
        pytest.param({"split_by": (("site", "site"),)}, id="a field twice"),
    ],
)
def test_invalid_splits_are_rejected(arguments: dict[str, Any]) -> None:
    """With what was expected and what was found."""
    with pytest.raises(ValueError, match="segments: expected"):
        Segmentation(**arguments)
