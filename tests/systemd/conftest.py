"""A machine with cpcmon, installed with the commands of docs/deployment.md."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest

from monitor.demo.example_data import write_example
from tests.kafka.jars import locked
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


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder shared by all workers of this run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "systemd"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def can_boot(run_folder: Path) -> None:
    """Skip before the bundle is built if no machine can be booted."""
    with real_systemd(run_folder):
        pass


@pytest.fixture(scope="session")
def bundle(run_folder: Path, can_boot: None) -> Path:  # noqa: ARG001, a condition
    """The bundle of the first step; once for all workers."""
    made = run_folder / "bundle"
    with locked(run_folder / "bundle.lock"):
        if not made.exists():
            shutil.rmtree(run_folder / "tree", ignore_errors=True)
            made.symlink_to(make_bundle(run_folder))
    return made.resolve()


@pytest.fixture(scope="session")
def software(run_folder: Path, bundle: Path) -> Path:
    """/opt/cpcmon after the second step; once for all workers, since it takes longest."""
    made = run_folder / "software"
    with locked(run_folder / "software.lock"):
        if not made.exists():
            with real_systemd(run_folder) as machine:
                shutil.copytree(bundle, machine.path("/root/cpcmon"))
                (commands,) = steps()["Install it"]
                machine.check_output(commands)
                shutil.rmtree(run_folder / "partial", ignore_errors=True)
                shutil.copytree(machine.path("/opt/cpcmon"), run_folder / "partial", symlinks=True)
            (run_folder / "partial").rename(made)
    return made


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
    tmp_path_factory: pytest.TempPathFactory, bundle: Path, software: Path, example: Path
) -> Iterator[Service]:
    """A machine with cpcmon for all tests of a worker, installed as in the page."""
    with real_systemd(tmp_path_factory.mktemp("machine"), software) as machine:
        shutil.copytree(bundle, machine.path("/root/cpcmon"), ignore=shutil.ignore_patterns("*.whl"))
        shutil.copy(example / "validation_labelled.jsonl", machine.path("/root"))
        machine.check_output("ln --symbolic /opt/cpcmon/bin/cpcmon /usr/local/bin/cpcmon")
        for step in ("Prepare the results directory", "Write the configuration", "Start it"):
            for commands in steps()[step]:
                machine.check_output(commands)
        yield Service(machine)


@pytest.fixture
def service(installed: Service) -> Service:
    """The service: stopped, without state and results, with short intervals."""
    installed.reset()
    return installed


@pytest.fixture(scope="session")
def records(example: Path) -> list[str]:
    """Records as JSON lines without ids, so that a record read twice would count twice."""
    return (example / "site_a.jsonl").read_text(encoding="utf-8").splitlines()
