"""Checks across sections: names, sources that read the same data, limits on windows and segments."""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TypeVar

from monitor.config.config import Limits, ModelConfig, SourceConfig, Storage
from monitor.config.kafka_settings import instance_key
from monitor.settings.section import Section
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.scan import would_be_read
from monitor.sources.kafka.kafka_options import KafkaOptions

_TWICE = "or every record would count twice"

Named = TypeVar("Named", ModelConfig, SourceConfig)
Read = Sequence[tuple[Section, Named | None]]
"""The items of a list with their sections; None for an item with a problem."""


def check_names(read: Read[Named]) -> None:
    """Report names that are used twice."""
    lines: dict[str, int] = {}
    for section, one in read:
        if one is None:
            continue
        if one.name in lines:
            section.report("name", "each name once", f"{one.name!r} again, after line {lines[one.name]}")
        lines.setdefault(one.name, section.line("name"))


def check_fed(sources: Read[SourceConfig], models: Read[ModelConfig]) -> None:
    """Report sources that name unknown models, and models without a source."""
    if any(one is None for _, one in (*sources, *models)):
        return
    names = [model.name for _, model in models if model is not None]
    fed: set[str] = set()
    for section, source in sources:
        assert source is not None  # noqa: S101  checked above
        fed.update(source.models or names)
        for stray in sorted(set(source.models) - set(names)):
            section.report("models", f"names of models: {', '.join(names)}", repr(stray))
    for section, model in models:
        if sources and model is not None and model.name not in fed:
            section.report("name", "a model of at least one source", f"{model.name!r}, not in `models` of any source")


def check_minimum(sources: Read[SourceConfig], models: Read[ModelConfig]) -> None:
    """Report windows that can never hold `minimum_records`. With partitions, windows add up."""
    topics = [one for _, one in sources if one is not None and isinstance(one.options, KafkaOptions)]
    for section, model in models:
        if model is None or model.minimum_records <= model.bounds.capacity:
            continue
        if any(one.feeds(model.name) for one in topics):
            continue
        key = "minimum_records" if section.has("minimum_records") else "window"
        expected = f"minimum_records of at most {model.bounds.capacity:,}, the capacity of the window"
        section.report(key, expected, f"{model.minimum_records:,}")


def check_segments(section: Section, limits: Limits, models: Read[ModelConfig]) -> None:
    """Report more segments than `limits.segments` allows; `section` is that of the limits."""
    caps = {
        model.name: model.segmentation.most_segments
        for _, model in models
        if model is not None and model.segmentation.split_by
    }
    if sum(caps.values()) > limits.segments:
        each = ", ".join(f"{name} {cap:,}" for name, cap in caps.items())
        expected = f"at least {sum(caps.values()):,}, the limits of the models together ({each})"
        section.report("segments", expected, f"{limits.segments:,}: raise it, or lower segments.limit of a model")


def check_overlaps(section: Section, storage: Storage, sources: Read[SourceConfig]) -> None:
    """Report sources that read the same data, or the state directory; `section` is that of the storage."""
    _check_directories(section, storage, sources)
    topics = [(one, source.options) for one, source in sources if source and isinstance(source.options, KafkaOptions)]
    for (earlier, theirs), (later, ours) in combinations(topics, 2):
        # A common broker means the same cluster.
        if set(theirs.brokers) & set(ours.brokers):
            _check_topics(earlier, theirs, later, ours)


def _check_directories(section: Section, storage: Storage, sources: Read[SourceConfig]) -> None:
    lines: dict[tuple[str, str], int] = {}
    for one, source in sources:
        if source is None or not isinstance(source.options, DirectoryOptions):
            continue
        if section.clean and would_be_read(storage.path, source.options):
            section.report("path", f"a directory that source {source.name!r} does not read", "one that it reads")
        place = (os.path.realpath(source.options.path), source.options.pattern)
        if place in lines:
            one.report("path", f"another directory or pattern, {_TWICE}", f"the same as in line {lines[place]}")
        lines.setdefault(place, one.line("path"))


def check_realised(models: Read[ModelConfig], sources: Read[SourceConfig]) -> None:
    """Report files of realised accuracies that a source would read as records, and may archive or delete."""
    directories = [
        (one.name, one.options) for _, one in sources if one is not None and isinstance(one.options, DirectoryOptions)
    ]
    for section, model in models:
        if model is None or model.realised is None:
            continue
        for name, options in directories:
            if would_be_read(model.realised.parent, options):
                expected = f"a file in a directory that source {name!r} does not read"
                section.report("realised", expected, "one that it reads")


def _check_topics(earlier: Section, theirs: KafkaOptions, later: Section, ours: KafkaOptions) -> None:
    for topic in _shared(theirs, ours):
        found = f"{topic}, which the source of line {earlier.line('name')} reads"
        later.report("topics" if ours.pattern is None else "pattern", f"other topics, {_TWICE}", found)
    for section, options, others in ((earlier, theirs, ours), (later, ours, theirs)):
        if options.dead_letter_topic is not None and _reads(others, options.dead_letter_topic):
            expected = "a dead letter topic that no source reads"
            section.report("dead_letters", expected, f"{options.dead_letter_topic}, which another source reads")
    if ours.instance_id is not None and (ours.group, ours.instance_id) == (theirs.group, theirs.instance_id):
        expected = "an instance_id that is unique in the group, or Kafka fences one of the two"
        later.report(instance_key(later), expected, f"the same as in line {earlier.line(instance_key(earlier))}")


def _shared(theirs: KafkaOptions, ours: KafkaOptions) -> Iterator[str]:
    yield from (topic for topic in ours.topics if _reads(theirs, topic))
    if ours.pattern is not None:
        yield from (topic for topic in theirs.topics if _reads(ours, topic))
        if ours.pattern == theirs.pattern:
            yield repr(ours.pattern)


def _reads(options: KafkaOptions, topic: str) -> bool:
    return topic in options.topics or (options.pattern is not None and re.match(options.pattern, topic) is not None)


def warn_about_ages(sources: Read[SourceConfig], models: Read[ModelConfig]) -> None:
    """Warn about windows without an age whose records come from partitions."""
    topics = [one for _, one in sources if one is not None and isinstance(one.options, KafkaOptions)]
    for section, model in models:
        if model is None or model.bounds.age_seconds is not None or not any(one.feeds(model.name) for one in topics):
            continue
        section.findings.remarks.append(
            f"{section.at('window')}: without an age, the last records of an idle partition stay in the estimate"
            " forever: set one, such as age: 7d"
        )
