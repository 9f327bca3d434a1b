"""One configured model and what is in memory of it: windows, ids, input health."""

from monitor.config.model_options import ModelOptions
from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import RecentIds
from monitor.core.segments import ALL, Segment
from monitor.core.totals import Gauge
from monitor.state.change import COMMON, Shard, stored_as
from monitor.state.window_table import WindowLog


class ModelState:
    """A model's windows, ids and input health, for one shard."""

    def __init__(self, options: ModelOptions, shard: Shard = COMMON, gauge: Gauge | None = None) -> None:
        self.options = options
        self.stored_as = stored_as(options.name, shard)
        """Its name in the state."""
        self.gauge = gauge or Gauge(options.reference.calibration)
        self.windows = options.windows(self.gauge)
        self.ids = RecentIds(options.most_ids)
        self.health = InputHealth()
        self.hints: tuple[str, ...] = ()
        self._logs: dict[Segment, WindowLog] = {}

    @property
    def name(self) -> str:
        """The model's name."""
        return self.options.name

    def in_shard(self, shard: Shard) -> "ModelState":
        """Return the same model for another shard, without records."""
        return ModelState(self.options, shard, self.gauge)

    def holds(self, segment: Segment) -> bool:
        """Return whether the configuration has a window for this segment."""
        names = tuple(name for name, _ in segment)
        return segment == ALL or names in self.options.segmentation.split_by

    def log(self, segment: Segment) -> WindowLog:
        """Return the chunk log of a window."""
        if segment not in self._logs:
            self._logs[segment] = WindowLog((self.stored_as, segment))
        return self._logs[segment]

    def forget_log(self, segment: Segment) -> None:
        """Remove the chunk log of a window."""
        self._logs.pop(segment, None)
