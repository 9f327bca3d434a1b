"""The reliability diagram: accuracy by confidence, with bars for the number of records."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from monitor.reference.summary import ReliabilityBin
from monitor.web.charts.svg import Box, Linear, diamond, line, number, path, rectangle, words
from monitor.web.pages.wording import per_cent

BOX = Box(340, 420, 40, 328, 14, 302)
_BARS = (316.0, 372.0)
"""The top and the bottom of the bars."""


def reliability(raw: Sequence[ReliabilityBin], scaled: Sequence[ReliabilityBin]) -> Markup:
    """Return the diagram of raw and of temperature-scaled confidence."""
    x, y = Linear(0.0, 1.0, BOX.left, BOX.right), Linear(0.0, 1.0, BOX.bottom, BOX.top)
    parts = []
    for tick in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        parts += [
            line("grid", BOX.left, y(tick), BOX.right, y(tick)),
            line("grid", x(tick), BOX.top, x(tick), _BARS[1]),
        ]
        parts.append(words("tick", BOX.left - 5, y(tick) + 4, f"{tick:.0%}", "end"))
        middle = min(x(tick), BOX.width - 17)
        parts.append(words("tick", middle, _BARS[1] + 16, f"{tick:.0%}", "middle"))
    parts.append(line("diagonal", x(0.0), y(0.0), x(1.0), y(1.0)))
    parts += _counts(raw, x)
    for kind, bins in (("scaled", scaled), ("raw", raw)):
        drawn = [(x(one.confidence), y(one.right / one.records)) for one in bins if one.records > 0]
        if len(drawn) > 1:
            parts.append(path(f"curve {kind}", drawn))
    parts += _marks(scaled, x, y, "scaled")
    parts += _marks(raw, x, y, "raw")
    parts.append(words("tick", (BOX.left + BOX.right) / 2, BOX.height - 8, "confidence", "middle"))
    parts.append(words("tick", BOX.left + 6, BOX.top + 14, "accuracy"))
    return BOX.svg(parts, label=_label(raw, scaled), kind="reliability")


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


def _label(raw: Sequence[ReliabilityBin], scaled: Sequence[ReliabilityBin]) -> str:
    """Describe the diagram for screen readers."""
    label = "Reliability diagram"
    for name, bins in (("raw", raw), ("after temperature scaling", scaled)):
        records = sum(one.records for one in bins)
        if records > 0:
            confidence = sum(one.records * one.confidence for one in bins) / records
            right = sum(one.right for one in bins) / records
            label += f"; {name}: mean confidence {per_cent(confidence)}, {per_cent(right)} correct"
    return label
