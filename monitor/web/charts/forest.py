"""Estimators side by side: one row for each, all on one scale, so that eyes can compare what tables make hard."""

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.core.estimate import Estimate
from monitor.web.charts.axes import share_range, share_ticks
from monitor.web.charts.svg import Box, Linear, line, number, rectangle, words
from monitor.web.words import per_cent

_ROW = Box(300, 24, 8, 292, 0, 24)
_AXIS = Box(300, 20, 8, 292, 0, 20)


@dataclass(frozen=True, slots=True)
class Common:
    """What all rows share."""

    least: float
    most: float
    reference: float | None = None
    voices: tuple[float, float] | None = None
    """The lowest and the highest of those that the consensus hears."""

    @classmethod
    def around(cls, estimates: Sequence[Estimate], reference: float | None, voices: Sequence[float]) -> "Common":
        """Return the scale on which all of these can be seen."""
        values = [one for estimate in estimates for one in (estimate.accuracy, *(estimate.interval or ()))]
        least, most = share_range([*values, *([] if reference is None else [reference])])
        return cls(least, most, reference, (min(voices), max(voices)) if voices else None)

    @property
    def _x(self) -> Linear:
        return Linear(self.least, self.most, _ROW.left, _ROW.right)

    def row(self, name: str, estimate: Estimate, *, heard: bool) -> str:
        """Return the drawing of one estimator; those that the consensus hears are filled, the others hollow."""
        x, middle = self._x, _ROW.height / 2
        said = f"{name}: {per_cent(estimate.accuracy)}"
        parts = [line("grid", x(tick), 0, x(tick), _ROW.height) for tick in share_ticks(self.least, self.most)]
        if self.voices is not None:
            low, high = (x(one) for one in self.voices)
            parts.insert(0, rectangle("voices", low, 0, high - low, _ROW.height))
        if self.reference is not None:
            parts.append(line("reference", x(self.reference), 0, x(self.reference), _ROW.height))
        if estimate.interval is not None:
            left, right = (x(one) for one in estimate.interval)
            parts.append(line("whisker", left, middle, right, middle))
            parts += [line("whisker", end, middle - 4, end, middle + 4) for end in (left, right)]
            said += f", {per_cent(estimate.interval.lower)} to {per_cent(estimate.interval.upper)}"
        kind = "value" if heard else "value hollow"
        parts.append(f'<circle class="{kind}" cx="{number(x(estimate.accuracy))}" cy="{number(middle)}" r="4.5"/>')
        return _ROW.svg(parts, label=said, kind="forest")

    def axis(self) -> str:
        """Return the scale itself, which stands once above the rows."""
        x, ticks = self._x, share_ticks(self.least, self.most)
        parts = []
        for tick in ticks:
            anchor = "start" if tick == ticks[0] else "end" if tick == ticks[-1] else "middle"
            edge = {"start": -8.0, "end": 8.0}.get(anchor, 0.0)
            if len(ticks) <= 5 or anchor != "middle" or ticks.index(tick) % 2 == 0:
                parts.append(words("tick", x(tick) + edge, 14, f"{tick:.0%}", anchor))
        return _AXIS.svg(parts, label=f"Scale from {self.least:.0%} to {self.most:.0%}", kind="forest")
