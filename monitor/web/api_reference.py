"""A model's reference as JSON: `/api/v1/reference?model=M`. `docs/api.md` lists every key."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from monitor.core.reference_summary import ReliabilityBin
from monitor.core.share import share_interval
from monitor.reference_file import Reference
from monitor.web.site import Site

VERSION = 1
"""Rises when a key changes its meaning or goes."""


def document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return what a model is judged by; None for a model that is not known, or has no reference."""
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
        "records": numbers.records,
        "right": numbers.right,
        "accuracy": numbers.accuracy,
        "lower": interval.lower,
        "upper": interval.upper,
        "level": numbers.intervals.level,
        "temperature": numbers.temperature,
        "calibration_error": summary.calibration_error,
        "calibration_error_scaled": summary.calibration_error_scaled,
        "warnings": [{"warning": concern, "sentence": text} for concern, text in summary.warnings().items()],
        "reliability": _bins(summary.reliability),
        "reliability_scaled": _bins(summary.reliability_scaled),
        "estimators": [one.form.name for one in numbers.estimators],
    }


def _bins(bins: Sequence[ReliabilityBin]) -> list[dict[str, Any]]:
    """Return the bins with their bounds; a mean of no records, and their accuracy, are null."""
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
