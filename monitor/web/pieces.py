"""What the pages about a model are put together from: facts with their sentences, and tables."""

from collections.abc import Iterable, Sequence

from monitor.web.meaning import Shown, explained


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
