"""Row 4: the outputs, compared with the reference."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import barchart
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q

TITLE = "Why? $model, segment $segment"

_CHOSEN = (q.MODEL, q.SEGMENT)
_NOT_OF_SEGMENTS = "Only for the whole model, unless the configuration says metrics: {segments: all}"
_COUNT = q.series("cpcmon_estimate_records", *_CHOSEN)
_SIZE = q.series("cpcmon_prediction_set_size", *_CHOSEN)
_EMPTY = q.series("cpcmon_prediction_set_empty_ratio", *_CHOSEN)


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield p.panel(
        p.lines().min(0).no_value(_NOT_OF_SEGMENTS),
        "Size of prediction sets",
        "Mean number of classes in a conformal prediction set. It grows when the model is less confident than on the reference.",
        p.over_time("size", q.over_replicas(_SIZE, _COUNT, "estimator"), "{{estimator}}"),
        unit="none", span=12, runbook="accuracy",
    )  # fmt: skip
    yield p.panel(
        p.lines().min(0).no_value(_NOT_OF_SEGMENTS),
        "Empty prediction sets",
        "Share of records for which no class is likely enough. It grows when outputs differ from those on the reference.",
        p.over_time("empty", q.over_replicas(_EMPTY, _COUNT, "estimator"), "{{estimator}}"),
        unit=p.ACCURACY_UNIT, span=12, runbook="accuracy",
    )  # fmt: skip
    yield _classes()
    yield _confidence()


def _classes() -> barchart.Panel:
    predicted = q.series("cpcmon_predicted_class_ratio", *_CHOSEN)
    records = q.series("cpcmon_window_records", *_CHOSEN)
    share = q.over_replicas(predicted, records, "class")
    reference = q.series("cpcmon_reference_predicted_class_ratio", q.MODEL)
    found = p.panel(
        barchart.Panel(),
        "Predicted classes, now and on the reference",
        "The share of each predicted class, in the order of the reference. It changes with the mix of patients, and when a model starts to predict one class"
        " for everything. Not shown for models of more than 50 classes, and for segments only if the configuration says metrics:"
        " {segments: all}.",
        p.column("now", share),
        p.column("reference", f"max by (class) ({reference})"),
        p.column("place", q.CLASS_PLACES),
        unit=p.ACCURACY_UNIT, span=12, runbook="accuracy",
    )  # fmt: skip
    names = {"class": "Class", "Value #now": "now", "Value #reference": "reference"}
    for step in p.as_table(names, sort=q.PLACE, hidden=(q.PLACE,)):
        found.with_transformation(step)
    legend = common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST).show_legend(True)
    found.x_field("Class").x_tick_label_max_length(60).orientation(common.VizOrientation.HORIZONTAL).min(0).no_value(
        "more than 50 classes"
    )
    found.legend(legend.placement(common.LegendPlacement.BOTTOM))
    found.override_by_name("now", [p.colour(p.BLUE)])
    return found.override_by_name("reference", [p.colour(p.GREY)])


def _confidence() -> Builder[dashboard.Panel]:
    confidence = q.estimated("", *_CHOSEN, 'estimator="ac"')
    reference = q.series("cpcmon_reference_confidence_ratio", q.MODEL)
    found = p.panel(
        p.lines(),
        "Confidence",
        "Mean of the largest probability of each output, now and on the reference. Most estimators depend on it; a model that"
        " is confident and wrong looks good here. Segments have it if the configuration says metrics: {segments: all}.",
        p.over_time("now", f"min by (model) {confidence}", "confidence"),
        p.over_time("reference", f"max by (model) ({reference})", "reference"),
        unit=p.ACCURACY_UNIT, span=12, runbook="accuracy",
    )  # fmt: skip
    return found.override_by_query("reference", [p.colour(p.GREY), p.DASHED])
