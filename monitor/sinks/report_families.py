"""The metric families of reports. Names, types and labels are public: `docs/metrics.md`."""

from dataclasses import dataclass
from enum import StrEnum

_OF_SEGMENT = ("model", "segment")
_OF_ESTIMATOR = ("estimator", "model", "segment")
_OF_ALERT = ("alert", "model", "segment", "severity")


class MetricType(StrEnum):
    """The type of a metric family in Prometheus."""

    GAUGE = "gauge"
    UNTYPED = "untyped"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric family."""

    name: str
    labels: tuple[str, ...]
    help: str
    type: MetricType = MetricType.GAUGE

    def header(self) -> str:
        """Return the HELP and TYPE lines."""
        # By the guidelines for exporters, HELP must say that a value is not computed at the scrape.
        return f"# HELP {self.name} {self.help} As of the last evaluation.\n# TYPE {self.name} {self.type}\n"


ACCURACY = MetricFamily(
    "cpcmon_estimated_accuracy_ratio",
    _OF_ESTIMATOR,
    "Estimated accuracy, 0 to 1. Absent when the window has no estimate.",
)
LOWER = MetricFamily(
    "cpcmon_estimated_accuracy_lower_ratio",
    _OF_ESTIMATOR,
    "Lower bound of the estimated accuracy. Covers sampling error only.",
)
UPPER = MetricFamily(
    "cpcmon_estimated_accuracy_upper_ratio",
    _OF_ESTIMATOR,
    "Upper bound of the estimated accuracy. Covers sampling error only.",
)
# Untyped: names of gauges may not end in _sum or _count, and the values may fall, unlike those of a summary.
ESTIMATE_SUM = MetricFamily(
    "cpcmon_estimate_sum",
    _OF_ESTIMATOR,
    "Estimated accuracy times records, before it is clipped to 0 and 1. Sum it over replicas.",
    MetricType.UNTYPED,
)
LOWER_SUM = MetricFamily(
    "cpcmon_estimate_lower_sum",
    _OF_ESTIMATOR,
    "Lower bound times records. Sum it over replicas. Only for models that replicas share.",
    MetricType.UNTYPED,
)
UPPER_SUM = MetricFamily(
    "cpcmon_estimate_upper_sum",
    _OF_ESTIMATOR,
    "Upper bound times records. Sum it over replicas. Only for models that replicas share.",
    MetricType.UNTYPED,
)
ESTIMATE_COUNT = MetricFamily(
    "cpcmon_estimate_count",
    _OF_ESTIMATOR,
    "Records behind the estimate. Sum it over replicas.",
    MetricType.UNTYPED,
)
DISAGREEMENT = MetricFamily(
    "cpcmon_estimator_disagreement_ratio",
    _OF_SEGMENT,
    "Highest minus lowest estimate among the members of the consensus.",
)
CHANCE_DISAGREEMENT = MetricFamily(
    "cpcmon_estimator_chance_disagreement_ratio",
    _OF_SEGMENT,
    "Largest disagreement that sampling error explains.",
)
THRESHOLD = MetricFamily(
    "cpcmon_accuracy_threshold_ratio",
    ("alert", "estimator", "model", "segment", "severity"),
    "Threshold that an alert compares the estimated accuracy with.",
)
FIRING = MetricFamily("cpcmon_alert_firing", _OF_ALERT, "1 when the alert fires, else 0.")
PENDING = MetricFamily(
    "cpcmon_alert_pending", _OF_ALERT, "1 when the threshold is crossed, but not yet for long enough, else 0."
)
HELD = MetricFamily("cpcmon_alert_held", _OF_ALERT, "1 when the alert cannot be evaluated and keeps its state, else 0.")
SINCE = MetricFamily(
    "cpcmon_alert_since_timestamp_seconds",
    _OF_ALERT,
    "When the alert became pending or firing. Absent when it is neither.",
)
RECORDS = MetricFamily("cpcmon_window_records", _OF_SEGMENT, "Records in the window.")
VALID = MetricFamily("cpcmon_estimate_valid", _OF_SEGMENT, "1 when the window has an accuracy estimate, else 0.")
STATE = MetricFamily(
    "cpcmon_window_state", ("model", "segment", "state"), "1 for the state of the window, 0 for all others."
)
FRESH = MetricFamily(
    "cpcmon_window_fresh",
    _OF_SEGMENT,
    "1 when the window has recent records, else 0. Only for models that replicas share.",
)
MINIMUM = MetricFamily("cpcmon_window_minimum_records", ("model",), "Records that a window needs for an estimate.")
LAST_RECORD = MetricFamily(
    "cpcmon_last_record_timestamp_seconds", _OF_SEGMENT, "Time of the newest record. Absent before the first."
)
LAST_VALID = MetricFamily(
    "cpcmon_last_valid_estimate_timestamp_seconds",
    _OF_SEGMENT,
    "Time of the last accuracy estimate. Absent before the first.",
)
LAST_EVALUATION = MetricFamily("cpcmon_last_evaluation_timestamp_seconds", ("model",), "Time of the last evaluation.")
SET_SIZE = MetricFamily(
    "cpcmon_prediction_set_size", _OF_ESTIMATOR, "Mean number of classes in a conformal prediction set."
)
SET_EMPTY = MetricFamily(
    "cpcmon_prediction_set_empty_ratio", _OF_ESTIMATOR, "Share of records whose conformal prediction set is empty."
)
PREDICTED = MetricFamily(
    "cpcmon_predicted_class_ratio",
    ("class", "model", "segment"),
    "Share of records predicted as the class. Absent for models of more than 50 classes.",
)
REFERENCE = MetricFamily(
    "cpcmon_reference_info",
    ("classes", "created", "fingerprint", "model", "records", "version"),
    "The reference of the model.",
)
REFERENCE_ACCURACY = MetricFamily("cpcmon_reference_accuracy_ratio", ("model",), "Accuracy on the reference.")
REFERENCE_CONFIDENCE = MetricFamily(
    "cpcmon_reference_confidence_ratio", ("model",), "Mean confidence on the reference, before temperature scaling."
)
REFERENCE_PREDICTED = MetricFamily(
    "cpcmon_reference_predicted_class_ratio",
    ("class", "model"),
    "Share of the reference predicted as the class. Absent for models of more than 50 classes.",
)
TEMPERATURE = MetricFamily("cpcmon_reference_temperature", ("model",), "Temperature fitted to the reference.")
SEGMENTS = MetricFamily("cpcmon_segments", ("model",), "Number of segments, without `all`.")
SEGMENTS_LIMIT = MetricFamily("cpcmon_segments_limit", ("model",), "Maximum number of segments.")
DEGRADED = MetricFamily(
    "cpcmon_input_degraded", ("model",), "1 when too many recent records are rejected or look wrong, else 0."
)
ONE_HOT = MetricFamily(
    "cpcmon_input_one_hot", ("model",), "1 when recent outputs are one-hot vectors instead of probabilities, else 0."
)
CONSTANT = MetricFamily("cpcmon_input_constant", ("model",), "1 when recent outputs are all the same, else 0.")
REJECTED = MetricFamily(
    "cpcmon_input_rejected_ratio", ("model",), "Share of recent records that were rejected. Absent before the first."
)

FAMILIES: tuple[MetricFamily, ...] = (
    ACCURACY, LOWER, UPPER, ESTIMATE_SUM, ESTIMATE_COUNT, LOWER_SUM, UPPER_SUM, DISAGREEMENT, CHANCE_DISAGREEMENT, THRESHOLD,
    FIRING, PENDING, HELD, SINCE, RECORDS, VALID, STATE, FRESH, MINIMUM, LAST_RECORD, LAST_VALID, LAST_EVALUATION,
    SET_SIZE, SET_EMPTY, PREDICTED, REFERENCE, REFERENCE_ACCURACY, TEMPERATURE, REFERENCE_CONFIDENCE,
    REFERENCE_PREDICTED, SEGMENTS, SEGMENTS_LIMIT, DEGRADED, ONE_HOT, CONSTANT, REJECTED,
)  # fmt: skip
"""In the order of the page."""
