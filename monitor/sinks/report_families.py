"""The families of series that come from reports. Names, types and labels are public; `docs/metrics.md` lists them all."""

from dataclasses import dataclass
from enum import StrEnum

_OF_SEGMENT = ("model", "segment")
_OF_ESTIMATOR = ("estimator", "model", "segment")
_OF_ALERT = ("alert", "model", "segment", "severity")


class MetricType(StrEnum):
    """What Prometheus calls a kind of series."""

    GAUGE = "gauge"
    UNTYPED = "untyped"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Series of one name."""

    name: str
    labels: tuple[str, ...]
    help: str
    type: MetricType = MetricType.GAUGE

    def header(self) -> str:
        """Return the lines that stand before the samples."""
        # Scheduled values are allowed when they are expensive, and HELP must say so.
        return f"# HELP {self.name} {self.help} As of the last evaluation.\n# TYPE {self.name} {self.type}\n"


ACCURACY = MetricFamily(
    "cpcmon_estimated_accuracy_ratio",
    _OF_ESTIMATOR,
    "Estimated accuracy, 0 to 1. Absent when nothing can be said of the window.",
)
LOWER = MetricFamily(
    "cpcmon_estimated_accuracy_lower_ratio",
    _OF_ESTIMATOR,
    "Lower bound of the estimated accuracy, if only chance is at work.",
)
UPPER = MetricFamily(
    "cpcmon_estimated_accuracy_upper_ratio",
    _OF_ESTIMATOR,
    "Upper bound of the estimated accuracy, if only chance is at work.",
)
# Neither counters nor parts of a summary, so they have no type: a gauge may not end so, and a summary only rises.
ESTIMATE_SUM = MetricFamily(
    "cpcmon_estimate_sum",
    _OF_ESTIMATOR,
    "Estimated accuracy times records, before it is brought within 0 and 1, so that replicas can be added.",
    MetricType.UNTYPED,
)
LOWER_SUM = MetricFamily(
    "cpcmon_estimate_lower_sum",
    _OF_ESTIMATOR,
    "Lower bound times records, so that replicas can be added. Only for models that replicas share.",
    MetricType.UNTYPED,
)
UPPER_SUM = MetricFamily(
    "cpcmon_estimate_upper_sum",
    _OF_ESTIMATOR,
    "Upper bound times records, so that replicas can be added. Only for models that replicas share.",
    MetricType.UNTYPED,
)
ESTIMATE_COUNT = MetricFamily(
    "cpcmon_estimate_count",
    _OF_ESTIMATOR,
    "Records behind the estimate, so that replicas can be added.",
    MetricType.UNTYPED,
)
DISAGREEMENT = MetricFamily(
    "cpcmon_estimator_disagreement_ratio",
    _OF_SEGMENT,
    "Highest minus lowest of the estimators that form the consensus.",
)
CHANCE_DISAGREEMENT = MetricFamily(
    "cpcmon_estimator_chance_disagreement_ratio",
    _OF_SEGMENT,
    "What the disagreement stays below if only chance is at work.",
)
THRESHOLD = MetricFamily(
    "cpcmon_accuracy_threshold_ratio",
    ("alert", "estimator", "model", "segment", "severity"),
    "Accuracy that an alert compares the estimate with.",
)
FIRING = MetricFamily("cpcmon_alert_firing", _OF_ALERT, "1 when somebody should look, else 0.")
PENDING = MetricFamily(
    "cpcmon_alert_pending", _OF_ALERT, "1 when the threshold is crossed but not yet for long enough, else 0."
)
HELD = MetricFamily("cpcmon_alert_held", _OF_ALERT, "1 when the alert cannot be judged and stays as it is, else 0.")
SINCE = MetricFamily(
    "cpcmon_alert_since_timestamp_seconds",
    _OF_ALERT,
    "When the alert became pending or firing. Absent when it is neither.",
)
RECORDS = MetricFamily("cpcmon_window_records", _OF_SEGMENT, "Records in the window.")
VALID = MetricFamily("cpcmon_estimate_valid", _OF_SEGMENT, "1 when the accuracy can be said, else 0.")
STATE = MetricFamily(
    "cpcmon_window_state", ("model", "segment", "state"), "1 for the state that the window is in, 0 for all others."
)
FRESH = MetricFamily(
    "cpcmon_window_fresh",
    _OF_SEGMENT,
    "1 when records came so lately that they speak of the present, else 0. Only for models that replicas share.",
)
MINIMUM = MetricFamily(
    "cpcmon_window_minimum_records", ("model",), "Records that a window must hold before its accuracy is said."
)
LAST_RECORD = MetricFamily(
    "cpcmon_last_record_timestamp_seconds", _OF_SEGMENT, "When the newest record was made. Absent before any came."
)
LAST_VALID = MetricFamily(
    "cpcmon_last_valid_estimate_timestamp_seconds", _OF_SEGMENT, "When the accuracy could last be said. Absent before."
)
LAST_EVALUATION = MetricFamily("cpcmon_last_evaluation_timestamp_seconds", ("model",), "When the model was evaluated.")
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
    "The reference that the model is judged by.",
)
REFERENCE_ACCURACY = MetricFamily("cpcmon_reference_accuracy_ratio", ("model",), "Accuracy on the reference.")
REFERENCE_CONFIDENCE = MetricFamily(
    "cpcmon_reference_confidence_ratio", ("model",), "Mean confidence on the reference, before it is scaled."
)
REFERENCE_PREDICTED = MetricFamily(
    "cpcmon_reference_predicted_class_ratio",
    ("class", "model"),
    "Share of the reference predicted as the class. Absent for models of more than 50 classes.",
)
TEMPERATURE = MetricFamily("cpcmon_reference_temperature", ("model",), "Temperature that fits the reference best.")
SEGMENTS = MetricFamily("cpcmon_segments", ("model",), "Segments beside the whole.")
SEGMENTS_LIMIT = MetricFamily(
    "cpcmon_segments_limit", ("model",), "Segments that there may be at most; further ones are dropped."
)
DEGRADED = MetricFamily(
    "cpcmon_input_degraded", ("model",), "1 when too many of the latest records are refused, else 0."
)
ONE_HOT = MetricFamily(
    "cpcmon_input_one_hot", ("model",), "1 when the latest records look like argmaxes, not probabilities, else 0."
)
CONSTANT = MetricFamily("cpcmon_input_constant", ("model",), "1 when the latest records are all the same, else 0.")
REJECTED = MetricFamily(
    "cpcmon_input_rejected_ratio", ("model",), "Share of the latest records that were refused. Absent before any came."
)

FAMILIES: tuple[MetricFamily, ...] = (
    ACCURACY, LOWER, UPPER, ESTIMATE_SUM, ESTIMATE_COUNT, LOWER_SUM, UPPER_SUM, DISAGREEMENT, CHANCE_DISAGREEMENT, THRESHOLD,
    FIRING, PENDING, HELD, SINCE, RECORDS, VALID, STATE, FRESH, MINIMUM, LAST_RECORD, LAST_VALID, LAST_EVALUATION,
    SET_SIZE, SET_EMPTY, PREDICTED, REFERENCE, REFERENCE_ACCURACY, TEMPERATURE, REFERENCE_CONFIDENCE,
    REFERENCE_PREDICTED, SEGMENTS, SEGMENTS_LIMIT, DEGRADED, ONE_HOT, CONSTANT, REJECTED,
)  # fmt: skip
"""All of them, in the order of the page."""
