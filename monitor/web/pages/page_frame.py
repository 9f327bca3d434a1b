"""The frame of every page: head, navigation, footer, CSP, and the static files.

The style is every `static/*.css` in the order of their names, so that a page that wants more adds a file.
"""

import hashlib
from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from importlib.resources import files

from monitor.core.report import ModelReport
from monitor.errors import CpcmonError
from monitor.settings.quantities import seconds
from monitor.web.pages.wording import Mood, alert_mood, clock, place
from monitor.web.server.request import HTML, Page, Pages, Request, Response
from monitor.web.site import Site

_FOLDER = files("monitor.web") / "static"
_KEPT = {"Cache-Control": "private, max-age=31536000, immutable"}
_ICON_TYPE = "image/svg+xml"


def _style() -> bytes:
    sheets = sorted((one for one in _FOLDER.iterdir() if one.name.endswith(".css")), key=lambda one: one.name)
    return b"\n".join(one.read_bytes() for one in sheets)


STYLE = _style()
SCRIPT = (_FOLDER / "cpcmon.js").read_bytes()
ICON = (_FOLDER / "cpcmon.svg").read_bytes()
MARK = hashlib.sha256(STYLE + SCRIPT + ICON).hexdigest()[:12]
"""Changes whenever one of them does: a page that was made with another mark loads itself anew."""


def _served(body: bytes, content_type: str) -> Page:
    def answer(request: Request) -> Response:
        # Only under the mark it belongs to: else a browser would keep what an older or newer cpcmon sent.
        headers = _KEPT if request.query.get("v") == MARK else {}
        return Response(body, content_type, headers=headers)

    return Page(answer)


def asset_pages() -> Pages:
    """Return the assets by path; browsers ask for the last one by themselves, beside pages that are plain text."""
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
"""Strict enough that not even a mistake in escaping could make a browser fetch from elsewhere, or run what a name says."""
_HEADERS = {"Content-Security-Policy": CSP, "Referrer-Policy": "no-referrer"}
_NAVIGATION = {"/": "Overview", "/rejects": "Rejects", "/configuration": "Configuration"}
# What is of one model only, its history and its reference, is linked from the pages about them.
_MACHINES = {
    "/metrics": "metrics",
    "/-/healthy": "healthy?",
    "/-/ready": "ready?",
    "/api/v1/status": "status as JSON",
    "/api/v1/rejects": "rejects as JSON",
    "/api/v1/configuration": "configuration as JSON",
}
_MOST_TOLD = 50
"""Alerts that a page carries along so that its script can say which one is new."""
_LEAST_SECONDS, _MOST_SECONDS, _USUAL_SECONDS = 2, 30, 5


def framed(site: Site, *, title: str, here: str, main: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a whole page round `main`, which is HTML; `title` and `here`, the path of the page, are plain text."""
    reports = site.reports()
    firing = _firing(reports)
    alarm = f"▲ {len(firing)} firing – " if firing else ""
    links = "".join(
        f'<li><a href="{path}"{" aria-current=page" if path == here else ""}>{name}</a></li>'
        for path, name in _NAVIGATION.items()
    )
    machines = " · ".join(f'<a href="{path}">{name}</a>' for path, name in _MACHINES.items())
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="cpcmon"><meta name="color-scheme" content="light dark">
<title>{escape(f"{alarm}{title} – cpcmon")}</title>
<link rel="icon" href="/static/cpcmon.svg?v={MARK}" type="image/svg+xml">
<link rel="stylesheet" href="/static/cpcmon.css?v={MARK}">
<script src="/static/cpcmon.js?v={MARK}" defer></script>
<noscript><meta http-equiv="refresh" content="{_MOST_SECONDS}"></noscript></head>
<body data-every="{_every(site)}" data-mark="{MARK}"><a class="skip" href="#main">Skip to content</a>
<header class="top"><p class="brand"><a href="/">cpcmon</a></p>
<nav aria-label="Pages"><ul>{links}</ul></nav>{_badge(firing)}
<p id="live" role="status" data-state="live"><noscript>Reloads every {_MOST_SECONDS} seconds</noscript></p></header>
<p id="said" class="unseen" aria-live="assertive"></p>
<main id="main" tabindex="-1">{main}</main>
<footer class="bottom"><p>As of <time id="as-of">{clock(site.now())}</time> · cpcmon {escape(site.version)} · \
estimates made without labels; no record is shown here</p>
<p>For programs: {machines}</p></footer></body></html>
"""
    return Response(text.encode(), HTML, status, _HEADERS)


def not_found(site: Site) -> Response:
    """Return the page for a name that nobody here has; what was asked for is not repeated."""
    main = '<h1>Nothing here by that name</h1><p>See the <a href="/">overview</a> for what there is.</p>'
    return framed(site, title="Not found", here="", main=main, status=HTTPStatus.NOT_FOUND)


def _firing(reports: Mapping[str, ModelReport]) -> list[str]:
    """Return a sentence on each alert that fires and is more than informative, as the script says it when it is new."""
    return [
        f"{report.model}, {place(segment.name)}: alert {alert.alert}"
        for report in reports.values()
        for segment in report.segments
        for alert in segment.alerts
        if alert_mood(alert) is Mood.ALERT
    ]


def _badge(firing: list[str]) -> str:
    """Return how many alerts fire. Nothing when none does: that alone is no all-clear."""
    told = "".join(f"<li>{escape(one)}</li>" for one in firing[:_MOST_TOLD])
    count = f"{len(firing)} alert{'' if len(firing) == 1 else 's'} firing"
    link = f'<a href="/#alerts">▲ {count}</a>' if firing else ""
    return f'<div id="firing">{link}<ul hidden>{told}</ul></div>'


def _every(site: Site) -> int:
    """Return how often the script asks again, in seconds: twice in the shortest time between two evaluations."""
    found = []
    for setting in site.settings():
        if setting.path.endswith("evaluate.every"):
            try:
                found.append(seconds(setting.value, setting.path) / 2.0)
            except CpcmonError:
                continue
    return round(min(max(min(found, default=_USUAL_SECONDS), _LEAST_SECONDS), _MOST_SECONDS))
