"""The list `sources`: name, type, fields, and the settings of type `directory`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from monitor.config.config import SourceConfig, SourceOptions
from monitor.config.kafka_settings import read_kafka
from monitor.config.models import NAME
from monitor.errors import UsageError, message_parts
from monitor.records.record_batch import Format
from monitor.records.record_schema import RecordFields, TimeUnit
from monitor.settings.kinds import Choice, Duration, FilePath, Flag, ListOf, MapOf, OneOf, SizeSetting, Text
from monitor.settings.section import Section
from monitor.sources.directory.directory_options import BOUNDS, DirectoryOptions, OnFinish, StartAt

_DURATIONS = {
    "finish_after": "finish_after_seconds",
    "settle": "settle_seconds",
    "partial_timeout": "partial_timeout_seconds",
    "retry_incomplete": "retry_incomplete_seconds",
    "forget_after": "forget_after_seconds",
    "poll": "poll_seconds",
    "restat": "restat_seconds",
    "time_per_tick": "seconds_per_tick",
}
_SIZES = {"max_line": "max_line_bytes", "bytes_per_file": "bytes_per_file", "bytes_per_tick": "bytes_per_tick"}


def read_directory(section: Section, folder: Path) -> DirectoryOptions | None:
    """Return the options of a directory; None after a problem."""
    path = section.get("path", FilePath(folder, "the path of a directory"))
    default = DirectoryOptions(path)
    pattern = section.get("pattern", Text("a file name with * and ?"), default.pattern)
    format_ = section.get("format", Choice(Format), None)
    recursive = section.get("recursive", Flag(), default.recursive)
    on_finish = section.get("on_finish", Choice(OnFinish), default.on_finish)
    archive = section.get("archive", FilePath(folder, "the path of a directory"), None)
    follow_symlinks = section.get("follow_symlinks", Flag(), default.follow_symlinks)
    roots = section.get("symlink_roots", ListOf(FilePath(folder), "a list of paths"), default.symlink_roots)
    start_at = section.get("start_at", Choice(StartAt), default.start_at)
    marker = section.get("completion_marker", Flag(), default.completion_marker)
    durations = {
        name: section.get(key, Duration(*BOUNDS[name]), getattr(default, name)) for key, name in _DURATIONS.items()
    }
    sizes = {
        name: section.get(key, SizeSetting(*map(int, BOUNDS[name])), getattr(default, name))
        for key, name in _SIZES.items()
    }
    if not section.clean:
        return None
    try:
        return DirectoryOptions(
            path=path,
            pattern=pattern,
            format=format_,
            recursive=recursive,
            on_finish=on_finish,
            archive=archive,
            follow_symlinks=follow_symlinks,
            symlink_roots=roots,
            start_at=start_at,
            completion_marker=marker,
            **durations,
            **sizes,
        )
    except UsageError as error:
        section.report(*message_parts(error))
        return None


SOURCE_TYPES: Mapping[str, Callable[[Section, Path], SourceOptions | None]] = {
    "directory": read_directory,
    "kafka": read_kafka,
}
"""The reader of each type's settings. To add a type, write its reader and add a line here."""

_TYPE = OneOf(tuple(SOURCE_TYPES), {})
_FIELD = Text("the name of a field, or a dotted path")


def read_source(section: Section, folder: Path) -> SourceConfig | None:
    """Return one source; None after a problem."""
    type_ = section.get("type", _TYPE)
    is_known = section.clean
    name = section.get("name", NAME)
    if not is_known:
        section.ignore_unknown_keys()
        return None
    options = SOURCE_TYPES[type_](section, folder)
    models = section.get("models", ListOf(NAME, "a list of names of models"), ())
    store_raw = section.get("store_raw", Flag(), False)
    fields = _fields(section.section("fields"))
    if options is None or fields is None or not section.clean:
        return None
    return SourceConfig(name, options, fields, models, store_raw)


def _fields(section: Section) -> RecordFields | None:
    default = RecordFields()
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
    }
    if not section.clean:
        return None
    try:
        return RecordFields(**values)  # type: ignore[arg-type]  # each value has the type of its field
    except UsageError as error:
        where, expected, found = message_parts(error)
        key = "class_columns" if where == "class columns" else where.removeprefix("fields.").partition(".")[0]
        section.report(key, expected, found)
        return None
