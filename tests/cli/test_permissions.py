"""Commands in directories of another user: a one-line error.

As root without capabilities, since another user may not be able to run the interpreter.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.servers import needs_root, real_server

pytestmark = pytest.mark.slow

CONFIG = "storage: {path: theirs}\nsources: [{name: a, type: directory, path: theirs}]\nmodels: [{name: density}]\n"
OTHER_USER = 65534


@pytest.fixture
def place(calibrated: Path) -> Iterator[Path]:
    """A read-only directory of another user, with a file that only that user can read."""
    needs_root("change the owner of files")
    folder = Path(tempfile.mkdtemp(prefix="cpcmon-permissions-"))
    try:
        (folder / "theirs").mkdir()
        (folder / "inbox").mkdir()
        (folder / "config.yaml").write_text(CONFIG.replace("path: theirs}]", "path: inbox}]"))
        shutil.copy(calibrated / "density.ref", folder)
        shutil.copy(calibrated / "validation.jsonl", folder)
        for one in (folder, *folder.iterdir()):
            one.chmod(0o755 if one.is_dir() else 0o644)
            os.chown(one, OTHER_USER, OTHER_USER)
        (folder / "validation.jsonl").chmod(0o600)
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "demo --directory new",
            "--directory new: expected a folder, found no write permission: choose",
        ),
        ("demo --directory theirs", "--directory theirs: expected a folder, found no write permission"),
        ("demo --tour --directory theirs", "--directory theirs: expected a folder, found no write permission"),
        ("run --config.file config.yaml --web.listen-address 127.0.0.1:0", "theirs: expected a folder owned by"),
        ("run --config.file config.yaml --config.check", "theirs: expected a folder owned by this user, found"),
        (
            "check-config config.yaml",
            "theirs: expected a folder owned by this user, found no write permission",
        ),
        ("watch inbox --reference density.ref --state new", "permission to create one, found no write permission"),
        ("watch inbox --reference density.ref --state theirs", "theirs: expected a folder owned by this user"),
        (
            "calibrate --input validation.jsonl --model m --output m.ref",
            "--output m.ref: expected a writable directory",
        ),
        ("calibrate --input validation.jsonl --model m --output /tmp/m.ref", "expected a readable file, found Perm"),
        ("rules --config.file config.yaml --output theirs/r.yml", "expected a writable directory, found"),
    ],
)
def test_a_directory_of_another_user_is_an_error(words: str, message: str, place: Path) -> None:
    """And nothing is written."""
    before = sorted(place.rglob("*"))
    rights = ["--bounding-set", "-all", "--inh-caps", "-all", "--ambient-caps", "-all"]
    ran = subprocess.run(
        [real_server("setpriv"), *rights, sys.executable, "-m", "monitor", *words.split()],
        cwd=place, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2, ran.stderr
    assert message in ran.stderr.splitlines()[-1]
    assert "Errno" not in ran.stderr
    assert "internal error" not in ran.stderr
    assert sorted(place.rglob("*")) == before
