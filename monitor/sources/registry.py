"""The types of sources. To add one, add the class of its settings here."""

from collections.abc import Mapping

from monitor.sources.base import SourceOptions
from monitor.sources.directory.directory_options import DirectoryOptions
from monitor.sources.kafka.kafka_options import KafkaOptions

SOURCE_TYPES: Mapping[str, type[SourceOptions]] = {
    one.type_name: one
    for one in (
        DirectoryOptions,
        KafkaOptions,
    )
}
"""By `type` in the configuration."""
