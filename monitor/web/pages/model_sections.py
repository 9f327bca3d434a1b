"""Sections of a model's page: alerts, estimators, disagreement, sets, classes, records."""

from collections.abc import Sequence

from monitor.core.alerts import AlertPhase, AlertStatus
from monitor.core.estimate import Estimate, NoEstimate, PredictionSets, Result, Why
from monitor.core.estimators.consensus import CONSENSUS, VOICES
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.charts.bars import ClassShare, Common, class_shares, moved_most, pair_of_bars
from monitor.web.charts.svg import written
from monitor.web.pages.elements import NOTHING, cell, fact, facts, meanings, points, runbook_words, table
from monitor.web.pages.explanations import EstimatorFamily, Shown, families_of, form_words
from monitor.web.pages.wording import SIGNS, STATES, ago, alert_mood, clock, moment, oddities, per_cent

PHASES = {
    AlertPhase.OK: "quiet",
    AlertPhase.PENDING: "pending",
    AlertPhase.FIRING: "firing",
    AlertPhase.RECOVERING: "firing, recovering",
}


def alerts_section(segment: SegmentReport, runbooks: str, now: float) -> str:
    """Return all alerts of the window, the quiet ones too."""
    title = "<h2>Alerts of this window</h2>"
    if not segment.alerts:
        return f"<section>{title}<p>No alert is configured for this window, so that there is none says nothing.</p></section>"
    columns = ("Alert", "Phase", "Since", "#Compared", "#Threshold", "What to do")
    body = table(columns, (_alert(alert, runbooks, now) for alert in segment.alerts), key="window-alerts", kind="cards")
    named = [("Since", Shown.ALERT_SINCE), ("Compared", Shown.COMPARED), ("Threshold", Shown.THRESHOLD)]
    return f"<section>{title}{body}{meanings(named)}</section>"


def _alert(alert: AlertStatus, runbooks: str, now: float) -> str:
    mood = alert_mood(alert)
    phase = f"{SIGNS[mood]} {PHASES[alert.phase]}"
    if alert.held:
        phase += "; cannot be judged now, so it stays"
    on = f", {alert.kind}" if alert.estimator is None else f", {alert.kind} by {alert.estimator}"
    # Of an alert that never moved, the beginning is not known.
    since = "never moved" if alert.since <= 0.0 else written(moment(alert.since, now))
    return (
        f'<tr class="{mood.name.lower()}"><th scope="row">{written(alert.alert)} <small>{alert.severity}{written(on)}</small></th>'
        f"{cell(None, phase, 'mood', name='Phase')}{cell(Shown.ALERT_SINCE, since, 'text', name='Since')}"
        f"{cell(Shown.COMPARED, NOTHING if alert.value is None else per_cent(alert.value), name='Compared')}"
        f"{cell(Shown.THRESHOLD, NOTHING if alert.threshold is None else per_cent(alert.threshold), name='Threshold')}"
        f"{cell(None, runbook_words(runbooks, alert), 'text', name='What to do')}</tr>"
    )


def disagreement_section(segment: SegmentReport) -> str:
    """Return how far the estimators are apart, and how far chance alone would let them be."""
    title = "<h2>Do the estimators agree?</h2>"
    found, chance = segment.disagreement, segment.chance_disagreement
    if found is None or not segment.valid:
        return f"<section>{title}<p>There is nothing to compare now.</p></section>"
    if chance is None:
        verdict = "What chance alone gives is not known here."
    elif found > chance:
        verdict = (
            "▲ More than chance explains: these records are unlike the reference, and no single number deserves trust."
        )
    else:
        verdict = "✓ No more than chance explains."
    told = [fact(Shown.DISAGREEMENT, "Disagreement", points(found))]
    if chance is not None:
        told.append(fact(Shown.CHANCE_DISAGREEMENT, "Chance alone stays under", points(chance)))
    return f"<section>{title}<p>{verdict}</p>{facts(told)}</section>"


