"""The overall status in one sentence, and which window to look at first. What cannot be evaluated is never called ok."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.core.alerts import AlertType
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.pages.wording import Mood, consensus_of, mood_of, place, urgency_of

Rank = tuple[Mood, int, float, str]


def rank(segment: SegmentReport, report: ModelReport) -> Rank:
    """Return what to sort by: mood, severity, how far it lies under what is asked, name."""
    return (*urgency_of(segment), _margin(segment, report), segment.name)


def ranked(report: ModelReport) -> list[SegmentReport]:
    """Return the windows of a model, worst first."""
    return sorted(report.segments, key=lambda segment: rank(segment, report))


def ranked_models(reports: Sequence[ModelReport]) -> list[ModelReport]:
    """Return the models by their worst windows; one without any cannot be judged."""
    nothing: Rank = (Mood.UNKNOWN, 0, math.inf, "")
    worst = {id(report): min((rank(one, report) for one in report.segments), default=nothing) for report in reports}
    return sorted(reports, key=lambda report: (*worst[id(report)][:3], report.model))


def thresholds_of(segment: SegmentReport) -> list[float]:
    """Return the thresholds of a window's alerts on accuracy, lowest first."""
    found = {
        alert.threshold for alert in segment.alerts if alert.kind is AlertType.ACCURACY and alert.threshold is not None
    }
    return sorted(found)


def _margin(segment: SegmentReport, report: ModelReport) -> float:
    """Return how far the upper end lies above the highest threshold that it must not fall under; without one, the estimate above the reference."""
    estimate = consensus_of(segment)
    thresholds = sorted(
        one.threshold
        for one in segment.alerts
        if one.kind is AlertType.ACCURACY and one.threshold is not None and not one.upward
    )
    if estimate is None:
        return math.inf
    if thresholds:
        return (estimate.interval.upper if estimate.interval else estimate.accuracy) - thresholds[-1]
    return math.inf if report.reference is None else estimate.accuracy - report.reference.accuracy


_UNEVALUATED = " has not been evaluated yet"
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class OverallStatus:
    """What the overview is made from, asked for once, so that all of it is of one moment."""

    reports: Mapping[str, ModelReport]
    unwell: Sequence[str]
    """Sentences on what only a restart can mend."""
    waits: Sequence[str]
    """Sentences on what is waited for."""

    @property
    def unevaluated(self) -> list[str]:
        """Models of which nothing is known yet."""
        found = [one.removesuffix(_UNEVALUATED) for one in self.waits if one.endswith(_UNEVALUATED)]
        return [name for name in found if name not in self.reports]

    def moods(self) -> list[Mood]:
        """Return the mood of every window, and of every model that has none yet."""
        known = [mood_of(segment) for report in self.reports.values() for segment in report.segments]
        return [*known, *(Mood.UNKNOWN for _ in self.unevaluated)]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How things are, and how urgently somebody should look."""

    mood: Mood
    sentence: str
    more: str
    """What it rests on, and what else is to be known before it is believed."""


def verdict(standing: OverallStatus) -> Verdict:
    """Return how things are. The mood is that of the worst window, and at best unknown while anything is amiss."""
    moods = standing.moods()
    worst, sentence, more = min(moods, default=Mood.UNKNOWN), _alerting(standing, len(moods)), []
    if worst is Mood.ALERT:
        more.append(_counted(standing, moods))
    elif moods:
        # In one breath: that there is no alert means nothing without how much could be judged.
        sentence = f"{sentence} {_counted(standing, moods)}"
    if standing.waits:
        worst = min(worst, Mood.UNKNOWN)
        more.append("cpcmon waits for something; see below.")
    if standing.unwell:
        more.insert(0, sentence)
        worst, sentence = Mood.ALERT, "cpcmon itself is not well: what stands here may be old or wrong."
    return Verdict(worst, sentence, " ".join(more))


def _alerting(standing: OverallStatus, total: int) -> str:
    windows = [(report, segment) for report in standing.reports.values() for segment in report.segments]
    moods = {mood_of(segment) for _, segment in windows}
    if Mood.ALERT in moods:
        loud = [(rank(segment, report), report.model) for report, segment in windows if mood_of(segment) is Mood.ALERT]
        names = [f"{model}, {place(name)}" for (*_, name), model in sorted(loud)]
        more = f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        alerts = "alerts" if len(names) == 1 else "alert"
        return f"{len(names)} of {_windows(total)} {alerts}: {'; '.join(names[:_MOST_NAMED])}{more}."
    if not windows:
        return "No model has been evaluated yet."
    if moods == {Mood.UNKNOWN}:
        return "Nothing can be said of any window."
    if moods.isdisjoint({Mood.FINE, Mood.INFO, Mood.PENDING}):
        return "No alert is configured, so none can fire."
    return "No critical or warning alert." if Mood.INFO in moods else "No alert."


def _counted(standing: OverallStatus, moods: Sequence[Mood]) -> str:
    judged = sum(
        consensus_of(segment) is not None for report in standing.reports.values() for segment in report.segments
    )
    told = [f"{_windows(judged)} judged"]
    words = {
        Mood.PENDING: "to watch",
        Mood.UNKNOWN: "cannot say",
        Mood.INFO: "with info only",
        Mood.UNWATCHED: "without an alert configured",
    }
    told += [f"{moods.count(mood)} {said}" for mood, said in words.items() if mood in moods]
    return f"{', '.join(told)}."


def _windows(count: int) -> str:
    return f"{count:,} window{'' if count == 1 else 's'}"
