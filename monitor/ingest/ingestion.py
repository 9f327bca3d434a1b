"""The ingestion loop: poll, decode, commit, update windows, acknowledge.

Records and checkpoints are committed in one transaction before memory changes. So a crash loses nothing and counts
nothing twice: before the commit the same records are read again, after it they are restored.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from monitor.config.config import IngestOptions
from monitor.core.report import InputFacts, ModelSnapshot, WindowSnapshot
from monitor.core.segments import Segment
from monitor.core.totals import WindowTotals
from monitor.errors import StatePaused
from monitor.ingest.backlog import RETRY_SECONDS, Backlog, DiskFullBackoff, LastArrivals
from monitor.ingest.commit_plan import Counts, DeliveryGroup, ModelBatch, count_events, model_batches, updated_health
from monitor.ingest.model_state import ModelState, Shards, by_segment, combined_totals
from monitor.ingest.restore import restore, restore_shard
from monitor.sources.base import Delivery, Lag, Source
from monitor.state.change import COMMON, RejectionEntry, Shard, StateChange, WindowName
from monitor.state.evaluation_history import History
from monitor.state.rejected_file import RejectionLog
from monitor.state.store import State

log = logging.getLogger("cpcmon")

_NOTHING: Mapping[tuple[str, ...], int] = MappingProxyType({})

_MERGED_BATCHES = 1_000
"""Batches of id hashes to merge: slow streams would otherwise leave one row per record."""

MOST_SHOWN = 300
"""Rejected records whose location is in memory, for the web page."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one tick."""

    increases: Counts = field(default_factory=Counter)
    """By how much each counter increased."""
    commits: int = 0

    def of(self, name: str) -> int:
        """Return the increase of all counters with this name."""
        return sum(count for key, count in self.increases.items() if key[0] == name)

    @property
    def records(self) -> int:
        """Records ingested."""
        return self.of("records_total")

    @property
    def rejected(self) -> int:
        """Records rejected."""
        return self.of("records_rejected_total")


