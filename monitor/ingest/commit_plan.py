"""Deliveries on their way into windows: put together, without what was counted before, and described for the commit."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.record_columns import joined
from monitor.core.scores import Singles
from monitor.core.segments import Admitted, Part, Taken
from monitor.ingest.model_state import ModelState
from monitor.records.record_batch import ModelRecords
from monitor.records.rejections import Reason
from monitor.sources.base import Delivery
from monitor.state.change import Chunk, IdBatch, StateChange

Counts = Counter[tuple[str, ...]]
"""Numbers by name and labels."""

_COMMIT_NUMBERS = 1 << 20
"""Numbers in one commit: 4 MiB of float32. A larger one makes its log grow; a smaller one waits for the disk more often."""
_COMMIT_DELIVERIES = 5_000
_COMMIT_POINTERS = 10_000


@dataclass(slots=True)
class Group:
    """Deliveries of one source that are committed together."""

    deliveries: list[Delivery] = field(default_factory=list)
    numbers: int = 0
    pointers: int = 0

    def add(self, delivery: Delivery) -> None:
        """Take one more."""
        self.deliveries.append(delivery)
        self.numbers += sum(one.records.vectors.size for one in delivery.arrived.models.values())
        self.pointers += len(delivery.arrived.pointers)

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit."""
        return (
            self.numbers >= _COMMIT_NUMBERS
            or len(self.deliveries) >= _COMMIT_DELIVERIES
            or self.pointers >= _COMMIT_POINTERS
        )


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """A model's records of a group, on their way."""

    model: ModelState
    admitted: Admitted
    hashes: Hashes | None

    def describe(self, change: StateChange) -> None:
        """Say what is to be written; nothing changes in memory."""
        name, now = self.model.stored_as, self.admitted.now
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


def model_batches(
    models: Iterable[ModelState], source: str, deliveries: list[Delivery], counted: Counts, now: float
) -> list[ModelBatch]:
    """Put together the records of each model, without those that were counted before."""
    batches = []
    for model in models:
        name = model.name
        pieces = [one.arrived.models[name] for one in deliveries if name in one.arrived.models]
        if not pieces:
            continue
        records, hashes = joined([piece.records for piece in pieces]), _hashes(pieces)
        # First the versions: an id that another version used up would keep out the record that counts.
        right = model.windows.of_the_right_version(records)
        counted["records_other_version_total", name] += len(records.at) - len(right)
        if len(right) < len(records.at):
            records, hashes = records.taken(right), None if hashes is None else hashes[right]
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
        counted["records_unstored_segment_total", name] += admitted.unstored_segments
        batches.append(ModelBatch(model, admitted, hashes))
    return batches


def looked_at(
    models: Mapping[str, ModelState], deliveries: list[Delivery], batches: list[ModelBatch]
) -> dict[str, InputHealth]:
    """Return how the input of each model looks with these deliveries; nothing changes yet."""
    vectors: dict[str, list[Singles]] = {}
    for batch in batches:
        vectors.setdefault(batch.model.name, []).append(batch.admitted.parts[0].vectors)
    rejected: Counter[str] = Counter()
    for delivery in deliveries:
        for (whose, _), count in delivery.arrived.rejected.items():
            # What could not be read might have been anybody's.
            rejected.update(dict.fromkeys([whose] if whose else models, count))
    looked_at = {}
    for name in vectors.keys() | rejected.keys():
        model = models[name]
        looked_at[name] = InputHealth.from_bytes(model.health.to_bytes())
        nothing = np.empty((0, len(model.options.reference.classes)), dtype=np.float32)
        looked_at[name].add(np.concatenate(vectors.get(name, [nothing])), rejected[name])
    return looked_at


def _hashes(pieces: list[ModelRecords]) -> Hashes | None:
    if all(piece.ids is None for piece in pieces):
        return None
    return np.concatenate([np.zeros(len(p), dtype=np.uint64) if p.ids is None else p.ids for p in pieces])


def count(source: str, delivery: Delivery, counted: Counts) -> None:
    """Count what a delivery says beside its accepted records."""
    for (_, reason), count in delivery.arrived.rejected.items():
        counted["records_rejected_total", source, reason] += count
    for name, records in delivery.arrived.models.items():
        counted["records_normalised_total", name] += records.normalised
        counted["records_argmax_mismatch_total", name] += records.argmax_mismatches
    for event, count in delivery.counted.items():
        counted["source_events_total", source, event] += count
