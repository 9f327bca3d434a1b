"""The page of one window of a model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from monitor.core.estimate import Estimate
from monitor.core.history import Span
from monitor.core.report import ModelReport, Realised, SegmentReport
from monitor.web.charts.svg import written
from monitor.web.pages.elements import fact, facts, model_link, points, reference_link, runbook_words
from monitor.web.pages.explanations import Shown
from monitor.web.pages.model_history import chart_section
from monitor.web.pages.model_sections import (
    alerts_section,
    classes_section,
    disagreement_section,
    estimators_section,
    records_section,
    sets_section,
)
from monitor.web.pages.page_frame import framed
from monitor.web.pages.verdict import rank
from monitor.web.pages.wording import (
    HEADINGS,
    SIGNS,
    STATES,
    Mood,
    ago,
    alert_words,
    consensus_of,
    loud_alerts,
    moment,
    mood_of,
    per_cent,
    place,
    urgency_of,
    worst_severity,
)
from monitor.web.server.request import Response
from monitor.web.site import Site

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
                told.append(f"{len(found):,} of its {_parts(self.parts)} {verb}: {links}{more}.")
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


def _parts(count: int) -> str:
    return f"{count:,} segment{'' if count == 1 else 's'}"


MOST_VISIBLE = 50
"""Segments that are listed openly; the others are a click away."""

_BLIND = """<section class="blind" id="blind"><h2>What no estimator here can see</h2>
<p>Mistakes that the model makes with confidence. Where the meaning of the input changed (a device that writes a field \
differently, a disease that the model never met), it can be as sure as ever, and wrong. No number on this page would move. \
What helps: labels of some recent cases, even a few, and a look at the predicted classes and the set sizes.</p></section>"""

_CAUTION = (
    '<p class="soft">That nothing fires is no proof: see <a href="#blind">what no estimator here can see</a>.</p>'
)


def model_page(site: Site, query: Mapping[str, str]) -> Response | None:
    """Return the page that the query names; None where it names nothing that is known."""
    report = site.reports().get(query.get("name", ""))
    asked, span = query.get("segment", "all"), query.get("span", Span.RECENT)
    if report is None or span not in list(Span):
        return None
    segment = next((one for one in report.segments if one.name == asked), None)
    if segment is None:
        return None
    title = f"{report.model}, {place(segment.name)}"
    return framed(site, title=title, here="/model", main=_main(site, report, segment, Span(span)))


def _main(site: Site, report: ModelReport, segment: SegmentReport, span: Span) -> str:
    now = site.now()
    told = site.realised(report.model)
    realised = [one for one in told if one.segment == segment.name]
    series = site.history(report.model, segment.name, span)
    inside = within(report)
    return f"""{_head(site, report, segment, inside.get(segment.name, Within()), now)}
{_numbers(report, segment, realised, site.realised_remark(report.model), now)}
{_segments(report, segment, span, inside)}
{chart_section(report, segment, series, realised, span=span, now=now)}
{alerts_section(segment, site.runbooks(), now)}
{estimators_section(report, segment)}
{disagreement_section(segment)}
{sets_section(segment)}
{classes_section(report, segment, _predicted_before(site, report))}
{records_section(report, segment, now)}
{_BLIND}"""


def _predicted_before(site: Site, report: ModelReport) -> Sequence[int]:
    if report.reference is None or report.reference.predicted:
        return () if report.reference is None else report.reference.predicted
    reference = site.reference(report.model)
    same = reference is not None and reference.fingerprint == report.reference.fingerprint
    return reference.summary.class_predicted if reference is not None and same else ()


def _head(site: Site, report: ModelReport, segment: SegmentReport, inside: Within, now: float) -> str:
    linked, runbooks = site.reference(report.model) is not None, site.runbooks()
    mood = mood_of(segment)
    sign, heading = inside.heading(mood).split(" ", 1)
    severity = worst_severity(segment)
    of = f", {severity}" if severity is not None and mood in {Mood.ALERT, Mood.PENDING} else ""
    version = "" if report.reference is None else f" <small>version {written(report.reference.version)}</small>"
    shown = " ".join([Shown.ESTIMATE, *((Shown.THRESHOLD, Shown.ALERT_SINCE) if loud_alerts(segment) else ())])
    sentences = [*_verdict(report, segment, runbooks, now), *inside.sentences(report.model)]
    told = "".join(f"<p>{one}</p>" for one in sentences)
    reference = f' · <a href="{reference_link(report.model)}">its reference</a>' if linked else ""
    return f"""<p class="back"><a href="/">Overview</a>{reference}</p>
