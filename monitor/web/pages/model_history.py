"""The part of a model's page that shows its estimate over time, as a chart and as a table."""

from collections.abc import Sequence

from monitor.core.alerts import AlertPhase, AlertType
from monitor.core.history import Series, Span
from monitor.core.report import ModelReport, Realised, SegmentReport
from monitor.web.charts.over_time import (
    NARROW,
    OTHER_REFERENCE,
    WIDE,
    Mark,
    OverTime,
    Point,
    over_time,
    points_of,
    replaced,
    step_of,
    unjudged,
)
from monitor.web.charts.svg import written
from monitor.web.pages.elements import NOTHING, cell, history_link, meanings, model_link, table
from monitor.web.pages.explanations import Shown
from monitor.web.pages.wording import STATES, clock, consensus_of, per_cent

SPANS = {Span.RECENT: "latest evaluations", Span.DAYS: "3 days", Span.MONTH: "30 days"}
MOST_ROWS = 60
_MOST_REALISED = 20

_SWATCHES = {
    "estimate": '<rect class="band" y="3" width="30" height="12"/><path class="estimate" d="M0 9L30 9"/>',
    "lowest": '<path class="lowest" d="M0 9L30 9"/>',
    "reference": '<line class="reference" x2="30" y1="9" y2="9"/>',
    "threshold": '<line class="threshold" x2="30" y1="9" y2="9"/>',
    "realised": '<path class="realised" d="M15 3L21 9L15 15L9 9Z"/>',
    "begun": '<line class="begun" x1="15" x2="15" y1="8" y2="18"/><path class="flag" d="M10 0h10l-5 8z"/>',
    "replaced": '<line class="replaced" x1="15" x2="15" y2="18"/>',
    "not-judged": '<rect class="not-judged" y="2" width="30" height="14"/>',
}


def chart_section(
    report: ModelReport,
    segment: SegmentReport,
    series: Series | None,
    realised: Sequence[Realised],
    *,
    span: Span,
    now: float,
) -> str:
    """Return the section."""
    shown = points_of(series)
    data = OverTime(
        series,
        now,
        None if report.reference is None else report.reference.accuracy,
        thresholds(segment),
        realised,
        [Mark(alert.alert, alert.since) for alert in segment.alerts if alert.phase is not AlertPhase.OK],
    )
    return f"""<section><h2>Over time</h2>{_spans(report.model, segment.name, span)}
<figure><div class="for-screens">{over_time(data, WIDE)}</div>\
<div class="for-phones">{over_time(data, NARROW, pointed=False)}</div>
<figcaption>{_legend(data, shown)}</figcaption></figure>
{_why(shown, series)}{_table(shown, series)}{_realised(realised)}{_document(report.model, segment.name, span, series)}
{meanings(_explained(data, segment))}</section>"""


def thresholds(segment: SegmentReport) -> list[Mark]:
    """Return the thresholds of the accuracy alerts; those that stand at one height share a label."""
    found: dict[float, list[str]] = {}
    for alert in segment.alerts:
        if alert.kind is AlertType.ACCURACY and alert.threshold is not None:
            found.setdefault(alert.threshold, []).append(alert.alert)
    return [Mark(", ".join(names), value) for value, names in sorted(found.items())]


def _spans(model: str, segment: str, here: Span) -> str:
    links = "".join(
        f'<li><a href="{model_link(model, segment, span)}"{" aria-current=true" if span is here else ""}>{name}</a></li>'
        for span, name in SPANS.items()
    )
    return f'<ul class="choices" aria-label="How far back">{links}</ul>'


def _legend(data: OverTime, shown: list[Point]) -> str:
    """Return what the signs mean, of those that are drawn."""
    stepped = data.series is not None and data.series.step_seconds is not None
    told = {
        "estimate": ("estimate and its interval", any(point.accuracy is not None for point in shown)),
        "lowest": ("lowest estimate within a point", stepped),
        "reference": ("accuracy on the reference", data.reference is not None),
        "threshold": ("threshold of an alert", bool(data.thresholds)),
        "realised": ("realised accuracy, from labels", bool(data.realised)),
        "begun": ("an alert began", bool(data.alerts)),
        "replaced": (
            f"{OTHER_REFERENCE} from here on: the accuracy on the reference and the thresholds are of the last one",
            bool(replaced(shown)),
        ),
        "not-judged": ("could not be judged", any(point.accuracy is None for point in shown)),
    }
    items = "".join(
        f'<li><svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true">{_SWATCHES[kind]}</svg> {name}</li>'
        for kind, (name, there) in told.items()
        if there
    )
    return f'<ul class="signs">{items}</ul>'


