"""The JSON API, `/api/v1/…`. `docs/api.md` lists every key. Every key is always present; unknown values are null."""

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import msgspec
import numpy as np

from monitor.core.alerts import AlertPhase, AlertStatus
from monitor.core.baselines.comparison import Baseline, BaselineKind, ClassChange, OutputDrift
from monitor.core.baselines.labelled_baselines import SegmentBaselines
from monitor.core.estimate import HEADLINE, Estimate, Result, share_interval
from monitor.core.history import Series, Span
from monitor.core.input_health import FoundProblem
from monitor.core.intervals import by_level
from monitor.core.labels.realised import RealisedAccuracy, RealisedClass, ScopeLabels, SegmentLabels
from monitor.core.labels.track_record import Block, BlockTruth, TrackRecord
from monitor.core.performance import MixedShare, Performance
from monitor.core.report import ReferenceFacts, Report, SegmentReport
from monitor.core.scores import Floats
from monitor.core.segments import ALL, name_of
from monitor.evaluation.alert_history import GONE, Transition
from monitor.reference.reference import Reference
from monitor.reference.summary import ReliabilityBin
from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.pages.wording import problem_words
from monitor.web.site import Site, SourceView

VERSION = 1
"""Increases when a key changes its meaning or is removed."""


def status_document(reports: Mapping[str, Report], sources: Sequence[SourceView], facts: Mapping[str, Any]) -> bytes:
    """Return the last reports and the sources; `facts` describe the daemon itself."""
    models = [_model(reports[name]) for name in sorted(reports)]
    shown = [_source(one) for one in sources]
    return msgspec.json.encode({"version": VERSION, **facts, "sources": shown, "models": models})


def _source(one: SourceView) -> dict[str, Any]:
    status = one.status
    return {
        "source": status.name,
        "type": status.type_name,
        "ready": status.waits_for is None,
        "waits_for": status.waits_for,
        "unread_bytes": status.lag.bytes,
        "unread_files": status.lag.files,
        "oldest_unread_at": status.lag.oldest_unread,
        "rebuilding": status.lag.rebuilding,
        "records": one.records,
        "rejected": one.rejected,
        "partitions": None if status.shards is None else status.shards.assigned,
    }


def _model(report: Report) -> dict[str, Any]:
    reference, records = report.reference, report.input
    classes, headline = ((), HEADLINE) if reference is None else (reference.classes, reference.headline)
    return {
        "model": report.model,
        "evaluated_at": report.at,
        "evaluation_seconds": report.seconds,
        "reference": None
        if reference is None
        else {
            "version": reference.version,
            "created": reference.created,
            "fingerprint": reference.fingerprint,
            "classes": reference.classes,
            "records": reference.records,
            "accuracy": reference.accuracy,
            "temperature": reference.temperature,
            "decides": reference.decision.text(reference.classes),
            "headline": reference.headline,
        },
        "input": {
            "rejected_share": records.rejected_share,
            "degraded": records.degraded,
            "one_hot": records.one_hot,
            "constant": records.constant,
            "hints": records.hints,
            "referred": records.referred,
            "problems": [_problem(one) for one in records.problems],
        },
        "failed_estimators": dict(report.errors),
        "segments_limit": report.most_segments,
        # Encoded one at a time: thousands at once would block other threads and take much memory.
        "segments": [
            msgspec.Raw(msgspec.json.encode(_segment(one, classes, headline))) for one in report.without_performance()
        ],
    }


def _problem(one: FoundProblem) -> dict[str, Any]:
    return {
        "problem": one.problem,
        "since": one.since,
        "names": one.names,
        "value": one.value,
        "sentence": problem_words(one),
    }


def _segment(report: SegmentReport, classes: Sequence[str], headline: str) -> dict[str, Any]:
    return {
        "segment": report.name,
        "fields": dict(report.segment),
        "state": report.state,
        "state_since": report.state_since,
        "valid": report.valid,
        "records": report.records,
        "last_record_at": report.last_record_at,
        "last_valid_at": report.last_valid_at,
        "estimators": {name: _result(result) for name, result in report.results.items()},
        "field": by_level(report.field),
        "disagreement": report.disagreement,
        "chance_disagreement": report.chance_disagreement,
        "predicted": report.predicted,
        "verdict": report.verdict,
        "baseline": None if report.baseline is None else _baseline(report.baseline),
        "drift": [_drift(one) for one in report.drift],
        "changed_class": None if report.changed_class is None else _changed_class(report.changed_class, classes),
        "changes": [one._asdict() for one in report.changes],
        "alerts": [_alert(one) for one in report.alerts],
        "labels": None if report.labels is None else _labels(report.labels),
        "track_record": None if report.track_record is None else _track_record(report.track_record, headline),
    }


