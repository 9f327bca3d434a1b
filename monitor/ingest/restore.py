"""Restores windows from the state: exactly where they match the configuration; the others are dropped and reported."""

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from time import monotonic

import msgspec

from monitor.config.config import NO_DECISIONS, ModelShape
from monitor.core.input_health import InputHealth
from monitor.core.segments import ALL, Segment, name_of
from monitor.ingest.backlog import ProgressLog
from monitor.ingest.model_state import ModelState, evidence_key_of
from monitor.state.commit_plan import COMMON, StoredChunk, WindowName, display_name, places_key, split_stored_name
from monitor.state.store import State

# Records added in one call: enough to make the cost per call negligible.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore, and what must be written before anything else."""

    events: list[str]
    """Messages for the log: damage and dropped windows."""
    write: Callable[[], None]
    """Writes them to the state. May raise StatePaused; until it has succeeded nothing else may be committed."""


def restore(
    state: State, models: Mapping[str, ModelState], now: float, sharded: Container[str] = frozenset()
) -> Restored:
    """Restore the models of the common shard.

    Windows of other shards, of the sources named in `sharded`, are only checked: ownership is not known yet.
    """
    reasons, values, anew = _reasons(state, models), state.values(), list[str]()
    dropped = _unusable_windows(state, models, sharded, reasons)
    damaged = state.damaged_chunks
    for name, model in models.items():
        if f"health:{name}" in values:
            model.health = InputHealth.from_bytes(values[f"health:{name}"])
        if model.evidence is not None:
            # Segments that were forgotten since it was stored start anew if they come back.
            stored = {
                one for one in state.window_names() if one not in dropped and split_stored_name(one[0])[0] == name
            }
            reason = model.evidence.restore(values.get(evidence_key_of(name)), {ALL, *(one for _, one in stored)}, now)
            anew += [] if reason is None else [f"{name}: the evidence of changes starts anew: {reason}"]
        if model.labels is not None:
            model.labels.restore(values.get(places_key(name)))
    _restore_models(state, models.values(), dropped, nullcontext())
    _count_elsewhere(state, models, dropped)
    for name, model in models.items():
        lost = {segment for stored, segment in dropped if split_stored_name(stored)[0] == name}
        if model.evidence is not None and model.evidence.restored and (lost or state.damaged_chunks > damaged):
            # What evaluations took of lost records would be missing from the sums, and look like new evidence.
            model.evidence.begin(None if ALL in lost or state.damaged_chunks > damaged else lost, now)
            anew.append(f"{name}: the evidence of changes starts anew where stored records are damaged or dropped")
    # There may be labels without any record.
    for name in reasons:
        models[name].forget_labels()
    shapes = {name: msgspec.json.encode(model.options.shape) for name, model in models.items()}
    events = [
        *state.events,
        *anew,
        *(
            f"dropped the stored window {name_of(segment)} of {display_name(stored)}: {why}"
            for (stored, segment), why in dropped.items()
        ),
    ]
    keep_ids = {name for name, one in models.items() if one.labels is not None and one.labels.kept_ids is not None}
    return Restored(events, lambda: state.store_models(shapes, list(dropped), events, now, keep_ids, reasons))


def restore_shard(
    state: State, models: Mapping[str, ModelState], lock: AbstractContextManager[None] | None = None
) -> list[WindowName]:
    """Restore the models of a shard; return windows that do not match the configuration, to be deleted.

    Most of those were dropped at the start. The lock is that of the evidence of changes, which all shards share.
    """
    dropped: dict[WindowName, str] = {}
    _restore_models(state, models.values(), dropped, lock or nullcontext())
    return list(dropped)


def _restore_models(
    state: State, models: Iterable[ModelState], dropped: dict[WindowName, str], lock: AbstractContextManager[None]
) -> None:
    """Restore windows and ids. Adds to `dropped`."""
    named = {model.stored_name: model for model in models}
    progress, done, records = ProgressLog(monotonic()), 0, state.stored_records(named)
    for name, model in named.items():
        without = {segment for stored, segment in dropped if stored == name}
        if ALL in without:
            continue
        windows = sum(stored == name for stored, _ in state.window_names())
        model.windows.reserve(state.stored_records({name}), windows)
        for batch in _batches(state.chunks(name, without)):
            done += sum(len(one.chunk.at) for one in batch)
            progress.report(
                monotonic(), f"rebuilding windows: {done:,} of {records:,} records; no estimates until this ends"
            )
            if (reason := _misfit(batch, model)) is not None:
                model.clear()
                dropped.update(dict.fromkeys((one for one in state.window_names() if one[0] == name), reason))
                break
            with lock:
                model.restore(batch)
        else:
            names = (one for stored, one in state.window_names() if stored == name)
            with lock:
                model.restored(segment for segment in names if segment not in without)
    hashes = {name: known for model in named.values() for name, known in model.hashes.items()}
    for ids in state.ids(hashes):
        hashes[ids.model].remember(ids.hashes, ids.number)
    for stored, segment in dropped:
        # Labels and the kept predictions of this shard do not fit either. Those of other shards may.
        if segment == ALL and stored in named:
            with lock:
                named[stored].forget_labels()


