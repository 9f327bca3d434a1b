"""The types of sources. To add one, import the class of its settings here."""

# ruff: noqa: F401 - each class imported here is a type

from collections.abc import Mapping

from monitor.sources import base
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.kafka.kafka_options import KafkaOptions

SOURCE_TYPES: Mapping[str, type[base.SourceOptions]] = {
    one.type_name: one
    for one in tuple(globals().values())
    if isinstance(one, type) and issubclass(one, base.SourceOptions)
}
"""By `type` in the configuration."""
