"""The dashboard and its JSON."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import by_segment, daemon, labelled, one_model, overview, performance, replicas, why
from deploy.grafana.dashboard.variables import firing_alerts, variables

FILE = Path(__file__).resolve().parents[1] / "cpcmon.json"
RUNBOOKS = "https://runbooks.example/cpcmon/"
"""A placeholder: docs/grafana.md says how to set your own address."""

_SCHEMA_VERSION = 39
_OPEN_ROWS = (overview, one_model, by_segment, why, daemon)
_COLLAPSED_ROWS = (labelled, performance, replicas)
"""Empty for many."""


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
        "Accuracy of deployed classifiers, estimated without labels; likely causes; and the state of cpcmon itself."
    )
    found.readonly().timezone("browser").time("now-24h", "now").refresh("1m")
    found.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
    found.variables(variables(runbooks)).annotation(firing_alerts())
    found.link(_link("Runbooks", "${runbooks}", "The meaning of each alert, and the steps to take"))
    for part in _OPEN_ROWS:
        found.with_row(builders.Row(part.TITLE))
        for one in part.row():
            found.with_panel(one)
    for part in _COLLAPSED_ROWS:
        found.with_row(_collapsed(part.TITLE, part.row()))
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
    """Number the panels by row and position, so that a new panel changes few of the other ids."""
    row = place = 0
    for panel in panels:
        row, place = (row + 1, 0) if panel["type"] == "row" else (row, place + 1)
        panel["id"] = 100 * row + place
        for number, inner in enumerate(panel.get("panels") or (), start=1):
            inner["id"] = panel["id"] + number


def _leave_out(built: dict[str, Any]) -> None:
    """Remove fields that the library writes and the classic schema does not have."""
    inner = [one for panel in built["panels"] for one in panel.get("panels") or ()]
    linked = [built, *built["panels"], *inner]
    for one in (*built["annotations"]["list"], *(link for owner in linked for link in owner.get("links") or ())):
        one.pop("placement", None)
    for variable in built["templating"]["list"]:
        for setting in ("auto", "auto_min", "auto_count"):
            variable.pop(setting, None)