def _labels(found: SegmentLabels) -> dict[str, Any]:
    return {
        "window": _scope(found.window),
        "horizon": _scope(found.horizon),
        "newest_at": found.newest_at,
        "delay_seconds": found.delay_seconds,
    }


def _scope(found: ScopeLabels) -> dict[str, Any]:
    audited = found.audited
    return {
        "records": found.records,
        "labels": found.labels,
        "realised": _bounded(found.realised),
        "audited": None
        if audited is None
        else {
            "value": audited.value,
            "lower": audited.lower,
            "upper": audited.upper,
            "labels": audited.labels,
            "records": audited.records,
            "picked": audited.picked,
            "came": audited.came,
            "from": audited.began_at,
            "to": audited.ended_at,
            "powered": audited.powered,
        },
    }


def _bounded(found: RealisedAccuracy | BlockTruth | None) -> dict[str, float] | None:
    return None if found is None else {"value": found.value, "lower": found.lower, "upper": found.upper}


def _track_record(record: TrackRecord, headline: str) -> dict[str, Any]:
    found = record.summary(headline)
    return {
        "judged": found.blocks,
        "estimators": {name: one._asdict() for name, one in found.estimators.items()},
        "best": found.best,
        "latest": None if found.latest is None else _block(found.latest, {headline}),
        "wrong": found.wrong,
    }


def _block(one: Block, names: Container[str]) -> dict[str, Any]:
    """Return a block, with the answers of some estimators."""
    return {
        "from": one.began_at,
        "to": one.ended_at,
        "records": one.records,
        "labels": 0 if one.truth is None else one.truth.labels,
        "audited": None if one.truth is None else one.truth.audited,
        "realised": _bounded(one.truth),
        "estimates": {
            name: {"value": value, "lower": lower, "upper": upper}
            for name, (value, lower, upper) in one.answers.items()
            if name in names
        },
    }


def labels_document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return what labels say of a window, also by class and block; None for an unknown model or segment."""
    model, segment = query.get("model", ""), query.get("segment", name_of(ALL))
    report = site.reports().get(model)
    if report is None or segment not in report.windows.names:
        return None
    window, facts = report.segments[report.windows.names.index(segment)], report.reference
    labels, record = window.labels, window.track_record
    headline, classes = (HEADLINE, ()) if facts is None else (facts.headline, facts.classes)
    return msgspec.json.encode(
        {
            "version": VERSION,
            "model": model,
            "segment": segment,
            "evaluated_at": report.at,
            "labels": None if labels is None else _labels(labels),
            "classes": [] if labels is None else list(map(_realised_class, classes, labels.classes)),
            "track_record": None if record is None else _track_record(record, headline),
            "blocks": [] if record is None else [_block(record[place], record.names) for place in range(len(record))],
        }
    )


def _realised_class(name: str, found: RealisedClass) -> dict[str, Any]:
    return {
        "class": name,
        "cases": found.cases,
        "decided": found.decided,
        "sensitivity": _bounded(found.sensitivity),
        "ppv": _bounded(found.ppv),
    }


def _baseline(one: Baseline) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "accuracy": one.accuracy,
        "records": one.records,
        "needed": one.needed if one.kind is BaselineKind.OWN else None,
        "from": one.first_at,
        "to": one.last_at,
        "verified": one.verified,
    }


def _drift(one: OutputDrift) -> dict[str, Any]:
    return {**one._asdict(), "drifted": one.drifted}


def _changed_class(one: ClassChange, classes: Sequence[str]) -> dict[str, Any]:
    return {"class": classes[one.class_index], "before": one.before, "now": one.now}


def _result(result: Result) -> dict[str, Any]:
    sets = result.prediction_sets
    found = {
        "set_size": None if sets is None else sets.mean_size,
        "empty_sets": None if sets is None else sets.empty_share,
    }
    if isinstance(result, Estimate):
        bounds = {"lower": None, "upper": None} if result.interval is None else result.interval._asdict()
        return {"accuracy": result.accuracy, **bounds, "reason": None, **found}
    return {"accuracy": None, "lower": None, "upper": None, "reason": result.why, **found}


def _alert(alert: AlertStatus) -> dict[str, Any]:
    return {
        "alert": alert.alert,
        "type": alert.kind,
        "severity": alert.severity,
        "phase": alert.phase,
        "firing": alert.firing,
        "since": alert.since or None,
        "held": alert.held,
        "estimator": alert.estimator,
        "metric": alert.metric,
        "class": alert.of_class,
        "threshold": alert.threshold,
        "value": alert.value,
        "baseline": alert.baseline,
        "direction": alert.direction,
    }


_ROWS = 100
"""Of the alert history, unless the query has a limit."""


def alerts_document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return the alerts that are not quiet, and the alert history; None for an unknown model or segment, or no number."""
    reports, rows = site.reports(), site.alert_rows()
    model, segment, limit = query.get("model"), query.get("segment"), query.get("limit", str(_ROWS))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10) or (
        model is not None and model not in reports.keys() | rows.keys()
    ):
        return None
    active = [
        {"model": report.model, "segment": name, **_alert(alert)}
        for report in reports.values()
        for window in np.flatnonzero(report.windows.alerts.active.any(axis=0)).tolist()
        for name in (report.windows.names[window],)
        for alert in report.windows.alerts.window(window)
        if alert.phase is not AlertPhase.OK and model in {None, report.model} and segment in {None, name}
    ]
    found = [
        (name, row)
        for name, its in rows.items()
        for row in its
        if model in {None, name} and segment in {None, row.segment}
    ]
    known = (one.windows.names for name, one in reports.items() if model in {None, name})
    if segment is not None and not found and not any(segment in names for names in known):
        return None
    found.sort(key=lambda one: one[1].at)
    # Rows of one evaluation have one time: the later ones first, too.
    newest = found[::-1][: int(limit)]
    return msgspec.json.encode(
        {
            "version": VERSION,
            "alerts": active,
            "rows": len(found),
            "history": [_transition(name, row) for name, row in newest],
        }
    )


