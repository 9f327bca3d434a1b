"""Renders the templates: the Jinja2 environment, the layout of every page, links, and the static files.

The style sheet is every `static/*.css`, in the order of the file names.
"""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import quote, urlencode

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from monitor.core.alerts import runbook
from monitor.core.history import Span
from monitor.core.report import Report
from monitor.web.pages import wording
from monitor.web.pages.status import Urgency, active_alerts, alert_urgency, compared_of
from monitor.web.server.request import HTML, Page, Pages, Request, Response
from monitor.web.site import Site

_FOLDER = files("monitor.web") / "static"
_CACHED = {"Cache-Control": "private, max-age=31536000, immutable"}
_ICON_TYPE = "image/svg+xml"


def _style() -> bytes:
    sheets = sorted((one for one in _FOLDER.iterdir() if one.name.endswith(".css")), key=lambda one: one.name)
    return b"\n".join(one.read_bytes() for one in sheets)


STYLE = _style()
SCRIPT = (_FOLDER / "cpcmon.js").read_bytes()
ICON = (_FOLDER / "cpcmon.svg").read_bytes()
MARK = hashlib.sha256(STYLE + SCRIPT + ICON).hexdigest()[:12]
"""Identifies the static files. The script reloads a page that was rendered with another mark."""


def _served(body: bytes, content_type: str) -> Page:
    def answer(request: Request) -> Response:
        # Cached only under its own mark: another version of cpcmon has other files.
        headers = _CACHED if request.query.get("v") == MARK else {}
        return Response(body, content_type, headers=headers)

    return Page(answer)


def asset_pages() -> Pages:
    """Return the static files by path. Browsers ask for /favicon.ico by themselves."""
    return {
        "/static/cpcmon.css": _served(STYLE, "text/css; charset=utf-8"),
        "/static/cpcmon.js": _served(SCRIPT, "text/javascript; charset=utf-8"),
        "/static/cpcmon.svg": _served(ICON, _ICON_TYPE),
        "/favicon.ico": _served(ICON, _ICON_TYPE),
    }


CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""A browser loads nothing from elsewhere and runs no inline script, even if a name were not escaped."""
_HEADERS = {"Content-Security-Policy": CSP, "Referrer-Policy": "no-referrer"}
_NAVIGATION = {"/": "Overview", "/rejects": "Rejects", "/configuration": "Configuration"}
_MACHINES = {
    "/metrics": "metrics",
    "/-/healthy": "healthy?",
    "/-/ready": "ready?",
    "/api/v1/status": "status as JSON",
    "/api/v1/alerts": "alerts as JSON",
    "/api/v1/rejects": "rejects as JSON",
    "/api/v1/configuration": "configuration as JSON",
}
_MOST_FIRING = 50
"""Firing alerts that a page lists for its script, which announces new ones."""
_LEAST_SECONDS, _MOST_SECONDS, _USUAL_SECONDS = 2, 30, 5


def model_link(model: str, segment: str = "all", span: Span = Span.RECENT) -> str:
    """Return the address of a window's page."""
    query = {"name": model}
    if segment != "all":
        query["segment"] = segment
    if span is not Span.RECENT:
        query["span"] = span
    return link("/model", **query)


def link(path: str, **query: str) -> str:
    """Return an address with a query."""
    return f"{path}?{urlencode(query, quote_via=quote, safe='')}"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("monitor.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    formats = (
        *(wording.per_cent, wording.between, wording.points, wording.thousands, wording.plural, wording.byte_size),
        *(
            wording.duration,
            wording.clock,
            wording.moment,
            wording.ago,
            wording.lasting,
            wording.unbroken,
            wording.place,
        ),
        *(wording.alert_words, wording.phase_words, wording.phase, wording.problem_words),
        *(wording.baseline_words, wording.against, wording.compared_value, wording.distance, wording.power),
    )
    environment.filters.update({one.__name__: one for one in formats})
    environment.globals.update(
        link=link,
        model_link=model_link,
        runbook_name=lambda alert: runbook(alert.kind, upward=alert.upward),
        alert_urgency=alert_urgency,
        active_alerts=active_alerts,
        compared_of=compared_of,
        none_shown=Markup('<span class="none">none</span>'),
    )
    return environment


ENVIRONMENT = _environment()


def render(
    site: Site, template: str, *, title: str, here: str, status: HTTPStatus = HTTPStatus.OK, **context: object
) -> Response:
    """Return a page; `here` is its path in the navigation."""
    firing = _firing(site.reports())
    text = ENVIRONMENT.get_template(template).render(
        context,
        title=title,
        here=here,
        mark=MARK,
        refresh_seconds=_refresh_seconds(site),
        reload_seconds=_MOST_SECONDS,
        navigation=_NAVIGATION,
        machines=_MACHINES,
        firing=firing,
        firing_listed=firing[:_MOST_FIRING],
        version=site.version,
        links=site.links(),
        now=site.now(),
    )
    # A name may hold half a surrogate pair, since JSON can.
    return Response(text.encode(errors="replace"), HTML, status, _HEADERS)


def not_found(site: Site) -> Response:
    """Return the page for an unknown name, which is not repeated."""
    return render(site, "not_found.html", title="Not found", here="", status=HTTPStatus.NOT_FOUND)


def _firing(reports: Mapping[str, Report]) -> list[str]:
    """Return a sentence for each firing alert above severity info; the script announces new ones."""
    return [
        f"{report.model}, {wording.place(windows.names[window])}: alert {alert.alert}"
        for report in reports.values()
        for windows in (report.windows,)
        for window in np.flatnonzero(windows.alerts.firing.any(axis=0)).tolist()
        for alert in windows.alerts.window(window)
        if alert_urgency(alert) is Urgency.ALERT
    ]


def _refresh_seconds(site: Site) -> int:
    """Return how often the script asks again: twice in the shortest evaluation interval."""
    shortest = min(site.evaluation_seconds(), default=2.0 * _USUAL_SECONDS)
    return round(min(max(shortest / 2.0, _LEAST_SECONDS), _MOST_SECONDS))
