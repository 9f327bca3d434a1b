"""The reference's records: outputs whose true labels are known, raw and temperature-scaled."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.core.scores import Booleans, Floats, Integers, Outputs, Scores, Singles, fit_temperature, scale


@dataclass(frozen=True)
class LabelledOutputs:
    """Outputs with labels. Made once by `label_outputs`; parts of it are taken for the replays."""

    outputs: Outputs
    labels: Integers
    temperature: float
    is_part: bool = False
    """Whether these are some records of a larger reference, taken for a replay."""

    @property
    def records(self) -> int:
        """Number of records, `m`."""
        return self.outputs.records

    @cached_property
    def correct(self) -> Booleans:
        """Whether each prediction, the first of the largest probabilities, was right."""
        right: Booleans = np.argmax(self.outputs.raw.probabilities, axis=0) == self.labels
        return right

    @property
    def right(self) -> int:
        """Number of records predicted right, `r`."""
        return int(np.count_nonzero(self.correct))

    @property
    def accuracy(self) -> float:
        """Share of records predicted right, `A`."""
        return self.right / self.records

    def scores(self, *, scaled: bool) -> Scores:
        """Return the scaled or the raw scores."""
        return self.outputs.scores(scaled=scaled)

    def ranked_label_scores(self, *, scaled: bool) -> Singles:
        """Return the calibration scores, the probability given to the true label, largest first."""
        comparable = self.scores(scaled=scaled).comparable
        return np.sort(comparable[self.labels, np.arange(self.records)])[::-1]

    def take(self, rows: Integers) -> "LabelledOutputs":
        """Return some of the records, scaled as the whole is."""
        taken = LabelledOutputs(self.outputs.take(rows), self.labels[rows], self.temperature, is_part=True)
        taken.__dict__["correct"] = self.correct[rows]
        return taken


def label_outputs(probabilities: Singles, labels: Integers, temperature: float | None = None) -> LabelledOutputs:
    """Join accepted vectors, shape (records, classes), with their labels, and fit the temperature unless it is given."""
    raw: Floats = np.ascontiguousarray(probabilities.T, dtype=np.float64)
    fitted = fit_temperature(raw, labels) if temperature is None else temperature
    return LabelledOutputs(Outputs(Scores(raw), Scores(scale(raw, fitted))), labels, fitted)
