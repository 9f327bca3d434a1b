"""What it means for models that their records come in partitions: each has windows of its own."""

from collections.abc import Sequence

from monitor.configuration.config import Config, ModelConfig, SourceConfig
from monitor.configuration.references import Loaded, window_costs
from monitor.configuration.section import Section
from monitor.core.recent_ids import bytes_at_most
from monitor.sources.kafka_options import KafkaOptions

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
