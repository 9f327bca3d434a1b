"""Folders that are slow to make are made once for all workers of a test run."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.jars import locked


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of this run share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder filled by the first worker; the others wait. It must not be changed."""
    folder = shared_folder(factory) / f"once-{name}"
    partial = folder.with_suffix(".partial")
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            # A killed worker may have left a partial folder.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder
