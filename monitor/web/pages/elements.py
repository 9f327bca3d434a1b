"""Building blocks of the pages: facts, tables, links."""

from collections.abc import Iterable, Sequence
from html import escape
from urllib.parse import quote, urlencode

from monitor.core.alerts import AlertStatus, runbook
from monitor.core.history import Span
from monitor.web.pages.explanations import Shown, explained


def fact(shown: Shown, title: str, value: str) -> str:
    """Return a number with its name and its sentences; `value` is HTML."""
    return (
        f'<div class="fact" data-shown="{shown}"><dt>{title}</dt><dd class="figure">{value}</dd>'
        f"<dd>{explained(shown)}</dd></div>"
    )


def facts(found: Iterable[str]) -> str:
    """Return facts as a list."""
    return f'<dl class="facts">{"".join(found)}</dl>'


def cell(shown: Shown | None, value: str, kind: str = "number", *, name: str = "") -> str:
    """Return a table's cell; `value` is HTML, `name` that of its column, for tables that become cards on a phone."""
    marked = f' data-shown="{shown}"' if shown is not None else ""
    marked += f' data-name="{name}"' if name else ""
    return f'<td class="{kind}"{marked}>{value}</td>'


NOTHING = '<span class="none">none</span>'


def table(columns: Sequence[str], rows: Iterable[str], caption: str = "", *, key: str, kind: str = "") -> str:
    """Return a table that scrolls in a place of its own; a column whose name begins with # holds numbers.

    By its key the script finds it again in a newer page.
    """
    head = "".join(
        f'<th scope="col" class="number">{name[1:]}</th>' if name.startswith("#") else f'<th scope="col">{name}</th>'
        for name in columns
    )
    said = f"<caption>{caption}</caption>" if caption else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Table by {columns[0].lower()}" data-key="{key}">'
        f'<table class="plain{kind and " "}{kind}">{said}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def meanings(named: Sequence[tuple[str, Shown]]) -> str:
    """Return the sentences on the numbers of a table or a chart."""
    if not named:
        return ""
    items = "".join(f"<li><b>{name}:</b> {explained(shown)}</li>" for name, shown in named)
    return f'<ul class="meanings">{items}</ul>'


def points(ratio: float) -> str:
    """Return a difference of two ratios, in points of a hundred."""
    text = f"{abs(100.0 * ratio):.1f}"
    return f"{text} point{'' if text == '1.0' else 's'}"


def model_link(model: str, segment: str = "all", span: Span = Span.RECENT) -> str:
    """Return the address of a window's page that looks so far back; without a segment, that of the whole model."""
    asked = {"name": model}
    if segment != "all":
        asked["segment"] = segment
    if span is not Span.RECENT:
        asked["span"] = span
    return _address("/model", asked)


def reference_link(model: str) -> str:
    """Return the address of the page of a model's reference."""
    return _address("/reference", {"name": model})


def history_link(model: str, segment: str, span: Span) -> str:
    """Return the address of a window over time as JSON."""
    return _address("/api/v1/history", {"model": model, "segment": segment, "span": span})


def reference_document_link(model: str) -> str:
    """Return the address of a model's reference as JSON."""
    return _address("/api/v1/reference", {"model": model})


def runbook_words(runbooks: str, alert: AlertStatus) -> str:
    """Return where the runbook of an alert stands, as HTML: a link if a browser can follow it, else the path."""
    page = runbook(alert.kind, upward=alert.upward)
    whole = escape(runbooks + page)
    if runbooks.lower().startswith(("https://", "http://")):
        return f'<a href="{whole}" rel="noreferrer">runbook {page}</a>'
    return f"runbook <code>{whole}</code>"


def _address(path: str, asked: dict[str, str]) -> str:
    return escape(f"{path}?{urlencode(asked, quote_via=quote, safe='')}")
