"""Sources that would read the same records twice, or what cpcmon itself writes."""

import os
import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from monitor.configuration.config import ModelConfig, SourceConfig, Storage
from monitor.configuration.kafka_instance import instance_key
from monitor.configuration.section import Section
from monitor.sources.apart import would_be_read
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.options import DirectoryOptions

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
