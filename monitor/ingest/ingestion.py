"""The ingestion loop: poll, decode, commit, update windows, acknowledge.

Records and checkpoints are committed in one transaction before memory changes. So a crash loses nothing and counts
nothing twice: before the commit the same records are read again, after it they are restored.
"""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from monitor.config.config import IngestOptions
from monitor.core.recent_ids import Hashes
from monitor.core.report import Snapshot
from monitor.core.scores import Floats
from monitor.core.segments import ALL, Segment
from monitor.errors import StatePaused
from monitor.ingest.backlog import Backlog
from monitor.ingest.late_labels import plan_expired_ids
from monitor.ingest.model_state import ModelState, ModelStates
from monitor.ingest.planning import plan_commit, plan_label_commit, share_of_commit
from monitor.ingest.restore import restore, restore_shard
from monitor.sources.base import Delivery, Lag, Source, SourceStatus
from monitor.state.commit_plan import CommitPlan, Counters, Forgotten, RejectionEntry, Shard, StoredCounters
from monitor.state.evaluation_history import History
from monitor.state.state_folder import RejectionLog
from monitor.state.store import State

log = logging.getLogger("cpcmon")

_PAUSED_POLL_SECONDS = 1.0
_EXPIRY_SECONDS = 60.0
"""How often ids that waited too long for their labels are deleted."""

MOST_SHOWN = 300
"""Rejected records whose location is in memory, for the web page."""


@dataclass(slots=True)
class Tick:
    """The result of one tick."""

    counted: Counters = field(default_factory=Counters)
    """What was committed."""
    commits: int = 0

    @property
    def records(self) -> int:
        """Records ingested."""
        return self.counted.records.total()

    @property
    def rejected(self) -> int:
        """Records rejected."""
        return self.counted.records_rejected.total()