def _transition(model: str, row: Transition) -> dict[str, Any]:
    return {
        "model": model,
        "segment": row.segment,
        "alert": row.alert,
        "type": row.kind,
        "severity": row.severity,
        "at": row.at,
        "from": row.before,
        "to": row.after or GONE,
        "since": row.since or None,
        "seconds": row.seconds,
        "value": row.value,
        "threshold": row.threshold,
        "accuracy": row.accuracy,
        "records": row.records,
    }


def performance_document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return the estimates of a window beyond accuracy; None for an unknown model or segment."""
    model, segment = query.get("model", ""), query.get("segment", name_of(ALL))
    report = site.reports().get(model)
    if report is None or segment not in report.windows.names:
        return None
    window = report.segments[report.windows.names.index(segment)]
    facts = report.reference
    return msgspec.json.encode(
        {
            "version": VERSION,
            "model": model,
            "segment": segment,
            "evaluated_at": report.at,
            "state": window.state,
            "records": window.records,
            "performance": [] if facts is None else [_performance(one, facts) for one in window.performance],
            "class_mix": [] if facts is None else _class_mix(window.class_mix, facts),
        }
    )


def _performance(one: Performance, reference: ReferenceFacts) -> dict[str, Any]:
    target, own = one.target, reference.performance
    return {
        "metric": target.metric,
        "class": None if target.of_class is None else reference.classes[target.of_class],
        "value": one.value,
        **({"lower": None, "upper": None} if one.interval is None else one.interval._asdict()),
        "cases": one.cases if isfinite(one.cases) else None,
        "why": one.why,
        "reference": None if own is None else own.value(target),
    }


def _class_mix(mix: Sequence[MixedShare | None], reference: ReferenceFacts) -> list[dict[str, Any]]:
    own = reference.performance
    shares = [None] * len(mix) if own is None else (own.cases / own.records).tolist()
    bounds = {"lower": None, "upper": None}
    return (
        [
            {
                "class": name,
                "value": None if one is None else one.value,
                **(bounds if one is None else one.interval._asdict()),
                "reference": share,
            }
            for name, one, share in zip(reference.classes, mix, shares, strict=True)
        ]
        if mix
        else []
    )


def configuration_document(site: Site, query: Mapping[str, str]) -> bytes | None:  # noqa: ARG001  all documents share a signature
    """Return every setting in force, in the order of the file; hidden ones have no value."""
    return msgspec.json.encode({"version": VERSION, "settings": [_setting(one) for one in site.settings()]})


def _setting(one: Setting) -> dict[str, Any]:
    hidden = one.value == HIDDEN
    return {"path": one.path, "value": None if hidden else one.value, "hidden": hidden, "line": one.line}


_DIGITS = 6
"""History is stored in single precision; more digits would be noise."""


def history_document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return the history of a window; None for an unknown model, segment or span."""
    model, segment = query.get("model", ""), query.get("segment", name_of(ALL))
    series = None
    with suppress(ValueError):
        span = Span(query.get("span", Span.RECENT))
        series = site.history(model, segment, span)
    if series is None:
        return None
    return msgspec.json.encode(
        {
            "version": VERSION,
            "model": model,
            "segment": segment,
            "span": span,
            "step_seconds": series.step_seconds,
            **_columns(series),
        }
    )


