"""The last reports as a metrics page for Prometheus.

The lines of a model are written when its report is published, its labels once for each window. prometheus_client would take
a tenth of a second for ten thousand series, at every scrape. A test compares the page with that of the library.
"""

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType
from monitor.core.estimate import Estimate, Result, WindowState
from monitor.core.report import ReferenceFacts, Report, SegmentReport
from monitor.core.segments import label_value, quoted, segment_label


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric family. Names, types and labels are public: `docs/metrics.md`."""

    name: str
    labels: tuple[str, ...]
    help: str
    type: str = "gauge"

    def header(self) -> str:
        """Return the HELP and TYPE lines."""
        # By the guidelines for exporters, HELP must say that a value is not computed at the scrape.
        return f"# HELP {self.name} {self.help} As of the last evaluation.\n# TYPE {self.name} {self.type}\n"


_OF_MODEL = ("model",)
_OF_SEGMENT = ("model", "segment")
_OF_ESTIMATOR = ("estimator", "model", "segment")
_OF_ALERT = ("alert", "model", "segment", "severity")

# fmt: off
ACCURACY = MetricFamily("cpcmon_estimated_accuracy_ratio", _OF_ESTIMATOR, "Estimated accuracy, 0 to 1. Absent when the window has no estimate.")
LOWER = MetricFamily("cpcmon_estimated_accuracy_lower_ratio", _OF_ESTIMATOR, "Lower bound of the estimated accuracy. Covers sampling error only.")
UPPER = MetricFamily("cpcmon_estimated_accuracy_upper_ratio", _OF_ESTIMATOR, "Upper bound of the estimated accuracy. Covers sampling error only.")
# Untyped: names of gauges may not end in _sum or _count, and the values may fall, unlike those of a summary.
ESTIMATE_SUM = MetricFamily("cpcmon_estimate_sum", _OF_ESTIMATOR, "Estimated accuracy times records, before it is clipped to 0 and 1. Sum it over replicas.", "untyped")
LOWER_SUM = MetricFamily("cpcmon_estimate_lower_sum", _OF_ESTIMATOR, "Lower bound times records. Sum it over replicas. Only for models that replicas share.", "untyped")
UPPER_SUM = MetricFamily("cpcmon_estimate_upper_sum", _OF_ESTIMATOR, "Upper bound times records. Sum it over replicas. Only for models that replicas share.", "untyped")
ESTIMATE_COUNT = MetricFamily("cpcmon_estimate_count", _OF_ESTIMATOR, "Records behind the estimate. Sum it over replicas.", "untyped")
DISAGREEMENT = MetricFamily("cpcmon_estimator_disagreement_ratio", _OF_SEGMENT, "Highest minus lowest estimate among the members of the consensus.")
CHANCE_DISAGREEMENT = MetricFamily("cpcmon_estimator_chance_disagreement_ratio", _OF_SEGMENT, "Largest disagreement that sampling error explains.")
THRESHOLD = MetricFamily("cpcmon_accuracy_threshold_ratio", ("alert", "estimator", "model", "segment", "severity"), "Threshold that an alert compares the estimated accuracy with.")
FIRING = MetricFamily("cpcmon_alert_firing", _OF_ALERT, "1 when the alert fires, else 0.")
PENDING = MetricFamily("cpcmon_alert_pending", _OF_ALERT, "1 when the threshold is crossed, but not yet for long enough, else 0.")
HELD = MetricFamily("cpcmon_alert_held", _OF_ALERT, "1 when the alert cannot be evaluated and keeps its state, else 0.")
SINCE = MetricFamily("cpcmon_alert_since_timestamp_seconds", _OF_ALERT, "When the alert became pending or firing. Absent when it is neither.")
RECORDS = MetricFamily("cpcmon_window_records", _OF_SEGMENT, "Records in the window.")
VALID = MetricFamily("cpcmon_estimate_valid", _OF_SEGMENT, "1 when the window has an accuracy estimate, else 0.")
STATE = MetricFamily("cpcmon_window_state", ("model", "segment", "state"), "1 for the state of the window, 0 for all others.")
FRESH = MetricFamily("cpcmon_window_fresh", _OF_SEGMENT, "1 when the window has recent records, else 0. Only for models that replicas share.")
MINIMUM = MetricFamily("cpcmon_window_minimum_records", _OF_MODEL, "Records that a window needs for an estimate.")
LAST_RECORD = MetricFamily("cpcmon_last_record_timestamp_seconds", _OF_SEGMENT, "Time of the newest record. Absent before the first.")
LAST_VALID = MetricFamily("cpcmon_last_valid_estimate_timestamp_seconds", _OF_SEGMENT, "Time of the last accuracy estimate. Absent before the first.")
LAST_EVALUATION = MetricFamily("cpcmon_last_evaluation_timestamp_seconds", _OF_MODEL, "Time of the last evaluation.")
SET_SIZE = MetricFamily("cpcmon_prediction_set_size", _OF_ESTIMATOR, "Mean number of classes in a conformal prediction set.")
SET_EMPTY = MetricFamily("cpcmon_prediction_set_empty_ratio", _OF_ESTIMATOR, "Share of records whose conformal prediction set is empty.")
PREDICTED = MetricFamily("cpcmon_predicted_class_ratio", ("class", "model", "segment"), "Share of records predicted as the class. Absent for models of more than 50 classes.")
REFERENCE = MetricFamily("cpcmon_reference_info", ("classes", "created", "fingerprint", "model", "records", "version"), "The reference of the model.")
REFERENCE_ACCURACY = MetricFamily("cpcmon_reference_accuracy_ratio", _OF_MODEL, "Accuracy on the reference.")
REFERENCE_CONFIDENCE = MetricFamily("cpcmon_reference_confidence_ratio", _OF_MODEL, "Mean confidence on the reference, before temperature scaling.")
REFERENCE_PREDICTED = MetricFamily("cpcmon_reference_predicted_class_ratio", ("class", "model"), "Share of the reference predicted as the class. Absent for models of more than 50 classes.")
TEMPERATURE = MetricFamily("cpcmon_reference_temperature", _OF_MODEL, "Temperature fitted to the reference.")
SEGMENTS = MetricFamily("cpcmon_segments", _OF_MODEL, "Number of segments, without `all`.")
SEGMENTS_LIMIT = MetricFamily("cpcmon_segments_limit", _OF_MODEL, "Maximum number of segments.")
DEGRADED = MetricFamily("cpcmon_input_degraded", _OF_MODEL, "1 when too many recent records are rejected or look wrong, else 0.")
ONE_HOT = MetricFamily("cpcmon_input_one_hot", _OF_MODEL, "1 when recent outputs are one-hot vectors instead of probabilities, else 0.")
CONSTANT = MetricFamily("cpcmon_input_constant", _OF_MODEL, "1 when recent outputs are all the same, else 0.")
REJECTED = MetricFamily("cpcmon_input_rejected_ratio", _OF_MODEL, "Share of recent records that were rejected. Absent before the first.")

FAMILIES: tuple[MetricFamily, ...] = (
    ACCURACY, LOWER, UPPER, ESTIMATE_SUM, ESTIMATE_COUNT, LOWER_SUM, UPPER_SUM, DISAGREEMENT, CHANCE_DISAGREEMENT, THRESHOLD,
    FIRING, PENDING, HELD, SINCE, RECORDS, VALID, STATE, FRESH, MINIMUM, LAST_RECORD, LAST_VALID, LAST_EVALUATION,
    SET_SIZE, SET_EMPTY, PREDICTED, REFERENCE, REFERENCE_ACCURACY, TEMPERATURE, REFERENCE_CONFIDENCE,
    REFERENCE_PREDICTED, SEGMENTS, SEGMENTS_LIMIT, DEGRADED, ONE_HOT, CONSTANT, REJECTED,
)
"""In the order of the page."""
# fmt: on

MAX_CLASSES = 50
"""Models with more classes show no shares of classes: it limits the size of the page."""

_FINGERPRINT_CHARACTERS = 12


class PrometheusSink:
    """Keeps the last report of each model as text. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, Mapping[str, str]] = {}
        """By model, then by family."""
        self._page: bytes | None = b""

    def publish(self, report: Report) -> None:
        """Replace the series of a model."""
        texts = _Writer(report).texts()
        with self._lock:
            self._texts[report.model] = texts
            self._page = None

    def forget(self, model: str) -> None:
        """Remove the series of a model."""
        with self._lock:
            self._texts.pop(model, None)
            self._page = None

    def close(self) -> None:
        """Do nothing: the last page stays available."""

    def page(self) -> bytes:
        """Return all series in the text format 0.0.4."""
        with self._lock:
            if self._page is None:
                self._page = "".join(self._family(family) for family in FAMILIES).encode()
            return self._page

    def _family(self, family: MetricFamily) -> str:
        # The format wants all series of a family together, of all models.
        texts = "".join(self._texts[model].get(family.name, "") for model in sorted(self._texts))
        return family.header() + texts if texts else ""


