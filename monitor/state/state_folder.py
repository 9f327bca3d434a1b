"""The state folder: private, local, locked by one process; the hash key and `rejected.jsonl` next to the database."""

import errno
import fcntl
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from monitor.errors import Problem, StateError, StateInUse, StatePaused, StateRefused
from monitor.records.record_batch import Pointer

_KEY = "hash.key"
_LOCK = "state.lock"
KEY_BYTES = 16
REJECTED = "rejected.jsonl"
MOST_REJECTED_BYTES = 64 << 20
BALLAST_BYTES = 8 << 20

# SQLite's write-ahead log needs locks and shared memory, which these do not provide.
_NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
    "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb3", "smbfs",
}  # fmt: skip


def filesystem_of(path: Path) -> str:
    """Return the filesystem type of a path as the kernel names it; empty if unknown."""
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
        # Mount points escape spaces as \040.
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal.group(1), 8)), words[4])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # A later mount on the same point hides an earlier one.
        if inside and len(point) >= best:
            best, found = len(point), after.split(" ", 1)[0]
    return found


def folder_problem(path: Path, error: OSError) -> str:
    """Return the `found` part of an error about a folder that cannot be written, with advice."""
    if isinstance(error, PermissionError):
        return "no write permission: choose another folder, or run as its owner"
    if not isinstance(error, FileExistsError | NotADirectoryError):
        return f"{(error.strerror or type(error).__name__).lower()}: choose another folder"
    taken = next((one for one in (path, *path.parents) if one.exists() and not one.is_dir()), path)
    where = "a file" if taken == path else f"that {taken} is a file"
    return f"{where}: choose another folder"


def check_folder(path: Path, *, allow_network: bool = False, filesystem: Callable[[Path], str] = filesystem_of) -> None:
    """Raise what `StateFolder.hold` would raise, unless the folder is in use. Leaves nothing behind."""
    try:
        there = next(one for one in (path, *path.parents) if os.path.lexists(one))
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        _check_local(path, allow_network=allow_network, filesystem=filesystem)
        # Try it: permissions are not the only obstacle.
        with tempfile.TemporaryDirectory(dir=there, prefix=".cpcmon-"):
            pass
        if there == path:
            path.chmod(stat.S_IMODE(path.stat().st_mode))  # fails unless this user is the owner
    except OSError as error:
        # A check may run with fewer rights than the running daemon, as under systemd.
        if not _is_held(path):
            raise _refused(path, error) from error


def _is_held(path: Path) -> bool:
    """Return whether a running cpcmon holds a state folder, as far as this process can see."""
    try:
        with (path / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _check_local(path: Path, *, allow_network: bool, filesystem: Callable[[Path], str]) -> bool:
    """Return whether a path is on a network filesystem; raise StateRefused unless that is allowed."""
    kind = filesystem(path)
    if kind in _NETWORK and not allow_network:
        advice = (
            "lost locks would damage the database; choose a folder on a local disk,"
            " or insist with storage.allow_network: true (cpcmon watch: --state-allow-network)"
        )
        raise StateRefused(Problem(str(path), "a local filesystem", f"{kind}: {advice}"))
    return kind in _NETWORK


def _refused(path: Path, error: OSError) -> StateError:
    """Return the error for a folder that cannot be created or written."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
        found = "it read-only" if error.errno == errno.EROFS else os.strerror(error.errno).lower()
        return StatePaused(Problem(str(path), "a writable disk", found))
    is_there = os.path.isdir(path)  # noqa: PTH112 - unlike Path.is_dir, False without permission
    expected = "a folder owned by this user" if is_there else "a folder, or permission to create one"
    return StateRefused(Problem(str(path), expected, folder_problem(path, error)))


class StateFolder:
    """A state folder, locked by this process until closed."""

    def __init__(self, path: Path, lock: int, *, networked: bool) -> None:
        self.path = path
        self.lock = lock
        """The file `state.lock`: the process id, then the last commit."""
        self.networked = networked
        """Whether it is on a network filesystem, by explicit setting."""

    @classmethod
    def hold(
        cls, path: Path, *, allow_network: bool = False, filesystem: Callable[[Path], str] = filesystem_of
    ) -> Self:
        """Create the folder if missing, and lock it; raises StateRefused or StateInUse."""
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
            found = f"it locked by {who}: stop that process, or use another folder"
            raise StateInUse(Problem(str(path), "a state folder that no other cpcmon uses", found)) from None
        # Fixed length: a file that shrank may not grow again on a full disk.
        with suppress(OSError):
            os.pwrite(lock, f"{os.getpid():<31}\n".encode(), 0)
        return cls(path, lock, networked=networked)

    def key(self) -> bytes:
        """Return the hash key. It is not in the database, so that a copy of the database reveals nothing."""
        try:
            return read_hash_key(self.path)
        except StateRefused:
            key = secrets.token_bytes(KEY_BYTES)
            write_atomically(self.path / _KEY, key)
            return key

    def reserve_ballast(self) -> None:
        """Reserve disk space that an operator can free at once by deleting the file."""
        file = self.path / "ballast"
        try:
            if not file.exists():
                write_atomically(file, bytes(BALLAST_BYTES))
        except OSError:
            file.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        os.close(self.lock)


def read_hash_key(folder: Path) -> bytes:
    """Return the hash key of a state folder, locked or not; raises StateRefused without one."""
    try:
        key = (folder / _KEY).read_bytes()
    except FileNotFoundError:
        key = b""
    if len(key) != KEY_BYTES:
        raise StateRefused(Problem(str(folder / _KEY), f"{KEY_BYTES} bytes", str(len(key))))
    return key


def write_atomically(path: Path, content: bytes) -> None:
    """Write a private file atomically and durably."""
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
    """Make the directory entries of a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RejectionLog:
    """`rejected.jsonl`: one JSON line per rejected record, with location and reason, without content. Rotated when large."""

    def __init__(self, folder: Path, most_bytes: int = MOST_REJECTED_BYTES) -> None:
        self._path = folder / REJECTED
        self._most_bytes = most_bytes

    def append(self, rejected: Iterable[tuple[str, str, Pointer]], now: float) -> None:
        """Append rejected records. On a full disk they are still counted, and the latest are in the database."""
        lines = [msgspec.json.encode(_rejected_line(*one, now)) for one in rejected]
        if not lines:
            return
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"\n".join(lines) + b"\n")
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        if size > self._most_bytes:
            self._path.replace(self._path.with_name(f"{REJECTED}.1"))


def _rejected_line(source: str, origin: str, pointer: Pointer, now: float) -> dict[str, Any]:
    """Return the known fields of a pointer."""
    fields = msgspec.to_builtins(pointer)
    raw = fields.pop("raw")
    line = {"at": round(now, 3), "source": source, "file": origin}
    line |= {name: value for name, value in fields.items() if value is not None}
    return line if raw is None else line | {"raw": raw}
