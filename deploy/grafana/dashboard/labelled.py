"""Row 6, collapsed: what labels say, beside the estimates. Empty for models that take no labels."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q

TITLE = "Labels: $model, segment $segment (only for models that take labels)"

_CHOSEN = (q.MODEL, q.SEGMENT)
_HORIZON = 'scope="horizon"'
_OFF = "no labels: see docs/labels.md"
_LOWER = "lower bound"


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield _audited()
    yield _realised()
    yield _came()
    yield _blocks()
    yield _errors()


def _lowest(name: str, *matchers: str, by: str = "model") -> str:
    """Return a series; of several jobs or replicas, the lowest."""
    return f"min by ({by}) ({q.series(name, *_CHOSEN, *matchers)})"


def _with_bounds(found: timeseries.Panel, ref: str, colour: str) -> timeseries.Panel:
    """Draw the interval of a number as a band."""
    thin = p.is_("custom.lineWidth", 0)
    filled = [p.is_("custom.fillBelowTo", _LOWER), p.is_("custom.fillOpacity", 15)]
    found.override_by_query("lower", [p.colour(colour), thin, p.NO_LEGEND])
    found.override_by_query("upper", [p.colour(colour), thin, p.NO_LEGEND, *filled])
    return found.override_by_query(ref, [p.colour(colour), p.is_("custom.lineWidth", 2)])


def _audited() -> timeseries.Panel:
    estimate = q.estimated("", *_CHOSEN, q.ESTIMATOR)
    found = p.panel(
        p.lines().no_value(_OFF),
        "Audited accuracy",
        "From the labels of a random sample, with its interval, which holds whatever has shifted: trust it before the estimate"
        " (blue). It is about all records of the horizon, the estimate about those in the window now. If an audit is shared by"
        " replicas, the lowest.",
        p.over_time("lower", _lowest("cpcmon_audited_accuracy_lower_ratio", _HORIZON), _LOWER),
        p.over_time("upper", _lowest("cpcmon_audited_accuracy_upper_ratio", _HORIZON), "upper bound"),
        p.over_time("audited", _lowest("cpcmon_audited_accuracy_ratio", _HORIZON), "audited"),
        p.over_time("estimate", f"min by (estimator) {estimate}", "estimate, {{estimator}}"),
        unit=p.ACCURACY_UNIT, span=24, height=9, runbook="accuracy",
    )  # fmt: skip
    found.override_by_query("estimate", [p.colour(p.BLUE)])
    return _with_bounds(found, "audited", p.GREEN)


def _realised() -> timeseries.Panel:
    found = p.panel(
        p.lines().no_value(_OFF),
        "Accuracy of labelled cases",
        "The share of right decisions among all predictions of the horizon that have a label, with its exact interval. Labels"
        " outside the audit are usually a biased choice: this is about these cases, not about all records.",
        p.over_time("lower", _lowest("cpcmon_realised_accuracy_lower_ratio", _HORIZON), _LOWER),
        p.over_time("upper", _lowest("cpcmon_realised_accuracy_upper_ratio", _HORIZON), "upper bound"),
        p.over_time("realised", _lowest("cpcmon_realised_accuracy_ratio", _HORIZON), "of labelled cases"),
        unit=p.ACCURACY_UNIT, span=12, runbook="accuracy",
    )  # fmt: skip
    return _with_bounds(found, "realised", p.GREY)


def _came() -> timeseries.Panel:
    found = p.panel(
        p.lines().no_value(_OFF),
        "Labels that came",
        "The share of audited records whose labels came: under 90%, the missing ones may bias the audited accuracy. And the"
        " share of all predictions that have a label.",
        p.over_time("audit", _lowest("cpcmon_audit_labels_ratio"), "of audited records"),
        p.over_time("all", _lowest("cpcmon_labelled_ratio", by="scope"), "of all, {{scope}}"),
        unit=p.ACCURACY_UNIT, span=12, runbook="audit_labels",
    )  # fmt: skip
    return found.override_by_query("audit", [p.colour(p.GREEN), p.is_("custom.lineWidth", 2)])


def _blocks() -> timeseries.Panel:
    found = p.panel(
        p.lines().no_value(_OFF),
        "Latest judged block",
        "What the labels of the latest block with enough of them say, and what the main number had said of it. If they are"
        " further apart than their intervals, do not rely on the estimates until you know why.",
        p.over_time("labels", _lowest("cpcmon_track_record_latest_realised_ratio", by="kind"), "labels, {{kind}}"),
        p.over_time("estimate", _lowest("cpcmon_track_record_latest_estimated_ratio"), "estimate"),
        unit=p.ACCURACY_UNIT, span=12, runbook="estimates_wrong",
    )  # fmt: skip
    found.override_by_query("labels", [p.colour(p.GREEN), p.is_("custom.lineWidth", 2)])
    return found.override_by_query("estimate", [p.colour(p.BLUE)])


def _errors() -> timeseries.Panel:
    error = q.series("cpcmon_estimator_error_ratio", *_CHOSEN)
    return p.panel(
        p.lines().no_value(_OFF),
        "Errors of the estimators",
        "How far off each estimator has been here, on average over the judged blocks. Of several jobs or replicas, the largest"
        " error.",
        p.over_time("errors", f"max by (estimator) ({error})", "{{estimator}}"),
        unit=p.ACCURACY_UNIT, span=12, runbook="estimates_wrong",
    )  # fmt: skip
