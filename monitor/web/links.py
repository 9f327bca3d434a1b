"""Addresses of pages that are about something with a name, fit to stand in an attribute."""

from html import escape
from urllib.parse import quote, urlencode

from monitor.core.alert_rules import runbook
from monitor.core.alerts import AlertStatus
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