def sets_section(segment: SegmentReport) -> str:
    """Return the conformal warning signs: set sizes and empty sets."""
    found: dict[str, PredictionSets] = {}
    for name, result in segment.results.items() if segment.valid else ():
        if result.prediction_sets is not None:
            found[name] = result.prediction_sets
    if not found:
        return ""
    rows = [
        f'<tr><th scope="row"><code>{written(name)}</code></th>{cell(Shown.SET_SIZE, f"{sets.mean_size:.2f} classes")}'
        f"{cell(Shown.EMPTY_SETS, per_cent(sets.empty_share))}</tr>"
        for name, sets in found.items()
    ]
    named = [("Mean set size", Shown.SET_SIZE), ("Empty sets", Shown.EMPTY_SETS)]
    return f"""<section><h2>Conformal sets</h2><p class="soft">The conformal estimators ask of each record which classes are \
plausible. Many plausible classes, or none, are warning signs of their own.</p>
{table(("Estimator", "#Mean set size", "#Empty sets"), rows, key="sets")}{meanings(named)}</section>"""


def classes_section(report: ModelReport, segment: SegmentReport, before: Sequence[int]) -> str:
    """Return what is predicted now beside what was predicted on the reference."""
    names = () if report.reference is None else report.reference.classes
    shares = class_shares(names, segment.predicted, before)
    title = "<h2>Which classes are predicted</h2>"
    if not shares:
        return f"<section>{title}<p>There is nothing to count now.</p></section>"
    shown = moved_most(shares)
    most = max(max(one.now, one.before or 0.0) for one in shown)
    said = f"The {len(shown)} of {len(shares)} classes that moved most." if len(shown) < len(shares) else ""
    columns = ("Class", "#Now", "#Reference", "#Change, points", "Drawing")
    rows = (_class(one, most) for one in shown)
    return f"""<section data-shown="{Shown.CLASS_SHARE}">{title}<p class="soft">{said} \
<svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true"><rect class="now" y="4" width="30" height="10"/></svg> now \
<svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true"><rect class="before" y="4" width="29" height="10"/></svg> \
on the reference</p>
{table(columns, rows, key="mix")}{meanings([("Shares", Shown.CLASS_SHARE)])}</section>"""


def _class(share: ClassShare, most: float) -> str:
    change = share.change
    return (
        f'<tr><th scope="row">{written(share.name)}</th>{cell(Shown.CLASS_SHARE, per_cent(share.now))}'
        f"{cell(Shown.CLASS_SHARE, NOTHING if share.before is None else per_cent(share.before))}"
        f"{cell(Shown.CLASS_SHARE, NOTHING if change is None else f'{100.0 * change:+.1f}')}"
        f"{cell(None, pair_of_bars(share, most), 'drawing')}</tr>"
    )


def records_section(report: ModelReport, segment: SegmentReport, now: float) -> str:
    """Return what came in, when, and what is odd about it."""
    seen = segment.last_record_at
    told = [
        fact(Shown.RECORDS, "Records in the window", f"{segment.records:,}{_needed(report, segment)}"),
        fact(Shown.LAST_RECORD, "Newest record", "never" if seen is None else _when(seen, now)),
        fact(Shown.EVALUATED, "Evaluated", _when(report.at, now)),
    ]
    if segment.state_since is not None:
        told.append(fact(Shown.STATE_SINCE, "In this state since", _when(segment.state_since, now)))
    if report.input.rejected_share is not None:
        told.append(
            fact(Shown.REJECTED, "Refused, of the model's latest records", per_cent(report.input.rejected_share))
        )
    return f"<section><h2>What it rests on</h2>{_odd(report)}{facts(told)}</section>"


def _when(at: float, now: float) -> str:
    return f"{ago(now - at)} <small>{clock(at, seconds=False)}</small>"


