"""Checks across sections: names, sources that read the same data, limits on windows and segments."""

from collections.abc import Sequence
from typing import TypeVar

from monitor.config.config import Limits, ModelConfig, SourceConfig, Storage
from monitor.settings.section import Section
from monitor.sources.base import SourceOptions

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
    sharded = [one for _, one in sources if one is not None and one.options.sharded]
    for section, model in models:
        if model is None or model.minimum_records <= model.bounds.capacity:
            continue
        if any(one.feeds(model.name) for one in sharded):
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
    by_type: dict[type[SourceOptions], list[tuple[Section, SourceOptions]]] = {}
    for one, source in sources:
        if source is None:
            continue
        by_type.setdefault(type(source.options), []).append((one, source.options))
        if section.clean and source.options.reads_folder(storage.path):
            section.report("path", f"a directory that source {source.name!r} does not read", "one that it reads")
    for type_, some in by_type.items():
        type_.check_together(some)


def check_realised(models: Read[ModelConfig], sources: Read[SourceConfig]) -> None:
    """Report files of realised accuracies that a source would read as records, and may archive or delete."""
    for section, model in models:
        if model is None or model.realised is None:
            continue
        for _, source in sources:
            if source is not None and source.options.reads_folder(model.realised.parent):
                expected = f"a file in a directory that source {source.name!r} does not read"
                section.report("realised", expected, "one that it reads")


def warn_about_ages(sources: Read[SourceConfig], models: Read[ModelConfig]) -> None:
    """Warn about windows without an age whose records come from partitions."""
    sharded = [one for _, one in sources if one is not None and one.options.sharded]
    for section, model in models:
        if model is None or model.bounds.age_seconds is not None or not any(one.feeds(model.name) for one in sharded):
            continue
        section.findings.remarks.append(
            f"{section.at('window')}: without an age, the last records of an idle partition stay in the estimate"
            " forever: set one, such as age: 7d"
        )
