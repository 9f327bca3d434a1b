"""The models in memory: windows, ids and input health, by shard.

There is one common shard, and one for each partition assigned to this process. A partition may be revoked at any time,
and others assigned. So each shard has its own windows and ids, which are loaded and released together. A model's totals
are the sum over its shards. Totals add up exactly, so the sum over all processes does not depend on the assignment.
"""

import math
import threading
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from monitor.config.config import ModelOptions
from monitor.core.change import EvidenceSums, EvidenceTable
from monitor.core.decisions import DecidedBy
from monitor.core.input_health import Count, InputHealth, InputProblem, count_key
from monitor.core.labels.kept_predictions import KeptPredictions, RowLog, UnusedLog
from monitor.core.recent_ids import RecentIds
from monitor.core.report import InputFacts, Snapshot
from monitor.core.scores import Floats
from monitor.core.segments import ALL, Chunk, Segment
from monitor.core.totals import Gauge, MeasuredWindows
from monitor.core.window import Added, Parts, measured, measured_after
from monitor.ingest.backlog import Backlog
from monitor.ingest.late_labels import ModelLabels
from monitor.state.commit_plan import (
    COMMON,
    ChunkLog,
    CommitPlan,
    Counters,
    Shard,
    StoredChunk,
    WindowName,
    groups_name,
    labels_name,
    predictions_name,
    stored_name,
)
from monitor.state.record_tables import joined

_MERGED_BATCHES = 1_000
"""Batches of id hashes to merge: slow streams would otherwise leave one row per record."""
_PIECE, _MOST_PIECES = 1 << 13, 1_000
"""Records that are measured before the lock is released for others, and how often it is released."""


class _StoredEvidence(msgspec.Struct):
    """The evidence of changes of a model, as it is stored."""

    of: str
    """The reference and the detectors."""
    stored_to: dict[str, int]
    segments: list[Segment]
    sums: bytes
    means: bytes
    since: bytes


class ModelEvidence:
    """The evidence of changes of a model over all its shards, and up to which chunk of each it is stored.

    The records of later chunks are counted again after a restart, so those chunks are kept whole until then.
    """

    def __init__(self, options: ModelOptions, table: EvidenceTable) -> None:
        self.table = table
        self._of = f"{options.reference.fingerprint} {options.detectors}"
        self.stored_to: dict[str, int] = {}
        """By stored name."""
        self.restored = False
        """Whether it was stored before. Otherwise it starts with the records that come now."""
        self.waits = True
        """Whether it must be stored with the next commit."""
        self._since = table.since
        """When each window began that is stored."""

    def to_bytes(self, stored_to: Mapping[str, int]) -> bytes:
        """Return the bytes to store."""
        segments, self._since = self.table.segments, self.table.since.copy()
        columns = (column.tobytes() for column in self.table.snapshot(segments))
        return msgspec.msgpack.encode(_StoredEvidence(self._of, {**self.stored_to, **stored_to}, segments, *columns))

    def stored(self, name: str, number: int) -> None:
        """Call when it is stored, up to a chunk of a stored name. What an evaluation began meanwhile still waits."""
        self.stored_to[name], self.waits = number, not np.array_equal(self._since, self.table.since)

    def begin(self, segments: Collection[Segment] | None, now: float) -> None:
        """Begin the evidence of some segments anew, or of all."""
        self.table.begin_again(self.table.segments if segments is None else segments, now)
        self.waits = True

    def restore(self, content: bytes | None, segments: Container[Segment], now: float) -> str | None:
        """Take the stored evidence of some segments; return why it starts anew, None if it does not."""
        self.table.begin_again(self.table.segments, now)
        if content is None:
            return None
        try:
            stored = msgspec.msgpack.decode(content, type=_StoredEvidence)
            table, count = self.table, len(stored.segments)
            sums = np.frombuffer(stored.sums, dtype=np.int64).reshape(count, table.sums.shape[1])
            means = np.frombuffer(stored.means).reshape(count, *table.means.shape[1:])
            columns = EvidenceSums(sums, means, np.frombuffer(stored.since).reshape(count))
        except (msgspec.DecodeError, ValueError):
            return "its stored evidence of changes is of other alerts, or invalid"
        if stored.of != self._of:
            return "its reference or its alerts on changes are new"
        kept = [place for place, segment in enumerate(stored.segments) if segment in segments]
        sums, means, since = columns
        some = EvidenceSums(sums[kept], means[kept], since[kept])
        self.table.restore([stored.segments[place] for place in kept], some)
        self.stored_to, self.restored, self.waits = dict(stored.stored_to), True, False
        return None


