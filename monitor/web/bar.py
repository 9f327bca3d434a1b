"""A small drawing of an estimate with its interval, beside reference, thresholds and what labels showed later."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from monitor.core.estimate import Estimate
from monitor.web.words import per_cent

_WIDTH, _HEIGHT, _MARGIN, _MIDDLE = 260, 40, 8, 16


@dataclass(frozen=True, slots=True)
class Scale:
    """From where to where the drawings of one model reach, so that they can be compared."""

    least: float
    most: float = 1.0

    @classmethod
    def around(cls, values: Sequence[float]) -> "Scale":
        """Return the scale, in steps of ten points, that shows all values with room to the left."""
        lowest = min(values, default=0.9) - 0.02
        return cls(max(0, min(9, int(lowest * 10.0))) / 10.0)

    def x(self, value: float) -> float:
        """Return where a value is drawn."""
        share = (min(max(value, self.least), self.most) - self.least) / (self.most - self.least)
        return round(_MARGIN + share * (_WIDTH - 2 * _MARGIN), 1)


def bar(
    estimate: Estimate,
    reference: float | None,
    thresholds: Sequence[float],
    scale: Scale,
    realised: float | None = None,
) -> str:
    """Return the drawing as SVG that stands in the page itself."""
    least, most = estimate.interval or (estimate.accuracy, estimate.accuracy)
    said = [f"estimated accuracy {per_cent(estimate.accuracy)}"]
    if estimate.interval is not None:
        said.append(f"between {per_cent(least)} and {per_cent(most)}")
    if reference is not None:
        said.append(f"reference {per_cent(reference)}")
    said += [f"alert threshold {per_cent(one)}" for one in thresholds]
    if realised is not None:
        said.append(f"realised {per_cent(realised)}")
    left, right = scale.x(least), scale.x(most)
    parts = [
        f'<line class="axis" x1="{_MARGIN}" x2="{_WIDTH - _MARGIN}" y1="{_MIDDLE}" y2="{_MIDDLE}"/>',
        f'<rect class="interval" x="{left}" y="{_MIDDLE - 6}" width="{max(right - left, 1.0):.1f}" height="12" rx="2"/>',
    ]
    if reference is not None:
        at = scale.x(reference)
        parts.append(f'<line class="reference" x1="{at}" x2="{at}" y1="2" y2="{_MIDDLE + 12}"/>')
    for threshold in thresholds:
        at = scale.x(threshold)
        parts.append(f'<line class="threshold" x1="{at}" x2="{at}" y1="4" y2="{_MIDDLE + 12}"/>')
        parts.append(f'<path class="flag" d="M{at - 5:.1f} 0h10l-5 7z"/>')
    parts.append(f'<circle class="value" cx="{scale.x(estimate.accuracy)}" cy="{_MIDDLE}" r="4.5"/>')
    if realised is not None:
        parts.append(f'<path class="realised" d="M{scale.x(realised)} {_MIDDLE - 6}l6 6-6 6-6-6z"/>')
    parts.append(f'<text x="{_MARGIN}" y="{_HEIGHT - 1}">{scale.least:.0%}</text>')
    parts.append(f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 1}" text-anchor="end">{scale.most:.0%}</text>')
    label = escape(", ".join(said))
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'<svg role="img" aria-label="{label}" {size}><title>{label}</title>{"".join(parts)}</svg>'
