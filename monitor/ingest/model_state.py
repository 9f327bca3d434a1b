"""The models in memory: windows, ids and input health, by shard.

There is one common shard, and one for each partition assigned to this process. A partition may be revoked at any time,
and others assigned. So each shard has its own windows and ids, which are loaded and released together. A model's totals
are the sum over its shards. Totals add up exactly, so the sum over all processes does not depend on the assignment.
"""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from monitor.config.config import ModelOptions
from monitor.core.ensemble import CalibratedEstimator
from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import RecentIds
from monitor.core.report import InputFacts, Snapshot
from monitor.core.scores import Floats, Integers
from monitor.core.segments import ALL, Chunk, Segment
from monitor.core.totals import Gauge, WindowTotals
from monitor.core.window import Added
from monitor.ingest.backlog import Backlog
from monitor.state.commit_plan import COMMON, ChunkIds, CommitPlan, Counters, Shard, WindowLog, WindowName, stored_name

_MERGED_BATCHES = 1_000
"""Batches of id hashes to merge: slow streams would otherwise leave one row per record."""


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
        self.last_arrival: dict[Segment, float] = {}
        """When records last entered each window since the start, on the monotonic clock."""
        self.earlier_arrival: dict[Segment, float] = {}
        """When records last arrived at each window before the start, in Unix seconds."""
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

    def maintain(self, plan: CommitPlan, without: AbstractSet[WindowName], *, stopping: bool) -> None:
        """Plan the maintenance of the stored chunks and ids: windows and disk agree now."""
        for segment in self.windows:
            if (self.stored_name, segment) not in without:
                self.log(segment).maintain(self.windows[segment], plan, stopping=stopping)
        batches = self.ids.next_batch
        if batches and batches % _MERGED_BATCHES == 0:
            plan.ids_merged[self.stored_name] = (batches - _MERGED_BATCHES, batches - 1)
        if self.ids.first_needed:
            plan.ids_needed[self.stored_name] = self.ids.first_needed

    def maintained(self, plan: CommitPlan, ids: ChunkIds, dropped: frozenset[int]) -> None:
        """Apply the maintenance of a committed plan; `dropped` are its dropped chunks."""
        for segment in self.windows:
            self.log(segment).maintained(plan, ids, dropped)

    def enter(self, chunk: Chunk, number: int, running: float) -> Added:
        """Add a committed chunk, stored under a number, to its window; `running` is the monotonic clock."""
        segment, log = chunk.segment, self.log(chunk.segment)
        log.restamped |= segment in self.windows and self.windows[segment].would_restamp(chunk.arrived)
        log.added(number, float(chunk.at.max()), len(chunk.at), chunk.arrived)
        added = self.windows.enter(chunk)
        # Replaying an archive does not make a window look alive: its records are too old to enter.
        if added.entered:
            self.last_arrival[segment] = running
        return added

    def forget(self, segment: Segment) -> None:
        """Remove a segment, if it is there. The window of all records stays."""
        if segment == ALL or segment not in self.windows:
            return
        self.windows.forget(segment)
        for known in (self._logs, self.last_arrival, self.earlier_arrival):
            known.pop(segment, None)


Models = Mapping[str, ModelState]
"""By model name."""


