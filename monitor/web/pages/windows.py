"""The windows of one model: the whole of it first, then its segments, those that somebody should look at before others."""

from collections.abc import Mapping, Sequence
from html import escape

from monitor.core.report import ModelReport, Realised, SegmentReport
from monitor.web.charts.bars import Scale, bar
from monitor.web.pages.elements import model_link, reference_link
from monitor.web.pages.model import Within, within
from monitor.web.pages.verdict import ranked, thresholds_of
from monitor.web.pages.wording import (
    HEADINGS,
    STATES,
    Mood,
    ago,
    consensus_of,
    lasting,
    loud_alerts,
    moment,
    mood_of,
    oddities,
    per_cent,
    phase_words,
    place,
    unbroken,
    worst_severity,
)

_COLUMNS = ("Window", "What cpcmon says", "Estimated accuracy", "To compare with", "Records")


def model_section(
    report: ModelReport, realised: Sequence[Realised], now: float, most: int, remark: str | None = None
) -> str:
    """Return the section of a model with at most so many rows, beside that of the whole.

    `remark` is what is wrong with the realised accuracies.
    """
    whole = [segment for segment in report.segments if not segment.segment]
    parts = [segment for segment in ranked(report) if segment.segment]
    shown = [*whole, *parts[:most]]
    known = {one.segment: one for one in realised}
    scale = _scale(shown, report, known)
    inside = within(report)
    rows = "".join(
        _row(segment, report, inside.get(segment.name, Within()), known.get(segment.name), scale, now)
        for segment in shown
    )
    more = len(parts) - most
    rest = (
        f"<p>… and {more:,} more segments, none more urgent than these; all are in the metrics.</p>" if more > 0 else ""
    )
    head = "".join(f'<th scope="col">{column}</th>' for column in _COLUMNS)
    name = escape(report.model)
    mood = min((mood_of(segment) for segment in report.segments), default=Mood.UNKNOWN)
    return f"""<section class="model {mood.name.lower()}"><h2><a href="{model_link(report.model)}">{name}</a> \
<span class="mood">{HEADINGS[mood]}</span></h2>
<p class="soft">{_facts(report, now)}</p>{_notes(report, remark)}
<div class="wide" data-key="{escape(f"model {report.model}")}"><table class="cards windows">\
<caption class="unseen">{name}: the whole first, then its segments, worst first</caption>
<thead><tr>{head}</tr></thead><tbody>
{rows}</tbody></table></div>{rest}</section>
"""


def unevaluated_section(model: str) -> str:
    """Return the section of a model that has no report yet."""
    return f"""<section class="model unknown" data-model="{escape(model)}"><h2>{escape(model)} \
<span class="mood">{HEADINGS[Mood.UNKNOWN]}</span></h2><p>It has not been evaluated yet.</p></section>
"""


def _facts(report: ModelReport, now: float) -> str:
    facts = [f"evaluated {moment(report.at, now)}"]
    reference = report.reference
    if reference is None:
        return "; ".join(["no reference yet: without one nothing can be judged", *facts])
    version = f"version {escape(reference.version)}"
    said = f'accuracy on its <a href="{reference_link(report.model)}">reference</a> {per_cent(reference.accuracy)} of {reference.records:,}'
    return "; ".join([version, said, *facts])


def _notes(report: ModelReport, remark: str | None) -> str:
    """Say what makes an estimate worth less than it looks."""
    notes = oddities(report.input)
    if report.input.rejected_share:
        notes.append(f"{per_cent(report.input.rejected_share)} of the latest records were refused")
    notes += [f"{name} failed in {count} window{'' if count == 1 else 's'}" for name, count in report.errors.items()]
    notes += [] if remark is None else [remark]
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes" aria-label="Notes">{items}</ul>' if items else ""


def _scale(segments: Sequence[SegmentReport], report: ModelReport, known: Mapping[str, Realised]) -> Scale:
    values = [] if report.reference is None else [report.reference.accuracy]
    for segment in segments:
        estimate = consensus_of(segment)
        if estimate is not None:
            values.append(estimate.interval.lower if estimate.interval else estimate.accuracy)
            values += thresholds_of(segment)
            values += [known[segment.name].accuracy] if segment.name in known else []
    return Scale.around(values)


