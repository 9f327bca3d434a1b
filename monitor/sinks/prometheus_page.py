"""The last reports as a metrics page for Prometheus.

Lines are written and compressed when a report is published, family by family from its columns; a scrape only joins them.
prometheus_client would take a tenth of a second for ten thousand series, at every scrape. A test compares the page with that
of the library.
"""

import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from monitor.config.config import SegmentSeries
from monitor.core.alerts import PHASES, AlertPhase, AlertType, Flags
from monitor.core.baselines.comparison import KINDS, VERDICTS
from monitor.core.baselines.output_drift import MEASURES
from monitor.core.estimate import HEADLINE, STATES
from monitor.core.estimators.ensemble import MEMBERS
from monitor.core.input_health import InputProblem
from monitor.core.intervals import FIELD_LEVELS
from monitor.core.labels.audit import share_columns
from monitor.core.labels.realised import FEWEST_CASES, LEVEL, SCOPES, LabelColumns, Scope
from monitor.core.labels.track_record import TrackSummary
from monitor.core.performance import Metric
from monitor.core.report import ReferenceFacts, Report, WindowReports
from monitor.core.scores import Floats, Integers
from monitor.core.segments import Segment, label_value, quoted, segment_label


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
_OF_CLASS = ("class", "model", "segment")
_OF_TARGET = ("class", "metric", "model", "segment")
_OF_ESTIMATOR = ("estimator", "model", "segment")
_OF_BASELINE = ("kind", "model", "segment")
_OF_MEASURE = ("measure", "model", "segment")
_OF_DIRECTION = ("direction", "model", "segment")
_OF_ALERT = ("alert", "model", "segment", "severity")
_OF_SCOPE = ("model", "scope", "segment")

