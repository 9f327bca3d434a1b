"""The last reports as a metrics page for Prometheus.

The lines of a model are written when its report is published, its labels once for each window. prometheus_client would take
a tenth of a second for ten thousand series, at every scrape. A test compares the page with that of the library.
"""

import math
import threading
from collections.abc import Mapping

from monitor.core.alerts import AlertPhase, AlertStatus, AlertType
from monitor.core.estimate import Estimate, Result, WindowState
from monitor.core.label_values import label_value, quoted, segment_label
from monitor.core.report import ModelReport, ReferenceFacts, SegmentReport
from monitor.sinks import report_families as of
from monitor.sinks.report_families import FAMILIES, MetricFamily

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

    def publish(self, report: ModelReport) -> None:
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

    def __init__(self, report: ModelReport) -> None:
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

    def _write_model(self, report: ModelReport) -> None:
        model, seen = self._model, report.input
        self._add(of.LAST_EVALUATION, model, report.at)
        self._add(of.SEGMENTS, model, sum(1 for one in report.segments if one.segment))
        self._add(of.SEGMENTS_LIMIT, model, report.most_segments)
        self._add(of.MINIMUM, model, report.minimum_records)
        self._add(of.DEGRADED, model, seen.degraded)
        self._add(of.ONE_HOT, model, seen.one_hot)
        self._add(of.CONSTANT, model, seen.constant)
        self._add(of.REJECTED, model, seen.rejected_share)
        if report.reference is not None:
            self._add(of.REFERENCE, self._about(report.reference), 1)
            self._add(of.REFERENCE_ACCURACY, model, report.reference.accuracy)
            self._add(of.TEMPERATURE, model, report.reference.temperature)
            self._add(of.REFERENCE_CONFIDENCE, model, report.reference.confidence)
            self._write_shares(of.REFERENCE_PREDICTED, report.reference.predicted, model)

    def _about(self, reference: ReferenceFacts) -> str:
        created, version = quoted(label_value(reference.created)), quoted(label_value(reference.version))
        fingerprint = quoted(label_value(reference.fingerprint[:_FINGERPRINT_CHARACTERS]))
        return (
            f'classes="{len(reference.classes)}",created={created},fingerprint={fingerprint},{self._model},'
            f'records="{reference.records}",version={version}'
        )

    def _write_segment(self, segment: SegmentReport) -> None:
        labels = f"{self._model},segment={quoted(segment_label(segment.segment))}"
        self._add(of.RECORDS, labels, segment.records)
        self._add(of.VALID, labels, segment.valid)
        for state in WindowState:
            self._add(of.STATE, f'{labels},state="{state}"', state is segment.state)
        self._add(of.LAST_RECORD, labels, segment.last_record_at)
        self._add(of.LAST_VALID, labels, segment.last_valid_at)
        for alert in segment.alerts:
            self._write_alert(alert, labels)
        # Where one estimator failed, the results of the others still hold.
        has_results = segment.state in {WindowState.OK, WindowState.ERROR}
        if has_results:
            self._write_findings(segment, labels)
        if segment.parts:
            self._add(of.FRESH, labels, segment.fresh)
        # Parts are reported for shared models; otherwise they are the estimates themselves.
        for estimator, part in (segment.parts or (segment.estimates() if has_results else {})).items():
            self._write_part(part, f"estimator={quoted(label_value(estimator))},{labels}", shared=bool(segment.parts))

    def _write_findings(self, segment: SegmentReport, labels: str) -> None:
        for estimator, result in segment.results.items():
            self._write_result(result, f"estimator={quoted(label_value(estimator))},{labels}")
        self._add(of.DISAGREEMENT, labels, segment.disagreement)
        self._add(of.CHANCE_DISAGREEMENT, labels, segment.chance_disagreement)
        self._write_shares(of.PREDICTED, segment.predicted, labels)

    def _write_shares(self, family: MetricFamily, predicted: tuple[int, ...], labels: str) -> None:
        total = sum(predicted)
        if total and len(predicted) == len(self._classes):
            for name, count in zip(self._classes, predicted, strict=True):
                self._add(family, f"class={name},{labels}", count / total)

    def _write_result(self, result: Result, labels: str) -> None:
        if isinstance(result, Estimate):
            self._add(of.ACCURACY, labels, result.accuracy)
            if result.interval is not None:
                self._add(of.LOWER, labels, result.interval.lower)
                self._add(of.UPPER, labels, result.interval.upper)
        if result.prediction_sets is not None:
            self._add(of.SET_SIZE, labels, result.prediction_sets.mean_size)
            self._add(of.SET_EMPTY, labels, result.prediction_sets.empty_share)

    def _write_part(self, part: Estimate, labels: str, *, shared: bool) -> None:
        self._add(of.ESTIMATE_SUM, labels, part.total)
        self._add(of.ESTIMATE_COUNT, labels, part.records)
        if shared and part.interval is not None:
            self._add(of.LOWER_SUM, labels, part.interval.lower * part.records)
            self._add(of.UPPER_SUM, labels, part.interval.upper * part.records)

    def _write_alert(self, alert: AlertStatus, segment: str) -> None:
        name, severity = f"alert={quoted(label_value(alert.alert))}", f'severity="{alert.severity}"'
        labels = f"{name},{segment},{severity}"
        self._add(of.FIRING, labels, alert.firing)
        self._add(of.PENDING, labels, alert.phase is AlertPhase.PENDING)
        self._add(of.HELD, labels, alert.held)
        if alert.phase is not AlertPhase.OK:
            self._add(of.SINCE, labels, alert.since)
        if alert.kind is AlertType.ACCURACY and alert.estimator is not None:
            estimator = f"estimator={quoted(label_value(alert.estimator))}"
            self._add(of.THRESHOLD, f"{name},{estimator},{segment},{severity}", alert.threshold)


def _class_labels(reference: ReferenceFacts | None) -> tuple[str, ...]:
    if reference is None or len(reference.classes) > MAX_CLASSES:
        return ()
    return tuple(quoted(label_value(name)) for name in reference.classes)
