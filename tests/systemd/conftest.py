"""A machine with cpcmon on it, installed with the commands of docs/deployment.md."""

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
from tests.systemd.machine import CannotBoot, Machine, booted
from tests.systemd.page import steps
from tests.systemd.service import Service


@contextmanager
def real_systemd(folder: Path, software: Path | None = None) -> Iterator[Machine]:
    """Boot a machine; where that is impossible skip loudly, and in CI fail unless it is the kernel that forbids it."""
    try:
        with booted(folder, software) as machine:
            yield machine
    except CannotBoot as error:
        message = f"NO MACHINE COULD BE BOOTED WITH SYSTEMD-NSPAWN, what it would show is not shown: {error}"
        # A program can be installed; rights that a machine does not have cannot.
        if os.environ.get("CI") == "true" and which("systemd-nspawn") is None:
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share, and no other run."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "systemd"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def can_boot(run_folder: Path) -> None:
    """Whether there can be a machine at all, which is known before anything is made for it."""
    with real_systemd(run_folder):
        pass


@pytest.fixture(scope="session")
def bundle(run_folder: Path, can_boot: None) -> Path:  # noqa: ARG001, a condition
    """What the page's first step makes; once for all workers."""
    made = run_folder / "bundle"
    with locked(run_folder / "bundle.lock"):
        if not made.exists():
            shutil.rmtree(run_folder / "tree", ignore_errors=True)
            made.symlink_to(make_bundle(run_folder))
    return made.resolve()


@pytest.fixture(scope="session")
def software(run_folder: Path, bundle: Path) -> Path:
    """What the page's second step leaves in /opt/cpcmon; once for all workers, since it takes longest."""
    made = run_folder / "software"
    with locked(run_folder / "software.lock"):
        if not made.exists():
            with real_systemd(run_folder) as machine:
                shutil.copytree(bundle, machine.path("/root/cpcmon"))
                (commands,) = steps()["Install it"]
                machine.done(commands)
                shutil.rmtree(run_folder / "partial", ignore_errors=True)
                shutil.copytree(machine.path("/opt/cpcmon"), run_folder / "partial", symlinks=True)
            (run_folder / "partial").rename(made)
    return made


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's labelled set, and its outputs at two sites."""
    folder = tmp_path_factory.mktemp("example")
    write_example(folder)
    return folder


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine of the test's own, on which cpcmon never was."""
    with real_systemd(tmp_path) as machine:
        yield machine


@pytest.fixture(scope="session")
def installed(
    tmp_path_factory: pytest.TempPathFactory, bundle: Path, software: Path, example: Path
) -> Iterator[Service]:
    """Cpcmon on a machine for all tests of a worker, as the steps of the page leave it."""
    with real_systemd(tmp_path_factory.mktemp("machine"), software) as machine:
        shutil.copytree(bundle, machine.path("/root/cpcmon"), ignore=shutil.ignore_patterns("*.whl"))
        shutil.copy(example / "validation_labelled.jsonl", machine.path("/root"))
        machine.done("ln --symbolic /opt/cpcmon/bin/cpcmon /usr/local/bin/cpcmon")
        for step in ("Prepare the results directory", "Write the configuration", "Start it"):
            for commands in steps()[step]:
                machine.done(commands)
        yield Service(machine)


@pytest.fixture
def service(installed: Service) -> Service:
    """The service: stopped, without state and results, with a configuration that is quick to answer."""
    installed.begin_anew()
    return installed


@pytest.fixture(scope="session")
def records(example: Path) -> list[str]:
    """Outputs of the model at its own site, one a line; without ids, by which records that come twice would be known."""
    return (example / "site_a.jsonl").read_text(encoding="utf-8").splitlines()