class _Writer:
    """Writes the lines of one report."""

    def __init__(self, report: Report) -> None:
        self._lines: dict[str, list[str]] = {}
        self._model = f"model={quoted(label_value(report.model))}"
        self._classes = _class_labels(report.reference)
        self._write_model(report)
        for segment in report.segments:
            self._write_segment(segment)

    def texts(self) -> dict[str, str]:
        """Return the lines by family."""
        return {name: "".join(lines) for name, lines in self._lines.items()}

    def _add(self, family: MetricFamily, labels: str, value: float | None) -> None:
        # NaN would spread to every average over the series.
        if value is not None and math.isfinite(value):
            line = f"{family.name}{{{labels}}} {float(value)!r}\n"
            self._lines.setdefault(family.name, []).append(line)

    def _write_model(self, report: Report) -> None:
        model, seen = self._model, report.input
        self._add(LAST_EVALUATION, model, report.at)
        self._add(SEGMENTS, model, sum(1 for one in report.segments if one.segment))
        self._add(SEGMENTS_LIMIT, model, report.most_segments)
        self._add(MINIMUM, model, report.minimum_records)
        self._add(DEGRADED, model, seen.degraded)
        self._add(ONE_HOT, model, seen.one_hot)
        self._add(CONSTANT, model, seen.constant)
        self._add(REJECTED, model, seen.rejected_share)
        if report.reference is not None:
            self._add(REFERENCE, self._about(report.reference), 1)
            self._add(REFERENCE_ACCURACY, model, report.reference.accuracy)
            self._add(TEMPERATURE, model, report.reference.temperature)
            self._add(REFERENCE_CONFIDENCE, model, report.reference.confidence)
            self._write_shares(REFERENCE_PREDICTED, report.reference.predicted, model)

    def _about(self, reference: ReferenceFacts) -> str:
        created, version = quoted(label_value(reference.created)), quoted(label_value(reference.version))
        fingerprint = quoted(label_value(reference.fingerprint[:_FINGERPRINT_CHARACTERS]))
        return (
            f'classes="{len(reference.classes)}",created={created},fingerprint={fingerprint},{self._model},'
            f'records="{reference.records}",version={version}'
        )

    def _write_segment(self, segment: SegmentReport) -> None:
        labels = f"{self._model},segment={quoted(segment_label(segment.segment))}"
        self._add(RECORDS, labels, segment.records)
        self._add(VALID, labels, segment.valid)
        for state in WindowState:
            self._add(STATE, f'{labels},state="{state}"', state is segment.state)
        self._add(LAST_RECORD, labels, segment.last_record_at)
        self._add(LAST_VALID, labels, segment.last_valid_at)
        for alert in segment.alerts:
            self._write_alert(alert, labels)
        # Where one estimator failed, the results of the others still hold.
        has_results = segment.state in {WindowState.OK, WindowState.ERROR}
        if has_results:
            self._write_findings(segment, labels)
        if segment.parts:
            self._add(FRESH, labels, segment.fresh)
        # Parts are reported for shared models; otherwise they are the estimates themselves.
        for estimator, part in (segment.parts or (segment.estimates() if has_results else {})).items():
            self._write_part(part, f"estimator={quoted(label_value(estimator))},{labels}", shared=bool(segment.parts))

    def _write_findings(self, segment: SegmentReport, labels: str) -> None:
        for estimator, result in segment.results.items():
            self._write_result(result, f"estimator={quoted(label_value(estimator))},{labels}")
        self._add(DISAGREEMENT, labels, segment.disagreement)
        self._add(CHANCE_DISAGREEMENT, labels, segment.chance_disagreement)
        self._write_shares(PREDICTED, segment.predicted, labels)

    def _write_shares(self, family: MetricFamily, predicted: tuple[int, ...], labels: str) -> None:
        total = sum(predicted)
        if total and len(predicted) == len(self._classes):
            for name, count in zip(self._classes, predicted, strict=True):
                self._add(family, f"class={name},{labels}", count / total)

    def _write_result(self, result: Result, labels: str) -> None:
        if isinstance(result, Estimate):
            self._add(ACCURACY, labels, result.accuracy)
            if result.interval is not None:
                self._add(LOWER, labels, result.interval.lower)
                self._add(UPPER, labels, result.interval.upper)
        if result.prediction_sets is not None:
            self._add(SET_SIZE, labels, result.prediction_sets.mean_size)
            self._add(SET_EMPTY, labels, result.prediction_sets.empty_share)

    def _write_part(self, part: Estimate, labels: str, *, shared: bool) -> None:
        self._add(ESTIMATE_SUM, labels, part.total)
        self._add(ESTIMATE_COUNT, labels, part.records)
        if shared and part.interval is not None:
            self._add(LOWER_SUM, labels, part.interval.lower * part.records)
            self._add(UPPER_SUM, labels, part.interval.upper * part.records)

    def _write_alert(self, alert: AlertStatus, segment: str) -> None:
        name, severity = f"alert={quoted(label_value(alert.alert))}", f'severity="{alert.severity}"'
        labels = f"{name},{segment},{severity}"
        self._add(FIRING, labels, alert.firing)
        self._add(PENDING, labels, alert.phase is AlertPhase.PENDING)
        self._add(HELD, labels, alert.held)
        if alert.phase is not AlertPhase.OK:
            self._add(SINCE, labels, alert.since)
        if alert.kind is AlertType.ACCURACY and alert.estimator is not None:
            estimator = f"estimator={quoted(label_value(alert.estimator))}"
            self._add(THRESHOLD, f"{name},{estimator},{segment},{severity}", alert.threshold)


def _class_labels(reference: ReferenceFacts | None) -> tuple[str, ...]:
    if reference is None or len(reference.classes) > MAX_CLASSES:
        return ()
    return tuple(quoted(label_value(name)) for name in reference.classes)
