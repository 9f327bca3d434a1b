"""One control group per machine: two systemds in one group would stop each other's services."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

LIMIT = 30.0


@contextlib.contextmanager
def machine_groups(name: str) -> Iterator[list[Path]]:
    """Create a group in each hierarchy of systemd; raises OSError without permission."""
    groups = [parent / name for parent in _parents()]
    try:
        for group in groups:
            group.mkdir()
        yield groups
    finally:
        for group in groups:
            _remove(group)


def _parents() -> Iterator[Path]:
    """Yield the groups of this process: in cgroup v2, and in the systemd hierarchy of v1."""
    within = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, kind, path = line.split(":", 2)
        within[kind] = path
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, filesystem = line.partition(" - ")
        kind, _, options = filesystem.split(" ", 2)
        name = "" if kind == "cgroup2" else "name=systemd"
        used_by_systemd = kind == "cgroup2" or name in options.split(",")
        # A hierarchy may be mounted twice.
        if used_by_systemd and (path := within.pop(name, "")):
            point = Path(mount.split()[4])
            inner = point / path.lstrip("/")
            yield inner if inner.is_dir() else point


def _remove(group: Path) -> None:
    """Remove a group and its children, once their processes are gone."""
    deadline = time.monotonic() + LIMIT
    while group.is_dir():
        try:
            for folder in sorted((one for one in group.rglob("*") if one.is_dir()), reverse=True):
                folder.rmdir()
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
