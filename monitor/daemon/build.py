"""Builds sources, windows and evaluators from a configuration and a state."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType

from monitor.config.config import Config, ModelOptions, model_options
from monitor.config.references import room_for
from monitor.evaluation.alert_history import AlertHistory, alert_history_key_of, log_gone
from monitor.evaluation.evaluator import Evaluator
from monitor.evaluation.stored_values import baselines_key_of, key_of
from monitor.evaluation.track_records import track_key_of
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.hints import CONFIG_FILE, Wording
from monitor.records.record_schema import Carries
from monitor.reference.reference import Reference
from monitor.sources.base import Source, SourceContext
from monitor.state.evaluation_history import History
from monitor.state.store import State

_OF_MODELS = {"alerts", "alert_history", "baselines", "health", "places", "track"}
"""Kinds of stored values that go with their model."""
_NOTHING: Mapping[str, bytes | None] = MappingProxyType({})

References = Mapping[str, Reference | None]
"""By model name."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one configuration."""

    config: Config
    ingestion: Ingestion
    evaluators: Mapping[str, Evaluator]
    alert_histories: Mapping[str, AlertHistory]


def build(
    config: Config,
    references: References,
    state: State,
    unwritten: Mapping[str, bytes | None] = _NOTHING,
    history: History | None = None,
    wording: Wording = CONFIG_FILE,
) -> Parts:
    """Build the parts without starting them.

    `unwritten` holds values of the previous parts that could not be written to a full disk. `history` is stored with
    the next commits.
    """
    loaded = [(model, references[model.name]) for model in config.models]
    models = [model_options(model, reference) for model, reference in loaded if reference is not None]
    sources: list[Source] = []
    for source in config.sources:
        formats = [model.format for model in models if source.reads(model.name)]
        if not formats:
            continue
        context = SourceContext(
            source.name,
            formats,
            state.key,
            state.path,
            source.fields,
            source.store_raw,
            wording,
            _fingerprint(models),
            # Partitions of labels have no windows.
            room_for(source, config, loaded)
            if source.options.sharded and source.carries is Carries.PREDICTIONS
            else None,
            source.carries,
        )
        sources.append(source.options.build(context))
    labels = [source.name for source in config.sources if source.carries is Carries.LABELS]
    ingestion = Ingestion(state, [ModelState(model) for model in models], sources, config.ingest, history, labels)
    for name, value in unwritten.items():
        ingestion.values.store(name, value)
    kept = {**state.values(), **unwritten}
    evaluators, histories = {}, {name: AlertHistory(name) for name in references}
    for model in config.models:
        shared = config.is_shared(model.name)
        evaluators[model.name] = Evaluator(model, references[model.name], ingestion.view, shared=shared)
        evaluators[model.name].restore(kept.get(key_of(model.name)))
        evaluators[model.name].restore_baselines(kept.get(baselines_key_of(model.name)))
        evaluators[model.name].restore_tracks(kept.get(track_key_of(model.name)))
        stored = kept.get(alert_history_key_of(model.name)), kept.get(key_of(model.name))
        histories[model.name].restore(*stored)
    for name, value in kept.items():
        kind, _, model_name = name.partition(":")
        if kind in _OF_MODELS and model_name not in references:
            if kind == "alerts":
                log_gone(model_name, value, time.time())
            ingestion.values.store(name, None)
    return Parts(config, ingestion, evaluators, histories)


def _fingerprint(models: Sequence[ModelOptions]) -> str:
    """Return a hash of the settings that decide which records the windows hold."""
    settings = [(model.name, model.shape, model.bounds, model.segmentation) for model in models]
    return blake2b(repr(sorted(settings, key=lambda one: one[0])).encode(), digest_size=8).hexdigest()
