"""Common parts of the panels."""

from collections.abc import Sequence
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, statetimeline, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = common.DataSourceRef(type_val="prometheus", uid="${datasource}")

RED, ORANGE, GREEN, BLUE, GREY = "red", "orange", "green", "blue", "#808080"
ACCURACY_UNIT = "percentunit"
POINTS_UNIT = "suffix: points"

OF_SERIES = ("${__field.labels.model:percentencode}", "${__field.labels.segment:percentencode}")
"""Model and segment of the clicked series, for `to_window`."""
OF_ROW = ("${__data.fields.Model:percentencode}", "${__data.fields.Segment:percentencode}")
"""Those of the clicked row."""
SEGMENT_OF_SERIES = ("${model:percentencode}", OF_SERIES[1])
SEGMENT_OF_ROW = ("${model:percentencode}", OF_ROW[1])
MODEL_OF_SERIES = (OF_SERIES[0], "all")


class AnyPanel(Protocol):
    """The common methods of panel builders; the library has no type for them."""

    def title(self, title: str) -> Self: ...  # noqa: D102
    def description(self, description: str) -> Self: ...  # noqa: D102
    def datasource(self, datasource: common.DataSourceRef) -> Self: ...  # noqa: D102
    def unit(self, unit: str) -> Self: ...  # noqa: D102
    def decimals(self, decimals: float) -> Self: ...  # noqa: D102
    def links(self, links: list[Builder[dashboard.DashboardLink]]) -> Self: ...  # noqa: D102
    def span(self, w: int) -> Self: ...  # noqa: D102
    def height(self, h: int) -> Self: ...  # noqa: D102
    def with_target(self, target: Builder[Dataquery]) -> Self: ...  # noqa: D102


P = TypeVar("P", bound=AnyPanel)


def panel(
    kind: P, title: str, description: str, *targets: prometheus.Dataquery, unit: str, span: int, height: int = 8,
    runbook: str = "",
) -> P:  # fmt: skip
    """Return a panel with everything that each must have. The grid is 24 wide."""
    kind.title(title).description(description).datasource(SOURCE).unit(unit).span(span).height(height)
    if unit == ACCURACY_UNIT:
        kind.decimals(1)
    if runbook:
        link = builders.DashboardLink("Runbook").type(dashboard.DashboardLinkType.LINK).icon("doc").target_blank(True)
        kind.links([link.tooltip("What to check and what to do").url(f"${{runbooks:raw}}{runbook}.md")])
    for target in targets:
        kind.with_target(target)
    return kind


def over_time(ref: str, expression: str, legend: str) -> prometheus.Dataquery:
    """Return a query over the time range."""
    return _query(ref, expression).range().legend_format(legend)


def now(ref: str, expression: str, legend: str) -> prometheus.Dataquery:
    """Return a query of the latest values."""
    return _query(ref, expression).instant().legend_format(legend)


def column(ref: str, expression: str) -> prometheus.Dataquery:
    """Return a query whose latest values become a column of a table."""
    return _query(ref, expression).instant().format(PromQueryFormat.TABLE)


def _query(ref: str, expression: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(ref).datasource(SOURCE).expr(expression)


def lines() -> timeseries.Panel:
    """Return lines over time, with gaps where there are no values."""
    legend = common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
    legend = legend.placement(common.LegendPlacement.BOTTOM).show_legend(True)
    tooltip = common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
    tooltip = tooltip.sort(common.SortOrder.DESCENDING)
    drawn = timeseries.Panel().line_width(1).fill_opacity(0).show_points(common.VisibilityMode.NEVER)
    return drawn.legend(legend).tooltip(tooltip)


def to_window(model: str, segment: str) -> list[Builder[dashboard.DashboardLink]]:
    """Return links to a window: on the dashboard, and on the page of its daemon."""
    here = f"/d/cpcmon?var-model={model}&var-segment={segment}&${{datasource:queryparam}}&${{__url_time_range}}"
    page = f"${{page:raw}}{model}${{page_segment:raw}}{segment}"
    return [
        builders.DashboardLink("Show on the dashboard").url(here),
        builders.DashboardLink("Page of cpcmon").url(page).target_blank(True),
    ]


def as_table(
    columns: dict[str, str], *, sort: str = "", hidden: Sequence[str] = (), keys: Sequence[str] = ()
) -> list[dashboard.DataTransformerConfig]:
    """Return the steps that make one table of all queries, with the named columns in their order.

    `keys` are labels that tell rows apart. With them Grafana says that there are no rows, in place of an empty table.
    """
    values = [name for name in columns if name.startswith("Value #")]
    if keys:
        columns = {f"{name} (lastNotNull)" if name in values else name: shown for name, shown in columns.items()}
    order = {name: place for place, name in enumerate(columns)}
    excluded = {"Time": True} | dict.fromkeys(hidden, True)
    organised = {"excludeByName": excluded, "indexByName": order, "renameByName": columns}
    steps = [dashboard.DataTransformerConfig("merge", options={})]
    if keys:
        grouped: dict[str, object] = {name: {"operation": "groupby", "aggregations": []} for name in keys}
        grouped |= {name: {"operation": "aggregate", "aggregations": ["lastNotNull"]} for name in values}
        steps.append(dashboard.DataTransformerConfig("groupBy", options={"fields": grouped}))
    if sort:
        steps.append(dashboard.DataTransformerConfig("sortBy", options={"sort": [{"field": sort, "desc": False}]}))
    return [*steps, dashboard.DataTransformerConfig("organize", options=organised)]


def states_over_time() -> statetimeline.Panel:
    """Return coloured bars over time, with the name of the state in them."""
    legend = common_builders.VizLegendOptions().show_legend(False).placement(common.LegendPlacement.BOTTOM)
    legend = legend.display_mode(common.LegendDisplayMode.LIST)
    bars = statetimeline.Panel().merge_values(True).show_value(common.VisibilityMode.AUTO)
    return bars.legend(legend).row_height(0.8).fill_opacity(80)


def value_names(names: dict[int, tuple[str, str]]) -> dashboard.ValueMap:
    """Return the text and colour of each value."""
    return texts({str(value): shown for value, shown in names.items()})


def texts(names: dict[str, tuple[str, str]]) -> dashboard.ValueMap:
    """Return the text of each text, and its colour or none."""
    return dashboard.ValueMap(
        {
            value: dashboard.ValueMappingResult(text=text, color=colour or None, index=place)
            for place, (value, (text, colour)) in enumerate(names.items())
        }
    )


# Without it, an empty cell has the first colour of its thresholds: red.
NOTHING = dashboard.SpecialValueMap(
    dashboard.DashboardSpecialValueMapOptions(
        match=dashboard.SpecialValueMatch.NULL, result=dashboard.ValueMappingResult(text="–", color="transparent")
    )
)


def red_then(*steps: tuple[float, str]) -> builders.ThresholdsConfig:
    """Return thresholds that start with red."""
    found = [dashboard.Threshold(value=None, color=RED)]
    found += [dashboard.Threshold(value=value, color=colour) for value, colour in steps]
    return builders.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(found)


def is_(identifier: str, value: object) -> dashboard.DynamicConfigValue:
    """Return one property of an override."""
    return dashboard.DynamicConfigValue(identifier, value)


def colour(name: str) -> dashboard.DynamicConfigValue:
    """Return an override of the colour."""
    return is_("color", {"mode": "fixed", "fixedColor": name})


WIDE = is_("custom.width", 340)
"""For whole names of segments."""

NO_LEGEND = is_("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False})
DASHED = is_("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})
