"""Where records come from: what each source waits for, how far behind it is, what it took and refused."""

from collections.abc import Sequence
from html import escape

from monitor.web.site import SourceView
from monitor.web.words import moment, unbroken

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
