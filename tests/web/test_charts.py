"""Charts: well-formed SVG inside its frame, correct coordinates, never NaN."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.core.estimate import Estimate, Interval, WindowState
from monitor.core.history import Series, Span
from monitor.core.intervals import field_intervals
from monitor.reference.summary import ReliabilityBin
from monitor.web.charts.over_time import (
    BRIEFLY,
    NARROW,
    WIDE,
    BlockPoint,
    ChartSize,
    Mark,
    OverTime,
    RealisedPoint,
    block_by_block,
    evidence_over_time,
    over_time,
    points_of,
    replaced,
    step_of,
    unbroken_runs,
    without_estimate,
)
from monitor.web.charts.small_charts import (
    MOST_CLASSES,
    RELIABILITY_BOX,
    Scale,
    ShareScale,
    bar,
    class_shares,
    moved_most,
    pair_of_bars,
    reliability,
)
from monitor.web.charts.svg import Linear, number, share_range, share_ticks, time_ticks
from tests.web.sample_reports import NOW
from tests.web.sample_site import sample_reference, sample_series

HOSTILE = "</title></svg><script>alert(1)</script>&\"'\x00\x1b]0;"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def series_of(rows: Sequence[tuple[float, float | None]], step: float | None = None, half: float = 0.02) -> Series:
    """A series of times and accuracies; None where the window was too small."""
    accuracy = np.array([math.nan if value is None else value for _, value in rows], dtype=np.float64)
    states = tuple(WindowState.TOO_FEW_RECORDS if value is None else WindowState.OK for _, value in rows)
    return Series(
        np.array([at for at, _ in rows], dtype=np.float64),
        states,
        accuracy,
        np.maximum(accuracy - half, 0.0),
        np.minimum(accuracy + half, 1.0),
        np.maximum(accuracy - half / 2, 0.0),
        accuracy * 0.01,
        np.full(len(rows), 500),
        step,
    )


def drawn(svg: str) -> ET.Element:
    """Parse a chart; it must be XML without NaN."""
    assert "nan" not in re.sub(r"<title>.*?</title>|aria-label=\"[^\"]*\"|>[^<]*<", "", svg).lower()
    assert "inf" not in re.sub(r"<title>.*?</title>|aria-label=\"[^\"]*\"|>[^<]*<", "", svg).lower()
    return ET.fromstring(svg)  # noqa: S314  our own


def of_kind(root: ET.Element, kind: str) -> list[ET.Element]:
    """All shapes of a kind."""
    return [one for one in root.iter() if kind in (one.get("class") or "").split()]


def corners(shape: ET.Element) -> list[tuple[float, float]]:
    """The points of a path."""
    values = [float(one) for one in _NUMBER.findall(shape.get("d") or "")]
    return list(zip(values[::2], values[1::2], strict=True))


def places(root: ET.Element) -> Iterator[tuple[float, float]]:
    """All coordinates of a chart."""
    for one in root.iter():
        if one.tag == "path":
            yield from corners(one)
        if one.tag == "rect":
            x, y, width, height = (float(one.get(key, "0")) for key in ("x", "y", "width", "height"))
            yield from ((x, y), (x + width, y + height))
        if one.tag == "line":
            yield from ((float(one.get(f"x{end}", "0")), float(one.get(f"y{end}", "0"))) for end in (1, 2))
        if one.tag == "text":
            yield float(one.get("x", "0")), float(one.get("y", "0"))
        if one.tag == "circle":
            yield float(one.get("cx", "0")), float(one.get("cy", "0"))


def inside(root: ET.Element) -> None:
    """Check that everything is inside the frame, except for the radius of a mark."""
    _, _, width, height = (float(one) for one in (root.get("viewBox") or "").split())
    for x, y in places(root):
        assert -6.0 <= x <= width + 6.0, (x, width)
        assert -6.0 <= y <= height + 6.0, (y, height)


_SHARE = st.floats(0.0, 1.0)
_SHARES = st.one_of(st.none(), _SHARE)
_SIZES = st.sampled_from([WIDE, NARROW])


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 1e6), _SHARES), max_size=30),
    step=st.sampled_from([None, 900.0, 14_400.0]),
    size=_SIZES,
    reference=_SHARES,
    thresholds=st.lists(st.floats(0.0, 1.0), max_size=4),
    realised=st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(0.0, 1e6), _SHARE, _SHARE, _SHARE), max_size=4),
    began=st.lists(st.floats(-1e6, 1e7), max_size=4),
    references=st.lists(st.sampled_from(["", "a", "b"]), min_size=30, max_size=30),
)
@example(steps=[], step=None, size=WIDE, reference=None, thresholds=[], realised=[], began=[], references=[""] * 30)
@example(
    steps=[(0.0, 1.0)],
    step=None,
    size=NARROW,
    reference=1.0,
    thresholds=[1.0],
    realised=[(0.0, 0.0, 1.0, 0.9, 1.0)],
    began=[0.0],
    references=["a"] * 30,
)
@example(
    steps=[(0.0, 0.0)] * 2,
    step=900.0,
    size=WIDE,
    reference=0.0,
    thresholds=[0.0],
    realised=[],
    began=[0.0, 0.0],
    references=["a", "b"] * 15,
)
def test_any_data_stays_inside_the_frame_without_nan(
    steps: list[tuple[float, float | None]],
    step: float | None,
    size: ChartSize,
    reference: float | None,
    thresholds: list[float],
    realised: list[tuple[float, float, float, float, float]],
    began: list[float],
    references: list[str],
) -> None:
    at = NOW
    rows = []
    for wait, value in steps:
        at += wait
        rows.append((at, value))
    data = OverTime(
        replace(series_of(rows, step), references=tuple(references[: len(rows)])),
        NOW + 5.0,
        reference,
        [Mark(HOSTILE, value) for value in thresholds],
        [Mark(HOSTILE, NOW + when) for when in began],
        realised=[RealisedPoint(NOW + when, NOW + when + long, a, b, c, 50) for when, long, a, b, c in realised],
    )
    inside(drawn(over_time(data, size)))


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, -1e30, 1e30])
def test_impossible_times_are_left_out(time: float) -> None:
    data = OverTime(series_of([(NOW, 0.8), (NOW + 30, 0.8), (time, 0.7)]), NOW)
    root = drawn(over_time(data))
    assert len(of_kind(root, "pointed")) == 2
    inside(drawn(over_time(OverTime(series_of([(time, 0.5)]), time))))


@pytest.mark.parametrize("count", [0, 1, 2, 360])
def test_any_number_of_points_can_be_drawn(count: int) -> None:
    root = drawn(over_time(OverTime(series_of([(NOW - 30.0 * one, 0.8) for one in range(count)][::-1]), NOW)))
    inside(root)
    assert len(of_kind(root, "pointed")) == count
    assert len(of_kind(root, "estimate")) == (1 if count > 1 else 0)
    assert len(of_kind(root, "value")) == (1 if count else 0)


def test_a_chart_without_data_has_a_text() -> None:
    assert "No data yet" in over_time(OverTime(None, NOW))


def test_points_are_at_their_time_and_accuracy() -> None:
    """The oracle interpolates between the grid's own labels."""
    rows = [(NOW + 60.0 * index, 0.6 + 0.005 * (index % 37)) for index in range(61)]
    root = drawn(over_time(OverTime(series_of(rows), NOW + 3600.0)))
    grid = [(float(one.get("y") or 0) - 4, float((one.text or "").rstrip("%")) / 100) for one in _share_labels(root)]
    (y0, share0), (y1, share1) = grid[0], grid[-1]
    (line,) = of_kind(root, "estimate")
    ends = of_kind(root, "grid")[0]
    left, right = float(ends.get("x1") or 0), float(ends.get("x2") or 0)
    for (x, y), (at, share) in zip(corners(line), rows, strict=True):
        assert x == pytest.approx(left + (at - NOW) / 3600.0 * (right - left), abs=0.06)
        assert y == pytest.approx(y0 + (share - share0) / (share1 - share0) * (y1 - y0), abs=0.06)