def _row(
    segment: SegmentReport, report: ModelReport, inside: Within, known: Realised | None, scale: Scale, now: float
) -> str:
    mood = inside.mood(mood_of(segment))
    cells = (
        _says(segment, inside, report.model, now),
        _estimate(segment, report, known, scale),
        _compared(segment, report, known, now),
        _records(segment, now),
    )
    kind = "" if segment.segment else " whole"
    link = (
        f'<a href="{model_link(report.model, segment.name)}" data-key="{escape(f"row {report.model} {segment.name}")}">'
    )
    told = "".join(f'<td data-name="{column}">{cell}</td>' for column, cell in zip(_COLUMNS[1:], cells, strict=True))
    return (
        f'<tr class="{mood.name.lower()}{kind}" data-model="{escape(report.model)}" data-segment="{escape(segment.name)}"'
        f' data-mood="{mood.name.lower()}"><th scope="row">{link}{escape(place(segment.name))}</a></th>{told}</tr>\n'
    )


def _says(segment: SegmentReport, inside: Within, model: str, now: float) -> str:
    severity, mood = worst_severity(segment), mood_of(segment)
    of = f", {severity}" if severity is not None and mood in {Mood.ALERT, Mood.PENDING} else ""
    told = [f'<b class="mood">{inside.heading(mood)}{of}</b>']
    if consensus_of(segment) is None:
        why = STATES[segment.state]
        if segment.state_since is not None:
            why += f". So since {moment(segment.state_since, now)}"
        if segment.last_valid_at is not None:
            why += f"; last estimate {ago(now - segment.last_valid_at)}"
        told.append(unbroken(escape(f"{why}.")))
    elif segment.state_since is not None:
        since = segment.state_since
        told.append(f'<small title="since {moment(since, now)}">Judged {lasting(now - since)}</small>')
    # What was compared stands in the next columns, and in the list of alerts.
    told += [unbroken(escape(f"{alert.alert} {phase_words(alert, now)}")) for alert in loud_alerts(segment)]
    told += inside.sentences(model)
    return "".join(f'<p class="told">{one}</p>' for one in told)


def _estimate(segment: SegmentReport, report: ModelReport, known: Realised | None, scale: Scale) -> str:
    estimate = consensus_of(segment)
    if estimate is None:
        return '<span class="none">none</span>'
    reference = None if report.reference is None else report.reference.accuracy
    text = f'<b class="value">{per_cent(estimate.accuracy)}</b>'
    if estimate.interval is not None:
        text += f" <small>{per_cent(estimate.interval.lower)} to {per_cent(estimate.interval.upper)}</small>"
    drawn = bar(estimate, reference, thresholds_of(segment), scale, None if known is None else known.accuracy)
    text = f"{text}<br>{drawn}"
    apart, chance = segment.disagreement, segment.chance_disagreement
    if apart is not None and chance is not None and apart > chance:
        # As many digits as it takes to tell them apart.
        digits = 1 if f"{100.0 * apart:.1f}" != f"{100.0 * chance:.1f}" else 2
        text += (
            f'<p class="told"><small>The estimators disagree by {100.0 * apart:.{digits}f} points; chance gives up to'
            f" {100.0 * chance:.{digits}f}. Trust it less.</small></p>"
        )
    return text


def _compared(segment: SegmentReport, report: ModelReport, known: Realised | None, now: float) -> str:
    """Return the reference, the thresholds, and what labels showed."""
    told = []
    if report.reference is not None:
        told.append(f"reference {per_cent(report.reference.accuracy)}")
    told += [f"threshold {per_cent(one)}" for one in thresholds_of(segment)]
    if known is not None:
        told.append(
            f"realised {per_cent(known.accuracy)} of {known.records:,} (labels)"
            f'<br><small title="{moment(known.at, now)}">newest labelled record {ago(now - known.at)}</small>'
        )
    return "<br>".join(told) or '<span class="none">nothing</span>'


def _records(segment: SegmentReport, now: float) -> str:
    seen = segment.last_record_at
    if seen is None:
        return f"{segment.records:,}<br><small>none ever came</small>"
    return f'{segment.records:,}<br><small title="{moment(seen, now)}">newest {ago(now - seen)}</small>'