class Ingestion:
    """Moves records from sources to windows. One thread ticks; others may read totals and status."""

    def __init__(
        self,
        state: State,
        models: Sequence[ModelState],
        sources: Sequence[Source],
        options: IngestOptions | None = None,
        history: History | None = None,
    ) -> None:
        self._state = state
        self._models = {model.name: model for model in models}
        self.shards = Shards(self._models)
        """The windows by shard; for the ingestion thread only."""
        self._sources = sources
        self._shard_counts: Counter[str] = Counter()
        """Shards in memory by source, readable without the lock."""
        self._options = options or IngestOptions()
        self._lock = threading.Lock()
        # Loaded first: counters at 0 until the restore has ended would look like a reset.
        self._counters: Counts = Counter(state.counters())
        self._unsaved: set[tuple[str, ...]] = set()
        self._pending_restore: Callable[[], None] | None = None
        self._rejected = RejectionLog(state.path)
        limits = self._options
        self._backlog = Backlog(limits.catching_up_bytes, limits.catching_up_files, limits.catching_up_age_seconds)
        self._last_arrivals = LastArrivals()
        self._pending_values: dict[str, bytes | None] = {}
        self._history = history or History()
        self._latest_rejected = deque(map(_without_content, state.rejected(MOST_SHOWN)), MOST_SHOWN)
        self._monotonic = 0.0
        self._backoff = DiskFullBackoff()
        self._next_backup: float | None = None
        self._last_commit_at: float | None = None

    @property
    def models(self) -> Mapping[str, ModelState]:
        """The models by name."""
        return MappingProxyType(self._models)

    @property
    def sources(self) -> Sequence[Source]:
        """The sources."""
        return self._sources

    @property
    def paused(self) -> str | None:
        """Why ingestion is paused; None while it is not."""
        return self._backoff.reason

    @property
    def counters(self) -> Mapping[tuple[str, ...], int]:
        """All counters since the state was created, by name and labels. Thread-safe."""
        with self._lock:
            return self._counters.copy()

    def rejected_records(self) -> list[RejectionEntry]:
        """Return the location of the latest rejected records, newest first, without content. Thread-safe."""
        with self._lock:
            return list(reversed(self._latest_rejected))

    @property
    def last_commit_at(self) -> float | None:
        """The time of the last commit, in Unix seconds."""
        return self._last_commit_at

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next tick."""
        if self._backoff.reason is not None:
            return RETRY_SECONDS[0]
        return min((source.next_poll_seconds() for source in self._sources), default=1.0)

    def waiting_for(self) -> dict[str, str | None]:
        """Return by source what it waits for; None if it is ready."""
        return {source.name: source.status().waits_for for source in self._sources}

    def store_value(self, name: str, value: bytes | None) -> None:
        """Store a named value with the next commit, or delete it with None. Thread-safe."""
        with self._lock:
            self._pending_values[name] = value

    def pending_values(self) -> dict[str, bytes | None]:
        """Return the named values not written yet, as on a full disk."""
        with self._lock:
            return dict(self._pending_values)

    def invalidate_backlog(self) -> None:
        """Consider the backlog unknown until a tick that starts after this call has ended. Thread-safe."""
        self._backlog.invalidate()

    def clock_jumped(self, seconds: float) -> None:
        """Adjust the windows to a jump of the system clock since the last tick; called before the next."""
        with self._lock:
            for model in self.shards:
                model.windows.clock_jumped(seconds)

    def lags(self) -> Mapping[str, Lag]:
        """Return the lag of each source."""
        return self._backlog.lags()

    def catching_up(self, now: float, running: float | None = None) -> bool:
        """Return whether the backlog, known or possible, makes estimates outdated; `running` is the monotonic clock."""
        return self._backlog.exceeds_limits(now, running) or any(map(self._awaits_assignment, self._sources))

    def _awaits_assignment(self, source: Source) -> bool:
        """Return whether a source still waits for its assignment: its windows are missing until then."""
        return source.sharded and not self._shard_counts[source.name] and source.status().waits_for is not None

    def totals(self, model: str) -> dict[Segment, WindowTotals]:
        """Return the totals of a model's windows. Thread-safe."""
        with self._lock:
            shards = by_segment(self.shards.of(model))
            return {segment: combined_totals(one.windows[segment] for one in some) for segment, some in shards.items()}

    def snapshot(self, model: str, now: float, running: float) -> ModelSnapshot:
        """Return everything that an evaluation needs of a model. Thread-safe."""
        with self._lock:
            model_state = self._models[model]
            health = model_state.health
            self.shards.expire(model)
            shards = by_segment(self.shards.of(model))
            return ModelSnapshot(
                {segment: self._window_snapshot(some, segment) for segment, some in shards.items()},
                InputFacts(health.rejected_share, health.degraded, health.one_hot, health.constant, model_state.hints),
                right_version=sum(
                    n for key, n in self._counters.items() if key[0] == "records_total" and key[2] == model
                ),
                other_version=self._counters["records_other_version_total", model],
                catching_up=self.catching_up(now, running),
            )

    def _window_snapshot(self, shards: Sequence[ModelState], segment: Segment) -> WindowSnapshot:
        windows, names = [one.windows[segment] for one in shards], [(one.stored_name, segment) for one in shards]
        totals = combined_totals(windows)
        times = [window.times for window in windows if len(window)]
        newest = max((float(some[-1]) for some in times), default=None)
        span = 0.0 if newest is None else newest - min(float(some[0]) for some in times)
        return WindowSnapshot(
            totals,
            newest,
            span / max(1, totals.records - 1),
            sum(one.windows.entered(segment) for one in shards),
            self._last_arrivals.since_start(names),
            self._last_arrivals.before_start(names),
        )

    def start(self, now: float) -> None:
        """Restore everything from the state; called once, before the first tick."""
        sharded = {source.name for source in self._sources if source.sharded}
        restored = restore(self._state, self._models, now, sharded)
        self._last_arrivals.restore(restored.last_arrivals)
        for event in restored.events:
            log.warning("%s", event)
        if self._state.damaged_chunks:
            self._count_later(("state_damaged_chunks_total",), self._state.damaged_chunks)
        if self._state.recovered:
            self._count_later(("state_recovered_total", self._state.recovered), 1)
        self._pending_restore = restored.write
        try:
            self._write_restored()
        except StatePaused as pause:
            log.warning("%s; new records must wait", pause)
        for source in self._sources:
            source.restore(self._state.checkpoints(source.name))

    def tick(self, now: float, monotonic: float) -> Tick:
        """Ingest what the sources have, at most one poll of each.

        `now` is Unix time, for records; `monotonic` is for delays. Raises StateLost.
        """
        if self._backoff.is_active(monotonic):
            return Tick()
        before = self._counters.copy()
        commits = 0
        invalidations = self._backlog.begin_poll()
        self._monotonic = monotonic
        try:
            for source in self._sources:
                commits += self._drain(source, now)
                self._backlog.update(source.name, source.status().lag)
            next_poll = min((source.next_poll_seconds() for source in self._sources), default=1.0)
            self._backlog.end_poll(invalidations, monotonic + next_poll)
            if self._backoff.reason is not None:
                self._resume(now)
            commits += self._commit_pending(now)
            self._back_up(monotonic)
        except StatePaused as pause:
            if self._backoff.begin(pause, monotonic):
                log.error("%s; ingestion is paused until then", pause)  # noqa: TRY400 - the traceback adds nothing
        return Tick(self._counters - before, commits)

    def stop(self, now: float) -> None:
        """Store totals for a fast start, and close the sources. The owner closes the state."""
        change = StateChange()
        self._maintain_chunks(change, stopping=True)
        try:
            self._commit(change, now)
            if self._state.backup_age(now) > self._options.backup_seconds:
                self._state.back_up()
        except StatePaused as pause:
            log.warning("%s", pause)
        for source in self._sources:
            source.close()

    def _commit_pending(self, now: float) -> int:
        """Commit named values, history and silent segments that no batch has carried along."""
        change = StateChange()
        with self._lock:
            silent = [(model, model.windows.idle(now)) for model in self.shards]
        change.deleted_windows = [(model.stored_name, segment) for model, segments in silent for segment in segments]
        if not change.deleted_windows and not self._pending_values and not self._history.unwritten():
            return 0
        self._commit(change, now)
        with self._lock:
            for model, segments in silent:
                model.windows.forget(segments)
                for segment in segments:
                    model.forget_log(segment)
            self._last_arrivals.remove(change.deleted_windows)
        return 1

    def _drain(self, source: Source, now: float) -> int:
        commits = 0
        group = DeliveryGroup()
        try:
            for delivery in source.poll(now):
                if delivery.reset or (delivery.owned is not None and delivery.owned != self._shards_in_memory(source)):
                    # Earlier deliveries belong to the shards as they were.
                    if group.deliveries:
                        self._ingest(source, group.deliveries, now)
                        group, commits = DeliveryGroup(), commits + 1
                    self._update_shards(source, delivery, now)
                group.add(delivery)
                if group.is_full:
                    self._ingest(source, group.deliveries, now)
                    group, commits = DeliveryGroup(), commits + 1
            if group.deliveries:
                self._ingest(source, group.deliveries, now)
                commits += 1
        except BaseException:
            source.roll_back()
            raise
        return commits

    def _shards_in_memory(self, source: Source) -> frozenset[str]:
        return frozenset(self.shards.shards_of(source.name))

    def _update_shards(self, source: Source, delivery: Delivery, now: float) -> None:
        """Release revoked shards, load assigned ones, and reset a shard whose stored data is invalid."""
        wanted, held = delivery.owned, self._shards_in_memory(source)
        for name in () if wanted is None else sorted(held - wanted):
            self._release((source.name, name))
        for name in () if wanted is None else sorted(wanted - held):
            shard = (source.name, name)
            models = self.shards.empty(shard)
            restored = restore_shard(self._state, models)
            if restored.dropped:
                self._commit(StateChange(deleted_windows=restored.dropped), now)
            with self._lock:
                self.shards.put(shard, models)
                self._last_arrivals.restore(restored.last_arrivals)
        self._shard_counts[source.name] = len(self._shards_in_memory(source))
        if delivery.reset:
            self._reset((source.name, delivery.shard), now)

    def _release(self, shard: Shard) -> None:
        with self._lock:
            self._last_arrivals.remove(_window_names(self.shards[shard].values()))
            self.shards.remove(shard)

    def _reset(self, shard: Shard, now: float) -> None:
        """Delete a shard's stored data. Its checkpoint follows with its first records, which do not depend on it."""
        models = self.shards[shard].values()
        change = StateChange(deleted_windows=_window_names(models))
        change.ids_needed = {model.stored_name: model.ids.next_batch for model in models}
        self._commit(change, now)
        with self._lock:
            self._last_arrivals.remove(change.deleted_windows)
            self.shards.put(shard, self.shards.empty(shard))

    def _ingest(self, source: Source, deliveries: list[Delivery], now: float) -> None:
        """Commit deliveries, then update memory."""
        counted: Counts = Counter()
        batches = []
        for shard in dict.fromkeys(_shard(source, delivery) for delivery in deliveries if delivery.batch.models):
            some = [delivery for delivery in deliveries if _shard(source, delivery) == shard]
            batches += model_batches(self.shards[shard].values(), source.name, some, counted, now)
        change = StateChange(
            checkpoints={source.name: {k: v for one in deliveries for k, v in one.checkpoints.items()}}
        )
        self._maintain_chunks(
            change, without={(b.model.stored_name, segment) for b in batches for segment in b.admitted.forgotten}
        )
        for batch in batches:
            batch.add_to(change)
        for delivery in deliveries:
            count_events(source.name, delivery, counted)
            change.rejected.extend((source.name, delivery.origin, pointer) for pointer in delivery.batch.pointers)
            change.events.extend([*delivery.warnings, *delivery.events])
        health = updated_health(self._models, deliveries, batches)
        change.values = {f"health:{name}": one.to_bytes() for name, one in health.items()}
        self._commit(change, now, batches, counted)
        source.acknowledge(self.shards.oldest(source.name))
        for name, one in health.items():
            self._models[name].health = one
        self._log_events(source.name, deliveries)
        self._write_rejected(change, now)

    def _maintain_chunks(
        self, change: StateChange, *, without: AbstractSet[WindowName] = frozenset(), stopping: bool = False
    ) -> None:
        """Add chunk maintenance to a change: windows and disk agree now."""
        with self._lock:  # totals are computed on demand, possibly by several threads
            self._maintain_windows(change, without, stopping=stopping)
        for model in self.shards:
            batches = model.ids.next_batch
            if batches and batches % _MERGED_BATCHES == 0:
                change.ids_merged[model.stored_name] = (batches - _MERGED_BATCHES, batches - 1)
            if model.ids.first_needed:
                change.ids_needed[model.stored_name] = model.ids.first_needed

    def _maintain_windows(self, change: StateChange, without: AbstractSet[WindowName], *, stopping: bool) -> None:
        for model in self.shards:
            for segment in model.windows:
                if (model.stored_name, segment) not in without:
                    model.log(segment).maintain(model.windows[segment], change, stopping=stopping)

    def _commit(
        self,
        change: StateChange,
        now: float,
        batches: Sequence[ModelBatch] = (),
        counted: Mapping[tuple[str, ...], int] = _NOTHING,
    ) -> None:
        self._write_restored()
        names = self._unsaved | counted.keys()
        change.counters = {name: self._counters[name] + counted.get(name, 0) for name in names}
        with self._lock:
            pending = dict(self._pending_values)
        change.values = {**change.values, **pending}
        change.history = self._history.unwritten()
        committed = self._state.commit(change, now)
        self._last_commit_at = now
        self._history.written(change.history)
        with self._lock:
            self._latest_rejected.extend(_without_content((now, *one)) for one in change.rejected[-MOST_SHOWN:])
            self._counters.update(counted)
            # Values set meanwhile wait for the next commit.
            written = {name for name, value in pending.items() if self._pending_values[name] is value}
            self._pending_values = {name: value for name, value in self._pending_values.items() if name not in written}
        self._unsaved.clear()
        if change.rewritten or change.dropped or change.totals:
            for model in self.shards:
                for segment in model.windows:
                    model.log(segment).maintained(change, committed)
        numbers = iter(committed.chunks)
        with self._lock:
            for batch in batches:
                name, windows = batch.model.stored_name, batch.model.windows
                before = {part.segment: windows.entered(part.segment) for part in batch.admitted.parts}
                taken = batch.enter(numbers)
                self._last_arrivals.remove((name, segment) for segment in batch.admitted.forgotten)
                # Replaying an archive does not make a window look alive: its records are too old to enter.
                filled = (segment for segment, count in before.items() if windows.entered(segment) > count)
                self._last_arrivals.record(((name, segment) for segment in filled), self._monotonic)
                # Known only now, so they are written with the next commit: after a kill they may lag by one batch.
                self._count_later(("records_late_total", batch.model.name), taken.added.late)
                self._count_later(("records_evicted_total", batch.model.name), taken.added.evicted)

    def _count_later(self, name: tuple[str, ...], count: int) -> None:
        """Count something that is written with the next commit."""
        if count:
            self._counters[name] += count
            self._unsaved.add(name)

    def _write_restored(self) -> None:
        """Write the result of the restore before anything else."""
        if self._pending_restore is not None:
            self._pending_restore()
            self._pending_restore = None

    def _back_up(self, monotonic: float) -> None:
        if self._next_backup is not None and monotonic >= self._next_backup:
            try:
                self._state.back_up()
            except StatePaused as pause:
                log.warning("no backup: %s", pause)
        if self._next_backup is None or monotonic >= self._next_backup:
            self._next_backup = monotonic + self._options.backup_seconds

    def _write_rejected(self, change: StateChange, now: float) -> None:
        try:
            self._rejected.append(change.rejected, now)
        except OSError as error:
            log.warning("cannot write rejected.jsonl: %s", error.strerror)

    def _resume(self, now: float) -> None:
        """Resume if the state can be written again; the uncommitted records may be gone by now."""
        self._commit(StateChange(), now, counted={("resumed_total",): 1})
        log.warning("state can be written again: ingestion resumed")
        self._backoff.end()

    def _log_events(self, source: str, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            for warning in delivery.warnings:
                log.warning("%s: %s", source, warning)
            for event in delivery.events:
                log.info("%s: %s", source, event)
            for name, hints in delivery.batch.hints.items():
                model = self._models[name]
                for hint in set(hints) - set(model.hints):
                    log.warning("%s: records of %s: %s", source, name, hint)
                model.hints = hints


def _without_content(rejected: RejectionEntry) -> RejectionEntry:
    at, source, origin, pointer = rejected
    return at, source, origin, pointer if pointer.raw is None else replace(pointer, raw=None)


def _shard(source: Source, delivery: Delivery) -> Shard:
    return (source.name, delivery.shard) if source.sharded else COMMON


def _window_names(models: Iterable[ModelState]) -> list[WindowName]:
    return [(model.stored_name, segment) for model in models for segment in model.windows]
