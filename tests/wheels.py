"""The packages of a fresh installation, fetched once from PyPI and kept outside the tree."""

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.kafka.jars import locked

_ROOT = Path(__file__).resolve().parents[1]
_LOCKS = ("requirements.lock", "requirements-dev.lock", "pyproject.toml")


def wheel_folder(python: str) -> Path:
    """Return a folder with what pip needs on a Python: the locked packages, the build tools, and matplotlib."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpcmon"
    cache.mkdir(parents=True, exist_ok=True)
    asked = [python, "-c", "import sys; print(sys.implementation.cache_tag)"]
    tag = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    recipe = hashlib.sha256(b"".join((_ROOT / name).read_bytes() for name in _LOCKS)).hexdigest()[:8]
    folder = cache / f"wheels-{tag}-{recipe}"
    with locked(cache / "wheels.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, prefix="partial-") as partial:
                _fetch(python, Path(partial) / "wheels")
                (Path(partial) / "wheels").rename(folder)
    return folder


def local_packages(python: str) -> dict[str, str]:
    """Return the settings with which pip takes packages from that folder: asking an index costs seconds."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel_folder(python))}


def _fetch(python: str, folder: Path) -> None:
    builds = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    for wanted in (
        ["--require-hashes", "--requirement", "requirements.lock"],
        ["--constraint", "requirements-dev.lock", "matplotlib"],
        builds,
    ):
        command = [sys.executable, "-m", "pip", "--python", python, "download", "--quiet", "--dest", str(folder)]
        subprocess.run([*command, *wanted], cwd=_ROOT, check=True)
