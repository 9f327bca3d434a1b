"""Style, script and icon of the pages: files of this package, joined once, served by ourselves and by nobody else.

The style is every `static/*.css` in the order of their names, so that a page that wants more adds a file.
"""

import hashlib
from importlib.resources import files

from monitor.web.messages import Page, Pages, Request, Response

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
