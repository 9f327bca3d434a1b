"""The options of a watched directory, and the closed list of events it counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from monitor.errors import UsageError
from monitor.records.record_batch import Format


class DirectoryEvent(StrEnum):
    """Names under which a delivery counts what happened. They are public: they become label values."""

    BYTES_READ = "bytes_read"
    """Bytes taken from files, decoded or not."""
    BYTES_SKIPPED = "bytes_skipped"
    """Bytes that `start_at: end` left out."""
    FILES_TRUNCATED = "files_truncated"
    """Files that became shorter than what had been read of them; read again from their start."""
    FILES_REPLACED = "files_replaced"
    """Files that hold other content than what had been read of them; read again from their start."""
    FILES_ADOPTED = "files_adopted"
    """Files that go on under another name: renamed, rotated, or copied before they were truncated."""
    FILES_FAILED = "files_failed"
    """Files that as a whole cannot be used; not tried again until they change."""
    FILES_REFUSED = "files_refused"
    """Symbolic links, FIFOs, devices, sockets and other people's hard links; never opened or read."""
    FILES_UNREADABLE = "files_unreadable"
    """Files that could not be opened or read: permissions, input or output errors; tried again, ever more slowly."""
    FILES_GONE = "files_gone"
    """Files that were there and no longer are."""
    FILES_FINISHED = "files_finished"
    """Files that were archived or deleted because `on_finish` says so."""
    FILES_FORGOTTEN = "files_forgotten"
    """Files gone for so long that nothing is remembered of them."""
    PARTIAL_TAIL = "partial_tail"
    """Files whose last line has had no newline for a long time; it is read as soon as it gets one."""
    UNKNOWN_EXTENSION = "unknown_extension"
    """Files whose name promises no format; ignored."""
    LATE_BYTES = "late_bytes"
    """Bytes that a writer added to a file after it had been archived or deleted, and that were read all the same."""
    LOST_BYTES = "lost_bytes"
    """Bytes known to be lost: a file went before it was read, or a writer left half a line in a finished one."""
    FINISH_ERRORS = "finish_errors"
    """Attempts to archive or delete that failed; the file stayed where it was."""
    POLL_ERRORS = "poll_errors"
    """Polls that could not list the directory."""
    POSITIONS_DAMAGED = "positions_damaged"
    """Committed positions that could not be understood; their files are read as if never seen."""


class OnFinish(StrEnum):
    """What becomes of a file that has been read and no longer grows."""

    KEEP = "keep"
    """Nothing: it is never touched."""
    ARCHIVE = "archive"
    """It is moved into a dated folder."""
    DELETE = "delete"
    """It is deleted."""


class StartAt(StrEnum):
    """Where to begin with the files that are there when the directory is watched for the first time ever."""

    BEGINNING = "beginning"
    """They are read."""
    END = "end"
    """They count as read already; only what is added later is."""


BOUNDS: Mapping[str, tuple[float, float]] = {
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
"""The least and the greatest value of each number in the options."""


@dataclass(frozen=True, slots=True)
class DirectoryOptions:
    """How a directory is watched."""

    path: Path
    """The directory. It may be absent for a while: it is waited for."""
    pattern: str = "*"
    """Which file names are meant, as a shell would write it. Compared with the last part of a path."""
    format: Format | None = None
    """The format of all files, where their names do not tell it."""
    recursive: bool = False
    """Whether folders within the directory, such as one a day, are watched too."""
    on_finish: OnFinish = OnFinish.KEEP
    """What becomes of files that have been read."""
    finish_after_seconds: float = 3600.0
    """How long a file must not have changed before `on_finish` applies."""
    archive: Path | None = None
    """Where `archive` moves files to; `.done` within the directory unless told otherwise."""
    settle_seconds: float = 5.0
    """How long a file that cannot be read while it is written must stay the same before it counts as complete."""
    partial_timeout_seconds: float = 600.0
    """How long to wait for the rest of an unfinished last line, or for bytes where zeros are, before it is counted."""
    retry_incomplete_seconds: float = 120.0
    """How long a damaged file may still change, and be tried again, before it has failed."""
    forget_after_seconds: float = 7 * 86400.0
    """How long a file must be gone before nothing is remembered of it."""
    poll_seconds: float = 2.0
    """How often to look."""
    restat_seconds: float = 60.0
    """How often to look again at each file that seemed finished."""
    max_line_bytes: int = 1 << 20
    """Longer lines are skipped and counted."""
    bytes_per_file: int = 8 << 20
    """How much of one file is read before the others get their turn."""
    bytes_per_tick: int = 64 << 20
    """How much is read in one poll."""
    seconds_per_tick: float = 1.0
    """How long a poll reads; what is left then waits for the next one, which follows at once."""
    follow_symlinks: bool = False
    """Whether symbolic links are read at all."""
    symlink_roots: tuple[Path, ...] = ()
    """Where the file behind a symbolic link must lie."""
    never: tuple[tuple[int, int], ...] = ()
    """Device and inode of folders that are never read, wherever they are met; see `apart`."""
    start_at: StartAt = StartAt.BEGINNING
    """Where to begin when the directory is watched for the first time ever."""
    completion_marker: bool = False
    """Whether a file that cannot be read while it is written is complete exactly when `<its name>.ok` exists."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                raise UsageError(f"{name}: expected a number from {least:g} to {most:g}, found {value!r}")
        for name, kind in (("on_finish", OnFinish), ("start_at", StartAt)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise UsageError(f"{name}: expected {', '.join(kind)}, found {value!r}")
        if not self.pattern or "/" in self.pattern:
            raise UsageError(f"pattern: expected a file name with * and ?, without a slash, found {self.pattern!r}")
        if self.follow_symlinks and not self.symlink_roots:
            raise UsageError("symlink_roots: expected at least one folder that links may lead to, found none")
        if self.archive is not None and self.on_finish is not OnFinish.ARCHIVE:
            raise UsageError(f"archive: expected on_finish: archive beside it, found on_finish: {self.on_finish}")
        if self.archive is not None and not self._hides(self.archive):
            raise UsageError(
                "archive: expected a folder outside the watched one, or one in it whose name starts with a dot, "
                f"found {str(self.archive)!r}"
            )

    def _hides(self, archive: Path) -> bool:
        """Tell whether files in the archive cannot be taken for new ones."""
        try:
            parts = archive.absolute().relative_to(self.path.absolute()).parts
        except ValueError:
            return True
        return any(part.startswith((".", "_")) for part in parts) or (bool(parts) and not self.recursive)
