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
from monitor.ingest.commit_plan import Counts, Group, ModelBatch, count, looked_at, model_batches
from monitor.ingest.model_state import ModelState
from monitor.ingest.restore import restore, restore_shard
from monitor.ingest.shards import Shards, by_segment, together
from monitor.sources.base import Delivery, Lag, Source
from monitor.state.change import COMMON, Refused, Shard, StateChange, WindowName
from monitor.state.evaluation_history import History
from monitor.state.rejected_file import RejectedFile
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

    gained: Counts = field(default_factory=Counter)
    """By how much each counter increased."""
    commits: int = 0

    def of(self, name: str) -> int:
        """Return the increase of all counters with this name."""
        return sum(count for key, count in self.gained.items() if key[0] == name)

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
        self.holdings = Shards(self._models)
        """The windows by shard; for the ingestion thread only."""
        self._sources = sources
        self._held: Counter[str] = Counter()
        """Shards in memory by source, readable without the lock."""
        self._options = options or IngestOptions()
        self._lock = threading.Lock()
        # Loaded first: counters at 0 until the restore has ended would look like a reset.
        self._counters: Counts = Counter(state.counters())
        self._unsaved: set[tuple[str, ...]] = set()
        self._describe: Callable[[], None] | None = None
        self._rejected = RejectedFile(state.path)
        limits = self._options
        self._unread = Backlog(limits.catching_up_bytes, limits.catching_up_files, limits.catching_up_age_seconds)
        self._arrivals = LastArrivals()
        self._to_keep: dict[str, bytes | None] = {}
        self._history = history or History()
        self._latest_refused = deque(map(_without_content, state.rejected(MOST_SHOWN)), MOST_SHOWN)
        self._monotonic = 0.0
        self._pause = DiskFullBackoff()
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
        return self._pause.reason

    @property
    def counters(self) -> Mapping[tuple[str, ...], int]:
        """All counters since the state was created, by name and labels. Thread-safe."""
        with self._lock:
            return self._counters.copy()

    def refused(self) -> list[Refused]:
        """Return the location of the latest rejected records, newest first, without content. Thread-safe."""
        with self._lock:
            return list(reversed(self._latest_refused))

    @property
    def last_commit_at(self) -> float | None:
        """The time of the last commit, in Unix seconds."""
        return self._last_commit_at

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next tick."""
        if self._pause.reason is not None:
            return RETRY_SECONDS[0]
        return min((source.next_poll_seconds() for source in self._sources), default=1.0)

    def waiting_for(self) -> dict[str, str | None]:
        """Return by source what it waits for; None if it is ready."""
        return {source.name: source.ready() for source in self._sources}

    def keep(self, name: str, value: bytes | None) -> None:
        """Store a named value with the next commit, or delete it with None. Thread-safe."""
        with self._lock:
            self._to_keep[name] = value

    def unwritten(self) -> dict[str, bytes | None]:
        """Return the named values not written yet, as on a full disk."""
        with self._lock:
            return dict(self._to_keep)

    def doubt(self) -> None:
        """Consider the backlog unknown until a tick that starts after this call has ended. Thread-safe."""
        self._unread.doubt()

    def clock_jumped(self, seconds: float) -> None:
        """Adjust the windows to a jump of the system clock since the last tick; called before the next."""
        with self._lock:
            for model in self.holdings:
                model.windows.clock_jumped(seconds)

    def lags(self) -> Mapping[str, Lag]:
        """Return the lag of each source."""
        return self._unread.lags()

    def catching_up(self, now: float, running: float | None = None) -> bool:
        """Return whether the backlog, known or possible, makes estimates outdated; `running` is the monotonic clock."""
        return self._unread.too_much(now, running) or any(map(self._waits_for_shards, self._sources))

    def _waits_for_shards(self, source: Source) -> bool:
        """Return whether a source still waits for its assignment: its windows are missing until then."""
        return source.sharded and not self._held[source.name] and source.ready() is not None

    def totals(self, model: str) -> dict[Segment, WindowTotals]:
        """Return the totals of a model's windows. Thread-safe."""
        with self._lock:
            shards = by_segment(self.holdings.of(model))
            return {segment: together(one.windows[segment] for one in some) for segment, some in shards.items()}

    def snapshot(self, model: str, now: float, running: float) -> ModelSnapshot:
        """Return everything that an evaluation needs of a model. Thread-safe."""
        with self._lock:
            watched = self._models[model]
            health = watched.health
            self.holdings.expire(model)
            shards = by_segment(self.holdings.of(model))
            return ModelSnapshot(
                {segment: self._window_snapshot(some, segment) for segment, some in shards.items()},
                InputFacts(health.rejected_share, health.degraded, health.one_hot, health.constant, watched.hints),
                right_version=sum(
                    n for key, n in self._counters.items() if key[0] == "records_total" and key[2] == model
                ),
                other_version=self._counters["records_other_version_total", model],
                catching_up=self.catching_up(now, running),
            )

    def _window_snapshot(self, shards: Sequence[ModelState], segment: Segment) -> WindowSnapshot:
        windows, names = [one.windows[segment] for one in shards], [(one.stored_as, segment) for one in shards]
        totals = together(windows)
        times = [window.times for window in windows if len(window)]
        newest = max((float(some[-1]) for some in times), default=None)
        span = 0.0 if newest is None else newest - min(float(some[0]) for some in times)
        return WindowSnapshot(
            totals,
            newest,
            span / max(1, totals.records - 1),
            sum(one.windows.entered(segment) for one in shards),
            self._arrivals.since_start(names),
            self._arrivals.before_start(names),
        )

    def start(self, now: float) -> None:
        """Restore everything from the state; called once, before the first tick."""
        sharded = {source.name for source in self._sources if source.sharded}
        restored = restore(self._state, self._models, now, sharded)
        self._arrivals.restore(restored.last_arrivals)
        for event in restored.events:
            log.warning("%s", event)
        if self._state.damaged_chunks:
            self._count_later(("state_damaged_chunks_total",), self._state.damaged_chunks)
        if self._state.recovered:
            self._count_later(("state_recovered_total", self._state.recovered), 1)
        self._describe = restored.describe
        try:
            self._describe_once()
        except StatePaused as pause:
            log.warning("%s; new records must wait", pause)
        for source in self._sources:
            source.restore(self._state.positions(source.name))

    def tick(self, now: float, monotonic: float) -> Tick:
        """Ingest what the sources have, at most one poll of each.

        `now` is Unix time, for records; `monotonic` is for delays. Raises StateLost.
        """
        if self._pause.holds(monotonic):
            return Tick()
        before = self._counters.copy()
        commits = 0
        doubts = self._unread.begin()
        self._monotonic = monotonic
        try:
            for source in self._sources:
                commits += self._drain(source, now)
                self._unread.found(source.name, source.lag())
            next_poll = min((source.next_poll_seconds() for source in self._sources), default=1.0)
            self._unread.end(doubts, monotonic + next_poll)
            if self._pause.reason is not None:
                self._resume(now)
            commits += self._write_what_is_left(now)
            self._back_up(monotonic)
        except StatePaused as pause:
            if self._pause.begin(pause, monotonic):
                log.error("%s; ingestion is paused until then", pause)  # noqa: TRY400 - the traceback adds nothing
        return Tick(self._counters - before, commits)

    def stop(self, now: float) -> None:
        """Store totals for a fast start, and close the sources. The owner closes the state."""
        change = StateChange()
        self._tidy(change, stopping=True)
        try:
            self._commit(change, now)
            if self._state.backup_age(now) > self._options.backup_seconds:
                self._state.back_up()
        except StatePaused as pause:
            log.warning("%s", pause)
        for source in self._sources:
            source.close()

    def _write_what_is_left(self, now: float) -> int:
        """Commit named values, history and silent segments that no batch has carried along."""
        change = StateChange()
        with self._lock:
            silent = [(model, model.windows.silent(now)) for model in self.holdings]
        change.forgotten = [(model.stored_as, segment) for model, segments in silent for segment in segments]
        if not change.forgotten and not self._to_keep and not self._history.unwritten():
            return 0
        self._commit(change, now)
        with self._lock:
            for model, segments in silent:
                model.windows.forget(segments)
                for segment in segments:
                    model.forget_log(segment)
            self._arrivals.forget(change.forgotten)
        return 1

    def _drain(self, source: Source, now: float) -> int:
        commits = 0
        group = Group()
        try:
            for delivery in source.poll(now):
                if delivery.reset or (delivery.owned is not None and delivery.owned != self._owned(source)):
                    # Earlier deliveries belong to the shards as they were.
                    if group.deliveries:
                        self._take(source, group.deliveries, now)
                        group, commits = Group(), commits + 1
                    self._change_shards(source, delivery, now)
                group.add(delivery)
                if group.is_full:
                    self._take(source, group.deliveries, now)
                    group, commits = Group(), commits + 1
            if group.deliveries:
                self._take(source, group.deliveries, now)
                commits += 1
        except BaseException:
            source.roll_back()
            raise
        return commits

    def _owned(self, source: Source) -> frozenset[str]:
        return frozenset(self.holdings.shards_of(source.name))

    def _change_shards(self, source: Source, delivery: Delivery, now: float) -> None:
        """Release revoked shards, load assigned ones, and reset a shard whose stored data is invalid."""
        wanted, held = delivery.owned, self._owned(source)
        for name in () if wanted is None else sorted(held - wanted):
            self._let_go((source.name, name))
        for name in () if wanted is None else sorted(wanted - held):
            shard = (source.name, name)
            models = self.holdings.empty(shard)
            restored = restore_shard(self._state, models)
            if restored.dropped:
                self._commit(StateChange(forgotten=restored.dropped), now)
            with self._lock:
                self.holdings.hold(shard, models)
                self._arrivals.restore(restored.last_arrivals)
        self._held[source.name] = len(self._owned(source))
        if delivery.reset:
            self._reset((source.name, delivery.shard), now)

    def _let_go(self, shard: Shard) -> None:
        with self._lock:
            self._arrivals.forget(_window_names(self.holdings[shard].values()))
            self.holdings.let_go(shard)

    def _reset(self, shard: Shard, now: float) -> None:
        """Delete a shard's stored data. Its checkpoint follows with its first records, which do not depend on it."""
        models = self.holdings[shard].values()
        change = StateChange(forgotten=_window_names(models))
        change.ids_needed = {model.stored_as: model.ids.next_batch for model in models}
        self._commit(change, now)
        with self._lock:
            self._arrivals.forget(change.forgotten)
            self.holdings.hold(shard, self.holdings.empty(shard))

    def _take(self, source: Source, deliveries: list[Delivery], now: float) -> None:
        """Commit deliveries, then update memory."""
        counted: Counts = Counter()
        batches = []
        for shard in dict.fromkeys(_shard(source, delivery) for delivery in deliveries if delivery.arrived.models):
            some = [delivery for delivery in deliveries if _shard(source, delivery) == shard]
            batches += model_batches(self.holdings[shard].values(), source.name, some, counted, now)
        change = StateChange(positions={source.name: {k: v for one in deliveries for k, v in one.positions.items()}})
        self._tidy(change, without={(b.model.stored_as, segment) for b in batches for segment in b.admitted.forgotten})
        for batch in batches:
            batch.describe(change)
        for delivery in deliveries:
            count(source.name, delivery, counted)
            change.rejected.extend((source.name, delivery.origin, pointer) for pointer in delivery.arrived.pointers)
            change.events.extend([*delivery.warnings, *delivery.events])
        health = looked_at(self._models, deliveries, batches)
        change.kept = {f"health:{name}": one.to_bytes() for name, one in health.items()}
        self._commit(change, now, batches, counted)
        source.acknowledge(self.holdings.oldest(source.name))
        for name, one in health.items():
            self._models[name].health = one
        self._say(source.name, deliveries)
        self._write_rejected(change, now)

    def _tidy(
        self, change: StateChange, *, without: AbstractSet[WindowName] = frozenset(), stopping: bool = False
    ) -> None:
        """Add chunk maintenance to a change: windows and disk agree now."""
        with self._lock:  # totals are computed on demand, possibly by several threads
            self._tidy_windows(change, without, stopping=stopping)
        for model in self.holdings:
            batches = model.ids.next_batch
            if batches and batches % _MERGED_BATCHES == 0:
                change.ids_merged[model.stored_as] = (batches - _MERGED_BATCHES, batches - 1)
            if model.ids.first_needed:
                change.ids_needed[model.stored_as] = model.ids.first_needed

    def _tidy_windows(self, change: StateChange, without: AbstractSet[WindowName], *, stopping: bool) -> None:
        for model in self.holdings:
            for segment in model.windows:
                if (model.stored_as, segment) not in without:
                    model.log(segment).tidy(model.windows[segment], change, stopping=stopping)

    def _commit(
        self,
        change: StateChange,
        now: float,
        batches: Sequence[ModelBatch] = (),
        counted: Mapping[tuple[str, ...], int] = _NOTHING,
    ) -> None:
        self._describe_once()
        names = self._unsaved | counted.keys()
        change.counters = {name: self._counters[name] + counted.get(name, 0) for name in names}
        with self._lock:
            keep = dict(self._to_keep)
        change.kept = {**change.kept, **keep}
        change.history = self._history.unwritten()
        committed = self._state.commit(change, now)
        self._last_commit_at = now
        self._history.written(change.history)
        with self._lock:
            self._latest_refused.extend(_without_content((now, *one)) for one in change.rejected[-MOST_SHOWN:])
            self._counters.update(counted)
            # Values set meanwhile wait for the next commit.
            written = {name for name, value in keep.items() if self._to_keep[name] is value}
            self._to_keep = {name: value for name, value in self._to_keep.items() if name not in written}
        self._unsaved.clear()
        if change.rewritten or change.dropped or change.snapshots:
            for model in self.holdings:
                for segment in model.windows:
                    model.log(segment).tidied(change, committed)
        numbers = iter(committed.chunks)
        with self._lock:
            for batch in batches:
                name, windows = batch.model.stored_as, batch.model.windows
                before = {part.segment: windows.entered(part.segment) for part in batch.admitted.parts}
                taken = batch.enter(numbers)
                self._arrivals.forget((name, segment) for segment in batch.admitted.forgotten)
                # Replaying an archive does not make a window look alive: its records are too old to enter.
                filled = (segment for segment, count in before.items() if windows.entered(segment) > count)
                self._arrivals.note(((name, segment) for segment in filled), self._monotonic)
                # Known only now, so they are written with the next commit: after a kill they may lag by one batch.
                self._count_later(("records_late_total", batch.model.name), taken.added.late)
                self._count_later(("records_evicted_total", batch.model.name), taken.added.evicted)

    def _count_later(self, name: tuple[str, ...], count: int) -> None:
        """Count something that is written with the next commit."""
        if count:
            self._counters[name] += count
            self._unsaved.add(name)

    def _describe_once(self) -> None:
        """Write the result of the restore before anything else."""
        if self._describe is not None:
            self._describe()
            self._describe = None

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
        self._pause.end()

    def _say(self, source: str, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            for warning in delivery.warnings:
                log.warning("%s: %s", source, warning)
            for event in delivery.events:
                log.info("%s: %s", source, event)
            for name, hints in delivery.arrived.hints.items():
                model = self._models[name]
                for hint in set(hints) - set(model.hints):
                    log.warning("%s: records of %s: %s", source, name, hint)
                model.hints = hints


def _without_content(refused: Refused) -> Refused:
    at, source, origin, pointer = refused
    return at, source, origin, pointer if pointer.raw is None else replace(pointer, raw=None)


def _shard(source: Source, delivery: Delivery) -> Shard:
    return (source.name, delivery.shard) if source.sharded else COMMON


def _window_names(models: Iterable[ModelState]) -> list[WindowName]:
    return [(model.stored_as, segment) for model in models for segment in model.windows]
