"""Checks across sections: sources that overlap, and models whose records come in partitions."""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from monitor.config.config import Config, ModelConfig, SourceConfig, Storage
from monitor.config.kafka_settings import instance_key
from monitor.config.references import Loaded, window_costs
from monitor.core.recent_ids import bytes_at_most
from monitor.settings.section import Section
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.directory.scan import would_be_read
from monitor.sources.kafka.kafka_options import KafkaOptions

_TWICE = "since every record would count twice"

Read = Sequence[tuple[Section, SourceConfig | None]]


def check_overlaps(section: Section, storage: Storage, sources: Read) -> None:
    """Note them; `section` is that of the storage."""
    _check_directories(section, storage, sources)
    topics = [(one, source.options) for one, source in sources if source and isinstance(source.options, KafkaOptions)]
    for (earlier, theirs), (later, ours) in combinations(topics, 2):
        # A cluster is known by any of its brokers.
        if set(theirs.brokers) & set(ours.brokers):
            _check_topics(earlier, theirs, later, ours)


def _check_directories(section: Section, storage: Storage, sources: Read) -> None:
    lines: dict[tuple[str, str], int] = {}
    for one, source in sources:
        if source is None or not isinstance(source.options, DirectoryOptions):
            continue
        if section.clean and would_be_read(storage.path, source.options):
            section.tell("path", f"a folder that source {source.name!r} does not read", "one that it does")
        place = (os.path.realpath(source.options.path), source.options.pattern)
        if place in lines:
            one.tell("path", f"a directory and pattern of its own, {_TWICE}", f"those of line {lines[place]}")
        lines.setdefault(place, one.line("path"))


def check_realised(models: Sequence[tuple[Section, ModelConfig | None]], sources: Read) -> None:
    """Note files of accuracies that a source would take for records, and perhaps archive or delete."""
    directories = [one for _, one in sources if one is not None and isinstance(one.options, DirectoryOptions)]
    for section, model in models:
        if model is None or model.realised is None:
            continue
        for source in directories:
            assert isinstance(source.options, DirectoryOptions)  # noqa: S101  the others were left out
            if would_be_read(model.realised.parent, source.options):
                section.tell(
                    "realised", f"a file in a folder that source {source.name!r} does not read", "one that it does"
                )


def _check_topics(earlier: Section, theirs: KafkaOptions, later: Section, ours: KafkaOptions) -> None:
    for topic in _shared(theirs, ours):
        found = f"{topic}, which the source of line {earlier.line('name')} reads"
        later.tell(_key(ours), f"topics of its own, {_TWICE}", found)
    for section, options, others in ((earlier, theirs, ours), (later, ours, theirs)):
        if options.dead_letter_topic is not None and _reads(others, options.dead_letter_topic):
            expected = "dead letters in a topic that no source reads"
            section.tell("dead_letters", expected, f"{options.dead_letter_topic}, which another source reads")
    if ours.instance_id is not None and (ours.group, ours.instance_id) == (theirs.group, theirs.instance_id):
        expected = "an instance_id of its own in its group, since one would put out the other"
        later.tell(instance_key(later), expected, f"that of line {earlier.line(instance_key(earlier))}")


def _shared(theirs: KafkaOptions, ours: KafkaOptions) -> Iterator[str]:
    yield from (topic for topic in ours.topics if _reads(theirs, topic))
    if ours.pattern is not None:
        yield from (topic for topic in theirs.topics if _reads(ours, topic))
        if ours.pattern == theirs.pattern:
            yield repr(ours.pattern)


def _reads(options: KafkaOptions, topic: str) -> bool:
    return topic in options.topics or (options.pattern is not None and re.match(options.pattern, topic) is not None)


def _key(options: KafkaOptions) -> str:
    return "topics" if options.pattern is None else "pattern"


FEW_PARTITIONS = 16
"""Where there is room for fewer, a number of records was probably meant for all of them together."""


def feeds(source: SourceConfig, model: ModelConfig) -> bool:
    """Tell whether a source takes a model's records."""
    return not source.models or model.name in source.models


def in_partitions(sources: Sequence[SourceConfig], model: ModelConfig) -> bool:
    """Tell whether some of a model's records come in partitions."""
    return any(isinstance(source.options, KafkaOptions) and feeds(source, model) for source in sources)


def remark_on_ages(sources: Sequence[SourceConfig], models: Sequence[tuple[Section, ModelConfig | None]]) -> None:
    """Remark on windows that would keep the records of a partition into which nothing is written any more."""
    for section, model in models:
        if model is not None and model.bounds.age_seconds is None and in_partitions(sources, model):
            section.findings.remarks.append(
                f"{section.at('window')}: without an age, a partition that falls silent keeps its last records"
                " in the estimate for ever: write one, such as age: 7d"
            )


def partition_cost(source: SourceConfig, loaded: Loaded) -> tuple[int, int]:
    """Return the most bytes of windows, and of ids that are known again, for one partition of a source."""
    fed = [(model, reference) for model, reference in loaded if reference is not None and feeds(source, model)]
    return sum(cost for _, cost in window_costs(fed)), sum(bytes_at_most(model.most_ids) for model, _ in fed)


def room_for(source: SourceConfig, config: Config, loaded: Loaded) -> int | None:
    """Return for how many partitions of a source there is room beside the windows of directories; None without windows."""
    windows, _ = partition_cost(source, loaded)
    shared = [
        (model, reference)
        for model, reference in loaded
        if any(not isinstance(one.options, KafkaOptions) and feeds(one, model) for one in config.sources)
    ]
    left = config.limits.window_bytes - sum(cost for _, cost in window_costs(shared))
    return max(0, left) // windows if windows else None
