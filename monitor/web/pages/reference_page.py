"""The page of a model's reference: what it was made from, whether it can be believed, and whether it is the right one."""

from collections.abc import Mapping, Sequence

from monitor.core.estimate import share_interval
from monitor.reference.reference import Reference
from monitor.reference.summary import ReferenceSummary, ReliabilityBin
from monitor.web.charts.reliability import reliability
from monitor.web.charts.svg import written
from monitor.web.pages.elements import (
    NOTHING,
    cell,
    fact,
    facts,
    meanings,
    model_link,
    points,
    reference_document_link,
    table,
)
from monitor.web.pages.explanations import Shown
from monitor.web.pages.page_frame import framed
from monitor.web.pages.wording import per_cent
from monitor.web.server.request import Response
from monitor.web.site import Site

_NEAR_ONE = 0.05
"""A temperature this near to 1 changes nothing that anybody would see."""
MOST_CLASSES = 200


def reference_page(site: Site, query: Mapping[str, str]) -> Response | None:
    """Return the page that the query names; None where it names no model with a reference."""
    reference = site.reference(query.get("name", ""))
    if reference is None:
        return None
    title = f"Reference of {reference.model}"
    return framed(site, title=title, here="/reference", main=_main(reference))


def _main(reference: Reference) -> str:
    summary = reference.summary
    version = f" <small>version {written(reference.version)}</small>" if reference.version else ""
    return f"""<p class="back"><a href="/">Overview</a> · \
<a href="{model_link(reference.model)}">{written(reference.model)} now</a> · <a href="{reference_document_link(reference.model)}">as JSON</a></p>
<h1>Reference of {written(reference.model)}{version}</h1>
<p>The labelled records from before deployment, by which every estimate of this model is made. It holds no record itself.</p>
{_warnings(summary)}{_numbers(reference)}{_reliability(summary)}{_classes(reference)}{_identity(reference)}"""


def _warnings(summary: ReferenceSummary) -> str:
    items = "".join(f"<li>{written(sentence)}.</li>" for sentence in summary.warnings().values())
    if not items:
        return "<p>✓ Nothing about it made <code>cpcmon calibrate</code> warn.</p>"
    return (
        f'<section class="concerns" data-shown="{Shown.REFERENCE_RECORDS} {Shown.TEMPERATURE}">'
        f"<h2>▲ What makes it less trustworthy</h2><ul>{items}</ul></section>"
    )


def temperature_words(temperature: float) -> str:
    """Say what a temperature means for the model."""
    if abs(temperature - 1.0) <= _NEAR_ONE:
        return "the model means what it says"
    return f"the model is {'over' if temperature > 1.0 else 'under'}confident"


def _temperature(temperature: float) -> str:
    return f"T = {temperature:.2f} <small>{temperature_words(temperature)}</small>"


def _numbers(reference: Reference) -> str:
    calibration, summary = reference.calibration, reference.summary
    level = calibration.intervals.level
    interval = share_interval(calibration.right, calibration.records, level)
    told = [
        fact(Shown.REFERENCE_RECORDS, "Records", f"{calibration.records:,}"),
        fact(
            Shown.REFERENCE_ACCURACY,
            "Accuracy",
            f"{per_cent(calibration.accuracy)} <small>{calibration.right:,} right</small>",
        ),
        fact(
            Shown.REFERENCE_INTERVAL,
            f"Interval, {level:.0%}",
            f"{per_cent(interval.lower)} to {per_cent(interval.upper)}",
        ),
        fact(Shown.TEMPERATURE, "Temperature", _temperature(calibration.temperature)),
        fact(
            Shown.CALIBRATION_ERROR,
            "Calibration error",
            f"{points(summary.calibration_error)} <small>raw; {points(summary.calibration_error_scaled)} scaled</small>",
        ),
    ]
    if calibration.confidence is not None:
        told.append(fact(Shown.CONFIDENCE, "Mean confidence", per_cent(calibration.confidence)))
    return facts(told)


