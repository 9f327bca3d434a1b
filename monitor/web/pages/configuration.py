"""The page at `/configuration`: every setting in force, what the file says apart from what cpcmon assumes."""

import re
from collections.abc import Mapping
from html import escape
from itertools import groupby

from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.pages.page_frame import framed
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_SETTINGS = 5000
"""Shown; a file of hundreds of models has more."""
_TOP = re.compile(r"[^.\[]+(?:\[\d+\])?")


def configuration_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return the page."""
    settings = site.settings()
    shown = settings[:MOST_SETTINGS]
    sections = "".join(_section(top, list(group)) for top, group in groupby(shown, key=_top))
    more = len(settings) - len(shown)
    rest = f"<p>… and {more:,} more settings.</p>" if more > 0 else ""
    main = f"""<h1>Configuration</h1>
<p>What is in force since the last start or reload. What a line of the file says is <b>bold</b>; \
what the file does not say, cpcmon assumes: <span class="assumed">assumed</span>. \
Secrets, and addresses that may hold them, stand as <code>{escape(HIDDEN)}</code>.</p>
{sections or "<p>No configuration is in force yet.</p>"}{rest}"""
    return framed(site, title="Configuration", here="/configuration", main=main)


def _top(setting: Setting) -> str:
    """Return the section that a setting belongs to, one for each entry of a list: `models[0]`."""
    found = _TOP.match(setting.path)
    return setting.path if found is None else found.group()


def _section(top: str, settings: list[Setting]) -> str:
    rows = "".join(_row(top, one) for one in settings)
    name = next((one.value for one in settings if one.path == f"{top}.name"), None)
    called = escape(top) if name is None else f"{escape(top)} <small>{escape(name)}</small>"
    said = sum(one.line is not None for one in settings)
    return f"""<section><h2>{called}</h2><div class="wide" data-key="{escape(f"settings {top}")}"><table class="settings">
<caption>{said:,} from the file, by its line; {len(settings) - said:,} assumed</caption>
<thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">Line</th></tr></thead><tbody>
{rows}</tbody></table></div></section>
"""


def _row(top: str, setting: Setting) -> str:
    path = setting.path.removeprefix(top).removeprefix(".") or setting.path
    value = f"<code>{escape(setting.value)}</code>"
    kind, line = (
        ("assumed", '<span class="none">assumed</span>') if setting.line is None else ("given", f"{setting.line:,}")
    )
    return (
        f'<tr class="{kind}" data-setting="{escape(setting.path)}"><th scope="row"><code>{escape(path)}</code></th>'
        f'<td class="long">{value}</td><td>{line}</td></tr>\n'
    )
