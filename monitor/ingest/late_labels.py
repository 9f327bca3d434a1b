"""The labels of a model and the predictions that wait for them: planned, restored and snapshotted.

Predictions belong to a shard, like its records. Labels belong to the process: they may come from another partition or topic
than their predictions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from monitor.config.config import ModelOptions
from monitor.core.labels.audit import audited
from monitor.core.labels.kept_predictions import PICKED, KeptPredictions, Labels, Places
from monitor.core.labels.realised import KeptRows, LabelScope, LabelSnapshot
from monitor.core.recent_ids import NO_ID
from monitor.core.record_columns import Records
from monitor.core.segments import Chunk, Segment
from monitor.state.commit_plan import (
    AuditId,
    CommitPlan,
    IdBatch,
    labels_name,
    places_key,
    predictions_name,
    split_stored_name,
)

if TYPE_CHECKING:
    from monitor.ingest.model_state import ModelState

_KEPT_HORIZONS = 2
"""A label that waited for its prediction as long as it may is kept as long as the prediction."""


class ModelLabels:
    """The labels of a model, and the segments that its kept predictions name. Shared by all shards."""

    def __init__(self, options: ModelOptions) -> None:
        assert options.labels is not None  # noqa: S101  the caller asks
        self.options, audit = options.labels, options.audit
        self.scope = LabelScope(
            self.options.horizon_seconds, self.options.delay_seconds, None if audit is None else audit.share
        )
        self.kept_ids = audit.share if audit is not None and audit.keep_ids else None
        """The share of records whose ids are kept until they are labelled; None to keep none."""
        self.log = Labels(self.options.most)
        self.places = Places()
        self.stored_places = 1
        """How many of the places are stored."""

    def restore(self, content: bytes | None) -> None:
        """Take the stored places."""
        if content is not None:
            self.places = Places(msgspec.msgpack.decode(content, type=tuple[tuple[Segment, ...], ...]))
            self.stored_places = len(self.places.combinations)

    def snapshot(self, shards: "Sequence[ModelState]", segments: Sequence[Segment], now: float) -> LabelSnapshot:
        """Join what is new, and return the rows of all shards."""
        self.log.drop_before(now - _KEPT_HORIZONS * self.options.horizon_seconds, "came")
        rows, joined = [], 0
        for one in shards:
            kept = one.predictions
            if not isinstance(kept, KeptPredictions):
                continue
            kept.join(self.log)
            kept.drop_before(now - self.options.horizon_seconds)
            if not len(kept):
                continue
            oldest, inside = np.full(len(segments), np.nan), np.zeros(len(segments), dtype=np.int64)
            for place, segment in enumerate(segments):
                if segment in one.windows and (at := one.windows[segment].oldest) is not None:
                    oldest[place], inside[place] = at, len(one.windows[segment])
            rows.append(KeptRows.of(kept, oldest, inside, self.scope.share))
            joined += int(np.count_nonzero(rows[-1].label >= 0))
        self.log.dropped.clear()
        places = self.places.windows({segment: place for place, segment in enumerate(segments)})
        version = self.log.end, joined
        return LabelSnapshot(tuple(rows), tuple(places), self.scope, len(self.log), joined, now, version)


def plan_predictions(plan: CommitPlan, model: "ModelState", records: Records, chunk: Chunk) -> None:
    """Plan to keep the predictions of accepted records that have an id."""
    labels, kept = model.labels, model.predictions
    if labels is None or not isinstance(kept, KeptPredictions) or records.ids is None:
        return
    rows = np.flatnonzero(records.ids != NO_ID)
    if not len(rows):
        return
    some = chunk if len(rows) == len(records) else chunk.taken(rows)
    decided, confidence = model.gauge.calibrated(some.vectors, some.decided)
    ids, share = records.ids[rows], labels.scope.share
    if share is not None:
        decided = decided + PICKED * audited(ids, share)
    words = kept.words(id=ids, at=some.at, confidence=confidence, decided=decided, place=labels.places.of(some))
    plan.ids.append(IdBatch(predictions_name(model.stored_name), kept.next_batch, words))
    if labels.kept_ids is not None:
        for row in np.flatnonzero(audited(ids, labels.kept_ids)).tolist():
            if (text := records.audited_ids.get(hash_ := int(ids[row]))) is not None:
                plan.audit_ids.append(AuditId(model.stored_name, hash_, float(some.at[row]), text))
    combinations = labels.places.combinations
    if len(combinations) > labels.stored_places:
        plan.values = {**plan.values, places_key(model.name): msgspec.msgpack.encode(combinations)}
        plan.places[model.name] = len(combinations)


def drop_labelled_ids(plan: CommitPlan, models: "Mapping[str, ModelState]") -> None:
    """Leave out the ids of predictions whose labels came before them. Called under the lock of the logs of labels."""
    logs = {name: one.labels.log for name, one in models.items() if one.labels is not None}
    hashes = np.array([one.hash for one in plan.audit_ids], dtype=np.uint64)
    known = {name: log.latest(hashes) >= 0 for name, log in logs.items()}
    waits = [not known[split_stored_name(one.model)[0]][place] for place, one in enumerate(plan.audit_ids)]
    plan.audit_ids = list(compress(plan.audit_ids, waits))


def plan_expired_ids(plan: CommitPlan, oldest: Mapping[str, float], shards: "Iterable[ModelState]", now: float) -> None:
    """Plan to delete ids whose predictions are too old for a label; `oldest` has the time of the oldest by stored name."""
    held = {one.stored_name: one for one in shards}
    by_name = {one.name: one for one in held.values()}
    for stored, at in oldest.items():
        labels, needed = by_name[split_stored_name(stored)[0]].labels, math.inf
        if labels is not None:
            needed = now - labels.options.horizon_seconds
            kept = held[stored].predictions if stored in held else None
            if isinstance(kept, KeptPredictions) and len(kept) >= kept.most:
                needed = max(needed, float(kept["at"].min()))
        if at < needed:
            plan.audit_ids_needed[stored] = needed


def plan_labels(
    plan: CommitPlan, model: "ModelState", shards: "Sequence[ModelState]", source: str, records: Records, now: float
) -> None:
    """Plan to keep the labels of a model in the common shard; `shards` are all with its predictions."""
    labels, counted, name = model.labels, plan.counted, model.name
    if labels is None or records.ids is None or records.labels is None:
        return
    # A time ahead of the clock is not believed: such a label counts by its arrival.
    at = np.where(records.at > now, np.nan, records.at)
    new = labels.log.new(records.ids, records.labels, at, now)
    counted.labels[source, name] += len(records)
    counted.labels_repeated[name] += new.repeated
    counted.labels_corrected[name] += new.corrected
    ids = np.unique(new.ids)
    has = np.zeros(len(ids), dtype=np.bool_)
    for one in shards:
        if isinstance(one.predictions, KeptPredictions):
            has[one.predictions.find(ids)[0]] = True
    counted.labels_without_prediction[name] += int(np.count_nonzero(~has))
    if labels.kept_ids is not None:
        plan.labelled[name] = records.ids[audited(records.ids, labels.kept_ids)]
    if len(new.words):
        plan.ids.append(IdBatch(labels_name(model.stored_name), labels.log.next_batch, new.words))