def _share_labels(root: ET.Element) -> list[ET.Element]:
    return [one for one in of_kind(root, "tick") if (one.text or "").endswith("%")]


def test_no_line_crosses_a_gap_of_more_than_three_steps() -> None:
    near = [(NOW + 30.0 * index, 0.8) for index in range(10)]
    for wait, lines in ((90.0, 1), (91.0, 2)):
        later = [(near[-1][0] + wait + 30.0 * index, 0.8) for index in range(10)]
        assert len(of_kind(drawn(over_time(OverTime(series_of(near + later), NOW))), "estimate")) == lines


def test_a_span_without_an_estimate_is_shaded_with_its_reason() -> None:
    rows = [(NOW + 30.0 * index, None if 10 <= index < 40 else 0.8) for index in range(60)]
    root = drawn(over_time(OverTime(series_of(rows), NOW)))
    (shade,) = of_kind(root, "no-estimate")
    assert shade[0].text == "Too few recent records"
    assert "Too few recent records" in [one.text for one in of_kind(root, "why")]
    assert len(of_kind(root, "estimate")) == 2
    assert len(of_kind(root, "band")) == 2


def test_a_point_between_two_shaded_spans_is_not_shaded() -> None:
    rows = [(NOW + 30.0 * index, 0.8 if index == 5 else None) for index in range(11)]
    points = points_of(series_of(rows))
    assert len(without_estimate(points, 30.0)) == 2
    assert len(list(unbroken_runs(points, 30.0))) == 1


