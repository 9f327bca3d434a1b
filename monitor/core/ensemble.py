"""All estimators together: calibration on a reference, estimation for a window."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from monitor.core.estimate import Estimate, NoEstimate, Result, Why
from monitor.core.estimators import ESTIMATORS, Estimator, Form
from monitor.core.estimators.base import Means
from monitor.core.scores import Floats, LabelledOutputs, Outputs

Failed = Callable[[str, Exception], None]
"""Called with the name and error of an estimator that failed. Without it, a failure is raised."""

Variants = Mapping[str, str]
"""Which variant of an estimator to use, by its name: `{"cpc_ac": "skip"}`."""


@dataclass(frozen=True, slots=True)
class CalibratedEstimator:
    """A calibrated estimator."""

    form: Form
    estimator: Estimator


def calibrate_all(reference: LabelledOutputs) -> tuple[CalibratedEstimator, ...]:
    """Calibrate every estimator, raw and scaled, in its default variant."""
    return tuple(
        CalibratedEstimator(form, member.family.calibrate(reference, scaled=form.scaled))
        for member in ESTIMATORS
        for form in member.forms()
        if form.variant is None
    )


def with_variants(ready: Iterable[CalibratedEstimator]) -> tuple[CalibratedEstimator, ...]:
    """Return each estimator in all its variants."""
    return tuple(choose(one, variant) for one in ready for variant in (None, *one.form.member.variants))


def choose(ready: CalibratedEstimator, variant: str | None) -> CalibratedEstimator:
    """Return an estimator in another variant."""
    if variant is None:
        return ready
    fields = ready.form.member.variants[variant]
    return CalibratedEstimator(replace(ready.form, variant=variant), replace(cast("Any", ready.estimator), **fields))


class Measured(Protocol):
    """A measured window, as the estimators need it."""

    @property
    def records(self) -> int:
        """Number of records."""
        ...

    def mean_confidence(self, *, scaled: bool) -> float:
        """Return the mean confidence, raw or scaled, of a window of at least one record."""
        ...

    def means(self, one: CalibratedEstimator) -> Means:
        """Return the means of an estimator's contributions."""
        ...


@dataclass(frozen=True, slots=True)
class MeasuredRecords:
    """A window measured from its records."""

    records: int
    confidence: tuple[float, float]
    sums: Mapping[str, Floats]

    def mean_confidence(self, *, scaled: bool) -> float:
        """Return the mean confidence."""
        return self.confidence[int(scaled)]

    def means(self, one: CalibratedEstimator) -> Means:
        """Return the means of an estimator's contributions."""
        return [float(total) / self.records for total in self.sums[one.form.name]]


def measure(ready: Iterable[CalibratedEstimator], blocks: Callable[[], Iterable[Outputs]]) -> MeasuredRecords:
    """Measure the window whose records `blocks` yields at each call.

    The first pass finds the window's mean confidence, which sets the threshold of `cpc_ac`; the second does the rest.
    """
    records, confidence = 0, np.zeros(2)
    for block in blocks():
        records += block.records
        confidence += [block.raw.confidence.sum(), block.scaled.confidence.sum()]
    if records == 0:
        return MeasuredRecords(0, (0.0, 0.0), {})
    raw, scaled = (float(total) / records for total in confidence)
    # Variants of a form share their sums.
    summed = {one.form.name: one for one in ready}
    sums: dict[str, Any] = dict.fromkeys(summed, 0.0)
    for block in blocks():
        for name, one in summed.items():
            scores = block.scores(scaled=one.form.scaled)
            rows = one.estimator.contributions(scores, scaled if one.form.scaled else raw)
            sums[name] += np.add.reduce(rows, axis=1)
    return MeasuredRecords(records, (raw, scaled), sums)


def results_of_measured(
    ready: Iterable[CalibratedEstimator], window: Measured, failed: Failed | None = None
) -> dict[str, Result]:
    """Return the results for a measured window; with `failed`, a failing estimator does not affect the others."""
    records = window.records
    if records == 0:
        return {one.form.full_name: NoEstimate(Why.TOO_FEW_RECORDS, 0) for one in ready}
    confidence = [window.mean_confidence(scaled=scaled) for scaled in (False, True)]
    results: dict[str, Result] = {}
    for one in ready:
        name = one.form.full_name
        try:
            results[name] = _checked(
                name, one.estimator.estimate(window.means(one), records, confidence[one.form.scaled])
            )
        except Exception as error:
            if failed is None:
                raise
            failed(name, error)
            results[name] = NoEstimate(Why.ERROR, records)
    return results


def _checked(name: str, result: Result) -> Result:
    """Raise ArithmeticError for a value that is not an accuracy, such as NaN."""
    if isinstance(result, Estimate) and not (0.0 <= result.accuracy <= 1.0 and math.isfinite(result.total)):
        found = result.accuracy if result.unclipped is None else result.unclipped
        raise ArithmeticError(f"{name}: expected an accuracy from 0 to 1, found {found!r}")
    return result


def results_of(ready: Iterable[CalibratedEstimator], blocks: Callable[[], Iterable[Outputs]]) -> dict[str, Result]:
    """Measure a window and return its results."""
    ready = tuple(ready)
    return results_of_measured(ready, measure(ready, blocks))


MEMBERS = (
    "atc_mc_ts",
    "atc_ne_ts",
    "doc_ts",
    "cpc_acc_anchored_ts",
    "cpc_ac_anchored_ts",
    "calibrated_confidence",
)
"""The members. Each returns the reference accuracy on the reference itself."""


def consensus(accuracies: Mapping[str, float]) -> float:
    """Return the lower quartile of the members: under shift they all tend to be too high.

    Like its members, it does not detect confident errors.
    """
    return statistics.quantiles([accuracies[member] for member in MEMBERS], n=4, method="inclusive")[0]


def disagreement(accuracies: Mapping[str, float]) -> float:
    """Return the highest minus the lowest member. If it is large, no estimate is reliable."""
    values = [accuracies[member] for member in MEMBERS]
    return max(values) - min(values)


def combine(results: Mapping[str, Result]) -> tuple[Result, float | None]:
    """Return the consensus of the members, and their disagreement; a reason if a member has no estimate."""
    values: dict[str, float] = {}
    for member in MEMBERS:
        result = results[member]
        if isinstance(result, NoEstimate):
            return result, None
        values[member] = result.accuracy
    records = next(iter(results.values())).records
    return Estimate(consensus(values), records), disagreement(values)


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """The results of the chosen forms, the consensus and the disagreement."""

    chosen: Mapping[str, CalibratedEstimator]
    results: Mapping[str, Result]
    """By name, without the variant."""
    consensus: Result
    disagreement: float | None


def estimate_all(
    ready: Iterable[CalibratedEstimator], variants: Variants, window: Measured, failed: Failed | None = None
) -> EnsembleResult:
    """Return the results in the chosen variants; the consensus always uses the default ones."""
    default = tuple(ready)
    chosen = {one.form.name: choose(one, variants.get(one.form.member.name)) for one in default}
    others = [one for one in chosen.values() if one.form.variant is not None]
    results = results_of_measured([*default, *others], window, failed)
    return EnsembleResult(
        chosen, {name: results[one.form.full_name] for name, one in chosen.items()}, *combine(results)
    )