class PendingValues:
    """Named values that wait for the next commit, longer on a full disk. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[str, bytes | None] = {}
        self._lock = threading.Condition()

    def store(self, name: str, value: bytes | None) -> None:
        """Store a value with the next commit, or delete it with None."""
        self.store_together({name: value})

    def store_together(self, values: Mapping[str, bytes | None]) -> None:
        """Store values with the same commit."""
        with self._lock:
            self._values.update(values)

    def unwritten(self) -> dict[str, bytes | None]:
        """Return the values not written yet."""
        with self._lock:
            return dict(self._values)

    def written(self, values: Mapping[str, bytes | None]) -> None:
        """Mark values as written; one that was replaced meanwhile waits for the next commit."""
        with self._lock:
            for name, value in values.items():
                if self._values[name] is value:
                    del self._values[name]
            self._lock.notify_all()

    def wait_written(self, name: str, seconds: float) -> bool:
        """Wait until a value is written, at most so long; return whether it is."""
        with self._lock:
            return self._lock.wait_for(lambda: name not in self._values, seconds)


class StateWriter:
    """Commits plans. Used by the ingestion thread; the latest rejected records are for any."""

    def __init__(self, state: State, stored: StoredCounters, history: History, backup_seconds: float) -> None:
        self._state, self._history, self._backup_seconds = state, history, backup_seconds
        self._stored = dict(stored)
        """The counters as they are in the state."""
        self._first: Callable[[], None] | None = None
        self._next_backup: float | None = None
        self._rejected_file = RejectionLog(state.path)
        self._lock = threading.Lock()
        self._rejected = deque(map(_without_content, state.rejected(MOST_SHOWN)), MOST_SHOWN)
        self.values = PendingValues()
        self.last_commit_at: float | None = None
        """In Unix seconds."""

    def rejected_records(self) -> list[RejectionEntry]:
        """Return the location of the latest rejected records, newest first, without content."""
        with self._lock:
            return list(reversed(self._rejected))

    def has_pending(self) -> bool:
        """Return whether values or history wait for a commit."""
        return bool(self.values.unwritten() or self._history.unwritten())

    def write_first(self, write: Callable[[], None]) -> None:
        """Write the result of the restore: now, or if that raises StatePaused, before the next commit."""
        self._first = write
        self._write_first()

    def commit(self, plan: CommitPlan, counters: Counters, now: float) -> list[int]:
        """Commit a plan, and return the ids of its chunks.

        `counters` are those in memory, without the increments of the plan. Adds to the plan.
        """
        self._write_first()
        plan.counters = self._changed(counters, plan.counted)
        pending = self.values.unwritten()
        plan.values = {**plan.values, **pending}
        plan.history = self._history.unwritten()
        ids = self._state.commit(plan, now)
        self.last_commit_at = now
        self._stored |= plan.counters
        self._history.written(plan.history)
        self.values.written(pending)
        with self._lock:
            self._rejected.extend(_without_content((now, *one)) for one in plan.rejected[-MOST_SHOWN:])
        return ids

    def forget(self, hashes: Hashes, model: str | None) -> Forgotten:
        """Delete what is stored of some ids, of one model or of all."""
        self._write_first()
        return self._state.forget(hashes, model)

    def log_rejected(self, plan: CommitPlan, now: float) -> None:
        """Append the rejected records of a plan to `rejected.jsonl`."""
        try:
            self._rejected_file.append(plan.rejected, now)
        except OSError as error:
            log.warning("cannot write rejected.jsonl: %s", error.strerror)

    def back_up_if_due(self, running: float) -> None:
        """Write a backup once per interval, by the monotonic clock."""
        if self._next_backup is not None and running >= self._next_backup:
            try:
                self._state.back_up()
            except StatePaused as pause:
                log.warning("no backup: %s", pause)
        if self._next_backup is None or running >= self._next_backup:
            self._next_backup = running + self._backup_seconds

    def back_up_if_old(self, now: float) -> None:
        """Write a backup if the last one is older than the interval."""
        if self._state.backup_age(now) > self._backup_seconds:
            self._state.back_up()

    def _changed(self, counters: Counters, counted: Counters) -> StoredCounters:
        """Return the counters to write: those that differ from the state after the commit."""
        after = counters.stored()
        for name, count in counted.stored().items():
            after[name] = after.get(name, 0) + count
        return {name: count for name, count in after.items() if self._stored.get(name) != count}

    def _write_first(self) -> None:
        if self._first is not None:
            self._first()
            self._first = None


class IngestView:
    """Ingestion as the other parts see it: read-only, and thread-safe."""

    def __init__(self, sources: Sequence[Source], states: ModelStates, backlog: Backlog, writer: StateWriter) -> None:
        self._sources = sources
        self._states, self._backlog, self._writer = states, backlog, writer

    @property
    def paused(self) -> str | None:
        """Why ingestion is paused; None while it is not."""
        return self._backlog.paused

    @property
    def last_commit_at(self) -> float | None:
        """The time of the last commit, in Unix seconds."""
        return self._writer.last_commit_at

    def sources(self) -> list[SourceStatus]:
        """Return the status of each source, with its lag as of the last committed poll."""
        lags = self._backlog.lags()
        return [replace(one, lag=lags.get(one.name, one.lag)) for one in (source.status() for source in self._sources)]

    def lags(self) -> Mapping[str, Lag]:
        """Return the lag of each source."""
        return self._backlog.lags()

    def catching_up(self, now: float, running: float | None = None) -> bool:
        """Return whether the backlog, known or possible, makes estimates outdated; `running` is the monotonic clock."""
        return self._backlog.catching_up(now, running)

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return everything that an evaluation needs of a model."""
        return self._states.snapshot(model, now, running)

    def begin_evidence(self, model: str, means: Mapping[Segment, Floats], now: float) -> None:
        """Begin the evidence of changes of some segments anew, with other means."""
        self._states.begin_evidence(model, means, now)

    def counters(self) -> Counters:
        """Return all counts since the state was created, as of the last commit: not to be changed. Never waits."""
        return self._states.counters()

    def rejected_records(self) -> list[RejectionEntry]:
        """Return the location of the latest rejected records, newest first, without content."""
        return self._writer.rejected_records()


class Ingestion:
    """Moves records from sources to windows. Used by one thread; others use its `view` and `values`."""

    def __init__(
        self,
        state: State,
        models: Sequence[ModelState],
        sources: Sequence[Source],
        options: IngestOptions | None = None,
        history: History | None = None,
        label_sources: Collection[str] = (),
    ) -> None:
        """`label_sources` names the sources that carry labels."""
        options = options or IngestOptions()
        self._state, self._sources, self._label_sources = state, sources, frozenset(label_sources)
        # Estimates do not wait for labels.
        self.backlog = Backlog([source for source in sources if source.name not in self._label_sources], options)
        # Loaded first: counters at 0 until the restore has ended would look like a reset.
        stored = state.counters()
        self.states = ModelStates(models, Counters.from_stored(stored), self.backlog)
        self._writer = StateWriter(state, stored, history or History(), options.backup_seconds)
        self.values: PendingValues = self._writer.values
        """Named values, written with the next commit."""
        self.view = IngestView(sources, self.states, self.backlog, self._writer)
        self._running = 0.0
        self._keeps_ids = any(one.labels is not None and one.labels.kept_ids is not None for one in models)
        self._next_expiry = 0.0
        self._to_forget: SimpleQueue[tuple[Hashes, str | None, Future[Forgotten]]] = SimpleQueue()

    def forget(self, hashes: Hashes, model: str | None) -> Future[Forgotten]:
        """Delete what is stored of some ids, of one model or of all, with the next tick. For any thread."""
        done: Future[Forgotten] = Future()
        self._to_forget.put((hashes, model, done))
        return done

    def next_poll_seconds(self) -> float:
        """Return how long to wait before the next tick."""
        if self.backlog.paused is not None:
            return _PAUSED_POLL_SECONDS
        return min((source.next_poll_seconds() for source in self._sources), default=1.0)

    def start(self, now: float) -> None:
        """Restore everything from the state; called once, before the first tick."""
        sharded = {source.name for source in self._sources if source.sharded}
        restored = restore(self._state, self.states.common, now, sharded)
        for event in restored.events:
            log.warning("%s", event)
        found = Counters()
        if self._state.damaged_chunks:
            found.state_damaged_chunks[()] += self._state.damaged_chunks
        if self._state.recovered:
            found.state_recovered[self._state.recovered] += 1
        self.states.count(found)
        try:
            self._writer.write_first(restored.write)
        except StatePaused as pause:
            log.warning("%s; new records must wait", pause)
        for source in self._sources:
            source.restore(self._state.checkpoints(source.name))

    def tick(self, now: float, running: float) -> Tick:
        """Ingest what the sources have, at most one poll of each.

        `now` is Unix time, for records; `running` is the monotonic clock, for delays. Raises StateLost.
        """
        tick, self._running = Tick(), running
        self._forget()
        if self.backlog.is_waiting(running):
            return tick
        invalidations = self.backlog.begin_poll()
        try:
            for source in self._sources:
                self._drain(source, now, tick)
                self.backlog.polled(source)
            next_poll = min((source.next_poll_seconds() for source in self._sources), default=1.0)
            self.backlog.end_poll(invalidations, running + next_poll)
            if self.backlog.paused is not None:
                self._resume(now)
            self._commit_pending(now, tick)
            self._writer.back_up_if_due(running)
        except StatePaused as pause:
            self.backlog.pause(pause, running)
        return tick

    def stop(self, now: float) -> None:
        """Write what waits for a commit, and close the sources. The owner closes the state."""
        self._forget()
        try:
            self._commit(CommitPlan(), now)
            self._writer.back_up_if_old(now)
        except StatePaused as pause:
            log.warning("%s", pause)
        for source in self._sources:
            source.close()

    def _drain(self, source: Source, now: float, tick: Tick) -> None:
        """Ingest one poll of a source."""
        waiting: list[Delivery] = []
        share = 0.0
        try:
            for delivery in source.poll(now):
                if delivery.reset or (
                    delivery.owned is not None and delivery.owned != self.states.shards_of(source.name)
                ):
                    # Earlier deliveries belong to the shards as they were.
                    self._ingest(source, waiting, now, tick)
                    waiting, share = [], 0.0
                    self._update_shards(source, delivery, now)
                waiting.append(delivery)
                share += share_of_commit(delivery)
                if share >= 1.0:
                    self._ingest(source, waiting, now, tick)
                    waiting, share = [], 0.0
            self._ingest(source, waiting, now, tick)
        except BaseException:
            source.roll_back()
            raise

    def _ingest(self, source: Source, deliveries: list[Delivery], now: float, tick: Tick) -> None:
        """Plan, commit, update memory, acknowledge: in this order."""
        if not deliveries:
            return
        if source.name in self._label_sources:
            plan = plan_label_commit(self.states, source.name, deliveries, now)
            self._commit(plan, now)
            source.acknowledge(self.states.oldest_label(source.name))
        else:
            plan = plan_commit(self.states, source.name, deliveries, now, sharded=source.sharded)
            self._commit(plan, now)
            source.acknowledge(self.states.oldest(source.name))
        tick.counted.add(plan.counted)
        tick.commits += 1
        self._log_events(source.name, deliveries)
        if plan.rejected:
            self._writer.log_rejected(plan, now)

    def _commit(self, plan: CommitPlan, now: float) -> None:
        """Commit a plan, then change memory."""
        ids = self._writer.commit(plan, self.states.counted, now)
        self.states.apply(plan, ids, self._running)

    def _commit_pending(self, now: float, tick: Tick) -> None:
        """Commit named values, history and silent segments that no batch has carried along."""
        plan = CommitPlan(deleted_windows=self.states.idle(now))
        if self._keeps_ids and self._running >= self._next_expiry:
            self._next_expiry = self._running + _EXPIRY_SECONDS
            with self.states.lock:
                plan_expired_ids(plan, self._state.oldest_audit_ids(), self.states, now)
        if plan.deleted_windows or plan.audit_ids_needed or self._writer.has_pending():
            self._commit(plan, now)
            tick.commits += 1

    def _forget(self) -> None:
        """Delete what is stored of ids that were asked for: first on disk, then in memory."""
        with suppress(Empty):
            while True:
                hashes, model, done = self._to_forget.get_nowait()
                try:
                    found = self._writer.forget(hashes, model)
                    self.states.forget_ids(hashes, model)
                    done.set_result(found)
                except StatePaused as pause:
                    done.set_exception(pause)
                except BaseException as error:
                    done.set_exception(error)
                    raise

    def _resume(self, now: float) -> None:
        """Resume if the state can be written again; the uncommitted records may be gone by now."""
        plan = CommitPlan()
        plan.counted.resumed[()] += 1
        self._commit(plan, now)
        self.backlog.resume()

    def _update_shards(self, source: Source, delivery: Delivery, now: float) -> None:
        """Release revoked shards, load assigned ones, and reset a shard whose stored data is invalid."""
        wanted, held = delivery.owned, self.states.shards_of(source.name)
        for name in () if wanted is None else sorted(held - wanted):
            self.states.remove((source.name, name))
        for name in () if wanted is None else sorted(wanted - held):
            models = self.states.empty((source.name, name))
            if dropped := restore_shard(self._state, models, self.states.lock):
                whole = {stored: math.inf for stored, segment in dropped if segment == ALL}
                self._commit(CommitPlan(deleted_windows=dropped, audit_ids_needed=whole), now)
            self.states.put((source.name, name), models)
        self.backlog.assigned(source.name, len(self.states.shards_of(source.name)))
        if delivery.reset:
            self._reset((source.name, delivery.shard), now)

    def _reset(self, shard: Shard, now: float) -> None:
        """Delete a shard's stored data. Its checkpoint follows with its first records, which do not depend on it."""
        models = self.states[shard].values()
        plan = CommitPlan(
            deleted_windows=[(model.stored_name, segment) for model in models for segment in model.windows],
            ids_needed={name: known.next_batch for model in models for name, known in model.hashes.items()},
            audit_ids_needed={model.stored_name: math.inf for model in models},
        )
        self.states.plan_evidence(plan)
        self._commit(plan, now)
        self.states.put(shard, self.states.empty(shard))

    def _log_events(self, source: str, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            for warning in delivery.warnings:
                log.warning("%s: %s", source, warning)
            for event in delivery.events:
                log.info("%s: %s", source, event)
            for name, hints in delivery.batch.hints.items():
                model = self.states.common[name]
                for hint in set(hints) - set(model.hints):
                    log.warning("%s: records of %s: %s", source, name, hint)
                model.hints = hints


def _without_content(rejected: RejectionEntry) -> RejectionEntry:
    at, source, origin, pointer = rejected
    return at, source, origin, pointer if pointer.raw is None else replace(pointer, raw=None)
