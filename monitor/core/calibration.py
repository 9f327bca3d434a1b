"""The calibration from a labelled reference: accuracy, temperature, calibrated estimators, interval tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from monitor.core.ensemble import CalibratedEstimator, Failed, Measured, Variants, calibrate_all, estimate_all, measure
from monitor.core.estimate import CONSENSUS, Estimate, NoEstimate, Result, Why
from monitor.core.estimators.confidence import DifferenceOfConfidences
from monitor.core.intervals import DEFAULT_LEVEL, IntervalTables, Progress
from monitor.core.replay import replay
from monitor.core.scores import LabelledOutputs, Outputs, Singles, in_blocks

PAPER: Variants = {"doc": "absolute", "cpc_acc": "skip", "cpc_ac": "skip"}
"""The variants of the paper."""

# Windows up to this size keep derived scores between the two passes; larger ones derive them twice.
_KEPT_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class WindowEstimate(Mapping[str, Result]):
    """The results of all estimators for one window, by name."""

    records: int
    estimators: Mapping[str, Result]
    disagreement: float | None
    chance_disagreement: float | None
    """The disagreement explained by chance, at the interval level."""

    def __getitem__(self, name: str) -> Result:
        """Return the result of an estimator."""
        if name not in self.estimators:
            raise KeyError(f"expected the name of an estimator ({', '.join(self.estimators)}), found {name!r}")
        return self.estimators[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the estimators."""
        return iter(self.estimators)

    def __len__(self) -> int:
        """Return the number of estimators."""
        return len(self.estimators)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of a reference; contains no records."""

    records: int
    right: int
    classes: int
    temperature: float
    estimators: tuple[CalibratedEstimator, ...] = field(repr=False)
    intervals: IntervalTables = field(repr=False)

    @property
    def accuracy(self) -> float:
        """The reference accuracy `A`."""
        return self.right / self.records

    @property
    def confidence(self) -> float | None:
        """The unscaled mean confidence of the reference, from DOC."""
        kept = (one.estimator for one in self.estimators if not one.form.scaled)
        return next((one.confidence for one in kept if isinstance(one, DifferenceOfConfidences)), None)

    def estimate(
        self, probabilities: Singles, variants: Variants | None = None, minimum_records: int = 1
    ) -> WindowEstimate:
        """Return all estimates for a window of vectors, shape (records, classes)."""
        records = len(probabilities)
        if records < minimum_records:
            none = NoEstimate(Why.TOO_FEW_RECORDS, records, minimum_records=minimum_records)
            names = (*(one.form.name for one in self.estimators), CONSENSUS)
            return WindowEstimate(records, dict.fromkeys(names, none), None, None)
        kept: list[Outputs] | None = None
        if probabilities.size <= _KEPT_ELEMENTS:
            kept = list(in_blocks(probabilities, self.temperature))
        blocks = lambda: kept if kept is not None else in_blocks(probabilities, self.temperature)  # noqa: E731
        return self.estimate_from(measure(self.estimators, blocks), variants)

    def estimate_from(
        self, window: Measured, variants: Variants | None = None, failed: Failed | None = None
    ) -> WindowEstimate:
        """Return all estimates for a measured window.

        With `failed`, it is called for each estimator that fails, and the others still return results.
        """
        found = estimate_all(self.estimators, variants or {}, window, failed)
        results = {
            name: self._with_interval(found.chosen[name].form.full_name, result)
            for name, result in found.results.items()
        }
        results[CONSENSUS] = self._with_interval(CONSENSUS, found.consensus)
        chance = self.intervals.chance_disagreement(window.records) if window.records else None
        return WindowEstimate(window.records, results, found.disagreement, chance)

    def _with_interval(self, name: str, result: Result) -> Result:
        if not isinstance(result, Estimate):
            return result
        interval = self.intervals.interval(name, result.accuracy, result.records)
        return Estimate(result.accuracy, result.records, interval, result.prediction_sets, result.unclipped)


def calibrate(
    reference: LabelledOutputs, *, level: float = DEFAULT_LEVEL, progress: Progress | None = None
) -> Calibration:
    """Calibrate all estimators on a labelled reference."""
    return Calibration(
        records=reference.records,
        right=reference.right,
        classes=len(reference.outputs.raw.probabilities),
        temperature=reference.temperature,
        estimators=calibrate_all(reference),
        intervals=replay(reference, level, progress or (lambda _: None)),
    )
