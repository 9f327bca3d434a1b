"""`read_config` reads a configuration file, or raises one ConfigError that lists every problem; `ConfigWatch` sees changes."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlsplit

from monitor.config.config import (
    Config,
    Heartbeat,
    HttpTarget,
    IngestOptions,
    LabelOptions,
    Limits,
    Links,
    ModelConfig,
    SegmentSeries,
    SourceConfig,
    Storage,
)
from monitor.config.models import NAME, ShortestGap, read_model
from monitor.errors import UsageError
from monitor.records.record_schema import Carries, RecordFields, TimeUnit
from monitor.settings.kinds import (
    Choice,
    Duration,
    FilePath,
    Flag,
    Integer,
    ListOf,
    MapOf,
    OneOf,
    Secret,
    SizeSetting,
    Text,
)
from monitor.settings.section import Section
from monitor.settings.setting_files import (
    SettingsDocument,
    file_stamp,
    open_document,
    open_file,
    read_line,
    secret_file,
)
from monitor.sources.base import SourceOptions
from monitor.sources.registry import SOURCE_TYPES

MOST_MODELS = 50
MOST_SOURCES = 50
_LONGEST = 366 * 86400.0
_HOST = Text('a host name without a port, or "*"', re.compile(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?"))


def read_config(file: Path, shortest_gap: ShortestGap | None = None) -> Config:
    """Read a configuration; raises ConfigError. Opens secret files, but no references.

    `shortest_gap` checks crontab lines; without it they are not checked.
    """
    document = open_document(file)
    config = read_document(document, shortest_gap)
    document.finish()
    return config


def read_document(document: SettingsDocument, shortest_gap: ShortestGap | None = None) -> Config:
    """Read all settings of an open document. The result is valid only if `finish` does not raise."""
    root, folder = document.root, document.file.parent
    storage_section = root.section("storage", required=True)
    storage = _storage(storage_section, folder)
    sources = [(one, _read_source(one, folder)) for one in root.sections("sources", least=1, most=MOST_SOURCES)]
    models = [
        (one, read_model(one, folder, shortest_gap)) for one in root.sections("models", least=1, most=MOST_MODELS)
    ]
    ingest = _ingest(root.section("ingest"))
    limits_section = root.section("limits")
    limits = _limits(limits_section)
    segment_series = root.section("metrics").get("segments", Choice(SegmentSeries), SegmentSeries.HEADLINE)
    notify = root.section("notify")
    webhook = _http_target(notify.section("webhook", optional=True), folder)
    heartbeat = _heartbeat(notify.section("heartbeat", optional=True), folder)
    web_hosts = root.section("web").get("hosts", ListOf(_HOST, "a list of host names"), ())
    links = _links(root.section("links"))
    _check_names(sources)
    _check_names(models)
    _check_fed(sources, models)
    _check_overlaps(storage_section, storage, sources)
    _check_minimum(sources, models)
    _check_segments(limits_section, limits, models)
    _warn_about_ages(sources, models)
    _warn_about_labels(sources, models)
    return Config(
        storage=storage,
        sources=tuple(source for _, source in sources if source is not None),
        models=tuple(_taking_labels(model, sources) for _, model in models if model is not None),
        ingest=ingest,
        limits=limits,
        segment_series=segment_series,
        webhook=webhook,
        heartbeat=heartbeat,
        web_hosts=web_hosts,
        links=links,
        digest=document.digest,
        file=document.file,
        lines=MappingProxyType(document.findings.lines),
        remarks=tuple(document.findings.remarks),
        settings=tuple(root.effective()),
    )


_TYPE = OneOf(tuple(SOURCE_TYPES), {})
_FIELD = Text("the name of a field, or a dotted path")


def _read_source(section: Section, folder: Path) -> SourceConfig | None:
    """Return one source; None after a problem."""
    type_ = section.get("type", _TYPE)
    is_known = section.clean
    name = section.get("name", NAME)
    if not is_known:
        section.ignore_unknown_keys()
        return None
    options = SOURCE_TYPES[type_].read(section, folder)
    models = section.get("models", ListOf(NAME, "a list of names of models"), ())
    store_raw = section.get("store_raw", Flag(), False)
    carries = section.get("carries", Choice(Carries), Carries.PREDICTIONS)
    fields = _fields(section.section("fields"), carries)
    if options is None or fields is None or not section.clean:
        return None
    return SourceConfig(name, options, fields, models, store_raw, carries)


_NOT_OF_LABELS = ("probs", "class_columns", "version", "predicted", "segments")
"""Fields that only predictions have."""


def _fields(section: Section, carries: Carries) -> RecordFields | None:
    of_labels = carries is Carries.LABELS
    default = RecordFields(version=None, label="label") if of_labels else RecordFields()
    columns = ListOf(_FIELD, "a list of columns such as ['prob_*']", 1)
    values = {
        "probs": section.get("probs", _FIELD, None),
        "class_columns": section.get("class_columns", columns, None),
        "model": section.get("model", _FIELD, default.model),
        "version": section.get("version", _FIELD, default.version),
        "id": section.get("id", _FIELD, default.id),
        "time": section.get("time", _FIELD, default.time),
        "predicted": section.get("predicted", _FIELD, None),
        "segments": section.get("segments", MapOf(_FIELD, _FIELD, "segment fields and their paths"), {}),
        "time_unit": section.get("time_unit", Choice(TimeUnit), default.time_unit),
        "time_zone": section.get("time_zone", Text("the name of a time zone"), None),
        "label": section.get("label", _FIELD, default.label),
    }
    for key in _NOT_OF_LABELS if of_labels else ("label",):
        section.forbid(key, f" for a source of {carries}")
    if not section.clean:
        return None
    try:
        return RecordFields(**values)  # type: ignore[arg-type]  # each value has the type of its field
    except UsageError as error:
        problem = error.problem
        assert problem is not None  # noqa: S101  RecordFields raises values
        key = "class_columns" if problem.where == "class columns" else problem.where.split(".")[1]
        section.report(key, problem.expected, problem.found)
        return None


def _storage(section: Section, folder: Path) -> Storage:
    path = section.get("path", FilePath(folder, "the path of a directory"))
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


_VISIBLE = re.compile(r"[!-~]+")
_URL_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_DEFAULT = HttpTarget("")


def _http_target(section: Section, folder: Path) -> HttpTarget | None:
    url = _url(section, folder)
    timeout = section.get("timeout", Duration(0.1, 300.0), _DEFAULT.timeout_seconds)
    allow_http = section.get("allow_http", Flag(), _DEFAULT.allow_http)
    allow_link_local = section.get("allow_link_local", Flag(), _DEFAULT.allow_link_local)
    if url is None:
        return None
    _check_url(section, "url" if section.has("url") else "url_file", url, allow_http=allow_http)
    return HttpTarget(url, timeout, allow_http, allow_link_local)


def _heartbeat(section: Section, folder: Path) -> Heartbeat | None:
    every = section.get("every", Duration(1.0, 86400.0), Heartbeat(_DEFAULT).every_seconds)
    target = _http_target(section, folder)
    return None if target is None else Heartbeat(target, every)


def _url(section: Section, folder: Path) -> str | None:
    """Return the `url` of a section, or the content of its `url_file`; None after a problem."""
    inline = section.get("url", Secret("a URL that starts with https://"), None)
    file = secret_file(section, "url_file", folder, "a URL")
    if not section.given or not section.clean:
        return None
    if inline is not None and file is not None:
        section.report("url", "either url or url_file", "both")
        return None
    if inline is not None:
        section.findings.remarks.append(
            f"{section.at('url')}: a URL with a token is safer in a file of its own, with url_file"
        )
        return inline
    if file is None:
        section.report_group("url or url_file", "neither")
        return None
    url = read_line(section, "url_file", file, "a URL")
    return None if url is None else url.strip()


def _check_url(section: Section, key: str, url: str, *, allow_http: bool) -> None:
    """Report a problem with a URL, without showing it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        section.report(key, "a URL such as https://host/path", "an invalid one, not shown")
        return
    if parts.scheme not in {"http", "https"} or not host or not _VISIBLE.fullmatch(url):
        section.report(key, "a URL such as https://host/path", "another value, not shown")
    elif not _URL_HOST.fullmatch(host) or port == 0:
        expected = "a URL with a host of letters, digits, dots and dashes, and a port above 0 if any"
        section.report(key, expected, "another one, not shown")
    elif parts.fragment:
        section.report(key, "a URL without a #fragment, which is never sent", "one with a fragment")
    elif parts.scheme == "http" and not allow_http:
        section.report(key, "a URL that starts with https://, or allow_http: true", "one with http://")


