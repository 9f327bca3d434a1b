"""From deliveries to the content of a commit: joined by model, deduplicated, and described as a state change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from monitor.core.input_health import InputHealth
from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.record_columns import Records
from monitor.core.scores import Singles
from monitor.core.segments import Admitted, Part, Taken
from monitor.ingest.model_state import ModelState
from monitor.records.rejections import Reason
from monitor.sources.base import Delivery
from monitor.state.change import Chunk, IdBatch, StateChange

Counts = Counter[tuple[str, ...]]
"""Counts by metric name and labels."""

_COMMIT_NUMBERS = 1 << 20
"""Numbers in one commit: 4 MiB of float32. More would make the write-ahead log grow; less would sync more often."""
_COMMIT_DELIVERIES = 5_000
_COMMIT_POINTERS = 10_000


@dataclass(slots=True)
class DeliveryGroup:
    """Deliveries of one source that are committed together."""

    deliveries: list[Delivery] = field(default_factory=list)
    numbers: int = 0
    pointers: int = 0

    def add(self, delivery: Delivery) -> None:
        """Add a delivery."""
        self.deliveries.append(delivery)
        self.numbers += sum(one.vectors.size for one in delivery.batch.models.values())
        self.pointers += len(delivery.batch.pointers)

    @property
    def is_full(self) -> bool:
        """Whether to commit now."""
        return (
            self.numbers >= _COMMIT_NUMBERS
            or len(self.deliveries) >= _COMMIT_DELIVERIES
            or self.pointers >= _COMMIT_POINTERS
        )


@dataclass(frozen=True, slots=True)
class ModelBatch:
    """The records of one model in a group of deliveries."""

    model: ModelState
    admitted: Admitted
    hashes: Hashes | None

    def add_to(self, change: StateChange) -> None:
        """Add the records to a state change. Changes nothing in memory."""
        name, now = self.model.stored_name, self.admitted.now
        change.chunks.extend(Chunk((name, part.segment), now, part.at, part.vectors) for part in self._filled)
        change.deleted_windows.extend((name, segment) for segment in self.admitted.forgotten)
        if self.hashes is not None and len(self.hashes):
            change.ids.append(IdBatch(name, self.model.ids.next_batch, self.hashes))

    def enter(self, numbers: Iterator[int]) -> Taken:
        """Add the records to the windows, after they were committed in chunks with these ids."""
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
    """Join the records of each model, without duplicates."""
    batches = []
    for model in models:
        name = model.name
        blocks = [one.batch.models[name] for one in deliveries if name in one.batch.models]
        if not blocks:
            continue
        records = Records.joined(blocks)
        hashes = records.ids
        # Versions first: an id used by another version must not reject a record of this one.
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


def updated_health(
    models: Mapping[str, ModelState], deliveries: list[Delivery], batches: list[ModelBatch]
) -> dict[str, InputHealth]:
    """Return the input health of each model including these deliveries. Changes nothing yet."""
    vectors: dict[str, list[Singles]] = {}
    for batch in batches:
        vectors.setdefault(batch.model.name, []).append(batch.admitted.parts[0].vectors)
    rejected: Counter[str] = Counter()
    for delivery in deliveries:
        for (whose, _), count in delivery.batch.rejected.items():
            # A record that could not be parsed may belong to any model.
            rejected.update(dict.fromkeys([whose] if whose else models, count))
    updated = {}
    for name in vectors.keys() | rejected.keys():
        model = models[name]
        updated[name] = InputHealth.from_bytes(model.health.to_bytes())
        nothing = np.empty((0, len(model.options.reference.classes)), dtype=np.float32)
        updated[name].add(np.concatenate(vectors.get(name, [nothing])), rejected[name])
    return updated


def count_events(source: str, delivery: Delivery, counted: Counts) -> None:
    """Count the rejections and events of a delivery."""
    for (_, reason), count in delivery.batch.rejected.items():
        counted["records_rejected_total", source, reason] += count
    for name, records in delivery.batch.models.items():
        counted["records_normalised_total", name] += records.normalised
        counted["records_argmax_mismatch_total", name] += records.argmax_mismatches
    for event, count in delivery.counted.items():
        counted["source_events_total", source, event] += count