def series_by(references: Sequence[str], without: Sequence[int] = ()) -> Series:
    """A series with a point every half minute, by these references; some without an estimate."""
    rows = [(NOW + 30.0 * index, None if index in without else 0.8) for index in range(len(references))]
    return replace(series_of(rows), references=tuple(references))


@pytest.mark.parametrize(
    ("references", "without", "changed", "lines"),
    [
        ("", (), [], 0),
        ("aaaaaa", (), [], 1),
        ("aaabbb", (), [3], 2),
        ("aabbaa", (), [2, 4], 3),
        ("  aaaa", (), [], 1),
        ("aa  aa", (), [], 1),
        ("aa  bb", (), [4], 2),
        ("aaabbb", (3,), [3], 2),
        ("aa  bb", (2, 3), [4], 2),
    ],
)
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "phone"])
def test_a_new_reference_is_marked_and_no_line_crosses_it(
    references: str, without: tuple[int, ...], changed: list[int], lines: int, size: ChartSize
) -> None:
    """A space is a point with an unknown reference, which is no change."""
    series = series_by([one.strip() for one in references], without)
    assert [point.at for point in replaced(points_of(series))] == [NOW + 30.0 * index for index in changed]
    data = OverTime(series, NOW + 30.0 * len(references), 0.9, [Mark("accuracy_low", 0.7)])
    root = drawn(over_time(data, size))
    inside(root)
    assert len(of_kind(root, "estimate")) == lines
    marks = [float(one.get("x1") or 0) for one in of_kind(root, "replaced")]
    box = size.box
    step = (box.right - box.left) / len(references or " ")
    assert marks == pytest.approx([box.left + step * index for index in changed], abs=0.1)
    start = marks[-1] if marks else box.left
    for kind in ("reference", "threshold"):
        (level,) = of_kind(root, kind)
        assert (level.get("x1"), level.get("x2")) == (number(start), number(box.right))
    assert (root.get("aria-label") or "").count("other reference from") == len(changed)


@pytest.mark.parametrize("place", [1, 30, 58, 59])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "phone"])
def test_the_label_of_a_new_reference_stays_in_the_plot(place: int, size: ChartSize) -> None:
    series = series_by(["a"] * place + ["b"] * (60 - place))
    root = drawn(over_time(OverTime(series, NOW + 30.0 * 59), size))
    (label,) = [one for one in of_kind(root, "why") if one.text == "other reference"]
    at, wide = float(label.get("x") or 0), 105.0
    left, right = (at - wide, at) if label.get("text-anchor") == "end" else (at, at + wide)
    assert size.box.left <= left < right <= size.box.right


def test_labels_of_adjacent_marks_do_not_overlap() -> None:
    root = drawn(over_time(OverTime(series_by(["a", "b"] * 30), NOW + 30.0 * 59)))
    assert len(of_kind(root, "replaced")) == 59
    assert len([one for one in of_kind(root, "why") if one.text == "other reference"]) <= 1


def test_a_series_without_references_has_no_marks() -> None:
    assert not of_kind(drawn(over_time(OverTime(sample_series(Span.RECENT), NOW, 0.9))), "replaced")


