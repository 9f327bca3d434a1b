"""What the tests share: where the real sets lie, and how long hypothesis may think."""

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from monitor.cli import main
from tests.cli.examples import prepare
from tests.made_once import made_once
from tests.servers import real_server

# Seeds are fixed: a red build must be red again on the next machine.
settings.register_profile(
    "cpcmon", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("cpcmon")

# Environments that tests set up run once: most of what pip would compile for them is never imported.
os.environ.setdefault("PIP_COMPILE", "0")

ROOT = Path(__file__).resolve().parents[1]
_REAL_SETS = ROOT.parent / "shared" / "real_sets"


_LONGEST = ("tests/package/test_readme.py", "tests/package/test_wheel.py", "tests/torture/test_b_kills.py")
"""Files whose single tests take longest."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the longest tests first, one file on each worker: one that starts last is waited for alone.

    xdist hands each worker as many tests as the others, in their order, and lets those steal that are done.
    """
    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    long = [[item for item in items if item.nodeid.startswith(file)] for file in _LONGEST]
    others = iter([item for item in items if not item.nodeid.startswith(_LONGEST)])
    total, ordered = len(items), list[pytest.Item]()
    for worker in range(workers):
        ordered += itertools.chain.from_iterable(long[worker::workers])
        ordered += itertools.islice(others, max(0, total * (worker + 1) // workers - len(ordered)))
    items[:] = [*ordered, *others]


@pytest.fixture(scope="session")
def real_sets() -> Path:
    """Folder of real models' outputs, which lies beside the repository and never in it."""
    if not (_REAL_SETS / "expected.json").exists():
        pytest.skip("../shared/real_sets is absent: the values of real models are not compared")
    return _REAL_SETS


@pytest.fixture(scope="session")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its reference, and what the first commands leave; only to be read, for all workers share it."""
    return made_once(tmp_path_factory, "example", prepare)


@pytest.fixture(scope="module")
def example_folder(calibrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it, in which every command can be typed."""
    return Path(shutil.copytree(calibrated, tmp_path_factory.mktemp("typed") / "folder"))


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """What a clone of this tree would hold: no environment, no caches."""
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
    """What a command did."""

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
    """The tool that checks metrics, rules and alerts as Prometheus itself would."""
    return Path(real_server("promtool"))