def _needed(report: ModelReport, segment: SegmentReport) -> str:
    least = report.minimum_records
    return (
        f" <small>of at least {least:,} that are needed</small>"
        if least is not None and segment.records < least
        else ""
    )


def _odd(report: ModelReport) -> str:
    found = [written(one) for one in oddities(report.input)]
    found += [f"{written(name)} failed in this evaluation." for name in report.errors]
    items = "".join(f"<li>{one}</li>" for one in found)
    return f'<ul class="notes" data-shown="{Shown.REJECTED}">{items}</ul>' if found else ""


REASONS = {
    Why.TOO_FEW_RECORDS: "too few records",
    Why.ALL_SETS_EMPTY: "no class is plausible for any record: all sets are empty",
    Why.ERROR: "the estimator failed; the log says why",
}


def estimators_section(report: ModelReport, segment: SegmentReport) -> str:
    """Return the section."""
    title = "<h2>Every estimator side by side</h2>"
    if not segment.results or not segment.valid:
        return f"<section>{title}<p>{written(STATES[segment.state])}: there is nothing to compare now.</p></section>"
    estimates = segment.estimates()
    common = Common.around(
        list(estimates.values()),
        None if report.reference is None else report.reference.accuracy,
        [estimates[voice].accuracy for voice in VOICES if voice in estimates],
    )
    head = (
        '<tr><th scope="col">Estimator</th><th scope="col" class="number">Estimate</th>'
        f'<th scope="col" class="number">Interval</th><th scope="col" class="drawing">{common.axis()}</th></tr>'
    )
    groups = "".join(_family(family, segment, common) for family in families_of(segment.results))
    return f"""<section>{title}
<p class="soft">All on one scale. ● is heard by the consensus, ○ is not; the dashed line is the accuracy on the reference, the \
shade reaches from the lowest to the highest voice: the disagreement.</p>
<div class="wide" tabindex="0" role="region" aria-label="Every estimator" data-key="estimators"><table class="plain estimators">
<thead>{head}</thead>{groups}</table></div>
<p class="soft">An estimator that is off on its own reference is known to be, so its value may lie outside its interval. The \
interval is then the better answer.</p></section>"""


def _family(family: EstimatorFamily, segment: SegmentReport, common: Common) -> str:
    rows = "".join(_row(name, segment.results[name], common) for name in family.members if name in segment.results)
    if not rows:
        return ""
    said = f"{written(family.does)} <i>Mind: {written(family.doubt)}</i>"
    heading = (
        f'<tr class="family"><th scope="rowgroup" colspan="4">{written(family.title)}'
        f'<span class="meaning" data-meaning="family">{said}</span>'
        # The head of the table is not shown on a phone, so each family has the scale again.
        f'<span class="scale" aria-hidden="true">{common.axis()}</span></th></tr>'
    )
    return f"<tbody>{heading}{rows}</tbody>"


def _row(name: str, result: Result, common: Common) -> str:
    heard = name in VOICES or name == CONSENSUS
    words = form_words(name)
    sign = '<span aria-hidden="true">{}</span> '.format("●" if heard else "○")
    said = f" <small>{words}{', heard' if name in VOICES else ''}</small>" if words else ""
    row = f'<tr data-estimator="{written(name)}"><th scope="row">{sign}<code>{written(name)}</code>{said}</th>'
    if isinstance(result, NoEstimate):
        return f'{row}<td colspan="3" class="none">none: {written(REASONS[result.why])}</td></tr>'
    return row + _answer(name, result, common, heard=heard) + "</tr>"


def _answer(name: str, estimate: Estimate, common: Common, *, heard: bool) -> str:
    interval = estimate.interval
    between = NOTHING if interval is None else f"{per_cent(interval.lower)} to {per_cent(interval.upper)}"
    return (
        cell(Shown.ESTIMATE, f"<b>{per_cent(estimate.accuracy)}</b>")
        + cell(Shown.INTERVAL, between)
        + cell(None, common.row(name, estimate, heard=heard), "drawing")
    )
