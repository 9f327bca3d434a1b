"""Small charts: an estimate with its interval, predicted classes, shares on one scale, the reliability diagram."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from monitor.core.baselines.comparison import OutputDrift
from monitor.core.estimate import Estimate, Interval
from monitor.reference.summary import ReliabilityBin
from monitor.web.charts.svg import Box, Linear, diamond, line, number, path, rectangle, share_range, share_ticks, words
from monitor.web.pages.wording import between, per_cent

_WIDTH, _HEIGHT, _MARGIN, _MIDDLE = 260, 40, 8, 16


@dataclass(frozen=True, slots=True)
class Scale:
    """The common scale of a model's bars."""

    least: float
    most: float = 1.0

    @classmethod
    def around(cls, values: Sequence[float]) -> "Scale":
        """Return the scale, in steps of ten points, that covers all values."""
        lowest = min(values, default=0.9) - 0.02
        return cls(max(0, min(9, int(lowest * 10.0))) / 10.0)

    def x(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return round(_MARGIN + share * (_WIDTH - 2 * _MARGIN), 1)


def bar(
    estimate: Estimate,
    reference: float | None,
    thresholds: Sequence[float],
    scale: Scale,
    field: Interval | None = None,
    audited: Estimate | None = None,
) -> Markup:
    """Return an estimate with its interval, field interval, baseline, thresholds and the audited accuracy with its interval."""
    least, most = estimate.interval or (estimate.accuracy, estimate.accuracy)
    label = [f"estimated accuracy {per_cent(estimate.accuracy)}"]
    if estimate.interval is not None:
        label.append(f"between {per_cent(least)} and {per_cent(most)}")
    if field is not None:
        label.append(f"field interval {per_cent(field.lower)} to {per_cent(field.upper)}")
    if reference is not None:
        label.append(f"baseline {per_cent(reference)}")
    label += [f"alert threshold {per_cent(one)}" for one in thresholds]
    if audited is not None:
        label.append(f"audited {per_cent(audited.accuracy)}")
        label += [] if audited.interval is None else [f"its interval {between(audited.interval)}"]
    left, right = scale.x(least), scale.x(most)
    parts = [
        f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{_MIDDLE}" y2="{_MIDDLE}"/>',
        f'<rect class="interval" x="{left}" y="{_MIDDLE - 6}" width="{max(right - left, 1.0):.1f}" height="12" rx="2"/>',
    ]
    if field is not None:
        left, right = scale.x(field.lower), scale.x(field.upper)
        wide = f'x="{left}" y="{_MIDDLE - 9}" width="{max(right - left, 1.0):.1f}" height="18" rx="3"'
        parts.insert(1, f'<rect class="field" {wide}/>')
    if reference is not None:
        at = scale.x(reference)
        parts.append(f'<line class="reference" x1="{at}" x2="{at}" y1="2" y2="{_MIDDLE + 12}"/>')
    for threshold in thresholds:
        at = scale.x(threshold)
        parts.append(f'<line class="threshold" x1="{at}" x2="{at}" y1="4" y2="{_MIDDLE + 12}"/>')
        parts.append(f'<path class="flag" d="M{at - 5:.1f} 0h10l-5 7z"/>')
    parts.append(f'<circle class="value" cx="{scale.x(estimate.accuracy)}" cy="{_MIDDLE}" r="4.5"/>')
    parts += [] if audited is None else _audited_mark(audited, scale)
    parts.append(f'<text x="{_MARGIN}" y="{_HEIGHT - 1}">{scale.least:.0%}</text>')
    parts.append(f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 1}" text-anchor="end">{scale.most:.0%}</text>')
    described = escape(", ".join(label))
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    drawing = f'<svg role="img" aria-label="{described}" {size}><title>{described}</title>{"".join(parts)}</svg>'
    return Markup(drawing)  # noqa: S704  every text in it was escaped


def _audited_mark(audited: Estimate, scale: Scale) -> Iterable[str]:
    """Draw a diamond, with its interval behind it."""
    if audited.interval is not None:
        left, right = (scale.x(one) for one in audited.interval)
        yield line("whisker", left, _MIDDLE, right, _MIDDLE)
        yield from (line("whisker", end, _MIDDLE - 4, end, _MIDDLE + 4) for end in (left, right))
    yield f'<path class="realised" d="M{scale.x(audited.accuracy)} {_MIDDLE - 6}l6 6-6 6-6-6z"/>'


MOST_CLASSES = 20
"""With more classes, only those that changed most are shown."""
_BOX = Box(240, 26, 0, 240, 2, 24)


@dataclass(frozen=True, slots=True)
class ClassShare:
    """How often a class is predicted."""

    name: str
    now: float
    before: float | None
    """On the reference; None where it is not stored."""

    @property
    def change(self) -> float | None:
        """The difference from the reference, as a ratio."""
        return None if self.before is None else self.now - self.before


def class_shares(names: Sequence[str], now: Sequence[int], before: Sequence[int]) -> list[ClassShare]:
    """Return the shares of all classes in the model's order; empty when the counts are missing or do not match."""
    total, total_before = sum(now), sum(before)
    if total == 0 or len(now) != len(names):
        return []
    known = total_before > 0 and len(before) == len(names)
    return [
        ClassShare(name, count / total, before[index] / total_before if known else None)
        for index, (name, count) in enumerate(zip(names, now, strict=True))
    ]


def moved_most(shares: Sequence[ClassShare]) -> list[ClassShare]:
    """Return the classes to show: all when they are few, else those that changed most."""
    if len(shares) <= MOST_CLASSES:
        return list(shares)
    return sorted(shares, key=lambda one: (-abs(one.change or 0.0), -one.now))[:MOST_CLASSES]


def pair_of_bars(share: ClassShare, most: float) -> Markup:
    """Return the two bars of a class; `most` is the largest share on the scale."""
    x = Linear(0.0, most, 0.0, _BOX.width)
    label = f"{share.name}: {per_cent(share.now)} now"
    # A small share stays visible, or it would look like none.
    parts = [rectangle("now", 0, 2, max(x(share.now), 1.5 if share.now > 0.0 else 0.0), 10)]
    if share.before is not None:
        label += f", {per_cent(share.before)} on the reference"
        parts.append(rectangle("before", 0, 14, max(x(share.before), 1.5 if share.before > 0.0 else 0.0), 10))
    return _BOX.svg(parts, label=label, kind="class-mix")


_ROW = Box(300, 24, 8, 292, 0, 24)
_AXIS = Box(300, 20, 8, 292, 0, 20)


_SPANS = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class ShareScale:
    """The common scale of several shares, or of their differences from the reference."""

    least: float
    """Negative for differences."""
    most: float
    members: tuple[float, float] | None = None
    """The lowest and the highest member of the consensus."""

    @classmethod
    def around(cls, shares: Iterable[float], members: Sequence[float] = ()) -> "ShareScale":
        """Return the scale that covers all of these."""
        least, most = share_range(shares)
        return cls(least, most, (min(members), max(members)) if members else None)

    @classmethod
    def around_differences(cls, differences: Iterable[float]) -> "ShareScale":
        """Return the scale that covers all of these, as far below zero as above."""
        far = max(map(abs, differences), default=0.0)
        most = next(one for one in _SPANS if far <= one or one == _SPANS[-1])
        return cls(-most, most)

    @property
    def _x(self) -> Linear:
        return Linear(self.least, self.most, _ROW.left, _ROW.right)

    @property
    def _ticks(self) -> list[float]:
        if self.least < 0.0:
            return [self.least, self.least / 2, 0.0, self.most / 2, self.most]
        return share_ticks(self.least, self.most)

    def row(
        self,
        name: str,
        value: float,
        interval: Interval | None,
        reference: float | None,
        *,
        filled: bool = True,
        decided: float | None = None,
        thresholds: Sequence[float] = (),
    ) -> Markup:
        """Return the chart of one share; `decided` is the share of decisions, beside that of a class."""
        zero = reference if self.least < 0.0 and reference is not None else 0.0
        scale, middle = self._x, _ROW.height / 2

        def x(share: float) -> float:
            return scale(share - zero)

        label = f"{name}: {per_cent(value)}"
        parts = [line("grid", scale(tick), 0, scale(tick), _ROW.height) for tick in self._ticks]
        if self.members is not None:
            low, high = (x(one) for one in self.members)
            parts.insert(0, rectangle("members", low, 0, high - low, _ROW.height))
        if reference is not None:
            parts.append(line("reference", x(reference), 0, x(reference), _ROW.height))
        if interval is not None:
            left, right = (x(one) for one in interval)
            parts.append(line("whisker", left, middle, right, middle))
            parts += [line("whisker", end, middle - 4, end, middle + 4) for end in (left, right)]
            label += f", {per_cent(interval.lower)} to {per_cent(interval.upper)}"
        if reference is not None:
            label += f"; reference {per_cent(reference)}"
        for threshold in thresholds:
            parts.append(line("threshold", x(threshold), 0, x(threshold), _ROW.height))
            label += f"; alert threshold {per_cent(threshold)}"
        if decided is not None:
            parts.append(diamond("decided", x(decided), middle, 5.0, f"decided {per_cent(decided)}"))
            label += f"; decided {per_cent(decided)}"
        kind = "value" if filled else "value hollow"
        parts.append(f'<circle class="{kind}" cx="{number(x(value))}" cy="{number(middle)}" r="4.5"/>')
        return _ROW.svg(parts, label=label, kind="forest")

    def axis(self) -> Markup:
        """Return the axis."""
        x, ticks = self._x, self._ticks
        texts = [f"{100.0 * tick:+.3g}".replace("+0", "0") if self.least < 0.0 else f"{tick:.0%}" for tick in ticks]
        parts = []
        for tick, text in zip(ticks, texts, strict=True):
            anchor = "start" if tick == ticks[0] else "end" if tick == ticks[-1] else "middle"
            edge = {"start": -8.0, "end": 8.0}.get(anchor, 0.0)
            if len(ticks) <= 5 or anchor != "middle" or ticks.index(tick) % 2 == 0:
                parts.append(words("tick", x(tick) + edge, 14, text, anchor))
        unit = " points" if self.least < 0.0 else ""
        return _AXIS.svg(parts, label=f"Scale from {texts[0]} to {texts[-1]}{unit}", kind="forest")


def drift_row(name: str, drift: OutputDrift, most: float) -> Markup:
    """Return the chart of one distance of outputs: what chance explains shaded, the limit, the distance; `most` ends the scale."""
    x, middle = Linear(0.0, most, _ROW.left, _ROW.right), _ROW.height / 2
    distance, chance, limit = drift[1:]
    return _ROW.svg(
        [
            line("grid", x(0.0), 0, x(0.0), _ROW.height),
            rectangle("members", x(0.0), 4, x(chance) - x(0.0), _ROW.height - 8),
            line("axis", x(0.0), middle, x(most), middle),
            line("threshold", x(limit), 0, x(limit), _ROW.height),
            f'<circle class="value" cx="{number(x(distance))}" cy="{number(middle)}" r="4.5"/>',
        ],
        label=f"{name}: {distance:.2f}; by chance up to {chance:.2f}; limit {limit:.2f}",
        kind="forest",
    )


RELIABILITY_BOX = Box(340, 420, 40, 328, 14, 302)
_BARS = (316.0, 372.0)
"""The top and the bottom of the bars."""


def reliability(raw: Sequence[ReliabilityBin], scaled: Sequence[ReliabilityBin]) -> Markup:
    """Return the diagram of raw and of temperature-scaled confidence."""
    x, y = (
        Linear(0.0, 1.0, RELIABILITY_BOX.left, RELIABILITY_BOX.right),
        Linear(0.0, 1.0, RELIABILITY_BOX.bottom, RELIABILITY_BOX.top),
    )
    parts = []
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        parts += [
            line("grid", RELIABILITY_BOX.left, y(tick), RELIABILITY_BOX.right, y(tick)),
            line("grid", x(tick), RELIABILITY_BOX.top, x(tick), _BARS[1]),
        ]
        parts.append(words("tick", RELIABILITY_BOX.left - 5, y(tick) + 4, f"{tick:.0%}", "end"))
        middle = min(x(tick), RELIABILITY_BOX.width - 17)
        parts.append(words("tick", middle, _BARS[1] + 16, f"{tick:.0%}", "middle"))
    parts.append(line("diagonal", x(0.0), y(0.0), x(1.0), y(1.0)))
    parts += _counts(raw, x)
    for kind, bins in (("scaled", scaled), ("raw", raw)):
        drawn = [(x(one.confidence), y(one.right / one.records)) for one in bins if one.records > 0]
        if len(drawn) > 1:
            parts.append(path(f"curve {kind}", drawn))
    parts += _marks(scaled, x, y, "scaled")
    parts += _marks(raw, x, y, "raw")
    parts.append(
        words(
            "tick",
            (RELIABILITY_BOX.left + RELIABILITY_BOX.right) / 2,
            RELIABILITY_BOX.height - 8,
            "confidence",
            "middle",
        )
    )
    parts.append(words("tick", RELIABILITY_BOX.left + 6, RELIABILITY_BOX.top + 14, "accuracy"))
    return RELIABILITY_BOX.svg(parts, label=_reliability_label(raw, scaled), kind="reliability")


def _marks(bins: Sequence[ReliabilityBin], x: Linear, y: Linear, kind: str) -> Iterable[str]:
    for one in bins:
        if one.records <= 0:
            continue
        at, height = x(one.confidence), y(one.right / one.records)
        title = f"{kind}: confidence {per_cent(one.confidence)}, {per_cent(one.right / one.records)} correct of {one.records:,}"
        if kind == "scaled":
            yield diamond("point scaled", at, height, 5.0, title)
        else:
            yield f'<circle class="point raw" cx="{number(at)}" cy="{number(height)}" r="4"><title>{title}</title></circle>'


def _counts(bins: Sequence[ReliabilityBin], x: Linear) -> Iterable[str]:
    most = max((one.records for one in bins), default=0)
    if most <= 0:
        return
    top, bottom = _BARS
    for index, one in enumerate(bins):
        left, right = x(index / len(bins)), x((index + 1) / len(bins))
        high = (bottom - top) * one.records / most
        # A bin with a single record stays visible.
        high = max(high, 1.0) if one.records > 0 else 0.0
        yield rectangle("count", left + 1, bottom - high, right - left - 2, high, f"{one.records:,} records")


def _reliability_label(raw: Sequence[ReliabilityBin], scaled: Sequence[ReliabilityBin]) -> str:
    """Describe the diagram for screen readers."""
    label = "Reliability diagram"
    for name, bins in (("raw", raw), ("after temperature scaling", scaled)):
        records = sum(one.records for one in bins)
        if records > 0:
            confidence = sum(one.records * one.confidence for one in bins) / records
            right = sum(one.right for one in bins) / records
            label += f"; {name}: mean confidence {per_cent(confidence)}, {per_cent(right)} correct"
    return label
