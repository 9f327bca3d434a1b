"""Offline estimation: for a window, or for a labelled pair of source and target."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from monitor.core.baselines.labelled_baselines import estimate_rows
from monitor.core.calibration import WindowEstimate, or_none
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimate import MINIMUM_RECORDS, NoEstimate, Why
from monitor.core.estimators import EmptySets
from monitor.core.estimators.ensemble import (
    Ensemble,
    Variants,
    by_confidence,
    calibrate_all,
    measure_vectors,
    weight_of,
)
from monitor.core.intervals import DEFAULT_LEVEL
from monitor.core.performance import (
    Metric,
    MixedShare,
    Performance,
    PerformanceGauge,
    Target,
    every_target,
    realised,
    targets,
)
from monitor.core.performance_calibration import calibrate_performance
from monitor.core.record_columns import Records
from monitor.core.scores import Integers, LabelledOutputs, Singles, label_outputs
from monitor.core.segments import Segment, rows_by_segment
from monitor.errors import InvalidInput, Problem, UsageError
from monitor.records.offline_files import accept_array, as_kind
from monitor.records.record_schema import OutputKind
from monitor.records.rejections import listed
from monitor.reference.reference import Reference

_TOGETHER = 256
"""Windows that are estimated in one call."""


def variants(*, doc_absolute: bool = False, empty_sets: str = EmptySets.TOP) -> Variants:
    """Return the variants of estimators for these options."""
    if empty_sets not in list(EmptySets):
        raise UsageError(f"empty_sets: expected one of {', '.join(EmptySets)}, found {empty_sets!r}")
    policy = EmptySets(empty_sets)
    chosen = {} if policy is EmptySets.TOP else {"cpc_acc": policy.value, "cpc_ac": policy.value}
    return chosen | ({"doc": "absolute"} if doc_absolute else {})


def estimate(
    reference: Reference,
    outputs: ArrayLike,
    *,
    kind: str = OutputKind.PROBS,
    doc_absolute: bool = False,
    empty_sets: str = EmptySets.TOP,
    minimum_records: int = MINIMUM_RECORDS,
    decided: ArrayLike | None = None,
    watch_classes: Sequence[str] = (),
) -> WindowEstimate:
    """Estimate the accuracy of a window of unlabelled outputs, an array of shape (records, classes).

    Raises InvalidInput for an invalid vector; `kind` is the output kind, as on the command line. With fewer than
    `minimum_records`, each result is a NoEstimate. `decided` are the decisions of the device, if the reference was made
    with such; records with None, which it referred to a person, are left out. Of more than 20 classes, those in
    `watch_classes` have metrics of their own.
    """
    by_records = reference.calibration.decision.by is DecidedBy.FIELD
    if by_records != (decided is not None):
        expected = "the decision of each record" if by_records else "none: the reference says how the device decides"
        raise UsageError(Problem("decided", expected, "none" if decided is None else "decisions"))
    if minimum_records < 1:
        raise UsageError(f"minimum_records: expected a number of records above 0, found {minimum_records}")
    batch = accept_array(outputs, kind=as_kind(kind), classes=reference.classes, decided=decided)
    chosen = variants(doc_absolute=doc_absolute, empty_sets=empty_sets)
    wanted = shown("watch_classes", reference.classes, watch_classes)
    return reference.calibration.estimate(batch.records.vectors, chosen, minimum_records, batch.records.decided, wanted)


def shown(where: str, classes: Sequence[str], watched: Sequence[str]) -> tuple[Target, ...]:
    """Return the metrics that are estimated; raises UsageError for a watched class that does not exist."""
    if unknown := [name for name in watched if name not in classes]:
        raise UsageError(Problem(where, f"one of the classes {listed(tuple(classes))}", repr(unknown[0])))
    chosen = [list(classes).index(name) for name in dict.fromkeys(watched)]
    wanted = targets(len(classes), chosen, asked=True)
    return tuple(one for one in wanted if not chosen or one.of_class is None or one.of_class in chosen)


def estimate_windows(
    reference: Reference,
    records: Records,
    window: int | None,
    chosen: Variants,
    minimum_records: int,
    wanted: Sequence[Target] = (),
) -> Iterator[WindowEstimate]:
    """Yield the estimates of all records, or of each successive window; the last may be shorter."""
    step = window or max(1, len(records))
    pieces = [slice(start, start + step) for start in range(0, max(1, len(records)), step)]
    for first in range(0, len(pieces), _TOGETHER):
        some = pieces[first : first + _TOGETHER]
        decided = None if records.decided is None else [records.decided[piece] for piece in some]
        vectors = [records.vectors[piece] for piece in some]
        yield from reference.calibration.estimate_each(vectors, chosen, minimum_records, decided, wanted)


def estimate_segments(
    reference: Reference, records: Records, split_by: Sequence[Sequence[str]], minimum_records: int
) -> dict[Segment, WindowEstimate]:
    """Return the estimates of each segment, corrected where the reference has a labelled baseline of it."""
    calibration = reference.calibration
    rows = {segment: some for names in split_by for segment, some in rows_by_segment(names, records.fields)}
    rows = {segment: rows[segment] for segment in sorted(rows)}
    enough = [segment for segment, some in rows.items() if len(some) >= minimum_records]
    found: dict[Segment, WindowEstimate] = {}
    if enough:
        estimates = estimate_rows(calibration, records, [rows[segment] for segment in enough])
        if calibration.segments is not None:
            estimates = calibration.segments.corrected(estimates, enough)
        found = {segment: estimates.window(place) for place, segment in enumerate(enough)}
    for segment in rows.keys() - set(enough):
        none = NoEstimate(Why.TOO_FEW_RECORDS, len(rows[segment]), minimum_records=minimum_records)
        found[segment] = WindowEstimate(none.records, dict.fromkeys(calibration.names, none), None, None)
    return {segment: found[segment] for segment in rows}


class Compared(NamedTuple):
    """A metric, or the share of a class, of a labelled target."""

    estimate: Performance | MixedShare | None
    """None for a class that the source does not have."""
    realised: float | None
    reference: float | None

    @property
    def value(self) -> float | None:
        """The estimate; None where it cannot be said."""
        return None if self.estimate is None else self.estimate.value

    @property
    def error(self) -> float | None:
        """The absolute error of the estimate."""
        return _apart(self.value, self.realised)

    @property
    def reference_error(self) -> float | None:
        """The absolute error of repeating the value of the reference."""
        return _apart(self.reference, self.realised)


def _apart(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else abs(one - other)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Estimates for a labelled target, from a labelled source."""

    source_accuracy: float
    target_accuracy: float
    temperature: float
    estimates: Mapping[str, float | None]
    disagreement: float | None
    classes: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    performance: Mapping[Target, Compared] = field(default_factory=dict)
    """Every metric, also of many classes; empty if they were not asked for."""
    class_mix: Sequence[Compared] = ()
    """By class; empty for many classes."""

    @property
    def shown(self) -> Mapping[Target, Compared]:
        """The metrics of the classes that are shown."""
        wanted = shown("watched", self.classes, self.watched) if self.performance else ()
        return {target: self.performance[target] for target in wanted}

    def error(self, name: str) -> float | None:
        """Return the absolute error of an estimator; None without an estimate."""
        return _apart(self.estimates.get(name), self.target_accuracy)

    def of_classes(self, metric: Metric) -> list[Compared]:
        """Return a metric of all classes, or of the watched ones, that have it; AUROC has no class."""
        return [
            one
            for target, one in (self.shown if self.watched else self.performance).items()
            if target.metric is metric
            and (metric is Metric.AUROC or target.of_class is not None)
            and one.realised is not None
        ]

    def class_mix_errors(self) -> tuple[float, float] | None:
        """Return the total variation error of the class mix, and that of repeating the reference's; None without one."""
        if not self.class_mix:
            return None
        estimated = sum(abs((one.value or 0.0) - (one.realised or 0.0)) for one in self.class_mix) / 2.0
        return estimated, sum(one.reference_error or 0.0 for one in self.class_mix) / 2.0