# fmt: off
ACCURACY = MetricFamily("cpcmon_estimated_accuracy_ratio", _OF_ESTIMATOR, "Estimated accuracy, 0 to 1. Absent when the window has no estimate.")
LOWER = MetricFamily("cpcmon_estimated_accuracy_lower_ratio", _OF_ESTIMATOR, "Lower bound of the estimated accuracy. Covers sampling error only.")
UPPER = MetricFamily("cpcmon_estimated_accuracy_upper_ratio", _OF_ESTIMATOR, "Upper bound of the estimated accuracy. Covers sampling error only.")
FIELD_LOWER = MetricFamily("cpcmon_estimated_accuracy_field_lower_ratio", ("level", *_OF_SEGMENT), "Lower end of the field interval of the main estimate: the level says how many accuracies lay inside, in the real shifts that we tried.")
FIELD_UPPER = MetricFamily("cpcmon_estimated_accuracy_field_upper_ratio", ("level", *_OF_SEGMENT), "Upper end of the field interval of the main estimate: the level says how many accuracies lay inside, in the real shifts that we tried.")
SUMMED = MetricFamily("cpcmon_estimate_summed", _OF_ESTIMATOR, "Estimated accuracy times records, before it is clipped to 0 and 1. Sum it over replicas.")
LOWER_SUMMED = MetricFamily("cpcmon_estimate_lower_summed", _OF_ESTIMATOR, "Lower bound times records. Sum it over replicas. Only for models that replicas share.")
UPPER_SUMMED = MetricFamily("cpcmon_estimate_upper_summed", _OF_ESTIMATOR, "Upper bound times records. Sum it over replicas. Only for models that replicas share.")
ESTIMATE_RECORDS = MetricFamily("cpcmon_estimate_records", _OF_ESTIMATOR, "Records behind the estimate. Sum it over replicas.")
DISAGREEMENT = MetricFamily("cpcmon_estimator_disagreement_ratio", _OF_SEGMENT, "Highest minus lowest estimate among the members of the consensus.")
CHANCE_DISAGREEMENT = MetricFamily("cpcmon_estimator_chance_disagreement_ratio", _OF_SEGMENT, "Largest disagreement that sampling error explains.")
BASELINE = MetricFamily("cpcmon_baseline_accuracy_ratio", _OF_BASELINE, "Accuracy of the baseline that the window is compared with. Absent while it is collected.")
BASELINE_RECORDS = MetricFamily("cpcmon_baseline_records", _OF_BASELINE, "Records of the baseline. It grows while the baseline is collected.")
BASELINE_VERIFIED = MetricFamily("cpcmon_baseline_verified", _OF_BASELINE, "1 when the baseline has labels or an operator confirmed it, else 0.")
DRIFT = MetricFamily("cpcmon_output_drift", _OF_MEASURE, "Distance of the outputs from those of the baseline, 0 to 1. Absent when it is unknown.")
CHANCE_DRIFT = MetricFamily("cpcmon_output_drift_chance", _OF_MEASURE, "Largest distance of the outputs that sampling error explains.")
DRIFT_LIMIT = MetricFamily("cpcmon_output_drift_limit", _OF_MEASURE, "Distance above which the outputs have drifted.")
VERDICT = MetricFamily("cpcmon_window_verdict", ("model", "segment", "verdict"), "1 for the verdict of the comparison with the baseline. Absent for the others, and when nothing can be said.")
CHANGE = MetricFamily("cpcmon_change_evidence", _OF_DIRECTION, "Evidence that the accuracy changed, as a logarithm to base 10. Absent while a baseline is collected.")
CHANGE_THRESHOLD = MetricFamily("cpcmon_change_evidence_threshold", _OF_DIRECTION, "Evidence at which the alert fires, from its budget for false alarms, as a logarithm to base 10.")
CHANGE_TOLERANCE = MetricFamily("cpcmon_change_tolerance_ratio", _OF_DIRECTION, "Changes of the accuracy up to this are not looked for.")
CHANGE_STARTED = MetricFamily("cpcmon_change_started_timestamp_seconds", _OF_DIRECTION, "When the change most likely began. Absent without evidence of one.")
CHANGE_RECORDS = MetricFamily("cpcmon_change_records_since_start", _OF_DIRECTION, "Records since the change most likely began. Absent without evidence of one.")
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
PREDICTED = MetricFamily("cpcmon_predicted_class_ratio", _OF_CLASS, "Share of records predicted as the class. Absent for models of more than 50 classes.")
PERFORMANCE = MetricFamily("cpcmon_estimated_performance_ratio", _OF_TARGET, "Estimated metric of a class, or over all classes. Absent with too few cases.")
PERFORMANCE_LOWER = MetricFamily("cpcmon_estimated_performance_lower_ratio", _OF_TARGET, "Lower bound of the estimated metric. Covers sampling error only.")
PERFORMANCE_UPPER = MetricFamily("cpcmon_estimated_performance_upper_ratio", _OF_TARGET, "Upper bound of the estimated metric. Covers sampling error only.")
PERFORMANCE_THRESHOLD = MetricFamily("cpcmon_performance_threshold_ratio", ("alert", *_OF_TARGET, "severity"), "Threshold that an alert compares the estimated metric with.")
CLASS_SHARE = MetricFamily("cpcmon_estimated_class_ratio", _OF_CLASS, "Estimated share of records that truly are of the class, if nothing but the class mix changed.")
CLASS_LOWER = MetricFamily("cpcmon_estimated_class_lower_ratio", _OF_CLASS, "Lower bound of the estimated share of the class. Covers sampling error only.")
CLASS_UPPER = MetricFamily("cpcmon_estimated_class_upper_ratio", _OF_CLASS, "Upper bound of the estimated share of the class. Covers sampling error only.")
REFERENCE_PERFORMANCE = MetricFamily("cpcmon_reference_performance_ratio", ("class", "metric", "model"), "Metric on the reference.")
REFERENCE_CLASS = MetricFamily("cpcmon_reference_class_ratio", ("class", "model"), "Share of the reference that truly is of the class.")
CLASS_POSITION = MetricFamily("cpcmon_reference_class_position", ("class", "model"), "Place of the class in the order of the reference, from 0. Absent for models of more than 50 classes.")
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
PROBLEM = MetricFamily("cpcmon_input_problem", ("model", "problem"), "1 when the input of the model has the problem, else 0: docs/runbooks/input_problem.md.")
AUDITED = MetricFamily("cpcmon_audited_accuracy_ratio", _OF_SCOPE, "Accuracy of all records, from the labels of a random sample. Absent without such labels.")
AUDITED_LOWER = MetricFamily("cpcmon_audited_accuracy_lower_ratio", _OF_SCOPE, "Lower bound of the audited accuracy, whatever has shifted.")
AUDITED_UPPER = MetricFamily("cpcmon_audited_accuracy_upper_ratio", _OF_SCOPE, "Upper bound of the audited accuracy, whatever has shifted.")
AUDITED_LABELS = MetricFamily("cpcmon_audited_labels", _OF_SCOPE, "Labels that the audited accuracy rests on.")
AUDIT_PICKED = MetricFamily("cpcmon_audit_picked_records", _OF_SEGMENT, "Audited records whose labels are expected by now, labelled or not.")
AUDIT_CAME = MetricFamily("cpcmon_audit_labels_ratio", _OF_SEGMENT, "Share of the audited records whose labels came.")
REALISED = MetricFamily("cpcmon_realised_accuracy_ratio", _OF_SCOPE, "Accuracy of labelled cases, which are usually a biased choice. Absent without labels.")
REALISED_LOWER = MetricFamily("cpcmon_realised_accuracy_lower_ratio", _OF_SCOPE, "Lower bound of the accuracy of labelled cases.")
REALISED_UPPER = MetricFamily("cpcmon_realised_accuracy_upper_ratio", _OF_SCOPE, "Upper bound of the accuracy of labelled cases.")
LABELLED = MetricFamily("cpcmon_labelled_records", _OF_SCOPE, "Predictions with a label.")
LABELLED_SHARE = MetricFamily("cpcmon_labelled_ratio", _OF_SCOPE, "Share of the predictions that have a label. Absent without predictions.")
NEWEST_LABEL = MetricFamily("cpcmon_newest_label_timestamp_seconds", _OF_SEGMENT, "Time of the newest prediction that has a label. Absent before the first.")
LABELS_HELD = MetricFamily("cpcmon_labels_held", _OF_MODEL, "Labels that are kept, with or without their predictions.")
LABELS_JOINED = MetricFamily("cpcmon_labels_joined", _OF_MODEL, "Kept predictions that have a label.")
REALISED_PERFORMANCE = MetricFamily("cpcmon_realised_performance_ratio", _OF_TARGET, "Sensitivity or predictive value of a class, of labelled cases in the horizon. Absent with too few cases.")
REALISED_PERFORMANCE_LOWER = MetricFamily("cpcmon_realised_performance_lower_ratio", _OF_TARGET, "Lower bound of the metric of labelled cases.")
REALISED_PERFORMANCE_UPPER = MetricFamily("cpcmon_realised_performance_upper_ratio", _OF_TARGET, "Upper bound of the metric of labelled cases.")
TRACK_BLOCKS = MetricFamily("cpcmon_track_record_blocks", _OF_SEGMENT, "Blocks of records with enough labels to judge the estimates.")
TRACK_ERROR = MetricFamily("cpcmon_estimator_error_ratio", _OF_ESTIMATOR, "Mean absolute error of the estimator over these blocks.")
TRACK_COVERAGE = MetricFamily("cpcmon_estimator_interval_coverage_ratio", _OF_ESTIMATOR, "Share of these blocks in which the interval of the estimator held. Absent without intervals.")
TRACK_REALISED = MetricFamily("cpcmon_track_record_latest_realised_ratio", ("kind", *_OF_SEGMENT), "Accuracy of the latest of these blocks, by its labels.")
TRACK_ESTIMATED = MetricFamily("cpcmon_track_record_latest_estimated_ratio", _OF_SEGMENT, "What the main estimate said of that block.")
TRACK_ENDED = MetricFamily("cpcmon_track_record_latest_timestamp_seconds", _OF_SEGMENT, "Time of the newest record of that block.")
WRONG = MetricFamily("cpcmon_estimates_wrong", _OF_SEGMENT, "1 when the main estimate of that block was off by more than 1.75 times what its interval and that of the labels allow, else 0.")

