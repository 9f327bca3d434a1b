"""The offline installation bundle, built with the commands of docs/deployment.md."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT
from tests.systemd.machine import PATH
from tests.systemd.page import steps
from tests.wheels import local_packages

_FILES = ("monitor", "deploy", "pyproject.toml", "README.md", "LICENSE", "requirements.lock", "config.example.yaml")
"""The files that the commands need."""


def make_bundle(folder: Path) -> Path:
    """Build a bundle of this tree; return its folder."""
    tree = folder / "tree"
    _copy_tree(tree)
    (commands,) = steps()["Make a bundle"]
    _run(commands, tree)
    return tree / "dist" / "cpcmon"


def newer_bundle(bundle: Path, folder: Path, version: str) -> Path:
    """Return a copy of a bundle with another version of cpcmon."""
    tree, newer = folder / "newer-tree", folder / "newer-bundle"
    _copy_tree(tree)
    project = tree / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    line = next(one for one in text.splitlines() if one.startswith("version = "))
    project.write_text(text.replace(line, f'version = "{version}"', 1), encoding="utf-8")
    shutil.copytree(bundle, newer, ignore=shutil.ignore_patterns("cpcmon-*.whl"))
    python = bundle.parent / "venv" / "bin" / "python"
    _run(f"{python} -m pip wheel --quiet --no-deps --wheel-dir {newer} .", tree)
    return newer


def _copy_tree(to: Path) -> None:
    to.mkdir(parents=True)
    for name in _FILES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, to / name)


def _run(commands: str, folder: Path) -> None:
    # With the Python of the system, which is that of the machine.
    python = shutil.which("python3", path=PATH) or "python3"
    environment = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder, env={**environment, **local_packages(python), "PATH": PATH}, check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert ran.returncode == 0, f"exit code {ran.returncode} of:\n{commands}\n{ran.stdout}\n{ran.stderr}"