<div class="verdict {inside.mood(mood).name.lower()}"><span class="sign" aria-hidden="true">{sign}</span>\
<div data-shown="{shown}"><h1>{written(report.model)}{version}<br>{written(place(segment.name))}: \
{heading.lower()}{of}</h1>{told}{_CAUTION if inside.mood(mood) in {Mood.FINE, Mood.INFO, Mood.UNWATCHED} else ""}</div></div>"""


def _verdict(report: ModelReport, segment: SegmentReport, runbooks: str, now: float) -> list[str]:
    """Say how it does, in sentences of HTML."""
    estimate = consensus_of(segment)
    told = [
        f"{written(alert_words(alert, estimate, now))}. What to do: {runbook_words(runbooks, alert)}"
        for alert in loud_alerts(segment)
    ]
    if estimate is None:
        why = STATES[segment.state]
        if segment.last_valid_at is not None:
            why += f"; last estimate {ago(now - segment.last_valid_at)}"
        return [f"{written(why)}. Nothing is known of its accuracy now, good or bad.", *told]
    return [written(_compared(report, estimate)), *told]


def _compared(report: ModelReport, estimate: Estimate) -> str:
    said = f"About {per_cent(estimate.accuracy)} of its answers are right, judging by how sure it is"
    if report.reference is None:
        return f"{said}."
    drop = report.reference.accuracy - estimate.accuracy
    side = "under" if drop > 0.0 else "over"
    said += f"; {points(drop)} {side} the accuracy on the reference"
    if estimate.interval is None:
        return f"{said}."
    if estimate.interval.lower <= report.reference.accuracy <= estimate.interval.upper:
        return f"{said}, which is no more than chance explains."
    return f"{said}, which is more than chance explains."


def _numbers(
    report: ModelReport, segment: SegmentReport, realised: Sequence[Realised], remark: str | None, now: float
) -> str:
    estimate, reference = consensus_of(segment), report.reference
    told = [
        fact(Shown.ESTIMATE, "Estimated accuracy", "cannot say" if estimate is None else per_cent(estimate.accuracy))
    ]
    if estimate is not None and estimate.interval is not None:
        between = f"{per_cent(estimate.interval.lower)} to {per_cent(estimate.interval.upper)}"
        told.append(fact(Shown.INTERVAL, "Interval", between))
    if reference is not None:
        told.append(fact(Shown.REFERENCE_ACCURACY, "Accuracy on the reference", per_cent(reference.accuracy)))
    if reference is not None and estimate is not None:
        drop = reference.accuracy - estimate.accuracy
        value = f"{points(drop)}" if drop > 0.0 else f"none <small>({points(drop)} over)</small>"
        told.append(fact(Shown.DROP, "Drop", value))
    # Without the remark, labels that cannot be read would look like labels that nobody has.
    wrong = "" if remark is None else f"<small>{written(remark)}</small>"
    if realised:
        last = realised[-1]
        small = f"<small>{last.right:,} of {last.records:,} right; {written(moment(last.at, now))}</small>"
        told.append(fact(Shown.REALISED, "Realised accuracy", f"{per_cent(last.accuracy)} {small} {wrong}"))
    elif wrong:
        told.append(fact(Shown.REALISED, "Realised accuracy", f"none {wrong}"))
    return facts(told)


def _segments(report: ModelReport, here: SegmentReport, span: Span, inside: Mapping[str, Within]) -> str:
    """Return links to all windows of the model: the whole first, then the worst."""
    if len(report.segments) < 2:
        return ""
    whole = [one for one in report.segments if not one.segment]
    parts = sorted((one for one in report.segments if one.segment), key=_worst_first)
    items = [
        _segment(report, one, inside.get(one.name, Within()), span, current=one is here) for one in (*whole, *parts)
    ]
    listed = f'<ul class="choices segments">{"".join(items[:MOST_VISIBLE])}</ul>'
    if len(items) > MOST_VISIBLE:
        rest = "".join(items[MOST_VISIBLE:])
        listed += (
            f'<details data-key="segments"><summary>The other {len(items) - MOST_VISIBLE:,}, none more urgent</summary>'
            f'<ul class="choices segments">{rest}</ul></details>'
        )
    return f'<nav aria-label="Segments" data-shown="{Shown.ESTIMATE}"><h2 class="small">Segments, worst first</h2>{listed}</nav>'


def _worst_first(segment: SegmentReport) -> tuple[object, ...]:
    estimate = consensus_of(segment)
    return *urgency_of(segment), 1.0 if estimate is None else estimate.accuracy, segment.name


def _segment(report: ModelReport, segment: SegmentReport, inside: Within, span: Span, *, current: bool) -> str:
    estimate, own = consensus_of(segment), mood_of(segment)
    mood, heading = inside.mood(own), inside.heading(own)
    value = "cannot say" if estimate is None else per_cent(estimate.accuracy)
    mark = " aria-current=page" if current else ""
    return (
        f'<li class="{mood.name.lower()}"><a href="{model_link(report.model, segment.name, span)}"{mark}>'
        f'<span class="mood" title="{heading}">{SIGNS[mood]}</span> {written(place(segment.name))} <b>{value}</b></a></li>'
    )
