"""Shared fixtures, and the profile of hypothesis."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from monitor.cli import main
from tests.cli.examples import prepare
from tests.made_once import made_once
from tests.servers import real_server

# Seeds are fixed, so that failures are reproducible.
settings.register_profile(
    "cpcmon", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("cpcmon")

# Environments made by tests are used once, so compiling their modules is not worth it.
os.environ.setdefault("PIP_COMPILE", "0")
# promtool, Prometheus and others spend a third of their time on collecting garbage.
os.environ.setdefault("GOGC", "400")

ROOT = Path(__file__).resolve().parents[1]
_REAL_SETS = ROOT.parent / "shared" / "real_sets"


_FOLDERS = {name: f"tests/{name}/" for name in ("browser", "kafka", "systemd", "torture")}
_FIXTURES = {"kafka": {"kafka", "mock_kafka", "real_kafka", "secured_kafka"}, "slow": {"promtool", "tools"}}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need servers. Sort files with slow tests first: xdist gives each file to one worker."""
    for item in items:
        for marker, folder in _FOLDERS.items():
            if item.nodeid.startswith(folder):
                item.add_marker(marker)
        for marker, fixtures in _FIXTURES.items():
            if not fixtures.isdisjoint(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
    slow = Counter(item.path for item in items if any(map(item.get_closest_marker, ("slow", *_FOLDERS))))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(scope="session")
def real_sets() -> Path:
    """Folder of outputs of real models, which is beside the repository and never in it."""
    if not (_REAL_SETS / "expected.json").exists():
        pytest.skip("../shared/real_sets is absent: the values of real models are not compared")
    return _REAL_SETS


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its reference, and the output of the first commands. Read-only: all workers share it."""
    return made_once(tmp_path_factory, "example", prepare)


@pytest.fixture(scope="module")
def example_folder(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A writable copy of it."""
    return Path(shutil.copytree(calibrated, tmp_path_factory.mktemp("typed") / "folder"))


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A copy of this tree without environment and caches, like a clone."""
    folder = tmp_path / "clone" / "cpcmon"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def cpcmon(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command in this process and return its exit code and output."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def promtool() -> Path:
    """The path of promtool."""
    return Path(real_server("promtool"))