FAMILIES: tuple[MetricFamily, ...] = (
    ACCURACY, LOWER, UPPER, FIELD_LOWER, FIELD_UPPER, SUMMED, ESTIMATE_RECORDS, LOWER_SUMMED, UPPER_SUMMED,
    DISAGREEMENT, CHANCE_DISAGREEMENT, BASELINE, BASELINE_RECORDS, BASELINE_VERIFIED, DRIFT, CHANCE_DRIFT, DRIFT_LIMIT, VERDICT,
    CHANGE, CHANGE_THRESHOLD, CHANGE_TOLERANCE, CHANGE_STARTED, CHANGE_RECORDS, THRESHOLD,
    AUDITED, AUDITED_LOWER, AUDITED_UPPER, AUDITED_LABELS, AUDIT_PICKED, AUDIT_CAME, REALISED, REALISED_LOWER, REALISED_UPPER,
    LABELLED, LABELLED_SHARE, NEWEST_LABEL, LABELS_HELD, LABELS_JOINED,
    REALISED_PERFORMANCE, REALISED_PERFORMANCE_LOWER, REALISED_PERFORMANCE_UPPER,
    TRACK_BLOCKS, TRACK_ERROR, TRACK_COVERAGE, TRACK_REALISED, TRACK_ESTIMATED, TRACK_ENDED, WRONG,
    FIRING, PENDING, HELD, SINCE, RECORDS, VALID, STATE, FRESH, MINIMUM, LAST_RECORD, LAST_VALID, LAST_EVALUATION,
    SET_SIZE, SET_EMPTY, PREDICTED, PERFORMANCE, PERFORMANCE_LOWER, PERFORMANCE_UPPER, PERFORMANCE_THRESHOLD,
    CLASS_SHARE, CLASS_LOWER, CLASS_UPPER, REFERENCE, REFERENCE_ACCURACY, TEMPERATURE, REFERENCE_CONFIDENCE,
    REFERENCE_PREDICTED, CLASS_POSITION, REFERENCE_PERFORMANCE, REFERENCE_CLASS, SEGMENTS, SEGMENTS_LIMIT, DEGRADED, ONE_HOT, CONSTANT, REJECTED,
    PROBLEM,
)
"""In the order of the page."""
# fmt: on

MAX_CLASSES = 50
"""Models with more classes show no shares of classes: it limits the size of the page."""

_FINGERPRINT_CHARACTERS = 12


