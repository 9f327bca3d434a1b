"""The page at `/`: how the models are doing, for somebody with a browser."""

from collections.abc import Mapping, Sequence
from html import escape

from monitor.core.alerts import Kind
from monitor.core.report import InputFacts, ModelReport, SegmentReport
from monitor.web.bar import Scale, bar
from monitor.web.frame import framed
from monitor.web.messages import Response
from monitor.web.site import Site
from monitor.web.words import (
    HEADINGS,
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

MOST_ROWS = 200
"""Of one model; those that somebody should look at come first."""
_COLUMNS = ("Segment", "What cpcmon says", "Estimated accuracy", "Disagreement", "Records", "Last record")


def overview_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    problems = [*site.healthy(), *site.ready()]
    main = _main(site.reports(), now=site.now(), problems=problems)
    return framed(site, title="Overview", here="/", main=main)


def _main(reports: Mapping[str, ModelReport], *, now: float, problems: Sequence[str]) -> str:
    ranked = sorted(reports.values(), key=lambda report: (_worst(report), report.model))
    return f"""<h1>How the models are doing</h1>
{_problems(problems)}{_overview(ranked)}{_LEGEND}
{"".join(_model(report, now) for report in ranked)}"""


_LEGEND = """<p class="legend">
<svg width="46" height="20" aria-hidden="true"><rect class="interval" x="2" y="4" width="42" height="12" rx="2"/>\
<circle class="value" cx="23" cy="10" r="4.5"/></svg> estimate, and where the accuracy lies if nothing but chance is at work
<svg width="14" height="20" aria-hidden="true"><line class="reference" x1="7" x2="7" y1="0" y2="20"/></svg> \
accuracy on the reference
<svg width="14" height="20" aria-hidden="true"><path class="flag" d="M2 0h10l-5 7z"/>\
<line class="threshold" x1="7" x2="7" y1="4" y2="20"/></svg> threshold of an alert</p>"""


def _worst(report: ModelReport) -> tuple[Mood, int]:
    return min((urgency_of(segment) for segment in report.segments), default=(Mood.UNKNOWN, 0))


def _problems(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    return f'<section class="problems"><h2>cpcmon itself is not well</h2><ul>{items}</ul></section>'


def _overview(reports: Sequence[ModelReport]) -> str:
    if not reports:
        return "<p>No model has been evaluated yet.</p>"
    moods = [mood_of(segment) for report in reports for segment in report.segments]
    counted = [
        f'<li class="{mood.name.lower()}"><b>{moods.count(mood)}</b> {HEADINGS[mood]}</li>'
        for mood in Mood
        if mood in moods
    ]
    return f'<ul class="overview">{"".join(counted)}</ul>'


def _model(report: ModelReport, now: float) -> str:
    ranked = sorted(report.segments, key=urgency_of)
    shown, reference = ranked[:MOST_ROWS], report.reference
    scale = _scale(shown, None if reference is None else reference.accuracy)
    facts = [f"evaluated {moment(report.at, now)}"]
    if reference is not None:
        facts.insert(
            0, f"version {escape(reference.version)}, accuracy on its reference {per_cent(reference.accuracy)}"
        )
    facts += [escape(hint) for hint in (*report.input.hints, *_oddities(report.input))]
    facts += [f"{escape(name)} failed in {count} windows" for name, count in report.errors.items()]
    rows = "".join(_row(segment, report, scale, now) for segment in shown)
    more = len(ranked) - len(shown)
    rest = f"<p>… and {more} more segments, none more urgent than these; all are in the metrics.</p>" if more else ""
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    return f"""<section><h2>{escape(report.model)}</h2><p>{"; ".join(facts)}</p>
<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table></div>{rest}</section>
"""


def _oddities(records: InputFacts) -> list[str]:
    """Say what makes an estimate worth less than it looks."""
    said = []
    if records.one_hot:
        said.append("nearly all records are certain of one class: the answer was sent, not the probabilities")
    if records.constant:
        said.append("the records are all alike: the model may be stuck")
    if records.rejected_share:
        said.append(f"{per_cent(records.rejected_share)} of the latest records were refused")
    return said


def _scale(segments: Sequence[SegmentReport], reference: float | None) -> Scale:
    values = [] if reference is None else [reference]
    for segment in segments:
        estimate = consensus_of(segment)
        if estimate is not None:
            values.append(estimate.interval.lower if estimate.interval else estimate.accuracy)
            values += _thresholds(segment)
    return Scale.around(values)


def _thresholds(segment: SegmentReport) -> list[float]:
    found = {alert.threshold for alert in segment.alerts if alert.kind is Kind.ACCURACY and alert.threshold is not None}
    return sorted(found)


def _row(segment: SegmentReport, report: ModelReport, scale: Scale, now: float) -> str:
    mood = mood_of(segment)
    seen = segment.last_record_at
    cells = (
        _says(segment, mood, now),
        _estimate(segment, report, scale),
        _disagreement(segment),
        f"{segment.records:,}",
        "never" if seen is None else moment(seen, now).replace(" (", "<br><small>").replace(")", "</small>"),
    )
    name = escape(place(segment.name))
    told = "".join(f'<td data-name="{column}">{cell}</td>' for column, cell in zip(_COLUMNS[1:], cells, strict=True))
    return f'<tr class="{mood.name.lower()}"><th scope="row">{name}</th>{told}</tr>\n'


def _says(segment: SegmentReport, mood: Mood, now: float) -> str:
    severity = worst_severity(segment)
    of = f", {severity}" if severity is not None and mood in {Mood.ALERT, Mood.PENDING} else ""
    told = [f'<b class="mood">{HEADINGS[mood]}{of}</b>']
    if consensus_of(segment) is None:
        why = STATES[segment.state]
        if segment.last_valid_at is not None:
            why += f"; last estimate {ago(now - segment.last_valid_at)}"
        told.append(escape(f"{why}."))
    told += [escape(alert_words(alert, consensus_of(segment), now)) for alert in loud_alerts(segment)]
    return "".join(f'<p class="told">{one}</p>' for one in told)


def _estimate(segment: SegmentReport, report: ModelReport, scale: Scale) -> str:
    estimate = consensus_of(segment)
    if estimate is None:
        return '<span class="none">none</span>'
    reference = None if report.reference is None else report.reference.accuracy
    text = f"<b>{per_cent(estimate.accuracy)}</b>"
    if estimate.interval is not None:
        text += f" <small>{per_cent(estimate.interval.lower)} to {per_cent(estimate.interval.upper)}</small>"
    return f"{text}<br>{bar(estimate, reference, _thresholds(segment), scale)}"


def _disagreement(segment: SegmentReport) -> str:
    if segment.disagreement is None or not segment.valid:
        return '<span class="none">none</span>'
    text = f"{100.0 * segment.disagreement:.1f} points"
    if segment.chance_disagreement is not None and segment.disagreement > segment.chance_disagreement:
        text += f"<br><small>more than chance gives ({100.0 * segment.chance_disagreement:.1f})</small>"
    return text
