"""One configured model, and everything that cpcmon holds in memory about it."""

from monitor.config.config import ModelOptions
from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import RecentIds
from monitor.core.segments import ALL, Segment
from monitor.core.totals import Gauge
from monitor.state.change import COMMON, Shard, stored_as
from monitor.state.window_table import WindowLog


class ModelState:
    """A model's windows of one shard, what it remembers of ids, and how its input looks."""

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
        """Return the same model without any record, for another shard."""
        return ModelState(self.options, shard, self.gauge)

    def holds(self, segment: Segment) -> bool:
        """Tell whether the configuration has a window for such a segment."""
        names = tuple(name for name, _ in segment)
        return segment == ALL or names in self.options.segmentation.split_by

    def log(self, segment: Segment) -> WindowLog:
        """Return the list of a window's chunks."""
        if segment not in self._logs:
            self._logs[segment] = WindowLog((self.stored_as, segment))
        return self._logs[segment]

    def forget_log(self, segment: Segment) -> None:
        """Forget the chunks of a window that is gone."""
        self._logs.pop(segment, None)
