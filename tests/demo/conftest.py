"""The demo's reference, made once for all tests, and a Kafka broker."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.demo.demo_folder import Folder
from monitor.reference.reference import Reference
from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka
from tests.made_once import made_once

__all__ = ["kafka", "prepared", "real_kafka", "reference", "run_folder", "secured_kafka"]


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(place: Path) -> None:
        folder = Folder(place)
        with folder.held():
            assert folder.known_reference() is None
            folder.make_reference(lambda _: None)

    return made_once(tmp_path_factory, "demo", make)


@pytest.fixture(scope="session")
def reference(_made: Path) -> Reference:
    """The demo's reference."""
    return Reference.load(_made / "density.ref")


@pytest.fixture
def prepared(_made: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Make a demo folder with a reference, as after a first run."""

    def make(name: str = "demo") -> Path:
        return Path(shutil.copytree(_made, tmp_path / name))

    return make
