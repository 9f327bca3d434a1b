"""Offline estimation: for a window, or for a labelled pair of source and target."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from monitor.core.calibration import WindowEstimate, or_none
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.ensemble import Ensemble, Variants, calibrate_all, measure_vectors
from monitor.core.estimate import MINIMUM_RECORDS
from monitor.core.estimators import EmptySets
from monitor.core.record_columns import Records
from monitor.core.scores import label_outputs
from monitor.errors import InvalidInput, Problem, UsageError
from monitor.records.offline_files import accept_array, as_kind
from monitor.records.record_schema import OutputKind
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
) -> WindowEstimate:
    """Estimate the accuracy of a window of unlabelled outputs, an array of shape (records, classes).

    Raises InvalidInput for an invalid vector; `kind` is the output kind, as on the command line. With fewer than
    `minimum_records`, each result is a NoEstimate. `decided` are the decisions of the device, if the reference was made
    with such; records with None, which it referred to a person, are left out.
    """
    by_records = reference.calibration.decision.by is DecidedBy.FIELD
    if by_records != (decided is not None):
        expected = "the decision of each record" if by_records else "none: the reference says how the device decides"
        raise UsageError(Problem("decided", expected, "none" if decided is None else "decisions"))
    if minimum_records < 1:
        raise UsageError(f"minimum_records: expected a number of records above 0, found {minimum_records}")
    batch = accept_array(outputs, kind=as_kind(kind), classes=reference.classes, decided=decided)
    chosen = variants(doc_absolute=doc_absolute, empty_sets=empty_sets)
    return reference.calibration.estimate(batch.records.vectors, chosen, minimum_records, batch.records.decided)


def estimate_windows(
    reference: Reference, records: Records, window: int | None, chosen: Variants, minimum_records: int
) -> Iterator[WindowEstimate]:
    """Yield the estimates of all records, or of each successive window; the last may be shorter."""
    step = window or max(1, len(records))
    pieces = [slice(start, start + step) for start in range(0, max(1, len(records)), step)]
    for first in range(0, len(pieces), _TOGETHER):
        some = pieces[first : first + _TOGETHER]
        decided = None if records.decided is None else [records.decided[piece] for piece in some]
        vectors = [records.vectors[piece] for piece in some]
        yield from reference.calibration.estimate_each(vectors, chosen, minimum_records, decided)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Estimates for a labelled target, from a labelled source."""

    source_accuracy: float
    target_accuracy: float
    temperature: float
    estimates: Mapping[str, float | None]
    disagreement: float | None

    def error(self, name: str) -> float | None:
        """Return the absolute error of an estimator; None without an estimate."""
        value = self.estimates.get(name)
        return None if value is None else abs(value - self.target_accuracy)


def evaluate(source: Records, target: Records, chosen: Variants, decision: Decision | None = None) -> Evaluation:
    """Estimate the accuracy of a target without its labels, and compare."""
    decision = decision or Decision()
    if source.labels is None or target.labels is None:
        raise InvalidInput("evaluate: expected labels in source and target, found none")
    if len(source.vectors) == 0 or len(target.vectors) == 0:
        raise InvalidInput("evaluate: expected at least one record in source and target, found none")
    labelled = label_outputs(source.vectors, source.labels, decided=decision.column(source.vectors, source.decided))
    ready = calibrate_all(labelled)
    decided = decision.column(target.vectors, target.decided)
    window = measure_vectors(ready, target.vectors, labelled.temperature, decided)
    ensemble = Ensemble(ready, chosen)
    (accuracies, *_), _, disagreement = ensemble.estimate(window)
    realised = decision.taken(target.vectors, target.decided) == target.labels
    return Evaluation(
        source_accuracy=labelled.accuracy,
        target_accuracy=float(np.mean(realised)),
        temperature=labelled.temperature,
        estimates={name: or_none(value) for name, value in zip(ensemble.names, accuracies[:, 0], strict=True)},
        disagreement=or_none(disagreement[0]),
    )
