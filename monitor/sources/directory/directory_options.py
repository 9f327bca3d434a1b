"""A source of type `directory`: its settings, and the events it counts."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self

from monitor.errors import Problem, UsageError
from monitor.records.record_batch import MAX_LINE_BYTES, Format
from monitor.settings.kinds import Choice, FilePath, Flag, ListOf, Text
from monitor.settings.section import Section
from monitor.sources.base import (
    NumberBounds,
    Source,
    SourceContext,
    SourceOptions,
    check_bounds,
    read_numbers,
    report_error,
)


class DirectoryEvent(StrEnum):
    """Event names. Public: they become label values."""

    BYTES_READ = "bytes_read"
    """Bytes read from files, decoded or not."""
    BYTES_SKIPPED = "bytes_skipped"
    """Bytes skipped because of `start_at: end`."""
    FILES_TRUNCATED = "files_truncated"
    """Files that became shorter than what had been read of them; read again from the start."""
    FILES_REPLACED = "files_replaced"
    """Files whose content differs from what had been read of them; read again from the start."""
    FILES_ADOPTED = "files_adopted"
    """Files that continue under another name: renamed, rotated, or copied before truncation."""
    FILES_FAILED = "files_failed"
    """Files that cannot be used; not retried until they change."""
    FILES_REFUSED = "files_refused"
    """Symbolic links, FIFOs, devices, sockets and other users' hard links; never read."""
    FILES_UNREADABLE = "files_unreadable"
    """Files that could not be opened or read: permissions, I/O errors; retried with growing delays."""
    FILES_GONE = "files_gone"
    """Files that disappeared."""
    FILES_FINISHED = "files_finished"
    """Files archived or deleted by `on_finish`."""
    FILES_FORGOTTEN = "files_forgotten"
    """Files gone for so long that their checkpoints were deleted."""
    PARTIAL_TAIL = "partial_tail"
    """Files whose last line has lacked a newline for long; it is read once complete."""
    UNKNOWN_EXTENSION = "unknown_extension"
    """Files with an unknown extension; ignored."""
    LATE_BYTES = "late_bytes"
    """Bytes written to a file after it was archived or deleted, and read all the same."""
    LOST_BYTES = "lost_bytes"
    """Bytes known to be lost: the file disappeared before it was read, or an archived one ends in half a line."""
    FINISH_ERRORS = "finish_errors"
    """Failed attempts to archive or delete; the file stayed in place."""
    POLL_ERRORS = "poll_errors"
    """Polls that could not list the directory."""
    POSITIONS_DAMAGED = "positions_damaged"
    """Unreadable checkpoints; their files are read as new."""


class OnFinish(StrEnum):
    """What to do with a file that has been read and no longer grows."""

    KEEP = "keep"
    """Leave it untouched."""
    ARCHIVE = "archive"
    """Move it to a folder by date."""
    DELETE = "delete"
    """Delete it."""


class StartAt(StrEnum):
    """Where to start with the files present when the directory is watched for the first time."""

    BEGINNING = "beginning"
    """Read them."""
    END = "end"
    """Skip them; read only later additions."""


BOUNDS: NumberBounds = {
    "poll_seconds": (0.2, 300.0),
    "settle_seconds": (0.0, 3600.0),
    "finish_after_seconds": (0.0, 366 * 86400.0),
    "partial_timeout_seconds": (0.0, 7 * 86400.0),
    "retry_incomplete_seconds": (0.0, 7 * 86400.0),
    "forget_after_seconds": (60.0, 3660 * 86400.0),
    "restat_seconds": (0.2, 86400.0),
    "max_line_bytes": (64, 64 << 20),
    "bytes_per_file": (1024, 1 << 40),
    "bytes_per_tick": (1024, 1 << 40),
    "seconds_per_tick": (0.01, 300.0),
}

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
"""Keys of settings, and their options."""