def evidence_key_of(model: str) -> str:
    """Return the key of a model's evidence in the state."""
    return f"evidence:{model}"


class ModelState:
    """A model's windows, ids and input health, for one shard."""

    def __init__(
        self,
        options: ModelOptions,
        shard: Shard = COMMON,
        gauge: Gauge | None = None,
        evidence: ModelEvidence | None = None,
        labels: ModelLabels | None = None,
    ) -> None:
        self.options = options
        self.stored_name = stored_name(options.name, shard)
        """Its name in the state."""
        self.gauge = gauge or options.gauge()
        if evidence is None and (table := options.evidence(self.gauge)) is not None:
            evidence = ModelEvidence(options, table)
        self.evidence = evidence
        """Shared by all shards; None if nothing looks for changes."""
        self.decides = options.reference.calibration.decision.by is DecidedBy.FIELD
        """Whether records name the decision."""
        self.ids, self.groups = RecentIds(options.most_ids), RecentIds(options.most_ids)
        if labels is None and options.labels is not None:
            labels = ModelLabels(options)
        self.labels = labels
        """Shared by all shards; None if the model takes no labels."""
        self.predictions: KeptPredictions | UnusedLog = (
            UnusedLog() if options.labels is None else KeptPredictions(options.labels.most)
        )
        self.hashes: dict[str, RecentIds | RowLog | UnusedLog] = {
            self.stored_name: self.ids,
            groups_name(self.stored_name): self.groups,
            predictions_name(self.stored_name): self.predictions,
        }
        """What is remembered of ids, groups, predictions and labels, by its name in the state."""
        if shard == COMMON:
            self.hashes[labels_name(self.stored_name)] = UnusedLog() if labels is None else labels.log
        self.health = InputHealth()
        self.hints: tuple[str, ...] = ()
        self.clear()

    def clear(self) -> None:
        """Start with empty windows."""
        self.windows = self.options.windows(self.gauge, None if self.evidence is None else self.evidence.table)
        self.last_arrival: dict[Segment, float] = {}
        """When records last entered each window since the start, on the monotonic clock."""
        self.earlier_arrival: dict[Segment, float] = {}
        """When records last arrived at each window before the start, in Unix seconds."""
        self.log = ChunkLog(self.stored_name, len(self.options.reference.classes))
        if self.evidence is not None:
            self.log.keep_after(self.evidence.stored_to.get(self.stored_name, 0))

    @property
    def name(self) -> str:
        """The model's name."""
        return self.options.name

    def in_shard(self, shard: Shard) -> "ModelState":
        """Return the same model for another shard, without records."""
        return ModelState(self.options, shard, self.gauge, self.evidence, self.labels)

    def holds(self, segment: Segment) -> bool:
        """Return whether the configuration has a window for this segment."""
        names = tuple(name for name, _ in segment)
        return segment == ALL or names in self.options.segmentation.split_by

    def maintain(self, plan: CommitPlan) -> None:
        """Plan the maintenance of the stored chunks and ids: windows and disk agree now."""
        self.log.maintain(self.windows, plan)
        for name, known in self.hashes.items():
            batches = known.next_batch
            if batches and batches % _MERGED_BATCHES == 0:
                plan.ids_merged[name] = (batches - _MERGED_BATCHES, batches - 1)
            # Without `group_by`, earlier groups are of no use.
            unused = known is self.groups and self.options.group_by is None
            if needed := batches if unused or isinstance(known, UnusedLog) else known.first_needed:
                plan.ids_needed[name] = needed

    def enter(self, chunk: Chunk, number: int, running: float) -> tuple[Added, int]:
        """Add a committed chunk, stored under a number; `running` is the monotonic clock.

        Return what happened in the window of all records, and how many records later ones of the chunk may have displaced.
        """
        self.log.restamped |= self.windows.would_restamp(chunk.arrived)
        self.log.added(number, self.windows.next_arrival, len(chunk.at), chunk.arrived)
        # Evidence needs all records, also those that fill a window many times over: in pieces, to bound memory.
        capacity, total, displaced = self.options.bounds.capacity, Added(), 0
        size = len(chunk.at) if self.evidence is None else max(capacity, _PIECE)
        for start in range(0, len(chunk.at), size):
            piece = chunk if size >= len(chunk.at) else chunk.taken(slice(start, start + size))
            entered = self.windows.enter(piece)
            for segment, added in entered.added.items():
                # Replaying an archive does not make a window look alive: its records are too old to enter.
                if added.entered:
                    self.last_arrival[segment] = running
            total, displaced = total + entered.added[ALL], displaced + max(0, len(piece.at) - capacity)
        return total, displaced

    def restore(self, chunks: Sequence[StoredChunk]) -> None:
        """Add stored chunks together: their arrivals ascend."""
        records = joined([self._with_counted(one) for one in chunks])
        for one in chunks:
            for segment, arrived in ((ALL, one.chunk.arrived), *zip(one.chunk.segments, one.arrivals, strict=True)):
                self.earlier_arrival[segment] = max(self.earlier_arrival.get(segment, -math.inf), float(arrived))
                if self.evidence is not None and self.holds(segment):
                    # It begins with its first records, as before the restart: what was taken of it stays taken.
                    self.evidence.table.row(segment, float(arrived))
        self.log.restamped |= self.windows.would_restamp(records.arrived)
        start = self.windows.enter(records, self.earlier_arrival).first
        for one in chunks:
            self.log.added(one.number, start, len(one.chunk.at), one.chunk.arrived)
            start += len(one.chunk.at)

    def _with_counted(self, stored: StoredChunk) -> Chunk:
        """Return a stored chunk; its records count as evidence unless they did before."""
        chunk = stored.chunk
        if self.evidence is None:
            return chunk
        new = self.evidence.restored and stored.number > self.evidence.stored_to.get(self.stored_name, 0)
        return chunk if new else replace(chunk, counted=np.zeros(len(chunk.at), dtype=np.bool_))

    def restored(self, segments: Iterable[Segment]) -> None:
        """End the restore of these windows; some may have lost all their records."""
        if self.evidence is not None:
            if not self.evidence.restored:
                self.evidence.stored_to[self.stored_name] = self.log.last
            self.log.keep_after(self.evidence.stored_to.get(self.stored_name, 0))
        for segment in segments:
            if segment not in self.windows and self.holds(segment):
                self.windows.place(segment, 0.0)
        self.windows.restored()

    def count_and_leave(self) -> None:
        """Count all evidence before it leaves memory."""
        if self.evidence is not None:
            self.windows.settle_evidence()
            last = max(self.log.last, self.evidence.stored_to.get(self.stored_name, 0))
            self.evidence.stored_to[self.stored_name], self.evidence.waits = last, True

    def forget_labels(self) -> None:
        """Drop kept predictions and labels."""
        for log in (self.predictions, None if self.labels is None else self.labels.log):
            if isinstance(log, RowLog):
                log.clear()

    def forget(self, segment: Segment) -> None:
        """Remove a segment, if it is there. The window of all records stays."""
        if segment == ALL or segment not in self.windows:
            return
        self.windows.forget(segment)
        for known in (self.last_arrival, self.earlier_arrival):
            known.pop(segment, None)


