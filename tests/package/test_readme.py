"""Runs all commands of the README in a fresh copy of the repository."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.wheels import local_packages

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def outside() -> dict[str, str]:
    """Return the environment without an active virtual environment, with a folder as package index."""
    active = {"VIRTUAL_ENV", "MAKEFLAGS", "PYTHONPATH"}
    environment = {key: value for key, value in os.environ.items() if key not in active}
    return {**environment, **local_packages(shutil.which("python3") or "python3")}


def run(command: list[str], folder: Path) -> str:
    """Run a command outside any virtual environment and return its output."""
    ran = subprocess.run(command, cwd=folder, env=outside(), capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def watch_the_daemon(folder: Path) -> None:
    """Start the daemon on a free port and wait for an estimate of site B."""
    (console,) = blocks("console")
    command = console.removeprefix("$ ").split()
    with subprocess.Popen(
        [*command, "--web.listen-address", "127.0.0.1:0"], cwd=folder, stderr=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stderr is not None
        try:
            line = next(line for line in daemon.stderr if "is ready on" in line)
            (url,) = re.findall(r"http://[^/]+/", line)
            deadline = time.monotonic() + 60.0
            while 'estimator="adaptive",model="density",segment="site=B"' not in (page := _read(f"{url}metrics")):
                assert time.monotonic() < deadline, page
                time.sleep(0.2)
            assert "site" in _read(url)
        finally:
            daemon.terminate()
        assert daemon.wait(30) == 0


def _read(url: str) -> str:
    with urlopen(url, timeout=30) as answer:  # noqa: S310 - our own
        return str(answer.read().decode())


def run_the_demo(folder: Path) -> None:
    """Run `make run` until there is an estimate, then press Ctrl-C."""
    output = folder.parent / "make-run.out"
    with (
        output.open("wb") as out,
        subprocess.Popen(
            ["make", "run"], cwd=folder, env=outside(), stdout=out, stderr=out, start_new_session=True
        ) as made,
    ):
        try:
            deadline = time.monotonic() + 900.0
            while "estimated 0" not in (text := output.read_text(encoding="utf-8")):
                assert made.poll() is None, text
                assert time.monotonic() < deadline, text
                time.sleep(0.2)
            (url,) = re.findall(r"Open (http://\S+/) in", text)
            assert 'estimator="adaptive",model="density",segment="hospital=Northlake"' in _read(f"{url}metrics")
        finally:
            os.killpg(made.pid, signal.SIGINT)
            made.wait(60)
    assert "The demo has stopped" in output.read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_command_of_the_readme_works_from_a_fresh_clone(fresh: Path) -> None:
    shell = blocks("sh")
    assert shell[0] == "make run\n"
    run_the_demo(fresh)
    (packages,) = fresh.glob(".venv/lib/*/site-packages")
    assert [name for name in ("matplotlib", "mypy", "pyarrow", "pytest") if (packages / name).exists()] == []
    extended = run(["make", "--dry-run", "lint"], fresh)
    assert "-r requirements-dev.lock" in extended, "`make test` adds what it needs"
    assert "-m venv" not in extended, "to the same environment"
    # Few records are calibrated in half the time of all.
    labelled = fresh / ".demo" / "validation_labelled.jsonl"
    labelled.write_text("".join(labelled.read_text(encoding="utf-8").splitlines(keepends=True)[:500]))
    printed = ["", *(run(["bash", "-euc", block], fresh) for block in shell[1:])]
    assert "wrote .demo/density.ref" in printed[1]
    assert "hospital=Oakmoor" in printed[2]
    assert "adaptive" in printed[3]
    assert "| `adaptive` |" in printed[4]
    assert "density site=B: 1,500 records, estimated accuracy" in printed[6]
    assert "1 model" in printed[7]
    assert "CpcmonAccuracyLow" in (fresh / ".demo/rules.yml").read_text(encoding="utf-8")
    assert (fresh / ".demo/errors.svg").stat().st_size > 2000
    watch_the_daemon(fresh)
    (python,) = blocks("python")
    output = run([str(fresh / ".venv/bin/python"), "-c", python], fresh)
    assert re.fullmatch(r"0\.\d{3} \(0\.\d{3} to 0\.\d{3}\), 2,000 records\n", output), output
    # Only the environment and the example are left behind.
    assert {path.name for path in fresh.iterdir()} - {path.name for path in ROOT.iterdir()} <= {".venv", ".demo"}
