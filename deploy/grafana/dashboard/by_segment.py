"""Row 3: by segment, worst first."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import statushistory, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q
from deploy.grafana.dashboard.overview import STATE_NAMES

TITLE = "By segment: $model"

SHOWN = 10
"""Segments in the heat map. One query each: Grafana cannot sort series by value otherwise."""

_ESTIMATE = "Estimate"
_ABOVE = "Margin"
_DRIFT = "Drift"
_BEGAN = "Began"
_REALISED = "Labelled"
_EVIDENCE = "Evidence"
_AGE = "Newest"
_RATIOS = (_ESTIMATE, "Lower", "Upper", "Field low", "Field high", "Baseline", _REALISED)


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield _table()
    yield _heat_map()
    yield _evidence()


def _columns() -> dict[str, tuple[str, str]]:
    """Return the heading and the query of each column, by reference id."""
    estimate = q.headline("", q.MODEL)
    realised = q.series("cpcmon_realised_accuracy_ratio", q.MODEL, 'scope="horizon"')
    drop = q.evidence("", 'direction="down"')
    return {
        "estimate": (_ESTIMATE, f"sort(min by (segment) ({estimate}))"),
        "lower": ("Lower", f"min by (segment) ({q.headline('_lower', q.MODEL)})"),
        "upper": ("Upper", f"min by (segment) ({q.headline('_upper', q.MODEL)})"),
        "field_lower": ("Field low", f"min by (segment) {q.field('lower', q.MODEL)}"),
        "field_upper": ("Field high", f"min by (segment) {q.field('upper', q.MODEL)}"),
        "baseline": ("Baseline", f"min by (segment) ({q.baselines(q.MODEL)})"),
        "realised": (_REALISED, f"min by (segment) ({realised})"),
        "drift": (_DRIFT, f"max by (segment) ({q.series('cpcmon_output_drift', q.MODEL)})"),
        "above": (_ABOVE, f"100 * min by (segment) ({estimate} - {q.lower_thresholds(q.MODEL)})"),
        "evidence": (_EVIDENCE, f"max by (segment) {drop}"),
        "began": (_BEGAN, f"1000 * max by (segment) ({q.change_began()})"),
        "state": ("State", q.state("segment", q.MODEL)),
        "records": ("Records", f"sum by (segment) ({q.series('cpcmon_window_records', q.MODEL)})"),
        "age": (_AGE, _newest()),
    }


def _newest() -> str:
    """Return the age of the newest record of each segment: of replicas the youngest, of several jobs the oldest."""
    last = q.series("cpcmon_last_record_timestamp_seconds", q.MODEL)
    return f"max by (segment) (min by ({q.WINDOW}) (timestamp({last}) - {last}))"


def _table() -> table.Panel:
    columns = _columns()
    found = p.panel(
        # With the width of a column that Grafana chooses, the last ones would be off the screen.
        table.Panel().min_width(75),
        "Segments, worst first",
        "Every segment of the model: the main number, its interval, its field interval and its baseline; the accuracy of labelled"
        " cases; the drift of the outputs; the margin of the estimate above its threshold, empty without one; the evidence of a"
        " drop, and when a change that an alert fires on most likely began; the state, with a reason where there is no estimate;"
        " records, and the age of the newest. For several jobs with a model of this name, the worst; choose a job above.",
        *(p.column(ref, expression) for ref, (_, expression) in columns.items()),
        unit="none", span=24, height=11, runbook="accuracy",
    )  # fmt: skip
    names = {"segment": "Segment"} | {f"Value #{ref}": name for ref, (name, _) in columns.items()}
    for step in p.as_table(names):
        found.with_transformation(step)
    found.sort_by([common_builders.TableSortByFieldState().display_name(_ESTIMATE).desc(False)])
    found.data_links(p.to_window(*p.SEGMENT_OF_ROW))
    found.override_by_name("Segment", [p.WIDE])
    found.override_by_name(_DRIFT, [p.is_("decimals", 2)])
    found.override_by_name(_EVIDENCE, [p.is_("decimals", 1)])
    for name in _RATIOS:
        found.override_by_name(name, [p.is_("unit", p.ACCURACY_UNIT), p.is_("decimals", 1)])
    found.override_by_name(
        _ABOVE,
        [
            p.is_("unit", p.POINTS_UNIT),
            p.is_("decimals", 1),
            p.is_("thresholds", p.red_then((0.0, p.GREEN)).build()),
            p.is_("mappings", [p.NOTHING]),
            p.is_("custom.cellOptions", {"type": "color-background", "mode": "basic"}),
        ],
    )
    found.override_by_name(_BEGAN, [p.is_("custom.width", 125), p.is_("unit", "dateTimeFromNow")])
    found.override_by_name("State", [p.is_("mappings", [p.value_names(STATE_NAMES)])])
    return found.override_by_name(
        _AGE, [p.is_("custom.width", 100), p.is_("unit", "dtdurations"), p.is_("decimals", 0)]
    )


def _evidence() -> timeseries.Panel:
    found = p.panel(
        p.lines().min(-2).decimals(1),
        "Evidence of a change",
        "Evidence that the accuracy of a segment dropped or rose by more than the tolerance, as a power of ten: 6 is a million."
        " At the dashed budget of its direction the alert fires, at once. Healthy segments stay around 0 or below. A jump points"
        " to a fault at one moment, a slow rise to a gradual or small change. Empty without an alert of type change.",
        p.over_time("evidence", f"max by (segment, direction) {q.evidence()}", "{{segment}}, {{direction}}"),
        p.over_time("budget", f"max by (direction) {q.evidence('_threshold')}", "budget, {{direction}}"),
        unit="none", span=24, height=9, runbook="change",
    )  # fmt: skip
    found.data_links(p.to_window(*p.SEGMENT_OF_SERIES))
    return found.override_by_query("budget", [p.colour(p.RED), p.DASHED])


def _heat_map() -> statushistory.Panel:
    found = p.panel(
        statushistory.Panel(),
        f"The {SHOWN} worst segments over time, in points from the baseline",
        "Estimated accuracy minus that of its baseline, which the headline sets, or of the reference while a segment collects"
        " its own; for the segments with the lowest estimates at the end of the time range. Green: as the baseline or better;"
        " red: 20 points below it or more. Segments without an estimate at the"
        " end are left out: see the table.",
        *(p.over_time(f"worst{place:02}", q.worst(place), "{{segment}}") for place in range(1, SHOWN + 1)),
        unit="none", span=24, height=11, runbook="accuracy",
    )  # fmt: skip
    found.min(-20).max(0).decimals(1).row_height(0.9).fill_opacity(90).max_data_points(48)
    found.data_links(p.to_window(*p.SEGMENT_OF_SERIES))
    found.show_value(common.VisibilityMode.AUTO)
    legend = common_builders.VizLegendOptions().show_legend(False).placement(common.LegendPlacement.BOTTOM)
    found.legend(legend.display_mode(common.LegendDisplayMode.LIST))
    scheme = builders.FieldColor().mode(dashboard.FieldColorModeId.CONTINUOUS_RD_YL_GR)
    return found.color_scheme(scheme)