Models = Mapping[str, ModelState]
"""By model name."""

Shards = Mapping[Segment, Sequence[ModelState]]
"""A model in all shards that have a window of a segment."""


class QueueLock:
    """A lock that a thread cannot take again while another one waits for it."""

    def __init__(self) -> None:
        self._next, self._held = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        """Acquire it."""
        with self._next:
            self._held.acquire()

    def __exit__(self, *_: object) -> None:
        """Release it."""
        self._held.release()


class ModelStates:
    """The models of each shard in memory, and the counters.

    Changed by the ingestion thread only, under one lock; `snapshot` and `counters` are for any thread.
    """

    def __init__(self, models: Iterable[ModelState], counters: Counters, backlog: Backlog) -> None:
        self._shards: dict[Shard, Models] = {COMMON: {model.name: model for model in models}}
        self.counted = counters
        """All counts since the state was created; for the ingestion thread only."""
        self._published, self._began = counters.copy(), counters.copy()
        self._late: Counter[str] = Counter()
        """By model, records since the start that were too old for the window of all records."""
        self._backlog = backlog
        self.lock = QueueLock()

    # For any thread.

    def counters(self) -> Counters:
        """Return all counts since the state was created, as of the last commit: not to be changed. Never waits."""
        return self._published

    def snapshot(self, model: str, now: float, running: float) -> Snapshot:
        """Return everything that an evaluation needs of a model.

        Records are measured in pieces, so that ingestion waits for one piece at most.
        """
        for _ in range(_MOST_PIECES):
            with self.lock:
                if any(one.windows.measure_some(_PIECE) for one in self.of(model)):
                    continue
                self._expire(model)
                shards = _by_segment(self.of(model))
                totals = measured_after(self.common[model].gauge, _windows(shards), _PIECE)
                if totals is not None:
                    return self._snapshot(model, shards, totals, now, running)
        with self.lock:
            self._expire(model)
            shards = _by_segment(self.of(model))
            return self._snapshot(model, shards, measured(self.common[model].gauge, _windows(shards)), now, running)

    def _snapshot(self, model: str, shards: Shards, totals: MeasuredWindows, now: float, running: float) -> Snapshot:
        common, counters, health = self.common[model], self.counted, self.common[model].health
        parts = np.repeat(np.arange(len(shards)), [len(some) for some in shards.values()])
        referred = counters.records_referred[model] if common.decides else None
        unmatched = None if common.labels is None else counters.labels_without_prediction[model]
        each = [(one, segment) for segment, some in shards.items() for one in some]
        windows = [one.windows[segment] for one, segment in each]

        def latest(found: Sequence[float | None]) -> Floats:
            """Return by segment the largest value of its shards; NaN if there is none."""
            values = np.full(len(shards), np.nan)
            np.fmax.at(values, parts, np.array(found, dtype=np.float64))
            return values

        newest = latest([window.newest for window in windows])
        oldest = -latest([None if window.oldest is None else -window.oldest for window in windows])
        entered = np.zeros(len(shards), dtype=np.int64)
        np.add.at(entered, parts, [one.windows.entered(segment) for one, segment in each])
        return Snapshot(
            segments=tuple(shards),
            measured=totals,
            newest_at=newest,
            oldest_at=oldest,
            usual_gap_seconds=np.nan_to_num(newest - oldest) / np.maximum(1, totals.records - 1),
            entered=entered,
            came_at=latest([one.last_arrival.get(segment) for one, segment in each]),
            came_before=latest([one.earlier_arrival.get(segment) for one, segment in each]),
            evidence=None if common.evidence is None else common.evidence.table.snapshot(tuple(shards)),
            evidence_of=() if common.evidence is None else common.evidence.table.segments,
            labels=None if common.labels is None else common.labels.snapshot(self.of(model), tuple(shards), now),
            input=InputFacts(
                *(health.rejected_share, health.degraded, health.one_hot, health.constant, common.hints, referred),
                unmatched_labels=unmatched,
            ),
            right_version=sum(count for (_, name), count in counters.records.items() if name == model),
            other_version=counters.records_other_version[model],
            catching_up=self._backlog.catching_up(now, running),
            counts=self._counts(model, int(entered[0])),
        )

    def _counts(self, model: str, entered: int) -> dict[str, Count]:
        """Return the records of a model since the start, by what may be wrong with them."""

        def new(counts: Counter[Any], began: Counter[Any], key: object = model) -> int:
            return counts[key] - began[key]

        now, began = self.counted, self._began
        records = sum(new(now.records, began.records, key) for key in now.records if key[1] == model)
        duplicates = new(now.records_duplicate, began.records_duplicate)
        arrived = records + duplicates + new(now.records_referred, began.records_referred)
        others = new(now.records_other_version, began.records_other_version)
        mismatches = new(now.records_argmax_mismatch, began.records_argmax_mismatch)
        lacking = now.records_without_segment, began.records_without_segment
        options, ungrouped = self.common[model].options, new(now.records_without_group, began.records_without_group)
        return {
            count_key(InputProblem.TIME_AHEAD): (records, new(now.records_future, began.records_future)),
            count_key(InputProblem.TIME_BEHIND): (records, new(now.records_behind, began.records_behind)),
            count_key(InputProblem.ARGMAX_MISMATCH): (arrived + others, mismatches),
            count_key(InputProblem.DUPLICATES): (arrived, duplicates),
            # By what was offered to the window: of a large batch, most records are displaced by later ones.
            count_key(InputProblem.LATE): (entered + self._late[model], self._late[model]),
            count_key(InputProblem.OTHER_VERSION): (arrived + others, others),
            **{
                count_key(InputProblem.SEGMENT_MISSING, fields): (records, new(*lacking, (model, ",".join(fields))))
                for fields in options.segmentation.split_by
            },
            **({} if options.group_by is None else {count_key(InputProblem.GROUP_MISSING): (records, ungrouped)}),
        }

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
        """Remove a shard, without writing it. Its evidence stays here."""
        with self.lock:
            for model in self._shards[shard].values():
                model.count_and_leave()
            del self._shards[shard]

    def begin_evidence(self, model: str, means: Mapping[Segment, Floats], now: float) -> None:
        """Begin the evidence of some segments anew, with other means. For any thread."""
        with self.lock:
            evidence = self.common[model].evidence
            if evidence is None:
                return
            for segment in means.keys() & set(evidence.table.segments):
                evidence.table.begin(segment, means[segment], now)
                evidence.waits = True

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
        """Return by shard of a source the time of the oldest record that is still needed; infinity without one."""
        with self.lock:
            return {name: _oldest(models.values()) for (owner, name), models in self._shards.items() if owner == source}

    def oldest_label(self, source: str) -> dict[str, float]:
        """Return by shard of a source of labels the time of the oldest label."""
        with self.lock:
            logs = [one.labels.log for one in self.common.values() if one.labels is not None]
            at = min((float(log["at"].min()) for log in logs if len(log)), default=math.inf)
            return {name: at for owner, name in self._shards if owner == source}

    def maintain(self, plan: CommitPlan) -> None:
        """Plan the maintenance of the stored records, and of the evidence of changes."""
        with self.lock:
            for name, common in self.common.items():
                if common.evidence is not None:
                    self._plan_evidence(plan, common.evidence, self.of(name))
            for model in self:
                model.maintain(plan)

    def plan_evidence(self, plan: CommitPlan) -> None:
        """Plan to store all evidence, before records are deleted."""
        with self.lock:
            for name, common in self.common.items():
                if common.evidence is not None:
                    common.evidence.waits = True
                    self._plan_evidence(plan, common.evidence, self.of(name))

    @staticmethod
    def _plan_evidence(plan: CommitPlan, evidence: ModelEvidence, shards: Sequence[ModelState]) -> None:
        """Plan to store the evidence of all records until now, if it is time."""
        if evidence.waits or any(one.log.keeps_much for one in shards):
            for one in shards:
                one.windows.settle_evidence()
            stored_to = {one.stored_name: one.log.last for one in shards}
            plan.evidence_to |= stored_to
            plan.values = {**plan.values, evidence_key_of(shards[0].name): evidence.to_bytes(stored_to)}

    def count(self, counted: Counters) -> None:
        """Add counts that are written with the next commit."""
        self.counted.add(counted)
        self._published = self.counted.copy()

    def apply(self, plan: CommitPlan, ids: Sequence[int], running: float) -> None:
        """Change memory as a committed plan says; `ids` are those of its chunks, `running` is the monotonic clock."""
        models = {model.stored_name: model for model in self}
        with self.lock:
            self.counted.add(plan.counted)
            for name, number in plan.evidence_to.items():
                model = models[name]
                model.log.keep_after(number)
                if model.evidence is not None:
                    model.evidence.stored(name, number)
            for name, segment in plan.deleted_windows:
                if name in models:
                    models[name].forget(segment)
                    self._forget_evidence(models[name].name, segment)
            for name, change in plan.maintenance.items():
                models[name].log.maintained(change)
            for (name, chunk), number in zip(plan.chunks, ids, strict=True):
                model = models[name]
                self._count_added(
                    model.name, *model.enter(chunk, number, running), plan.counted.records_late[model.name]
                )
            hashes = {name: known for model in self for name, known in model.hashes.items()} if plan.ids else {}
            for batch in plan.ids:
                hashes[batch.model].remember(batch.hashes)
            for name, health in plan.health.items():
                self.common[name].health = health
            self._note_places(plan)
        self._published = self.counted.copy()

    def _note_places(self, plan: CommitPlan) -> None:
        """Note how many places of kept predictions are stored."""
        for name, places in plan.places.items():
            if (labels := self.common[name].labels) is not None:
                labels.stored_places = places

    def _forget_evidence(self, model: str, segment: Segment) -> None:
        """Forget the evidence of a segment that no shard has any more."""
        evidence = self.common[model].evidence
        held = any(segment in one.windows for one in self.of(model))
        if evidence is not None and segment in evidence.table and not held:
            evidence.table.release([segment])
            # If it comes back, a restart must not find what it had.
            evidence.waits = True

    def _count_added(self, model: str, added: Added, inside: int, outside: int) -> None:
        """Count what is known only now: it is written with the next commit, and after a kill may lag by one batch.

        `inside` and `outside` are records of the batch that later ones displace, in the chunk and not in it.
        """
        if added.late:
            self.counted.records_late[model] += added.late
            # If the newest of a batch are late, so are those that they displace.
            self._late[model] += max(0, added.late - inside) if added.entered else added.late + outside
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


def _windows(shards: Shards) -> Parts:
    return [[one.windows[segment] for one in some] for segment, some in shards.items()]


def _oldest(models: Iterable[ModelState]) -> float:
    some = list(models)
    windows = (model.windows[segment].oldest for model in some for segment in model.windows)
    kept = (model.predictions for model in some)
    # The first prediction may be late; a few more that are read again do no harm.
    predictions = (float(one["at"][0]) for one in kept if isinstance(one, KeptPredictions) and len(one))
    return min((one for one in (*windows, *predictions) if one is not None), default=math.inf)
