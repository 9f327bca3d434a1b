"""The history of a model, against an oracle that keeps every evaluation."""

from dataclasses import dataclass
from itertools import groupby
from math import floor, isnan, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.core.change import ChangeStatus, Direction
from monitor.core.estimate import CONSENSUS, Estimate, Interval, WindowState
from monitor.core.history import (
    CAPACITY,
    MOST_SEGMENTS,
    STEP_SECONDS,
    Frame,
    ModelHistory,
    Place,
    Series,
    Span,
    frame_of,
    rising,
)
from monitor.core.report import ReferenceFacts, Report, SegmentReport
from monitor.core.segments import ALL, Segment

START = 1_760_000_000.0 // 14_400 * 14_400
"""A multiple of all steps."""
SITES: tuple[Segment, ...] = (ALL, (("site", "A"),), (("site", "B"),))


def evidence_of(records: int) -> float | None:
    """Return the evidence of a change in a window of so many records; in every third there is no detector."""
    return records % 7 / 8 - 0.5 if records % 3 else None


def window(segment: Segment, accuracy: float | None, records: int = 100) -> SegmentReport:
    """Return a window with an estimate, or a stale one."""
    evidence = evidence_of(records)
    found: tuple[tuple[Direction, float | None], ...] = ((Direction.DOWN, evidence), (Direction.UP, None))
    changes = tuple(ChangeStatus(direction, one, 7.0, 0.02, None, None, 60) for direction, one in found)
    changes = () if evidence is None else changes
    if accuracy is None:
        return SegmentReport(segment, records, WindowState.STALE, changes=changes)
    result = Estimate(accuracy, records, Interval(accuracy - 0.125, accuracy + 0.125))
    return SegmentReport(segment, records, WindowState.OK, {CONSENSUS: result}, accuracy / 8, changes=changes)


def report(*accuracies: float | None, records: int = 100, reference: str = "") -> Report:
    """Return an evaluation of the whole and of one site per further accuracy, with or without a reference."""
    segments = zip(SITES, accuracies, strict=False)
    facts = ReferenceFacts("1", "", reference, ("a", "b"), 100, 0.5, 1.0) if reference else None
    return Report("density", 0.0, 0.1, facts, tuple(window(*one, records=records) for one in segments))


@dataclass(frozen=True)
class Evaluation:
    """One evaluation, as stored by the oracle."""

    at: float
    by_name: dict[str, SegmentReport]
    reference: str


Shown = tuple[float, str, float, float, int, str, float]


def expected(stored: list[Evaluation], name: str, step: float) -> list[Shown]:
    """Return the expected points: last time and state, last and lowest estimate, records, last known reference, most evidence."""
    points = []
    for _, group in groupby(stored, key=lambda one: floor(one.at / step)):
        step_evaluations = list(group)
        windows = [one.by_name[name] for one in step_evaluations if name in one.by_name]
        if not windows:
            continue
        answered = [one for one in windows if one.valid]
        shown = (answered or windows)[-1]
        accuracies = [one.results[CONSENSUS].accuracy for one in answered]  # type: ignore[union-attr]
        last, lowest = (accuracies[-1], min(accuracies)) if accuracies else (nan, nan)
        known = [one.reference for one in step_evaluations if one.reference]
        evidence = [one.evidence for window in windows for one in window.changes if one.evidence is not None]
        estimate = str(shown.state), last, lowest, shown.records
        points.append((step_evaluations[-1].at, *estimate, known[-1] if known else "", max(evidence, default=nan)))
    return points


def shown(series: Series | None) -> list[Shown]:
    """Return a series as a list of points."""
    if series is None:
        return []
    columns = (
        series.at.tolist(),
        map(str, series.states),
        series.accuracy.tolist(),
        series.lowest.tolist(),
        series.records.tolist(),
        series.references,
        [nan] * len(series) if series.evidence is None else series.evidence.tolist(),
    )
    return list(zip(*columns, strict=True))


