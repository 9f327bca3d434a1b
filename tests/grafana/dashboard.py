"""The committed dashboards: panels, queries, variables."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
FILE = FOLDER / "cpcmon.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
WALL: dict[str, Any] = json.loads((FOLDER / "cpcmon-wall.json").read_text("utf-8"))

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One expression, and the legend of its result."""

    panel: str
    ref: str
    expression: str
    legend: str
    instant: bool

    @property
    def name(self) -> str:
        """Panel and reference id."""
        return f"{self.panel}/{self.ref}"

    @property
    def legend_labels(self) -> set[str]:
        """The labels of its legend."""
        return set(re.findall(r"\{\{ *(\w+) *\}\}", self.legend))

    def asked_with(self, values: Mapping[str, str]) -> str:
        """Return the expression with the values of the variables."""
        return with_values(self.expression, values)


def open_panels() -> list[Json]:
    """Return the panels of open rows."""
    return [one for one in DASHBOARD["panels"] if one["type"] != "row"]


def collapsed_panels(row: str = "") -> list[Json]:
    """Return the panels of collapsed rows, or of one whose title begins so."""
    rows = [one for one in DASHBOARD["panels"] if one["type"] == "row" and one["title"].startswith(row)]
    return [inner for one in rows for inner in one.get("panels") or ()]


def all_panels() -> list[Json]:
    """Return every panel of the first dashboard."""
    return open_panels() + collapsed_panels()


def queries(*panels: Json) -> Iterator[Query]:
    """Yield the queries of panels."""
    for panel in panels:
        for one in panel["targets"]:
            yield Query(panel["title"], one["refId"], one["expr"], one.get("legendFormat", ""), one["instant"])


def variable_queries() -> Iterator[Query]:
    """Yield the queries of variables, in PromQL."""
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            kind, asked = re.fullmatch(r"(\w+)\((.+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
            if kind == "label_values":
                series, label = asked.rsplit(", ", 1)
                asked = f"count by ({label}) ({series})"
            else:
                (label,) = re.findall(r'^/(\w+)="\(\[\^"\]\+\)"/$', variable["regex"])
            yield Query("variable", variable["name"], asked, f"{{{{{label}}}}}", instant=True)


def annotation_queries() -> Iterator[Query]:
    """Yield the queries of annotations."""
    for one in DASHBOARD["annotations"]["list"]:
        formats = f"{one['titleFormat']} {one['textFormat']}"
        yield Query("annotation", one["name"], one["expr"], formats, instant=False)


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Replace the variables in a text, as Grafana does."""
    return re.sub(r"\$\{?(\w+)(?::\w+)?\}?", lambda found: values[found[1]], text)
