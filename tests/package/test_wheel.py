"""The content of the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def _built(fresh: Path, folder: Path) -> Path:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(fresh)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("cpcmon-*.whl")
    return wheel


def test_the_wheel_holds_the_package_its_types_and_nothing_else(fresh: Path, tmp_path: Path) -> None:
    """No tests or benchmarks; py.typed, the licence, and the command."""
    wheel = _built(fresh, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry = next(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {name.split("/")[0].split("-")[0] for name in names} == {"monitor", "cpcmon"}
    assert {str(path.relative_to(fresh)) for path in (fresh / "monitor").rglob("*") if path.is_file()} <= set(names)
    assert any(name.endswith("LICENSE") for name in names)
    assert "cpcmon = monitor.__main__:main" in entry