def _count_elsewhere(state: State, models: Mapping[str, ModelState], dropped: Container[WindowName]) -> None:
    """Count the evidence of shards that are not assigned yet, or not again: evaluations may have taken it before the end."""
    for stored, _ in [one for one in state.window_names() if one[1] == ALL and one not in dropped]:
        name, shard = split_stored_name(stored)
        evidence = models[name].evidence
        if shard == COMMON or evidence is None or not evidence.restored:
            continue
        model = models[name].in_shard(shard)
        without = {segment for _, segment in state.window_names() if (stored, segment) in dropped}
        for batch in _batches(state.chunks(stored, without, evidence.stored_to.get(stored, 0))):
            if _misfit(batch, model) is not None:
                break
            model.restore(batch)
        model.count_and_leave()


def _misfit(batch: Sequence[StoredChunk], model: ModelState) -> str | None:
    """Return why stored records do not fit the reference; None if they do."""
    classes, decides = len(model.options.reference.classes), model.decides
    if any(one.chunk.vectors.shape[1] != classes for one in batch):
        return "its records are of another number of classes"
    if decides and any(one.chunk.decided is None or one.chunk.decided.max(initial=0) >= classes for one in batch):
        return NO_DECISIONS
    return None


def _batches(chunks: Iterable[StoredChunk]) -> Iterator[list[StoredChunk]]:
    """Group chunks that can be added in one call: the arrival time matters only where the clock went back.

    Version 3 rewrote the chunks of one window later than those of others, so it went back only if it did for that window.
    """
    batch: list[StoredChunk] = []
    records, arrived, latest = 0, -math.inf, dict[Segment, float]()
    for stored in chunks:
        chunk = stored.chunk
        # A chunk of a segment alone, see `record_tables`.
        own = chunk.segments[0] if ALL in chunk.segments else ALL
        back = chunk.arrived < latest.get(own, -math.inf)
        latest[own] = chunk.arrived
        one = stored if back else replace(stored, chunk=replace(chunk, arrived=max(arrived, chunk.arrived)))
        if batch and (back or records >= _AT_ONCE):
            yield batch
            batch, records = [], 0
        batch.append(one)
        records += len(one.chunk.at)
        arrived = one.chunk.arrived
        if back:
            yield batch
            batch, records = [], 0
    if batch:
        yield batch


def _unusable_windows(
    state: State, models: Mapping[str, ModelState], sharded: Container[str], reasons: Mapping[str, str]
) -> dict[WindowName, str]:
    """Return the stored windows that cannot be used, with reasons; given those of models."""
    dropped, kept = dict[WindowName, str](), dict[str, list[Segment]]()
    for stored, segment in state.window_names():
        model, shard = split_stored_name(stored)
        reason = reasons.get(model) or _reason_for_window(segment, models.get(model))
        if shard != COMMON and shard[0] not in sharded:
            reason = f"the source {shard[0]} is no longer configured"
        if reason is not None:
            dropped[stored, segment] = reason
        elif segment != ALL:
            kept.setdefault(stored, []).append(segment)
    for stored, segments in kept.items():
        most = models[split_stored_name(stored)[0]].options.segmentation.most_segments
        if len(segments) > most:
            arrivals = state.last_arrivals(stored)
            segments.sort(key=lambda one: arrivals.get(one, -math.inf), reverse=True)
            dropped.update(
                dict.fromkeys(((stored, one) for one in segments[most:]), f"the limit is {most} segments now")
            )
    return dropped


def _reason_for_window(segment: Segment, model: ModelState | None) -> str | None:
    if model is None:
        return "the model is no longer configured"
    if not model.holds(segment):
        return f"records are no longer split by {', '.join(field for field, _ in segment)}"
    return None


def _reasons(state: State, models: Mapping[str, ModelState]) -> dict[str, str]:
    """Return the models whose stored records no longer match, with reasons."""
    found = {}
    for name, encoded in state.models().items():
        if name not in models:
            continue
        try:
            reason = msgspec.json.decode(encoded, type=ModelShape).difference(models[name].options.shape)
        except ValueError:
            reason = "its stored description is unreadable"
        if reason is not None:
            found[name] = reason
    return found