def test_a_value_in_a_state_without_an_estimate_is_not_drawn() -> None:
    series = series_of([(NOW, 0.8), (NOW + 30.0, 0.8)])
    stale = Series(
        series.at,
        (WindowState.OK, WindowState.STALE),
        *(series.accuracy, series.lower, series.upper, series.lowest, series.disagreement, series.records),
    )
    assert [point.accuracy for point in points_of(stale)] == [0.8, None]


def test_every_state_has_a_short_reason() -> None:
    assert set(BRIEFLY) == set(WindowState)


@given(st.lists(st.floats(0.0, 1.0), max_size=20))
def test_an_accuracy_axis_covers_all_values_and_at_least_twenty_points(values: list[float]) -> None:
    least, most = share_range(values)
    assert 0.0 <= least < most <= 1.0
    assert most - least >= 0.2 - 1e-9
    assert all(least - 1e-9 <= value <= most + 1e-9 for value in values)
    ticks = share_ticks(least, most)
    assert 2 <= len(ticks) <= 7


@pytest.mark.parametrize(
    ("seconds", "most", "texts"),
    [
        (180.0, 8, ["13:33:30", "13:34:00", "13:34:30"]),
        (2 * 3600.0, 8, ["14:00", "14:30", "15:00"]),
        (3 * 86400.0, 8, ["00:00", "12:00", "00:00"]),
        (30 * 86400.0, 8, ["18 Nov", "23 Nov", "28 Nov"]),
        (30 * 86400.0, 4, ["18 Nov", "28 Nov", "8 Dec"]),
    ],
)
def test_time_ticks_are_round_and_in_utc(seconds: float, most: int, texts: list[str]) -> None:
    assert [tick.text for tick in time_ticks(NOW, NOW + seconds, most)][:3] == texts


@given(st.floats(0.0, 4e9), st.floats(1.0, 4e9), st.integers(3, 9))
def test_time_ticks_are_bounded_and_inside(start: float, seconds: float, most: int) -> None:
    ticks = time_ticks(start, start + seconds, most)
    assert len(ticks) <= most
    assert all(start <= tick.at <= start + seconds for tick in ticks)
    for tick in ticks:
        assert tick.text.split(":", maxsplit=1)[0][:2].strip() in datetime.fromtimestamp(tick.at, UTC).strftime(
            "%H %-d"
        )


def test_the_first_tick_and_each_new_day_have_a_date() -> None:
    ticks = time_ticks(NOW, NOW + 86400.0, 9)
    assert [tick.date for tick in ticks if tick.date] == ["16 Nov", "17 Nov"]


def test_labels_of_close_thresholds_do_not_overlap() -> None:
    marks = [Mark(f"rule{index}", 0.8 + 0.001 * index) for index in range(4)]
    root = drawn(over_time(OverTime(sample_series(Span.RECENT), NOW, 0.803, marks)))
    heights = sorted(float(one.get("y") or 0) for one in of_kind(root, "level"))
    assert len(heights) == 5
    assert all(b - a >= 13.9 for a, b in pairwise(heights))


def test_realised_accuracies_are_diamonds_with_their_time_and_interval() -> None:
    """In the middle of the part of their time that the chart shows; what ended before it is not drawn at its edge."""
    blocks = [
        RealisedPoint(NOW - 1e6, NOW - 9e5, 0.5, 0.2, 0.8, 10),
        RealisedPoint(NOW - 3600.0, NOW - 1800.0, 0.842, 0.75, 0.9, 1200),
        RealisedPoint(NOW - 600.0, NOW + 1e6, 0.8, 0.7, 0.9, 50),
    ]
    root = drawn(over_time(OverTime(sample_series(Span.RECENT), NOW, 0.88, realised=blocks)))
    first, last = of_kind(root, "realised")
    shown = [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S UTC}" for at in blocks[1][:2]]
    assert first[0].text == f"{' to '.join(shown)}: 84.2% realised, 75.0% to 90.0%; 1,200 labelled cases"
    assert "2 realised accuracies of labelled cases" in (root.get("aria-label") or "")
    across, upwards, to_now, _ = (
        [float(one.get(key) or 0) for key in ("x1", "y1", "x2", "y2")] for one in of_kind(root, "whisker")
    )
    assert (across[1], upwards[0]) == (across[3], upwards[2])
    assert upwards[0] == pytest.approx((across[0] + across[2]) / 2, abs=0.1)
    assert upwards[1] > across[1] > upwards[3]
    assert to_now[2] == WIDE.box.right
    assert last[0].text


