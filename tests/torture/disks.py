"""Disks on images: the power can be cut, and they can be full."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import needs_root, real_server


class Disk:
    """A mounted ext4 image, whose power can be cut.

    What a program wrote and did not sync lies in the page cache of the mounted filesystem, not in the image. So a copy
    of the image, taken without syncing, holds what a disk would hold after a power cut at that instant.
    """

    def __init__(self, folder: Path, megabytes: int) -> None:
        self._folder, self._cuts = folder, 0
        image = self._image
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], capture_output=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"SKIPPED, NOT SHOWN: no ext4 image here: {made.stderr.decode().strip()}")
        if problem := self._mount():
            pytest.skip(f"SKIPPED, NOT SHOWN: no loop mount here: {problem}")

    @property
    def point(self) -> Path:
        """The present mount point; another one after each power cut."""
        return self._folder / f"disk{self._cuts}"

    @property
    def _image(self) -> Path:
        return self._folder / f"disk{self._cuts}.img"

    def cut_power(self) -> None:
        """Mount what the disk holds now; its users are dead already."""
        old_image, old_point = self._image, self.point
        self._cuts += 1
        subprocess.run(["cp", "--sparse=always", str(old_image), str(self._image)], check=True)
        subprocess.run(["umount", str(old_point)], check=True)
        old_image.unlink()
        problem = self._mount()
        assert not problem, problem

    def unmount(self) -> None:
        """Unmount and delete it."""
        subprocess.run(["umount", "-l", str(self.point)], check=True)
        self._image.unlink()

    def _mount(self) -> str:
        self.point.mkdir()
        # Its own timer is to sync nothing: a cut must find what the program synced, and no more.
        words = ["mount", "-o", "loop,commit=600", str(self._image), str(self.point)]
        mounted = subprocess.run(words, capture_output=True, check=False)
        return mounted.stderr.decode().strip() if mounted.returncode else ""


@contextmanager
def own_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """Mount a disk; skips without permission."""
    needs_root("mount a disk of its own")
    for program in ("mkfs.ext4", "mount"):
        real_server(program)
    disk = Disk(folder, megabytes)
    try:
        yield disk
    finally:
        disk.unmount()
