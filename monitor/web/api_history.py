"""What was said of a window before now, as JSON: `/api/v1/history`. `docs/api.md` lists every key."""

from collections.abc import Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec

from monitor.core.history import Series, Span
from monitor.core.scores import Floats
from monitor.core.segments import ALL, name_of
from monitor.web.site import Site

VERSION = 1
"""Rises when a key changes its meaning or goes."""
_DIGITS = 6
"""History is kept in single precision: what follows would be noise."""


def document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return a window over time; None where model, segment or span is not known."""
    model, segment = query.get("model", ""), query.get("segment", name_of(ALL))
    series = None
    with suppress(ValueError):
        span = Span(query.get("span", Span.RECENT))
        series = site.history(model, segment, span)
    if series is None:
        return None
    realised = [one for one in site.realised(model) if one.segment == segment]
    return msgspec.json.encode(
        {
            "version": VERSION,
            "model": model,
            "segment": segment,
            "span": span,
            "step_seconds": series.step_seconds,
            **_columns(series),
            "realised": [
                {"at": one.at, "records": one.records, "right": one.right, "accuracy": one.accuracy} for one in realised
            ],
        }
    )


def _columns(series: Series) -> dict[str, Any]:
    return {
        "at": series.at.tolist(),
        "state": series.states,
        "accuracy": _numbers(series.accuracy),
        "lower": _numbers(series.lower),
        "upper": _numbers(series.upper),
        "lowest": _numbers(series.lowest),
        "disagreement": _numbers(series.disagreement),
        "records": series.records.tolist(),
        "reference": [one or None for one in series.references or [""] * len(series)],
    }


def _numbers(column: Floats) -> list[float | None]:
    return [round(value, _DIGITS) if isfinite(value) else None for value in column.tolist()]