def _reliability(summary: ReferenceSummary) -> str:
    title = "<h2>Does the model mean what it says?</h2>"
    if not any(one.records for one in summary.reliability):
        return (
            f"<section>{title}<p>This reference was made before the reliability of a model was kept. Calibrating again,"
            " from the same labelled records, adds it.</p></section>"
        )
    raw, scaled = summary.reliability, summary.reliability_scaled
    # Without the scaled ones, as many empty bins stand in for them.
    other = scaled if len(scaled) == len(raw) else tuple(ReliabilityBin(0, 0, 0.0) for _ in raw)
    rows = [
        f'<tr><th scope="row">{index / len(raw):.0%} to {(index + 1) / len(raw):.0%}</th>{_bin(one)}{_bin(two)}</tr>'
        for index, (one, two) in enumerate(zip(raw, other, strict=True))
    ]
    columns = (
        "Confidence",
        "#Records",
        "#Mean confidence",
        "#Right",
        "#Records, scaled",
        "#Mean confidence, scaled",
        "#Right, scaled",
    )
    return f"""<section>{title}<div class="beside"><figure class="square">{reliability(raw, scaled)}<figcaption>
<ul class="signs"><li><svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true"><path class="curve raw" d="M0 9L30 9"/>\
<circle class="point raw" cx="15" cy="9" r="4"/></svg> as the model says</li>
<li><svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true"><path class="curve scaled" d="M0 9L30 9"/>\
<path class="point scaled" d="M15 4L20 9L15 14L10 9Z"/></svg> after temperature scaling</li>
<li><svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true"><line class="diagonal" x1="4" y1="17" x2="26" y2="1"/></svg> \
sureness equals accuracy</li>
<li><svg class="chart swatch" viewBox="0 0 30 18" aria-hidden="true"><rect class="count" x="8" y="3" width="14" height="15"/></svg> \
how many records, as the model says</li></ul></figcaption></figure>
<div><p>Under the diagonal the model is surer than it is right; over it, it is more often right than it says.</p>
{meanings([("Diagram", Shown.RELIABILITY)])}
<details data-key="bins"><summary>The same as a table</summary>{table(columns, rows, key="bins-table")}</details></div></div></section>"""


def _bin(one: ReliabilityBin) -> str:
    known = one.records > 0
    return (
        cell(Shown.RELIABILITY, f"{one.records:,}")
        + cell(Shown.RELIABILITY, per_cent(one.confidence) if known else NOTHING)
        + cell(Shown.RELIABILITY, per_cent(one.right / one.records) if known else NOTHING)
    )


def _classes(reference: Reference) -> str:
    summary = reference.summary
    counts: Sequence[tuple[int, int, int]] = list(
        zip(summary.class_records, summary.class_right, summary.class_predicted, strict=True)
    )
    order = range(len(counts))
    shown = list(order) if len(counts) <= MOST_CLASSES else sorted(order, key=lambda one: counts[one][0])[:MOST_CLASSES]
    rows = [_class(reference.classes[index], *counts[index], summary.records) for index in shown]
    said = f"<p>The {len(shown)} rarest of {len(counts)} classes.</p>" if len(shown) < len(counts) else ""
    columns = ("Class", "#Records", "#Share", "#Right", "#Right, share", "#Predicted")
    return f"""<section data-shown="{Shown.CLASS_RECORDS}"><h2>Classes</h2>{said}{table(columns, rows, key="classes")}
{meanings([("Counts", Shown.CLASS_RECORDS)])}</section>"""


def _class(name: str, records: int, right: int, predicted: int, total: int) -> str:
    values = (
        f"{records:,}",
        per_cent(records / total) if total else NOTHING,
        f"{right:,}",
        per_cent(right / records) if records else NOTHING,
        f"{predicted:,}",
    )
    return (
        f'<tr><th scope="row">{written(name)}</th>{"".join(cell(Shown.CLASS_RECORDS, value) for value in values)}</tr>'
    )


def _identity(reference: Reference) -> str:
    return f"""<section><h2>Is it the right one?</h2><dl class="identity">
<dt>Made</dt><dd><code>{written(reference.created)}</code></dd>
<dt>Fingerprint</dt><dd><code class="fingerprint">{written(reference.fingerprint)}</code></dd></dl>
<p>The fingerprint is the <code>SHA-256</code> of everything in the file after its first line, which also states it. To compare a file \
with this page:</p><pre><code>tail -n +2 FILE | sha256sum</code></pre>
<p class="soft">It tells damage and mix-ups. It is no signature: whoever can write the file can write its fingerprint too.</p></section>"""
