"""What the process will take in memory, from the configuration alone.

Windows and ids are counted exactly. The rest was measured as the peak of real processes whose windows were full, and
`python -m benchmarks.memory` compares it again.
"""

from dataclasses import dataclass

from monitor.config.config import ModelConfig
from monitor.config.references import Loaded, model_options, window_costs
from monitor.core.recent_ids import bytes_at_most
from monitor.core.totals import Gauge
from monitor.reference.reference import Reference

_PROGRAM_BYTES = 125e6
"""The interpreter, the libraries, SQLite's cache and records on their way into windows."""
_SERIES_BYTES = 1_900
"""For each series of a window: its estimates of two evaluations, and the texts of the pages that show them."""
_SERIES, _SERIES_PER_ALERT, _MOST_CLASSES = 124, 4, 50
_HISTORY_BYTES = 19_260
"""A window's points of three spans, when the longest is full after thirty days."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a process takes, in bytes, when every window that may be is there and full."""

    windows: int
    ids: int
    """When as many are remembered as may be."""
    first_ids: int
    """When the windows have just been filled."""
    evaluation: int
    """Copies of the windows' totals while they are judged, the results, the pages and the history."""
    program: int = round(_PROGRAM_BYTES)

    @property
    def process(self) -> int:
        """All of it, when the windows have just been filled."""
        return self.windows + self.first_ids + self.evaluation + self.program

    @property
    def later(self) -> int:
        """All of it, when the ids are full too."""
        return self.windows + self.ids + self.evaluation + self.program


def forecast(loaded: Loaded) -> Forecast:
    """Return what the models will take. Where records come in partitions, one partition is counted."""
    judged = [(model, reference) for model, reference in loaded if reference is not None]
    return Forecast(
        windows=sum(cost for _, cost in window_costs(loaded)),
        ids=sum(bytes_at_most(model.most_ids) for model, _ in judged),
        first_ids=sum(bytes_at_most(min(model.most_ids, _records(model))) for model, _ in judged),
        evaluation=sum(_evaluation_bytes(model, reference) for model, reference in judged),
    )


def _records(model: ModelConfig) -> int:
    """Return how many records fill all windows of a model; each is in one window of every split."""
    splits = len(model.segmentation.split_by)
    return model.bounds.capacity * max(1, model.segmentation.most_segments // splits if splits else 1)


def _evaluation_bytes(model: ModelConfig, reference: Reference) -> int:
    gauge = Gauge(reference.calibration)
    series = _SERIES + min(len(reference.classes), _MOST_CLASSES) + _SERIES_PER_ALERT * len(model.alerts)
    each = gauge.bytes_per_window + _HISTORY_BYTES + _SERIES_BYTES * series
    return model_options(model, reference).windows(gauge).most_windows * each
