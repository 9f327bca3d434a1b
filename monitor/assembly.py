"""From a configuration and a state to the parts that work: sources, windows, evaluators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType

from monitor.configuration.config import Config, SourceConfig
from monitor.configuration.partitions import room_for
from monitor.configuration.references import model_options
from monitor.decode.hints import IN_A_FILE_OF_SETTINGS
from monitor.decode.messages import MessageDecoder
from monitor.decode.record_format import ModelFormat
from monitor.decode.stream import StreamDecoder
from monitor.evaluation import Evaluator, key_of
from monitor.history import History
from monitor.pipeline import Ingestion
from monitor.reference_file import Reference
from monitor.sources.apart import identity_of
from monitor.sources.base import Source
from monitor.sources.crash_guard import CrashGuard
from monitor.sources.directory import DirectorySource
from monitor.sources.kafka import KafkaSource
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.options import DirectoryOptions
from monitor.state.store import State
from monitor.watched_model import ModelOptions, WatchedModel

_NOTHING: Mapping[str, bytes | None] = MappingProxyType({})

References = Mapping[str, Reference | None]
"""By the name of the model."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """The parts of one configuration, started by `Ingestion.start` and not before."""

    config: Config
    ingestion: Ingestion
    evaluators: Mapping[str, Evaluator]


def formats(source: SourceConfig, models: Sequence[ModelOptions]) -> list[ModelFormat]:
    """Return what the records of a source may look like."""
    return [model.format for model in models if not source.models or model.name in source.models]


def assemble(
    config: Config,
    references: References,
    state: State,
    unwritten: Mapping[str, bytes | None] = _NOTHING,
    history: History | None = None,
) -> Assembly:
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
    ingestion = Ingestion(state, [WatchedModel(model) for model in models], sources, config.ingest, history)
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
    return Assembly(config, ingestion, evaluators)


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
    decoder = StreamDecoder(
        expected, config.fields, hash_key=state.key, keep_raw=config.store_raw, wording=IN_A_FILE_OF_SETTINGS
    )
    # However it came there, by a link or a mount: what cpcmon writes it never reads as input.
    options = replace(directory, never=(identity_of(state.path),))
    guard = CrashGuard(state.path / f"in_flight.{config.name}")
    return DirectorySource(config.name, options, decoder, key=state.key, guard=guard)
