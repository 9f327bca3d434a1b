"""Disk images, to cut the power or to fill them."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import needs_root, real_server


class Disk:
    """A mounted ext4 image, whose power can be cut.

    Unsynced writes are in the page cache of the mounted filesystem, not in the image. So a copy of the image, taken
    without syncing, is what a disk would contain after a power cut.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        self._folder, self._cuts = folder, 0
        image = self._image
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], capture_output=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"SKIPPED: cannot create an ext4 image: {made.stderr.decode().strip()}")
        if problem := self._mount():
            pytest.skip(f"SKIPPED: cannot mount an image: {problem}")

    @property
    def point(self) -> Path:
        """The mount point; a new one after each power cut."""
        return self._folder / f"disk{self._cuts}"

    @property
    def _image(self) -> Path:
        return self._folder / f"disk{self._cuts}.img"

    def cut_power(self) -> None:
        """Mount a copy of the image; no process may use the disk."""
        old_image, old_point = self._image, self.point
        self._cuts += 1
        subprocess.run(["cp", "--sparse=always", str(old_image), str(self._image)], check=True)
        subprocess.run(["umount", str(old_point)], check=True)
        old_image.unlink()
        problem = self._mount()
        assert not problem, problem

    def unmount(self) -> None:
        """Unmount the disk, and delete its image."""
        subprocess.run(["umount", "-l", str(self.point)], check=True)
        self._image.unlink()

    def _mount(self) -> str:
        self.point.mkdir()
        # No periodic sync by the filesystem: only what the program synced must survive.
        command = ["mount", "-o", "loop,commit=600", str(self._image), str(self.point)]
        mounted = subprocess.run(command, capture_output=True, check=False)
        return mounted.stderr.decode().strip() if mounted.returncode else ""


@contextmanager
def mounted_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """Mount a disk; skip without root."""
    needs_root("mount a disk")
    for program in ("mkfs.ext4", "mount"):
        real_server(program)
    disk = Disk(folder, megabytes)
    try:
        yield disk
    finally:
        disk.unmount()