# Eighths are the same in all precisions.
ANSWERS = st.one_of(st.none(), st.integers(0, 8).map(lambda eighths: eighths / 8))
EVALUATIONS = st.lists(
    st.tuples(
        st.sampled_from([1.0, 60.0, 450.0, 900.0, 5000.0, 20_000.0]),
        st.lists(ANSWERS, min_size=1, max_size=3),
        st.sampled_from(["", "a" * 12, "b" * 12]),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(EVALUATIONS, st.integers(0, 60))
def test_each_aggregate_has_its_last_and_lowest_estimate_even_after_a_kill(
    evaluations: list[tuple[float, list[float | None], str]], killed_after: int
) -> None:
    """Killed at any point, it continues from the frames that were to be written."""
    past, stored, at = ModelHistory(), list[Evaluation](), START
    written: dict[tuple[Span, int], tuple[Place, Frame]] = {}

    def write(places: list[Place]) -> None:
        for span, number in places:
            frame = past.frame((span, number))
            assert frame is not None
            written[span, number % CAPACITY[span]] = ((span, number), frame)

    for turn, (seconds, accuracies, reference) in enumerate(evaluations):
        at += seconds
        one = report(*accuracies, records=turn, reference=reference)
        stored.append(Evaluation(at, {segment.name: segment for segment in one.segments}, reference))
        write(past.note(one, at))
        if turn == killed_after:
            past = ModelHistory()
            write(past.restore(written.values()))
    for name in ("all", "site=A", "site=B"):
        recent = [(one.at, one.by_name[name].state, one.reference) for one in stored if name in one.by_name]
        series = past.series(name, Span.RECENT)
        assert (
            [] if series is None else list(zip(series.at.tolist(), series.states, series.references, strict=True))
        ) == recent
        for span, step in STEP_SECONDS.items():
            found, wanted = shown(past.series(name, span)), expected(stored, name, step)
            assert str(found) == str(wanted), (name, span)


@pytest.mark.parametrize("count", [0, 1, 2, CAPACITY[Span.RECENT], CAPACITY[Span.RECENT] + 1, 1000])
def test_a_ring_keeps_the_last_frames_and_no_more(count: int) -> None:
    past = ModelHistory()
    for number in range(count):
        past.note(report(number / 1024), START + 14_400.0 * number)
    for span, capacity in CAPACITY.items():
        series = past.series("all", span)
        assert series is not None
        assert len(series) == min(count, capacity)
        kept = range(max(0, count - capacity), count)
        assert series.at.tolist() == [START + 14_400.0 * number for number in kept]
        assert series.accuracy.tolist() == [number / 1024 for number in kept]
        assert series.step_seconds == STEP_SECONDS.get(span)


def test_a_dip_survives_a_kill_when_it_is_no_longer_a_recent_evaluation() -> None:
    """With an evaluation per second, a dip at the start of a quarter of an hour is not recent at its end."""
    past = ModelHistory()
    written: dict[tuple[Span, int], tuple[Place, Frame]] = {}
    for second in range(890):
        places = past.note(report(0.25 if second == 3 else 0.75), START + second)
        for span, number in places:
            frame = past.frame((span, number))
            assert frame is not None
            written[span, number % CAPACITY[span]] = ((span, number), frame)
    again = ModelHistory()
    again.restore(written.values())
    for span in STEP_SECONDS:
        series = again.series("all", span)
        assert series is not None
        assert (series.accuracy.tolist(), series.lowest.tolist()) == ([0.75], [0.25])


def test_a_state_without_an_estimate_is_kept_with_nan() -> None:
    past = ModelHistory()
    past.note(report(0.5), START)
    past.note(report(None), START + 900.0)
    for span in (Span.RECENT, Span.DAYS):
        series = past.series("all", span)
        assert series is not None
        assert series.states == (WindowState.OK, WindowState.STALE)
        for column in (series.accuracy, series.lower, series.upper, series.lowest, series.disagreement):
            assert [isnan(value) for value in column] == [False, True]


def test_a_point_has_the_first_twelve_digits_of_its_reference() -> None:
    past = ModelHistory()
    past.note(report(0.5, reference="0123456789abcdef" * 4), START)
    past.note(report(0.5), START + 900.0)
    series = past.series("all", Span.RECENT)
    assert series is not None
    assert series.references == ("0123456789ab", "")


def test_an_unknown_segment_has_no_series_and_a_model_not_evaluated_an_empty_one() -> None:
    past = ModelHistory()
    empty = past.series("all", Span.RECENT)
    assert empty is not None
    assert len(empty) == len(empty.states) == len(empty.records) == 0
    past.note(report(0.5), START)
    assert past.series("site=A", Span.RECENT) is None


def times(*at: float) -> list[Frame]:
    """Return frames with these times and no windows."""
    return [frame_of(Report("density", 0.0, 0.0, None, ()), when, 1) for when in at]


@pytest.mark.parametrize(
    ("dated", "left"),
    [
        ((), ()),
        ((5,), (5,)),
        ((5, 5), (5,)),
        ((5, 4), (4,)),
        ((1, 2, 3), (1, 2, 3)),
        ((1, 2, 900, 901, 902, 903, 3, 4), (1, 2, 3, 4)),
        ((101, 102, 103, 1, 2, 104), (101, 102, 103, 104)),
        ((101, 102, 103, 1, 2), (1, 2)),
    ],
    ids=["none", "one", "the same", "back", "rising", "was ahead", "was behind", "is behind"],
)
def test_times_rise_after_a_clock_change(dated: tuple[float, ...], left: tuple[float, ...]) -> None:
    assert [frame.at for frame in rising(times(*dated))] == list(left)


@given(st.lists(st.integers(0, 20), max_size=12))
def test_the_longest_rising_sequence_up_to_the_newest_frame_is_shown(dated: list[int]) -> None:
    """Compared with every subset."""
    found = [frame.at for frame in rising(times(*dated))]
    best = 0
    for chosen in range(1 << max(0, len(dated) - 1)):
        some = [at for place, at in enumerate(dated[:-1]) if chosen >> place & 1] + dated[-1:]
        if some == sorted(set(some)):
            best = max(best, len(some))
    assert len(found) == best
    assert found == sorted(set(found))
    assert found[-1:] == dated[-1:]


def test_a_clock_set_back_hides_later_frames_until_it_is_corrected() -> None:
    past = ModelHistory()
    for number in range(5):
        past.note(report(0.5), START + 60.0 * number)
    past.note(report(0.25), 100.0)
    series = past.series("all", Span.RECENT)
    assert series is not None
    assert series.at.tolist() == [100.0]
    past.note(report(0.75), START + 300.0)
    for span, length in ((Span.RECENT, 6), (Span.DAYS, 2)):
        series = past.series("all", span)
        assert series is not None
        assert len(series) == length
        assert bool(np.all(np.diff(series.at) > 0.0))
        assert series.accuracy[-1] == 0.75


def test_the_number_of_segments_with_a_history_is_limited() -> None:
    segments = (ALL, *((("site", str(number)),) for number in range(MOST_SEGMENTS)))
    frame = frame_of(Report("density", 0.0, 0.0, None, tuple(window(one, 0.5) for one in segments)), START, 1)
    assert len(frame.names) == MOST_SEGMENTS
    assert frame.names[0] == "all"
