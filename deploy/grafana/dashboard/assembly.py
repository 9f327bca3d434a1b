"""The whole dashboard, and its text."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import by_segment, daemon, one_model, overview, replicas, why
from deploy.grafana.dashboard.variables import firing_alerts, variables

FILE = Path(__file__).resolve().parents[1] / "cpcmon.json"
RUNBOOKS = "https://runbooks.example/cpcmon/"
"""Stands for an address that people on call can open; docs/grafana.md says how to put in one's own."""

_SCHEMA_VERSION = 39
_OPEN_ROWS = (overview, one_model, by_segment, why, daemon)


def text(runbooks: str = RUNBOOKS) -> str:
    """Return the dashboard as JSON."""
    built = json.loads(json.dumps(_dashboard(runbooks), cls=JSONEncoder))
    built |= {"id": None, "schemaVersion": _SCHEMA_VERSION}
    _number(built["panels"])
    _leave_out(built)
    return json.dumps(built, indent=2, ensure_ascii=False) + "\n"


def _dashboard(runbooks: str) -> dashboard.Dashboard:
    found = builders.Dashboard("cpcmon: accuracy without labels").uid("cpcmon").tags(["cpcmon", "machine-learning"])
    found.description(
        "How accurate deployed classifiers are now, estimated without labels; why; and how cpcmon itself is."
    )
    found.readonly().timezone("browser").time("now-24h", "now").refresh("1m")
    found.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    found.variables(variables(runbooks)).annotation(firing_alerts())
    found.link(_link("Runbooks", "${runbooks}", "What every alert means and what to do"))
    for part in _OPEN_ROWS:
        found.with_row(builders.Row(part.TITLE))
        for one in part.row():
            found.with_panel(one)
    found.with_row(_collapsed(replicas.TITLE, replicas.row()))
    return found.build()


def _collapsed(title: str, panels: Iterable[Builder[dashboard.Panel]]) -> builders.Row:
    found = builders.Row(title).collapsed(True)
    for one in panels:
        found.with_panel(one)
    return found


def _link(title: str, url: str, tooltip: str) -> builders.DashboardLink:
    found = builders.DashboardLink(title).type(dashboard.DashboardLinkType.LINK).url(url).tooltip(tooltip)
    return found.icon("doc").target_blank(True)


def _number(panels: Sequence[dict[str, Any]]) -> None:
    """Give every panel a number: by row and place, so that one more panel changes few of the addresses of others."""
    row = place = 0
    for panel in panels:
        row, place = (row + 1, 0) if panel["type"] == "row" else (row, place + 1)
        panel["id"] = 100 * row + place
        for number, inner in enumerate(panel.get("panels") or (), start=1):
            inner["id"] = panel["id"] + number


def _leave_out(built: dict[str, Any]) -> None:
    """Take away what the library always writes and the classic model does not have."""
    inner = [one for panel in built["panels"] for one in panel.get("panels") or ()]
    linked = [built, *built["panels"], *inner]
    for one in (*built["annotations"]["list"], *(link for owner in linked for link in owner.get("links") or ())):
        one.pop("placement", None)
    for variable in built["templating"]["list"]:
        for setting in ("auto", "auto_min", "auto_count"):
            variable.pop(setting, None)