_LINK = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?")


def _links(section: Section) -> Links:
    return Links(*(_link(section, key) for key in ("runbooks", "dashboard", "page")))


def _link(section: Section, key: str) -> str | None:
    url = section.get(key, Text("a URL such as https://host/path"), None)
    if url is None:
        return None
    if "@" in url.partition("://")[2].partition("/")[0]:
        section.report(key, "a URL without user and password, since alerts show it", "one with them")
    elif not _LINK.fullmatch(url):
        section.report(key, "a URL such as https://host/path, without ? and #", repr(url))
    return url.rstrip("/")


# Checks across sections

_Named = TypeVar("_Named", ModelConfig, SourceConfig)
_Read = Sequence[tuple[Section, _Named | None]]
"""The items of a list with their sections; None for an item with a problem."""


def _check_names(read: _Read[_Named]) -> None:
    """Report names that are used twice."""
    lines: dict[str, int] = {}
    for section, one in read:
        if one is None:
            continue
        if one.name in lines:
            section.report("name", "each name once", f"{one.name!r} again, after line {lines[one.name]}")
        lines.setdefault(one.name, section.line("name"))


def _check_fed(sources: _Read[SourceConfig], models: _Read[ModelConfig]) -> None:
    """Report sources that name unknown models, models without a source of predictions, and labels of unknown classes."""
    if any(one is None for _, one in (*sources, *models)):
        return
    names = [model.name for _, model in models if model is not None]
    fed: set[str] = set()
    for section, source in sources:
        assert source is not None  # noqa: S101  checked above
        if source.carries is Carries.PREDICTIONS:
            fed.update(source.models or names)
        else:
            _check_labelled(section, source, models)
        for stray in sorted(set(source.models) - set(names)):
            section.report("models", f"names of models: {', '.join(names)}", repr(stray))
    for section, model in models:
        if sources and model is not None and model.name not in fed:
            expected = "a model of at least one source of predictions"
            section.report("name", expected, f"{model.name!r}, not in `models` of any")


