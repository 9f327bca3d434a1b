"""The page of a model's reference: its records, how well it is calibrated, and its fingerprint."""

from collections.abc import Mapping
from dataclasses import dataclass

from monitor.core.estimate import share_interval
from monitor.reference.reference import Reference
from monitor.reference.summary import ReliabilityBin
from monitor.web.charts.small_charts import reliability
from monitor.web.pages.rendering import render
from monitor.web.server.request import Response
from monitor.web.site import Site

_NEAR_ONE = 0.05
"""A temperature this near to 1 makes no visible difference."""
MOST_CLASSES = 200


@dataclass(frozen=True, slots=True)
class ClassCountRow:
    """The counts of a class in the reference."""

    name: str
    records: int
    right: int
    predicted: int


def reference_page(site: Site, query: Mapping[str, str]) -> Response | None:
    """Return the page that the query names; None for a model without a reference."""
    reference = site.reference(query.get("name", ""))
    if reference is None:
        return None
    calibration, summary = reference.calibration, reference.summary
    level = calibration.intervals.level
    raw, scaled = summary.reliability, summary.reliability_scaled
    has_bins = any(one.records for one in raw)
    empty = tuple(ReliabilityBin(0, 0, 0.0) for _ in raw)
    classes = _classes(reference)
    return render(
        site,
        "reference.html",
        title=f"Reference of {reference.model}",
        here="/reference",
        reference=reference,
        calibration=calibration,
        summary=summary,
        level=f"{level:.0%}",
        interval=share_interval(calibration.right, calibration.records, level),
        temperature=f"T = {calibration.temperature:.2f}",
        temperature_words=temperature_words(calibration.temperature),
        warnings=list(summary.warnings().values()),
        chart=reliability(raw, scaled) if has_bins else None,
        bins=list(zip(raw, scaled if len(scaled) == len(raw) else empty, strict=True)),
        classes=classes[:MOST_CLASSES],
        class_count=len(classes),
    )


def temperature_words(temperature: float) -> str:
    """Describe what a temperature says about the model."""
    if abs(temperature - 1.0) <= _NEAR_ONE:
        return "the model means what it says"
    return f"the model is {'over' if temperature > 1.0 else 'under'}confident"


def _classes(reference: Reference) -> list[ClassCountRow]:
    """Return the classes in the model's order; when there are too many, the rarest first."""
    summary = reference.summary
    counts = zip(reference.classes, summary.class_records, summary.class_right, summary.class_predicted, strict=True)
    rows = [ClassCountRow(*one) for one in counts]
    return rows if len(rows) <= MOST_CLASSES else sorted(rows, key=lambda one: one.records)
