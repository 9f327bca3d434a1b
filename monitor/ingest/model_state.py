"""The models in memory: windows, ids and input health, by shard.

There is one common shard, and one for each partition assigned to this process. A partition may be revoked at any time,
and others assigned. So each shard has its own windows and ids, which are loaded and released together. A model's totals
are the sum over its shards. Totals add up exactly, so the sum over all processes does not depend on the assignment.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add

from monitor.config.config import ModelOptions
from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import RecentIds
from monitor.core.segments import ALL, Segment
from monitor.core.totals import Gauge, WindowTotals
from monitor.core.window import SlidingWindow
from monitor.state.change import COMMON, Shard, stored_name
from monitor.state.window_table import WindowLog


class ModelState:
    """A model's windows, ids and input health, for one shard."""

    def __init__(self, options: ModelOptions, shard: Shard = COMMON, gauge: Gauge | None = None) -> None:
        self.options = options
        self.stored_name = stored_name(options.name, shard)
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
            self._logs[segment] = WindowLog((self.stored_name, segment))
        return self._logs[segment]

    def forget_log(self, segment: Segment) -> None:
        """Remove the chunk log of a window."""
        self._logs.pop(segment, None)


Models = Mapping[str, ModelState]
"""By model name."""


class Shards:
    """The models of each shard in memory. Not thread-safe: the owner holds a lock."""

    def __init__(self, common: Models) -> None:
        self._shards: dict[Shard, Models] = {COMMON: common}

    def __getitem__(self, shard: Shard) -> Models:
        """Return the models of a shard."""
        return self._shards[shard]

    def __iter__(self) -> Iterator[ModelState]:
        """Yield every model of every shard."""
        for models in self._shards.values():
            yield from models.values()

    def of(self, model: str) -> list[ModelState]:
        """Return a model in all its shards, the common one first."""
        return [models[model] for models in self._shards.values()]

    def shards_of(self, source: str) -> set[str]:
        """Return the shards of a source in memory."""
        return {name for owner, name in self._shards if owner == source and name}

    def empty(self, shard: Shard) -> Models:
        """Return empty models for a shard, without adding it."""
        return {name: model.in_shard(shard) for name, model in self._shards[COMMON].items()}

    def put(self, shard: Shard, models: Models) -> None:
        """Add or replace a shard."""
        self._shards[shard] = models

    def remove(self, shard: Shard) -> None:
        """Remove a shard."""
        del self._shards[shard]

    def oldest(self, source: str) -> dict[str, float]:
        """Return by shard of a source the time of the oldest record in any window; infinity without one."""
        return {
            name: min((_oldest(window) for model in models.values() for window in _windows(model)), default=math.inf)
            for (owner, name), models in self._shards.items()
            if owner == source and name
        }

    def expire(self, model: str) -> None:
        """Evict expired records by the latest clock of all shards: a silent shard's own clock stands still."""
        held = self.of(model)
        if len(held) == 1 or held[0].options.bounds.age_seconds is None:
            return
        for segment in {segment for one in held for segment in one.windows}:
            windows = [one.windows[segment] for one in held if segment in one.windows]
            clock = max(window.clock for window in windows)
            for window in windows:
                window.expire(clock)


def by_segment(held: Sequence[ModelState]) -> dict[Segment, list[ModelState]]:
    """Return by segment the shards with a window of it, the whole model first.

    Each shard respects the limit on segments. If together they exceed it, the segments with the latest records remain.
    """
    found: dict[Segment, list[ModelState]] = {ALL: []}
    for model in held:
        for segment in model.windows:
            found.setdefault(segment, []).append(model)
    most = held[0].options.segmentation.most_segments
    if len(found) <= most + 1:
        return found
    latest = {segment: max(one.windows[segment].clock for one in some) for segment, some in found.items()}
    latest[ALL] = math.inf
    kept = sorted(found, key=lambda segment: latest[segment], reverse=True)[: most + 1]
    return {segment: found[segment] for segment in kept}


def combined_totals(windows: Iterable[SlidingWindow]) -> WindowTotals:
    """Return the combined totals of several windows of one reference."""
    return reduce(add, (window.totals() for window in windows))


def _windows(model: ModelState) -> Iterator[SlidingWindow]:
    return (model.windows[segment] for segment in model.windows)


def _oldest(window: SlidingWindow) -> float:
    return float(window.times[0]) if len(window) else math.inf
