"""The page at `/rejects`: what was refused, why, how to mend it, and where the records stand. Nothing of what they say."""

from collections.abc import Mapping, Sequence
from html import escape

from monitor.web.frame import framed
from monitor.web.messages import Response
from monitor.web.reasons import explained
from monitor.web.site import RefusedRecord, Rejects, Site
from monitor.web.words import ago, clock

MOST_POINTERS = 200
"""Shown; the state holds a few hundred."""
MOST_COUNTS = 500
"""Pairs of a source and a reason: sources are configured by hand, so this is never reached by honest means."""
_COUNTED = ("Source", "Reason", "Refused", "What it means", "How to mend it")
_POINTED = ("When", "Source", "Where", "Reason", "Line or record", "Offset", "Length", "Digest", "Shape")


def rejects_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    rejects = site.rejects()
    main = f"""<h1>Rejects</h1>
<p>Records that cpcmon refused: they are in no window and in no estimate. Here stands where they are, never what they say.</p>
{_counts(rejects)}
{_latest(rejects.latest, site.now())}
{_FINDING}"""
    return framed(site, title="Rejects", here="/rejects", main=main)


_FINDING = """<section id="finding"><h2>How to find a record</h2>
<p>On the machine that cpcmon runs on, where people may read records:</p>
<ol><li>A file is called <code>file#</code> and eight digits, since names of files may tell of patients. Which is which:<br>
<code>cpcmon state STATE_FOLDER --files --inbox WATCHED_FOLDER</code></li>
<li>Its line is shown with <code>sed -n 17p FILE</code>, for line 17; or by offset and length, both in bytes:<br>
<code>tail -c +$((OFFSET + 1)) FILE | head -c LENGTH</code></li>
<li>A message of a topic stands as topic, partition and offset, and is read with the tools of Kafka.</li>
<li>The digest is a keyed hash of the line: equal digests are equal lines. The shape is types and lengths, no values.</li></ol>
<p>The same list lies in the state folder, in <code>rejected.jsonl</code>. Metrics count by source and reason:
<code>cpcmon_records_rejected_total</code>.</p></section>"""


def _counts(rejects: Rejects) -> str:
    counts = sorted(
        ((count, *pair) for pair, count in rejects.counts.items() if count), key=lambda one: (-one[0], *one[1:])
    )
    if not counts:
        text = "<p>No record has been refused since the state was made.</p>"
        return f'<section id="counts"><h2>By source and reason</h2>{text}</section>'
    rows = "".join(_count_row(*one) for one in counts[:MOST_COUNTS])
    total = sum(count for count, *_ in counts)
    return f"""<section id="counts"><h2>By source and reason</h2>
<div class="wide" data-key="counts"><table class="cards"><caption>{total:,} refused since the state was made, most frequent first</caption>
<thead><tr>{_head(_COUNTED)}</tr></thead><tbody>
{rows}</tbody></table></div>{_more(len(counts) - MOST_COUNTS)}</section>"""


def _count_row(count: int, source: str, reason: str) -> str:
    means, mend = explained(reason)
    cells = (f"<code>{escape(reason)}</code>", f"{count:,}", escape(means), escape(mend))
    told = "".join(f'<td data-name="{column}">{cell}</td>' for column, cell in zip(_COUNTED[1:], cells, strict=True))
    return (
        f'<tr data-source="{escape(source)}" data-reason="{escape(reason)}">'
        f'<th scope="row">{escape(source)}</th>{told}</tr>\n'
    )


def _latest(latest: Sequence[RefusedRecord], now: float) -> str:
    if not latest:
        return ""
    rows = "".join(_pointer_row(one, now) for one in latest[:MOST_POINTERS])
    shown = min(len(latest), MOST_POINTERS)
    return f"""<section id="latest"><h2>The latest</h2>
<div class="wide" data-key="latest"><table class="cards"><caption>The latest {shown:,}, newest first</caption>
<thead><tr>{_head(_POINTED)}</tr></thead><tbody>
{rows}</tbody></table></div>{_more(len(latest) - MOST_POINTERS)}</section>"""


def _pointer_row(one: RefusedRecord, now: float) -> str:
    cells = (
        escape(one.source),
        f"<code>{escape(one.origin)}</code>",
        f"<code>{escape(one.reason)}</code>",
        f"{one.number}",
        _known(one.offset),
        _known(one.length),
        _known(one.digest),
        _known(one.shape),
    )
    told = "".join(
        f'<td data-name="{column}"{" class=long" if column == "Shape" else ""}>{cell}</td>'
        for column, cell in zip(_POINTED[1:], cells, strict=True)
    )
    return f'<tr><th scope="row">{_when(one.at, now)}</th>{told}</tr>\n'


def _when(at: float, now: float) -> str:
    return f"{clock(at)}<br><small>{ago(now - at)}</small>"


def _known(value: str | int | None) -> str:
    if value is None:
        return '<span class="none">none</span>'
    # Without separators: other tools take an offset as it is.
    return f"{value}" if isinstance(value, int) else f"<code>{escape(value)}</code>"


def _head(columns: Sequence[str]) -> str:
    return "".join(f'<th scope="col">{column}</th>' for column in columns)


def _more(count: int) -> str:
    return f"<p>… and {count:,} more.</p>" if count > 0 else ""
