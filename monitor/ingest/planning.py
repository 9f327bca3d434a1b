"""From deliveries to a commit plan: records joined by model, deduplicated and assigned to windows. Changes nothing yet."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from monitor.core.input_health import FAR_BEHIND_SECONDS
from monitor.core.recent_ids import NO_ID, Hashes
from monitor.core.record_columns import Records
from monitor.core.scores import Booleans, Singles
from monitor.core.segments import Admitted
from monitor.ingest.late_labels import drop_labelled_ids, plan_labels, plan_predictions
from monitor.ingest.model_state import ModelState, ModelStates
from monitor.records.rejections import Reason
from monitor.sources.base import Delivery
from monitor.state.commit_plan import COMMON, CommitPlan, IdBatch, Shard, groups_name

# A commit of 4 MiB of float32: more would make the write-ahead log grow, less would sync more often.
_MOST_NUMBERS, _MOST_DELIVERIES, _MOST_POINTERS = 1 << 20, 5_000, 10_000


def share_of_commit(delivery: Delivery) -> float:
    """Return the share of a delivery in a commit of the largest size."""
    # Labels have no vectors.
    numbers = sum(max(one.vectors.size, len(one)) for one in delivery.batch.models.values())
    return numbers / _MOST_NUMBERS + 1 / _MOST_DELIVERIES + len(delivery.batch.pointers) / _MOST_POINTERS


def plan_commit(
    states: ModelStates, source: str, deliveries: Sequence[Delivery], now: float, *, sharded: bool = False
) -> CommitPlan:
    """Plan the commit of some deliveries of a source, by name."""
    plan = CommitPlan(checkpoints={source: {k: v for one in deliveries for k, v in one.checkpoints.items()}})
    by_shard: dict[Shard, list[Delivery]] = {}
    for delivery in deliveries:
        if delivery.batch.models:
            shard = (source, delivery.shard) if sharded else COMMON
            by_shard.setdefault(shard, []).append(delivery)
    accepted: dict[str, list[Singles]] = {}
    for shard, some in by_shard.items():
        for name, model in states[shard].items():
            blocks = [_records(one, name) for one in some if name in one.batch.models]
            if blocks:
                accepted.setdefault(name, []).append(_plan_records(plan, model, source, blocks, now))
    rejected: Counter[str] = Counter()
    for delivery in deliveries:
        _plan_events(plan, source, delivery)
        for (whose, _), count in delivery.batch.rejected.items():
            # A record that could not be parsed may belong to any model.
            rejected.update(dict.fromkeys([whose] if whose else states.common, count))
    plan.health = {
        name: states.common[name].health.added(_joined(accepted.get(name, ()), states.common[name]), rejected[name])
        for name in accepted.keys() | rejected.keys()
    }
    plan.values = {**plan.values, **{f"health:{name}": health.to_bytes() for name, health in plan.health.items()}}
    if plan.audit_ids:
        with states.lock:
            drop_labelled_ids(plan, states.common)
    states.maintain(plan)
    return plan


def plan_label_commit(states: ModelStates, source: str, deliveries: Sequence[Delivery], now: float) -> CommitPlan:
    """Plan the commit of some deliveries of a source of labels, by name. Rejected labels say nothing of the predictions."""
    plan = CommitPlan(checkpoints={source: {k: v for one in deliveries for k, v in one.checkpoints.items()}})
    with states.lock:
        for name, model in states.common.items():
            blocks = [one.batch.models[name] for one in deliveries if name in one.batch.models]
            if blocks:
                plan_labels(plan, model, states.of(name), source, Records.joined(blocks), now)
    for delivery in deliveries:
        _plan_events(plan, source, delivery)
    states.maintain(plan)
    return plan


def _records(delivery: Delivery, model: str) -> Records:
    """Return the records of a model; rebuilt ones have counted as evidence before."""
    records = delivery.batch.models[model]
    return replace(records, counted=np.zeros(len(records), dtype=np.bool_)) if delivery.rebuilt else records


def _plan_records(plan: CommitPlan, model: ModelState, source: str, blocks: list[Records], now: float) -> Singles:
    """Plan the records of a model in a shard; return their vectors."""
    records, counted, name = Records.joined(blocks), plan.counted, model.name
    # Versions first: an id used by another version must not reject a record of this one.
    right = model.windows.of_the_right_version(records)
    counted.records_other_version[name] += len(records) - len(right)
    if len(right) < len(records):
        records = records.taken(right)
    if records.ids is not None:
        fresh = model.ids.fresh(records.ids)
        new = records.ids[fresh & (records.ids != NO_ID)]
        if len(new):
            plan.ids.append(IdBatch(model.stored_name, model.ids.next_batch, new))
        if not fresh.all():
            rows = np.flatnonzero(fresh)
            counted.records_rejected[source, Reason.DUPLICATE_ID] += len(records) - len(rows)
            counted.records_duplicate[name] += len(records) - len(rows)
            records = records.taken(rows)
    decided = records.without_referred()
    counted.records_referred[name] += len(records) - len(decided)
    records = decided
    at, future = model.options.bounds.believed(records.at, now)
    records = replace(records, at=at)
    if records.groups is not None and model.evidence is not None:
        counted.records_without_group[name] += int(np.count_nonzero(records.groups == NO_ID))
        records = replace(records, counted=_first_of_groups(plan, model, records, records.groups, now))
    admitted = model.windows.admit(records, now)
    if admitted.chunk is not None:
        plan.chunks.append((model.stored_name, admitted.chunk))
        if model.labels is not None:
            plan_predictions(plan, model, records, admitted.whole or admitted.chunk)
    plan.deleted_windows.extend((model.stored_name, segment) for segment in admitted.forgotten)
    _count_admitted(plan, model, admitted)
    counted.records[source, name] += len(records)
    counted.records_future[name] += future
    if behind := np.count_nonzero(records.at < now - FAR_BEHIND_SECONDS):
        counted.records_behind[name] += int(behind)
    return records.vectors


def _count_admitted(plan: CommitPlan, model: ModelState, admitted: Admitted) -> None:
    """Count records without a window."""
    counted, name = plan.counted, model.name
    if any(admitted.without_segment):
        for fields, without in zip(model.options.segmentation.split_by, admitted.without_segment, strict=True):
            counted.records_without_segment[name, ",".join(fields)] += without
    counted.records_unstored_segment[name] += admitted.unstored
    counted.records_late[name] += admitted.late


def _first_of_groups(plan: CommitPlan, model: ModelState, records: Records, groups: Hashes, now: float) -> Booleans:
    """Return which records count as evidence: of each group the first that is in time. Plan to remember the groups."""
    rows = np.flatnonzero(model.windows.in_time(records.at, now))
    fresh = model.groups.fresh(groups[rows])
    counted = np.zeros(len(records), dtype=np.bool_)
    counted[rows[fresh]] = True
    new = groups[counted & (groups != NO_ID)]
    if len(new):
        plan.ids.append(IdBatch(groups_name(model.stored_name), model.groups.next_batch, new))
    # Rebuilt records use up their group: it has counted before.
    return counted if records.counted is None else counted & records.counted


def _plan_events(plan: CommitPlan, source: str, delivery: Delivery) -> None:
    """Plan the rejections and events of a delivery."""
    counted, batch = plan.counted, delivery.batch
    for (_, reason), count in batch.rejected.items():
        counted.records_rejected[source, reason] += count
    for name, records in batch.models.items():
        counted.records_normalised[name] += records.normalised
        counted.records_argmax_mismatch[name] += records.argmax_mismatches
    for event, count in delivery.counted.items():
        counted.source_events[source, event] += count
    plan.rejected.extend((source, delivery.origin, pointer) for pointer in batch.pointers)
    plan.events.extend([*delivery.warnings, *delivery.events])


def _joined(accepted: Sequence[Singles], model: ModelState) -> Singles:
    if len(accepted) == 1:
        return accepted[0]
    nothing = np.empty((0, len(model.options.reference.classes)), dtype=np.float32)
    return np.concatenate([nothing, *accepted])