def _columns(series: Series) -> dict[str, Any]:
    return {
        "at": series.at.tolist(),
        "state": series.states,
        "accuracy": _numbers(series.accuracy),
        "lower": _numbers(series.lower),
        "upper": _numbers(series.upper),
        "lowest": _numbers(series.lowest),
        "disagreement": _numbers(series.disagreement),
        "evidence": [None] * len(series) if series.evidence is None else _numbers(series.evidence),
        "records": series.records.tolist(),
        "reference": [one or None for one in series.references or [""] * len(series)],
    }


def _numbers(column: Floats) -> list[float | None]:
    return [round(value, _DIGITS) if isfinite(value) else None for value in column.tolist()]


def reference_document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return the reference of a model; None for an unknown model or one without a reference."""
    reference = site.reference(query.get("model", ""))
    return None if reference is None else msgspec.json.encode({"version": VERSION, **_reference(reference)})


def _reference(reference: Reference) -> dict[str, Any]:
    numbers, summary = reference.calibration, reference.summary
    interval = share_interval(numbers.right, numbers.records, numbers.intervals.level)
    classes = zip(reference.classes, summary.class_records, summary.class_right, summary.class_predicted, strict=True)
    return {
        "model": reference.model,
        "model_version": reference.version,
        "created": reference.created,
        "fingerprint": reference.fingerprint,
        "classes": [
            {"class": name, "records": records, "right": right, "predicted": predicted}
            for name, records, right, predicted in classes
        ],
        "decides": numbers.decision.text(reference.classes),
        "records": numbers.records,
        "right": numbers.right,
        "accuracy": numbers.accuracy,
        "lower": interval.lower,
        "upper": interval.upper,
        "level": numbers.intervals.level,
        "temperature": numbers.temperature,
        "calibration_error": summary.calibration_error,
        "calibration_error_scaled": summary.calibration_error_scaled,
        "warnings": [{"warning": concern, "sentence": text} for concern, text in reference.warnings().items()],
        "reliability": _bins(summary.reliability),
        "reliability_scaled": _bins(summary.reliability_scaled),
        "estimators": [one.form.name for one in numbers.estimators],
        "headline": numbers.headline,
        "adaptive_weight": numbers.adaptive_weight,
        "segments": [] if numbers.segments is None else _labelled(numbers.segments, numbers.headline),
    }


def _labelled(baselines: SegmentBaselines, headline: str) -> list[dict[str, Any]]:
    """Return the labelled baselines of a reference."""
    bias = baselines.bias[baselines.names.index(headline)].tolist()
    return [
        {
            "segment": name_of(one.segment),
            "records": one.records,
            "right": one.right,
            "accuracy": one.accuracy,
            "bias": off,
        }
        for one, off in zip(map(baselines.__getitem__, baselines.segments), bias, strict=True)
    ]


def _bins(bins: Sequence[ReliabilityBin]) -> list[dict[str, Any]]:
    """Return the bins with their bounds; confidence and accuracy of an empty bin are null."""
    return [
        {
            "from": place / len(bins),
            "to": (place + 1) / len(bins),
            "records": one.records,
            "right": one.right,
            "confidence": one.confidence if one.records else None,
            "accuracy": one.right / one.records if one.records else None,
        }
        for place, one in enumerate(bins)
    ]


def rejects_document(site: Site, _query: Mapping[str, str]) -> bytes | None:
    """Return the counts, and where the latest rejected records are."""
    rejects = site.rejects()
    counts = [
        {"source": source, "reason": reason, "records": count}
        for (source, reason), count in sorted(rejects.counts.items())
    ]
    latest = [
        {
            "at": at,
            "source": source,
            "origin": origin,
            "reason": pointer.reason,
            "number": pointer.number,
            "offset": pointer.offset,
            "length": pointer.length,
            "digest": pointer.digest,
            "shape": pointer.shape,
            "expected": pointer.expected,
        }
        for at, source, origin, pointer in rejects.latest
    ]
    return msgspec.json.encode({"version": VERSION, "counts": counts, "latest": latest})
