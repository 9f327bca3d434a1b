"""Addresses of pages that are about something with a name."""

from html import escape
from urllib.parse import quote, urlencode


def model_link(model: str, segment: str | None = None) -> str:
    """Return the address of a model's page, or of one of its segments, fit to stand in an attribute."""
    asked = {"name": model} if segment is None or segment == "all" else {"name": model, "segment": segment}
    return escape(f"/model?{urlencode(asked, quote_via=quote, safe='')}")
