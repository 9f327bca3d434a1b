"""The page at `/`: how the models are doing, for somebody with a browser."""

from collections.abc import Mapping, Sequence
from html import escape

from monitor.core.report import ModelReport
from monitor.web.alert_list import alert_list
from monitor.web.frame import framed
from monitor.web.messages import Response
from monitor.web.ranking import ranked_models
from monitor.web.site import Site
from monitor.web.source_table import source_table
from monitor.web.verdict import Standing, verdict
from monitor.web.window_table import model_section, unevaluated_section
from monitor.web.words import HEADINGS, SIGNS, Mood

MOST_ROWS = 200
"""Segments shown of one model; those that somebody should look at come first."""
MOST_ROWS_IN_ALL = 1000
"""Of all models together: the page is asked for again every few seconds."""
LEAST_ROWS = 10
"""Shown of each model, however many there are."""


def overview_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page, from the last report of each model."""
    now = site.now()
    standing = Standing(site.reports(), site.healthy(), site.ready())
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
