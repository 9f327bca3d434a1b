"""The page at `/rejects`: counts, reasons with a remedy, and pointers. Never the content of a record."""

from collections.abc import Mapping

from monitor.web.pages.rendering import render
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_POINTERS = 200
"""Shown; the state holds a few hundred."""
MOST_COUNTS = 500
"""Pairs of a source and a reason that are shown."""


def rejects_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    rejects = site.rejects()
    counts = sorted(
        ((source, reason, count) for (source, reason), count in rejects.counts.items() if count),
        key=lambda one: (-one[2], one[0], one[1]),
    )
    return render(
        site,
        "rejects.html",
        title="Rejects",
        here="/rejects",
        counts=counts[:MOST_COUNTS],
        total=sum(count for *_, count in counts),
        more_counts=len(counts) - MOST_COUNTS,
        latest=rejects.latest[:MOST_POINTERS],
        more_latest=len(rejects.latest) - MOST_POINTERS,
    )
