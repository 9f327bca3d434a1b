"""The settings of a watched directory, and the list of events it counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from monitor.errors import UsageError
from monitor.records.record_batch import Format


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
    """The settings of a watched directory."""

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
    max_line_bytes: int = 1 << 20
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
        """Return whether archived files cannot be mistaken for new ones."""
        try:
            parts = archive.absolute().relative_to(self.path.absolute()).parts
        except ValueError:
            return True
        return any(part.startswith((".", "_")) for part in parts) or (bool(parts) and not self.recursive)