_PENDING, _QUIET = PHASES.index(AlertPhase.PENDING), PHASES.index(AlertPhase.OK)

_HORIZON = SCOPES.index(Scope.HORIZON)
_REALISED_METRICS = (Metric.SENSITIVITY, Metric.PPV)
_CASES, _DECIDED, _RIGHT = range(3)
"""Counts of `LabelSums.classes`."""

_WINDOWS_AT_ONCE = 128
"""Lines are written for so many windows at a time, so that other threads wait for milliseconds only."""
_QUICK = 1


@dataclass(frozen=True, slots=True)
class PageText:
    """Compressed lines of one family: the plain page of thousands of windows takes tens of megabytes."""

    packed: bytes
    """Deflated, up to a full flush: packed texts can be joined."""
    size: int
    """Of the plain lines."""
    crc: int
    shift: int
    """Advances a CRC by this text; see `_advanced`."""

    @classmethod
    def of(cls, plain: bytes) -> "PageText":
        """Return compressed lines."""
        packer = zlib.compressobj(_QUICK, wbits=-zlib.MAX_WBITS)
        packed = packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)
        return cls(packed, len(plain), zlib.crc32(plain), _shift(len(plain)))


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """All series in the text format 0.0.4, compressed."""

    texts: tuple[PageText, ...] = ()
    size: int = 0
    """Of the plain page."""
    crc: int = 0
    """The CRC-32 of the plain page."""

    @classmethod
    def of(cls, texts: Sequence[PageText]) -> "MetricsPage":
        """Return the page of some texts."""
        crc = 0
        for one in texts:
            crc = _advanced(crc, one.shift) ^ one.crc
        return cls(tuple(texts), sum(one.size for one in texts), crc)

    def __bytes__(self) -> bytes:
        """Return the plain page."""
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(b"".join(one.packed for one in self.texts))


_CRC = 0xEDB88320
"""The polynomial of CRC-32, lowest power first."""


def _advanced(crc: int, shift: int) -> int:
    """Return the product of two polynomials modulo that of CRC-32.

    The CRC of two texts is that of the first times x to the bits of the second, plus that of the second; as in
    `crc32_combine` of zlib, which Python does not offer.
    """
    found = 0
    for bit in range(31, -1, -1):
        if shift >> bit & 1:
            found ^= crc
        crc = crc >> 1 ^ (_CRC if crc & 1 else 0)
    return found


def _shift(size: int) -> int:
    """Return x to the bits of a text of a size, modulo the polynomial of CRC-32."""
    found, power = 1 << 31, 1 << 23
    while size:
        if size & 1:
            found = _advanced(found, power)
        power = _advanced(power, power)
        size >>= 1
    return found


class PrometheusSink:
    """Keeps the last report of each model as text. Safe for use by several threads."""

    def __init__(self, segment_series: SegmentSeries = SegmentSeries.ALL) -> None:
        self.segment_series = segment_series
        """Used for the next reports."""
        self._lock = threading.Lock()
        self._texts: dict[str, Mapping[str, PageText]] = {}
        """By model, then by family."""
        self._headers = {family.name: PageText.of(family.header().encode()) for family in FAMILIES}
        self._labels: dict[str, dict[Segment, bytes]] = {}
        """By model, the labels of its windows."""
        self._page: MetricsPage | None = MetricsPage()

    def publish(self, report: Report) -> None:
        """Replace the series of a model."""
        windows = report.windows
        labels = _window_labels(report.model, windows.segments, self._labels.get(report.model, {}))
        texts = _Writer(report, windows, [labels[one] for one in windows.segments], self.segment_series).texts
        with self._lock:
            self._labels[report.model], self._texts[report.model] = labels, texts
            self._page = None

    def forget(self, model: str) -> None:
        """Remove the series of a model."""
        with self._lock:
            self._texts.pop(model, None)
            self._labels.pop(model, None)
            self._page = None

    def close(self) -> None:
        """Do nothing: the last page stays available."""

    def page(self) -> MetricsPage:
        """Return all series."""
        with self._lock:
            if self._page is None:
                self._page = MetricsPage.of([text for family in FAMILIES for text in self._family(family)])
            return self._page

    def _family(self, family: MetricFamily) -> list[PageText]:
        # The format wants all series of a family together, of all models.
        found = [self._texts[model].get(family.name) for model in sorted(self._texts)]
        texts = [text for text in found if text is not None]
        return [self._headers[family.name], *texts] if texts else []


def _window_labels(model: str, segments: Sequence[Segment], before: Mapping[Segment, bytes]) -> dict[Segment, bytes]:
    """Return the labels of each window; they never change."""
    start = f"model={quoted(label_value(model))},segment="
    return {one: before.get(one) or f"{start}{quoted(segment_label(one))}".encode() for one in segments}


