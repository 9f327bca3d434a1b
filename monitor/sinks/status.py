"""The last reports as JSON, for programs that would rather not read a metrics page: `/api/v1/status`.

`docs/api.md` lists every key. They are all always there, as null where there is nothing to say.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from monitor.core.alerts import AlertStatus
from monitor.core.estimate import Estimate, Result
from monitor.core.report import ModelReport, SegmentReport

VERSION = 1
"""Rises when a key changes its meaning or goes."""


def status_document(reports: Mapping[str, ModelReport], facts: Mapping[str, Any]) -> bytes:
    """Return what is known now; `facts` are of the daemon itself."""
    models = [_model(reports[name]) for name in sorted(reports)]
    return msgspec.json.encode({"version": VERSION, **facts, "models": models})


def _model(report: ModelReport) -> dict[str, Any]:
    reference, look = report.reference, report.input
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
        },
        "input": {
            "rejected_share": look.rejected_share,
            "degraded": look.degraded,
            "one_hot": look.one_hot,
            "constant": look.constant,
            "hints": look.hints,
        },
        "failed_estimators": dict(report.errors),
        "segments_limit": report.most_segments,
        # One at a time: thousands of them at once would keep the other threads waiting, and take much memory.
        "segments": [msgspec.Raw(msgspec.json.encode(_segment(one))) for one in report.segments],
    }


def _segment(report: SegmentReport) -> dict[str, Any]:
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
        "disagreement": report.disagreement,
        "chance_disagreement": report.chance_disagreement,
        "predicted": report.predicted,
        "alerts": [_alert(one) for one in report.alerts],
    }


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
        "threshold": alert.threshold,
        "value": alert.value,
    }