class ModelStates:
    """The models of each shard in memory, and the counters.

    Changed by the ingestion thread only, under one lock; `snapshot` and `counters` are for any thread.
    """

    def __init__(self, models: Iterable[ModelState], counters: Counters, backlog: Backlog) -> None:
        self._shards: dict[Shard, Models] = {COMMON: {model.name: model for model in models}}
        self.counted = counters
        """All counts since the state was created; for the ingestion thread only."""
        self._backlog = backlog
        self.lock = threading.Lock()

    # For any thread.

    def counters(self) -> Counters:
        """Return all counts since the state was created."""
        with self.lock:
            return self.counted.copy()

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return everything that an evaluation needs of a model."""
        with self.lock:
            common, counters = self.common[model], self.counted
            health = common.health
            self._expire(model)
            held = _by_segment(self.of(model))
            windows = [_window_snapshot(some, segment) for segment, some in held.items()]
            columns = [np.array(one, dtype=np.float64) for one in zip(*(one[1:] for one in windows), strict=True)]
            newest_at, usual_gap_seconds, entered, came_at, came_before = columns
            return Snapshot(
                tuple(held),
                _MeasuredTotals([totals for totals, *_ in windows]),
                newest_at,
                usual_gap_seconds,
                entered.astype(np.int64),
                came_at,
                came_before,
                InputFacts(health.rejected_share, health.degraded, health.one_hot, health.constant, common.hints),
                right_version=sum(count for (_, name), count in counters.records.items() if name == model),
                other_version=counters.records_other_version[model],
                catching_up=self._backlog.catching_up(now, running),
            )

    # For the ingestion thread.

    @property
    def common(self) -> Models:
        """The models of the common shard, with the input health over all shards."""
        return self._shards[COMMON]

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

    def shards_of(self, source: str) -> frozenset[str]:
        """Return the shards of a source in memory."""
        return frozenset(name for owner, name in self._shards if owner == source and name)

    def empty(self, shard: Shard) -> Models:
        """Return empty models for a shard, without adding it."""
        return {name: model.in_shard(shard) for name, model in self.common.items()}

    def put(self, shard: Shard, models: Models) -> None:
        """Add or replace a shard."""
        with self.lock:
            self._shards[shard] = models

    def remove(self, shard: Shard) -> None:
        """Remove a shard, without writing it."""
        with self.lock:
            del self._shards[shard]

    def clock_jumped(self, seconds: float) -> None:
        """Adjust the windows to a jump of the system clock."""
        with self.lock:
            for model in self:
                model.windows.clock_jumped(seconds)

    def idle(self, now: float) -> list[WindowName]:
        """Return the windows of idle segments, which may be removed."""
        with self.lock:
            return [(model.stored_name, segment) for model in self for segment in model.windows.idle(now)]

    def oldest(self, source: str) -> dict[str, float]:
        """Return by shard of a source the time of the oldest record in any window; infinity without one."""
        with self.lock:
            return {name: _oldest(models.values()) for (owner, name), models in self._shards.items() if owner == source}

    def maintain(self, plan: CommitPlan, *, stopping: bool = False) -> None:
        """Plan the maintenance of the stored records."""
        deleted = set(plan.deleted_windows)
        with self.lock:  # totals are computed on demand, possibly by several threads
            for model in self:
                model.maintain(plan, deleted, stopping=stopping)

    def count(self, counted: Counters) -> None:
        """Add counts that are written with the next commit."""
        with self.lock:
            self.counted.add(counted)

    def apply(self, plan: CommitPlan, ids: ChunkIds, running: float) -> None:
        """Change memory as a committed plan says; `running` is the monotonic clock."""
        models, dropped = {model.stored_name: model for model in self}, frozenset(plan.dropped)
        with self.lock:
            self.counted.add(plan.counted)
            for name, segment in plan.deleted_windows:
                if name in models:
                    models[name].forget(segment)
            if plan.rewritten or plan.dropped or plan.totals:
                for model in models.values():
                    model.maintained(plan, ids, dropped)
            for (name, chunk), number in zip(plan.chunks, ids.chunks, strict=True):
                added = models[name].enter(chunk, number, running)
                if chunk.segment == ALL:
                    self._count_added(models[name].name, added)
            for batch in plan.ids:
                models[batch.model].ids.remember(batch.hashes)
            for name, health in plan.health.items():
                self.common[name].health = health

    def _count_added(self, model: str, added: Added) -> None:
        """Count what is known only now: it is written with the next commit, and after a kill may lag by one batch."""
        if added.late:
            self.counted.records_late[model] += added.late
        if added.evicted:
            self.counted.records_evicted[model] += added.evicted

    def _expire(self, model: str) -> None:
        """Evict expired records by the latest clock of all shards: a silent shard's own clock stands still."""
        held = self.of(model)
        if len(held) == 1 or held[0].options.bounds.age_seconds is None:
            return
        for segment in {segment for one in held for segment in one.windows}:
            windows = [one.windows[segment] for one in held if segment in one.windows]
            clock = max(window.clock for window in windows)
            for window in windows:
                window.expire(clock)


def _by_segment(held: Sequence[ModelState]) -> dict[Segment, list[ModelState]]:
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


@dataclass(frozen=True, slots=True)
class _MeasuredTotals:
    """The totals of windows as the estimators need them."""

    totals: Sequence[WindowTotals]

    @property
    def records(self) -> Integers:
        return np.array([one.records for one in self.totals], dtype=np.int64)

    def mean_confidence(self, *, scaled: bool) -> Floats:
        return np.array([one.mean_confidence(scaled=scaled) if one.records else 0.0 for one in self.totals])

    def means(self, one: CalibratedEstimator) -> Floats:
        found = [window.means(one) if window.records else None for window in self.totals]
        rows = max((len(some) for some in found if some is not None), default=1)
        return np.array([some if some is not None else [0.0] * rows for some in found], dtype=np.float64).T

    @property
    def predicted(self) -> Integers:
        return np.array([one.predicted for one in self.totals], dtype=np.int64)


def _window_snapshot(
    shards: Sequence[ModelState], segment: Segment
) -> tuple[WindowTotals, float | None, float, int, float | None, float | None]:
    windows = [one.windows[segment] for one in shards]
    totals = reduce(add, (window.totals() for window in windows))
    times = [window.times for window in windows if len(window)]
    newest = max((float(some[-1]) for some in times), default=None)
    span = 0.0 if newest is None else newest - min(float(some[0]) for some in times)
    return (
        totals,
        newest,
        span / max(1, totals.records - 1),
        sum(one.windows.entered(segment) for one in shards),
        max((one.last_arrival[segment] for one in shards if segment in one.last_arrival), default=None),
        max((one.earlier_arrival[segment] for one in shards if segment in one.earlier_arrival), default=None),
    )


def _oldest(models: Iterable[ModelState]) -> float:
    windows = (model.windows[segment] for model in models for segment in model.windows)
    return min((float(window.times[0]) for window in windows if len(window)), default=math.inf)
