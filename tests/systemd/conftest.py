"""A machine with cpcmon, installed with the commands of docs/deployment.md."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest

from monitor.demo.example_data import write_example
from tests.made_once import made_once
from tests.systemd.bundle import make_bundle
from tests.systemd.machine import CannotBoot, Machine, boot
from tests.systemd.page import steps
from tests.systemd.service import Service


@contextmanager
def real_systemd(folder: Path, software: Path | None = None) -> Iterator[Machine]:
    """Boot a machine; skip where that is impossible, and fail in CI if systemd-nspawn is missing."""
    try:
        with boot(folder, software) as machine:
            yield machine
    except CannotBoot as error:
        message = f"SKIPPED: cannot boot a machine with systemd-nspawn: {error}"
        if os.environ.get("CI") == "true" and which("systemd-nspawn") is None:
            pytest.fail(message)
        pytest.skip(message)


@dataclass(frozen=True)
class Installation:
    """What the first two steps of the page make."""

    folder: Path

    @property
    def bundle(self) -> Path:
        """The bundle of the first step."""
        return self.folder / "tree" / "dist" / "cpcmon"

    @property
    def software(self) -> Path:
        """/opt/cpcmon after the second step."""
        return self.folder / "software"

    @property
    def output(self) -> str:
        """The output of the second step."""
        return (self.folder / "output").read_text(encoding="utf-8")

    @classmethod
    def make(cls, folder: Path) -> None:
        """Take both steps, the second on a new machine."""
        with real_systemd(folder) as machine:
            made = cls(folder)
            shutil.copytree(make_bundle(folder), machine.path("/root/cpcmon"))
            (commands,) = steps()["Install it"]
            # Only what cpcmon imports is compiled, and not all of scipy.
            (folder / "output").write_text(machine.check_output(f"export PIP_COMPILE=0\n{commands}"), encoding="utf-8")
            machine.check_output(f"/opt/cpcmon/bin/python -c '{_IMPORT_ALL}'")
            # Ten thousand files.
            subprocess.run(["cp", "--archive", str(machine.path("/opt/cpcmon")), str(made.software)], check=True)


_IMPORT_ALL = """
import importlib, pkgutil, numpy.ma, monitor
for one in pkgutil.walk_packages(monitor.__path__, "monitor."):
    importlib.import_module(one.name)
"""


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Made once for all workers, since it takes longest."""
    return Installation(made_once(tmp_path_factory, "systemd", Installation.make))


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Example data: a labelled set, and outputs of two sites."""
    folder = tmp_path_factory.mktemp("example")
    write_example(folder)
    return folder


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine without cpcmon, for one test."""
    with real_systemd(tmp_path) as machine:
        yield machine


@pytest.fixture(scope="session")
def installed(
    tmp_path_factory: pytest.TempPathFactory, installation: Installation, calibrated: Path
) -> Iterator[Service]:
    """A machine with cpcmon for all tests of a worker, installed as in the page."""
    with real_systemd(tmp_path_factory.mktemp("machine"), installation.software) as machine:
        shutil.copytree(installation.bundle, machine.path("/root/cpcmon"), ignore=shutil.ignore_patterns("*.whl"))
        machine.check_output("ln --symbolic /opt/cpcmon/bin/cpcmon /usr/local/bin/cpcmon")
        service = Service(machine)
        service.configure()
        shutil.copy(calibrated / "density.ref", machine.path("/etc/cpcmon"))
        for step in ("Prepare the results directory", "Start it"):
            for commands in steps()[step]:
                machine.check_output(commands)
        yield service


@pytest.fixture
def service(installed: Service) -> Service:
    """The service: stopped, without state and results, with short intervals."""
    installed.reset()
    return installed


@pytest.fixture(scope="session")
def records(example: Path) -> list[str]:
    """Records as JSON lines without ids, so that a record read twice would count twice."""
    return (example / "site_a.jsonl").read_text(encoding="utf-8").splitlines()