@dataclass(frozen=True, slots=True)
class DirectoryOptions(SourceOptions):
    """The settings of a watched directory."""

    type_name: ClassVar[str] = "directory"
    EVENTS: ClassVar[type[StrEnum]] = DirectoryEvent

    path: Path
    """The directory. It may appear later."""
    pattern: str = "*"
    """Shell pattern for file names, without the folder."""
    format: Format | None = None
    """The format of all files, if their extensions do not show it."""
    recursive: bool = False
    """Whether subfolders are watched too."""
    on_finish: OnFinish = OnFinish.KEEP
    """What to do with files that have been read."""
    finish_after_seconds: float = 3600.0
    """How long a file must be unchanged before `on_finish` applies."""
    archive: Path | None = None
    """Destination of `archive`; default `.done` in the directory."""
    settle_seconds: float = 5.0
    """How long a whole file must be unchanged before it counts as complete."""
    partial_timeout_seconds: float = 600.0
    """How long to wait for the rest of an incomplete last line, or for zero bytes to be filled in."""
    retry_incomplete_seconds: float = 120.0
    """How long a damaged file may still change and be retried before it has failed."""
    forget_after_seconds: float = 7 * 86400.0
    """How long a file must be gone before its checkpoint is deleted."""
    poll_seconds: float = 2.0
    """Poll interval."""
    restat_seconds: float = 60.0
    """How often to check each idle file for changes."""
    max_line_bytes: int = MAX_LINE_BYTES
    """Longer lines are rejected."""
    bytes_per_file: int = 8 << 20
    """Bytes read from one file before it is the next file's turn."""
    bytes_per_tick: int = 64 << 20
    """Bytes read in one poll."""
    seconds_per_tick: float = 1.0
    """Time for reading in one poll; the next one follows at once if more is unread."""
    follow_symlinks: bool = False
    """Whether symbolic links are read."""
    symlink_roots: tuple[Path, ...] = ()
    """The folders that symbolic links may lead to."""
    never: tuple[tuple[int, int], ...] = ()
    """Device and inode of folders that are never read, such as the state folder."""
    start_at: StartAt = StartAt.BEGINNING
    """Where to start when the directory is watched for the first time."""
    completion_marker: bool = False
    """Whether a whole file is complete exactly when `<name>.ok` exists."""

    def __post_init__(self) -> None:
        """Validate the values."""
        check_bounds(self, BOUNDS)
        if not self.pattern or "/" in self.pattern:
            raise UsageError(Problem("pattern", "a file name with * and ?, without a slash", repr(self.pattern)))
        if self.follow_symlinks and not self.symlink_roots:
            raise UsageError(Problem("symlink_roots", "at least one folder that links may lead to", "none"))
        if self.archive is not None and self.on_finish is not OnFinish.ARCHIVE:
            raise UsageError(Problem("archive", "on_finish: archive beside it", f"on_finish: {self.on_finish}"))
        if self.archive is not None and not self._hides(self.archive):
            expected = "a folder outside the watched one, or one in it whose name starts with a dot"
            raise UsageError(Problem("archive", expected, repr(str(self.archive))))

    def _hides(self, archive: Path) -> bool:
        """Return whether archived files cannot be mistaken for new ones."""
        try:
            parts = archive.absolute().relative_to(self.path.absolute()).parts
        except ValueError:
            return True
        return any(part.startswith((".", "_")) for part in parts) or (bool(parts) and not self.recursive)

    @classmethod
    def read(cls, section: Section, folder: Path) -> Self | None:
        """Read the settings; None after a problem."""
        path = section.get("path", FilePath(folder, "the path of a directory"))
        default = cls(path)
        values = {
            "pattern": section.get("pattern", Text("a file name with * and ?"), default.pattern),
            "format": section.get("format", Choice(Format), None),
            "recursive": section.get("recursive", Flag(), default.recursive),
            "on_finish": section.get("on_finish", Choice(OnFinish), default.on_finish),
            "archive": section.get("archive", FilePath(folder, "the path of a directory"), None),
            "follow_symlinks": section.get("follow_symlinks", Flag(), default.follow_symlinks),
            "symlink_roots": section.get("symlink_roots", ListOf(FilePath(folder), "a list of paths"), ()),
            "start_at": section.get("start_at", Choice(StartAt), default.start_at),
            "completion_marker": section.get("completion_marker", Flag(), default.completion_marker),
        }
        numbers = read_numbers(section, default, BOUNDS, _DURATIONS, _SIZES)
        if not section.clean:
            return None
        try:
            return cls(path, **values, **numbers)  # type: ignore[arg-type]  # each value has the type of its field
        except UsageError as error:
            report_error(section, error)
            return None

    @classmethod
    def check_together(cls, sources: Sequence[tuple[Section, Self]]) -> None:
        """Report sources that read the same files."""
        lines: dict[tuple[str, str], int] = {}
        for section, options in sources:
            place = (os.path.realpath(options.path), options.pattern)
            if place in lines:
                expected = "another directory or pattern, or every record would count twice"
                section.report("path", expected, f"the same as in line {lines[place]}")
            lines.setdefault(place, section.line("path"))

    def reads_folder(self, folder: Path) -> bool:
        """Return whether files in a folder, which need not exist yet, would be read as records."""
        from monitor.sources.directory.directory_access import would_be_read  # noqa: PLC0415 - it imports this module

        return would_be_read(folder, self)

    def describe(self) -> str:
        """Return the line for `cpcmon check-config`."""
        try:
            there = "" if self.path.is_dir() else ": does not exist; cpcmon will wait for it"
        except OSError as error:
            there = f": cannot be read ({error.strerror}); cpcmon will wait for it"
        return f"directory {self.path}{there}"

    def build(self, context: SourceContext) -> Source:
        """Return the source."""
        from monitor.sources.directory.directory_access import identity_of  # noqa: PLC0415 - they import this module
        from monitor.sources.directory.directory_source import DirectorySource  # noqa: PLC0415
        from monitor.sources.directory.poll_context import CrashGuard  # noqa: PLC0415

        # The state directory is never read as input, not even through a link or a mount.
        options = replace(self, never=(identity_of(context.state_path),))
        guard = CrashGuard(context.state_path / f"in_flight.{context.name}")
        return DirectorySource(context.name, options, context.decoder(), key=context.key, guard=guard)
