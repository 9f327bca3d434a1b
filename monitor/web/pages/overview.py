"""The page at `/`: sources, alerts, and how the models are doing."""

from collections.abc import Mapping, Sequence
from html import escape

from monitor.core.alerts import AlertStatus, Severity
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.pages.elements import model_link, runbook_words
from monitor.web.pages.page_frame import framed
from monitor.web.pages.verdict import OverallStatus, Rank, rank, ranked_models, verdict
from monitor.web.pages.windows import model_section, unevaluated_section
from monitor.web.pages.wording import (
    HEADINGS,
    SIGNS,
    Mood,
    alert_mood,
    alert_words,
    consensus_of,
    loud_alerts,
    moment,
    place,
    unbroken,
)
from monitor.web.server.request import Response
from monitor.web.site import Site, SourceView

_COLUMNS = ("Source", "How it is", "Not read yet", "Records taken", "Refused")


def source_table(sources: Sequence[SourceView], now: float) -> str:
    """Return the section; nothing before any source is known."""
    if not sources:
        return ""
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    # What waits comes first: no record from there is seen.
    rows = "".join(_row(one, now) for one in sorted(sources, key=lambda one: (one.waits_for is None, one.name)))
    return f"""<section id="sources"><h2>Sources</h2>
<div class="wide" data-key="sources"><table class="cards"><caption>Where records come from; counts since the state was made</caption>
<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></section>
"""


def _row(source: SourceView, now: float) -> str:
    kind = source.kind
    if source.partitions is not None:
        kind += f", {source.partitions:,} partition{'' if source.partitions == 1 else 's'} ours"
    cells = (_state(source), _lag(source, now), f"{source.records:,}", _refused(source))
    told = "".join(
        f'<td class="long" data-name="{column}">{cell}</td>' for column, cell in zip(_COLUMNS[1:], cells, strict=True)
    )
    mood = "unknown" if source.waits_for is not None or source.lag.rebuilding else "reading"
    return (
        f'<tr class="{mood}" data-source="{escape(source.name)}"><th scope="row">{escape(source.name)}'
        f" <small>{escape(kind)}</small></th>{told}</tr>\n"
    )


def _state(source: SourceView) -> str:
    if source.waits_for is not None:
        return f'<b class="mood">? Waits</b> {escape(source.waits_for)}'
    if source.lag.rebuilding:
        return '<b class="mood">? Rebuilding</b> windows are read again, and hold only a part of their records'
    return "can be read"


def _lag(source: SourceView, now: float) -> str:
    lag = source.lag
    if not lag.bytes and not lag.files:
        # Of a source that cannot be read, nobody knows what there is.
        return '<span class="none">not known</span>' if source.waits_for is not None else "nothing"
    unit = "file" if source.kind == "directory" else "partition"
    told = f"{lag.files:,} {unit}{'' if lag.files == 1 else 's'}"
    if lag.bytes:
        told = f"{_size(lag.bytes)} in {told}"
    if lag.oldest_unread is not None:
        told += f"<br><small>the oldest waits since {unbroken(moment(lag.oldest_unread, now))}</small>"
    return told


def _refused(source: SourceView) -> str:
    if not source.rejected:
        return "0"
    share = source.rejected / (source.records + source.rejected)
    part = "under 0.1%" if share < 0.001 else f"{100.0 * share:.1f}%"
    return f'<a href="/rejects" data-key="refused {escape(source.name)}">{source.rejected:,}</a> <small>{part}</small>'


def _size(count: int) -> str:
    size, units = float(count), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 1000.0 and unit != "TB":
        size, unit = size / 1000.0, next(units)
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


MOST_ALERTS = 100
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_Loud = tuple[ModelReport, SegmentReport, AlertStatus]


def alert_list(reports: Sequence[ModelReport], now: float, runbooks: str) -> str:
    """Return the section, in which firing comes before pending, critical before warning, and info last."""
    loud = [
        (report, segment, alert)
        for report in reports
        for segment in report.segments
        for alert in loud_alerts(segment)
    ]  # fmt: skip
    ranked = sorted(loud, key=_urgency)
    items = "".join(_item(*one, now, runbooks) for one in ranked[:MOST_ALERTS])
    more = len(ranked) - MOST_ALERTS
    rest = f"<p>… and {more:,} more, none more urgent than these; all are in the metrics.</p>" if more > 0 else ""
    listed = f'<ul class="alerts">{items}</ul>{rest}' if items else f"<p>{_quiet(reports)}</p>"
    return f'<section id="alerts" class="{"loud" if items else "quiet"}"><h2>Alerts</h2>{listed}</section>'


