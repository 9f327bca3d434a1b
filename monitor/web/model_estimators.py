"""The part of a model's page that sets every estimator beside the others, by family, on one scale."""

from monitor.core.ensemble import CONSENSUS
from monitor.core.estimate import Estimate, NoEstimate, Result, Why
from monitor.core.estimators.consensus import VOICES
from monitor.core.report import ModelReport, SegmentReport
from monitor.web.charts.forest import Common
from monitor.web.charts.svg import written
from monitor.web.families import Family, families_of, form_words
from monitor.web.meaning import Shown
from monitor.web.pieces import NOTHING, cell
from monitor.web.words import STATES, per_cent

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


def _family(family: Family, segment: SegmentReport, common: Common) -> str:
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
