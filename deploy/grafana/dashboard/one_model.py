"""Row 2: one model over time."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common, dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q
from monitor.core.baselines.comparison import Verdict
from monitor.core.estimate import HEADLINE

TITLE = "One model over time: $model, segment $segment"

_CHOSEN = (q.MODEL, q.SEGMENT)
_HEADLINE, _OTHERS = f'estimator="{HEADLINE}"', f'estimator!="{HEADLINE}"'
_LOWER, _FIELD_LOWER = "lower bound", "field interval, lower end"
_HORIZON = 'scope="horizon"'
_BASELINE = q.either("baseline_accuracy_ratio", q.WINDOW, *_CHOSEN)
VERDICT_NAMES = {Verdict.HOLDS: p.GREEN, Verdict.DRIFTED: p.ORANGE, Verdict.FELL: p.RED}
"""Their positions, from 1, are the values that stand for them."""


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield _estimate()
    yield p.panel(
        _with_values(),
        "All estimators",
        "The estimates of all estimators for the same window. Their assumptions differ (docs/methods.md): when they"
        " disagree, do not trust a single number. The main number is first and thick. Segments have it alone unless the"
        " configuration says metrics: {segments: all}.",
        p.over_time("headline", f"min by (estimator) {q.estimated('', *_CHOSEN, _HEADLINE)}", "{{estimator}}"),
        p.over_time("estimators", f"min by (estimator) {q.estimated('', *_CHOSEN, _OTHERS)}", "{{estimator}}"),
        unit=p.ACCURACY_UNIT, span=12, height=9, runbook="disagreement",
    ).override_by_query("headline", [p.is_("custom.lineWidth", 3)])  # fmt: skip
    yield _disagreement()
    yield _drift()
    yield _baselines()


def _with_values() -> timeseries.Panel:
    """Return lines whose legend has their latest values."""
    legend = common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.TABLE).show_legend(True)
    return p.lines().legend(legend.placement(common.LegendPlacement.RIGHT).calcs(["lastNotNull"]))


def _estimate() -> timeseries.Panel:
    chosen = (*_CHOSEN, q.ESTIMATOR)
    threshold = q.series("cpcmon_accuracy_threshold_ratio", *_CHOSEN)
    found = p.panel(
        p.lines(),
        "Estimated accuracy",
        "The chosen estimator with its interval, which covers sampling error only. The paler band, for adaptive, is the field"
        " interval: in the real shifts we tried, about nine in ten accuracies lay inside; no guarantee. Red and dashed: thresholds of alerts."
        " Grey and dashed: the accuracy on the reference and, if it is another, that of the baseline. Green, for models that take"
        " labels: the audited accuracy, and that of labelled cases. A gap means that there was no estimate, not that all was well. For several"
        " jobs with a model of this name, the lowest estimate; choose a job above.",
        p.over_time("field_lower", f"min by (model) {q.field_of_chosen('lower', *_CHOSEN)}", _FIELD_LOWER),
        p.over_time("field_upper", f"min by (model) {q.field_of_chosen('upper', *_CHOSEN)}", "field interval, upper end"),
        p.over_time("lower", f"min by (model) {q.estimated('_lower', *chosen)}", _LOWER),
        p.over_time("upper", f"min by (model) {q.estimated('_upper', *chosen)}", "upper bound"),
        p.over_time("estimate", f"min by (estimator) {q.estimated('', *chosen)}", "{{estimator}}"),
        p.over_time("threshold", f"max by (alert) ({threshold})", "threshold of {{alert}}"),
        p.over_time("reference", f"max by (model) ({q.series('cpcmon_reference_accuracy_ratio', q.MODEL)})", "reference"),
        p.over_time("baseline", f"max by (segment) {_BASELINE}", "baseline"),
        p.over_time("audited", f"min by (model) ({q.series('cpcmon_audited_accuracy_ratio', *_CHOSEN, _HORIZON)})", "audited"),
        p.over_time("realised", f"min by (model) ({q.series('cpcmon_realised_accuracy_ratio', *_CHOSEN, _HORIZON)})", "of labelled cases"),
        unit=p.ACCURACY_UNIT, span=24, height=10, runbook="accuracy",
    )  # fmt: skip
    thin = p.is_("custom.lineWidth", 0)
    for ref, below, opacity in (("field_", _FIELD_LOWER, 6), ("", _LOWER, 15)):
        found.override_by_query(f"{ref}lower", [p.colour(p.BLUE), thin, p.NO_LEGEND])
        filled = [p.is_("custom.fillBelowTo", below), p.is_("custom.fillOpacity", opacity)]
        found.override_by_query(f"{ref}upper", [p.colour(p.BLUE), thin, p.NO_LEGEND, *filled])
    found.override_by_query("estimate", [p.colour(p.BLUE), p.is_("custom.lineWidth", 2)])
    found.override_by_query("threshold", [p.colour(p.RED), p.DASHED])
    found.override_by_query("audited", [p.colour(p.GREEN), p.is_("custom.lineWidth", 2)])
    found.override_by_query("realised", [p.colour(p.GREEN), p.DASHED])
    found.override_by_query("baseline", [p.colour(p.GREY), p.DASHED])
    return found.override_by_query("reference", [p.colour(p.GREY), p.DASHED])


def _drift() -> timeseries.Panel:
    drift, limit = (q.series(f"cpcmon_output_drift{one}", *_CHOSEN) for one in ("", "_limit"))
    found = p.panel(
        p.lines().min(0),
        "Drift of the outputs",
        "How far the predicted classes and the confidences are from those of the baseline, from 0 to 1. Above the dashed"
        " line of the same name, the model answers differently than it did: do not rely on the estimate alone.",
        p.over_time("found", f"max by (measure) ({drift})", "{{measure}}"),
        p.over_time("limit", f"max by (measure) ({limit})", "limit of {{measure}}"),
        unit="none", span=12, height=9, runbook="output_drift",
    )  # fmt: skip
    return found.override_by_query("limit", [p.colour(p.RED), p.DASHED])


def _baselines() -> Builder[dashboard.Panel]:
    verdicts = " or ".join(
        f"{place} * max by (segment) ({q.series('cpcmon_window_verdict', q.MODEL, _verdict(one))})"
        for place, one in enumerate(VERDICT_NAMES, start=1)
    )
    found = p.panel(
        p.states_over_time().per_page(25),
        "Verdict of each segment",
        "The comparison of each window with its baseline. Fell: the estimate fell. Drifted: the estimate holds, but the"
        " outputs drifted, so trust it less. Holds: both hold. Empty: no estimate, or its baseline is still collected.",
        p.over_time("verdict", f"max by (segment) ({verdicts})", "{{segment}}"),
        unit="none", span=12, height=9, runbook="output_drift",
    )  # fmt: skip
    found.data_links(p.to_window(*p.SEGMENT_OF_SERIES))
    return found.mappings(
        [p.value_names({place: (one, VERDICT_NAMES[one]) for place, one in enumerate(VERDICT_NAMES, start=1)})]
    )


def _verdict(one: Verdict) -> str:
    return f'verdict="{one}"'


def _disagreement() -> timeseries.Panel:
    disagreement = q.either("estimator_disagreement_ratio", q.WINDOW, *_CHOSEN)
    found = p.panel(
        p.lines().min(0),
        "Disagreement of the estimators",
        "Highest minus lowest estimate among the members of the consensus, and the largest disagreement that sampling error"
        " explains. Above that line, the data has changed in a way that affects the estimators differently.",
        p.over_time("found", f"max by (model) {disagreement}", "disagreement"),
        p.over_time(
            "chance",
            f"max by (model) ({q.series('cpcmon_estimator_chance_disagreement_ratio', *_CHOSEN)})",
            "explained by sampling error",
        ),
        unit=p.ACCURACY_UNIT, span=12, height=9, runbook="disagreement",
    )  # fmt: skip
    return found.override_by_query("chance", [p.colour(p.GREY), p.DASHED])
