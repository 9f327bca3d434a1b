"""The folder that holds the state: private, local, held by one process, with the key for hashes beside the database."""

import errno
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

from monitor.errors import StateError, StateInUse, StatePaused, StateRefused

_KEY = "hash.key"
_LOCK = "state.lock"
KEY_BYTES = 16
BALLAST_BYTES = 8 << 20
_LAST_COMMIT = 32
"""Where in `state.lock`, after the number of the process."""

# SQLite's write-ahead log needs locks and shared memory that these do not give.
_NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
}  # fmt: skip


def filesystem_of(path: Path) -> str:
    """Return the type of the filesystem that a path lies on, as the kernel names it; empty where it does not say."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    real = os.path.realpath(path)
    best, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        # Spaces and the like are written as \040 in a mount point.
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), words[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point the later hides the earlier.
        if inside and len(point) >= best:
            best, found = len(point), after.split(" ", 1)[0]
    return found


def no_folder(path: Path, error: OSError) -> str:
    """Return what was found in place of a folder to write to, and what to do."""
    if isinstance(error, PermissionError):
        return "that this user may not write there: choose another, or start as the user whose it is"
    if not isinstance(error, FileExistsError | NotADirectoryError):
        return f"{(error.strerror or type(error).__name__).lower()}: choose another place"
    taken = next((one for one in (path, *path.parents) if one.exists() and not one.is_dir()), path)
    where = "a file" if taken == path else f"that {taken} is a file"
    return f"{where}: choose another place"


def check_folder(path: Path, *, allow_network: bool = False, filesystem: Callable[[Path], str] = filesystem_of) -> None:
    """Raise what `StateFolder.hold` would raise, except that the folder may be in use; leave nothing behind."""
    try:
        there = next(one for one in (path, *path.parents) if os.path.lexists(one))
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        _check_local(path, allow_network=allow_network, filesystem=filesystem)
        # Tried, not asked for: permissions are not the only thing that keeps a folder from being written.
        with tempfile.TemporaryDirectory(dir=there, prefix=".cpcmon-"):
            pass
        if there == path:
            path.chmod(stat.S_IMODE(path.stat().st_mode))  # which only the owner may
    except OSError as error:
        # Whoever checks a daemon that is running may have fewer rights than the daemon, as under systemd.
        if not _is_held(path):
            raise _refused(path, error) from error


def _is_held(path: Path) -> bool:
    """Tell whether a running cpcmon holds a state folder, where this process may know."""
    try:
        with (path / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _check_local(path: Path, *, allow_network: bool, filesystem: Callable[[Path], str]) -> bool:
    """Tell whether a path lies on a network filesystem; raises StateRefused unless that is allowed."""
    kind = filesystem(path)
    if kind in _NETWORK and not allow_network:
        raise StateRefused(
            f"{path}: expected a local filesystem, found {kind}: a database there is damaged by the first lost lock;"
            " choose a folder on a local disk, or insist with storage.allow_network: true (cpcmon watch: --state-allow-network)"
        )
    return kind in _NETWORK


def _refused(path: Path, error: OSError) -> StateError:
    """Return what to raise for a folder that cannot be made, or not be written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
        found = "it read-only" if error.errno == errno.EROFS else os.strerror(error.errno).lower()
        return StatePaused(f"{path}: expected a disk that can be written, found {found}")
    is_there = os.path.isdir(path)  # noqa: PTH112 - unlike Path.is_dir, False where this user may not look
    expected = "a folder that belongs to this user" if is_there else "a folder, or a place where one can be made"
    return StateRefused(f"{path}: expected {expected}, found {no_folder(path, error)}")


class StateFolder:
    """A state folder that this process holds until it closes it."""

    def __init__(self, path: Path, lock: int, *, networked: bool) -> None:
        self.path = path
        self._lock = lock
        self.networked = networked
        """Whether it lies on a network filesystem, and the operator insisted."""

    @classmethod
    def hold(
        cls, path: Path, *, allow_network: bool = False, filesystem: Callable[[Path], str] = filesystem_of
    ) -> Self:
        """Make the folder if there is none, and hold it; raises StateRefused or StateInUse."""
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            networked = _check_local(path, allow_network=allow_network, filesystem=filesystem)
            path.chmod(0o700)
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _refused(path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            who = f"process {holder}" if holder.isdigit() else "another process"
            raise StateInUse(
                f"{path}: expected state that no other cpcmon uses, found it held by {who}:"
                " stop that one, or give this one a folder of its own"
            ) from None
        # Always as long as before: a file that shrank needs room to grow again, and the disk may be full.
        with suppress(OSError):
            os.pwrite(lock, f"{os.getpid():<31}\n".encode(), 0)
        return cls(path, lock, networked=networked)

    def key(self) -> bytes:
        """Return the key of all hashes; it lies outside the database, so that a copy of that tells nothing."""
        try:
            return key_in(self.path)
        except StateRefused:
            key = secrets.token_bytes(KEY_BYTES)
            write_whole(self.path / _KEY, key)
            return key

    def note_commit(self, database: int, number: int) -> None:
        """Note outside the database which transaction was the last; it is then on disk already, so this need not be."""
        with suppress(OSError):
            os.pwrite(self._lock, f"{database:>20} {number:>20}\n".encode(), _LAST_COMMIT)

    def last_commit(self) -> tuple[int, int]:
        """Return of which database the last transaction was, and its number; zeros where nothing is known."""
        try:
            database, number = os.pread(self._lock, 42, _LAST_COMMIT).split()
            return int(database), int(number)
        except (OSError, ValueError):
            return 0, 0

    def keep_ballast(self) -> None:
        """Keep some room that an operator can free at once, by deleting a file, when the disk is full."""
        file = self.path / "ballast"
        try:
            if not file.exists():
                write_whole(file, bytes(BALLAST_BYTES))
        except OSError:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process have it."""
        os.close(self._lock)


def key_in(folder: Path) -> bytes:
    """Return the key that lies in a state folder, whoever holds it; raises StateRefused when there is none."""
    try:
        key = (folder / _KEY).read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != KEY_BYTES:
        raise StateRefused(f"{folder / _KEY}: expected {KEY_BYTES} bytes, found {len(key)}")
    return key


def write_whole(path: Path, content: bytes) -> None:
    """Write a private file that is there whole or not at all, whenever the power fails."""
    temporary = path.with_name(f"{path.name}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
