"""The ingestion loop: poll, decode, commit, then the windows, then acknowledge.

Rows and positions are committed in one transaction before anything in memory changes. A crash at any instant therefore
loses nothing and counts nothing twice: before the commit the same records are read again, after it they are restored.
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
"""Batches of id hashes that become one: a trickle of records would otherwise leave a row for each."""

MOST_SHOWN = 300
"""Refused records whose places are in memory, for the page."""


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did."""

    gained: Counts = field(default_factory=Counter)
    """By how much each counter rose."""
    commits: int = 0

    def of(self, name: str) -> int:
        """Return by how much the counters of a name rose together."""
        return sum(count for key, count in self.gained.items() if key[0] == name)

    @property
    def records(self) -> int:
        """Records that were taken in."""
        return self.of("records_total")

    @property
    def rejected(self) -> int:
        """Records that were refused."""
        return self.of("records_rejected_total")


class Ingestion:
    """Takes records from sources into windows. One thread ticks; others may ask for totals and status."""

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
        """The windows by shard; only for the thread that ticks."""
        self._sources = sources
        self._held: Counter[str] = Counter()
        """How many shards of each source are held, for those who must not wait for the lock."""
        self._options = options or IngestOptions()
        self._lock = threading.Lock()
        # From the first instant: a page that shows them at 0 until the windows are rebuilt looks as if all came again.
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
        """The sources, for those who know what sort they are."""
        return self._sources

    @property
    def paused(self) -> str | None:
        """Why nothing can be taken in for the moment; None when it can."""
        return self._pause.reason

    @property
    def counters(self) -> Mapping[tuple[str, ...], int]:
        """Everything counted since the state was made, by name and labels; may be asked by any thread."""
        with self._lock:
            return self._counters.copy()

    def refused(self) -> list[Refused]:
        """Return where the latest refused records stand, newest first, without what they say; may be asked by any thread."""
        with self._lock:
            return list(reversed(self._latest_refused))

    @property
    def last_commit_at(self) -> float | None:
        """When something was last committed, in Unix seconds."""
        return self._last_commit_at

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next tick."""
        if self._pause.reason is not None:
            return RETRY_SECONDS[0]
        return min((source.next_poll_seconds() for source in self._sources), default=1.0)

    def waiting_for(self) -> dict[str, str | None]:
        """Return for each source what it waits for; None for one that can be read."""
        return {source.name: source.ready() for source in self._sources}

    def keep(self, name: str, value: bytes | None) -> None:
        """Write something small down with the next tick, or None to forget it; may be called by any thread."""
        with self._lock:
            self._to_keep[name] = value

    def unwritten(self) -> dict[str, bytes | None]:
        """Return what was to be kept and could not be written yet, as on a full disk."""
        with self._lock:
            return dict(self._to_keep)

    def doubt(self) -> None:
        """Take nothing for current until a tick that begins after this is over; may be called by any thread."""
        self._unread.doubt()

    def clock_jumped(self, seconds: float) -> None:
        """Go on as before, though this machine's clock was set by so much since the last tick; called before the next."""
        with self._lock:
            for model in self.holdings:
                model.windows.clock_jumped(seconds)

    def lags(self) -> Mapping[str, Lag]:
        """Return how far behind each source is."""
        return self._unread.lags()

    def catching_up(self, now: float, running: float | None = None) -> bool:
        """Tell whether so much is unread, or may be, that estimates are of the past; `running` is the clock of ticks."""
        return self._unread.too_much(now, running) or any(map(self._waits_for_shards, self._sources))

    def _waits_for_shards(self, source: Source) -> bool:
        """Tell whether nobody knows yet which shards of a source are ours: windows are missing that may come back."""
        return source.sharded and not self._held[source.name] and source.ready() is not None

    def totals(self, model: str) -> dict[Segment, WindowTotals]:
        """Return a snapshot of a model's windows; may be called by any thread."""
        with self._lock:
            shards = by_segment(self.holdings.of(model))
            return {segment: together(one.windows[segment] for one in some) for segment, some in shards.items()}

    def snapshot(self, model: str, now: float, running: float) -> ModelSnapshot:
        """Return all that an evaluation needs of a model; may be called by any thread."""
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
        """Rebuild everything from the state; called once, before the first tick."""
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
            log.warning("%s; what is new must wait", pause)
        for source in self._sources:
            source.restore(self._state.positions(source.name))

    def tick(self, now: float, monotonic: float) -> Tick:
        """Take in what the sources have, at most one tick's worth of each.

        `now` is Unix time, for records; `monotonic` is for waiting, since it never jumps. Raises StateLost.
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
                log.error("%s; nothing is taken in until then", pause)  # noqa: TRY400 - it says all there is to say
        return Tick(self._counters - before, commits)

    def stop(self, now: float) -> None:
        """Write what makes the next start fast, and close the sources; the state is closed by its owner."""
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
        """Write what others want to be kept, and forget segments that fell silent, where no records took it along."""
        change = StateChange()
        with self._lock:
            silent = [(model, model.windows.idle(now)) for model in self.holdings]
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
                    # What came before is of the shards as they were.
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
        """Let go of shards that are no longer ours, load those that are now, and empty one that means nothing any more."""
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
        """Delete what is kept of a shard. Its position follows with its first records, which do not stand on the old ones."""
        models = self.holdings[shard].values()
        change = StateChange(forgotten=_window_names(models))
        change.ids_needed = {model.stored_as: model.ids.next_batch for model in models}
        self._commit(change, now)
        with self._lock:
            self._arrivals.forget(change.forgotten)
            self.holdings.hold(shard, self.holdings.empty(shard))

    def _take(self, source: Source, deliveries: list[Delivery], now: float) -> None:
        """Commit deliveries, and only then let them change anything in memory."""
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
        """Put into a change what keeps the chunks on disk in order: windows and disk agree now."""
        with self._lock:  # asking for totals measures, and others may be asking too
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
            # What came in the meantime waits for the next commit.
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
                # An archive that is played in does not make a window look alive: its records are too old to enter.
                filled = (segment for segment, count in before.items() if windows.entered(segment) > count)
                self._arrivals.note(((name, segment) for segment in filled), self._monotonic)
                # Only known now, so they are on disk with the next batch: after a kill they may lag by one.
                self._count_later(("records_late_total", batch.model.name), taken.added.late)
                self._count_later(("records_evicted_total", batch.model.name), taken.added.evicted)

    def _count_later(self, name: tuple[str, ...], count: int) -> None:
        """Count what is on disk with the next commit."""
        if count:
            self._counters[name] += count
            self._unsaved.add(name)

    def _describe_once(self) -> None:
        """Write down what the start found, before anything else is."""
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
            log.warning("rejected records could not be written down: %s", error.strerror)

    def _resume(self, now: float) -> None:
        """Go on, if something can be written: what could not be committed before may have gone in the meantime."""
        self._commit(StateChange(), now, counted={("resumed_total",): 1})
        log.warning("state can be written again: going on")
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
