"""What users install: the wheel, with the source out of the way."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path


def _built(fresh: Path, folder: Path) -> Path:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(fresh)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("cpcmon-*.whl")
    return wheel


def test_the_wheel_holds_the_package_its_types_and_nothing_else(fresh: Path, tmp_path: Path) -> None:
    """No tests, no benchmarks; a marker that types are meant to be used; the licence; the command."""
    wheel = _built(fresh, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entry = next(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    assert {name.split("/")[0].split("-")[0] for name in names} == {"monitor", "cpcmon"}
    assert "monitor/py.typed" in names
    assert "monitor/core/estimators/conformal.py" in names
    assert any(name.endswith("LICENSE") for name in names)
    assert "cpcmon = monitor.__main__:main" in entry


def test_the_demo_works_from_a_wheel_with_nothing_but_what_it_needs(fresh: Path, tmp_path: Path) -> None:
    """Installed in an empty environment, away from the source: a daemon, a story, an estimate, an end."""
    environment, away = tmp_path / "environment", tmp_path / "away"
    away.mkdir()
    wheel = _built(fresh, tmp_path)
    venv.create(environment)
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--constraint", str(fresh / "requirements-dev.lock"), str(wheel)], check=True)
    assert list(environment.glob("lib/*/site-packages/matplotlib")) == []
    command = [str(environment / "bin/cpcmon"), "demo", "--seconds", "20", "--web.listen-address", "127.0.0.1:0"]
    ran = subprocess.run(command, cwd=away, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "N2 at Northlake estimated 0" in ran.stdout
    assert "The demo has ended" in ran.stdout
    assert [path.name for path in away.iterdir()] == [".demo"]