@given(
    blocks=st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.floats(0.0, 1e6), _SHARES, _SHARE, _SHARE, st.booleans()), max_size=60
    ),
    size=_SIZES,
)
def test_any_blocks_stay_inside_the_frame(
    blocks: list[tuple[float, float, float | None, float, float, bool]], size: ChartSize
) -> None:
    """With a bar for each estimate, and a diamond where there are labels."""
    shown = []
    for when, long, value, one, other, told in blocks:
        ends, start, end = Interval(min(one, other), max(one, other)), NOW + when, NOW + when + long
        labels = RealisedPoint(start, end, (one + other) / 2, *ends, 50, audited=True) if told else None
        shown.append(BlockPoint(start, end, value, None if one < 0.1 else ends, labels))
    root = drawn(block_by_block(shown, size))
    inside(root)
    assert len(of_kind(root, "band")) == sum(one.estimate is not None for one in shown)
    assert len(of_kind(root, "realised")) == sum(one.realised is not None for one in shown)


def test_a_block_shows_its_estimate_and_its_labels_at_its_time() -> None:
    said, told = Interval(0.82, 0.86), RealisedPoint(NOW, NOW + 3600.0, 0.71, 0.64, 0.77, 1412, audited=True)
    impossible = BlockPoint(math.nan, math.inf, 0.5, None, None)
    root = drawn(
        block_by_block(
            [BlockPoint(NOW - 3600.0, NOW, 0.85, said, None), BlockPoint(*told[:2], 0.84, said, told), impossible]
        )
    )
    assert "; the latest: estimated 84.0%, labels say 71.0%" in (root.get("aria-label") or "")
    assert [one.text for one in of_kind(root, "level")] == ["84.0% estimate", "71.0% labels"]
    (mark,), (_, bar_) = of_kind(root, "realised"), of_kind(root, "band")
    assert (mark[0].text or "").endswith(": 71.0% audited, 64.0% to 77.0%; 1,412 labels")
    assert (bar_[0].text or "").endswith(": estimated 84.0%, 82.0% to 86.0%")
    (whisker,) = of_kind(root, "whisker")
    middle = float(bar_.get("x") or 0) + float(bar_.get("width") or 0) / 2
    assert float(whisker.get("x1") or 0) == pytest.approx(middle, abs=2.0)


def test_a_bar_shows_the_audited_accuracy_with_its_interval() -> None:
    estimate, scale = Estimate(0.9, 500, Interval(0.88, 0.92)), Scale(0.5)
    text = bar(estimate, 0.9, (), scale, audited=Estimate(0.7, 60, Interval(0.6, 0.8)))
    assert "audited 70.0%, its interval 60.0% to 80.0%" in text
    assert (text.count('class="whisker"'), text.count('class="realised"')) == (3, 1)
    assert "realised" not in bar(estimate, 0.9, (), scale)


def test_alerts_before_the_chart_are_not_drawn_at_its_edge() -> None:
    root = drawn(over_time(OverTime(sample_series(Span.RECENT), NOW, alerts=[Mark("low", NOW - 1e6)])))
    assert of_kind(root, "begun") == []


def test_a_coordinate_that_is_not_finite_raises() -> None:
    with pytest.raises(ValueError, match="expected a finite coordinate, found nan"):
        number(math.nan)
    assert number(-0.01) == "0"
    assert Linear(1.0, 1.0, 0.0, 10.0)(1.0) == 5.0


def test_the_usual_step_is_the_median_and_never_zero() -> None:
    assert step_of([], None) > 0.0
    assert step_of(points_of(series_of([(NOW, 0.8), (NOW, 0.8)])), None) > 0.0
    assert step_of(points_of(series_of([(NOW + at, 0.8) for at in (0, 30, 60, 600)])), None) == 30.0


