"""What happens within a window: a whole that looks well must not hide a part that does not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.core.report import ModelReport, SegmentReport
from monitor.web.charts.svg import written
from monitor.web.links import model_link
from monitor.web.ranking import rank
from monitor.web.words import HEADINGS, SIGNS, Mood, mood_of, place

MOST_NAMED = 5
_VERBS = {Mood.ALERT: ("alerts", "alert"), Mood.PENDING: ("is to watch", "are to watch")}
_UNKNOWN = ("cannot be judged", "cannot be judged")


@dataclass(frozen=True, slots=True)
class Within:
    """The narrower windows of one, and how many of them somebody should look at."""

    parts: int = 0
    notable: Sequence[SegmentReport] = ()
    """Those that alert, are about to, or cannot be judged; worst first."""

    @property
    def worst(self) -> Mood:
        """The mood of the worst part; fine where there is none."""
        return mood_of(self.notable[0]) if self.notable else Mood.FINE

    def mood(self, own: Mood) -> Mood:
        """Return how a window may look: never well where a part of it is not."""
        if own <= Mood.UNKNOWN or not self.notable:
            return own
        return Mood.PENDING if self.worst < Mood.UNKNOWN else min(own, Mood.UNWATCHED)

    def heading(self, own: Mood) -> str:
        """Return the sign and the words for a window of that mood."""
        shown = self.mood(own)
        words = "No alert of its own" if own is Mood.FINE and shown is not own else HEADINGS[own].split(" ", 1)[1]
        return f"{SIGNS[shown]} {words}"

    def sentences(self, model: str) -> list[str]:
        """Say what is to be known of the parts, as HTML with links to them; nothing when all are well."""
        told = []
        for mood in (Mood.ALERT, Mood.PENDING, Mood.UNKNOWN):
            found = [one for one in self.notable if mood_of(one) is mood]
            if found:
                verb = _VERBS.get(mood, _UNKNOWN)[len(found) > 1]
                links = ", ".join(_link(model, one) for one in found[:MOST_NAMED])
                more = f" and {len(found) - MOST_NAMED:,} more" if len(found) > MOST_NAMED else ""
                told.append(f"{len(found):,} of its {_segments(self.parts)} {verb}: {links}{more}.")
        return told


def within(report: ModelReport) -> Mapping[str, Within]:
    """Return what is within each window of a model that has others within it, by the window's name."""
    wholes = {frozenset(one.segment): one for one in report.segments}
    fields = {frozenset(name for name, _ in one.segment) for one in report.segments}
    counts: Counter[str] = Counter()
    notable: dict[str, list[SegmentReport]] = {}
    for one in report.segments:
        own = frozenset(name for name, _ in one.segment)
        loud = mood_of(one) <= Mood.UNKNOWN
        for wider in fields:
            whole = wholes.get(frozenset(pair for pair in one.segment if pair[0] in wider)) if wider < own else None
            if whole is not None:
                counts[whole.name] += 1
                notable.setdefault(whole.name, []).extend([one] if loud else ())
    return {
        name: Within(count, sorted(notable[name], key=lambda one: rank(one, report))) for name, count in counts.items()
    }


def _link(model: str, segment: SegmentReport) -> str:
    return f'<a href="{model_link(model, segment.name)}">{written(place(segment.name))}</a>'


def _segments(count: int) -> str:
    return f"{count:,} segment{'' if count == 1 else 's'}"
