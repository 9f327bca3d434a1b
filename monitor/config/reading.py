"""`read_config`: a file becomes a frozen Config, or one ConfigError that tells every mistake in it."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from monitor.config.config import Config, IngestOptions, Limits, ModelConfig, SourceConfig, Storage
from monitor.config.cross_checks import check_overlaps, check_realised, remark_on_ages
from monitor.config.models import CronProblem, read_model
from monitor.config.notifications import check_public_address, read_heartbeat, read_webhook
from monitor.config.source_settings import read_source
from monitor.settings.kinds import FilePath, Flag, ListOf, Text
from monitor.settings.quantities import Duration, Integer, SizeSetting
from monitor.settings.section import Section
from monitor.settings.setting_files import SettingsDocument, open_document
from monitor.sources.kafka.kafka_options import KafkaOptions

MOST_MODELS = 50
MOST_SOURCES = 50
_LONGEST = 366 * 86400.0
_HOST = Text('a host name without a port, or "*"', re.compile(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?"))

Named = TypeVar("Named", ModelConfig, SourceConfig)
Read = list[tuple[Section, Named | None]]
"""What was read from each group of a list; None where there was a mistake."""


def read_config(file: Path, cron_problem: CronProblem | None = None) -> Config:
    """Read a configuration; raises ConfigError. Nothing that it names is opened but files of secrets.

    `cron_problem` says what is wrong with a crontab line; without it only the line's form is looked at.
    """
    document = open_document(file)
    config = read_document(document, cron_problem)
    document.finish()
    return config


def read_document(document: SettingsDocument, cron_problem: CronProblem | None = None) -> Config:
    """Read all settings of a document that is open; what comes back counts only if `finish` finds no mistakes."""
    root, folder = document.root, document.file.parent
    storage_section = root.section("storage", required=True)
    storage = _storage(storage_section, folder)
    sources = [(one, read_source(one, folder)) for one in root.sections("sources", least=1, most=MOST_SOURCES)]
    models = [
        (one, read_model(one, folder, cron_problem)) for one in root.sections("models", least=1, most=MOST_MODELS)
    ]
    ingest = _ingest(root.section("ingest"))
    limits_section = root.section("limits")
    limits = _limits(limits_section)
    notify = root.section("notify")
    webhook = read_webhook(notify.section("webhook", optional=True), folder)
    heartbeat = read_heartbeat(notify.section("heartbeat", optional=True), folder)
    web_hosts = root.section("web").get("hosts", ListOf(_HOST, "a list of host names"), ())
    runbooks = root.get("runbooks", Text("an address or a path"), "docs/runbooks/")
    check_public_address(root, "runbooks", runbooks)
    _check_names(sources)
    _check_names(models)
    _check_fed(sources, models)
    check_overlaps(storage_section, storage, sources)
    check_realised(models, sources)
    _check_minimum(sources, models)
    _check_segments(limits_section, limits, models)
    remark_on_ages([source for _, source in sources if source is not None], models)
    return Config(
        storage=storage,
        sources=tuple(source for _, source in sources if source is not None),
        models=tuple(model for _, model in models if model is not None),
        ingest=ingest,
        limits=limits,
        webhook=webhook,
        heartbeat=heartbeat,
        web_hosts=web_hosts,
        runbooks=runbooks if runbooks.endswith("/") else f"{runbooks}/",
        digest=document.digest,
        file=document.file,
        lines=MappingProxyType(document.findings.lines),
        remarks=tuple(document.findings.remarks),
        settings=tuple(root.in_force()),
    )


def _storage(section: Section, folder: Path) -> Storage:
    path = section.get("path", FilePath(folder, "the path of a folder"))
    return Storage(path, section.get("allow_network", Flag(), False))


def _ingest(section: Section) -> IngestOptions:
    default = IngestOptions()
    return IngestOptions(
        catching_up_bytes=section.get("catching_up_bytes", SizeSetting(1 << 10, 1 << 40), default.catching_up_bytes),
        catching_up_files=section.get("catching_up_files", Integer(1, 100_000_000), default.catching_up_files),
        catching_up_age_seconds=section.get(
            "catching_up_age", Duration(1.0, _LONGEST), default.catching_up_age_seconds
        ),
        backup_seconds=section.get("backup_every", Duration(60.0, _LONGEST), default.backup_seconds),
    )


def _limits(section: Section) -> Limits:
    return Limits(
        window_bytes=section.get("window_bytes", SizeSetting(1 << 20, 1 << 40), Limits().window_bytes),
        segments=section.get("segments", Integer(0, 100_000), Limits().segments),
    )


def _check_names(read: Read[Named]) -> None:
    lines: dict[str, int] = {}
    for section, one in read:
        if one is None:
            continue
        if one.name in lines:
            section.tell("name", "each name once", f"{one.name!r} again, after line {lines[one.name]}")
        lines.setdefault(one.name, section.line("name"))


def _check_fed(sources: Read[SourceConfig], models: Read[ModelConfig]) -> None:
    """Note sources of models that are not there, and models whose records no source takes."""
    if any(one is None for _, one in (*sources, *models)):
        return
    names = [model.name for _, model in models if model is not None]
    fed: set[str] = set()
    for section, source in sources:
        assert source is not None  # noqa: S101  else we had returned
        fed.update(source.models or names)
        for stray in sorted(set(source.models) - set(names)):
            section.tell("models", f"names of models: {', '.join(names)}", repr(stray))
    for section, model in models:
        if sources and model is not None and model.name not in fed:
            expected = "a source that takes its records"
            section.tell("name", expected, f"{model.name!r} in the list `models` of none")


def _check_minimum(sources: Read[SourceConfig], models: Sequence[tuple[Section, ModelConfig | None]]) -> None:
    """Note windows that could never hold enough; those of several partitions together may hold any number."""
    topics = [one for _, one in sources if one is not None and isinstance(one.options, KafkaOptions)]
    for section, model in models:
        if model is None or model.minimum_records <= model.bounds.capacity:
            continue
        if any(not one.models or model.name in one.models for one in topics):
            continue
        key = "minimum_records" if section.has("minimum_records") else "window"
        expected = f"minimum_records of at most {model.bounds.capacity:,}, which is all that the window holds"
        section.tell(key, expected, f"{model.minimum_records:,}")


def _check_segments(section: Section, limits: Limits, models: Sequence[tuple[Section, ModelConfig | None]]) -> None:
    caps = {
        model.name: model.segmentation.most_segments
        for _, model in models
        if model is not None and model.segmentation.split_by
    }
    if sum(caps.values()) > limits.segments:
        each = ", ".join(f"{name} {cap:,}" for name, cap in caps.items())
        expected = f"at least the {sum(caps.values()):,} segments that the models may have together ({each})"
        section.tell("segments", expected, f"{limits.segments:,}: raise it, or lower segments.limit of a model")
