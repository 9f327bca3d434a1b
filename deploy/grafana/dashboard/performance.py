"""Row 7, collapsed: performance beyond accuracy, and the class mix. Empty unless the setting `performance` asks for them."""

from collections.abc import Iterator

from grafana_foundation_sdk.builders import table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard

from deploy.grafana.dashboard import panels as p
from deploy.grafana.dashboard import queries as q
from monitor.core.performance import WORDS, Metric

TITLE = "Performance and class mix: $model, segment $segment (only with the setting performance)"

_CHOSEN = (q.MODEL, q.SEGMENT)
_OFF = "off: see the setting performance"
_MEANINGS = {
    Metric.SENSITIVITY: "Of the cases of a class, the share decided as this class. Cases missed with high confidence do not show.",
    Metric.SPECIFICITY: "Of the records of other classes, the share not decided as this class.",
    Metric.PPV: "Of the records decided as a class, the share that are cases of it. It falls with the share of cases.",
    Metric.NPV: "Of the records not decided as a class, the share that are not cases of it.",
    Metric.F1: "The harmonic mean of sensitivity and positive predictive value.",
    Metric.AUROC: "How often a case of one of two classes gets a higher probability of it than a case of the other one.",
}


def row() -> Iterator[Builder[dashboard.Panel]]:
    """Yield the panels."""
    yield _table()
    for metric, meaning in _MEANINGS.items():
        yield _metric(metric, meaning)
    yield _mix()
    yield _mix_table()


def _of(name: str, *matchers: str) -> str:
    """Return a series by metric and class. Over all classes, `class` is empty; of several jobs or replicas, the lowest."""
    lowest = f"min by (metric, class) ({q.series(name, *matchers)})"
    return f'label_replace({lowest}, "class", "all classes", "class", "")'


def _metric(metric: Metric, meaning: str) -> timeseries.Panel:
    matcher, name = f'metric="{metric}"', WORDS[metric][0].upper() + WORDS[metric][1:]
    threshold = q.series("cpcmon_performance_threshold_ratio", *_CHOSEN, matcher)
    found = p.panel(
        p.lines().no_value(_OFF),
        name,
        f"{meaning} Grey and dashed: on the reference. Red and dashed: thresholds of alerts. A gap means that there was no"
        " estimate, for example with too few cases.",
        p.over_time("estimate", _of("cpcmon_estimated_performance_ratio", *_CHOSEN, matcher), "{{class}}"),
        p.over_time("reference", _of("cpcmon_reference_performance_ratio", q.MODEL, matcher), "{{class}}, reference"),
        p.over_time("threshold", f"max by (alert) ({threshold})", "threshold of {{alert}}"),
        unit=p.ACCURACY_UNIT, span=12, runbook="accuracy",
    )  # fmt: skip
    found.override_by_query("estimate", [p.is_("custom.lineWidth", 2)])
    found.override_by_query("reference", [p.colour(p.GREY), p.DASHED])
    return found.override_by_query("threshold", [p.colour(p.RED), p.DASHED])


def _as_table(found: table.Panel, names: dict[str, str]) -> table.Panel:
    """Make one table, classes in the order of the reference."""
    for step in p.as_table(names, sort=q.PLACE, hidden=(q.PLACE,)):
        found.with_transformation(step)
    for key, name in names.items():
        if key.startswith("Value"):
            found.override_by_name(name, [p.is_("unit", p.ACCURACY_UNIT), p.is_("decimals", 1)])
    return found.no_value(_OFF)


# Every row of the table has its place: those of the average over all classes are first.
_PLACES = (
    f"0 * {_of('cpcmon_reference_performance_ratio', q.MODEL)} + on (class) group_left ()"
    f' ({q.CLASS_PLACES} or label_replace(vector(-1), "class", "all classes", "", ""))'
)
_COLUMNS = {"Value #estimate": "Estimate", "Value #lower": "Lower bound", "Value #upper": "Upper bound"}


def _table() -> table.Panel:
    found = p.panel(
        table.Panel(),
        "Estimated performance, now",
        "Every exported metric with its interval, which covers sampling error only, and its value on the reference. A metric"
        " with too few cases is missing. Mistakes made with high confidence do not show.",
        p.column("estimate", _of("cpcmon_estimated_performance_ratio", *_CHOSEN)),
        p.column("lower", _of("cpcmon_estimated_performance_lower_ratio", *_CHOSEN)),
        p.column("upper", _of("cpcmon_estimated_performance_upper_ratio", *_CHOSEN)),
        p.column("reference", _of("cpcmon_reference_performance_ratio", q.MODEL)),
        p.column("place", _PLACES),
        unit="none", span=24, runbook="accuracy",
    )  # fmt: skip
    return _as_table(found, {"metric": "Metric", "class": "Class", **_COLUMNS, "Value #reference": "Reference"})


def _mix() -> timeseries.Panel:
    found = p.panel(
        p.lines().no_value(_OFF),
        "Class mix",
        "The share of each true class if nothing but the class mix changed since the reference. If images or patients changed"
        " too, every method tried was off by 17 to 23 points.",
        p.over_time("share", f"max by (class) ({q.series('cpcmon_estimated_class_ratio', *_CHOSEN)})", "{{class}}"),
        p.over_time(
            "reference", f"max by (class) ({q.series('cpcmon_reference_class_ratio', q.MODEL)})", "{{class}}, reference"
        ),
        unit=p.ACCURACY_UNIT, span=24, runbook="accuracy",
    )  # fmt: skip
    found.override_by_query("share", [p.is_("custom.lineWidth", 2)])
    return found.override_by_query("reference", [p.colour(p.GREY), p.DASHED])


def _mix_table() -> table.Panel:
    predicted = q.over_replicas(
        q.series("cpcmon_predicted_class_ratio", *_CHOSEN), q.series("cpcmon_window_records", *_CHOSEN), "class"
    )
    parts = {"estimate": "", "lower": "_lower", "upper": "_upper"}
    shares = {ref: q.series(f"cpcmon_estimated_class{part}_ratio", *_CHOSEN) for ref, part in parts.items()}
    found = p.panel(
        table.Panel(),
        "Class mix, now",
        "The same with its interval, which covers sampling error only, beside the share of decisions. Decisions move with the"
        " mix, and when the model fails.",
        *(p.column(ref, f"max by (class) ({share})") for ref, share in shares.items()),
        p.column("reference", f"max by (class) ({q.series('cpcmon_reference_class_ratio', q.MODEL)})"),
        p.column("decided", predicted),
        p.column("place", q.CLASS_PLACES),
        unit="none", span=24, runbook="accuracy",
    )  # fmt: skip
    return _as_table(
        found, {"class": "Class", **_COLUMNS, "Value #reference": "Reference", "Value #decided": "Decided"}
    )