def test_reliability_points_are_at_their_confidence_and_accuracy() -> None:
    bins = tuple(ReliabilityBin(0, 0, 0.0) for _ in range(10)) + tuple(
        ReliabilityBin(100 * (one + 1), 50 * (one + 1) + one, 0.68 + one / 15) for one in range(5)
    )
    root = drawn(reliability(bins, ()))
    inside(root)
    shown = of_kind(root, "point")
    assert len(shown) == 5
    for index, one in enumerate(shown):
        share = (50 * (index + 1) + index) / (100 * (index + 1))
        wide, high = RELIABILITY_BOX.right - RELIABILITY_BOX.left, RELIABILITY_BOX.bottom - RELIABILITY_BOX.top
        assert float(one.get("cx") or 0) == pytest.approx(RELIABILITY_BOX.left + wide * (0.68 + index / 15), abs=0.06)
        assert float(one.get("cy") or 0) == pytest.approx(RELIABILITY_BOX.bottom - high * share, abs=0.06)
    counts = [float(one.get("height") or 0) for one in of_kind(root, "count")]
    assert counts[10:] == pytest.approx([counts[-1] * (one + 1) / 5 for one in range(5)], abs=0.06)
    assert counts[:10] == [0.0] * 10


def test_a_reference_without_bins_draws_only_the_diagonal() -> None:
    root = drawn(reliability((), ()))
    assert of_kind(root, "point") == of_kind(root, "count") == of_kind(root, "curve") == []
    assert len(of_kind(root, "diagonal")) == 1


def test_the_sample_reference_has_points_of_both_kinds() -> None:
    summary = sample_reference().summary
    root = drawn(reliability(summary.reliability, summary.reliability_scaled))
    kinds = {one.get("class") for one in of_kind(root, "point")}
    assert kinds == {"point raw", "point scaled"}


@given(st.floats(0.0, 1.0), st.floats(0.0, 0.3), _SHARES, _SHARES)
def test_a_share_with_its_interval_stays_in_its_frame(
    value: float, half: float, reference: float | None, decided: float | None
) -> None:
    interval = Interval(max(0.0, value - half), min(1.0, value + half))
    marks = [one for one in (reference, decided) if one is not None]
    common = ShareScale.around([value, *interval, *marks], [value])
    root = drawn(common.row(HOSTILE, value, interval, reference, decided=decided))
    inside(root)
    inside(drawn(common.axis()))
    assert (len(of_kind(root, "reference")), len(of_kind(root, "decided"))) == (
        reference is not None,
        decided is not None,
    )
    (dot,) = of_kind(root, "value")
    expected = 8 + 284 * (value - common.least) / (common.most - common.least)
    assert float(dot.get("cx") or 0) == pytest.approx(expected, abs=0.06)


def test_of_many_classes_those_that_changed_most_are_shown() -> None:
    names = [f"class {index}" for index in range(50)]
    now = [100] * 50
    now[7], now[31] = 400, 0
    shown = moved_most(class_shares(names, now, [100] * 50))
    assert len(shown) == MOST_CLASSES
    assert {one.name for one in shown[:2]} == {"class 7", "class 31"}


def test_classes_are_not_compared_without_matching_counts() -> None:
    assert class_shares(("a", "b"), (), (1, 2)) == []
    assert class_shares(("a", "b"), (0, 0), (1, 2)) == []
    assert [one.change for one in class_shares(("a", "b"), (1, 3), ())] == [None, None]
    assert [one.change for one in class_shares(("a", "b"), (1, 3), (3, 1))] == [-0.5, 0.5]


def test_bars_are_as_long_as_their_shares() -> None:
    (share,) = class_shares((HOSTILE,), (5,), (7,))
    inside(drawn(pair_of_bars(share, 1.0)))
    first, second = class_shares(("a", "b"), (1, 3), (3, 1))
    for one in (first, second):
        root = drawn(pair_of_bars(one, 0.75))
        now, before = (float(of_kind(root, kind)[0].get("width") or 0) for kind in ("now", "before"))
        assert (now, before) == pytest.approx((240 * one.now / 0.75, 240 * (one.before or 0.0) / 0.75), abs=0.06)