def _document(model: str, segment: str, span: Span, series: Series | None) -> str:
    """Return a link for programs; without history there is nothing behind it."""
    link = f'<a href="{history_link(model, segment, span)}">The same as JSON</a>'
    return "" if series is None else f'<p class="soft">{link}, for programs</p>'


def _why(shown: list[Point], series: Series | None) -> str:
    """Say in words why stretches are shaded or empty."""
    stretches = unjudged(shown, step_of(shown, None if series is None else series.step_seconds))
    states = list(dict.fromkeys(stretch.state for stretch in stretches))
    if not shown:
        return "<p>No evaluation of this window is kept for this time; they are added as they are made.</p>"
    text = "Where there is neither a line nor a shade, cpcmon made no evaluation."
    if states:
        text = f"Shaded: {'; '.join(STATES[state] for state in states)}. {text}"
    changes = [clock(point.at) for point in replaced(shown)]
    if changes:
        text += (
            f" Estimates were made with another reference from {', '.join(changes)} on:"
            " what stands before is not to be compared with what stands after."
        )
    return f'<p class="soft">{text}</p>'


def _table(shown: list[Point], series: Series | None) -> str:
    if not shown:
        return ""
    stepped = series is not None and series.step_seconds is not None
    rows = []
    first = {id(point) for point in replaced(shown)}
    for point in list(reversed(shown))[:MOST_ROWS]:
        told = [f'<th scope="row">{clock(point.at)}</th>']
        told.append(cell(Shown.ESTIMATE, _share(point.accuracy)))
        interval = point.lower is not None and point.upper is not None
        told.append(cell(Shown.INTERVAL, f"{_share(point.lower)} to {_share(point.upper)}" if interval else NOTHING))
        if stepped:
            told.append(cell(Shown.LOWEST, _share(point.lowest)))
        told.append(
            cell(Shown.DISAGREEMENT, NOTHING if point.disagreement is None else f"{100.0 * point.disagreement:.1f}")
        )
        told.append(cell(Shown.RECORDS, f"{point.records:,}"))
        state = "judged" if point.accuracy is not None else STATES[point.state]
        told.append(cell(None, f"{state}; {OTHER_REFERENCE} from here on" if id(point) in first else state, "text"))
        rows.append(f"<tr data-at>{''.join(told)}</tr>")
    columns = (
        "Time",
        "#Estimate",
        "#Interval",
        *(("#Lowest",) if stepped else ()),
        "#Disagreement, points",
        "#Records",
        "State",
    )
    more = f" The newest {MOST_ROWS} of {len(shown)}." if len(shown) > MOST_ROWS else ""
    shown_table = table(columns, rows, f"Newest first.{more}", key="points")
    return f'<details data-key="history"><summary>The same as a table</summary>{shown_table}</details>'


def _share(value: float | None) -> str:
    return NOTHING if value is None else per_cent(value)


def _realised(realised: Sequence[Realised]) -> str:
    if not realised:
        return ""
    rows = [
        f'<tr><th scope="row">{written(clock(one.at))}</th>{cell(Shown.REALISED, per_cent(one.accuracy))}'
        f"{cell(Shown.REALISED, f'{one.right:,} of {one.records:,}')}</tr>"
        for one in list(reversed(realised))[:_MOST_REALISED]
    ]
    return (
        '<details data-key="realised"><summary>Realised accuracies as a table</summary>'
        f"{table(('Newest record', '#Realised accuracy', '#Right'), rows, 'Newest first.', key='labels')}</details>"
    )


def _explained(data: OverTime, segment: SegmentReport) -> list[tuple[str, Shown]]:
    """Return what the page does not explain elsewhere; of a window without an estimate it is more."""
    found = []
    if consensus_of(segment) is None:
        found += [("Band", Shown.INTERVAL), ("Disagreement", Shown.DISAGREEMENT)]
    if data.series is not None and data.series.step_seconds is not None:
        found.append(("Dotted", Shown.LOWEST))
    return found