def evaluate(
    source: Records,
    target: Records,
    chosen: Variants,
    decision: Decision | None = None,
    *,
    classes: tuple[str, ...] = (),
    watched: Sequence[str] = (),
) -> Evaluation:
    """Estimate the accuracy of a target without its labels, and compare.

    With the names of the classes, metrics beyond accuracy and the class mix are compared too.
    """
    decision = decision or Decision()
    if source.labels is None or target.labels is None:
        raise InvalidInput("evaluate: expected labels in source and target, found none")
    if len(source.vectors) == 0 or len(target.vectors) == 0:
        raise InvalidInput("evaluate: expected at least one record in source and target, found none")
    labelled = label_outputs(source.vectors, source.labels, decided=decision.column(source.vectors, source.decided))
    ready = calibrate_all(labelled)
    decided = decision.column(target.vectors, target.decided)
    window = measure_vectors(ready, target.vectors, labelled.temperature, decided)
    ensemble = Ensemble(ready, chosen, weight_of(*by_confidence(labelled), labelled.correct))
    (accuracies, *_), _, disagreement = ensemble.estimate(window)
    decided = decision.taken(target.vectors, target.decided)
    metrics, mix = _compared(labelled, target.vectors, decided, target.labels) if classes else ({}, [])
    return Evaluation(
        source_accuracy=labelled.accuracy,
        target_accuracy=float(np.mean(decided == target.labels)),
        temperature=labelled.temperature,
        estimates={name: or_none(value) for name, value in zip(ensemble.names, accuracies[:, 0], strict=True)},
        disagreement=or_none(disagreement[0]),
        classes=classes,
        watched=tuple(watched),
        performance=metrics,
        class_mix=mix,
    )


def _compared(
    source: LabelledOutputs, vectors: Singles, decided: Integers, labels: Integers
) -> tuple[dict[Target, Compared], list[Compared]]:
    """Return all metrics of a target, and its class mix."""
    reference = calibrate_performance(source, DEFAULT_LEVEL, lambda _: None)
    wanted = every_target(reference.classes)
    expected = PerformanceGauge(reference, source.temperature, wanted).measured_vectors([vectors], [decided])
    known = realised(vectors, decided, labels), reference.own
    columns = [[or_none(value) for value in one.values(wanted)[0][:, 0]] for one in known]
    mixes = [(one.cases[:, 0] / one.records).tolist() for one in known]
    shares = expected.class_mix().window(0)
    return (
        {
            one.target: Compared(one, *beside)
            for one, *beside in zip(expected.estimates().window(0), *columns, strict=True)
        },
        [Compared(one, *beside) for one, *beside in zip(shares, *(mix[: len(shares)] for mix in mixes), strict=True)],
    )