def _check_labelled(section: Section, source: SourceConfig, models: _Read[ModelConfig]) -> None:
    """Report labels of models without a reference, which says what the classes are."""
    labelled = [model for _, model in models if model is not None and source.labels(model.name)]
    without = [model.name for model in labelled if model.reference is None]
    if without and (source.models or len(without) == len(labelled)):
        section.report("models", "labels of models with a reference", f"{without[0]!r}, which has none")


def _taking_labels(model: ModelConfig, sources: _Read[SourceConfig]) -> ModelConfig:
    """Return a model, with the default options of labels if it is audited or a source carries its labels."""
    if model.labels is not None:
        return model
    labelled = any(source is not None and source.labels(model.name) for _, source in sources)
    return replace(model, labels=LabelOptions()) if labelled or model.audit is not None else model


def _check_minimum(sources: _Read[SourceConfig], models: _Read[ModelConfig]) -> None:
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


def _check_segments(section: Section, limits: Limits, models: _Read[ModelConfig]) -> None:
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


def _check_overlaps(section: Section, storage: Storage, sources: _Read[SourceConfig]) -> None:
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


def _warn_about_ages(sources: _Read[SourceConfig], models: _Read[ModelConfig]) -> None:
    """Warn about windows without an age whose records come from partitions."""
    sharded = [one for _, one in sources if one is not None and one.options.sharded]
    for section, model in models:
        if model is None or model.bounds.age_seconds is not None or not any(one.feeds(model.name) for one in sharded):
            continue
        section.findings.remarks.append(
            f"{section.at('window')}: without an age, the last records of an idle partition stay in the estimate"
            " forever: set one, such as age: 7d"
        )


def _warn_about_labels(sources: _Read[SourceConfig], models: _Read[ModelConfig]) -> None:
    """Warn about labels that do not come, or that not every replica gets."""
    read = [(section, source) for section, source in sources if source is not None]
    for section, model in models:
        if model is None or (model.labels is None and model.audit is None):
            continue
        if not any(source.labels(model.name) for _, source in read):
            section.findings.remarks.append(
                f"{section.at('audit' if model.labels is None else 'labels')}: no source has labels of model {model.name}, and"
                " predictions are kept for them: add a source with carries: labels"
            )
    for section, source in read:
        spread = [
            model.name
            for _, model in models
            if model is not None
            and source.labels(model.name)
            and any(one.options.sharded and one.feeds(model.name) for _, one in read)
        ]
        if spread and not source.options.read_by_every_process:
            section.findings.remarks.append(
                f"{section.at('group')}: replicas share the predictions of model {spread[0]}, so that each of them must read all"
                " labels: with more than one, give each a group of its own, such as group: cpcmon-labels-$HOSTNAME"
            )


EVERY_SECONDS = 2.0
"""The interval between checks."""
_MOST_WATCHED_BYTES = 2 << 20
"""More than the limit on a configuration file."""


class ConfigWatch:
    """Watches a configuration file and its references, for `--config.watch`. For one thread; `now` is a monotonic time.

    Kubernetes replaces a ConfigMap by switching the symbolic link `..data`. So links are followed and contents compared.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._references: tuple[Path, ...] = ()
        self._loaded = self._previous = self._read()
        self._checked = 0.0

    def mark_read(self) -> None:
        """Call right before the configuration is read."""
        self._loaded = self._previous = self._read()

    def watch_references(self, references: Iterable[Path | None]) -> None:
        """Call right before the references are opened; watches them too. They are too large to hash."""
        self._references = tuple(path for path in references if path is not None)
        self._loaded = self._previous = (self._loaded[0], *map(file_stamp, self._references))

    def changed(self, now: float) -> bool:
        """Return True once per change, after two equal checks in a row."""
        if now - self._checked < EVERY_SECONDS:
            return False
        self._checked = now
        before, self._previous = self._previous, self._read()
        # Twice the same: a file half-written by an editor is not read.
        if self._previous == self._loaded or self._previous != before:
            return False
        self._loaded = self._previous
        return True

    def _read(self) -> tuple[object, ...]:
        return (_content(self._file), *map(file_stamp, self._references))


def _content(path: Path) -> object:
    try:
        with open_file(path) as file:
            return hashlib.sha256(file.read(_MOST_WATCHED_BYTES)).digest()
    except OSError as error:
        return error.errno
