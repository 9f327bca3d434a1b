"""The labels of a model and the predictions that wait for them: planned, restored and snapshotted.

Predictions belong to a shard, like its records. Labels belong to the process: they may come from another partition or topic
than their predictions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from monitor.config.config import ModelOptions
from monitor.core.labels.kept_predictions import KeptPredictions, Labels, Places
from monitor.core.labels.realised import KeptRows, LabelScope, LabelSnapshot
from monitor.core.recent_ids import NO_ID
from monitor.core.record_columns import Records
from monitor.core.segments import Chunk, Segment
from monitor.state.commit_plan import CommitPlan, IdBatch, labels_name, places_key, predictions_name

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
            rows.append(KeptRows.of(kept, oldest, inside))
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
    words = kept.words(
        id=records.ids[rows], at=some.at, confidence=confidence, decided=decided, place=labels.places.of(some)
    )
    plan.ids.append(IdBatch(predictions_name(model.stored_name), kept.next_batch, words))
    combinations = labels.places.combinations
    if len(combinations) > labels.stored_places:
        plan.values = {**plan.values, places_key(model.name): msgspec.msgpack.encode(combinations)}
        plan.places[model.name] = len(combinations)


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
    if len(new.words):
        plan.ids.append(IdBatch(labels_name(model.stored_name), labels.log.next_batch, new.words))
