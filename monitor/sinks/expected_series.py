"""How many series the metrics page of a configuration will have, with all segments that it allows."""

from monitor.config.config import CLASS_MIX, Config, ModelConfig, SegmentSeries
from monitor.config.references import Loaded
from monitor.core.alerts import AlertRule, AlertType
from monitor.core.baselines.output_drift import MEASURES
from monitor.core.estimate import STATES
from monitor.core.estimators.ensemble import MEMBERS
from monitor.core.intervals import FIELD_LEVELS
from monitor.core.labels.realised import SCOPES
from monitor.core.performance import Metric
from monitor.core.segments import ALL, name_of
from monitor.reference.reference import Reference
from monitor.sinks.prometheus_page import MAX_CLASSES

SAMPLE_LIMIT = 500_000
"""Of the ServiceMonitor in chart and Kustomize. Prometheus drops a scrape with more, as a whole."""
_OF_DAEMON, _OF_SOURCE, _OF_MODEL, _OF_MODEL_LABELS = 60, 30, 140, 35
"""About, with the times of creation that only OpenMetrics has."""
_OF_WINDOW = 4 + 3 + 2 + 1
"""Records, validity and times; baseline; disagreement; verdict."""
_OF_CHANGE = 5
_OF_LABELS, _OF_AUDIT, _OF_TRACK_RECORD = 5 * len(SCOPES) + 1, 4 * len(SCOPES) + 2, 5
_PARTS = 5
"""Series of an estimator that a window shows: three of the estimate, two of the parts that replicas add up."""


def expected_series(config: Config, loaded: Loaded) -> int:
    """Return about how many series a scrape has when every window has an estimate and no alert is pending or held."""
    all_in_full = config.segment_series is SegmentSeries.ALL
    total = _OF_DAEMON + _OF_SOURCE * len(config.sources)
    for model, reference in loaded:
        shared = config.is_shared(model.name)
        total += _OF_MODEL + 2 * len(model.alerts) + (0 if model.labels is None else _OF_MODEL_LABELS)
        if reference is None:
            continue
        total += 3 * _shown(reference) + len(model.exported(reference.classes))
        total += _of_window(model, reference, whole=True, shared=shared, in_full=True)
        of_segment = _of_window(model, reference, whole=False, shared=shared, in_full=all_in_full)
        total += (model.most_windows - 1) * of_segment
    return total


def _shown(reference: Reference) -> int:
    """Return how many classes have series."""
    classes = len(reference.classes)
    return classes if classes <= MAX_CLASSES else 0


def _applies(rule: AlertRule, *, whole: bool) -> bool:
    """Return whether an alert applies to the whole model, or to a segment that its patterns match."""
    of_whole = name_of(ALL)
    if whole:
        return rule.applies_to(of_whole)
    return rule.kind is not AlertType.DEGRADED_INPUT and set(rule.segments) != {of_whole}


def _of_window(model: ModelConfig, reference: Reference, *, whole: bool, shared: bool, in_full: bool) -> int:
    calibration = reference.calibration
    alerts = [one.with_headline(calibration.headline) for one in model.alerts if _applies(one, whole=whole)]
    names = calibration.names
    compared = {rule.estimator for rule in alerts if rule.kind is AlertType.ACCURACY and rule.metric is None}
    shown = [name for name in names if in_full or name == calibration.headline or name in compared]
    total = _OF_WINDOW + 2 * len(FIELD_LEVELS) + 3 * len(MEASURES) + _PARTS * len(shown)
    total += _OF_CHANGE * len({rule.direction for rule in model.change_rules})
    # Firing, and the threshold.
    total += len(alerts) + sum(rule.kind is AlertType.ACCURACY for rule in alerts)
    exported = model.exported(reference.classes)
    total += 3 * len(exported) + 3 * _shown(reference) * (CLASS_MIX in model.performance)
    if in_full:
        # Pending and held alerts, prediction sets and predicted classes; a segment has only the state that holds.
        total += 2 * len(alerts) + len(STATES) + _shown(reference)
        total += 2 * sum(name.startswith("cpc_") for name in names)
    else:
        total += 1
    if shared:
        total += 1 + 2 * len(shown) + 2 * len(set(MEMBERS).difference(shown))
    if model.labels is not None:
        judged = sum(one.metric in {Metric.SENSITIVITY, Metric.PPV} and one.of_class is not None for one in exported)
        total += _OF_LABELS + 3 * judged + _OF_TRACK_RECORD + 2 * len(shown)
        total += 0 if model.audit is None else _OF_AUDIT
    return total
