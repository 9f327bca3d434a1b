"""From what is on disk to windows in memory: what fits is rebuilt exactly, what does not is dropped and said."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from monitor.config.config import ModelShape
from monitor.core.input_health import InputHealth
from monitor.core.segments import ALL, Segment, name_of
from monitor.core.totals import WindowTotals
from monitor.core.window import SlidingWindow
from monitor.ingest.backlog import RestoreProgress
from monitor.ingest.model_state import ModelState
from monitor.state.change import COMMON, WindowName, parted, told
from monitor.state.store import State
from monitor.state.window_table import StoredChunk, StoredWindow

# Records that are entered at once: enough that the cost of a call does not show.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Restored:
    """What a start found, and what it must write down before anything else."""

    events: list[str]
    """Sentences for the log: what was damaged, what had to be dropped."""
    describe: Callable[[], None]
    """Notes all that in the state. May raise StatePaused; until it has succeeded nothing else may be committed."""
    last_arrivals: Mapping[WindowName, float]
    """When the last record came to each window that was restored, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class RestoredShard:
    """What was found of a shard."""

    dropped: list[WindowName]
    """Windows that do not fit, and are to be forgotten."""
    last_arrivals: Mapping[WindowName, float]


def restore(
    state: State, models: Mapping[str, ModelState], now: float, sharded: Container[str] = frozenset()
) -> Restored:
    """Fill the memory of the models of the common shard from the state.

    Other shards, of the sources named as sharded, are only looked at: which of them are ours is not known yet.
    """
    dropped = _what_does_not_fit(state, models, sharded)
    last_arrivals = _fill(state, models.values(), dropped)
    for name, value in state.kept().items():
        kind, _, model = name.partition(":")
        if kind == "health" and model in models:
            models[model].health = InputHealth.from_bytes(value)
    shapes = {name: msgspec.json.encode(model.options.shape) for name, model in models.items()}
    events = [
        *state.events,
        *(
            f"dropped the stored window {name_of(segment)} of {told(stored)}: {why}"
            for (stored, segment), why in dropped.items()
        ),
    ]
    return Restored(events, lambda: state.describe_models(shapes, list(dropped), events, now), last_arrivals)


def restore_shard(state: State, models: Mapping[str, ModelState]) -> RestoredShard:
    """Fill the memory of a shard's models from the state; what does not fit the configuration is gone since the start."""
    dropped: dict[WindowName, str] = {}
    last_arrivals = _fill(state, models.values(), dropped)
    return RestoredShard(list(dropped), last_arrivals)


def _fill(state: State, models: Iterable[ModelState], dropped: dict[WindowName, str]) -> dict[WindowName, float]:
    """Fill windows and ids; returns when the last record came to each. Adds to what is dropped, and why."""
    last_arrivals: dict[WindowName, float] = {}
    named = {model.stored_as: model for model in models}
    rebuilding = RestoreProgress(sum(name in named for name, _ in state.window_names()))
    for stored in state.windows(named):
        rebuilding.done(sum(len(one.chunk.at) for one in stored.chunks))
        name, segment = stored.name
        model = named[name]
        if stored.name not in dropped and _of_other_classes(stored, model):
            dropped[stored.name] = "its records are of another number of classes"
        if stored.name in dropped:
            continue
        _rebuild(model.windows.place(segment, _last_arrival(stored)), stored)
        if stored.chunks:
            last_arrivals[stored.name] = _last_arrival(stored)
        log = model.log(segment)
        for one in stored.chunks:
            log.added(one.number, one.newest, len(one.chunk.at), one.chunk.arrived)
        log.since_totals = sum(len(one.chunk.at) for one in stored.chunks if one.number > stored.through)
        log.has_totals = stored.totals is not None
        log.restamped = not _in_order(stored.chunks)
    for batch in state.ids(named):
        named[batch.model].ids.remember(batch.hashes, batch.number)
    return last_arrivals


def _what_does_not_fit(
    state: State, models: Mapping[str, ModelState], sharded: Container[str]
) -> dict[WindowName, str]:
    """Return the stored windows that cannot be used any more, and why."""
    reasons = _reasons(state, models)
    dropped, segments = dict[WindowName, str](), Counter[str]()
    for name in state.window_names():
        stored, segment = name
        model, shard = parted(stored)
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
        return f"there may be {model.options.segmentation.most_segments} segments now"
    return None


def _reasons(state: State, models: Mapping[str, ModelState]) -> dict[str, str]:
    """Return for each model whose records mean something else now, why."""
    found = {}
    for name, encoded in state.models().items():
        if name not in models:
            continue
        try:
            reason = msgspec.json.decode(encoded, type=ModelShape).difference(models[name].options.shape)
        except ValueError:
            reason = "what was noted of it cannot be read"
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
        return False  # another reference: its totals mean nothing here, but the records do
    if not chunks:
        return False
    vectors = np.concatenate([one.chunk.vectors for one in chunks])
    return window.load(vectors, np.concatenate([one.chunk.at for one in chunks]), totals)


def _runs(chunks: list[StoredChunk]) -> list[list[StoredChunk]]:
    """Group chunks that may be entered at once: only where the clock went back does it matter when one came."""
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


def _of_other_classes(stored: StoredWindow, model: ModelState) -> bool:
    classes = len(model.options.reference.classes)
    return any(one.chunk.vectors.shape[1] != classes for one in stored.chunks)


def _last_arrival(stored: StoredWindow) -> float:
    return stored.chunks[-1].chunk.arrived if stored.chunks else 0.0
