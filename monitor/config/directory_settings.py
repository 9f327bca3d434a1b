"""The settings of a source of type `directory`."""

from pathlib import Path

from monitor.errors import UsageError
from monitor.records.record_batch import Format
from monitor.settings.kinds import Choice, FilePath, Flag, ListOf, Text
from monitor.settings.quantities import Duration, SizeSetting
from monitor.settings.section import Section
from monitor.sources.directory.directory_options import DirectoryOptions, OnFinish, StartAt

_DAY = 86400.0

# The bounds are those of DirectoryOptions, which a test compares: here they can be told in the units that people write.
DURATIONS = {
    "finish_after": ("finish_after_seconds", Duration(0.0, 366 * _DAY)),
    "settle": ("settle_seconds", Duration(0.0, 3600.0)),
    "partial_timeout": ("partial_timeout_seconds", Duration(0.0, 7 * _DAY)),
    "retry_incomplete": ("retry_incomplete_seconds", Duration(0.0, 7 * _DAY)),
    "forget_after": ("forget_after_seconds", Duration(60.0, 3660 * _DAY)),
    "poll": ("poll_seconds", Duration(0.2, 300.0)),
    "restat": ("restat_seconds", Duration(0.2, _DAY)),
    "time_per_tick": ("seconds_per_tick", Duration(0.01, 300.0)),
}
SIZES = {
    "max_line": ("max_line_bytes", SizeSetting(64, 64 << 20)),
    "bytes_per_file": ("bytes_per_file", SizeSetting(1 << 10, 1 << 40)),
    "bytes_per_tick": ("bytes_per_tick", SizeSetting(1 << 10, 1 << 40)),
}


def read_directory(section: Section, folder: Path) -> DirectoryOptions | None:
    """Return how a directory is watched; None after a mistake."""
    path = section.get("path", FilePath(folder, "the path of a directory"))
    default = DirectoryOptions(path)
    pattern = section.get("pattern", Text("a file name with * and ?"), default.pattern)
    format_ = section.get("format", Choice(Format), None)
    recursive = section.get("recursive", Flag(), default.recursive)
    on_finish = section.get("on_finish", Choice(OnFinish), default.on_finish)
    archive = section.get("archive", FilePath(folder, "the path of a folder"), None)
    follow_symlinks = section.get("follow_symlinks", Flag(), default.follow_symlinks)
    roots = section.get("symlink_roots", ListOf(FilePath(folder), "a list of paths"), default.symlink_roots)
    start_at = section.get("start_at", Choice(StartAt), default.start_at)
    marker = section.get("completion_marker", Flag(), default.completion_marker)
    durations = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in DURATIONS.items()}
    sizes = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in SIZES.items()}
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
        key, expected, found = parted(str(error))
        section.tell(key, expected, found)
        return None


def parted(message: str) -> tuple[str, str, str]:
    """Return the three parts of a message of ours: where, what was expected, what was found."""
    where, _, rest = message.partition(": expected ")
    expected, _, found = rest.rpartition(", found ")
    return where, expected, found
