"""Restores windows from the state: exactly where they match the configuration; the others are dropped and reported."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

import msgspec
import numpy as np

from monitor.config.config import ModelShape
from monitor.core.input_health import InputHealth
from monitor.core.segments import ALL, Segment, name_of
from monitor.core.totals import WindowTotals
from monitor.core.window import SlidingWindow
from monitor.ingest.backlog import ProgressLog
from monitor.ingest.model_state import ModelState
from monitor.state.commit_plan import COMMON, WindowName, display_name, split_stored_name
from monitor.state.record_tables import StoredChunk, StoredWindow
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
    dropped = _unusable_windows(state, models, sharded)
    _restore_models(state, models.values(), dropped)
    for name, value in state.values().items():
        kind, _, model = name.partition(":")
        if kind == "health" and model in models:
            models[model].health = InputHealth.from_bytes(value)
    shapes = {name: msgspec.json.encode(model.options.shape) for name, model in models.items()}
    events = [
        *state.events,
        *(
            f"dropped the stored window {name_of(segment)} of {display_name(stored)}: {why}"
            for (stored, segment), why in dropped.items()
        ),
    ]
    return Restored(events, lambda: state.store_models(shapes, list(dropped), events, now))


def restore_shard(state: State, models: Mapping[str, ModelState]) -> list[WindowName]:
    """Restore the models of a shard; return windows that do not match the configuration, to be deleted.

    Most of those were dropped at the start.
    """
    dropped: dict[WindowName, str] = {}
    _restore_models(state, models.values(), dropped)
    return list(dropped)


def _restore_models(state: State, models: Iterable[ModelState], dropped: dict[WindowName, str]) -> None:
    """Restore windows and ids. Adds to `dropped`."""
    named = {model.stored_name: model for model in models}
    progress, windows, records = ProgressLog(monotonic()), sum(name in named for name, _ in state.window_names()), 0
    for done, stored in enumerate(state.windows(named), 1):
        records += sum(len(one.chunk.at) for one in stored.chunks)
        counts = f"{done:,} of {windows:,} windows done, with {records:,} records"
        progress.report(monotonic(), f"rebuilding windows: {counts}; no estimates until this ends")
        model, segment = named[stored.name[0]], stored.name[1]
        if stored.name not in dropped and _has_other_classes(stored, model):
            dropped[stored.name] = "its records are of another number of classes"
        if stored.name in dropped:
            continue
        _rebuild(model.windows.place(segment, _last_arrival(stored)), stored)
        if stored.chunks:
            model.earlier_arrival[segment] = _last_arrival(stored)
        log = model.log(segment)
        for one in stored.chunks:
            log.added(one.number, one.newest, len(one.chunk.at), one.chunk.arrived)
        log.since_totals = sum(len(one.chunk.at) for one in stored.chunks if one.number > stored.through)
        log.has_totals = stored.totals is not None
        log.restamped = not _in_order(stored.chunks)
    for batch in state.ids(named):
        named[batch.model].ids.remember(batch.hashes, batch.number)


def _unusable_windows(state: State, models: Mapping[str, ModelState], sharded: Container[str]) -> dict[WindowName, str]:
    """Return the stored windows that cannot be used, with reasons."""
    reasons = _reasons(state, models)
    dropped, segments = dict[WindowName, str](), Counter[str]()
    for name in state.window_names():
        stored, segment = name
        model, shard = split_stored_name(stored)
        reason = reasons.get(model) or _reason_for_window(segment, models.get(model), segments[stored])
        if shard != COMMON and shard[0] not in sharded:
            reason = f"the source {shard[0]} is no longer configured"
        if reason is None:
            segments[stored] += segment != ALL
        else:
            dropped[name] = reason
    return dropped


def _reason_for_window(segment: Segment, model: ModelState | None, segments: int) -> str | None:
    if model is None:
        return "the model is no longer configured"
    if not model.holds(segment):
        return f"records are no longer split by {', '.join(field for field, _ in segment)}"
    if segment != ALL and segments >= model.options.segmentation.most_segments:
        return f"the limit is {model.options.segmentation.most_segments} segments now"
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


def _rebuild(window: SlidingWindow, stored: StoredWindow) -> None:
    chunks = stored.chunks
    if stored.totals is not None and _in_order(chunks):
        counted = [one for one in chunks if one.number <= stored.through]
        if _load(window, counted, stored.totals):
            chunks = chunks[len(counted) :]
    for run in _runs(chunks):
        vectors = np.concatenate([one.chunk.vectors for one in run])
        window.add(vectors, np.concatenate([one.chunk.at for one in run]), run[-1].chunk.arrived)


def _load(window: SlidingWindow, chunks: list[StoredChunk], content: bytes) -> bool:
    try:
        totals = WindowTotals.from_bytes(window.gauge, content)
    except ValueError:
        return False  # totals of another reference; the records are still valid
    if not chunks:
        return False
    vectors = np.concatenate([one.chunk.vectors for one in chunks])
    return window.load(vectors, np.concatenate([one.chunk.at for one in chunks]), totals)


def _runs(chunks: list[StoredChunk]) -> list[list[StoredChunk]]:
    """Group chunks that can be added in one call: the arrival time matters only where the clock went back."""
    runs: list[list[StoredChunk]] = []
    size = 0
    for one in chunks:
        if not runs or one.chunk.arrived < runs[-1][-1].chunk.arrived or size >= _AT_ONCE:
            runs.append([])
            size = 0
        runs[-1].append(one)
        size += len(one.chunk.at)
    return runs


def _in_order(chunks: list[StoredChunk]) -> bool:
    arrivals = [one.chunk.arrived for one in chunks]
    return arrivals == sorted(arrivals)


def _has_other_classes(stored: StoredWindow, model: ModelState) -> bool:
    classes = len(model.options.reference.classes)
    return any(one.chunk.vectors.shape[1] != classes for one in stored.chunks)


def _last_arrival(stored: StoredWindow) -> float:
    return stored.chunks[-1].chunk.arrived if stored.chunks else 0.0
