"""How often classes are predicted now, beside how often they were on the reference: two bars for each class."""

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.web.charts.svg import Box, Linear, rectangle
from monitor.web.words import per_cent

MOST_CLASSES = 20
"""Beyond it only those that moved most are shown."""
_BOX = Box(240, 26, 0, 240, 2, 24)


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A class, and how often it is predicted."""

    name: str
    now: float
    before: float | None
    """On the reference; None where it was not kept."""

    @property
    def change(self) -> float | None:
        """How much more often than on the reference, as a ratio."""
        return None if self.before is None else self.now - self.before


def class_shares(names: Sequence[str], now: Sequence[int], before: Sequence[int]) -> list[ClassShare]:
    """Return the shares of all classes, in the model's order; nothing where the counts are missing or do not fit."""
    total, total_before = sum(now), sum(before)
    if total == 0 or len(now) != len(names):
        return []
    known = total_before > 0 and len(before) == len(names)
    return [
        ClassShare(name, count / total, before[index] / total_before if known else None)
        for index, (name, count) in enumerate(zip(names, now, strict=True))
    ]


def moved_most(shares: Sequence[ClassShare]) -> list[ClassShare]:
    """Return those to show: all when they are few, else those that moved most, and of equals the more frequent."""
    if len(shares) <= MOST_CLASSES:
        return list(shares)
    return sorted(shares, key=lambda one: (-abs(one.change or 0.0), -one.now))[:MOST_CLASSES]


def pair_of_bars(share: ClassShare, most: float) -> str:
    """Return the two bars of a class; `most` is the largest share on the same scale."""
    x = Linear(0.0, most, 0.0, _BOX.width)
    said = f"{share.name}: {per_cent(share.now)} now"
    # A share that is not 0 leaves a trace, or it could not be told from none.
    parts = [rectangle("now", 0, 2, max(x(share.now), 1.5 if share.now > 0.0 else 0.0), 10)]
    if share.before is not None:
        said += f", {per_cent(share.before)} on the reference"
        parts.append(rectangle("before", 0, 14, max(x(share.before), 1.5 if share.before > 0.0 else 0.0), 10))
    return _BOX.svg(parts, label=said, kind="class-mix")
