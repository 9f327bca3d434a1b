"""From a configuration and a state to the parts that work: sources, windows, evaluators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType

from monitor.config.config import Config, ModelOptions, SourceConfig, model_options
from monitor.config.references import room_for
from monitor.evaluation.evaluator import Evaluator, key_of
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import StreamDecoder
from monitor.records.hints import CONFIG_FILE
from monitor.records.message_decoder import MessageDecoder
from monitor.records.record_schema import ModelFormat
from monitor.reference.reference import Reference
from monitor.sources.base import Source
from monitor.sources.directory.crash_guard import CrashGuard
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.directory_source import DirectorySource
from monitor.sources.directory.scan import identity_of
from monitor.sources.kafka.kafka_options import KafkaOptions
from monitor.sources.kafka.kafka_source import KafkaSource
from monitor.state.evaluation_history import History
from monitor.state.store import State

_NOTHING: Mapping[str, bytes | None] = MappingProxyType({})

References = Mapping[str, Reference | None]
"""By the name of the model."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one configuration, started by `Ingestion.start` and not before."""

    config: Config
    ingestion: Ingestion
    evaluators: Mapping[str, Evaluator]


def formats(source: SourceConfig, models: Sequence[ModelOptions]) -> list[ModelFormat]:
    """Return what the records of a source may look like."""
    return [model.format for model in models if not source.models or model.name in source.models]


def build(
    config: Config,
    references: References,
    state: State,
    unwritten: Mapping[str, bytes | None] = _NOTHING,
    history: History | None = None,
) -> Parts:
    """Build the parts. Nothing is read or started yet.

    `unwritten` is what the parts of before wanted to be kept, where the disk had no room for it; `history` is written
    with what the parts write.
    """
    models = _with_reference(config, references)
    fingerprint = _fingerprint(models)
    loaded = [(model, references[model.name]) for model in config.models]
    sources = [
        _source(source, expected, state, fingerprint, room_for(source, config, loaded))
        for source in config.sources
        if (expected := formats(source, models))
    ]
    ingestion = Ingestion(state, [ModelState(model) for model in models], sources, config.ingest, history)
    for name, value in unwritten.items():
        ingestion.keep(name, value)
    kept = {**state.kept(), **unwritten}
    evaluators = {}
    for model in config.models:
        shared = config.is_shared(model.name)
        evaluators[model.name] = Evaluator(model, references[model.name], ingestion, shared=shared)
        evaluators[model.name].restore(kept.get(key_of(model.name)))
    for name in kept:
        kind, _, model_name = name.partition(":")
        if kind in {"alerts", "health"} and model_name not in references:
            ingestion.keep(name, None)
    return Parts(config, ingestion, evaluators)


def _fingerprint(models: Sequence[ModelOptions]) -> str:
    """Return what tells configurations apart whose windows reach back differently, or hold other records."""
    told = [(model.name, model.shape, model.bounds, model.segmentation) for model in models]
    return blake2b(repr(sorted(told, key=lambda one: one[0])).encode(), digest_size=8).hexdigest()


def _with_reference(config: Config, references: References) -> list[ModelOptions]:
    found = ((model, references[model.name]) for model in config.models)
    return [model_options(model, reference) for model, reference in found if reference is not None]


def _source(
    config: SourceConfig, expected: list[ModelFormat], state: State, fingerprint: str, room: int | None
) -> Source:
    match config.options:
        case KafkaOptions():
            decoder = _message_decoder(config, config.options, expected, state)
            return KafkaSource(config.name, config.options, decoder, fingerprint=fingerprint, room=room)
        case DirectoryOptions():
            return _directory(config, config.options, expected, state)


def _message_decoder(
    config: SourceConfig, options: KafkaOptions, expected: list[ModelFormat], state: State
) -> MessageDecoder:
    return MessageDecoder(
        expected,
        config.fields,
        hash_key=state.key,
        keep_raw=config.store_raw,
        max_message_bytes=options.max_message_bytes,
    )


def _directory(config: SourceConfig, directory: DirectoryOptions, expected: list[ModelFormat], state: State) -> Source:
    decoder = StreamDecoder(expected, config.fields, hash_key=state.key, keep_raw=config.store_raw, wording=CONFIG_FILE)
    # However it came there, by a link or a mount: what cpcmon writes it never reads as input.
    options = replace(directory, never=(identity_of(state.path),))
    guard = CrashGuard(state.path / f"in_flight.{config.name}")
    return DirectorySource(config.name, options, decoder, key=state.key, guard=guard)