class _Writer:
    """Writes the lines of one report."""

    def __init__(
        self, report: Report, windows: WindowReports, labels: Sequence[bytes], segment_series: SegmentSeries
    ) -> None:
        """`labels` are those of the windows."""
        self.texts: dict[str, PageText] = {}
        """By family."""
        self._model = f"model={quoted(label_value(report.model))}"
        self._labels = labels
        self._classes = _class_labels(report.reference)
        self._headline = HEADLINE if report.reference is None else report.reference.headline
        whole = np.array([segment_series is SegmentSeries.ALL or not one for one in windows.segments], dtype=np.bool_)
        self._in_full = whole
        """Windows with all estimators, and with what is 0."""
        self._write_model(report, windows)
        self._write_windows(windows)
        self._write_comparisons(windows)
        self._write_changes(windows)
        self._write_alerts(windows)
        self._write_results(windows)
        self._write_parts(windows)
        self._write_performance(report, windows)
        if windows.labels is not None:
            self._write_labels(report, windows.labels)
        if windows.track_records and report.reference is not None:
            headline = report.reference.headline
            self._write_track_records([one.summary(headline) for one in windows.track_records], windows)

    def _add(self, family: MetricFamily, labels: str, value: float | None) -> None:
        """Write one series."""
        number = np.full((1, 1), np.nan if value is None else float(value))
        self._add_columns(family, [(labels, "")], number, [b""])

    def _add_windows(
        self,
        family: MetricFamily,
        values: NDArray[np.float64 | np.integer[Any] | np.bool_],
        around: Sequence[tuple[str, str]] = (("", ""),),
        where: Flags | None = None,
        labels: Sequence[bytes] | None = None,
    ) -> None:
        """Write the series of all windows, those of one window together.

        A row of the values is for one label besides those of the window: `around` are the texts before and after those.
        """
        labels = self._labels if labels is None else labels
        rows = values.reshape(len(around), values.shape[-1]).astype(np.float64)
        if where is not None:
            rows = np.where(where, rows, np.nan)
        if (missing := len(labels) - rows.shape[1]) > 0:
            # What is only known of the first windows.
            rows = np.pad(rows, ((0, 0), (0, missing)), constant_values=np.nan)
        self._add_columns(family, around, rows, labels)

    def _add_columns(
        self, family: MetricFamily, around: Sequence[tuple[str, str]], rows: Floats, labels: Sequence[bytes]
    ) -> None:
        # NaN would spread to every average over the series.
        finite = np.isfinite(rows)
        starts = np.array([f"\n{family.name}{{{before}".encode() for before, _ in around], dtype=object)
        ends = np.array([f"{after}}} ".encode() for _, after in around], dtype=object)
        middles = np.array(labels, dtype=object)
        pieces = []
        for first in range(0, len(labels), _WINDOWS_AT_ONCE):
            block = slice(first, first + _WINDOWS_AT_ONCE)
            window, row = np.nonzero(finite[:, block].T)
            parts = np.empty(4 * len(row), dtype=object)
            parts[0::4], parts[1::4], parts[2::4] = starts[row], middles[block][window], ends[row]
            parts[3::4] = _written(rows[:, block].T[window, row])
            pieces.append(b"".join(parts.tolist()))
        plain = b"".join(pieces)
        if plain:
            self.texts[family.name] = PageText.of(plain[1:] + b"\n")

    def _write_model(self, report: Report, windows: WindowReports) -> None:
        model, seen = self._model, report.input
        self._add(LAST_EVALUATION, model, report.at)
        self._add(SEGMENTS, model, sum(1 for one in windows.segments if one))
        self._add(SEGMENTS_LIMIT, model, report.most_segments)
        self._add(MINIMUM, model, report.minimum_records)
        self._add(DEGRADED, model, seen.degraded)
        self._add(ONE_HOT, model, seen.one_hot)
        self._add(CONSTANT, model, seen.constant)
        self._add(REJECTED, model, seen.rejected_share)
        holding = {one.problem for one in seen.problems}
        problems = np.array([[one in holding] for one in InputProblem], dtype=np.float64)
        self._add_columns(PROBLEM, [("", f',problem="{one}"') for one in InputProblem], problems, [model.encode()])
        if report.reference is not None:
            self._add(REFERENCE, self._about(report.reference), 1)
            self._add(REFERENCE_ACCURACY, model, report.reference.accuracy)
            self._add(TEMPERATURE, model, report.reference.temperature)
            self._add(REFERENCE_CONFIDENCE, model, report.reference.confidence)
            shares = _shares(np.array([report.reference.predicted], dtype=np.int64))
            if len(shares) == len(self._classes):
                self._add_columns(REFERENCE_PREDICTED, self._of_classes(), shares, [model.encode()])
            places = np.arange(len(self._classes), dtype=np.float64)[:, None]
            self._add_columns(CLASS_POSITION, self._of_classes(), places, [model.encode()])

    def _about(self, reference: ReferenceFacts) -> str:
        created, version = quoted(label_value(reference.created)), quoted(label_value(reference.version))
        fingerprint = quoted(label_value(reference.fingerprint[:_FINGERPRINT_CHARACTERS]))
        return (
            f'classes="{len(reference.classes)}",created={created},fingerprint={fingerprint},{self._model},'
            f'records="{reference.records}",version={version}'
        )

    def _write_windows(self, windows: WindowReports) -> None:
        self._add_windows(RECORDS, windows.records)
        self._add_windows(VALID, windows.valid)
        states = np.arange(len(STATES))[:, None] == windows.states
        around = [("", f',state="{state}"') for state in STATES]
        self._add_windows(STATE, states, around, states | self._in_full)
        self._add_windows(LAST_RECORD, windows.last_record_at)
        self._add_windows(LAST_VALID, windows.last_valid_at)

    def _write_comparisons(self, windows: WindowReports) -> None:
        found = windows.comparisons
        if found is None:
            return
        # One row for each kind: a window has a value in that of its own.
        kinds = np.arange(1, len(KINDS))[:, None] == found.kinds
        around = [(f'kind="{kind}",', "") for kind in KINDS[1:]]
        for family, column in (
            (BASELINE, found.accuracy),
            (BASELINE_RECORDS, found.records),
            (BASELINE_VERIFIED, found.verified),
        ):
            self._add_windows(family, np.broadcast_to(column, kinds.shape), around, kinds)
        around = [(f'measure="{measure}",', "") for measure in MEASURES]
        self._add_windows(DRIFT, found.distance, around, windows.has_results)
        self._add_windows(CHANCE_DRIFT, found.chance, around, windows.has_results)
        self._add_windows(DRIFT_LIMIT, found.limit, around, windows.has_results)
        verdicts = np.arange(1, len(VERDICTS))[:, None] == found.verdicts
        self._add_windows(VERDICT, verdicts, [("", f',verdict="{one}"') for one in VERDICTS[1:]], verdicts)

    def _write_changes(self, windows: WindowReports) -> None:
        found = windows.changes
        if found is None:
            return
        around = [(f'direction="{one}",', "") for one in found.directions]
        known, thresholds = np.isfinite(found.evidence), np.array(found.thresholds)[:, None]
        self._add_windows(CHANGE, found.evidence, around)
        self._add_windows(CHANGE_THRESHOLD, np.broadcast_to(thresholds, known.shape), around, known)
        self._add_windows(CHANGE_TOLERANCE, found.tolerance, around, known)
        # Evidence of a change that is over may be gone before its alert ends.
        begun = found.evidence > 0.0
        for row, direction in enumerate(found.directions):
            alerts = [place for place, one in enumerate(windows.alerts.quiet) if one.direction is direction]
            begun[row] |= known[row] & windows.alerts.firing[alerts].any(axis=0)
        self._add_windows(CHANGE_STARTED, found.began_at, around, begun)
        self._add_windows(CHANGE_RECORDS, found.records_since, around, begun)

    def _write_alerts(self, windows: WindowReports) -> None:
        alerts = windows.alerts
        names = [f"alert={quoted(label_value(one.alert))}," for one in alerts.quiet]
        severities = [f',severity="{one.severity}"' for one in alerts.quiet]
        around = list(zip(names, severities, strict=True))
        self._add_windows(FIRING, alerts.firing, around, alerts.applies)
        pending = alerts.phases == _PENDING
        self._add_windows(PENDING, pending, around, alerts.applies & (pending | self._in_full))
        self._add_windows(HELD, alerts.held, around, alerts.applies & (alerts.held | self._in_full))
        self._add_windows(SINCE, alerts.since, around, alerts.active)
        rows = [row for row, one in enumerate(alerts.quiet) if one.kind is AlertType.ACCURACY and one.estimator]
        estimators = {row: f"estimator={quoted(label_value(alerts.quiet[row].estimator or ''))}," for row in rows}
        around = [(names[row] + estimators[row], severities[row]) for row in rows]
        self._add_windows(THRESHOLD, alerts.threshold[rows], around, alerts.applies[rows])
        rows = [row for row, one in enumerate(alerts.quiet) if one.metric is not None]
        around = [
            (names[row] + _of_metric(one.metric, one.of_class), severities[row])
            for row, one in ((row, alerts.quiet[row]) for row in rows)
        ]
        self._add_windows(PERFORMANCE_THRESHOLD, alerts.threshold[rows], around, alerts.applies[rows])

    def _write_results(self, windows: WindowReports) -> None:
        found, where = windows.estimates, windows.has_results
        around = self._of_estimators(windows)
        estimated = where & (found.why == 0) & self._shown(found.names, windows)
        self._add_windows(ACCURACY, found.accuracy, around, estimated)
        self._add_windows(LOWER, found.lower, around, estimated)
        self._add_windows(UPPER, found.upper, around, estimated)
        levels = [(f'level="{level}",', "") for level in FIELD_LEVELS]
        self._add_windows(FIELD_LOWER, found.field[:, 0], levels, where)
        self._add_windows(FIELD_UPPER, found.field[:, 1], levels, where)
        self._add_windows(SET_SIZE, found.set_size, around, where & self._in_full)
        self._add_windows(SET_EMPTY, found.empty_share, around, where & self._in_full)
        self._add_windows(DISAGREEMENT, found.disagreement, where=where)
        self._add_windows(CHANCE_DISAGREEMENT, found.chance_disagreement, where=where)
        shares = _shares(windows.predicted)
        if len(shares) == len(self._classes):
            self._add_windows(PREDICTED, shares, self._of_classes(), where & self._in_full)

    def _write_performance(self, report: Report, windows: WindowReports) -> None:
        """Write what the model exports beyond accuracy."""
        facts = report.reference
        if facts is None or facts.performance is None:
            return
        reference, found, where = facts.performance, windows.performance, windows.has_results
        names = [None if one.of_class is None else facts.classes[one.of_class] for one in report.exported]
        around = [(_of_metric(one.metric, name), "") for one, name in zip(report.exported, names, strict=True)]
        # None becomes NaN.
        own = np.array([[reference.value(one)] for one in report.exported], dtype=np.float64).reshape(-1, 1)
        self._add_columns(REFERENCE_PERFORMANCE, around, own, [self._model.encode()])
        if found is not None and report.exported:
            estimates = found.estimates(report.exported)
            self._add_windows(PERFORMANCE, estimates.value, around, where)
            self._add_windows(PERFORMANCE_LOWER, estimates.lower, around, where)
            self._add_windows(PERFORMANCE_UPPER, estimates.upper, around, where)
        if not report.exports_class_mix or not self._classes:
            return
        shares = (reference.cases / max(1, reference.records))[:, None]
        self._add_columns(REFERENCE_CLASS, self._of_classes(), shares, [self._model.encode()])
        if found is not None:
            mix = found.class_mix()
            self._add_windows(CLASS_SHARE, mix.value, self._of_classes(), where)
            self._add_windows(CLASS_LOWER, mix.lower, self._of_classes(), where)
            self._add_windows(CLASS_UPPER, mix.upper, self._of_classes(), where)

    def _write_labels(self, report: Report, found: LabelColumns) -> None:
        """Write what labels say, of the windows that have records now."""
        sums = found.sums
        self._add(LABELS_HELD, self._model, found.held)
        self._add(LABELS_JOINED, self._model, found.joined)
        self._add_scopes(REALISED, found.accuracy)
        self._add_scopes(REALISED_LOWER, found.lower)
        self._add_scopes(REALISED_UPPER, found.upper)
        self._add_scopes(LABELLED, sums.labels)
        self._add_scopes(LABELLED_SHARE, _share_of(sums.labels, sums.records))
        self._add_windows(NEWEST_LABEL, sums.newest_at)
        if found.audited is not None and sums.audit is not None:
            self._add_scopes(AUDITED, found.audited.value)
            self._add_scopes(AUDITED_LOWER, found.audited.lower)
            self._add_scopes(AUDITED_UPPER, found.audited.upper)
            self._add_scopes(AUDITED_LABELS, sums.audit.labels)
            self._add_windows(AUDIT_PICKED, sums.picked[_HORIZON])
            self._add_windows(AUDIT_CAME, _share_of(sums.audit.labels[_HORIZON], sums.picked[_HORIZON]))
        shown = [one for one in report.exported if one.metric in _REALISED_METRICS and one.of_class is not None]
        if report.reference is None or not shown or len(report.reference.classes) != sums.classes.shape[2]:
            return
        names = [report.reference.classes[one.of_class or 0] for one in shown]
        targets = [(_of_metric(one.metric, name), "") for one, name in zip(shown, names, strict=True)]
        rows = [_CASES if one.metric is Metric.SENSITIVITY else _DECIDED for one in shown]
        cases = np.stack([sums.classes[:, row, one.of_class] for row, one in zip(rows, shown, strict=True)])
        right = np.stack([sums.classes[:, _RIGHT, one.of_class] for one in shown])
        shares = share_columns(right, cases, LEVEL, among=cases >= FEWEST_CASES)
        families = (REALISED_PERFORMANCE, REALISED_PERFORMANCE_LOWER, REALISED_PERFORMANCE_UPPER)
        for family, column in zip(families, shares, strict=True):
            self._add_windows(family, column, targets)

    def _add_scopes(self, family: MetricFamily, values: Floats | Integers) -> None:
        # As everywhere, labels are in the order of the alphabet: scope is between model and segment.
        model = f"{self._model},"
        around, only = [(f'{model}scope="{one}",', "") for one in SCOPES], len(model.encode())
        self._add_windows(family, values, around, labels=[one[only:] for one in self._labels])

    def _write_track_records(self, summaries: Sequence[TrackSummary], windows: WindowReports) -> None:
        """Write how far off the estimates have been, of windows with judged blocks."""
        blocks = np.array([one.blocks for one in summaries])
        self._add_windows(TRACK_BLOCKS, blocks)
        judged = np.flatnonzero(blocks).tolist()
        names = tuple(dict.fromkeys(name for place in judged for name in summaries[place].estimators))
        errors, coverage = np.full((2, len(names), len(summaries)), np.nan)
        latest = np.full((3, len(summaries)), np.nan)
        audited = np.zeros(len(summaries), dtype=np.bool_)
        rows = {name: row for row, name in enumerate(names)}
        for place in judged:
            summary = summaries[place]
            for name, one in summary.estimators.items():
                errors[rows[name], place] = one.mean_absolute_error
                coverage[rows[name], place] = np.nan if one.coverage is None else one.coverage
            if (block := summary.latest) is not None and block.truth is not None:
                estimated = block.answers[self._headline][0] if self._headline in block.answers else np.nan
                latest[:, place] = block.truth.value, estimated, block.ended_at
                audited[place] = block.truth.audited
        around = [(f"estimator={quoted(label_value(name))},", "") for name in names]
        shown = self._shown(names, windows)[:, : len(summaries)]
        self._add_windows(TRACK_ERROR, errors, around, shown)
        self._add_windows(TRACK_COVERAGE, coverage, around, shown)
        kinds = [('kind="audited",', ""), ('kind="labelled_cases",', "")]
        self._add_windows(TRACK_REALISED, np.stack([latest[0]] * 2), kinds, np.stack([audited, ~audited]))
        self._add_windows(TRACK_ESTIMATED, latest[1])
        self._add_windows(TRACK_ENDED, latest[2])
        self._add_windows(WRONG, np.array([one.wrong for one in summaries]), where=np.isfinite(latest[1]))

    def _write_parts(self, windows: WindowReports) -> None:
        """Write what can be added up over replicas: the parts of shared models, otherwise the results themselves."""
        found, part = windows.estimates, windows.part
        around = self._of_estimators(windows)
        self._add_windows(FRESH, windows.fresh, where=part)
        shown = self._shown(found.names, windows)
        # Rules merge the members into the consensus and its disagreement, on which the field interval depends.
        members = np.array([name in MEMBERS for name in found.names], dtype=np.bool_)[:, None]
        where = (part | windows.has_results) & (found.why == 0) & (shown | (members & part))
        self._add_windows(SUMMED, found.records * found.unclipped, around, where)
        self._add_windows(ESTIMATE_RECORDS, np.broadcast_to(found.records, found.why.shape), around, where)
        self._add_windows(LOWER_SUMMED, found.lower * found.records, around, where & part & shown)
        self._add_windows(UPPER_SUMMED, found.upper * found.records, around, where & part & shown)

    def _shown(self, names: Sequence[str], windows: WindowReports) -> Flags:
        """Return which estimators are written for which windows: a row for each estimator."""
        alerts = windows.alerts
        shown = np.tile(self._in_full, (len(names), 1))
        for row, name in enumerate(names):
            if name == self._headline:
                shown[row] = True
            for place, alert in enumerate(alerts.quiet):
                if alert.estimator == name:
                    shown[row] |= alerts.applies[place]
        return shown

    def _of_estimators(self, windows: WindowReports) -> list[tuple[str, str]]:
        return [(f"estimator={quoted(label_value(name))},", "") for name in windows.estimates.names]

    def _of_classes(self) -> list[tuple[str, str]]:
        return [(f"class={name},", "") for name in self._classes]


