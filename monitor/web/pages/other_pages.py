"""The pages of rejected records, of the configuration, and of a reference."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from monitor.core.baselines.labelled_baselines import LabelledBaseline
from monitor.core.calibration import or_none
from monitor.core.estimate import share_interval
from monitor.core.performance import OF_CLASSES, Target
from monitor.core.segments import name_of
from monitor.reference.reference import Reference
from monitor.reference.summary import ReliabilityBin
from monitor.settings.kinds import HIDDEN, Setting
from monitor.web.charts.small_charts import reliability
from monitor.web.pages.rendering import render
from monitor.web.server.request import Response
from monitor.web.site import Site

MOST_POINTERS = 200
"""Rejected records that are shown; the state holds a few hundred."""
MOST_COUNTS = 500
"""Pairs of a source and a reason that are shown."""


def rejects_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return counts, reasons with a remedy, and pointers. Never the content of a record."""
    rejects = site.rejects()
    counts = sorted(
        ((source, reason, count) for (source, reason), count in rejects.counts.items() if count),
        key=lambda one: (-one[2], one[0], one[1]),
    )
    return render(
        site,
        "rejects.html",
        title="Rejects",
        here="/rejects",
        counts=counts[:MOST_COUNTS],
        total=sum(count for *_, count in counts),
        more_counts=len(counts) - MOST_COUNTS,
        latest=rejects.latest[:MOST_POINTERS],
        more_latest=len(rejects.latest) - MOST_POINTERS,
    )


MOST_SETTINGS = 5000
"""Shown; a file of hundreds of models has more."""
_TOP = re.compile(r"[^.\[]*(?:\[\d+\])?")


def configuration_page(site: Site, _: Mapping[str, str]) -> Response:
    """Return every setting in force, given in the file or assumed."""
    settings = site.settings()
    shown = settings[:MOST_SETTINGS]
    return render(
        site,
        "configuration.html",
        title="Configuration",
        here="/configuration",
        hidden=HIDDEN,
        sections=[_section(path, list(group)) for path, group in groupby(shown, key=_top)],
        more=len(settings) - len(shown),
    )


def _top(setting: Setting) -> str:
    """Return the section of a setting, one for each entry of a list: `models[0]`."""
    found = _TOP.match(setting.path)
    return setting.path if found is None else found.group()


def _section(path: str, settings: Sequence[Setting]) -> dict[str, Any]:
    return {
        "path": path,
        "name": next((one.value for one in settings if one.path == f"{path}.name"), None),
        "rows": [(one.path[len(path) + 1 :] or one.path, one) for one in settings],
        "given": sum(one.line is not None for one in settings),
    }


MOST_CLASSES = 200
MOST_SEGMENTS = 200
_NEAR_ONE = 0.05
"""A temperature this near to 1 makes no visible difference."""


def reference_page(site: Site, query: Mapping[str, str]) -> Response | None:
    """Return the records, the calibration and the fingerprint of a reference; None for a model without one."""
    reference = site.reference(query.get("name", ""))
    if reference is None:
        return None
    calibration, summary = reference.calibration, reference.summary
    level = calibration.intervals.level
    raw, scaled = summary.reliability, summary.reliability_scaled
    empty = tuple(ReliabilityBin(0, 0, 0.0) for _ in raw)
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
        warnings=list(reference.warnings().values()),
        chart=reliability(raw, scaled) if any(one.records for one in raw) else None,
        bins=list(zip(raw, scaled if len(scaled) == len(raw) else empty, strict=True)),
        classes=_classes(reference)[:MOST_CLASSES],
        class_count=len(reference.classes),
        performance=_performance(reference),
        segments=_segments(reference)[:MOST_SEGMENTS],
        segment_count=0 if calibration.segments is None else len(calibration.segments),
    )


def temperature_words(temperature: float) -> str:
    """Describe what a temperature says about the model."""
    if abs(temperature - 1.0) <= _NEAR_ONE:
        return "the model means what it says"
    return f"the model is {'over' if temperature > 1.0 else 'under'}confident"


def _performance(reference: Reference) -> list[tuple[str, list[float | None]]]:
    """Return the metrics of each class on the reference, then of all; the rarest classes if there are too many.

    Empty if the reference is of an older version.
    """
    own = reference.calibration.performance
    if own is None:
        return []
    rarest = sorted(range(own.classes), key=lambda one: (int(own.cases[one]), one))[:MOST_CLASSES]
    shown: list[int | None] = [*(range(own.classes) if own.classes <= MOST_CLASSES else rarest), None]
    values, _ = own.own.values([Target(metric, one) for one in shown for metric in OF_CLASSES])
    rows = values[:, 0].reshape(len(shown), len(OF_CLASSES)).tolist()
    names = ["macro average" if one is None else reference.classes[one] for one in shown]
    return [(name, [or_none(value) for value in row]) for name, row in zip(names, rows, strict=True)]


def _segments(reference: Reference) -> list[tuple[str, LabelledBaseline, str]]:
    """Return name, labelled baseline and bias of the headline of the segments, the least accurate first."""
    numbers = reference.calibration
    if numbers.segments is None:
        return []
    bias = numbers.segments.bias[numbers.segments.names.index(numbers.headline)].tolist()
    rows = [
        (name_of(one), numbers.segments[one], f"{100.0 * off:+.1f}")
        for one, off in zip(numbers.segments.segments, bias, strict=True)
    ]
    return sorted(rows, key=lambda row: (row[1].accuracy, row[0]))


def _classes(reference: Reference) -> list[tuple[str, int, int, int]]:
    """Return name, records, correct and predicted of the classes; when there are too many, the rarest first."""
    summary = reference.summary
    rows = [*zip(reference.classes, summary.class_records, summary.class_right, summary.class_predicted, strict=True)]
    return rows if len(rows) <= MOST_CLASSES else sorted(rows, key=lambda one: one[1])