def test_a_hostile_name_is_escaped_in_every_chart() -> None:
    data = OverTime(sample_series(Span.DAYS), NOW, 0.88, [Mark(HOSTILE, 0.8)], [Mark(HOSTILE, NOW - 60.0)])
    for size in (WIDE, NARROW):
        svg = over_time(data, size)
        assert "<script" not in svg
        assert "\x00" not in svg
        assert {one.tag for one in drawn(svg).iter()} <= {"svg", "path", "rect", "line", "text", "circle", "title"}


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 1e6), st.one_of(st.none(), st.floats(-400.0, 400.0))), max_size=20),
    size=_SIZES,
    budgets=st.lists(st.floats(0.0, 40.0), max_size=2),
    began=st.lists(st.floats(-1e6, 1e7), max_size=2),
)
@example(steps=[], size=NARROW, budgets=[], began=[])
@example(steps=[(0.0, 300.0), (30.0, None), (30.0, 300.0)], size=WIDE, budgets=[0.0], began=[0.0, 60.0])
def test_any_evidence_stays_inside_the_frame_without_nan(
    steps: list[tuple[float, float | None]], size: ChartSize, budgets: list[float], began: list[float]
) -> None:
    at = NOW + np.cumsum([wait for wait, _ in steps])
    series = series_of([(when, 0.8) for when in at.tolist()])
    evidence = np.array([math.nan if value is None else value for _, value in steps])
    data = OverTime(
        replace(series, evidence=evidence),
        NOW + 5.0,
        alerts=[Mark(HOSTILE, NOW + 30.0)],
        began=[NOW + when for when in began],
        budgets=[Mark(HOSTILE, value) for value in budgets],
    )
    inside(drawn(evidence_over_time(data, size)))


def test_evidence_is_drawn_in_powers_of_ten_with_the_budget_and_the_start() -> None:
    """Evidence of 1 or less is on the axis; where there is none, the line has a gap."""
    evidence = np.array([-3.0, 0.0, math.nan, 4.0, 8.0])
    series = replace(series_of([(NOW + 30.0 * number, 0.8) for number in range(5)]), evidence=evidence)
    data = OverTime(series, NOW + 120.0, began=[NOW + 60.0], budgets=[Mark("budget", 6.0)])
    root = drawn(evidence_over_time(data))
    box = root.find(".//*[@class='axis']")
    assert box is not None
    bottom = float(box.get("y1", "0"))
    first, second = (corners(one) for one in of_kind(root, "estimate"))
    assert [y for _, y in first] == [bottom, bottom]
    (budget,) = of_kind(root, "threshold")
    (four, eight), level = (bottom - y for _, y in second), bottom - float(budget.get("y1", "0"))
    assert (eight / four, level / four) == pytest.approx((2.0, 1.5), rel=0.01)
    (began,) = of_kind(root, "began")
    left, right = first[0][0], second[-1][0]
    assert float(began.get("x1", "0")) == pytest.approx((left + right) / 2.0, abs=0.1)
    texts = [one.text for one in root.iter() if one.tag == "text"]
    assert {"≤ 1", "10^2", "10^6.0 budget", "10^8.0 now"} <= set(texts)


def test_a_label_does_not_cover_the_flag_of_another_alert() -> None:
    """Of three close alerts, the first and the last have a label."""
    series = series_of([(NOW + 30.0 * number, 0.8) for number in range(100)])
    alerts = [Mark(name, NOW + at) for name, at in (("first", 1000.0), ("second", 1250.0), ("third", 1400.0))]
    root = drawn(over_time(OverTime(series, NOW + 3000.0, alerts=alerts)))
    flags = [min(x for x, _ in corners(one)) for one in of_kind(root, "flag")]
    for label in of_kind(root, "flag-label"):
        at, wide = float(label.get("x", "0")), 8.1 * len(label.text or "")
        left = at - wide if label.get("text-anchor") == "end" else at
        assert not any(left < flag < left + wide for flag in flags), label.text


def test_only_points_of_the_reference_have_a_field_interval() -> None:
    """The widest; another reference started from another accuracy."""
    rows = [(NOW, 0.8), (NOW + 30.0, 0.8), (NOW + 60.0, None)]
    series = replace(series_of(rows), disagreement=np.full(3, 0.05), references=("ab", "cd", "ab"))
    first, second, third = points_of(series, 0.9, "ab99")
    assert first.field == pytest.approx(field_intervals(np.array([0.8]), 0.9, np.array([0.05]))[-1, :, 0])
    assert (second.field, third.field) == (None, None)
    assert [one.field for one in points_of(series)] == [None] * 3
    drawn = over_time(OverTime(series, NOW + 60.0, 0.9, fingerprint="ab99"))
    assert drawn.count('class="field"') == 1
    assert 'class="field"' not in over_time(OverTime(series, NOW + 60.0, 0.9))
