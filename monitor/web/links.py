"""Addresses of pages that are about something with a name, fit to stand in an attribute."""

from html import escape
from urllib.parse import quote, urlencode

from monitor.core.history import Span


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


def _address(path: str, asked: dict[str, str]) -> str:
    return escape(f"{path}?{urlencode(asked, quote_via=quote, safe='')}")
