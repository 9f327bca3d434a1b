"""The dashboards and their JSON."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import by_segment, daemon, labelled, one_model, overview, performance, replicas, why
from deploy.grafana.dashboard.variables import annotations, choices, targets

FOLDER = Path(__file__).resolve().parents[2]
"""The folder `deploy`."""
COPIES = ("kubernetes/base/dashboards", "helm/cpcmon/files/dashboards")
"""For Kustomize and the chart: neither reads a file outside its own folder."""

_SCHEMA_VERSION = 39
_PAGE_OF_THE_LIBRARY = 20
_OPEN_ROWS = (overview, one_model, by_segment, why, daemon)
_COLLAPSED_ROWS = (labelled, performance, replicas)
"""Empty for many."""


def texts() -> dict[str, str]:
    """Return the dashboards as JSON, by the path of the file in `deploy`."""
    found = {}
    for name, made in (("cpcmon.json", _dashboard()), ("cpcmon-wall.json", _wall())):
        built = _built(made)
        found[f"grafana/{name}"] = json.dumps(built, indent=2, ensure_ascii=False) + "\n"
        # `kubectl apply` keeps a copy of a ConfigMap in an annotation, which may have 256 KiB: no white space.
        copy = json.dumps(built, separators=(",", ":"), ensure_ascii=False) + "\n"
        found |= {f"{folder}/{name}": copy for folder in COPIES}
    return found


def _built(made: dashboard.Dashboard) -> dict[str, Any]:
    built: dict[str, Any] = json.loads(json.dumps(made, cls=JSONEncoder))
    built |= {"id": None, "schemaVersion": _SCHEMA_VERSION}
    _number(built["panels"])
    _leave_out(built)
    return built


def _dashboard() -> dashboard.Dashboard:
    found = builders.Dashboard("cpcmon: accuracy without labels").uid("cpcmon").tags(["cpcmon", "machine-learning"])
    found.description(
        "Accuracy of deployed classifiers, estimated without labels; likely causes; and the state of cpcmon itself."
    )
    _set_up(found).variables([*targets(), *choices()])
    for one in annotations():
        found.annotation(one)
    page = "${page:raw}${model:percentencode}${page_segment:raw}${segment:percentencode}"
    found.link(_link("Page of cpcmon", page, "The chosen window on the page of its daemon"))
    for part in _OPEN_ROWS:
        found.with_row(builders.Row(part.TITLE))
        for one in part.row():
            found.with_panel(one)
    for part in _COLLAPSED_ROWS:
        found.with_row(_collapsed(part.TITLE, part.row()))
    return found.build()


def _wall() -> dashboard.Dashboard:
    """Return the screen for a wall: nothing to choose, nothing to scroll."""
    found = builders.Dashboard("cpcmon: wall screen").uid("cpcmon-wall").tags(["cpcmon", "machine-learning"])
    found.description("The worst window of each model, what fires, and the daemons, for a screen that nobody touches.")
    _set_up(found).variables(targets())
    for one in (overview.models(height=9), overview.firing(height=7)):
        found.with_panel(one)
    return found.with_panel(overview.states(span=24, height=7)).with_panel(daemon.state(height=4)).build()


def _set_up(found: builders.Dashboard) -> builders.Dashboard:
    found.readonly().timezone("browser").time("now-24h", "now").refresh("1m")
    return found.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)


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
    built["annotations"].setdefault("list", [])
    inner = [one for panel in built["panels"] for one in panel.get("panels") or ()]
    linked = [built, *built["panels"], *inner]
    for one in (*built["annotations"]["list"], *(link for owner in linked for link in owner.get("links") or ())):
        one.pop("placement", None)
    for panel in (*built["panels"], *inner):
        # Grafana shows the number of the page, even if there is one.
        if panel.get("options", {}).get("perPage") == _PAGE_OF_THE_LIBRARY:
            del panel["options"]["perPage"]
        drawn = panel.get("fieldConfig", {}).get("defaults", {})
        for link in drawn.get("links") or ():
            for setting in link.keys() - {"title", "url", "targetBlank"}:
                del link[setting]
    for variable in built["templating"]["list"]:
        for setting in ("auto", "auto_min", "auto_count"):
            variable.pop(setting, None)
