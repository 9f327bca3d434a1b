"""The real podman, with its own storage folder and a base image made of this machine.

No registry can be reached from where the tests run. The base image is therefore empty but for the folders that a
system has, and the machine's own /usr is mounted into every step and into the container: its Python takes the place of
that of the official image. Everything else follows the Dockerfile.
"""

import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.servers import real_server
from tests.wheels import wheel_folder

BASE = "localhost/python-of-this-machine"
IMAGE = "localhost/cpcmon:test"
_LINKS = ("bin", "sbin", "lib", "lib64")
_FOLDERS = ("usr", "etc", "etc/ssl", "tmp", "proc", "sys", "dev", "run", "var", "var/tmp", "root")
_LIMIT_SECONDS = 540
_MEMORY, _ROOM_BYTES = Path("/dev/shm"), 4 << 30  # noqa: S108 - mkdtemp makes a private folder
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""Podman would raise the limits, which root may not do on every machine."""


class Podman:
    """Commands of podman in one storage folder."""

    def __init__(self, folder: Path) -> None:
        # runc: crun of Debian 12 rejects machines with both versions of cgroups.
        runtime = real_server("runc")
        self._words = [real_server("podman"), "--root", str(folder / "storage"), "--runroot", str(folder / "run")]
        self._words += ["--runtime", runtime, "--cgroup-manager", "cgroupfs", "--events-backend", "none"]

    def __call__(self, *words: str, data: bytes | None = None, check: bool = True) -> str:
        """Run a command and return its output."""
        ran = subprocess.run(
            [*self._words, *words], input=data, capture_output=True, timeout=_LIMIT_SECONDS, check=False
        )
        output = ran.stdout.decode(errors="replace")
        assert ran.returncode == 0 or not check, f"podman {words[0]}:\n{output[-3000:]}\n{ran.stderr.decode()[-3000:]}"
        return output

    def require_containers(self) -> None:
        """Skip on a machine that cannot run containers."""
        self("import", "--change", "ENV PATH=/usr/local/bin:/usr/bin:/bin", "-", BASE, data=_empty_system())
        words = ["run", "--rm", *_LIMITS, "--network", "none", "--pull", "never", *_this_machine("run")]
        output = self(*words, BASE, "python3", "-c", "print('RUNS')", check=False)
        if "RUNS" not in output:
            pytest.skip("NO CONTAINER CAN BE RUN HERE: the image is not tested")

    def build(self) -> dict[str, Any]:
        """Build the image, and return its description by podman."""
        words = ["--format", "docker", "--layers=false", "--network", "host", *_this_machine("build")]
        words += ["--build-arg", f"PYTHON_IMAGE={BASE}", "--file", str(ROOT / "deploy" / "docker" / "Dockerfile")]
        self("build", *words, "--tag", IMAGE, str(ROOT))
        (found,) = json.loads(self("inspect", "--type", "image", IMAGE))
        assert isinstance(found, dict)
        return found

    def start(self, *words: str, arguments: list[str], image: str = IMAGE) -> str:
        """Start a container without a network and return its name."""
        limits = [*_LIMITS, "--network", "none", "--no-healthcheck", "--pull", "never", *_this_machine("run")]
        return self("run", "--detach", *limits, *words, image, *arguments).strip()


def memory() -> str | None:
    """Return a folder in memory with room for an image; None without one."""
    return str(_MEMORY) if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES else None


@contextmanager
def podman(place: str | None = None) -> Iterator[Podman]:
    """Provide a podman with its storage in a folder, and clean up."""
    # Not in pytest's folder, which keeps the last runs: images are large.
    folder = Path(tempfile.mkdtemp(prefix="cpcmon-podman-", dir=place))
    try:
        made = Podman(folder)
        try:
            made.require_containers()
            yield made
        finally:
            made("rm", "--all", "--force", "--time", "0", check=False)
            made("rmi", "--all", "--force", check=False)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _empty_system() -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            archive.addfile(folder)
        for name in _LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(link)
        for name in ("etc/passwd", "etc/group"):
            archive.addfile(tarfile.TarInfo(name))
    return written.getvalue()


def _this_machine(what: str) -> list[str]:
    """Return the options that mount the machine's /usr, and give a build the packages."""
    lent = {path: path for path in ("/usr", "/etc/ld.so.cache")}
    words = []
    if what == "build":
        # pip reads its certificates even without an index.
        lent |= {path: path for path in ("/etc/ssl", "/etc/pip.conf") if Path(path).exists()}
        lent[str(wheel_folder("/usr/bin/python3"))] = "/wheels"
        words = ["--env", "PIP_NO_INDEX=1", "--env", "PIP_FIND_LINKS=/wheels", "--env", "PIP_COMPILE=0"]
    return [*words, *(word for here, there in lent.items() for word in ("--volume", f"{here}:{there}:ro"))]