def _quiet(reports: Sequence[ModelReport]) -> str:
    """Say what it means that no alert is loud; where something cannot be judged, that is no all-clear."""
    segments = [segment for report in reports for segment in report.segments]
    if not any(segment.alerts for segment in segments):
        return "No alert is configured for what has been evaluated, so none can fire."
    unknown = sum(consensus_of(segment) is None for segment in segments)
    if unknown:
        windows = "1 window" if unknown == 1 else f"{unknown:,} windows"
        return f"None fires, but {windows} cannot be judged now: this is no all-clear."
    return "None fires, and none is about to."


def _urgency(loud: _Loud) -> tuple[Mood, int, Rank]:
    report, segment, alert = loud
    return alert_mood(alert), _SEVERITIES.index(alert.severity), rank(segment, report)


def _item(report: ModelReport, segment: SegmentReport, alert: AlertStatus, now: float, runbooks: str) -> str:
    name, mood = escape(f"{report.model}, {place(segment.name)}"), alert_mood(alert)
    words = unbroken(escape(alert_words(alert, consensus_of(segment), now)))
    key = escape(f"alert {report.model} {segment.name} {alert.alert}")
    link = f'<a href="{model_link(report.model, segment.name)}" data-key="{key}">{name}</a>'
    return f'<li class="{mood.name.lower()}"><b class="mood">{HEADINGS[mood]}</b> <b>{link}</b> <span>{words}. What to do: {runbook_words(runbooks, alert)}</span></li>'


MOST_ROWS = 200
"""Segments shown of one model; those that somebody should look at come first."""
MOST_ROWS_IN_ALL = 1000
"""Of all models together: the page is asked for again every few seconds."""
LEAST_ROWS = 10
"""Shown of each model, however many there are."""


def overview_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page, from the last report of each model."""
    now = site.now()
    standing = OverallStatus(site.reports(), site.healthy(), site.ready())
    ranked = ranked_models(list(standing.reports.values()))
    found = verdict(standing)
    mood = found.mood.name.lower()
    main = f"""<div class="verdict {mood}"><span class="sign" aria-hidden="true">{SIGNS[found.mood]}</span>
<div><h1>{escape(found.sentence)}</h1>{f"<p>{escape(found.more)}</p>" if found.more else ""}</div></div>
{_counts(standing.moods())}
{_sentences(standing.unwell, "cpcmon itself is not well", "unwell")}
{_sentences(standing.waits, "cpcmon waits", "waits")}
{_sentences(site.notices(), "To look at", "waits")}
{alert_list(ranked, now, site.runbooks())}
{_LEGEND if ranked else ""}{_sections(site, ranked, now)}
{"".join(unevaluated_section(name) for name in standing.unevaluated)}
{source_table(site.sources(), now)}"""
    return framed(site, title="Overview", here="/", main=main)


_LEGEND = """<p class="legend">
<span><svg width="46" height="20" aria-hidden="true"><rect class="interval" x="2" y="4" width="42" height="12" rx="2"/>\
<circle class="value" cx="23" cy="10" r="4.5"/></svg> estimate, and where the accuracy lies if nothing but chance is at work</span>
<span><svg width="14" height="20" aria-hidden="true"><line class="reference" x1="7" x2="7" y1="0" y2="20"/></svg> \
accuracy on the reference</span>
<span><svg width="14" height="20" aria-hidden="true"><path class="flag" d="M2 0h10l-5 7z"/>\
<line class="threshold" x1="7" x2="7" y1="4" y2="20"/></svg> threshold of an alert</span>
<span><svg width="16" height="20" aria-hidden="true"><path class="realised" d="M8 4l6 6-6 6-6-6z"/></svg> \
realised, from labels that came later</span></p>"""


def _counts(moods: Sequence[Mood]) -> str:
    counted = [
        f'<li class="{mood.name.lower()}"><b>{moods.count(mood):,}</b> {HEADINGS[mood]}</li>'
        for mood in Mood
        if mood in moods
    ]
    return (
        f'<ul class="overview" aria-label="Windows by what can be said of them">{"".join(counted)}</ul>'
        if counted
        else ""
    )


def _sentences(sentences: Sequence[str], heading: str, kind: str) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(one)}</li>" for one in sentences)
    return f'<section class="{kind}"><h2>{heading}</h2><ul>{items}</ul></section>'


def _sections(site: Site, ranked: Sequence[ModelReport], now: float) -> str:
    left, made = MOST_ROWS_IN_ALL, []
    for report in ranked:
        most = max(LEAST_ROWS, min(MOST_ROWS, left))
        left -= min(most, len(report.segments))
        made.append(model_section(report, site.realised(report.model), now, most, site.realised_remark(report.model)))
    return "".join(made)