def _of_metric(metric: Metric | None, of_class: str | None) -> str:
    """Return the labels of a metric; without a class, it is of all."""
    return f"class={quoted(label_value(of_class or ''))},metric={quoted(str(metric))},"


def _share_of(part: Integers, whole: Integers) -> Floats:
    """Return shares; NaN of nothing."""
    shares: Floats = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return shares


def _shares(predicted: Integers) -> Floats:
    """Return the share of each class, a row for each; NaN without predictions."""
    totals = predicted.sum(axis=1)
    shares: Floats = np.divide(predicted.T, totals, out=np.full(predicted.T.shape, np.nan), where=totals > 0)
    return shares


def _written(values: Floats) -> list[bytes]:
    """Return finite numbers as text, as `repr` does, but many times faster."""
    texts = msgspec.json.encode(values.tolist())[1:-1].split(b",") if len(values) else []
    sizes = np.abs(values)
    # Python writes these with an exponent.
    for place in np.flatnonzero((sizes >= 1e16) | ((sizes < 1e-4) & (sizes > 0.0))).tolist():
        texts[place] = repr(float(values[place])).encode()
    return texts


def _class_labels(reference: ReferenceFacts | None) -> tuple[str, ...]:
    if reference is None or len(reference.classes) > MAX_CLASSES:
        return ()
    return tuple(quoted(label_value(name)) for name in reference.classes)
