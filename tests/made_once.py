"""What is slow to make is made once for all workers of a test run, and copied by those who would change it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.jars import locked


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """Return the folder that all workers of this run have, and no other run."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that the first worker who asks fills; the others wait. It is only to be read."""
    folder = shared_folder(factory) / f"once-{name}"
    partial = folder.with_suffix(".partial")
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            # What a worker left that was killed half way is not taken for the whole.
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder
