"""The stroke that takes records in: poll, decode, commit, then the windows, then acknowledge.

Rows and positions are committed in one transaction before anything in memory changes. A crash at any instant therefore
loses nothing and counts nothing twice: before the commit the same records are read again, after it they are restored.
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from monitor.core.input_health import InputHealth
from monitor.core.segments import Admitted, Part, Segment, Taken, joined
from monitor.core.totals import WindowTotals
from monitor.decode.arrived import NO_ID, Hashes, ModelRecords
from monitor.decode.rejections import Reason
from monitor.errors import StatePaused
from monitor.restore import restore
from monitor.sources.base import Delivery, Lag, Source
from monitor.state.change import Change, Chunk, IdBatch, WindowName
from monitor.state.rejected_file import RejectedFile
from monitor.state.store import State
from monitor.watched_model import WatchedModel

log = logging.getLogger("cpcmon")

_COMMIT_NUMBERS = 1 << 20
"""Numbers in one commit: 4 MiB of float32. A larger one makes its log grow; a smaller one waits for the disk more often."""
_COMMIT_DELIVERIES = 5_000
_MERGED_BATCHES = 1_000
"""Batches of id hashes that become one: a trickle of records would otherwise leave a row for each."""
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How much may be behind before estimates are marked, and how often state is copied."""

    catching_up_bytes: int = 16 << 20
    catching_up_age_seconds: float = 600.0
    backup_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Tick:
    """What one tick did."""

    records: int = 0
    rejected: int = 0
    commits: int = 0


@dataclass(slots=True)
class _Group:
    """Deliveries of one source that are committed together."""

    deliveries: list[Delivery] = field(default_factory=list)
    numbers: int = 0

    def add(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self.numbers += sum(one.records.vectors.size for one in delivery.arrived.models.values())

    @property
    def is_full(self) -> bool:
        return self.numbers >= _COMMIT_NUMBERS or len(self.deliveries) >= _COMMIT_DELIVERIES


@dataclass(frozen=True, slots=True)
class _Batch:
    """A model's records of a group, on their way."""

    model: WatchedModel
    admitted: Admitted
    hashes: Hashes | None

    def describe(self, change: Change) -> None:
        """Say what is to be written; nothing changes in memory."""
        name, now = self.model.name, self.admitted.now
        change.chunks.extend(Chunk((name, part.segment), now, part.at, part.vectors) for part in self._filled)
        change.forgotten.extend((name, segment) for segment in self.admitted.forgotten)
        if self.hashes is not None and len(self.hashes):
            change.ids.append(IdBatch(name, self.model.ids.next_batch, self.hashes))

    def enter(self, numbers: Iterator[int]) -> Taken:
        """Let the records into the windows, now that they are written in chunks of these numbers."""
        model, now = self.model, self.admitted.now
        for segment in self.admitted.forgotten:
            model.forget_log(segment)
        for part in self._filled:
            log = model.log(part.segment)
            log.restamped |= part.segment in model.windows and model.windows[part.segment].would_restamp(now)
            log.added(next(numbers), float(part.at.max()), len(part.at), now)
        if self.hashes is not None and len(self.hashes):
            model.ids.remember(self.hashes)
        return model.windows.enter(self.admitted)

    @property
    def _filled(self) -> list[Part]:
        return [part for part in self.admitted.parts if len(part.at)]


class Ingestion:
    """Takes records from sources into windows. One thread ticks; others may ask for totals and status."""

    def __init__(
        self,
        state: State,
        models: Sequence[WatchedModel],
        sources: Sequence[Source],
        options: IngestOptions | None = None,
    ) -> None:
        self._state = state
        self._models = {model.name: model for model in models}
        self._sources = sources
        self._options = options or IngestOptions()
        self._lock = threading.Lock()
        self._counters: Counter[tuple[str, ...]] = Counter()
        self._rejected = RejectedFile(state.path)
        self._lags: dict[str, Lag] = {}
        self._paused: str | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._next_backup: float | None = None

    @property
    def models(self) -> Mapping[str, WatchedModel]:
        """The models by name."""
        return MappingProxyType(self._models)

    @property
    def paused(self) -> str | None:
        """Why nothing can be taken in for the moment; None when it can."""
        return self._paused

    @property
    def counters(self) -> Mapping[tuple[str, ...], int]:
        """Everything counted since the state was made, by name and labels."""
        return MappingProxyType(self._counters)

    def lags(self) -> Mapping[str, Lag]:
        """Return how far behind each source is."""
        return dict(self._lags)

    def catching_up(self, now: float) -> bool:
        """Tell whether so much is unread that estimates are of the past."""
        options = self._options
        return any(
            lag.bytes > options.catching_up_bytes
            or (lag.oldest_unread is not None and now - lag.oldest_unread > options.catching_up_age_seconds)
            for lag in self._lags.values()
        )

    def totals(self, model: str) -> dict[Segment, WindowTotals]:
        """Return a snapshot of a model's windows; may be called by any thread."""
        with self._lock:
            return self._models[model].windows.totals()

    def start(self, now: float) -> None:
        """Rebuild everything from the state; called once, before the first tick."""
        for event in restore(self._state, self._models, now):
            log.warning("%s", event)
        self._counters.update(self._state.counters())
        for source in self._sources:
            source.restore(self._state.positions(source.name))

    def tick(self, now: float, monotonic: float) -> Tick:
        """Take in what the sources have, at most one tick's worth of each.

        `now` is Unix time, for records; `monotonic` is for waiting, since it never jumps. Raises StateLost.
        """
        if self._paused is not None and monotonic < self._retry_at:
            return Tick()
        before = self._counters.copy()
        commits = 0
        try:
            for source in self._sources:
                commits += self._drain(source, now)
                self._lags[source.name] = source.lag()
            self._back_up(monotonic)
        except StatePaused as pause:
            self._pause(pause, monotonic)
        else:
            if commits and self._paused is not None:
                log.warning("state can be written again: going on")
                self._paused, self._failures = None, 0
        gained = self._counters - before
        return Tick(
            sum(count for name, count in gained.items() if name[0] == "records_total"),
            sum(count for name, count in gained.items() if name[0] == "records_rejected_total"),
            commits,
        )

    def stop(self, now: float) -> None:
        """Write what makes the next start fast, and close the sources; the state is closed by its owner."""
        change = Change()
        self._tidy(change, stopping=True)
        try:
            self._commit(change, now)
        except StatePaused as pause:
            log.warning("%s", pause)
        for source in self._sources:
            source.close()

    def _drain(self, source: Source, now: float) -> int:
        commits = 0
        group = _Group()
        try:
            for delivery in source.poll(now):
                group.add(delivery)
                if group.is_full:
                    self._take(source, group.deliveries, now)
                    group, commits = _Group(), commits + 1
            if group.deliveries:
                self._take(source, group.deliveries, now)
                commits += 1
        except BaseException:
            source.roll_back()
            raise
        return commits

    def _take(self, source: Source, deliveries: list[Delivery], now: float) -> None:
        """Commit deliveries, and only then let them change anything in memory."""
        counted: Counter[tuple[str, ...]] = Counter()
        batches = self._batches(source.name, deliveries, counted, now)
        change = Change(positions={source.name: {k: v for one in deliveries for k, v in one.positions.items()}})
        self._tidy(change, without={(b.model.name, segment) for b in batches for segment in b.admitted.forgotten})
        for batch in batches:
            batch.describe(change)
        for delivery in deliveries:
            _count(source.name, delivery, counted)
            change.rejected.extend((source.name, delivery.origin, pointer) for pointer in delivery.arrived.pointers)
            change.events.extend(delivery.events)
        health = self._looked_at(deliveries, batches)
        change.kept = {f"health:{name}": one.to_bytes() for name, one in health.items()}
        change.counters = {name: self._counters[name] + count for name, count in counted.items()}
        self._commit(change, now, batches)
        source.acknowledge()
        self._counters.update(counted)
        for name, one in health.items():
            self._models[name].health = one
        self._say(source.name, deliveries, change.events)
        self._write_rejected(change, now)

    def _batches(
        self, source: str, deliveries: list[Delivery], counted: Counter[tuple[str, ...]], now: float
    ) -> list[_Batch]:
        """Put together the records of each model, without those that were counted before."""
        batches = []
        for name, model in self._models.items():
            pieces = [one.arrived.models[name] for one in deliveries if name in one.arrived.models]
            if not pieces:
                continue
            records, hashes = joined([piece.records for piece in pieces]), _hashes(pieces)
            if hashes is not None:
                fresh = model.ids.fresh(hashes)
                rows = np.flatnonzero(fresh)
                if len(rows) < len(fresh):
                    counted["records_rejected_total", source, Reason.DUPLICATE_ID] += len(fresh) - len(rows)
                    records, hashes = records.taken(rows), hashes[rows]
                hashes = hashes[hashes != NO_ID]
            at, future = model.options.bounds.believed(records.at, now)
            admitted = model.windows.admit(replace(records, at=at), now)
            counted["records_total", source, name] += len(at)
            counted["records_future_total", name] += future
            counted["records_other_version_total", name] += admitted.other_version
            counted["records_unstored_segment_total", name] += admitted.unstored_segments
            batches.append(_Batch(model, admitted, hashes))
        return batches

    def _looked_at(self, deliveries: list[Delivery], batches: list[_Batch]) -> dict[str, InputHealth]:
        """Return how the input of each model looks with these deliveries; nothing changes yet."""
        vectors = {batch.model.name: batch.admitted.parts[0].vectors for batch in batches}
        rejected: Counter[str] = Counter()
        for delivery in deliveries:
            for (whose, _), count in delivery.arrived.rejected.items():
                # What could not be read might have been anybody's.
                rejected.update(dict.fromkeys([whose] if whose else self._models, count))
        looked_at = {}
        for name in vectors.keys() | rejected.keys():
            model = self._models[name]
            looked_at[name] = InputHealth.from_bytes(model.health.to_bytes())
            nothing = np.empty((0, len(model.options.reference.classes)), dtype=np.float32)
            looked_at[name].add(vectors.get(name, nothing), rejected[name])
        return looked_at

    def _tidy(self, change: Change, *, without: AbstractSet[WindowName] = frozenset(), stopping: bool = False) -> None:
        """Put into a change what keeps the chunks on disk in order: windows and disk agree now."""
        for model in self._models.values():
            for segment in model.windows:
                if (model.name, segment) not in without:
                    model.log(segment).tidy(model.windows[segment], change, stopping=stopping)
            batches = model.ids.next_batch
            if batches and batches % _MERGED_BATCHES == 0:
                change.ids_merged[model.name] = (batches - _MERGED_BATCHES, batches - 1)
            if model.ids.first_needed:
                change.ids_needed[model.name] = model.ids.first_needed

    def _commit(self, change: Change, now: float, batches: Sequence[_Batch] = ()) -> None:
        committed = self._state.commit(change, now)
        for model in self._models.values():
            for segment in model.windows:
                model.log(segment).tidied(change, committed)
        numbers = iter(committed.chunks)
        with self._lock:
            for batch in batches:
                taken = batch.enter(numbers)
                # Only known now, so they are on disk with the next batch: after a kill they may lag by one.
                self._counters["records_late_total", batch.model.name] += taken.added.late
                self._counters["records_evicted_total", batch.model.name] += taken.added.evicted

    def _back_up(self, monotonic: float) -> None:
        if self._next_backup is not None and monotonic >= self._next_backup:
            try:
                self._state.back_up()
            except StatePaused as pause:
                log.warning("no backup: %s", pause)
        if self._next_backup is None or monotonic >= self._next_backup:
            self._next_backup = monotonic + self._options.backup_seconds

    def _pause(self, pause: StatePaused, monotonic: float) -> None:
        wait = _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)]
        self._failures += 1
        self._retry_at = monotonic + wait
        if self._paused is None:
            log.error("%s; nothing is taken in until then", pause)
        self._paused = str(pause)

    def _write_rejected(self, change: Change, now: float) -> None:
        try:
            self._rejected.append(change.rejected, now)
        except OSError as error:
            log.warning("rejected records could not be written down: %s", error.strerror)

    def _say(self, source: str, deliveries: list[Delivery], events: list[str]) -> None:
        for event in events:
            log.info("%s: %s", source, event)
        for delivery in deliveries:
            for name, hints in delivery.arrived.hints.items():
                model = self._models[name]
                for hint in set(hints) - set(model.hints):
                    log.warning("%s: records of %s: %s", source, name, hint)
                model.hints = hints


def _hashes(pieces: list[ModelRecords]) -> Hashes | None:
    if all(piece.ids is None for piece in pieces):
        return None
    return np.concatenate([np.zeros(len(p), dtype=np.uint64) if p.ids is None else p.ids for p in pieces])


def _count(source: str, delivery: Delivery, counted: Counter[tuple[str, ...]]) -> None:
    for (_, reason), count in delivery.arrived.rejected.items():
        counted["records_rejected_total", source, reason] += count
    for name, records in delivery.arrived.models.items():
        counted["records_normalised_total", name] += records.normalised
        counted["records_argmax_mismatch_total", name] += records.argmax_mismatches
    for event, count in delivery.counted.items():
        counted["source_events_total", source, event] += count
